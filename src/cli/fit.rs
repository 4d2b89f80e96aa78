//! The largest N of a run, by memory and time.

use clap::Args;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{
    At, CheckpointDraft, ConfigError, Draft, RunSpec, Setting, TestSpec, ValidationRules, validate,
};
use skt_run::protect::{MAX_MEMBERS, Outlook, Settings, memory_split, smallest_group};

use skt_host::ranges::share_above_zero;
use skt_host::units::{parse_seconds, span};

use super::flags::Names;
use super::pace::{Pace, operations};

const MEMORY_PART: f64 = 0.8;

/// The flags of `init` and `auto`.
#[derive(Debug, Clone, Args)]
pub(super) struct SizeArgs {
    /// Time from the start of the ranks to the end of the report [default: of auto 2m, or as long
    /// as it takes with --memory; of init as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<f64>,
    /// Part of the available memory that the matrix and its work space may take [default: 0.8]
    #[arg(long, visible_alias = "memory-fraction", value_name = "0..1")]
    #[arg(value_parser = share_above_zero)]
    pub memory: Option<f64>,
    /// Checkpoint method to leave memory for [default: self if a checkpoint is due before the end
    /// of the run, else none]
    #[arg(long, value_name = "METHOD", value_parser = Names(Method::NAMES.to_vec()))]
    pub ft: Option<String>,
    /// Threads per rank [default: of auto as many as the rank has cores; of init 1]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    /// Overwrite files that exist
    #[arg(long, short)]
    pub force: bool,
}

impl SizeArgs {
    pub(super) fn memory_part(&self) -> f64 {
        self.memory.unwrap_or(MEMORY_PART)
    }

