//! The values of messages and shared memory that were found by measurement.

skt_host::tuning! {
    /// Fewest tests of a flag, some microseconds at most, before the waiting rank yields its core:
    /// the rank that it waits for may need it. With more ranks than cores the tests are nearly
    /// always in vain; so their number falls quickly after a wait for which they were not enough,
    /// and rises more slowly after one for which they were.
    flag_spins_least: u32 = 4, "looks";
    /// Most tests of a flag before the waiting rank yields its core.
    flag_spins_most: u32 = 128, "looks";
    /// Tests of a flag from one check for an aborted job to the next.
    looks_a_probe: u32 = 16, "looks";
    /// Shared memory with parts up to this size is kept for the next use: creating it takes longer
    /// than solving the small system that it serves, and hundreds of these may follow.
    kept_bytes: usize = 1 << 20, "bytes";
    /// Buffers of fewer bytes are on the heap: hundreds of small tests would otherwise spend their
    /// time on mappings.
    mapped_bytes: usize = 64 << 10, "bytes";
}
