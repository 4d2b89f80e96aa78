//! From HPL.dat or TOML to one validated [`RunSpec`].

pub mod spec;

pub use spec::{Bcast, Fact, Generator, Output, Pmap, RunSpec, Swap, TestSpec};
