//! Silent errors and losses under checksums: data rebuilt from a wrong number is reported or
//! corrected, and where nothing can notice it, the run knows in which process row it was.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::abft::{Job, Matrix, Memory, Random, Solved, Start, deadly, patient, spec, without};
use crate::dice::seed;
use skt_comm::CommError;
use skt_config::TestSpec;
use skt_host::phases::Phases;
use skt_run::ptest;
use skt_sim::fibers::{Kill, Linger, SimOptions};
use skt_solver::grid::{ColumnMap, Cyclic};
use skt_solver::pgesv::abft::{
    AbftError, AbftRefusal, Beginning, CheckEvery, Checked, CorrectedRank, Flip, Unverified,
    Weights, image_doubles,
};
use skt_solver::pgesv::events::SolverEvents;
use skt_solver::pgesv::wrong::NotCorrected;
use skt_solver::pgesv::{LocalShape, Params, Rates, SolveError};

/// The order of the systems, and the number of columns of a panel.
const N: usize = 96;
const NB: usize = 8;
/// Scaled residuals below this bound pass.
const THRESHOLD: f64 = 16.0;

fn every(panels: usize) -> CheckEvery {
    CheckEvery::Panels(NonZeroUsize::new(panels).expect("not 0"))
}

fn job((p, q, m): (usize, usize, usize), depth: usize, check: CheckEvery, seed: u64) -> Job {
    let spec = TestSpec { depth, ..spec(N, NB, p, q) };
    Job { spec, weights: Weights::new(q, m), matrix: Matrix::random(N, seed), check }
}

/// Makes one wrong number, stops before a cut or where a start begins to factor, and records what
/// is reported.
#[derive(Clone, Default)]
pub struct Watch {
    pub flip: Option<(usize, Flip)>,
    stop_at: Option<usize>,
    stops_early: bool,
    repaired_rows: usize,
    repaired: Vec<CorrectedRank>,
    has_flipped: bool,
    /// Number of columns that are eliminated.
    columns: usize,
    unverified: Vec<Unverified>,
    /// The largest delta of the checks.
    pub units: f64,
}

impl SolverEvents for Watch {
    fn begins(&mut self, beginning: &Beginning) -> Result<(), SolveError> {
        self.unverified.clone_from(&beginning.unverified);
        if self.stops_early { Err(CommError::aborted("stopped").into()) } else { Ok(()) }
    }

    fn columns(&mut self, done: usize, _: &Rates, _: &Phases) -> Result<(), SolveError> {
        self.columns = done;
        Ok(())
    }

    fn flip(&mut self, cut: usize) -> Option<Flip> {
        let (_, flip) = self.flip.filter(|(at, _)| *at == cut)?;
        self.has_flipped = true;
        Some(flip)
    }

    fn wants_image(&mut self) -> bool {
        self.stop_at.is_some()
    }

    fn keep_image(&mut self, cut: usize, _: &Phases) -> Result<(), SolveError> {
        if self.stop_at == Some(cut) { Err(CommError::aborted("stopped").into()) } else { Ok(()) }
    }

    fn checked(&mut self, found: Checked) {
        self.units = self.units.max(found.units);
        self.repaired_rows += found.corrected_rows;
        self.repaired.extend(found.corrected);
    }
}

pub fn watches(job: &Job) -> Vec<Watch> {
    vec![Watch::default(); job.ranks()]
}

/// The memory of all ranks at the cut `stop`, for a job on whose rank `rank` a bit flips.
fn stopped(job: &Job, rank: usize, flip: (usize, Flip), stop: usize) -> Memory {
    let job = &Job { check: CheckEvery::Never, ..job.clone() };
    let mut watches = vec![Watch { stop_at: Some(stop), ..Watch::default() }; job.ranks()];
    watches[rank].flip = Some(flip);
    let options = patient(job.ranks(), 1);
    job.start_watched(&job.untouched(), &options, 1, &mut watches).memory
}

/// The outcome of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// A solution, with this residual and this number of rows that were computed again.
    Solved { residual: f64, repaired_rows: usize },
    /// The checksums contradict a process row, because of one of these ranks.
    Wrong { process_row: usize, ranks: Vec<usize> },
    /// The next start is refused.
    Refused,
    /// A column has no pivot.
    NoPivot,
    /// The job was killed.
    Died,
}

