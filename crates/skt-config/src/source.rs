//! Where a value was given.

use std::sync::Arc;

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// A line of an HPL.dat, counted from 1.
    Dat {
        /// The file, as the user named it.
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// A line of a TOML file, counted from 1.
    Toml {
        /// The file, as the user named it.
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// A flag on the command line.
    Flag,
    /// The value is the default.
    Default,
}
