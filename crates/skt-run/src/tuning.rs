//! The values of the solver's surroundings that were found by measurement.
//!
//! What follows from a format or a protocol cannot be chosen, and is not here; nor is what the user
//! chooses.

skt_host::tuning! {
    /// Time between two cuts at which ranks ask whether one of them has had a signal.
    look_for_signals_seconds: u64 = 10, "seconds";
    /// Most stages of a checkpoint: each cuts the columns once more.
    checkpoint_stages: usize = 16, "stages";
    /// Predicted rate at which a checkpoint moves its bytes, until one has been measured.
    checkpoint_bytes_per_second: f64 = 2e9, "bytes a second";
    /// Predicted rate of a test, as a share of DGEMM's.
    test_efficiency: f64 = 0.8, "of the rate of DGEMM";
}
