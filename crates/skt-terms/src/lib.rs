//! What the crates of this workspace have in common: HPL's terms as values and pure
//! functions. It knows no files, no ranks that run, no matrix.
//!
//! | module | what |
//! |---|---|
//! | [`choice`] | the choices of a run, with their codes in HPL.dat and their names |
//! | [`layout`] | where the entries of the matrix lie: process grid, block-cyclic maps |
//! | [`rings`], [`tree`] | who passes a panel on to whom |
//! | [`shown`] | how text that others wrote is shown |
#![warn(missing_docs)]

pub mod choice;
pub mod layout;
pub mod rings;
pub mod shown;
pub mod tree;
