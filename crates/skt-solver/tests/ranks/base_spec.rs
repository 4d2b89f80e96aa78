//! The base test that other tests vary: small, on threads. And x of all ranks.

use skt_comm::{CommError, collect};
use skt_config::{Bcast, Fact, GemmPrecision, Generator, Pmap, Swap, TestSpec, Transport};
use skt_solver::grid::Grid;

/// A test of order `n` in blocks of `nb` on `p` times `q` ranks.
pub fn base(n: usize, nb: usize, p: usize, q: usize) -> TestSpec {
    TestSpec {
        n,
        nb,
        p,
        q,
        pmap: Pmap::RowMajor,
        depth: 0,
        bcast: Bcast::OneRing,
        rfact: Fact::Right,
        pfact: Fact::Right,
        nbmin: 4,
        ndiv: 2,
        swap: Swap::Mix,
        swap_threshold: 8,
        threshold: 16.0,
        generator: Generator::Hpl,
        threads: 1,
        transport: Transport::Shared,
        checksums: 0,
        mxp: None,
        gemm: GemmPrecision::Fp32,
        rates: Vec::new(),
    }
}

/// All of x, of which this rank has `mine`, the same on every process row.
pub fn whole_x(grid: &Grid, spec: &TestSpec, mine: &[f64]) -> Result<Vec<f64>, CommError> {
    let down = collect::all_gather_slices(&grid.col, mine)?;
    assert!(down.iter().all(|other| other == mine), "x differs between process rows");
    let (parts, cols) = (collect::all_gather_slices(&grid.row, mine)?, grid.cols(spec.nb));
    Ok((0..spec.n).map(|j| parts[cols.owner(j)][cols.local(j)]).collect())
}