    pub(super) fn room(&self, ranks: usize, available_bytes: u64) -> Room {
        let method = self.ft.iter().map(|method| (Setting::Method, Value::flag(method)));
        let bytes = (available_bytes as f64 * self.memory_part()) as u64;
        Room { ranks, bytes, guests: 0, seconds: self.time, asked: method.collect() }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Room {
    pub ranks: usize,
    /// Bytes of all ranks, with those of the ranks of a lost node.
    pub bytes: u64,
    /// Ranks of a lost node whose memory is left.
    pub guests: usize,
    /// From the start of the ranks to the end of the report.
    pub seconds: Option<f64>,
    pub asked: CheckpointDraft,
}

#[derive(Debug)]
pub(super) struct Fitted {
    pub spec: RunSpec,
    pub protection: CheckpointDraft,
    pub memory_n: usize,
}

impl Fitted {
    pub(super) fn words(&self, pace: &Pace, limit_seconds: Option<f64>) -> String {
        let n = self.spec.n[0];
        let element_bytes = if self.spec.mxp.is_some() { 4.0 } else { 8.0 };
        let gib = (n as f64).powi(2) * element_bytes / f64::from(1 << 30);
        let seconds = pace.seconds(&self.spec, n);
        let (gflops, takes) = (1e-9 * operations(n) / seconds, span(seconds));
        let why = match limit_seconds {
            Some(limit) if n < self.memory_n => {
                format!("the largest that ends in {}; memory holds {}", span(limit), self.memory_n)
            }
            _ => "as large as the memory holds".to_owned(),
        };
        format!(
            "N = {n} ({gib:.1} GiB, about {gflops:.0} Gflop/s, {takes} of factoring and solving): {why}"
        )
    }
}

/// A run of HPL, or of HPL-MxP, on these ranks with the protection asked for; its N is still 0.
pub(super) fn base(
    room: &Room,
    threads: usize,
    is_mxp: bool,
    source: &'static str,
) -> Result<RunSpec, ConfigError> {
    let mut draft = Draft { checkpoint: room.asked.clone(), ..Draft::default() };
    for (param, number) in [(Param::N, 0), (Param::Threads, threads)] {
        draft.values.insert(param, vec![Value::number(number)]);
    }
    let rules = ValidationRules { lenient: false, ranks: Some(room.ranks), source, is_mxp };
    let checked = validate(&draft, &rules)?;
    checked.require_ranks(room.ranks)?;
    Ok(checked.spec)
}

/// The largest run like `base` on one of `grids` that fits memory and time. Unless a protection is
/// asked for it is that of a run without flags if one of its checkpoints is due before the end,
/// else none.
pub(super) fn fit(
    base: &RunSpec,
    grids: &[(usize, usize)],
    room: &Room,
    pace: &Pace,
) -> Result<Fitted, ConfigError> {
    let fitted = fit_with(base, grids, room, pace)?;
    if room.ranks == 1 || room.guests > 0 || !room.asked.is_empty() || is_due(&fitted, pace)? {
        return Ok(fitted);
    }
    let asked = CheckpointDraft::from([(Setting::Method, Value::flag("none"))]);
    fit_with(base, grids, &Room { asked, ..room.clone() }, pace)
}

/// Whether the run takes a checkpoint before its end, if nothing slows it down.
fn is_due(fitted: &Fitted, pace: &Pace) -> Result<bool, ConfigError> {
    let settings = Settings::read(&fitted.protection, &fitted.spec)?;
    Ok(pace.outlook(&fitted.spec.tests()[0], &settings) == Some(Outlook::Due))
}

fn fit_with(
    base: &RunSpec,
    grids: &[(usize, usize)],
    room: &Room,
    pace: &Pace,
) -> Result<Fitted, ConfigError> {
    let settings = Settings::read(&room.asked, base)?;
    let method = settings.method_for(room.ranks);
    if method == Method::None && room.guests > 0 {
        return Err(At::flag("--survive-without-spares").error(
            "without checkpoints a loss sends the run back to its start: give --ft self, or leave \
             the flag out",
        ));
    }
    if room.asked.contains_key(&Setting::Parities) && method == Method::None {
        return Err(At::flag("--parities").error("without checkpoints there are none"));
    }
    let mut protection = room.asked.clone();
    protection.insert(Setting::Method, Value::text(method.to_string()));
    let settings = Settings { method, ..settings };
    let share = room.ranks as f64 / (room.ranks + room.guests) as f64;
    let bytes = (room.bytes as f64 * share) as u64;
    let sized = grids.iter().map(|&(p, q)| {
        let test = TestSpec { p, q, ..base.tests().remove(0) };
        (n_in_memory(bytes, &test, &settings), (p, q))
    });
    // Of equally good grids, the last, which is the one nearest to a square, is taken.
    let (memory_n, grid) = sized.max_by_key(|(n, _)| *n).expect("a grid");
    let nb = base.nb[0];
    if memory_n == 0 {
        return Err(ConfigError::Other(format!(
            "{bytes} bytes hold not even one block of {nb} for each of {} ranks; take fewer ranks, or \
             a larger part of the memory (--memory)",
            room.ranks
        )));
    }
    let mut spec = RunSpec { n: vec![memory_n], grids: vec![grid], ..base.clone() };
    if let Some(limit_seconds) = room.seconds {
        let in_time = |n| pace.whole_seconds(&spec, n) <= limit_seconds;
        let blocks = largest(|blocks| blocks * nb <= memory_n && in_time(blocks * nb));
        if blocks == 0 {
            return Err(At::flag("--time").error(format!(
                "{:.3} s are left, and N = {nb}, the smallest, takes {:.3} s; give more time",
                limit_seconds.max(0.0),
                pace.whole_seconds(&spec, nb)
            )));
        }
        spec.n = vec![blocks * nb];
    }
    Ok(Fitted { spec, protection, memory_n })
}

/// The grids to choose from, the flattest first: with checksums all with P at most Q. A flat grid
/// leaves a larger part of the ranks to data, a squarer one has smaller panels.
pub(super) fn grids(spec: &RunSpec, ranks: usize) -> Vec<(usize, usize)> {
    let checksums = spec.checksums;
    if checksums == 0 {
        return spec.grids.clone();
    }
    let legal = checksums + 1..=MAX_MEMBERS;
    (1..=ranks)
        .filter(|&p| ranks.is_multiple_of(p) && legal.contains(&(ranks / p)))
        .map(|p| (p, ranks / p - checksums))
        .filter(|(p, q)| p <= q)
        .collect()
}

fn job_bytes(test: &TestSpec, settings: &Settings) -> u64 {
    let geometry = smallest_group(test, settings, std::iter::repeat_n("here", test.ranks()));
    memory_split(test, settings, geometry).total().saturating_mul(test.ranks() as u64)
}

/// The largest multiple of NB with which all ranks take at most `bytes`; 0 if there is none.
pub(super) fn n_in_memory(bytes: u64, test: &TestSpec, settings: &Settings) -> usize {
    let needed = |blocks| job_bytes(&TestSpec { n: blocks * test.nb, ..test.clone() }, settings);
    test.nb * largest(|blocks| needed(blocks) <= bytes)
}

/// The largest number of blocks that `fits`, if all smaller ones do; 0 if none does.
fn largest(fits: impl Fn(usize) -> bool) -> usize {
    let (mut most, mut too_large) = (0, 1);
    while fits(too_large) {
        (most, too_large) = (too_large, too_large * 2);
    }
    while too_large - most > 1 {
        let middle = most + (too_large - most) / 2;
        if fits(middle) {
            most = middle;
        } else {
            too_large = middle;
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use skt_config::MxpMatrix;

    use super::*;

    /// Room for what `asked` has as flags: `self`, or `self 2` with two parities.
    fn room(ranks: usize, bytes: u64, asked: &str) -> Room {
        let flags = asked.split_whitespace().zip([Setting::Method, Setting::Parities]);
        let asked = flags.map(|(value, setting)| (setting, Value::flag(value))).collect();
        Room { ranks, bytes, asked, ..Room::default() }
    }

    fn pace() -> Pace {
        Pace::by_model(4e10)
    }

    /// The fit of a run of `mxp` or HPL by the memory, or by the time if the room has one.
    fn fitted(room: &Room, is_mxp: bool) -> Result<Fitted, ConfigError> {
        let spec = base(room, 1, is_mxp, "test")?;
        fit(&spec, &grids(&spec, room.ranks), room, &pace())
    }

    fn sized(ranks: usize, bytes: u64, asked: &str) -> Fitted {
        fitted(&room(ranks, bytes, asked), false).unwrap()
    }

    fn why(ranks: usize, bytes: u64, asked: &str) -> String {
        fitted(&room(ranks, bytes, asked), false).unwrap_err().to_string()
    }

    fn bytes_at(fitted: &Fitted, n: usize) -> u64 {
        let test = TestSpec { n, ..fitted.spec.tests().remove(0) };
        job_bytes(&test, &Settings::read(&fitted.protection, &fitted.spec).unwrap())
    }

    #[test]
    fn a_matrix_in_single_precision_takes_half_of_the_memory() {
        for (ft, ranks) in [("none", 1), ("none", 16), ("self", 16), ("double", 8)] {
            let bytes = 1 << 36;
            let [hpl, mxp] = [false, true].map(|is| fitted(&room(ranks, bytes, ft), is).unwrap());
            assert_eq!(mxp.spec.mxp, Some(MxpMatrix::FasiHigham));
            let ratio = mxp.spec.n[0] as f64 / hpl.spec.n[0] as f64;
            assert!((1.38..1.43).contains(&ratio), "{ft}, {ranks} ranks: {ratio}");
            let (n, nb) = (mxp.spec.n[0], mxp.spec.nb[0]);
            assert!(bytes_at(&mxp, n) <= bytes && bytes_at(&mxp, n + nb) > bytes);
        }
        let why = fitted(&room(12, 1 << 36, "abft"), true).unwrap_err().to_string();
        assert!(why.starts_with("--ft: abft has no checksums for"), "{why}");
    }

    #[test]
    fn n_is_the_largest_multiple_of_nb_within_the_memory() {
        for (ranks, gib) in [(1, 1), (2, 24), (7, 3), (48, 512), (1000, 4096)] {
            for (ft, least) in [("none", 0.75), ("self", 0.75 * 0.25)] {
                if ranks == 1 && ft == "self" {
                    continue;
                }
                let bytes = gib << 30;
                let fitted = sized(ranks, bytes, ft);
                let spec = &fitted.spec;
                let (n, nb, grid) = (spec.n[0], spec.nb[0], spec.grids[0]);
                assert_eq!(n % nb, 0);
                assert!(grid.0 <= grid.1 && grid.0 * grid.1 == ranks);
                assert!(bytes_at(&fitted, n) <= bytes);
                assert!(bytes_at(&fitted, n + nb) > bytes);
                // Work space is the smaller part.
                let matrix = n as f64 * n as f64 * 8.0;
                assert!(matrix > least * bytes as f64, "{ranks} ranks: {n}");
            }
        }
        assert!(why(64, 1 << 20, "").contains("hold not even one block"));
    }

    #[test]
    fn a_method_is_chosen_where_none_is_asked_for() {
        let method = |fitted: &Fitted| fitted.protection[&Setting::Method].text.clone();
        // A run of days has checkpoints, one of seconds has none.
        assert_eq!(method(&sized(16, 20_000 << 30, "")), "self");
        assert_eq!(method(&sized(16, 1 << 26, "")), "none");
        assert_eq!(method(&sized(1, 1 << 32, "")), "none");
        let one = "--ft: a group with 1 parity needs at least 2 ranks, not 1";
        assert_eq!(why(1, 1 << 32, "self"), one);
    }

    #[test]
    fn parities_and_guests_take_their_share_or_are_refused() {
        for (ft, ranks) in [("self", 16), ("abft", 12)] {
            let one = sized(ranks, 1 << 36, &format!("{ft} 1"));
            let two = sized(ranks, 1 << 36, &format!("{ft} 2"));
            assert!(two.spec.n[0] < one.spec.n[0], "{ft}");
            assert_eq!(two.protection[&Setting::Parities].text, "2");
        }
        let few = "--parities: a group with 2 parities needs at least 4 ranks, not 3";
        assert_eq!(why(3, 1 << 36, "self 2"), few);
        assert_eq!(why(4, 1 << 36, "none 1"), "--parities: without checkpoints there are none");
        assert!(why(12, 1 << 36, "abft 4").starts_with("--parities: value 4"));
        let guests = |asked| fitted(&Room { guests: 1, ..room(6, 1 << 36, asked) }, false);
        let (with, without) = (guests("self").unwrap(), sized(6, 1 << 36, "self"));
        let share = (with.spec.n[0] as f64 / without.spec.n[0] as f64).powi(2) * 7.0 / 6.0;
        assert!((0.95..1.01).contains(&share), "{share}");
        let why = guests("none").unwrap_err().to_string();
        assert!(why.starts_with("--survive-without-spares: without checkpoints a loss"), "{why}");
    }

    #[test]
    fn checkpoints_take_their_share_of_the_memory() {
        let order = |ft: &str, ranks| (sized(ranks, 1 << 36, ft).spec.n[0] as f64).powi(2);
        // A group of n ranks with one parity keeps (n - 1) / 2n.
        for (ranks, share) in [(2, 0.25), (16, 15.0 / 32.0)] {
            let kept = order("self", ranks) / order("none", ranks);
            assert!((kept / share - 1.0).abs() < 0.05, "{ranks} ranks: {kept}");
        }
    }

    #[test]
    fn checksums_leave_their_share_of_the_memory() {
        for (ranks, q) in [(12, 11), (17, 16), (33, 32)] {
            let bytes = (ranks as u64 * 192) << 30;
            let (none, abft) = (sized(ranks, bytes, "none").spec, sized(ranks, bytes, "abft").spec);
            assert_eq!((abft.checksums, abft.grids[0]), (1, (1, q)));
            let kept = (abft.n[0] as f64 / none.n[0] as f64).powi(2) * (q + 1) as f64 / q as f64;
            assert!((kept - 1.0).abs() < 0.02, "{ranks} ranks: {kept}");
        }
        // With 32 process columns, panels are too large for little memory.
        assert_eq!(sized(33, 66 << 30, "abft").spec.grids[0], (3, 10));
        for (ranks, gib) in [(12, 12), (33, 66), (64, 256), (256, 4096)] {
            let chosen = sized(ranks, gib << 30, "abft").spec;
            for grid in grids(&chosen, ranks) {
                let room = room(ranks, gib << 30, "abft");
                let other = fit(&chosen, &[grid], &room, &pace()).unwrap();
                assert!(other.spec.n[0] <= chosen.n[0], "{ranks} ranks: {grid:?}");
            }
        }
    }

    #[test]
    fn n_is_the_largest_multiple_of_nb_within_the_time() {
        let pace = pace();
        let timed = |seconds: f64| {
            let room = Room { seconds: Some(seconds), ..room(4, 1 << 44, "none") };
            let spec = base(&room, 1, false, "test").unwrap();
            fit(&spec, &grids(&spec, 4), &room, &pace)
        };
        let mut before = 0;
        for seconds in [1.0, 60.0, 3600.0] {
            let Fitted { spec, memory_n, .. } = timed(seconds).unwrap();
            let (n, nb) = (spec.n[0], spec.nb[0]);
            let takes = |n| pace.whole_seconds(&spec, n);
            assert!(takes(n) <= seconds && takes(n + nb) > seconds, "{n}: {}", takes(n));
            assert!(n > before && n < memory_n && n % nb == 0);
            before = n;
        }
        let Fitted { spec, memory_n, .. } = timed(1e12).unwrap();
        assert_eq!(spec.n[0], memory_n, "the memory decides");
        let why = timed(1e-6).unwrap_err().to_string();
        assert!(why.starts_with("--time: ") && why.contains("N = 192, the smallest"), "{why}");
    }
}