pub fn fate(job: &Job, start: &Start, watches: &[Watch]) -> Fate {
    let results = &start.outcome.results;
    let named = results.iter().find_map(|result| match result {
        Err(AbftError::Solve(SolveError::Wrong(wrong))) => {
            Some(Fate::Wrong { process_row: wrong.process_row, ranks: wrong.suspects.clone() })
        }
        Err(AbftError::Refused(AbftRefusal::Wrong { .. } | AbftRefusal::Lost { .. })) => {
            Some(Fate::Refused)
        }
        Err(AbftError::Solve(SolveError::Pivot { .. })) => Some(Fate::NoPivot),
        Err(AbftError::Solve(SolveError::Comm(_))) | Ok(_) => None,
        Err(other) => panic!("{}: {other}", job.name()),
    });
    if let Some(named) = named {
        return named;
    }
    let mut solutions = results.iter().map(|result| result.as_ref().ok());
    let first = solutions.next().expect("a rank");
    if first.is_none() || solutions.any(|other| other != first) {
        return Fate::Died;
    }
    let solution = first.expect("solved");
    let repaired_rows = watches[0].repaired_rows;
    Fate::Solved { residual: job.matrix.residual(&solution.x), repaired_rows }
}

/// Continues to the end.
fn finish(job: &Job, memory: &Memory, start_id: u32) -> (Fate, Start) {
    let mut watches = watches(job);
    let start = job.start_watched(memory, &patient(job.ranks(), 2), start_id, &mut watches);
    (fate(job, &start, &watches), start)
}

/// The solution that all ranks have.
fn solved(start: &Start) -> &Solved {
    start.outcome.results[0].as_ref().expect("solved")
}

fn is_right(fate: &Fate) -> bool {
    matches!(fate, Fate::Solved { residual, .. } if *residual < THRESHOLD)
}

pub fn has_failed(fate: &Fate) -> bool {
    match fate {
        Fate::Solved { .. } => !is_right(fate),
        _ => *fate == Fate::NoPivot,
    }
}

/// The position of A in the memory of a rank.
fn matrix_of(job: &Job, rank: usize) -> (Range<usize>, LocalShape) {
    let (row, col) = (rank / job.width(), rank % job.width());
    let shape = ptest::local_shape(&job.spec, row, if col < job.spec.q { col } else { 0 });
    let rows = Cyclic::rows(job.spec.nb, job.spec.p);
    let end = image_doubles(&Params::from(&job.spec), rows, row, shape);
    (end - shape.doubles()..end, shape)
}

/// The process column of the lost rank is decoded on all process rows, so a row in which nothing is
/// lost must agree before. With one checksum the start is refused by name, and so is the next one.
#[test]
fn corruption_in_another_row_is_reported_before_rebuilding() {
    let job = job((2, 2, 1), 1, every(1000), 3);
    let flip = Flip { place: (40, 20), bit: 56 };
    let memory = without(&stopped(&job, 4, (2, flip), 4), &[0]);
    let (fate, start) = finish(&job, &memory, 2);
    // With one checksum nothing locates the process column, and rows may have moved before.
    assert_eq!(fate, Fate::Wrong { process_row: 1, ranks: vec![] });
    assert_eq!(finish(&job, &start.memory, 3).0, Fate::Refused);
}

/// With two checksums the rank is located, and its rows are corrected before anything is decoded
/// from them; the healthy checksum is not blamed.
#[test]
fn corruption_in_another_row_is_repaired_before_rebuilding() {
    let job = job((2, 2, 2), 1, every(1000), 3);
    for rank in 4..8 {
        let flip = Flip { place: (40, 20), bit: 56 };
        let memory = without(&stopped(&job, rank, (4, flip), 4), &[0]);
        let mut watches = watches(&job);
        let start = job.start_watched(&memory, &patient(job.ranks(), 2), 2, &mut watches);
        let fate = fate(&job, &start, &watches);
        let Fate::Solved { repaired_rows: 1, .. } = fate else { panic!("rank {rank}: {fate:?}") };
        let repaired = CorrectedRank {
            rank,
            process_row: 1,
            process_column: rank - 4,
            rows: 1,
            first_row: Cyclic::rows(NB, 2).global(40, 1),
            column: 4 * NB,
            // A start that resumes does not know which rows have moved.
            is_origin: false,
        };
        assert!(watches.iter().all(|watch| watch.repaired == [repaired]), "all ranks know it");
        assert!(is_right(&fate), "rank {rank}: {fate:?}");
        assert_eq!(solved(&start).unverified, [], "all process rows were checked");
    }
}

