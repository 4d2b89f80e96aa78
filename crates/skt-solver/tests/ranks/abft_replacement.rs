//! The hot replacement: simulated ranks of systems with one checksum column are killed at each of
//! their steps, and the others continue without them.
//!
//! Columns that are sums of columns have other pivots, so no system has known pivots for every
//! loss. X is judged by its residual, with random systems: a wrong sign, row or column makes it
//! 1e10 and more. If no columns are summed, x is exact.

use std::collections::HashSet;

use crate::abft::{
    self, Job, Matrix, Memory, Random, Solved, Start, deadly, fingerprint, patient, spec, steps,
    without,
};
use skt_config::{Swap, TestSpec};
use skt_sim::fibers::{Kill, Linger, SimOptions};
use skt_solver::pgesv::abft::{AbftError, AbftRefusal, CheckEvery, Weights};

/// The bound of the residual.
const THRESHOLD: f64 = 16.0;

fn job(spec: TestSpec, matrix: Matrix) -> Job {
    let weights = Weights::new(spec.q, 1);
    Job { spec, weights, matrix, check: CheckEvery::Never }
}

/// Systems with ragged groups, with b alone, within a block, and in the first and in the last
/// process column.
fn specs() -> Vec<TestSpec> {
    let swaps = [Swap::BinaryExchange, Swap::SpreadRoll, Swap::Mix];
    let shapes = [
        (9, 2, 1, 2, 0),
        (9, 2, 1, 2, 1),
        (8, 2, 1, 1, 1),
        (13, 3, 1, 3, 0),
        (16, 3, 1, 3, 1),
        (12, 2, 1, 3, 1),
        (10, 4, 2, 2, 0),
        (11, 3, 2, 2, 1),
        (13, 2, 2, 3, 1),
        (14, 3, 3, 2, 1),
    ];
    let spec = |(number, &(n, nb, p, q, depth)): (usize, &(usize, usize, usize, usize, usize))| {
        // Small enough for halves of columns.
        let (swap, swap_threshold) = (swaps[number % 3], 0);
        TestSpec { depth, swap, swap_threshold, ..spec(n, nb, p, q) }
    };
    shapes.iter().enumerate().map(spec).collect()
}

fn lose(job: &Job, seed: u64, kills: Vec<Kill>, linger: Linger) -> Memory {
    job.start(&job.untouched(), &deadly(job.ranks(), seed, kills, linger), 1).memory
}

/// Continues without the ranks of `gone`; returns x, if it was computed, and the column from which
/// it was.
fn replaced(job: &Job, gone: &[usize], memory: &Memory, seed: u64) -> (Vec<f64>, usize) {
    let options = SimOptions::new(job.ranks() - gone.len(), seed);
    let start = job.start_without(gone, memory, &options, 2);
    let mut solutions = start.outcome.results.into_iter().map(|result| {
        result.unwrap_or_else(|error| panic!("{} without {gone:?}: {error}", job.name()))
    });
    let first = solutions.next().expect("a rank");
    assert!(solutions.all(|other| other == first), "all ranks have the same x");
    let panels = job.spec.n.div_ceil(job.spec.nb);
    let lost = Some(gone[0] % job.width());
    let panel = first.resumed.expect("the system goes on");
    assert!(first.replaced == lost || (first.replaced.is_none() && panel == panels));
    (first.x, panel)
}

#[track_caller]
fn assert_solves(job: &Job, x: &[f64], what: &str) {
    let residual = job.matrix.residual(x);
    assert!(residual < THRESHOLD, "{}, {what}: residual {residual:.3e}", job.name());
}

/// Each rank dies at each step of a run: the others continue to x.
#[test]
fn a_run_goes_on_without_any_rank_from_any_step() {
    let (mut died, mut cuts) = (0, HashSet::new());
    for (number, spec) in specs().into_iter().enumerate() {
        let job = job(spec.clone(), Matrix::random(spec.n, number as u64));
        let (ranks, seed) = (job.ranks(), number as u64);
        // Of large jobs, only every few steps.
        let stride = if ranks > 3 { 3 * ranks } else { 1 };
        let mut seen = HashSet::new();
        for (step, rank) in
            (1..=steps(&job, seed)).step_by(stride).flat_map(|s| (0..ranks).map(move |r| (s, r)))
        {
            let linger = [Linger::Steps(0), Linger::UntilBlocked][step as usize % 2];
            let memory = lose(&job, seed, vec![Kill { step, rank }], linger);
            if !seen.insert((rank, fingerprint(&memory))) {
                continue;
            }
            let (x, cut) = replaced(&job, &[rank], &memory, seed);
            assert_solves(&job, &x, &format!("rank {rank} at {step}, cut {cut}"));
            died += 1;
            cuts.insert((number, rank % job.width(), cut));
        }
    }
    println!("{died} deaths, {} cuts", cuts.len());
    assert!(died > 2000);
    // Each process column is lost at each cut, from before panel 0 to after the last one.
    for (number, spec) in specs().iter().enumerate() {
        let all = spec.n.div_ceil(spec.nb) + 1;
        for col in 0..=spec.q {
            let count = (0..all).filter(|&cut| cuts.contains(&(number, col, cut))).count();
            let is_large = spec.p > 1;
            assert!(count == all || (is_large && 2 * count > all), "{spec:?} {col}: {count}");
        }
    }
}

