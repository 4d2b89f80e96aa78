//! The elimination with checksums, on ranks that are threads and on simulated ranks that are killed
//! at each of their steps.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread::{self, ThreadId};

use crate::abft::{
    self, Job, Matrix, Memory, Random, deadly, fingerprint, patient, spec, steps, without,
};
use crate::abft_silent::{Fate, Watch, fate, has_failed, watches};
use crate::base_spec::whole_x;
use crate::soak;
use skt_comm::CommError;
use skt_config::{Bcast, Swap, TestSpec};
use skt_host::phases::Phases;
use skt_run::ptest::{self};
use skt_sim::fibers::{Kill, Linger, SimOptions};
use skt_solver::comm::threads::run;
use skt_solver::grid::{ColumnMap, Cyclic, Grid};
use skt_solver::pgesv::abft::{
    AbftError, AbftRefusal, At, CheckEvery, Checked, Flip, GoOn, MemoryHook, Weights, image_doubles,
};
use skt_solver::pgesv::events::{Silent, SolverEvents};
use skt_solver::pgesv::guard::{Guard, Unguarded};
use skt_solver::pgesv::{Params, SolveError, Solver, Workspace};
use skt_solver::team::Team;

/// Checks at fixed panels, not by measured times: the same steps each time.
const CHECK: CheckEvery = CheckEvery::Panels(NonZeroUsize::new(3).expect("not 0"));
/// Checks at the beginning of a start, at its end, and where groups are finished.
const RARE: CheckEvery = CheckEvery::Panels(NonZeroUsize::new(1000).expect("not 0"));

/// Solves without checksums and returns x.
fn plain(spec: &TestSpec, matrix: &Matrix) -> Vec<f64> {
    let ranks = run(spec.p * spec.q, |world| {
        let grid = Grid::new(&world, spec.p, spec.q, spec.pmap)?.expect("all ranks take part");
        let team = Team::new(spec.threads, |_| ()).expect("threads");
        let (shape, params) = (ptest::shape(&grid, spec), Params::from(spec));
        let mut guard = Unguarded::new(shape.doubles()).expect("memory");
        let (rows, cols) = (grid.rows(spec.nb), grid.cols(spec.nb));
        for (i, row) in guard.matrix().chunks_exact_mut(shape.lda).enumerate() {
            for (j, value) in row[..shape.cols].iter_mut().enumerate() {
                let (row, col) = (rows.global(i, grid.myrow), cols.global(j, grid.mycol));
                *value = matrix.rows[row][col];
            }
        }
        let mut work = Workspace::new(&grid, &team, &params, shape)?;
        let (a, background) = guard.lend(shape);
        let mut solver = Solver::new(&grid, &team, params, shape, &a, &mut work);
        solver.factor(0..params.panels(), &mut Silent, background)?;
        let x = solver.back_substitute()?;
        Ok::<_, SolveError>(whole_x(&grid, spec, &x)?)
    });
    ranks.into_iter().next().expect("rank 0").expect("solved")
}

/// Solves with checksums on threads and returns x.
fn with_checksums(job: &Job) -> Vec<f64> {
    let solved = run(job.ranks(), |comm| job.solve(&comm, &mut Vec::new(), 1, &GoOn));
    let mut solved = solved.into_iter().map(|rank| rank.expect("solved"));
    let first = solved.next().expect("rank 0");
    assert!(first.resumed.is_none() && solved.all(|other| other == first));
    first.x
}

#[test]
fn undisturbed_runs_have_the_bits_of_runs_without_checksums() {
    let mut compared = 0;
    for (p, q, m) in [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2), (3, 2, 3)] {
        for (n, nb) in [(0, 3), (1, 1), (5, 5), (6, 5), (37, 5), (30, 4), (41, 8), (97, 32)] {
            let ways = [(0, 1), (1, 1), (0, 2), (1, 2), (1, 4)];
            // By default one of these a shape, in rotation.
            let some = if soak::is_soak() { ways.len() } else { 1 };
            for (depth, threads) in ways.into_iter().cycle().skip(compared % ways.len()).take(some)
            {
                let turn = compared % 3;
                let swap = [Swap::BinaryExchange, Swap::SpreadRoll, Swap::Mix][turn];
                let bcast = [Bcast::OneRing, Bcast::Long, Bcast::TwoRingM][turn];
                let spec = TestSpec { depth, threads, swap, bcast, ..spec(n, nb, p, q) };
                let matrix = Matrix::random(n, n as u64);
                let job = Job { spec, weights: Weights::new(q, m), matrix, check: CHECK };
                let (x, want) = (with_checksums(&job), plain(&job.spec, &job.matrix));
                assert_eq!(x, want, "{} with {threads} threads", job.name());
                compared += 1;
            }
        }
    }
    for threads in [1, 2, 4] {
        // The rows are not exchanged in halves, because the BLAS may have other kernels for
        // products that are then so small.
        let swap_threshold = 64;
        let spec = TestSpec { depth: 1, threads, swap_threshold, ..spec(611, 48, 2, 2) };
        let job =
            Job { spec, weights: Weights::new(2, 1), matrix: Matrix::random(611, 1), check: CHECK };
        assert_eq!(with_checksums(&job), plain(&job.spec, &job.matrix), "{threads} threads");
    }
    println!("{compared} runs compared");
}

/// A system whose numbers are exact, and weights that keep decoding exact.
fn exact(spec: TestSpec, m: usize) -> Job {
    let weights = match m {
        1 => vec![vec![1.0; spec.q]],
        2 => vec![vec![1.0; spec.q], (1..=spec.q).map(|c| c as f64).collect()],
        _ => panic!("no such weights"),
    };
    let matrix = Matrix::exact(spec.n, 5);
    Job { spec, weights: Weights::given(weights), matrix, check: CHECK }
}

