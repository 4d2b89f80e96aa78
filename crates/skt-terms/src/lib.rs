//! What the crates of this workspace have in common: HPL's terms as values and pure functions. This
//! crate has no files, no running ranks, and no matrix.
//!
//! | module | what |
//! |---|---|
//! | [`checkpoint_times`] | when checkpoints are due |
//! | [`choice`] | the choices of a run, with their codes in HPL.dat and their names |
//! | [`columns`] | which process column holds which columns of the matrix |
//! | [`layout`] | how the matrix is distributed: process grid, block-cyclic maps |
//! | [`levels`], [`ranges`] | texts on a command line: levels of images, numbers in a range |
//! | [`panel_edges`], [`tree`] | from which process to which a panel is forwarded |
//! | [`mod@named`] | enumerations whose values have names |
//! | [`mod@median`] | the median of numbers |
//! | [`phases`] | the phases of a factorization, and their seconds |
//! | [`exit`] | how the program ends |
//! | [`similar`] | words that a user may have meant |
//! | [`shown`] | how text is displayed: text of others, and commands that can be typed again |
//! | [`mod@tuning`] | values found by measurement, listed with unit and reason |
//! | [`tournament`] | pairs, round by round |
//! | [`units`] | quantities in units that people read |
#![warn(missing_docs, unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod checkpoint_times;
pub mod choice;
pub mod columns;
pub mod exit;
pub mod layout;
pub mod levels;
pub mod median;
pub mod named;
pub mod norms;
pub mod panel_edges;
pub mod phases;
pub mod ranges;
pub mod shown;
pub mod similar;
pub mod tournament;
pub mod tree;
pub mod tuning;
pub mod units;
