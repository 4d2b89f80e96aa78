//! The values of messages, shared memory and checkpoints that were found by measurement.
//!
//! What follows from the format of a segment or from a protocol is not here: it cannot be
//! chosen.

skt_terms::tuning! {
    /// Fewest looks at a flag, some microseconds at most, before the waiting rank lets
    /// others have its core: the one that it waits for may need it. With more ranks than
    /// cores they are in vain nearly each time; so they become fewer quickly after a wait
    /// for which they were not enough, and more slowly after one for which they were.
    flag_spins_least: u32 = 4, "looks";
    /// Most of these looks.
    flag_spins_most: u32 = 128, "looks";
    /// Further looks from one to the next at the rest of the job.
    looks_a_probe: u32 = 16, "looks";
    /// Shared memory of parts up to this size is kept: to make it anew takes longer than to
    /// solve the small system that it is for, and hundreds of these may follow.
    kept_bytes: usize = 1 << 20, "bytes";
    /// Buffers of fewer bytes are on the heap: hundreds of small tests would spend their
    /// time on mappings.
    mapped_bytes: usize = 64 << 10, "bytes";
    /// From this length on, copies are written past the caches. Measured with memory that is
    /// in no cache: even at 4 KiB, 1.2 to 1.6 times as fast from 16 KiB on.
    stream_from_bytes: usize = 16 << 10, "bytes";
    /// Rows of a mirrored block from this length on are sent from where they lie, and
    /// received where they belong.
    whole_row_bytes: usize = 16 << 10, "bytes";
    /// What is summed up at once when members read each other's memory: well within the
    /// cache of a core.
    direct_tile_bytes: usize = 256 << 10, "bytes";
    /// Tiles that are on their way at once: while one is being sent and received, another
    /// is added to.
    tiles_in_flight: usize = 2, "tiles";
    /// Tiles that one poll adds to and passes on, at most: it is not to take long.
    tiles_a_poll: usize = 2, "tiles";
    /// Messages below this are not worth a huge page.
    small_message_bytes: usize = 64 << 10, "bytes";
    /// A message where nothing is measured: of a recovery of members that need none to
    /// encode.
    unmeasured_message_bytes: usize = 256 << 10, "bytes";
    /// Messages are never shorter: a page, what a transport moves at least.
    message_bytes_least: usize = 4 << 10, "bytes";
    /// Messages are never longer, so that what is in flight stays in the last cache.
    message_bytes_most: usize = 4 << 20, "bytes";
    /// Rounds of short messages that measure what a message costs.
    link_short_rounds: usize = 20, "rounds";
    /// Rounds of long ones.
    link_long_rounds: usize = 4, "rounds";
    /// Length of a long one.
    link_long_bytes: usize = 256 << 10, "bytes";
}