/// A check at the end of a group repairs a number of a finished column before the group's checksums
/// are summed again: sums of the wrong number would contradict the old checksums, and end the run.
#[test]
fn a_finished_column_that_a_check_repairs_is_not_reported() {
    let job = job((1, 2, 2), 1, every(1), 3);
    let nowhere = (1000, Flip { place: (0, 0), bit: 0 });
    let ends_at_4 = stopped(&job, 0, nowhere, 4);
    for rank in 0..2 {
        let mut memory = ends_at_4.clone();
        let (a, shape) = matrix_of(&job, rank);
        // Above the diagonal, in the columns of panel 2 or 3.
        let number = &mut memory[rank][a.start + 3 * shape.lda + NB];
        *number = f64::from_bits(number.to_bits() ^ 1 << 56);
        let (fate, _) = finish(&job, &memory, 2);
        assert!(matches!(fate, Fate::Solved { repaired_rows: 1, .. }), "rank {rank}: {fate:?}");
        assert!(is_right(&fate), "rank {rank}: {fate:?}");
    }
}

/// A start that dies between rebuilding and its first check leaves nothing that the next start
/// would correct wrongly.
#[test]
fn a_death_before_the_first_check_repairs_correctly() {
    let job = job((1, 2, 2), 1, every(1000), 3);
    for lost in [0, 2, 3] {
        let flip = Flip { place: (80, 20), bit: 56 };
        let memory = without(&stopped(&job, 1, (2, flip), 4), &[lost]);
        let mut early = vec![Watch { stops_early: true, ..Watch::default() }; job.ranks()];
        let start = job.start_watched(&memory, &patient(job.ranks(), 2), 2, &mut early);
        let second = fate(&job, &start, &early);
        let (third, _) = finish(&job, &start.memory, 3);
        assert!(!matches!(third, Fate::Solved { .. }), "rank {lost}: {second:?}, {third:?}");
        let Fate::Wrong { process_row: 0, ranks } = second else { panic!("{second:?}") };
        assert!(ranks.contains(&1) && !ranks.contains(&lost), "{ranks:?}");
        assert_eq!(third, Fate::Refused);
    }
}

/// A process row that has lost as many ranks as it has checksums is rebuilt from data that cannot
/// be checked: a wrong number there makes the residual fail, and the run reports the process row
/// and the time, also if later starts continue from there.
#[test]
fn undetectable_corruption_is_reported_with_its_process_row() {
    let job = job((2, 2, 1), 1, every(1000), 3);
    let flip = Flip { place: (40, 20), bit: 56 };
    let memory = without(&stopped(&job, 4, (4, flip), 4), &[3]);
    let want = [Unverified { row: 1, columns: (4 * NB, 4 * NB) }];
    let (fate, start) = finish(&job, &memory, 2);
    assert!(has_failed(&fate), "{fate:?}");
    assert_eq!(solved(&start).unverified, want);
    let again = finish(&job, &without(&start.memory, &[0, 1]), 3).1;
    assert_eq!(solved(&again).unverified, want, "with x");
    let mut early = vec![Watch { stops_early: true, ..Watch::default() }; job.ranks()];
    let rebuilt = job.start_watched(&memory, &patient(job.ranks(), 2), 2, &mut early).memory;
    let start = finish(&job, &without(&rebuilt, &[1, 5]), 3).1;
    let other = Unverified { row: 0, columns: (4 * NB, 4 * NB) };
    assert_eq!(solved(&start).unverified, [other, want[0]]);
}

/// A wrong number is reported before the checksums replace the lost process column, because nothing
/// would contradict it afterwards.
#[test]
fn corruption_is_reported_before_checksums_replace_a_column() {
    let job = job((2, 2, 1), 1, every(1000), 3);
    let flip = Flip { place: (40, 20), bit: 56 };
    let goes_on = |wrong: usize| {
        let memory = without(&stopped(&job, wrong, (4, flip), 4), &[0]);
        let options = patient(job.ranks() - 1, 2);
        let start = job.start_without(&[0], &memory, &options, 2);
        (fate(&job, &start, &watches(&job)), start)
    };
    assert_eq!(goes_on(4).0, Fate::Wrong { process_row: 1, ranks: vec![] });
    let (fate, start) = goes_on(1);
    assert!(has_failed(&fate), "{fate:?}");
    assert_eq!(solved(&start).unverified, [Unverified { row: 0, columns: (4 * NB, 4 * NB) }]);
}

