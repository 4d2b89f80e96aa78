//! The values of the solver that were found by measurement.
//!
//! Values that follow from a format, a protocol or the registers of a kernel cannot be chosen, and
//! are not here; nor are values that the user chooses, such as NB.

use skt_host::tuning::Ratio;

skt_host::tuning! {
    /// Products are cut at multiples of this many rows, from the first row on: the AVX-512 kernels
    /// of the BLAS take 24 or 48 rows at a time, and are slow on the rest and round it differently.
    /// So x has the same bits however long the products are.
    product_row_grain: usize = 48, "rows";
    /// Most rows of a product while a rank has panels to forward, as a panel waits for the end of a
    /// product at each rank on its path. The limits of other products are multiples of this.
    product_rows_while_passing_on: usize = 4 * 48, "rows";
    /// Most rows of one product: the BLAS packs all of U for each.
    product_rows: usize = 11 * (4 * 48), "rows";
    /// Most rows of a product where messages have to be progressed between products.
    product_rows_between_messages: usize = 6 * (4 * 48), "rows";
    /// Rows times columns times depth of the smallest short product. OpenBLAS has other kernels for
    /// products of up to 100^3.
    least_size_of_short_product: usize = 1 << 21, "multiplications";
    /// The longest time of a BLAS call that leaves torn memory if the process is killed in it. Open
    /// MPI 5 kills 500 ms after its first signal, other launchers later, and on a busy machine a
    /// call takes twice its time.
    longest_call_milliseconds: u64 = 200, "milliseconds";
    /// BLAS calls of limited time are cut at multiples of this many columns: for each call the BLAS
    /// packs rows of L2.
    call_grain_columns: usize = 4 * 48, "columns";
    /// BLAS calls of limited time are cut at multiples of this many columns where the BLAS rounds
    /// short products differently, so that no call is short.
    call_grain_columns_of_long_products: usize = 24 * 48, "columns";
    /// Most rows of a product on the columns of one panel: the BLAS packs rows of L2 and uses them
    /// once; up to this many stay in the cache until then.
    narrow_product_rows: usize = 16 * 48, "rows";
    /// The shortest part of a product on the columns of one panel for each thread of a team: the
    /// BLAS packs U for each.
    shortest_narrow_part_rows: usize = 2 * 48, "rows";
    /// Rows below which a piece of the product is not cut for a team any more: the BLAS packs U for
    /// each.
    shortest_piece_rows: usize = 64, "rows";
    /// The share of the product that each thread of a team takes in one long first piece: the rest
    /// evens out what was not foreseen.
    first_piece_percent: usize = 98, "% of a thread's share";
    /// The share of the remaining rows that a thread takes next: pieces become shorter towards the
    /// end.
    later_piece: Ratio = Ratio { times: 10, over: 11 }, "of a thread's share of what is left";
    /// The cost of a panel for its owner, for each of its rows and columns: the update runs at 3/4
    /// of the rate of the product, the factorization at half of it.
    advance_cost: Ratio = Ratio { times: 7, over: 3 }, "elements of the product";
    /// The time that a team loses on a panel, beyond one thread's time divided by the threads:
    /// passes over few rows are left to one thread. Measured with two threads, on panels of 1024
    /// rows and more.
    team_panel_loss: Ratio = Ratio { times: 1, over: 6 }, "of the time of one thread";
    /// Columns of one step of row exchange and solve for U, with one process row: NB rows of them
    /// stay in the cache from the exchange to the solve.
    exchange_cols: usize = 384, "columns";
    /// Least columns of a half, as a multiple of the swap threshold: with fewer than 1024, packing
    /// L2 twice takes as long as a fast link takes for the rows.
    half_columns: usize = 16, "swap thresholds";
    /// Columns below which exchange and solve are not worth cutting for the team.
    solve_grain_cols: usize = 64, "columns";
    /// Rows below which copying the rows of an exchange is not worth cutting for the team.
    exchange_grain_rows: usize = 16, "rows";
    /// Rows below which copying a panel is not worth cutting for the team.
    panel_copy_grain_rows: usize = 256, "rows";
    /// Rows below which a product within a panel is not worth cutting for the team.
    panel_product_grain_rows: usize = 2 * 48, "rows";
    /// Rows that a pass over a panel takes at a time, so that they stay in the first cache. A
    /// multiple of a cache line, so that all chunks but the first begin on one.
    pass_chunk_rows: usize = 512, "rows";
    /// Rows below which a pass over a panel is not worth cutting for the team.
    pass_grain_rows: usize = 4 * 512, "rows";
    /// Rows below which a product of the back substitution is not worth cutting for the team.
    back_grain_rows: usize = 256, "rows";
    /// Lines of the longer side that a copy into the other layout takes at a time: few enough that
    /// the lines that they cross stay in the caches.
    transpose_lines: usize = 32, "lines";
    /// How many times an idle thread of a team spins before it sleeps: a panel forks several times
    /// a column.
    idle_spins: u32 = 20_000, "turns";
    /// Spins from one yield to the next: on a machine with fewer cores than threads another thread
    /// needs this core.
    spins_a_yield: u32 = 1024, "turns";
    /// The pause between two calls of the background while messages are in progress.
    pause_micros: u64 = 200, "microseconds";
    /// The pause between two calls for the solver's own messages, as a share of the time since they
    /// were sent: a call takes the solver's core and caches, and no sender waits for a late call,
    /// which finds its data in the buffers of the system.
    pauses_on_the_way: u32 = 4, "pauses in the time on the way";
    /// The pause between two calls of the background while there is nothing to do: only the solver,
    /// which wakes the thread, or another rank can change that.
    long_pause_micros: u64 = 5000, "microseconds";
    /// Length of a message of a sum along a process row: it goes from rank to rank, and the next
    /// one follows.
    relay_message_doubles: usize = 1 << 15, "doubles";
    /// Message buffers of a rank for sums: they hold what it sends while late ranks still compute,
    /// at least 10 ms of a sum.
    relay_messages: usize = 32, "messages";
    /// What OpenBLAS maps for each thread that calls it, 64 to 128 MiB and a page or two, and what
    /// the system needs to start the thread's products.
    blas_work_space_bytes: usize = 130 << 20, "bytes";
}
