//! The product of a step, `A2 = A2 - L2 U`, cut up for the threads of a rank.

use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use skt_host::phases::Phases;
use skt_host::tuning::Ratio;

use super::SolveError;
use super::background::Token;
use super::local::Local;
use super::pace::Pace;
use super::panel::Panel;
use super::short_calls::short_ones_keep_bits;
use crate::blas::Element;
use crate::blas::view::SharedMat;
use crate::team::Team;
use crate::tuning::TUNING;
use crate::update::{self, Operands, ProductU};
use crate::work;

/// A listener that is called for each call of the BLAS for a product. A call computes some rows of
/// A2, one part or several adjoining ones, on all columns of the product or some of them. It stays
/// within the driver, as a type parameter, so that a product without checksums has no such calls.
pub(super) trait CallListener: Sync {
    /// A call on these rows, and on their next columns, is about to begin.
    fn begin(&self, rows: &Range<usize>) -> Result<(), SolveError>;

    /// The call is over: the rows are computed on all columns or, if given, on the first `columns`.
    fn end(&self, rows: &Range<usize>, columns: Option<usize>) -> Result<(), SolveError>;

    /// The pace by which calls are kept short; `None` where a call may take long.
    fn pace(&self) -> Option<&Pace> {
        None
    }
}

pub(super) struct Unrecorded;

impl CallListener for Unrecorded {
    fn begin(&self, _: &Range<usize>) -> Result<(), SolveError> {
        Ok(())
    }

    fn end(&self, _: &Range<usize>, _: Option<usize>) -> Result<(), SolveError> {
        Ok(())
    }
}

/// `A2 = A2 - L2 U` on the rows `rows` of A2 and the local columns `cols`, the first `done` of
/// which are computed already: in one call of the BLAS or, where `listener` has a pace, in as many
/// as that requires. Returns the time inside the BLAS.
/// Safety: no other thread uses these elements, and no thread writes to U.
pub(super) unsafe fn multiply_part<T: Element>(
    a: &SharedMat<T>,
    cols: &Range<usize>,
    panel: &Operands<T>,
    u: ProductU<T>,
    rows: Range<usize>,
    mut done: usize,
    listener: &impl CallListener,
) -> Result<Duration, SolveError> {
    let (pace, jb) = (listener.pace(), u.rows());
    let mut inside = Duration::ZERO;
    loop {
        let left = done..cols.len();
        let call = pace.map_or(left.clone(), |pace| pace.next_columns(rows.len(), jb, left));
        listener.begin(&rows)?;
        let start = Instant::now();
        let (below, at) = (panel.below, cols.start);
        // SAFETY: the caller's promise.
        let a2 = unsafe {
            a.block(below + rows.start..below + rows.end, at + call.start..at + call.end)
        };
        update::multiply(panel, u.columns(call.clone()), rows.clone(), a2);
        let took = start.elapsed();
        inside += took;
        if let Some(pace) = pace {
            pace.took(rows.len() * jb * call.len(), took);
        }
        done = call.end;
        listener.end(&rows, (done < cols.len()).then_some(done))?;
        work::piece_done();
        if done == cols.len() {
            return Ok(inside);
        }
    }
}

/// `A2 = A2 - L2 U` on the local columns `cols` of one panel: by the team or, while the team is
/// busy, by this thread. `listener` is notified of each call; the parts are those of
/// [`narrow_parts`].
/// Safety: no other thread uses these elements, and no thread writes to U.
pub(super) unsafe fn multiply_narrow<T: Element>(
    local: &Local<T>,
    cols: &Range<usize>,
    panel: &Operands<T>,
    u: ProductU<T>,
    listener: &impl CallListener,
) -> Result<(), SolveError> {
    let parts: Vec<_> =
        narrow_parts(local.shape.rows - panel.below, local.team.threads()).collect();
    try_each(local.team, parts.len(), |part| {
        // SAFETY: each part is taken once; the rest is the caller's promise.
        unsafe { multiply_part(local.a, cols, panel, u, parts[part].clone(), 0, listener) }?;
        Ok(())
    })
}