/// A wrong number that no check sees before its column is eliminated shows in the checksums of its
/// group. All ranks learn of it at the same cut, and several checksums locate its process column,
/// whichever it is.
#[test]
fn corruption_noticed_late_is_reported_by_all_with_its_column() {
    for (shape, depth) in [((1, 2, 1), 1), ((1, 2, 2), 1), ((2, 2, 2), 0), ((2, 3, 3), 1)] {
        let (job, m) = (job(shape, depth, every(1000), 5), shape.2);
        for (rank, cut) in (0..job.ranks()).flat_map(|rank| [2, 3, 4].map(|cut| (rank, cut))) {
            let process_column = rank % job.width();
            let mut watches = watches(&job);
            // The next column of this rank that is not yet factored.
            let is_factored = depth == 1 && cut % job.spec.q == process_column;
            let place = (40, if is_factored { NB } else { 0 });
            watches[rank].flip = Some((cut, Flip { place, bit: 56 }));
            let start =
                job.start_watched(&job.untouched(), &patient(job.ranks(), 2), 1, &mut watches);
            let reported: Vec<_> = start
                .outcome
                .results
                .iter()
                .map(|result| match result {
                    Err(AbftError::Solve(SolveError::Wrong(wrong))) => (**wrong).clone(),
                    other => panic!("{}, rank {rank} at {cut}: {other:?}", job.name()),
                })
                .collect();
            let (wrong, what) =
                (&reported[0], format!("{}, rank {rank}: {:?}", job.name(), reported[0]));
            assert!(reported.iter().all(|other| other == wrong), "all alike: {what}");
            assert!(wrong.is_known_to_all && wrong.rows > 0, "{what}");
            assert!(wrong.noticed_by % job.width() >= job.spec.q, "a checksum: {what}");
            assert_eq!(wrong.noticed_by / job.width(), wrong.process_row, "{what}");
            if m == 1 {
                let (why, column) = (wrong.why, wrong.process_column);
                assert_eq!(
                    (why, column, &wrong.suspects[..]),
                    (NotCorrected::OneChecksum, None, &[][..])
                );
            } else {
                let of_column = |&other: &usize| other % job.width() == process_column;
                let suspects: Vec<usize> = (0..job.ranks()).filter(of_column).collect();
                assert_eq!(wrong.process_column, Some(process_column), "{what}");
                assert_eq!(
                    (wrong.why, &wrong.suspects),
                    (NotCorrected::Eliminated, &suspects),
                    "{what}"
                );
            }
            // The end of a group, or one panel more.
            let panel = wrong.column / NB;
            assert!(panel > cut && panel % job.spec.q <= 1, "at panel {panel}: {what}");
        }
    }
}

/// A wrong number that cannot be located is reported with the reason and the suspects: with one
/// checksum, with one checksum left after a loss, and with two wrong process columns in one row.
#[test]
fn corruption_without_a_location_is_reported_with_its_reason() {
    let reported = |job: &Job, memory: &Memory| {
        let start = job.start(memory, &patient(job.ranks(), 2), 2);
        let results = start.outcome.results.into_iter();
        let reported = results.map(|result| match result {
            Err(AbftError::Solve(SolveError::Wrong(wrong))) => *wrong,
            other => panic!("{}: {other:?}", job.name()),
        });
        let reported: Vec<_> = reported.collect();
        assert!(reported.iter().all(|other| *other == reported[0]), "{reported:?}");
        reported.into_iter().next().expect("a rank")
    };
    let flip = Flip { place: (40, 20), bit: 56 };
    let one = job((2, 2, 1), 1, every(1000), 3);
    let wrong = reported(&one, &stopped(&one, 4, (4, flip), 4));
    assert_eq!((wrong.why, wrong.rows, wrong.process_row), (NotCorrected::OneChecksum, 1, 1));
    assert_eq!((wrong.row, wrong.column), (Cyclic::rows(NB, 2).global(40, 1), 4 * NB));
    assert_eq!((wrong.suspects, wrong.noticed_by), (vec![], 5));
    let two = job((1, 2, 2), 1, every(1000), 3);
    let wrong = reported(&two, &without(&stopped(&two, 1, (4, flip), 4), &[0]));
    assert_eq!((wrong.why, wrong.suspects), (NotCorrected::OneIsLeft, vec![1, 2, 3]));
    // Two process columns are wrong in the same row.
    let three = job((1, 3, 3), 1, every(1000), 3);
    let mut memory = stopped(&three, 1, (4, flip), 4);
    let (a, shape) = matrix_of(&three, 2);
    memory[2][a.start + 40 * shape.lda + shape.cols - 1] += 1.0;
    let wrong = reported(&three, &memory);
    assert_eq!((wrong.why, wrong.process_column), (NotCorrected::Scattered, None));
    assert_eq!(wrong.suspects, (0..6).collect::<Vec<_>>());
}

/// Adds numbers to the same element of two ranks of a process row so that checksum `s` stays as it
/// is: a wrong number, and the error that is decoded with it.
fn hide(job: &Job, memory: &mut Memory, [wrong, decoded]: [usize; 2], s: usize) {
    let col = matrix_of(job, wrong).1.cols - 1;
    let at = |rank: usize| {
        let (a, shape) = matrix_of(job, rank);
        a.start + (shape.rows - 1) * shape.lda + col
    };
    let weights = job.weights.checksum(s);
    memory[wrong][at(wrong)] += 1.0;
    memory[decoded][at(decoded)] -= weights[wrong] / weights[decoded];
}

