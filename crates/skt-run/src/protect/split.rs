//! How the memory of a rank is divided: matrix, copies, parities, header, work space.

use super::OnLoss;
use super::segments::run_of_test;
use crate::ptest::{self, MatrixMemory};
use crate::record::MemorySplit;
use skt_checkpoint::checkpoint::group::{self, Groups, PlacementError};
use skt_checkpoint::checkpoint::header::HeaderLayout;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::protection::Settings;
use skt_config::{Pmap, TestSpec};
use skt_solver::grid::Cyclic;
use skt_solver::pgesv::{LocalShape, Params, abft};
use skt_store::layout::{Area, BANDS, CELL_BYTES, Geometry, RegionShape, SegmentLayout};

/// Bytes of the page for the seconds so far, before the solver's memory.
pub(super) const CLOCK_BYTES: usize = 4096;

/// Parts of a segment begin on pages.
pub(super) const ALIGN_BYTES: usize = 4096;

/// Bytes in the header of a segment, in a job of `ranks`, for what a checkpoint has besides the
/// matrix, or for the result of the test. They suffice at least for the latest restart, which may
/// list every second rank, and for measured rates of all ranks.
pub(super) fn state_bytes(ranks: usize) -> usize {
    (36 << 10) + 8 * ranks
}

/// [`state_bytes`] of a test: with the rate and the wait of each process column, which are in its
/// result.
pub(super) fn test_state_bytes(spec: &TestSpec) -> usize {
    state_bytes(spec.ranks()) + 2 * 25 * spec.rates.len()
}

/// The shape of the region of every rank: that of the largest part of the matrix or, with
/// checksums, of the largest memory of the solver, after its clock.
pub(super) fn region_shape(spec: &TestSpec, settings: &Settings) -> RegionShape {
    if settings.method == Method::Abft {
        let bytes = abft_doubles(spec).saturating_mul(size_of::<f64>());
        return RegionShape { rows: 1, pitch_bytes: bytes.saturating_add(CLOCK_BYTES) };
    }
    let RegionShape { rows, pitch_bytes } = matrix_shape(spec);
    let x_bytes = match spec.mxp {
        Some(_) => spec.columns().max_count_before(spec.n) * size_of::<f64>(),
        None => 0,
    };
    RegionShape { rows: rows + x_bytes.div_ceil(pitch_bytes.max(1)), pitch_bytes }
}

/// The shape of the largest part of the matrix. The solution of HPL-MxP, in double precision, is
/// kept below it.
pub(super) fn matrix_shape(spec: &TestSpec) -> RegionShape {
    let MatrixMemory { max_rows, row_bytes, .. } = ptest::matrix_memory(spec, 0, 0);
    RegionShape { rows: max_rows, pitch_bytes: row_bytes }
}

/// The process rows of a test, including checksum columns: the ranks of each, in the order of their
/// columns.
pub fn process_rows(spec: &TestSpec) -> Vec<Vec<usize>> {
    let width = spec.q + spec.checksums;
    let rank = |row: usize, col: usize| match spec.pmap {
        Pmap::RowMajor => row * width + col,
        Pmap::ColumnMajor => col * spec.p + row,
    };
    (0..spec.p).map(|row| (0..width).map(|col| rank(row, col)).collect()).collect()
}

/// The geometry of the smallest group of a test on these hosts, whose members need the most memory;
/// `None` without protection. Errors in the groups, and in their failure domains, are reported when
/// they are formed.
pub fn smallest_group<'a>(
    spec: &TestSpec,
    settings: &Settings,
    hosts: impl ExactSizeIterator<Item = &'a str>,
) -> Option<Geometry> {
    let parities = settings.parities;
    let members = match settings.method_for(hosts.len()) {
        Method::None => return None,
        Method::Abft => spec.q + spec.checksums,
        Method::SelfCheckpoint | Method::Double | Method::Single => {
            form_groups(settings, hosts, true).ok()?.members.iter().map(Vec::len).min()?
        }
    };
    Some(Geometry { members, parities })
}

