//! The formulas against published numbers, against each other and against a simulator; and the
//! program.

mod golden;
mod levels;
mod path;
mod program;
mod properties;
mod published;
mod simulation;