/// Each rank dies at each step of a start that rebuilds a rank, up to its first check and beyond.
/// What remains leads to x. If a wrong number had been decoded, the next start would be refused
/// rather than correct healthy data, up to the step at which that check has agreed.
#[test]
fn a_death_at_any_step_of_a_rebuilding_leaves_word_of_it() {
    let (spec, matrix) = (TestSpec { depth: 1, ..spec(24, 4, 1, 2) }, Matrix::random(24, 3));
    let job = Job { spec, weights: Weights::new(2, 2), matrix, check: every(1000) };
    let flip = Flip { place: (0, 0), bit: 0 };
    let memory = without(&stopped(&job, 0, (1, flip), 4), &[0]);
    let options = SimOptions { trace: true, ..patient(job.ranks(), 2) };
    let trace = job.start(&memory, &options, 2).outcome.trace;
    let steps_of = |name: &str| {
        let at = (1..).zip(&trace).filter(|(_, line)| line.ends_with(name)).map(|(step, _)| step);
        at.collect::<Vec<u64>>()
    };
    // The word is set on all ranks, and reset.
    let (set, taken_back) = (steps_of(": decoded 1"), steps_of(": decoded 0"));
    assert_eq!((set.len(), taken_back.len()), (4, 4), "{trace:?}");
    let (mut rebuilt, mut refused) = (0, 0);
    let last = taken_back.iter().max().expect("steps") + 4;
    for (step, rank) in (1..=last).flat_map(|step| (0..job.ranks()).map(move |rank| (step, rank))) {
        let options = deadly(job.ranks(), 2, vec![Kill { step, rank }], Linger::Steps(0));
        let left = job.start(&memory, &options, 2).memory;
        let (fate, start) = finish(&job, &left, 3);
        assert!(is_right(&fate), "rank {rank} at {step}: {fate:?}");
        assert_eq!(solved(&start).unverified, []);
        if !solved(&start).rebuilt.is_empty() {
            continue;
        }
        rebuilt += 1;
        for s in 0..2 {
            let mut wrong = left.clone();
            hide(&job, &mut wrong, [1, 0], s);
            let (fate, _) = finish(&job, &wrong, 3);
            match fate {
                Fate::Wrong { process_row: 0, ranks } => {
                    assert!([&[][..], &[0, 1, 2, 3]].contains(&&ranks[..]), "nobody is blamed");
                    refused += 1;
                }
                // All ranks know that a check has agreed, so this is another error, in two places.
                _ => assert!(step >= taken_back[0], "rank {rank} at {step}: {fate:?}"),
            }
        }
    }
    println!("{rebuilt} were rebuilt, {refused} refused");
    assert!(rebuilt > 20 && refused > 40);
}

/// The areas in which bits flip.
const PLACES: [&str; 6] = [
    "matrix",
    "checksums",
    "U of finished columns",
    "checksums of finished groups",
    "panels, rows of U, log",
    "anywhere in A, after a start that died",
];

/// Flips a bit of a rank's memory: in A or, with `behind`, in the panels, U or the log, but not in
/// the head of a panel. `done` is the number of columns that are eliminated. Returns the index in
/// [`PLACES`].
fn flip_in_memory(
    job: &Job,
    memory: &mut Memory,
    (rank, is_behind, done): (usize, bool, usize),
    random: &mut Random,
) -> Option<usize> {
    // Areas begin on a page, and those of the panels begin with a head and the pivots.
    const PAGE: usize = 512;
    const HEAD: usize = 16;
    let ((a, shape), q, own) = (matrix_of(job, rank), job.spec.q, &mut memory[rank]);
    if own.len() < a.end {
        // The rank died before it had any memory.
        return None;
    }
    let behind_x = (a.end.next_multiple_of(PAGE) + N).next_multiple_of(PAGE);
    let range = if is_behind { behind_x..own.len() } else { a.clone() };
    let is_number = |&at: &usize| own[at] != 0.0 && (!is_behind || at % PAGE >= HEAD);
    let numbers: Vec<usize> = range.filter(is_number).collect();
    let at = *numbers.get(random.below(numbers.len().max(1)))?;
    own[at] = f64::from_bits(own[at].to_bits() ^ 1 << random.below(64));
    let (local, col) = ((at - a.start) % shape.lda, rank % job.width());
    Some(match col < q {
        _ if is_behind => 4,
        true if ColumnMap::cyclic(NB, q).global(local.min(shape.cols - 1), col) < done => 2,
        true => 0,
        false if (local / NB + 1) * NB * q <= done => 3,
        false => 1,
    })
}