/// The groups of ranks on these hosts at the beginning of a test that has checkpoints.
pub(crate) fn form_groups<'a>(
    settings: &Settings,
    hosts: impl ExactSizeIterator<Item = &'a str>,
    allow_shared_domains: bool,
) -> Result<Groups, PlacementError> {
    let Settings { group_size, parities, .. } = *settings;
    let domains: Vec<String> = hosts.map(|host| settings.domain_of(host)).collect();
    group::form(&domains, group_size, parities, allow_shared_domains)
}

/// Doubles of the solver's memory with checksums, on the rank that needs the most.
fn abft_doubles(spec: &TestSpec) -> usize {
    max_of_ranks(spec, abft::doubles)
}

/// Bytes of the region of every rank, from the first on, that matter at a cut with checksums: the
/// content of an image.
pub(super) fn abft_image_bytes(spec: &TestSpec) -> usize {
    CLOCK_BYTES + max_of_ranks(spec, abft::image_doubles) * size_of::<f64>()
}

/// The largest number of doubles of any rank; `doubles` gives that of one rank.
fn max_of_ranks(
    spec: &TestSpec,
    doubles: impl Fn(&Params, Cyclic, usize, LocalShape) -> usize,
) -> usize {
    let (params, rows) = (Params::from(spec), Cyclic::rows(spec.nb, spec.p));
    let of = |myrow, mycol| doubles(&params, rows, myrow, ptest::local_shape(spec, myrow, mycol));
    // Process row 0 has the most rows, but any may have the most below the block of the largest
    // panel.
    let places = (0..spec.p).flat_map(|row| widest(spec).map(|col| (row, col)));
    places.map(|(row, col)| of(row, col)).max().unwrap_or(0)
}

/// The process columns that have the most columns, without and with b.
fn widest(spec: &TestSpec) -> [usize; 2] {
    let cols = spec.columns();
    [spec.n, spec.n + 1].map(|columns| cols.widest(columns))
}

/// 64 PiB, more than any node has. Copies and parities of it take a few times as much.
const REGION_BYTES_MAX: u128 = 1 << 56;

/// How the memory of the largest rank of a test is divided, in groups of `geometry` (Tang et al.,
/// TPDS 2018, table 1, for any number of parities), or without checkpoints if `None`. In bytes; a
/// number beyond 64 bits is `u64::MAX`.
pub fn memory_split(
    spec: &TestSpec,
    settings: &Settings,
    geometry: Option<Geometry>,
) -> MemorySplit {
    // Process row 0 has the most rows; b may be in any process column.
    let columns = widest(spec);
    let work_bytes = columns.map(|mycol| match settings.on_loss {
        // One work space is freed before the other is allocated.
        OnLoss::Replace => ptest::work_bytes(spec, 0, mycol)
            .max(ptest::work_bytes_after_replacement(spec, 0, mycol)),
        _ => ptest::work_bytes(spec, 0, mycol),
    });
    let work_space = work_bytes.into_iter().max().unwrap_or(0);
    let Some(geometry) = geometry else {
        let rank_bytes = columns.map(|mycol| ptest::rank_bytes(spec, 0, mycol));
        let total = rank_bytes.into_iter().max().unwrap_or(0);
        return MemorySplit {
            matrix: total.saturating_sub(work_space),
            work_space,
            ..MemorySplit::default()
        };
    };
    let shape = region_shape(spec, settings);
    // A segment counts its bytes in 64 bits, including copies and parities.
    if shape.rows as u128 * shape.pitch_bytes as u128 > REGION_BYTES_MAX {
        return MemorySplit { matrix: u64::MAX, work_space, ..MemorySplit::default() };
    }
    let (_, layout) = segment_layout(spec, settings, geometry);
    let bytes = |areas: &[Area]| -> u64 {
        areas.iter().map(|area| (area.rows * area.pitch_bytes) as u64).sum()
    };
    let region = &layout.regions[0];
    if settings.method == Method::Abft {
        // Panels, the log and the words are work space in the segment.
        let matrix = columns.map(|mycol| ptest::local_shape(spec, 0, mycol).doubles() as u64 * 8);
        let matrix = matrix.into_iter().max().unwrap_or(0);
        let header = layout.bytes as u64 - matrix;
        return MemorySplit { matrix, header, work_space, ..MemorySplit::default() };
    }
    let (matrix, copies) = (bytes(&[region.a]), bytes(&region.b));
    let parities = bytes(&region.parity);
    let header = layout.bytes as u64 - matrix - copies - parities;
    MemorySplit { matrix, copies, parities, header, work_space }
}