/// All ranks of a process column are lost, and no others.
#[test]
fn a_run_goes_on_without_several_ranks_of_a_process_column() {
    let mut random = Random::new(5);
    for (number, spec) in specs().into_iter().enumerate().filter(|(_, spec)| spec.p > 1) {
        let job = job(spec.clone(), Matrix::random(spec.n, 7));
        let (seed, width) = (number as u64, job.width());
        let steps = steps(&job, seed) as usize;
        for turn in 0..12 {
            let col = turn % width;
            let least = turn % spec.p;
            let gone: Vec<usize> = (least..spec.p).map(|row| row * width + col).collect();
            let step = 1 + random.below(steps) as u64;
            let kills = gone.iter().map(|&rank| Kill { step, rank }).collect();
            let memory = lose(&job, seed, kills, Linger::Steps(0));
            let (x, cut) = replaced(&job, &gone, &memory, seed);
            assert_solves(&job, &x, &format!("{gone:?} at {step}, cut {cut}"));
        }
    }
}

/// No columns are summed if only U is decoded, or the checksums themselves are lost.
#[test]
fn x_is_exact_where_no_column_is_another() {
    let (mut of_checksums, mut of_u) = (0, 0);
    for spec in specs() {
        let job = job(spec.clone(), Matrix::exact(spec.n, 5));
        let (ranks, width, steps) = (job.ranks(), job.width(), steps(&job, 3));
        let stride = if ranks > 3 { ranks } else { 2 };
        for step in (1..=steps).step_by(stride) {
            let is_last = 20 * step > 19 * steps;
            let rank = if is_last { step as usize % ranks } else { spec.q };
            let memory = lose(&job, 3, vec![Kill { step, rank }], Linger::UntilBlocked);
            let (x, cut) = replaced(&job, &[rank], &memory, 3);
            let is_checksum = rank % width == spec.q;
            if is_checksum || cut * spec.nb >= spec.n {
                assert_eq!(x, job.matrix.x, "{}, rank {rank} at {step}", job.name());
                *(if is_checksum { &mut of_checksums } else { &mut of_u }) += 1;
            }
        }
    }
    println!("{of_checksums} losses of checksums, {of_u} of U");
    assert!(of_checksums > 200 && of_u > 20);
}

/// Residuals grow about as much as sums of Q columns increase rounding errors.
#[test]
fn residuals_are_of_the_same_size() {
    let sorted = |mut residuals: Vec<f64>| {
        residuals.sort_by(f64::total_cmp);
        (residuals[residuals.len() / 2], residuals[residuals.len() - 1])
    };
    for (p, q, depth) in [(1, 3, 0), (2, 2, 1)] {
        let job = |seed| {
            let spec = TestSpec { depth, ..spec(96, 8, p, q) };
            job(spec, Matrix::random(96, seed))
        };
        let undisturbed = |seed| {
            let job = job(seed);
            job.matrix.residual(&job.finish(&job.untouched(), seed, 1).x)
        };
        let (median, most) = sorted((0..31).map(undisturbed).collect());
        let mut random = Random::new(3);
        let after = |seed| {
            let job = job(seed % 31);
            let rank = random.below(job.ranks() / p - 1);
            let step = 1 + random.below(steps(&job, seed) as usize) as u64;
            let memory = lose(&job, seed, vec![Kill { step, rank }], Linger::Steps(0));
            job.matrix.residual(&replaced(&job, &[rank], &memory, seed).0)
        };
        let (median_after, most_after) = sorted((0..62).map(after).collect());
        println!(
            "{p} x {q}: median {:.2}, most {:.2} times",
            median_after / median,
            most_after / most
        );
        assert!(median_after <= 4.0 * median, "{median_after} against {median}");
        assert!(most_after <= 8.0 * most, "{most_after} against {most}");
    }
}

/// The outcome of a later start of the whole job, with the memories that a replacement has left.
fn later(job: &Job, left: &Start, gone: &[usize], seed: u64) -> Vec<Result<Solved, AbftError>> {
    job.start(&without(&left.memory, gone), &patient(job.ranks(), seed), 3).outcome.results
}