/// Random losses: one to m ranks of a process row, and sometimes ranks of others.
fn losses(job: &Job, random: &mut Random) -> Vec<usize> {
    let (m, width, first) = (job.weights.checksums(), job.width(), random.below(job.spec.p));
    let mut lost = Vec::new();
    for row in (0..job.spec.p).map(|by| (first + by) % job.spec.p) {
        let most = if row == first || random.below(4) == 0 { m } else { 0 };
        let least = usize::from(row == first);
        let mut count_of_row: Vec<usize> = (row * width..(row + 1) * width).collect();
        for _ in 0..least + random.below(most + 1 - least) {
            lost.push(count_of_row.swap_remove(random.below(count_of_row.len())));
        }
    }
    lost
}

/// The number of these ranks that are in process row `row`.
fn count_of_row(job: &Job, ranks: &[usize], row: usize) -> usize {
    let mut count_of_row: Vec<&usize> =
        ranks.iter().filter(|&rank| rank / job.width() == row).collect();
    count_of_row.sort_unstable();
    count_of_row.dedup();
    count_of_row.len()
}

/// The outcome of a flip and a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Right,
    Mended,
    /// A check reported the flip before the loss.
    NodeReport,
    /// The flip was reported by process row and rank, after the loss.
    Refused,
    /// A column had no pivot, because a check came too late.
    NoPivot,
    /// The residual failed: no check could notice the flip, and the run gives the reason.
    Hidden,
}

const ENDS: [&str; 6] =
    ["right", "mended", "told before", "refused by name", "no pivot", "hidden, and told as such"];

/// A flip and a loss.
struct Pair {
    job: Job,
    random: Random,
    /// The rank whose bit flips.
    rank: usize,
    /// Number of steps of the job.
    steps: usize,
    repaired_rows: usize,
}

/// What a loss left.
struct Left {
    memory: Memory,
    /// The ranks that are lost.
    lost: Vec<usize>,
    /// Number of columns that are eliminated.
    done: usize,
    /// The area in which a bit has flipped, if one has.
    place: Option<usize>,
}

impl Pair {
    fn options(&mut self, kills: Vec<Kill>) -> SimOptions {
        let random = &mut self.random;
        let linger = [Linger::Steps(0), Linger::Steps(25), Linger::UntilBlocked][random.below(3)];
        deadly(self.job.ranks(), random.below(1 << 20) as u64, kills, linger)
    }

    /// Starts the job; returns its outcome and what was reported to the ranks.
    fn start(
        &mut self,
        memory: &Memory,
        options: &SimOptions,
        id: u32,
        flip: Option<(usize, Flip)>,
    ) -> (Fate, Start, Vec<Watch>) {
        let mut watches = watches(&self.job);
        watches[self.rank].flip = flip;
        let start = self.job.start_watched(memory, options, id, &mut watches);
        let most = watches.iter().map(|watch| watch.repaired_rows).max().expect("a rank");
        self.repaired_rows += most;
        let column = self.rank % self.job.width();
        let mut named = watches.iter().flat_map(|watch| &watch.repaired);
        let healthy = named.find(|named| named.process_column != column);
        assert_eq!(healthy, None, "{}: the flip was on rank {}", self.job.name(), self.rank);
        (fate(&self.job, &start, &watches), start, watches)
    }