pub(super) fn try_each(
    team: &Team,
    count: usize,
    work: impl Fn(usize) -> Result<(), SolveError> + Sync,
) -> Result<(), SolveError> {
    let failure = OnceLock::new();
    team.split(count, 1, |taken| {
        for number in taken {
            if failure.get().is_some() {
                return;
            }
            if let Err(error) = work(number) {
                failure.get_or_init(|| error);
            }
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// The parts of a product on the columns of one panel, of `rows` rows of A2: one or more for each
/// of `threads` threads, or fewer where such parts would be too short.
pub(super) fn narrow_parts(rows: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let share = rows.div_ceil(threads).next_multiple_of(TUNING.product_row_grain);
    let least = TUNING.shortest_narrow_part_rows;
    cut(0..rows, share.clamp(least, TUNING.narrow_product_rows), TUNING.product_row_grain)
}

/// An upper bound of the number of parts in one step, on a rank of `rows` rows. The product on the
/// columns of the next panel has parts of 96 rows or more; that on the others has pieces of 96 rows
/// or more, in parts of 192 rows. Only the last part of the first, the last piece of the second,
/// and the last part of each piece may have fewer rows.
pub(super) fn max_parts(rows: usize) -> usize {
    rows / 24 + 8
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProductWork {
    pub operations: f64,
    /// Nanoseconds that threads were inside the BLAS, summed over the threads.
    pub nanos: u64,
}

/// One step's product, of a panel's L2 and U of the columns `cols`, on rows taken from a queue.
pub(super) struct Product<'p, 'm, L: CallListener, T: Element = f64> {
    panel: Operands<'p, T>,
    u: ProductU<'p, T>,
    a: &'p SharedMat<'m, T>,
    cols: Range<usize>,
    max_rows: usize,
    queue: ProductQueue,
    listener: &'p L,
    inside_nanos: AtomicU64,
    failure: OnceLock<SolveError>,
}

impl<'p, 'm, L: CallListener, T: Element> Product<'p, 'm, L, T> {
    /// The product of `panel` and `u` on the local columns `cols`, overlapped with the advance of
    /// panel `overlapped` on this rank. With `has_messages`, messages are progressed between calls
    /// of the BLAS. `listener` is notified of each call.
    /// Safety: while the product is in use, no other thread uses these columns of the panel's A2,
    /// and no thread writes to U.
    pub(crate) unsafe fn new(
        local: &Local<'m, T>,
        panel: &'p Panel<T>,
        u: ProductU<'p, T>,
        cols: Range<usize>,
        overlapped: Option<usize>,
        has_messages: bool,
        listener: &'p L,
    ) -> Self {
        let (operands, threads) = (panel.operands(), local.team.threads());
        let (rows, jb) = (local.shape.rows - operands.below, panel.layout.jb);
        let is_late = overlapped.is_some_and(|next| local.owns(next));
        let late = if is_late { rows_of_advance(rows, jb, cols.len()) } else { 0 };
        let max_rows = if has_messages && threads == 1 {
            TUNING.product_rows_between_messages
        } else {
            TUNING.product_rows
        };
        let queue = ProductQueue::new(rows, threads, late);
        let (inside_nanos, failure) = (AtomicU64::new(0), OnceLock::new());
        Self {
            panel: operands,
            u,
            a: local.a,
            cols,
            max_rows,
            queue,
            listener,
            inside_nanos,
            failure,
        }
    }

    /// To be called when the product is complete.
    pub(crate) fn work(&self) -> ProductWork {
        let rows = self.queue.pieces.last().map_or(0, |piece| piece.end);
        ProductWork {
            operations: 2.0 * rows as f64 * self.u.rows() as f64 * self.cols.len() as f64,
            nanos: self.inside_nanos.load(Ordering::Relaxed),
        }
    }

    /// The parts of the product, in the order of the rows of A2.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        self.queue.pieces.iter().cloned().flat_map(parts_of_piece)
    }

    /// Runs `overlapped` while the team computes pieces, until none is left.
    pub(crate) fn compute_overlapped_with(
        &self,
        team: &Team,
        overlapped: impl FnOnce() -> Result<(), SolveError>,
    ) -> Result<(), SolveError> {
        let note = |result: Result<(), SolveError>| {
            if let Err(error) = result {
                self.failure.get_or_init(|| error);
            }
        };
        team.fork(&|_| note(self.compute()), || note(overlapped()));
        self.check()
    }

    fn check(&self) -> Result<(), SolveError> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// `A2 = A2 - L2 U` on the rows `rows` of A2, part of a piece that this thread has taken.
    fn multiply_rows(&self, rows: Range<usize>) -> Result<(), SolveError> {
        self.check()?;
        // SAFETY: a piece is taken by one thread; the rest is the promise to `new`.
        let inside = unsafe {
            multiply_part(self.a, &self.cols, &self.panel, self.u, rows, 0, self.listener)
        }?;
        self.inside_nanos.fetch_add(inside.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a short product may precede the others of `rows` rows. A BLAS may round small
    /// products differently: a late panel must not make a product small.
    fn may_be_short(&self, rows: usize) -> bool {
        let short = TUNING.product_rows_while_passing_on;
        let size = short * self.cols.len() * self.u.rows();
        rows >= 2 * short
            && size >= TUNING.least_size_of_short_product
            && short_ones_keep_bits::<T>(self.u.products())
    }

    /// Computes pieces until none is left. Called on all threads but that with the token.
    fn compute(&self) -> Result<(), SolveError> {
        while let Some(piece) = self.queue.take() {
            in_calls(piece.rows.clone(), self.max_rows)
                .try_for_each(|rows| self.multiply_rows(rows))?;
            self.queue.finish(&piece);
        }
        Ok(())
    }

    /// Computes pieces until none is left, on the thread that exchanges messages with other ranks,
    /// once it has advanced the next panel. Calls `progress` with `token` before the first product,
    /// and between two products if the token is free; releases the token while it multiplies.
    /// Passes `on_rows` the number of rows of A2, from the first on, that have their product. While
    /// `progress` reports messages still to forward, products are kept short.
    pub(crate) fn compute_between_messages(
        &self,
        token: &mut Token,
        mut progress: impl FnMut(&Token) -> Result<bool, SolveError>,
        on_rows: impl Fn(&Token, usize),
    ) -> Result<(), SolveError> {
        assert!(token.is_held(), "progress calls the transport");
        let must_forward = Cell::new(progress(token)?);
        let mut multiply_and_progress = |token: &mut Token, piece: &Piece, rows: Range<usize>| {
            let so_far = piece.rows.start..rows.end;
            token.release();
            self.multiply_rows(rows)?;
            // Else the thread that holds the token progresses all messages.
            if token.try_acquire() {
                must_forward.set(progress(token)?);
            }
            on_rows(token, self.queue.rows_done(so_far));
            Ok::<_, SolveError>(())
        };
        while let Some(piece) = self.queue.take() {
            let mut left = piece.rows.clone();
            while must_forward.get() && self.may_be_short(left.len()) {
                let rows = left.start..left.start + TUNING.product_rows_while_passing_on;
                left.start = rows.end;
                multiply_and_progress(token, &piece, rows)?;
            }
            in_calls(left, self.max_rows)
                .try_for_each(|rows| multiply_and_progress(token, &piece, rows))?;
            self.queue.finish(&piece);
        }
        token.release();
        Ok(())
    }
}

/// Times a product that the solver's thread interleaves with other phases.
pub(super) struct ProductClock {
    start: Instant,
    phases_seconds: f64,
}

impl ProductClock {
    pub(crate) fn start(start: Instant, phases: &Phases) -> Self {
        Self { start, phases_seconds: phases.sum() }
    }

    /// Adds to the product's phase the time since the start that is in no other phase: the product,
    /// and the wait for its end.
    pub(crate) fn stop(self, end: Instant, phases: &mut Phases) {
        let other_seconds = phases.sum() - self.phases_seconds;
        phases.update += (end - self.start).as_secs_f64() - other_seconds;
    }
}

struct ProductQueue {
    pieces: Vec<Range<usize>>,
    done: Vec<AtomicBool>,
    next: AtomicUsize,
}

struct Piece {
    index: usize,
    rows: Range<usize>,
}

impl ProductQueue {
    /// For `threads` threads, of which the last comes later by the time of `late` rows.
    fn new(rows: usize, threads: usize, late: usize) -> Self {
        let pieces = row_pieces(rows, threads, late);
        let done = pieces.iter().map(|_| AtomicBool::new(false)).collect();
        Self { pieces, done, next: AtomicUsize::new(0) }
    }

    fn take(&self) -> Option<Piece> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        Some(Piece { index, rows: self.pieces.get(index)?.clone() })
    }

    fn finish(&self, piece: &Piece) {
        self.done[piece.index].store(true, Ordering::Release);
    }

    /// How many rows of A2, from the first on, have their product; `part` has, its piece may not.
    fn rows_done(&self, part: Range<usize>) -> usize {
        let unfinished = self.done.iter().position(|done| !done.load(Ordering::Acquire));
        let rows = unfinished.map_or(part.end, |piece| self.pieces[piece].start);
        if part.contains(&rows) { part.end } else { rows }
    }
}

/// The rows of the trailing product, `width` columns wide, that take as long as it takes to update
/// and factor the next panel, `rows` long and `jb` wide:
///
/// ```text
/// update, at 3/4 of the rate of the product      2 NB^2 rows
/// factorization, at half of the rate               NB^2 rows
/// product on one row                             2 NB width
/// ```
fn rows_of_advance(rows: usize, jb: usize, width: usize) -> usize {
    let Ratio { times, over } = TUNING.advance_cost;
    times * jb * rows / (over * width.max(1))
}

/// Whether a rank of `threads` threads advances the next panel, `jb` wide, before the product on
/// `width` columns, and not during it. A rank with one thread always does, so that the panel is
/// sent early. A team does so, with all of its threads, if that ends earlier than when one thread
/// advances the panel while the others multiply.
///
/// One thread takes as long for the panel as for the product on `late` of the `rows` rows,
/// [`rows_of_advance`]. A team divides that by its threads, but adds a loss: the passes over single
/// columns are too short to be cut.
///
/// ```text
/// during the product (the others wait)    late
/// before the product                      late (1 / threads + loss) + rows / threads
/// ```
///
/// `late / rows` does not depend on the rows, so all ranks of a process column decide alike if they
/// are given equal `threads`.
pub(super) fn advances_first(threads: usize, jb: usize, width: usize) -> bool {
    let Ratio { times, over } = TUNING.team_panel_loss;
    let rows = TUNING.advance_cost.over * width.max(1);
    let late = rows_of_advance(rows, jb, width);
    threads == 1 || (threads - 1) * late * over > threads * late * times + rows * over
}

/// Cuts the rows of the trailing product into pieces. Each thread of a team first gets one long
/// piece, so that all threads end at about the same time. The last long piece is for the thread
/// that advances the next panel, and is shorter, as this thread starts later by the time of `late`
/// rows. Short pieces follow, which threads take as they become free. There are few pieces, as the
/// BLAS packs U for each, but enough that no thread waits long at the end.
fn row_pieces(rows: usize, threads: usize, late: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < rows {
        let left = rows - start;
        let share = if threads == 1 {
            left
        } else if pieces.len() < threads {
            let is_last = pieces.len() == threads - 1;
            first_share(rows, threads, late, is_last)
        } else {
            let Ratio { times, over } = TUNING.later_piece;
            times * left / (over * threads)
        };
        let length =
            share.max(TUNING.shortest_piece_rows).next_multiple_of(TUNING.product_row_grain);
        let end = cut_end(start + length, rows);
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// Rows of the first piece of the last thread, which comes late, or of any other, of two or more.
fn first_share(rows: usize, threads: usize, late: usize, is_last: bool) -> usize {
    let share = (rows + late) / threads;
    let share = match (share.checked_sub(late), is_last) {
        (Some(last), true) => last,
        (Some(_), false) => share,
        // All others finish before it comes.
        (None, true) => 0,
        (None, false) => rows / (threads - 1),
    };
    share * TUNING.first_piece_percent / 100
}

/// The end of rows that are cut off at `end`: `last`, the end of all rows, if one row or none would
/// be left. Some BLAS (OpenBLAS on Arm) compute a product of one row as one with a vector, which
/// rounds differently.
fn cut_end(end: usize, last: usize) -> usize {
    if end + 1 >= last { last } else { end }
}

/// The parts of a piece: the shortest products. All longer ones end where a part ends.
fn parts_of_piece(piece: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let short = TUNING.product_rows_while_passing_on;
    cut(piece, short, short)
}

/// Cuts the rows from the start of one part of a piece to the end of the piece into calls of about
/// equal length, of whole parts, and of at most `most` rows.
fn in_calls(rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    cut(rows, most, TUNING.product_rows_while_passing_on)
}

/// Cuts rows into about equal multiples of `grain`, of at most `most` rows, itself a multiple; the
/// last may have one row more.
fn cut(rows: Range<usize>, most: usize, grain: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.len().div_ceil(most).max(1);
    let length = rows.len().div_ceil(count).next_multiple_of(grain).max(grain);
    let Range { start: first, end: last } = rows;
    let starts = rows.step_by(length).filter(move |&start| start == first || start + 1 < last);
    starts.map(move |start| start..cut_end(start + length, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::library::use_one_thread;
    use crate::blas::{MatMut, MatRef, gemm};

    #[test]
    fn pieces_and_products_cover_all_rows_once_in_order() {
        for rows in [0, 1, 49, 63, 64, 65, 97, 1000, 1024, 1025, 1057, 40_000] {
            for (threads, late) in (1..20).flat_map(|threads| [(threads, 0), (threads, 450)]) {
                let pieces = row_pieces(rows, threads, late);
                let most = TUNING.product_rows;
                let parts: Vec<_> =
                    pieces.iter().cloned().flat_map(|piece| in_calls(piece, most)).collect();
                assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= most + 1));
                assert!(rows == 1 || parts.iter().all(|part| part.len() > 1), "{parts:?}");
                let ends = parts.iter().map(|part| part.end);
                let starts = parts.iter().skip(1).map(|part| part.start).chain([rows]);
                assert!(parts.first().is_none_or(|first| first.start == 0));
                assert!(rows == 0 || ends.eq(starts));
                assert!(threads > 1 || pieces.len() == usize::from(rows > 0));
            }
        }
    }

    /// Products are short while a panel is to be forwarded, and long afterwards.
    #[test]
    fn products_are_of_whole_parts() {
        let short = TUNING.product_rows_while_passing_on;
        for rows in (0..1000).chain([1152, 1153, 1154, 2112, 2113, 40_001]) {
            for (threads, late) in (1..20).flat_map(|threads| [(threads, 0), (threads, 450)]) {
                for piece in row_pieces(rows, threads, late) {
                    let parts: Vec<_> = parts_of_piece(piece.clone()).collect();
                    for (shorts, most) in (0..4).zip([1, 6, 11, 11].map(|parts| parts * short)) {
                        let left = piece.start + shorts * short..piece.end;
                        if shorts > 0 && left.len() < short || left.start > piece.end {
                            continue;
                        }
                        for product in in_calls(left, most) {
                            assert!(product.len() <= most + 1, "{product:?} of {piece:?}");
                            assert!(parts.iter().any(|part| part.start == product.start));
                            assert!(parts.iter().any(|part| part.end == product.end));
                        }
                    }
                }
            }
        }
    }

    /// The rule agrees with the times that it compares, and with how many blocks are left when a
    /// team begins to advance panels with all of its threads.
    #[test]
    fn a_team_advances_panels_first_where_little_is_left() {
        assert!(advances_first(1, 192, 1_000_000) && advances_first(1, 192, 0));
        for (threads, blocks) in [(2, 1.6), (4, 5.4), (16, 28.8), (64, 122.0)] {
            let nb = 192;
            let goes_first = |width: &usize| advances_first(threads, nb, *width);
            let last = (0..200 * nb).rfind(goes_first).expect("an end of the matrix");
            assert!((0..=last).all(|width| goes_first(&width)), "{threads} threads");
            assert!((last as f64 / nb as f64 - blocks).abs() < 0.1 * blocks, "{last} columns");
            for width in [last - last / 10, last + last / 10] {
                let (rows, threads) = (10_000.0, threads as f64);
                let late = rows_of_advance(10_000, nb, width) as f64;
                let before = late / threads + late / 6.0 + rows / threads;
                assert_eq!(before < late, width < last, "{threads} threads, {width} columns");
            }
        }
    }

    /// Holds for whatever kernel the BLAS has for this processor.
    #[test]
    fn cutting_changes_no_bit() {
        // A multi-threaded BLAS cuts products, too.
        use_one_thread();
        let (cols, k) = (130, 64);
        let numbers = |len: usize, seed: u64| -> Vec<f64> {
            let mixed = |i| (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 7;
            (0..len).map(|i| (mixed(i) >> 11) as f64 / (1u64 << 53) as f64 - 0.5).collect()
        };
        for rows in [97, 98, 101, 120] {
            let (l, u) = (numbers(rows * k, 1), numbers(k * cols, 2));
            let multiply = |a: &mut [f64], rows: Range<usize>| {
                let l = MatRef::row_major(&l, rows.end, k, k).block(rows.clone(), 0..k);
                let a = MatMut::row_major(&mut a[rows.start * cols..], rows.len(), cols, cols);
                gemm(-1.0, l, MatRef::row_major(&u, k, cols, cols), 1.0, a);
            };
            let mut whole = numbers(rows * cols, 3);
            let mut in_parts = whole.clone();
            multiply(&mut whole, 0..rows);
            let grain = TUNING.product_row_grain;
            cut(0..rows, grain, grain).for_each(|part| multiply(&mut in_parts, part));
            assert!(whole == in_parts, "{rows} rows");
        }
    }

    #[test]
    fn number_of_parts_is_at_most_the_maximum() {
        for rows in (0..3000).chain([40_000, 1_000_003]) {
            for (threads, late) in (1..20).flat_map(|threads| [(threads, 0), (threads, 450)]) {
                let pieces = row_pieces(rows, threads, late);
                let rest = pieces.into_iter().flat_map(parts_of_piece).count();
                let narrow = narrow_parts(rows, threads).count();
                assert!(narrow + rest <= max_parts(rows), "{rows} rows");
            }
        }
    }

    /// The advancing thread needs as long for panel and piece as the others need for their pieces.
    #[test]
    fn first_pieces_end_together() {
        for (rows, threads, late) in [(8000, 2, 0), (8000, 2, 450), (8000, 4, 450), (500, 2, 450)] {
            let pieces = row_pieces(rows, threads, late);
            let (last, others) = (pieces[threads - 1].len() + late, &pieces[..threads - 1]);
            let most = rows.div_ceil(50) + TUNING.product_row_grain + TUNING.shortest_piece_rows;
            assert!(others.iter().all(|other| other.len().abs_diff(last) <= most), "{pieces:?}");
            let rest = rows - pieces[threads - 1].end;
            assert!(rest <= rows / 50 && pieces.len() <= threads + 4, "{pieces:?}");
        }
    }

    #[test]
    fn late_thread_leaves_the_rows_to_the_others() {
        let pieces = row_pieces(40_000, 16, 10_000);
        assert!(pieces[..15].iter().all(|piece| piece.len() >= 40_000 / 16), "{pieces:?}");
        let shortest = TUNING.shortest_piece_rows.next_multiple_of(TUNING.product_row_grain);
        assert!(pieces[15].len() <= shortest, "{pieces:?}");
    }

    /// Pieces are finished in any order; rows are reported in theirs.
    #[test]
    fn rows_are_done_when_all_before_them_are() {
        let queue = ProductQueue::new(8000, 3, 0);
        let pieces: Vec<Piece> = std::iter::from_fn(|| queue.take()).collect();
        assert!(pieces.len() > 3 && queue.take().is_none());
        let own = pieces[1].rows.clone();
        let half = own.start..own.start + TUNING.product_row_grain;
        assert_eq!(queue.rows_done(half.clone()), 0);
        queue.finish(&pieces[2]);
        assert_eq!(queue.rows_done(half.clone()), 0);
        queue.finish(&pieces[0]);
        assert_eq!(queue.rows_done(half.clone()), half.end);
        assert_eq!(queue.rows_done(own.clone()), own.end);
        queue.finish(&pieces[1]);
        assert_eq!(queue.rows_done(own), pieces[3].rows.start);
        pieces[3..].iter().for_each(|piece| queue.finish(piece));
        let last = pieces.last().unwrap().rows.clone();
        assert_eq!(queue.rows_done(last), 8000);
    }
}
