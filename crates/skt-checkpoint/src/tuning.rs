//! The values of checkpoints that were found by measurement.
//!
//! Values that follow from the format of a segment or from a protocol are not here.

skt_host::tuning! {
    /// Tiles in transit at once: while one is being sent and received, another is added to.
    tiles_in_flight: usize = 2, "tiles";
    /// Most tiles that one poll adds to and passes on, so that it takes little time.
    tiles_a_poll: usize = 2, "tiles";
    /// Messages below this size are not worth a huge page.
    small_message_bytes: usize = 64 << 10, "bytes";
    /// Bytes of a message with parities, unless the user chooses: long enough that its latency does
    /// not count, and short enough that all members of a group soon have one to add to.
    message_bytes: usize = 256 << 10, "bytes";
}