/// The systems whose runs are killed.
fn small_jobs() -> Vec<Job> {
    let swap = Swap::SpreadRoll;
    vec![
        exact(TestSpec { depth: 0, ..spec(9, 2, 1, 2) }, 1),
        exact(TestSpec { depth: 1, ..spec(9, 2, 1, 2) }, 1),
        exact(TestSpec { depth: 1, ..spec(8, 2, 1, 1) }, 1),
        exact(TestSpec { depth: 0, swap, ..spec(10, 4, 2, 2) }, 1),
        exact(TestSpec { depth: 1, swap: Swap::BinaryExchange, ..spec(10, 4, 2, 2) }, 1),
        exact(TestSpec { depth: 1, swap, ..spec(11, 3, 2, 3) }, 2),
        exact(TestSpec { depth: 0, ..spec(13, 2, 1, 3) }, 2),
        // The last panel is narrow, and ends a group.
        exact(TestSpec { depth: 1, ..spec(13, 4, 1, 2) }, 1),
    ]
}

/// Each rank dies at each of these steps of a run, with its memory kept or lost; the others stop at
/// once or continue as far as they can. What remains leads to the right x. Returns the number of
/// deaths, and the number of restarts from memories that are not in `seen`.
fn die(
    job: &Job,
    seed: u64,
    steps: impl Iterator<Item = u64>,
    seen: &mut HashSet<u64>,
) -> (usize, usize) {
    let (ranks, mut died, before) = (job.ranks(), 0, seen.len());
    for (step, rank) in steps.flat_map(|step| (0..ranks).map(move |rank| (step, rank))) {
        for linger in [Linger::Steps(0), Linger::UntilBlocked] {
            let kills = vec![Kill { step, rank }];
            let left = job.start(&job.untouched(), &deadly(ranks, seed, kills, linger), 1);
            died += 1;
            for gone in [&[][..], &[rank]] {
                let left = without(&left.memory, gone);
                if seen.insert(fingerprint(&left)) {
                    let what = format!("{}, rank {rank} at {step}, {linger:?}", job.name());
                    let solution = job.finish(&left, seed, 2);
                    assert_eq!(solution.x, job.matrix.x, "{what}, lost {gone:?}");
                }
            }
        }
    }
    (died, seen.len() - before)
}

#[test]
fn a_death_at_any_step_loses_nothing() {
    let (small_stride, small_seeds) = if soak::is_soak() { (1, 3) } else { (3, 1) };
    let (mut died, mut restarted) = (0, 0);
    for (number, job) in small_jobs().into_iter().enumerate() {
        assert_eq!(job.finish(&job.untouched(), 1, 1).x, job.matrix.x, "{}", job.name());
        let mut seen = HashSet::new();
        // Of large jobs, only every few steps; of small ones by default every third.
        let (stride, seeds) = if job.ranks() > 6 { (29, 1) } else { (small_stride, small_seeds) };
        for seed in 1..=seeds {
            let first = 1 + (number % stride) as u64;
            let deaths = (first..=steps(&job, seed)).step_by(stride);
            let (of_seed, restarts) = die(&job, seed, deaths, &mut seen);
            (died, restarted) = (died + of_seed, restarted + restarts);
        }
    }
    println!("{died} deaths, {restarted} restarts");
    assert!(restarted > 2500);
}

/// One call of the BLAS covers several parts of the product, with short calls while a panel must be
/// forwarded: the product is torn until all parts are done.
#[test]
fn a_death_in_a_product_of_several_parts_loses_nothing() {
    let job = exact(TestSpec { depth: 1, ..spec(500, 100, 1, 2) }, 1);
    let options = SimOptions { trace: true, ..patient(job.ranks(), 1) };
    let trace = job.start(&job.untouched(), &options, 1).outcome.trace;
    let count = |name: &str| trace.iter().filter(|line| line.contains(name)).count();
    assert!(count(": done 0 part") > count(": begin 0 part"), "a product of several parts");
    let at_part = |line: &str| line.contains(" part ");
    let deaths = (1..).zip(&trace).filter(|(_, line)| at_part(line)).map(|(step, _)| step);
    let deaths = deaths.step_by(if soak::is_soak() { 1 } else { 3 });
    let (died, restarted) = die(&job, 1, deaths, &mut HashSet::new());
    println!("{died} deaths, {restarted} restarts");
    assert!(restarted > 70);
}

/// Each rank dies at each step of a recovery in which some rank undoes a product, with its memory
/// kept or lost. The next recovery leads to the right x.
#[test]
fn a_death_at_any_step_of_a_recovery_loses_nothing() {
    let (mut recoveries, mut restarted) = (0, 0);
    for job in small_jobs().into_iter().filter(|job| job.ranks() <= 6) {
        let (ranks, seed, mut seen) = (job.ranks(), 2, HashSet::new());
        let (mut here, most) = (0, 6);
        for step in (1..=steps(&job, seed)).step_by(3) {
            let first = step as usize % ranks;
            let kills = vec![Kill { step, rank: first }];
            let options = deadly(ranks, seed, kills, Linger::Steps(0));
            let left = job.start(&job.untouched(), &options, 1);
            if left.trails[first].is_torn() {
                // Another rank of its row would be one too many.
                continue;
            }
            let left = left.memory;
            let options = SimOptions { trace: true, ..patient(ranks, seed) };
            let trace = job.start(&left, &options, 2).outcome.trace;
            let at = |name: &str| trace.iter().position(|line| line.contains(name));
            if here == most || at(": take back ").is_none() || !seen.insert(fingerprint(&left)) {
                continue;
            }
            (here, recoveries) = (here + 1, recoveries + 1);
            let end = at(": log ").or(at(": x ")).expect("it goes on") as u64;
            for (step, rank) in (1..=end).flat_map(|step| (0..ranks).map(move |r| (step, r))) {
                let options = deadly(ranks, seed, vec![Kill { step, rank }], Linger::Steps(0));
                let again = job.start(&left, &options, 2).memory;
                for gone in [&[][..], &[rank]] {
                    let again = without(&again, gone);
                    if seen.insert(fingerprint(&again)) {
                        restarted += 1;
                        let what = format!("{}, rank {rank} at {step}, lost {gone:?}", job.name());
                        assert_eq!(job.finish(&again, seed, 3).x, job.matrix.x, "{what}");
                    }
                }
            }
        }
    }
    println!("{recoveries} recoveries, {restarted} restarts");
    assert!(recoveries >= 12 && restarted > 1000);
}

