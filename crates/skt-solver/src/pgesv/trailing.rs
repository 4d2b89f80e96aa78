//! The row exchange of the trailing columns. Where it goes by messages, the columns are cut in two
//! halves: the rows of one half are exchanged while the other is multiplied.
//!
//! ```text
//! product                 overlapped messages
//! left,  step k           rows of the right half, step k
//! right, step k           rows of the left half, step k + 1, once panel k + 1 has arrived
//! ```
//!
//! The rows are copied out of A when they are sent, and written to A when the half is solved for,
//! in its own step: A changes in the same order as without halves, and no message is in progress
//! across a cut.

use std::ops::Range;

use super::exchange::RowExchange;
use super::half::Half;
use super::local::Local;
use super::panel::Panel;
use super::short_calls::halves_keep_bits;
use super::{Params, SolveError};
use crate::blas::Element;
use crate::grid::Grid;
use crate::swap::RowBuffers;
use crate::swap::node::NodeRows;
use crate::tuning::TUNING;
use skt_comm::collect;
use skt_host::choice::Swap;

/// The most columns of the whole exchange and of each half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Widths {
    whole: usize,
    halves: Option<[usize; 2]>,
}

/// The border at which the columns from `first` on, of `cols` local columns, are cut into halves of
/// at least `least` columns, if they are. The left half shrinks, and the border stays until less
/// than a quarter of the columns is left of it: then the rest is cut into about equal halves again.
/// It depends on `first` alone: the same on all ranks of a process column, in all starts of a run.
fn border(first: usize, cols: usize, nb: usize, least: usize) -> Option<usize> {
    let mut right = cols / 2;
    while right >= least.max(1) {
        let border = (cols - right).next_multiple_of(nb);
        if border >= first && 4 * (border - first) >= cols - first {
            let is_enough = border - first >= least && cols.saturating_sub(border) >= least;
            return is_enough.then_some(border);
        }
        right = right * 2 / 3;
    }
    None
}

fn widths(cols: usize, nb: usize, least: usize) -> Widths {
    let mut widths = Widths { whole: 0, halves: None };
    for first in (0..=cols).step_by(nb) {
        match border(first, cols, nb, least) {
            None => widths.whole = widths.whole.max(cols - first),
            Some(border) => {
                let [left, right] = widths.halves.unwrap_or_default();
                widths.halves = Some([left.max(border - first), right.max(cols - border)]);
            }
        }
    }
    widths
}

/// The fewest columns of a half. Never one: some BLAS (OpenBLAS on Arm) compute a product of one
/// column as one with a vector, which rounds differently.
fn least(swap_threshold: usize) -> usize {
    swap_threshold.saturating_mul(TUNING.half_columns).max(2)
}

impl Widths {
    /// The widths for `params` and `cols` local columns, by messages. `mix` cuts the columns if
    /// panels are known before the step in which they are applied.
    fn new(params: &Params, cols: usize) -> Self {
        if params.swap == Swap::Mix && params.depth > 0 {
            widths(cols, params.widest_panel(), least(params.swap_threshold))
        } else {
            Self::whole(cols)
        }
    }

    fn whole(cols: usize) -> Self {
        Self { whole: cols, halves: None }
    }

    fn doubles<T: Element>(self, nb: usize) -> usize {
        let widths = [self.whole].into_iter().chain(self.halves.into_iter().flatten());
        let doubles = widths.map(|cols| RowBuffers::doubles(nb, T::doubles(cols)));
        doubles.fold(0, usize::saturating_add)
    }
}

/// Doubles of work space for an exchange by messages on `cols` local columns, with halves or
/// without; at most `usize::MAX`.
pub(super) fn work_doubles<T: Element>(params: &Params, cols: usize) -> usize {
    let nb = params.widest_panel();
    let [cut, whole] = [Widths::new(params, cols), Widths::whole(cols)];
    cut.doubles::<T>(nb).max(whole.doubles::<T>(nb))
}

pub(super) struct TrailingExchange {
    whole: RowExchange,
    halves: Option<[RowExchange; 2]>,
    nb: usize,
    cols: usize,
    least: usize,
}

impl TrailingExchange {
    /// An exchange for up to `cols` local columns, in `shared` memory if there is any, for
    /// `products` that round their operands, if any do. Collective over the process column.
    pub(crate) fn new<T: Element>(
        grid: &Grid,
        params: &Params,
        cols: usize,
        shared: Option<NodeRows>,
        products: Option<T::Rounded>,
    ) -> Result<Self, SolveError> {
        let nb = params.widest_panel();
        let is_by_messages = grid.p > 1 && shared.is_none();
        let mut widths = Widths::whole(cols);
        if is_by_messages {
            let cut = Widths::new(params, cols);
            // Ranks that share memory multiply on all columns at once.
            let keeps_bits = cut.halves.is_none() || halves_keep_bits::<T>(products, nb);
            if !collect::any(&grid.col, !keeps_bits)? {
                widths = cut;
            }
        }
        let halves = match widths.halves {
            Some([left, right]) => {
                let [left, right] = [left, right].map(T::doubles);
                Some([RowExchange::half(nb, left)?, RowExchange::half(nb, right)?])
            }
            None => None,
        };
        let whole = RowExchange::new(grid.p, nb, T::doubles(widths.whole), shared)?;
        Ok(Self { whole, halves, nb, cols, least: least(params.swap_threshold) })
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.whole.is_shared()
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.halves.is_some()
    }

