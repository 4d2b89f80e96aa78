//! The elimination with checksums, on ranks that are threads and on simulated ones that
//! are killed at each of their steps.

mod abft;

use std::collections::HashSet;

use abft::{Job, Matrix, Memory, Random, Trail, deadly, fingerprint, spec};
use skt_hpl::config::{Bcast, Swap, TestSpec};
use skt_hpl::hpl::comm::sim::{Kill, Linger, Options};
use skt_hpl::hpl::comm::threads::run;
use skt_hpl::hpl::comm::{Comm, collect};
use skt_hpl::hpl::grid::Grid;
use skt_hpl::hpl::pgesv::abft::{AbftError, GoOn, Refusal, Weights};
use skt_hpl::hpl::pgesv::guard::{Guard, Unguarded};
use skt_hpl::hpl::pgesv::{Params, SolveError, Solver, Workspace};
use skt_hpl::machine::team::Team;
use skt_hpl::run::ptest::{self};

/// x of a run without checksums.
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
        let mut work = Workspace::new(&grid, &params, shape)?;
        let (a, background) = guard.lend(shape);
        let mut solver = Solver::new(&grid, &team, params, shape, &a, &mut work);
        solver.factor(0..params.panels(), &mut |_| (), background)?;
        let x = solver.back_substitute()?;
        let parts = collect::all_gather_bytes(&grid.row, bytemuck::cast_slice(&x))?;
        let parts: Vec<Vec<f64>> =
            parts.iter().map(|p| bytemuck::allocation::pod_collect_to_vec(p)).collect();
        Ok::<_, SolveError>(
            (0..spec.n).map(|j| parts[cols.owner(j)][cols.local(j)]).collect::<Vec<_>>(),
        )
    });
    ranks.into_iter().next().expect("rank 0").expect("solved")
}

/// x of a run with checksums on threads.
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
            for (depth, threads) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
                let turn = compared % 3;
                let swap = [Swap::BinaryExchange, Swap::SpreadRoll, Swap::Mix][turn];
                let bcast = [Bcast::OneRing, Bcast::Long, Bcast::TwoRingM][turn];
                let spec = TestSpec { depth, threads, swap, bcast, ..spec(n, nb, p, q) };
                let matrix = Matrix::random(n, n as u64);
                let job = Job { spec, weights: Weights::new(q, m), matrix };
                let (x, want) = (with_checksums(&job), plain(&job.spec, &job.matrix));
                assert_eq!(x, want, "{} with {threads} threads", job.name());
                compared += 1;
            }
        }
    }
    for threads in [1, 2] {
        let spec = TestSpec { depth: 1, threads, ..spec(611, 48, 2, 2) };
        let job = Job { spec, weights: Weights::new(2, 1), matrix: Matrix::random(611, 1) };
        assert_eq!(with_checksums(&job), plain(&job.spec, &job.matrix), "{threads} threads");
    }
    println!("{compared} runs compared");
}
