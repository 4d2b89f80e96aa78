use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// A line of an HPL.dat, counted from 1.
    Dat {
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// A line of a TOML file, counted from 1.
    Toml {
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    Flag,
    Default,
}
