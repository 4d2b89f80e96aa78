//! The pages, the scripts and the sources of this repository against each other.

#[path = "../executables/mod.rs"]
mod executables;
#[path = "../skipped/mod.rs"]
mod skipped;

mod comments;
mod compare;
mod dependencies;
mod docs_numbers;
mod import_cycles;
mod needs;
mod pages;
mod protocol_steps;
mod release;
mod scripts;
mod soaks;
mod suites;
mod time_limits;
mod words;
