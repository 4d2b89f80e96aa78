//! Whether a suite must run for long.

/// Whether `SKT_FT_SOAK` asks for many losses (as scripts/soak-checkpoint does) instead of a
/// sample.
pub fn is_soak() -> bool {
    std::env::var_os("SKT_FT_SOAK").is_some_and(|value| value != "0")
}