/// Ranks that may die in addition to those of `lost`, with at most `m` of a process row.
fn victims(job: &Job, lost: &HashSet<usize>, random: &mut Random) -> HashSet<usize> {
    let (m, width) = (job.weights.checksums(), job.width());
    let mut victims = HashSet::new();
    for _ in 0..1 + random.below(2 * m) {
        let rank = random.below(job.ranks());
        let row = |&other: &usize| other / width == rank / width && other != rank;
        if lost.union(&victims).filter(|other| row(other)).count() < m {
            victims.insert(rank);
        }
    }
    victims
}

/// Any ranks die at any time and repeatedly, also in recoveries; with at most m ranks of a
/// process row missing at a time, nothing is refused, and x is right.
#[test]
fn losses_in_recoveries_lose_nothing() {
    let (jobs, mut runs, mut resumed) = (small_jobs(), 0, 0);
    for seed in 0..1500 {
        let job = &jobs[seed % jobs.len()];
        let (ranks, mut random) = (job.ranks(), Random::new(seed as u64));
        let steps = steps(job, seed as u64);
        let (mut memory, mut lost) = (job.untouched(), HashSet::new());
        for start_id in 1..7 {
            let new = victims(job, &lost, &mut random);
            let step = |random: &mut Random| match start_id {
                1 => 1 + random.below(steps as usize) as u64,
                _ => 1 + random.below(steps as usize / 2) as u64,
            };
            let kills = new.iter().map(|&rank| Kill { step: step(&mut random), rank }).collect();
            let linger = [Linger::Steps(0), Linger::Steps(25), Linger::UntilBlocked];
            let linger = linger[random.below(3)];
            let options = deadly(ranks, random.below(1 << 20) as u64, kills, linger);
            let start = job.start(&memory, &options, start_id);
            for result in &start.outcome.results {
                let is_refused = matches!(result, Err(AbftError::Refused(_)));
                assert!(!is_refused, "{}, seed {seed}: {:?}", job.name(), result);
            }
            runs += 1;
            if start.trails.iter().any(|trail| trail.is_restored) {
                lost.clear();
            }
            lost.extend(&new);
            let killed = (0..ranks).filter(|rank| start.outcome.killed >> rank & 1 == 1);
            let gone: Vec<usize> = killed.filter(|_| random.below(3) > 0).collect();
            memory = without(&start.memory, &gone);
        }
        let solution = job.finish(&memory, seed as u64, 7);
        assert_eq!(solution.x, job.matrix.x, "{}, seed {seed}", job.name());
        resumed += usize::from(solution.resumed.is_some());
    }
    println!("{runs} runs died, {resumed} went on");
    assert!(resumed > 500);
}

/// All ranks die at once, before the end of their parts: those within a part are lost. What remains
/// suffices, or is refused by name.
#[test]
fn all_die_at_once() {
    let (mut went_on, mut refused) = (0, 0);
    for job in small_jobs() {
        let (ranks, m, width) = (job.ranks(), job.weights.checksums(), job.width());
        for seed in 0..if soak::is_soak() { 4 } else { 1 } {
            for step in (1..=steps(&job, seed)).step_by(if ranks > 6 { 3 } else { 1 }) {
                let kills = (0..ranks).map(|rank| Kill { step, rank }).collect();
                let options = deadly(ranks, seed, kills, Linger::Steps(0));
                let left = job.start(&job.untouched(), &options, 1);
                let torn: Vec<usize> =
                    (0..ranks).filter(|&rank| left.trails[rank].is_torn()).collect();
                let of_row = |row: usize| -> Vec<usize> {
                    torn.iter().copied().filter(|rank| rank / width == row).collect()
                };
                let row = (0..job.spec.p).find(|&row| of_row(row).len() > m);
                let what = format!("{}, seed {seed}, step {step}, torn {torn:?}", job.name());
                let next = job.start(&left.memory, &patient(ranks, seed), 2);
                let is_from_scratch =
                    matches!(&next.outcome.results[0], Ok(s) if s.resumed.is_none());
                match row {
                    // Before panel 0 has been exchanged everywhere, the run begins again.
                    Some(row) if !is_from_scratch => {
                        assert_refused(&next.outcome.results, (row, &of_row(row), m), &what);
                        refused += 1;
                    }
                    _ => {
                        let solution = next.outcome.results[0].as_ref().expect(&what);
                        assert_eq!(solution.x, job.matrix.x, "{what}");
                        went_on += 1;
                    }
                }
            }
        }
    }
    println!("{went_on} went on, {refused} were refused");
    assert!(went_on > 500 && refused > 10);
}