    /// Runs the case; returns the area of the flip and its outcome, or `None` if no bit flipped.
    fn run(&mut self) -> Option<(usize, End)> {
        let width = self.job.width();
        let lost = losses(&self.job, &mut self.random);
        let random = &mut self.random;
        let (is_in_run, is_late, is_behind) =
            (random.below(2) == 0, random.below(6) == 0, random.below(2) == 0);
        let bits = (random.below(N), random.below(N));
        let flip = Flip { place: bits, bit: random.below(64) as u32 };
        let flip = is_in_run.then_some((1 + random.below(N / NB), flip));
        let kills = vec![Kill { step: 1 + random.below(self.steps) as u64, rank: lost[0] }];
        let options = self.options(kills);
        let (fate, first, watches) = self.start(&self.job.untouched(), &options, 1, flip);
        let mut place = flip.map(|_| usize::from(self.rank % width >= self.job.spec.q));
        place = place.filter(|_| watches[self.rank].has_flipped);
        if fate != Fate::Died {
            return place.map(|place| (place, self.end(&fate, true)));
        }
        let mut memory = without(&first.memory, &lost);
        let done = watches[self.rank].columns;
        if flip.is_none() && !is_late && !lost.contains(&self.rank) {
            let at = (self.rank, is_behind, done);
            place = flip_in_memory(&self.job, &mut memory, at, &mut self.random);
        }
        let at_the_loss = memory.clone();
        let mut left = Left { memory, lost: lost.clone(), done, place };
        let mut ended = None;
        if is_late || self.random.below(3) == 0 {
            ended = self.start_that_dies(&mut left, is_late && flip.is_none());
        }
        let place = left.place?;
        let (fate, watches) = ended.unwrap_or_else(|| {
            let (fate, _, watches) =
                self.start(&left.memory, &patient(self.job.ranks(), 2), 3, None);
            (fate, watches)
        });
        let what = format!(
            "{}, check {:?}, rank {}, {flip:?}, lost {lost:?}, then {:?}, {}: {fate:?}",
            self.job.name(),
            self.job.check,
            self.rank,
            left.lost,
            PLACES[place]
        );
        self.assert_is_reported_correctly(&fate, &watches, &left.lost, &what);
        if has_failed(&fate) && place != 5 {
            self.assert_is_hidden_by_the_loss(&at_the_loss, &first, &lost, &what);
        }
        Some((place, self.end(&fate, false)))
    }

    /// A start that dies, perhaps with the loss of one more rank's memory, after which a bit flips
    /// if it `flips`. Returns the outcome if no rank died.
    fn start_that_dies(&mut self, left: &mut Left, flips: bool) -> Option<(Fate, Vec<Watch>)> {
        let (victim, width) = (self.random.below(self.job.ranks()), self.job.width());
        let step = 1 + self.random.below(self.steps / 2) as u64;
        let options = self.options(vec![Kill { step, rank: victim }]);
        let (fate, start, watches) = self.start(&left.memory, &options, 2, None);
        left.memory = start.memory;
        let with_victim: Vec<usize> = left.lost.iter().copied().chain([victim]).collect();
        let fits =
            count_of_row(&self.job, &with_victim, victim / width) <= self.job.weights.checksums();
        if fits && self.random.below(2) == 0 {
            left.memory[victim].clear();
            left.lost = with_victim;
        }
        if flips && !left.memory[self.rank].is_empty() {
            let at = (self.rank, false, left.done.max(watches[self.rank].columns));
            let place = flip_in_memory(&self.job, &mut left.memory, at, &mut self.random);
            left.place = place.map(|_| 5);
        }
        Some((fate, watches)).filter(|(fate, _)| *fate != Fate::Died)
    }

    /// Asserts that the ranks that may be wrong are named, that no healthy rank is blamed, and that
    /// a wrong solution comes with the process rows that have lost as many ranks as they have
    /// checksums.
    fn assert_is_reported_correctly(
        &self,
        fate: &Fate,
        watches: &[Watch],
        lost: &[usize],
        what: &str,
    ) {
        let is_of_column = |other: &usize| other % self.job.width() == self.rank % self.job.width();
        if let Fate::Wrong { ranks, .. } = fate {
            let is_named = ranks.is_empty() || ranks.iter().any(is_of_column);
            assert!(is_named || lost.iter().any(is_of_column), "a healthy rank is blamed: {what}");
        }
        if has_failed(fate) {
            let unverified = &watches[0].unverified;
            assert!(!unverified.is_empty(), "a wrong solution that nobody explains: {what}");
            for Unverified { row, .. } in unverified {
                let lost = count_of_row(&self.job, lost, *row);
                assert!(lost == self.job.weights.checksums(), "row {row} has lost {lost}: {what}");
            }
        }
    }

    /// Asserts that the same flip is reported, corrected or harmless if each process row that has
    /// lost as many ranks as it has checksums has lost one rank less.
    fn assert_is_hidden_by_the_loss(
        &mut self,
        memory: &Memory,
        first: &Start,
        lost: &[usize],
        what: &str,
    ) {
        let (mut memory, m) = (memory.clone(), self.job.weights.checksums());
        for row in (0..self.job.spec.p).filter(|&row| count_of_row(&self.job, lost, row) == m) {
            let is_whole =
                |&&rank: &&usize| rank / self.job.width() == row && !first.trails[rank].is_torn();
            let Some(&kept) = lost.iter().find(is_whole) else { return };
            memory[kept].clone_from(&first.memory[kept]);
        }
        let (fate, ..) = self.start(&memory, &patient(self.job.ranks(), 2), 3, None);
        assert!(!has_failed(&fate), "with one rank more: {fate:?}: {what}");
    }

