//! Whether a suite must run for long.

#![allow(dead_code)] // not every suite needs all of it

/// Whether `SKT_FT_SOAK` asks for many losses (as scripts/dev/soak-checkpoint does) instead of a
/// sample.
pub fn is_soak() -> bool {
    std::env::var_os("SKT_FT_SOAK").is_some_and(|value| value != "0")
}

/// The number of jobs that a soak kills: 334, or `SKT_FT_SOAK` if that is more than 1.
pub fn soak_jobs() -> Option<usize> {
    match std::env::var("SKT_FT_SOAK").ok()?.parse().expect("a number of jobs") {
        0 => None,
        1 => Some(334),
        jobs => Some(jobs),
    }
}
