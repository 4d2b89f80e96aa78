//! The value of copies that was found by measurement.

skt_host::tuning! {
    /// Copies from this length on are written past the caches. Measured with memory that is in no
    /// cache: no difference at 4 KiB, 1.2 to 1.6 times as fast from 16 KiB on.
    stream_from_bytes: usize = 16 << 10, "bytes";
}