/// [`memory_split`] of a test with checksums as its report has it: what the solver keeps in the
/// segment in addition to the matrix is work space, not header.
pub(super) fn abft_reported_split(
    spec: &TestSpec,
    settings: &Settings,
    geometry: Geometry,
) -> MemorySplit {
    let split = memory_split(spec, settings, Some(geometry));
    let moved = (abft_doubles(spec) * size_of::<f64>()) as u64 - split.matrix;
    let (header, work_space) = (split.header - moved, split.work_space + moved);
    MemorySplit { header, work_space, ..split }
}

/// Bytes of the largest rank's segment of a test whose ranks run on these hosts; 0 without
/// protection.
pub fn segment_bytes<'a>(
    spec: &TestSpec,
    settings: &Settings,
    hosts: impl ExactSizeIterator<Item = &'a str>,
) -> u64 {
    let Some(geometry) = smallest_group(spec, settings, hosts) else { return 0 };
    let split = memory_split(spec, settings, Some(geometry));
    split.total() - split.work_space
}

/// The layout of the headers of the segments of test `part` of `run`, in a job of `ranks`. The name
/// is part of a header, so its length decides where the records are.
pub fn header_layout(run: &str, part: usize, ranks: usize) -> HeaderLayout {
    HeaderLayout::new(&run_of_test(run, part), ranks, state_bytes(ranks))
}

/// The layout of the headers of the segments of a test, which is test `part` of `run`.
pub(crate) fn test_header_layout(run: &str, part: usize, spec: &TestSpec) -> HeaderLayout {
    HeaderLayout::new(&run_of_test(run, part), spec.ranks(), test_state_bytes(spec))
}

/// The layout of a rank's segment, after the page of the store.
pub fn segment_layout(
    spec: &TestSpec,
    settings: &Settings,
    geometry: Geometry,
) -> (HeaderLayout, SegmentLayout) {
    // Without parities any legal geometry gives the same layout.
    let geometry = match settings.method {
        Method::Abft => Geometry { members: 2, parities: 1 },
        _ => geometry,
    };
    // From test 10 on the name is longer, and a header may take one more page of the alignment.
    let header = test_header_layout(&settings.run_id, 0, spec);
    let (shapes, areas) = ([region_shape(spec, settings)], settings.method.areas());
    let layout = SegmentLayout::new(
        header.bytes(),
        &shapes,
        geometry,
        BANDS,
        areas,
        CELL_BYTES,
        ALIGN_BYTES,
    );
    (header, layout)
}

