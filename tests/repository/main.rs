//! The pages, the scripts and the sources of this repository against each other.

#[path = "../executables/mod.rs"]
mod executables;
#[path = "../skipped/mod.rs"]
mod skipped;

mod batch;
mod dependencies;
mod imports;
mod release;
mod scripts;
mod stand_ins;
mod suites;
mod words;