    fn end(&self, fate: &Fate, is_before: bool) -> End {
        match fate {
            Fate::Solved { .. } if !is_right(fate) => End::Hidden,
            Fate::Solved { .. } if self.repaired_rows > 0 => End::Mended,
            Fate::Solved { .. } => End::Right,
            Fate::Wrong { .. } | Fate::Refused if is_before => End::NodeReport,
            Fate::Wrong { .. } | Fate::Refused => End::Refused,
            Fate::NoPivot => End::NoPivot,
            Fate::Died => panic!("no rank dies in the end"),
        }
    }
}

/// A flip and a loss, of any rank, position and time, before and after checks, with starts that
/// die: the solution is right, or the run is refused by name. If a process row has lost as many
/// ranks as it has checksums, the residual may fail, and the run names that process row.
#[test]
fn a_flip_and_a_loss_end_right_or_by_name() {
    let pairs = std::env::var("SKT_PAIRS").map_or(150, |pairs| pairs.parse().expect("a number"));
    let seed = seed("SKT_PAIRS_SEED");
    let mut of_shapes = BTreeMap::new();
    let mut ends = [[[0; ENDS.len()]; PLACES.len()]; 3];
    let (mut done, mut number) = (0, 0);
    while done < pairs {
        let mut random = Random::new(seed << 32 | number);
        let m = 1 + number as usize % 3;
        let (p, q) = (1 + random.below(3), 1 + random.below(3));
        let (depth, check) = (random.below(2), every([1, 3, 1000][random.below(3)]));
        number += 1;
        let (weights, steps) = of_shapes.entry((p, q, m)).or_insert_with(|| {
            let job = job((p, q, m), 0, every(3), 1);
            let steps =
                job.start(&job.untouched(), &patient(job.ranks(), 1), 1).outcome.steps as usize;
            (job.weights, steps)
        });
        let spec = TestSpec { depth, ..spec(N, NB, p, q) };
        let matrix = Matrix::random(N, number);
        let job = Job { spec, weights: weights.clone(), matrix, check };
        let (rank, steps) = (random.below(job.ranks()), *steps);
        if let Some((place, end)) = (Pair { job, random, rank, steps, repaired_rows: 0 }).run() {
            ends[m - 1][place][end as usize] += 1;
            done += 1;
        }
    }
    println!("| m | place | {} |", ENDS.join(" | "));
    for (m, of_m) in (1..).zip(&ends) {
        for (place, counts) in PLACES.iter().zip(of_m) {
            let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
            println!("| {m} | {place} | {} |", counts.join(" | "));
        }
    }
    let of = |end: End| ends.iter().flatten().map(|counts| counts[end as usize]).sum::<usize>();
    assert!(of(End::Mended) > pairs / 50 && of(End::Refused) > pairs / 50);
}

/// A rank is named as the origin only where no other can be: whatever flips and wherever rows
/// move until then, no innocent rank is ever named. Most flips are named, as most rows stay.
#[test]
fn no_innocent_rank_is_named_as_the_origin() {
    let (mut named, mut repaired, seed) = (0, 0, seed("SKT_ABFT_SEED"));
    let mut dice = Random::new(seed);
    for (shape, period) in [
        ((1, 3, 2), 1),
        ((2, 2, 2), 1),
        ((2, 2, 2), 3),
        ((3, 1, 2), 2),
        ((1, 2, 2), 3),
        ((2, 3, 3), 2),
    ] {
        let job = job(shape, 1, every(period), 3);
        for _ in 0..40 {
            let rank = dice.below(job.ranks());
            let place = (dice.below(N), dice.below(N));
            let (cut, bit) = (1 + dice.below(N / NB - 2), 52 + dice.below(9) as u32);
            let mut watches = watches(&job);
            watches[rank].flip = Some((cut, Flip { place, bit }));
            let start =
                job.start_watched(&job.untouched(), &patient(job.ranks(), 2), 1, &mut watches);
            let context =
                format!("seed {seed}: {shape:?}, {period}, rank {rank}, {place:?} at {cut}");
            let origins = watches[0].repaired.iter().filter(|repaired| repaired.is_origin);
            let origins: Vec<usize> = origins.map(|repaired| repaired.rank).collect();
            assert!(origins.iter().all(|&named| named == rank), "{context}: {origins:?}");
            repaired += usize::from(watches[0].repaired_rows > 0);
            named += usize::from(!origins.is_empty());
            if let Fate::Wrong { ranks, .. } = fate(&job, &start, &watches) {
                assert!(ranks.is_empty() || ranks.contains(&rank), "{context}: {ranks:?}");
            }
        }
    }
    assert!(repaired > 120 && 2 * named > repaired, "seed {seed}: {named} of {repaired} are named");
}
