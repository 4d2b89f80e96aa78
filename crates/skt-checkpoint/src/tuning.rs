//! The values of checkpoints that were found by measurement.
//!
//! Values that follow from the format of a segment or from a protocol cannot be chosen, and are not
//! here.

skt_terms::tuning! {
    /// Rows of a mirrored block from this length on are sent and received in place.
    whole_row_bytes: usize = 16 << 10, "bytes";
    /// Bytes that are summed up at once when members read each other's memory: well within the
    /// cache of a core.
    direct_tile_bytes: usize = 256 << 10, "bytes";
    /// Tiles in transit at once: while one is being sent and received, another is added to.
    tiles_in_flight: usize = 2, "tiles";
    /// Most tiles that one poll adds to and passes on, so that it takes little time.
    tiles_a_poll: usize = 2, "tiles";
    /// Messages below this size are not worth a huge page.
    small_message_bytes: usize = 64 << 10, "bytes";
    /// Bytes of a message if nothing is measured: in a recovery of members that encode without
    /// messages.
    unmeasured_message_bytes: usize = 256 << 10, "bytes";
    /// Messages are at least this long: a page, the least that a transport moves.
    message_bytes_least: usize = 4 << 10, "bytes";
    /// Messages are at most this long, so that those in transit stay in the last-level cache.
    message_bytes_most: usize = 4 << 20, "bytes";
    /// Rounds of short messages when the cost of a message is measured.
    link_short_rounds: usize = 20, "rounds";
    /// Rounds of long messages when the cost of a message is measured.
    link_long_rounds: usize = 4, "rounds";
    /// Bytes of a long message when the cost of a message is measured.
    link_long_bytes: usize = 256 << 10, "bytes";
}