/// The memory of a test in words, with the share that the method leaves to the matrix in theory
/// (Tang et al., TPDS 2018, eq. 6 to 8, for any number of parities) and in these bytes.
pub(crate) fn format_memory(
    settings: &Settings,
    geometry: Geometry,
    split: &MemorySplit,
) -> String {
    let is_abft = settings.method == Method::Abft;
    let of_segment = split.matrix as f64 / (split.total() - split.work_space).max(1) as f64;
    let share = settings.method.available(geometry);
    let (what, parities, here) = if is_abft {
        ("process rows", "checksum column(s)", share * of_segment)
    } else {
        ("groups", "parities", of_segment)
    };
    let parts = [
        ("matrix", split.matrix),
        ("copies", split.copies),
        ("parities", split.parities),
        (if is_abft { "log, panels and words" } else { "header" }, split.header),
        ("work space", split.work_space),
    ];
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<String> =
        parts.map(|(name, bytes)| format!("{:.1} MiB {name}", mib(*bytes))).collect();
    format!(
        "{} in {what} of {} with {} {parities} leaves {:.1} % of the memory to the matrix (here \
         {:.1} %): a rank has {}",
        settings.method,
        geometry.members,
        geometry.parities,
        100.0 * share,
        100.0 * here,
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, MxpMatrix, Swap, parse};

    fn test_spec(n: usize) -> TestSpec {
        let toml = format!("n = {n}\nnb = 64\np = 2\nq = 4\n");
        parse(toml.as_bytes(), "t", Format::Toml, false).unwrap().spec.tests().remove(0)
    }

    #[test]
    fn bytes_follow_the_formula_within_two_per_cent() {
        let spec = test_spec(20_000);
        for method in Method::ALL {
            for (members, parities) in [(2, 1), (4, 1), (8, 1), (8, 2), (8, 4)] {
                let geometry = Geometry { members, parities };
                let settings = Settings { method, parities, ..Settings::none() };
                let split = memory_split(&spec, &settings, Some(geometry));
                let segment = (split.total() - split.work_space) as f64;
                if method == Method::Abft {
                    continue;
                }
                let formula = split.matrix as f64 / method.available(geometry);
                assert!((segment / formula - 1.0).abs() < 0.02, "{method} {members} {parities}");
            }
        }
    }

    /// The sum in doubles: A, two panels and the one that is factored, x, two copies of NB rows
    /// and, where P > 1, their U and two buffers to exchange them.
    #[test]
    fn with_checksums_a_rank_takes_its_matrix_panels_and_log_once() {
        // All process columns have the same number of block columns.
        let n = 192 * 11 * 32 * 5;
        for (p, q) in [(1, 11), (1, 16), (1, 32), (3, 10)] {
            let spec = TestSpec { n, nb: 192, p, q, checksums: 1, ..test_spec(64) };
            let settings = Settings { method: Method::Abft, ..Settings::none() };
            let geometry = Geometry { members: q + 1, parities: 1 };
            let split = memory_split(&spec, &settings, Some(geometry));
            let (rows, cols) = (n as f64 / p as f64, n as f64 / q as f64);
            let exchanged = if p > 1 { 3.0 } else { 0.0 };
            let other = 3.0 * 192.0 * rows + (2.0 + exchanged) * 192.0 * cols + n as f64;
            let by_hand = 8.0 * (rows * cols + other);
            // Rows begin on cache lines, areas on pages.
            let off = split.total() as f64 / by_hand - 1.0;
            assert!((0.0..0.002).contains(&off), "{p} x {q}: {off}");
            let matrix = split.matrix as f64 / (8.0 * rows * cols) - 1.0;
            assert!((0.0..0.002).contains(&matrix), "{p} x {q}: {matrix}");
        }
    }

    #[test]
    fn panels_and_the_log_are_no_header_in_a_report() {
        for (p, q) in [(1, 2), (2, 3)] {
            let spec = TestSpec { p, q, checksums: 1, ..test_spec(20_000) };
            let settings = Settings { method: Method::Abft, ..Settings::none() };
            let geometry = Geometry { members: q + 1, parities: 1 };
            let reported = abft_reported_split(&spec, &settings, geometry);
            assert!(reported.header < 1 << 20, "{reported:?}");
            let split = memory_split(&spec, &settings, Some(geometry));
            assert_eq!((reported.total(), reported.matrix), (split.total(), split.matrix));
        }
    }

    /// Once a process column is replaced, rows are exchanged as without checksums, in halves or
    /// not, and U is outside of the segment.
    #[test]
    fn a_replacement_takes_more_work_space_where_rows_are_exchanged() {
        // In units of U. Halves have buffers of their own.
        let (nothing, whole, halves) = (0.0..0.001, 1.0..1.1, 3.0..4.0);
        for (p, swap, units) in
            [(1, Swap::Mix, nothing), (3, Swap::SpreadRoll, whole), (3, Swap::Mix, halves)]
        {
            let spec = TestSpec { n: 9600, nb: 64, p, q: 3, checksums: 1, swap, ..test_spec(64) };
            let geometry = Some(Geometry { members: 4, parities: 1 });
            let work_space = |on_loss| {
                let settings = Settings { method: Method::Abft, on_loss, ..Settings::none() };
                memory_split(&spec, &settings, geometry).work_space
            };
            let more = work_space(OnLoss::Replace) - work_space(OnLoss::Recover);
            let more = more as f64 / (64 * 3200 * 8) as f64;
            assert!(units.contains(&more), "{p}, {swap:?}: {more}");
            assert_eq!(work_space(OnLoss::Recover), work_space(OnLoss::Restart));
        }
    }

    /// Regions have the same size on all ranks; the needs of ranks differ.
    #[test]
    fn with_checksums_each_rank_has_room() {
        let settings = Settings { method: Method::Abft, ..Settings::none() };
        let orders = |nb: usize, p: usize| [nb, 3 * nb + 1, 8 * p * 5, 64 * p * 7, 2400];
        for (p, nb) in (1..10).flat_map(|p| [1, 2, 3, 8, 64, 192].map(|nb| (p, nb))) {
            for (n, q) in orders(nb, p).into_iter().flat_map(|n| [(n, 1), (n, 3)]) {
                let spec = TestSpec { n, nb, p, q, checksums: 1, ..test_spec(64) };
                let (params, rows) = (Params::from(&spec), Cyclic::rows(nb, p));
                let RegionShape { rows: bands, pitch_bytes } = region_shape(&spec, &settings);
                for (row, col) in (0..p).flat_map(|row| (0..q).map(move |col| (row, col))) {
                    let shape = ptest::local_shape(&spec, row, col);
                    let doubles = abft::doubles(&params, rows, row, shape);
                    let needs = CLOCK_BYTES + doubles * size_of::<f64>();
                    assert!(
                        needs <= bands * pitch_bytes,
                        "{p} x {q}, NB {nb}, N {n}: {row}, {col}"
                    );
                }
            }
        }
    }

    #[test]
    fn memory_without_checkpoints_matches_the_test() {
        let spec = test_spec(1000);
        let split = memory_split(&spec, &Settings::none(), None);
        let most = (0..4).map(|mycol| ptest::rank_bytes(&spec, 0, mycol)).max().unwrap();
        assert_eq!(split.total(), most);
        assert_eq!((split.copies, split.parities, split.header), (0, 0, 0));
    }

    /// A matrix of HPL-MxP takes half of the bytes, with and without checkpoints.
    #[test]
    fn memory_of_single_precision_is_half_of_that_of_double() {
        let hpl = test_spec(20_000);
        let mxp = TestSpec { mxp: Some(MxpMatrix::FasiHigham), ..hpl.clone() };
        let settings = Settings { method: Method::SelfCheckpoint, ..Settings::none() };
        for geometry in [None, Some(Geometry { members: 4, parities: 1 })] {
            let split = |spec| memory_split(spec, &settings, geometry);
            let (double, single) = (split(&hpl), split(&mxp));
            let parts = |split: &MemorySplit| [split.matrix, split.copies, split.parities];
            for (double, single) in parts(&double).into_iter().zip(parts(&single)) {
                // b is in HPL's matrix; the solution of HPL-MxP is in memory that is saved.
                assert!((single as f64 / double as f64 - 0.5).abs() < 0.01 || double == 0);
            }
            assert!(single.work_space < double.work_space, "{single:?} {double:?}");
        }
    }

    /// The split has no fewer bytes than the matrix alone, counted in 128 bits.
    #[test]
    fn no_order_wraps_around() {
        let geometry = Some(Geometry { members: 2, parities: 1 });
        for n in
            [1 << 20, 1 << 29, 1 << 30, 1 << 31, (1 << 31) + 1, 3_037_000_500, u32::MAX as usize]
        {
            for (nb, depth) in [(1, 1), (192, 3), (1 << 31, i32::MAX as usize)] {
                for p in [1, 2] {
                    let spec = TestSpec { n, nb, depth, p, q: 3 - p, ..test_spec(64) };
                    let matrix = (n as u128).pow(2) * 8 / (spec.p * spec.q) as u128;
                    let least = matrix.min(u64::MAX.into()) as u64;
                    for geometry in [None, geometry] {
                        let method = Method::SelfCheckpoint;
                        let settings = Settings { method, ..Settings::none() };
                        let split = memory_split(&spec, &settings, geometry);
                        assert!(split.total() >= least, "N={n} NB={nb} DEPTH={depth}: {split:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_job_of_one_rank_has_no_group() {
        let settings =
            Settings { method: Method::SelfCheckpoint, method_is_asked: false, ..Settings::none() };
        let spec = test_spec(64);
        assert_eq!(smallest_group(&spec, &settings, ["a"].into_iter()), None);
        let two = smallest_group(&spec, &settings, ["a", "a"].into_iter());
        assert_eq!(two, Some(Geometry { members: 2, parities: 1 }));
        let seventeen = smallest_group(&spec, &settings, ["a"; 17].into_iter());
        assert_eq!(seventeen, Some(Geometry { members: 8, parities: 1 }));
    }
}
