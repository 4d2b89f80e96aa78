//! The formulas against published numbers and against each other.

mod golden;
mod path;
mod properties;