/// A further rank dies at each step of a replacement. Until a word records that the memories are no
/// longer a cut, a later start continues from them; from then on it refuses by name, until x is
/// there.
#[test]
fn a_further_death_is_reported_and_never_gives_a_wrong_x() {
    let (mut went_on, mut refused, mut solved) = (0, 0, 0);
    for (number, spec) in specs().into_iter().enumerate() {
        let job = job(spec.clone(), Matrix::random(spec.n, 11));
        let (ranks, seed) = (job.ranks(), number as u64);
        let steps = steps(&job, seed);
        for part in 1..4 {
            let first = (number + part as usize) % ranks;
            let kills = vec![Kill { step: steps * part / 4, rank: first }];
            let memory = lose(&job, seed, kills, Linger::Steps(0));
            let undisturbed =
                job.start_without(&[first], &memory, &SimOptions::new(ranks - 1, 1), 2);
            let stride = 1 + undisturbed.outcome.steps as usize / 150;
            for step in (1..=undisturbed.outcome.steps).step_by(stride) {
                let second = (step as usize / stride) % (ranks - 1);
                let kills = vec![Kill { step, rank: second }];
                let options = deadly(ranks - 1, 1, kills, Linger::Steps(0));
                let left = job.start_without(&[first], &memory, &options, 2);
                // The second rank's memory is kept or lost.
                let second = second + usize::from(second >= first);
                let is_torn = left.trails[second].is_torn();
                let has = |is: fn(&abft::Trail) -> bool| left.trails.iter().any(is);
                let (is_replaced, is_solved) = (has(|t| t.is_replaced), has(|t| t.is_solved));
                let what = format!("{first} of part {part}, then {second} at {step}");
                let results = later(&job, &left, &[first], seed);
                for result in &results {
                    match result {
                        Ok(solution) => {
                            assert_solves(&job, &solution.x, &what);
                            assert!(is_solved || !is_replaced, "{}, {what}", job.name());
                        }
                        Err(AbftError::Refused(AbftRefusal::Replaced { column, .. })) => {
                            assert_eq!(*column, first % job.width());
                            assert!(is_replaced && !is_solved, "{}, {what}", job.name());
                        }
                        Err(AbftError::Refused(AbftRefusal::Lost { .. })) => {
                            assert!(is_torn, "{}, {what}", job.name());
                        }
                        Err(error) => panic!("{}, {what}: {error}", job.name()),
                    }
                }
                match (is_replaced, is_solved) {
                    (false, _) => went_on += 1,
                    (true, false) => refused += 1,
                    (true, true) => solved += 1,
                }
                // Without the memory of both ranks, the outcome is also an x or a refusal.
                for solution in later(&job, &left, &[first, second], seed).iter().flatten() {
                    assert_solves(&job, &solution.x, &what);
                }
            }
        }
    }
    println!("{went_on} went on, {refused} were refused, {solved} had x");
    assert!(went_on > 200 && refused > 500 && solved > 20);
}

/// A rank without a part in the continuing run may be lost, too.
#[test]
fn ranks_without_a_part_are_not_needed() {
    let spec = TestSpec { depth: 1, ..spec(11, 3, 2, 2) };
    let job = job(spec.clone(), Matrix::random(spec.n, 2));
    let (ranks, width) = (job.ranks(), job.width());
    for (col, step) in
        (0..width).flat_map(|col| (1..steps(&job, 1)).step_by(97).map(move |s| (col, s)))
    {
        let memory = lose(&job, 1, vec![Kill { step, rank: col }], Linger::Steps(0));
        let all =
            job.start_without(&[col], &memory, &SimOptions::new(ranks - 1, 4), 2).outcome.steps;
        for later in (1..all).step_by(31) {
            // Ranks are numbered in the order of the remaining ones.
            let kills = vec![Kill { step: later, rank: col + width - 1 }];
            let options = deadly(ranks - 1, 4, kills, Linger::UntilBlocked);
            let left = job.start_without(&[col], &memory, &options, 2);
            let both = [col, col + width];
            let (x, _) = replaced(&job, &both, &left.memory, 5);
            assert_solves(&job, &x, &format!("column {col} at {step}, then at {later}"));
        }
    }
}

/// If ranks of two process columns are lost, no rank changes anything.
#[test]
fn losses_of_two_process_columns_are_refused() {
    let spec = TestSpec { depth: 1, ..spec(11, 3, 2, 2) };
    let job = job(spec.clone(), Matrix::random(spec.n, 2));
    let mut memory =
        lose(&job, 1, vec![Kill { step: steps(&job, 1) / 2, rank: 0 }], Linger::Steps(0));
    // The rank is of the other row, so that checksums could rebuild both.
    memory[4].clear();
    let options = deadly(job.ranks() - 1, 1, Vec::new(), Linger::UntilBlocked);
    let start = job.start_without(&[0], &memory, &options, 2);
    for result in &start.outcome.results {
        let refusal = AbftRefusal::Scattered { column: 0, ranks: vec![4] };
        assert!(matches!(result, Err(AbftError::Refused(why)) if *why == refusal), "{result:?}");
    }
    let x = job.finish(&start.memory, 1, 3).x;
    assert_solves(&job, &x, "both rebuilt");
}
