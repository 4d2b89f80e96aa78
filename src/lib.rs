//! High-Performance Linpack: a block-cyclic LU factorization with partial pivoting on a P x Q grid
//! of ranks, a drop-in replacement for the reference `xhpl`.
//!
//! The program is `skt-hpl`; this is its library. Its ranks are those
//! of a [`skt_comm::Comm`]: MPI in production, and threads of one process here, so that everything
//! can be tested without a launcher.
//!
//! ```
//! use skt_solver::comm::threads;
//! use skt_config::{Format, parse};
//! use skt_solver::grid::Grid;
//! use skt_solver::pgesv::guard::Unguarded;
//! use skt_run::events::Silent;
//! use skt_run::ptest::{self, TestRun};
//! use skt_run::record::Outcome;
//! use skt_solver::team::Team;
//!
//! // A run as a TOML file would describe it; it has one test.
//! let toml = b"n = 200\nnb = 16\np = 2\nq = 2\nbcast = \"2ring\"\n";
//! let run = parse(toml, "example.toml", Format::Toml, false).unwrap().spec;
//! let test = &run.tests()[0];
//!
//! // Four ranks generate the matrix, solve, and check the solution.
//! let ranks = threads::run(4, |world| {
//!     let grid = Grid::new(&world, test.p, test.q, test.pmap)?.expect("4 ranks, 2 x 2");
//!     let mut memory = Unguarded::new(ptest::shape(&grid, test).doubles()).expect("memory");
//!     let test = TestRun { grid: &grid, team: &Team::solo(), spec: test };
//!     ptest::run(test, &mut memory, false, &mut Silent)
//! });
//!
//! // Rank 0 of the grid has the record.
//! let record = ranks.into_iter().next().unwrap().unwrap().unwrap();
//! let Outcome::Passed { scaled_residual, .. } = record.outcome else { panic!("{record:?}") };
//! assert!(scaled_residual < test.threshold);
//! ```
//!
//! | to read about | begin with |
//! |---|---|
//! | the algorithm | [`skt_solver::pgesv`], then [`skt_solver::pfact`], [`skt_solver::swap`], [`skt_solver::update`] |
//! | the layout of data | [`skt_solver::grid`], [`skt_solver::pgesv::panel`], [`skt_solver::matgen`] |
//! | how ranks communicate | [`skt_solver::comm`], [`skt_solver::comm::panel_bcast`] |
//! | input and output | [`skt_config`], [`report`], [`cli`] |
//! | what is known of a test | [`skt_run::record`] |
//! | why a machine is slow | [`skt_health`], [`skt_host::counters`] |
//! | what is around a run | [`skt_run::job`], [`skt_run::ptest`], [`skt_health::environment`] |
//! | checkpoints in memory | [`skt_checkpoint`], [`skt_run::protect`] |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod cli;
pub mod report;
