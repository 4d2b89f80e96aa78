//! High-Performance Linpack: a block-cyclic LU factorization with partial pivoting on a P x Q grid
//! of ranks, a drop-in replacement for the reference `xhpl`.
//!
//! The program is `skt-hpl`; this is its library. The solver is generic over [`hpl::comm::Comm`]:
//! MPI in production, and threads of one process here, so that everything can be tested without a
//! launcher.
//!
//! ```
//! use skt_hpl::hpl::comm::threads;
//! use skt_config::{Format, parse};
//! use skt_hpl::hpl::grid::Grid;
//! use skt_hpl::hpl::pgesv::guard::Unguarded;
//! use skt_hpl::run::events::Silent;
//! use skt_hpl::run::ptest;
//! use skt_hpl::record::Outcome;
//! use skt_hpl::hpl::team::Team;
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
//!     ptest::run(&grid, &Team::solo(), test, &mut memory, false, &mut Silent)
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
//! | the algorithm | [`hpl::pgesv`], then [`hpl::pfact`], [`hpl::swap`], [`hpl::update`] |
//! | the layout of data | [`hpl::grid`], [`hpl::pgesv::panel`], [`hpl::matgen`] |
//! | how ranks communicate | [`hpl::comm`], [`hpl::comm::panel_bcast`] |
//! | input and output | [`skt_config`], [`report`], [`cli`] |
//! | what is known of a test | [`record`] |
//! | why a machine is slow | [`skt_health`], [`skt_host::counters`] |
//! | what is around a run | [`run::job`], [`run::ptest`], [`skt_health::environment`] |
//! | checkpoints in memory | [`checkpoint`], [`run::protect`] |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod cli;
pub mod record;
pub mod report;
pub mod run;
pub mod screen;
pub mod supervisor;

pub use skt_checkpoint::checkpoint;
pub use skt_model as model;
pub use skt_solver as hpl;