fn assert_refused(
    results: &[Result<abft::Solved, AbftError>],
    (row, ranks, most): (usize, &[usize], usize),
    what: &str,
) {
    for result in results {
        match result {
            Err(AbftError::Refused(AbftRefusal::Lost {
                row: at, ranks: lost, most: of, ..
            })) => {
                assert_eq!((*at, &lost[..], *of), (row, ranks, most), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// More than m ranks of a process row are lost: all ranks refuse, name the ranks and the row, and
/// change nothing; except if nothing has been computed, or x is known.
#[test]
fn more_losses_than_checksums_are_refused_by_all() {
    let (mut refused, mut accepted) = (0, 0);
    for job in small_jobs() {
        let (ranks, m, width) = (job.ranks(), job.weights.checksums(), job.width());
        let (seed, panels) = (4, job.spec.n.div_ceil(job.spec.nb));
        for step in (1..=steps(&job, seed)).step_by(if ranks > 6 { 11 } else { 2 }) {
            let kills = vec![Kill { step, rank: 0 }];
            let options = deadly(ranks, seed, kills, Linger::UntilBlocked);
            let left = job.start(&job.untouched(), &options, 1);
            let row = step as usize % job.spec.p;
            let gone: Vec<usize> = (row * width..row * width + m + 1).collect();
            let memory = without(&left.memory, &gone);
            let next = job.start(&memory, &patient(ranks, seed), 2);
            let what = format!("{}, step {step}", job.name());
            match &next.outcome.results[0] {
                Ok(solution) => {
                    assert_eq!(solution.x, job.matrix.x, "{what}");
                    assert!([None, Some(panels)].contains(&solution.resumed), "{what}");
                    accepted += 1;
                }
                Err(AbftError::Refused(AbftRefusal::Lost { ranks, .. })) => {
                    assert!(gone.iter().all(|rank| ranks.contains(rank)), "{what}: {ranks:?}");
                    let torn = ranks.iter().filter(|&rank| !gone.contains(rank));
                    assert!(torn.clone().all(|&rank| left.trails[rank].is_torn()), "{what}");
                    assert_refused(&next.outcome.results, (row, ranks, m), &what);
                    let kept = |rank: &usize| !gone.contains(rank);
                    for rank in (0..job.ranks()).filter(kept) {
                        let (before, after) = (&memory[rank], &next.memory[rank]);
                        assert!(
                            fingerprint(&vec![before.clone()]) == fingerprint(&vec![after.clone()])
                        );
                    }
                    refused += 1;
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
    println!("{refused} were refused, {accepted} begun from scratch or solved");
    assert!(refused > 300 && accepted > 50);
}

/// A node that was absent while the others continued comes back with its old data: this is not
/// taken for current data, also not if the node dies again while it is rebuilt.
#[test]
fn memory_of_an_older_start_is_not_believed() {
    let (mut rebuilt, mut random) = (0, Random::new(8));
    for job in small_jobs() {
        let (ranks, seed) = (job.ranks(), 6);
        let all = steps(&job, seed);
        let stride = if ranks > 6 { 193 } else { 41 };
        for (first, away) in
            (1..=all).step_by(stride).flat_map(|step| (0..ranks).map(move |rank| (step, rank)))
        {
            let dies = |step| {
                let kills = vec![Kill { step, rank: away }];
                deadly(ranks, seed, kills, Linger::UntilBlocked)
            };
            let left = job.start(&job.untouched(), &dies(first), 1);
            let elsewhere = without(&left.memory, &[away]);
            for second in (1..=all).step_by(stride + 6) {
                let mut later = job.start(&elsewhere, &dies(second), 2).memory;
                later[away].clone_from(&left.memory[away]);
                let third = random.below(60 * ranks) as u64;
                if third.is_multiple_of(2) {
                    later = job.start(&later, &dies(1 + third / 2), 3).memory;
                }
                let solution = job.finish(&later, seed, 4);
                let what = format!("{}, rank {away} at {first}, {second}, {third}", job.name());
                assert_eq!(solution.x, job.matrix.x, "{what}");
                rebuilt += usize::from(solution.rebuilt == [away]);
            }
        }
    }
    println!("{rebuilt} rebuilt");
    assert!(rebuilt > 100);
}

/// Memory of another system is refused, not used.
#[test]
fn memory_of_another_system_is_refused() {
    let job = exact(spec(9, 2, 1, 2), 1);
    let kills = vec![Kill { step: steps(&job, 1) / 2, rank: 0 }];
    let left = job.start(&job.untouched(), &deadly(3, 1, kills, Linger::UntilBlocked), 1);
    for other in [TestSpec { depth: 1, ..job.spec.clone() }, TestSpec { nb: 3, ..job.spec.clone() }]
    {
        let other = Job { spec: other, ..job.clone() };
        let mut memory = other.start(&other.untouched(), &SimOptions::new(3, 1), 1).memory;
        let doubles = memory[0].len();
        memory[0] = left.memory[0].clone();
        memory[0].resize(doubles, 0.0);
        for result in other.start(&memory, &patient(3, 1), 2).outcome.results {
            let refused =
                matches!(result, Err(AbftError::Refused(AbftRefusal::Foreign { rank: 0 })));
            assert!(refused, "{result:?}");
        }
    }
}

/// After a loss, the residual is about as large as in undisturbed runs.
#[test]
fn residuals_after_a_loss_are_of_the_same_size() {
    for (p, q, depth) in [(1, 3, 0), (2, 2, 1)] {
        let job = |seed| {
            let spec = TestSpec { depth, ..spec(96, 8, p, q) };
            Job {
                spec,
                weights: Weights::new(q, 1),
                matrix: Matrix::random(96, seed),
                check: CHECK,
            }
        };
        let undisturbed = |seed| {
            let job = job(seed);
            job.matrix.residual(&job.finish(&job.untouched(), seed, 1).x)
        };
        let sorted = |mut residuals: Vec<f64>| {
            residuals.sort_by(f64::total_cmp);
            residuals
        };
        let undisturbed = sorted((0..31).map(undisturbed).collect());
        let mut random = Random::new(3);
        let after = |seed| {
            let job = job(seed % 31);
            let (ranks, rank) = (job.ranks(), random.below(job.ranks()));
            let step = 1 + random.below(steps(&job, seed) as usize) as u64;
            let options = deadly(ranks, seed, vec![Kill { step, rank }], Linger::Steps(0));
            let left = job.start(&job.untouched(), &options, 1);
            job.matrix.residual(&job.finish(&without(&left.memory, &[rank]), seed, 2).x)
        };
        let after = sorted((0..62).map(after).collect());
        let of =
            |residuals: &[f64]| (residuals[residuals.len() / 2], residuals[residuals.len() - 1]);
        let ((median, most), (median_after, most_after)) = (of(&undisturbed), of(&after));
        println!("{p} x {q}: {median:.2e}, at most {most:.2e}");
        println!("after a loss {median_after:.2e}, at most {most_after:.2e}");
        assert!(median_after <= 2.0 * median, "{median_after} against {median}");
        assert!(most_after <= 4.0 * most, "{most_after} against {most}");
    }
}

/// Stops a rank at this step between the cut before a panel and the next cut: at once or, if it is
/// about to log the rows of the panel, once all ranks are.
struct StopAt<'b> {
    panel: usize,
    step: &'static str,
    all: &'b Barrier,
    cut: AtomicU64,
}

impl MemoryHook for StopAt<'_> {
    fn at(&self, at: At) -> Result<(), SolveError> {
        if at.name == "rest" {
            self.cut.store(at.number, Ordering::Relaxed);
        }
        if at.name == self.step && self.cut.load(Ordering::Relaxed) == self.panel as u64 {
            if at.name == "log" {
                self.all.wait();
            }
            return Err(CommError::aborted("stopped").into());
        }
        Ok(())
    }
}

/// Notes the threads of a rank that take a product back.
#[derive(Default)]
struct TakingBack(Mutex<HashSet<ThreadId>>);

impl MemoryHook for TakingBack {
    fn at(&self, at: At) -> Result<(), SolveError> {
        if at.name == "take back" {
            self.0.lock().unwrap().insert(thread::current().id());
        }
        Ok(())
    }
}

/// A step that a rank has to undo is taken back by as many threads as have computed it. Simulated
/// ranks show after which death one rank takes several parts back.
#[test]
fn all_threads_take_a_product_back() {
    let alone = exact(TestSpec { depth: 1, ..spec(500, 100, 1, 2) }, 1);
    let team = Job { spec: TestSpec { threads: 3, ..alone.spec.clone() }, ..alone.clone() };
    let ranks = alone.ranks();
    let takes_back = |memory: &Memory| {
        let options = SimOptions { trace: true, ..patient(ranks, 1) };
        let trace = alone.start(memory, &options, 2).outcome.trace;
        (0..ranks).any(|rank| {
            let of_rank = format!(" rank {rank}: take back ");
            let parts = trace.iter().filter_map(|line| line.split_once(&of_rank));
            parts.map(|(_, part)| part).collect::<HashSet<_>>().len() > 1
        })
    };
    let most = (1..=steps(&alone, 1)).step_by(7).find_map(|step| {
        let kills = vec![Kill { step, rank: 0 }];
        let left = alone.start(&alone.untouched(), &deadly(ranks, 1, kills, Linger::Steps(0)), 1);
        if !takes_back(&left.memory) {
            return None;
        }
        let memory: Vec<Mutex<Vec<f64>>> = left.memory.into_iter().map(Mutex::new).collect();
        let solved = run(ranks, |comm| {
            let (hook, memory) = (TakingBack::default(), &memory[comm.rank()]);
            let solution = team.solve(&comm, &mut memory.lock().unwrap(), 2, &hook)?;
            Ok::<_, AbftError>((solution.x, hook.0.into_inner().unwrap().len()))
        });
        let solved: Vec<_> = solved.into_iter().map(|rank| rank.expect("solved")).collect();
        assert!(solved.iter().all(|(x, _)| *x == team.matrix.x), "rank 0 died at step {step}");
        solved.into_iter().map(|(_, threads)| threads).max().filter(|&threads| threads > 1)
    });
    assert!(most.is_some(), "no rank has used several threads");
}

/// The scaled residual if these ranks are lost at the cut before `panel`, at this step.
fn residual_after(job: &Job, lost: &[usize], panel: usize, step: &'static str) -> f64 {
    let memory: Vec<Mutex<Vec<f64>>> = (0..job.ranks()).map(|_| Mutex::default()).collect();
    let all = Barrier::new(job.ranks());
    let stopped = run(job.ranks(), |comm| {
        let hook = StopAt { panel, step, all: &all, cut: AtomicU64::new(0) };
        job.solve(&comm, &mut memory[comm.rank()].lock().unwrap(), 1, &hook)
    });
    assert!(stopped.iter().all(Result::is_err));
    lost.iter().for_each(|&lost| memory[lost].lock().unwrap().fill(0.0));
    let solved = run(job.ranks(), |comm| {
        job.solve(&comm, &mut memory[comm.rank()].lock().unwrap(), 2, &GoOn)
    });
    let solution = solved.into_iter().next().expect("rank 0").expect("solved");
    assert_eq!((solution.resumed, &solution.rebuilt[..]), (Some(panel), lost));
    job.matrix.residual(&solution.x)
}

/// Rebuilt data matches the L that was made with the lost data: for columns that are eliminated
/// further, for finished groups, whether or not their checksums have been summed again, and for the
/// finished columns of a group that is not finished.
#[test]
fn residuals_do_not_grow_with_the_groups_finished_at_a_loss() {
    let (n, nb) = (768, 16);
    for (p, q, seed) in [(2, 2, 1), (1, 2, 3), (2, 1, 2)] {
        let job = Job {
            spec: spec(n, nb, p, q),
            weights: Weights::new(q, 1),
            matrix: Matrix::random(n, seed),
            check: CHECK,
        };
        let undisturbed = job.matrix.residual(&with_checksums(&job));
        for (eighths, lost) in [(4, 1), (7, 0), (7, 1), (7, 2)] {
            let group_end = n / nb * eighths / 8;
            let of_renewal = ["renew", "logged", "summed"].map(|step| (group_end, step));
            let behind_it = ["store sums", "log"].map(|step| (group_end + 1, step));
            for (panel, step) in of_renewal.into_iter().chain(behind_it) {
                let ratio = residual_after(&job, &[lost], panel, step) / undisturbed;
                let what = format!("{}: rank {lost} lost at panel {panel}", job.name());
                println!("{what}, {step}: {ratio:.2}");
                assert!(ratio < 2.0, "{what}: {ratio}");
            }
        }
    }
}

/// Residuals do not grow if a group has several finished columns of which one or two are decoded.
#[test]
fn residuals_do_not_grow_with_the_finished_columns_of_a_group() {
    let (n, nb) = (768, 16);
    for (p, q, checksums, threads) in [(1, 4, 1, 1), (2, 3, 1, 2), (2, 3, 2, 1), (1, 4, 2, 2)] {
        let job = Job {
            spec: TestSpec { threads, ..spec(n, nb, p, q) },
            weights: Weights::new(q, checksums),
            matrix: Matrix::random(n, 5),
            check: CHECK,
        };
        let undisturbed = job.matrix.residual(&with_checksums(&job));
        let group_end = n / nb / q * 7 / 8 * q;
        for lost in [vec![0], vec![1], vec![0, 2]] {
            // Ranks are numbered row by row.
            let can_be = lost.len() <= checksums && lost.iter().all(|&rank| rank < q);
            for panel in (group_end + 1..group_end + q).filter(|_| can_be) {
                let ratio = residual_after(&job, &lost, panel, "log") / undisturbed;
                let what = format!("{}: ranks {lost:?} lost at panel {panel}", job.name());
                println!("{what}: {ratio:.2}");
                // What two checksums amplify is decoded, too.
                assert!(ratio < if lost.len() == 1 { 2.0 } else { 4.0 }, "{what}: {ratio}");
            }
        }
    }
}

/// The part of A of each rank, in its memory.
fn matrices(job: &Job, memory: &Memory) -> Vec<Vec<f64>> {
    let parts = run(job.ranks(), |comm| {
        let mut memory = memory[comm.rank()].clone();
        job.on(&comm, &mut memory, |system, memory| {
            Ok::<_, SolveError>(system.matrix(memory).to_vec())
        })
    });
    parts.into_iter().map(|part| part.expect("no rank dies")).collect()
}

/// Asserts that the checksums of all groups that are finished before the last panel are the sums of
/// the present U, bit by bit.
fn assert_sums(job: &Job, memory: &Memory, what: &str) {
    let (TestSpec { n, nb, p, q, .. }, width) = (&job.spec, job.width());
    let (&n, &nb, &p, &q) = (n, nb, p, q);
    let (rows, cols) = (Cyclic::rows(nb, p), ColumnMap::cyclic(nb, q));
    let a = matrices(job, memory);
    for (row, group) in (0..p).flat_map(|row| (0..(n.div_ceil(nb) - 1) / q).map(move |g| (row, g)))
    {
        let finished = n.min((group + 1) * q * nb);
        let lda = |col: usize| ptest::local_shape(&job.spec, row, col).lda;
        let sums = &a[row * width + q];
        for i in 0..rows.count_before(finished, row) {
            for l in group * nb..((group + 1) * nb).min(cols.count_before(n + 1, 0)) {
                let alive = |&col: &usize| {
                    let global = cols.global(l, col);
                    (rows.global(i, row)..=n).contains(&global)
                };
                let of = |col: usize| a[row * width + col][i * lda(col) + l];
                let want = (0..q).filter(alive).fold(0.0, |sum, col| sum + of(col));
                let at = (rows.global(i, row), l);
                assert_eq!(sums[i * lda(0) + l].to_bits(), want.to_bits(), "{what}, at {at:?}");
            }
        }
    }
}

/// Each rank dies at each step, and no memory is lost. The restart sums the checksums of all groups
/// again, also of groups whose sums were in progress.
#[test]
fn no_group_keeps_the_checksums_that_the_elimination_made() {
    let mut restarted = 0;
    for (n, p, q, depth) in [(11, 1, 1, 1), (9, 1, 2, 0), (10, 2, 1, 1)] {
        let spec = TestSpec { depth, ..spec(n, 2, p, q) };
        let (weights, matrix) = (Weights::new(q, 1), Matrix::random(n, 3));
        let job = Job { spec, weights, matrix, check: RARE };
        let (ranks, mut seen) = (job.ranks(), HashSet::new());
        let undisturbed = job.start(&job.untouched(), &SimOptions::new(ranks, 1), 1);
        assert_sums(&job, &undisturbed.memory, &job.name());
        for (step, rank) in (1..=steps(&job, 1)).flat_map(|s| (0..ranks).map(move |r| (s, r))) {
            for linger in [Linger::Steps(0), Linger::UntilBlocked] {
                let options = deadly(ranks, 1, vec![Kill { step, rank }], linger);
                let left = job.start(&job.untouched(), &options, 1).memory;
                // Torn data is rebuilt, from sums that may be old.
                if !seen.insert(fingerprint(&left)) {
                    continue;
                }
                let end = job.start(&left, &SimOptions::new(ranks, 1), 2);
                let is_rebuilt = |solved: &Result<abft::Solved, _>| {
                    solved.as_ref().is_ok_and(|solved| !solved.rebuilt.is_empty())
                };
                if !end.outcome.results.iter().any(is_rebuilt) {
                    let what = format!("{}, rank {rank} at {step}, {linger:?}", job.name());
                    assert_sums(&job, &end.memory, &what);
                    restarted += 1;
                }
            }
        }
    }
    println!("{restarted} restarts");
    assert!(restarted > 300);
}

/// Undisturbed runs stay far below an alarm.
#[test]
fn undisturbed_runs_give_no_alarm() {
    let n = 384;
    let narrow = [1, 2, 3].map(|nb| (4, 1, 1, 0, nb));
    let wide = [(2, 2, 1, 0, 16), (1, 3, 1, 1, 16), (2, 2, 2, 1, 16), (1, 4, 3, 0, 16)];
    // On narrow grids, process rows have nothing of the first groups above the diagonal.
    for (p, q, m, depth, nb) in wide.into_iter().chain(narrow) {
        let spec = TestSpec { depth, ..spec(n, nb, p, q) };
        let (weights, matrix) = (Weights::new(q, m), Matrix::random(n, 7));
        let job = Job { spec, weights, matrix, check: CHECK };
        let most = run(job.ranks(), |comm| {
            let mut watcher = Watch::default();
            let solved = job.watched(&comm, &mut Vec::new(), 1, &GoOn, &mut watcher);
            solved.expect("no alarm");
            Ok::<_, SolveError>(watcher.units)
        });
        for units in most {
            let units = units.expect("no alarm");
            assert!(units < 2.0, "{}: {units} units", job.name());
        }
    }
}

/// Makes a rank ask for an image of the cut before panel `cut`, and stops all ranks there.
struct Keeping<'a> {
    cut: usize,
    asks: bool,
    /// Number of panels that have begun.
    panels: usize,
    checks: usize,
    all: &'a Barrier,
}

impl SolverEvents for Keeping<'_> {
    fn wants_image(&mut self) -> bool {
        self.panels += 1;
        self.asks && self.panels == self.cut
    }

    fn checked(&mut self, _: Checked) {
        self.checks += 1;
    }

    fn keep_image(&mut self, cut: usize, _: &Phases) -> Result<(), SolveError> {
        assert_eq!((cut, self.panels), (self.cut, self.cut));
        // One check at the beginning, and one for the image.
        assert_eq!(self.checks, 2, "no image of a matrix that has not been checked");
        self.all.wait();
        Err(CommError::aborted("the image is kept").into())
    }
}

/// The relevant memory of each rank at the cut before panel `cut`, with zeros elsewhere.
fn images(job: &Job, cut: usize) -> Memory {
    let job = &Job { check: RARE, ..job.clone() };
    let (ranks, width, params) = (job.ranks(), job.width(), Params::from(&job.spec));
    let all = Barrier::new(ranks);
    let kept = run(ranks, |comm| {
        let (mut memory, rank) = (Vec::new(), comm.rank());
        let asks = rank == cut % ranks;
        let mut watcher = Keeping { cut, asks, panels: 0, checks: 0, all: &all };
        let ended = job.watched(&comm, &mut memory, 1, &GoOn, &mut watcher);
        assert!(matches!(ended, Err(AbftError::Solve(SolveError::Comm(_)))), "{ended:?}");
        let (row, col) = (rank / width, rank % width);
        let shape = ptest::local_shape(&job.spec, row, if col < job.spec.q { col } else { 0 });
        let rows = Cyclic::rows(job.spec.nb, job.spec.p);
        memory[image_doubles(&params, rows, row, shape)..].fill(0.0);
        Ok::<_, SolveError>(memory)
    });
    kept.into_iter().map(|memory| memory.expect("kept")).collect()
}

/// All ranks keep the cut that one asks for, after a check, and their images lead to x, also if as
/// many ranks of each row lack their image as there are checksums.
#[test]
fn images_of_each_cut_lead_to_x() {
    let mut restarts = 0;
    for job in small_jobs() {
        let (m, width) = (job.weights.checksums(), job.width());
        for cut in 1..=Params::from(&job.spec).panels() {
            let images = images(&job, cut);
            for first in 0..=width {
                let of_row = |row: usize| (first..first + m).map(move |i| row * width + i % width);
                let mut lost: Vec<usize> = if first < width {
                    (0..job.spec.p).flat_map(of_row).collect()
                } else {
                    Vec::new()
                };
                lost.sort_unstable();
                let solution = job.finish(&without(&images, &lost), first as u64, 2);
                let what = format!("{}, cut {cut}, lost {lost:?}", job.name());
                assert_eq!(
                    (solution.x, solution.resumed),
                    (job.matrix.x.clone(), Some(cut)),
                    "{what}"
                );
                assert_eq!(solution.rebuilt, lost, "{what}");
                restarts += 1;
            }
        }
    }
    println!("{restarts} restarts from images");
}

/// Why the ranks cannot continue from what is in memory.
fn refusal(job: &Job, memory: &mut Memory) -> Option<AbftRefusal> {
    let own: Vec<Mutex<Vec<f64>>> = memory.drain(..).map(Mutex::new).collect();
    let printed = run(job.ranks(), |comm| {
        let mut memory = own[comm.rank()].lock().expect("one thread has it");
        job.on(&comm, &mut memory, |system, memory| system.refusal(memory))
    });
    memory.extend(own.into_iter().map(|memory| memory.into_inner().expect("not poisoned")));
    let printed: Vec<Option<AbftRefusal>> =
        printed.into_iter().map(|printed| printed.expect("told")).collect();
    assert!(printed.iter().all(|other| *other == printed[0]), "{printed:?}");
    printed[0].clone()
}

/// A wrong number that has not been noticed when another rank of its process row is lost is
/// reported, not corrected: the rebuilt data compensates it, so two process columns are wrong.
#[test]
fn corruption_before_a_loss_is_reported_after_it() {
    let matrix = Matrix::random(96, 5);
    let job = Job { spec: spec(96, 8, 1, 3), weights: Weights::new(3, 2), matrix, check: RARE };
    let mut memory = images(&job, 4);
    let place = memory[1].iter().rposition(|value| *value != 0.0).expect("a matrix");
    memory[1][place] += 1.0;
    let repaired = job.finish(&memory, 1, 2);
    assert!(job.matrix.residual(&repaired.x) < 16.0, "nothing is lost");
    let healthy = job.finish(&without(&memory, &[1]), 1, 2);
    assert!(job.matrix.residual(&healthy.x) < 16.0, "it was lost itself");
    for lost in [0, 2, 3, 4] {
        let start = job.start(&without(&memory, &[lost]), &SimOptions::new(job.ranks(), 1), 2);
        let ended = start.outcome.results;
        let is_reported =
            ended.iter().any(|ended| matches!(ended, Err(AbftError::Solve(SolveError::Wrong(_)))));
        assert!(is_reported, "rank {lost}: {ended:?}");
    }
}

/// Once one rank has reported that the checksums contradict the matrix, and all have received that,
/// the loss of that rank does not revoke the report.
#[test]
fn a_contradiction_is_known_to_all_before_any_memory_goes() {
    let (nb, cut, matrix) = (8, 5, Matrix::random(96, 3));
    let job = Job { spec: spec(96, nb, 1, 3), weights: Weights::new(3, 1), matrix, check: RARE };
    let flip = Flip { place: (60, 20), bit: 60 };
    let start = |kills: Vec<Kill>| {
        let mut watchers = watches(&job);
        watchers[1].flip = Some((cut, flip));
        // Without a death, each rank returns its own error.
        let linger = if kills.is_empty() { Linger::UntilBlocked } else { Linger::Steps(0) };
        let options = SimOptions { trace: true, ..deadly(job.ranks(), 1, kills, linger) };
        job.start_watched(&job.untouched(), &options, 1, &mut watchers)
    };
    let reported = start(Vec::new());
    let results = &reported.outcome.results;
    let is_reported =
        |ended: &Result<_, AbftError>| matches!(ended, Err(AbftError::Solve(SolveError::Wrong(_))));
    assert!(results.iter().all(is_reported), "{results:?}");
    assert!(matches!(
        refusal(&job, &mut without(&reported.memory, &[3])),
        Some(AbftRefusal::Wrong { .. })
    ));
    // Until the other ranks learn of it, only the rank of the checksums has noticed it. The first
    // time, each rank writes that nothing is wrong.
    let of_3 = |line: &String| line.ends_with(" rank 3: wrong 0");
    let mut written = (1..).zip(&reported.outcome.trace).filter(|(_, line)| of_3(line));
    let (noticed, _): (u64, _) = written.nth(1).expect("noticed");
    let is_known_to_3_alone = |memory: &Memory| {
        let is_wrong = |left: &Memory| {
            matches!(refusal(&job, &mut left.clone()), Some(AbftRefusal::Wrong { rank: 3 }))
        };
        is_wrong(memory) && !is_wrong(&without(memory, &[3]))
    };
    let mut left = (noticed + 1..).map(|step| start(vec![Kill { step, rank: 0 }]).memory).take(40);
    let mut memory = left.find(is_known_to_3_alone).expect("a death before it is told");
    assert!(matches!(refusal(&job, &mut memory), Some(AbftRefusal::Wrong { rank: 3 })));
    for rank in 0..job.ranks() {
        let left = refusal(&job, &mut without(&memory, &[rank]));
        assert!(matches!(left, Some(AbftRefusal::Wrong { .. })), "without rank {rank}: {left:?}");
    }
    assert_eq!(refusal(&job, &mut job.untouched()), Some(AbftRefusal::Nothing));
    let mut lost = without(&images(&job, cut), &[0, 1]);
    assert!(matches!(refusal(&job, &mut lost), Some(AbftRefusal::Lost { .. })));
    assert_eq!(refusal(&job, &mut without(&images(&job, cut), &[2])), None);
}

/// The outcome of a run on whose rank `rank` a bit flips.
fn fate_of_flip(job: &Job, rank: usize, flip: (usize, Flip)) -> Fate {
    let mut watches = watches(job);
    watches[rank].flip = Some(flip);
    let start = job.start_watched(&job.untouched(), &patient(job.ranks(), 1), 1, &mut watches);
    fate(job, &start, &watches)
}

/// The outcome of a flip with checks, compared with that without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The flip is reported, and without checks the residual fails.
    NodeReport,
    /// The flip is reported, though without checks the residual passes.
    ToldInVain,
    Repaired,
    /// The flip is not noticed, and the residual passes.
    Harmless,
}

/// The bits of a number, from the lowest, by meaning.
const BITS: [(&str, Range<u32>); 5] = [
    ("lower half of the fraction", 0..26),
    ("upper half of the fraction", 26..52),
    ("lower half of the exponent", 52..57),
    ("upper half of the exponent", 57..63),
    ("sign", 63..64),
];

/// Numbers of flips, by one checksum or several, by bits and by outcome.
type Outcomes = [[[usize; 4]; BITS.len()]; 2];

fn print_outcomes(outcomes: &Outcomes) {
    println!(
        "| checksums | bits | told | told in vain | mended | harmless |\n|---|---|---|---|---|---|"
    );
    for (checksums, of_checksums) in ["1", "2"].iter().zip(outcomes) {
        for ((bits, _), [reported, in_vain, repaired, harmless]) in BITS.iter().zip(of_checksums) {
            println!("| {checksums} | {bits} | {reported} | {in_vain} | {repaired} | {harmless} |");
        }
    }
}

/// A flip of any bit, at any position and time, whose effect would fail the residual is reported;
/// several checksums correct it if they check before the column is finished.
#[test]
fn a_flipped_bit_is_reported_or_repaired() {
    let flips = std::env::var("SKT_FLIPS").map_or(250, |flips| flips.parse().expect("a number"));
    let (mut random, mut outcomes) = (Random::new(11), Outcomes::default());
    let every = |panels| CheckEvery::Panels(NonZeroUsize::new(panels).expect("not 0"));
    let kinds = [(2, 2, 1, 0, 3), (1, 3, 1, 1, 100), (2, 2, 2, 0, 1), (1, 3, 2, 1, 3)];
    for number in 0..flips {
        let (p, q, m, depth, panels) = kinds[number % kinds.len()];
        let (n, nb) = (96, 8);
        let matrix = Matrix::random(n, number as u64);
        let spec = TestSpec { depth, ..spec(n, nb, p, q) };
        let weights = Weights::new(q, m);
        let job = Job { spec, weights, matrix, check: every(panels) };
        let place = (random.below(n), random.below(n));
        let flip = (1 + random.below(n / nb), Flip { place, bit: random.below(64) as u32 });
        let rank = random.below(job.ranks());
        let unchecked = fate_of_flip(&Job { check: CheckEvery::Never, ..job.clone() }, rank, flip);
        let checked = fate_of_flip(&job, rank, flip);
        let what = || format!("{}, {rank}, {flip:?}: {unchecked:?}, {checked:?}", job.name());
        let outcome = match checked {
            Fate::Solved { residual, repaired_rows } => {
                assert!(residual < 16.0, "a wrong answer: {}", what());
                assert!(repaired_rows == 0 || m > 1, "{}", what());
                if repaired_rows > 0 { Outcome::Repaired } else { Outcome::Harmless }
            }
            Fate::Wrong { .. } | Fate::NoPivot if has_failed(&unchecked) => Outcome::NodeReport,
            Fate::Wrong { .. } | Fate::NoPivot => Outcome::ToldInVain,
            Fate::Refused | Fate::Died => panic!("{}", what()),
        };
        // A flip that is hardly more than rounding may be reported when it can no longer be
        // corrected.
        if m > 1 && panels == 1 && has_failed(&unchecked) {
            let is_solved = matches!(checked, Fate::Solved { .. });
            assert!(is_solved, "not mended: {}", what());
        }
        let bits = BITS.iter().position(|(_, bits)| bits.contains(&flip.1.bit)).expect("a bit");
        outcomes[m - 1][bits][outcome as usize] += 1;
    }
    print_outcomes(&outcomes);
    for outcome in [Outcome::NodeReport, Outcome::Repaired, Outcome::Harmless] {
        let count: usize = outcomes.iter().flatten().map(|counts| counts[outcome as usize]).sum();
        assert!(count > flips / 50, "{outcome:?}: {outcomes:?}");
    }
}
