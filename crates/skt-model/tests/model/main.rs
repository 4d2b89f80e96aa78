//! The formulas against published numbers, against each other and against a simulator.

mod golden;
mod levels;
mod path;
mod properties;
mod simulation;