    /// The halves of the columns `cols`, which end with the last one; or one range, where not cut.
    pub(crate) fn halves(&self, cols: Range<usize>) -> Vec<Range<usize>> {
        assert_eq!(cols.end, self.cols, "the trailing columns");
        let border = border(cols.start, self.cols, self.nb, self.least);
        match border.filter(|_| self.halves.is_some()) {
            Some(border) => vec![cols.start..border, border..cols.end],
            None => vec![cols],
        }
    }

    /// The exchange on half `index` of `halves`, and that of the other half. `next` has the halves
    /// of the next step, whose rows may be sent in this one.
    pub(crate) fn exchange_on<'e>(
        &'e mut self,
        index: usize,
        halves: &[Range<usize>],
        next: &[Range<usize>],
    ) -> (&'e mut RowExchange, OtherHalf<'e>) {
        match (&mut self.halves, halves, index) {
            (Some([left, right]), [_, cols], 0) => (
                left,
                OtherHalf {
                    half: Some(right.as_half()),
                    leaving: Some((NeededIn::ThisStep, cols.clone())),
                },
            ),
            (Some([left, right]), [_, now], 1) => {
                let leaving = match next {
                    [cols, right] if right == now => Some((NeededIn::NextStep, cols.clone())),
                    _ => None,
                };
                (right, OtherHalf { half: Some(left.as_half()), leaving })
            }
            _ => (&mut self.whole, OtherHalf { half: None, leaving: None }),
        }
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), SolveError> {
        self.halves.iter_mut().flatten().try_for_each(|half| half.as_half().wait_all())
    }
}

/// The step that needs the rows which are sent now.
enum NeededIn {
    ThisStep,
    NextStep,
}

pub(super) struct OtherHalf<'e> {
    half: Option<&'e mut Half>,
    /// The columns of this half, until their rows have been sent.
    leaving: Option<(NeededIn, Range<usize>)>,
}

impl OtherHalf<'_> {
    /// Starts to send the rows of this half as soon as the panel with their pivots, of this step or
    /// the next one, has arrived; progresses their messages. Never waits for a message of this
    /// step. Returns whether the rows were sent by this call.
    /// Safety: no other thread writes to the columns of this half.
    pub(crate) unsafe fn progress<T: Element>(
        &mut self,
        local: &Local<T>,
        now: &Panel<T>,
        next: Option<&Panel<T>>,
    ) -> Result<bool, SolveError> {
        let Some(half) = &mut self.half else { return Ok(false) };
        let mut were_sent = false;
        if let Some((needed, cols)) = &self.leaving {
            let panel = match needed {
                NeededIn::ThisStep => Some(now),
                NeededIn::NextStep => next,
            };
            if let Some(panel) = panel
                && panel.can_be_read(local.grid)?
            {
                // SAFETY: the caller's promise.
                unsafe { half.start(local, panel, cols.clone()) }?;
                self.leaving = None;
                were_sent = true;
            }
        }
        half.progress()?;
        Ok(were_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_half_is_a_single_column() {
        for (cols, nb) in (1..100).flat_map(|cols| (1..20).map(move |nb| (cols, nb))) {
            for first in (0..cols).step_by(nb) {
                if let Some(border) = border(first, cols, nb, least(0)) {
                    assert!(border - first > 1 && cols - border > 1, "{first}, {border}, {cols}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn halves_are_large_and_a_border_stays_for_long(
            cols in 0usize..3000, nb in 1usize..200, least in 1usize..300,
        ) {
            let Widths { whole, halves } = widths(cols, nb, least);
            let (mut last, mut borders) = (None, 0);
            for first in (0..=cols).step_by(nb) {
                let now = border(first, cols, nb, least);
                if let Some(border) = now {
                    let [left, right] = [border - first, cols - border];
                    let [max_left, max_right] = halves.expect("halves");
                    prop_assert!(left >= least && right >= least, "{first}: {left}, {right}");
                    prop_assert!(left <= max_left && right <= max_right);
                    prop_assert!(4 * left >= left + right);
                    prop_assert!(last.is_none_or(|last| border >= last), "to the right alone");
                    borders += usize::from(now != last);
                    last = now;
                } else {
                    prop_assert!(cols - first <= whole);
                }
            }
            prop_assert!(borders <= 1 + (cols.max(1).ilog2() * 2) as usize, "{borders} borders");
            prop_assert!(whole <= 4 * least + 2 * nb || halves.is_none(), "{whole} at once");
        }
    }
}
