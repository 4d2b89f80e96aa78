//! How many columns a call of the BLAS may have, so that it does not take long.
//!
//! A process that is killed in a call which changes the matrix in place leaves it torn. A call on
//! some thousand rows of a large matrix takes seconds, while launchers kill half a second after
//! their first signal. Fewer rows would cost speed, as the BLAS packs U for each call; so such
//! calls are cut by columns, for which it packs only the few rows of L2.
//!
//! The time of a call is predicted from the call before it. The cuts change no bit of the result.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::short_calls::short_ones_keep_bits;
use crate::tuning::TUNING;

/// How long a call may take, and the size below which calls are not cut.
#[derive(Debug, Clone, Copy)]
pub struct CallLimit {
    pub seconds: f64,
    /// Calls are cut at multiples of this many columns, from the first column on.
    pub grain_columns: usize,
    /// Rows times columns times depth of the smallest call: a BLAS has other kernels for smaller
    /// ones, which may round differently.
    pub min_size: usize,
}

impl CallLimit {
    /// The limit of a run. Probes the BLAS at the first call in a process (`short_ones_keep_bits`).
    pub fn tuned() -> Self {
        let grain_columns = if short_ones_keep_bits::<f64>(None) {
            TUNING.call_grain_columns
        } else {
            TUNING.call_grain_columns_of_long_products
        };
        Self {
            seconds: TUNING.longest_call_milliseconds as f64 / 1e3,
            grain_columns,
            min_size: TUNING.least_size_of_short_product,
        }
    }

    /// The fewest columns of a call on `rows` rows, of depth `depth`: a multiple of the grain.
    fn min_columns(&self, rows: usize, depth: usize) -> usize {
        let least = self.min_size.div_ceil((rows * depth).max(1));
        least.next_multiple_of(self.grain_columns).max(self.grain_columns)
    }
}

/// The limit of calls, and the speed of the latest one. All threads of a rank share it.
pub(super) struct Pace {
    limit: CallLimit,
    /// Seconds of a multiplication and addition, as the bits of a double; 0 while none is known.
    newest: AtomicU64,
}

impl Pace {
    pub(crate) fn new(limit: CallLimit) -> Self {
        Self { limit, newest: AtomicU64::new(0) }
    }

    /// The columns of the next call: the first of those that are `left` on `rows` rows of a product
    /// of depth `depth`. The first call of a process is short.
    pub(crate) fn next_columns(
        &self,
        rows: usize,
        depth: usize,
        left: Range<usize>,
    ) -> Range<usize> {
        let grain = self.limit.min_columns(rows, depth);
        let grain_seconds = f64::from_bits(self.newest.load(Ordering::Relaxed))
            * (rows as f64 * depth as f64 * grain as f64);
        let grains = if grain_seconds > 0.0 {
            ((self.limit.seconds / grain_seconds) as usize).max(1)
        } else {
            1
        };
        // A part of a grain at the end is joined to the last call.
        if grains < left.len() / grain { left.start..left.start + grains * grain } else { left }
    }

    /// Notes that a call of `size` multiplications and additions took `time`.
    pub(crate) fn took(&self, size: usize, time: Duration) {
        if size >= self.limit.min_size {
            let seconds = time.as_secs_f64() / size as f64;
            self.newest.store(seconds.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(rows: usize, depth: usize, columns: usize, rate: f64) -> Vec<Range<usize>> {
        let pace = Pace::new(CallLimit::tuned());
        let (mut done, mut calls) = (0, Vec::new());
        while done < columns {
            let call = pace.next_columns(rows, depth, done..columns);
            let size = rows * depth * call.len();
            pace.took(size, Duration::from_secs_f64(size as f64 / rate));
            done = call.end;
            calls.push(call);
        }
        calls
    }

    /// 192 GiB a rank at 50 Gflop/s a core; a hundred times slower; a small matrix.
    #[test]
    fn no_call_takes_longer_than_the_limit_unless_it_is_short() {
        let (most, grain) = (TUNING.product_rows, TUNING.call_grain_columns);
        let CallLimit { seconds, min_size, .. } = CallLimit::tuned();
        for (rows, columns, rate) in
            [(most, 160_000, 25e9), (most, 160_000, 25e7), (192, 160_001, 25e9), (2, 9000, 25e9)]
        {
            let calls = calls(rows, 384, columns, rate);
            assert!(calls.iter().all(|call| call.start % grain == 0 && call.len() >= grain));
            assert!(calls.iter().all(|call| rows * 384 * call.len() >= min_size));
            let ends = calls.iter().map(|call| call.end);
            assert!(ends.eq(calls.iter().skip(1).map(|call| call.start).chain([columns])));
            for call in calls {
                // The last call may have a part of a grain more.
                let takes = (rows * 384 * (call.len() / grain * grain)) as f64 / rate;
                assert!(takes <= seconds || call.len() < 2 * grain, "{takes} s: {call:?}");
            }
        }
        // All calls but the first are as long as the rate allows.
        let calls = calls(most, 384, 160_000, 25e9);
        assert_eq!((calls[0].len(), calls[1].len()), (grain, 32 * grain));
        assert_eq!(self::calls(192, 384, grain * 2 - 1, 25e9).len(), 1);
    }

    #[test]
    fn delayed_call_shortens_only_the_next_one() {
        let pace = Pace::new(CallLimit::tuned());
        let (size, long) = (1 << 30, 0..100 * TUNING.call_grain_columns);
        pace.took(size, Duration::from_millis(50));
        let usual = pace.next_columns(192, 384, long.clone());
        pace.took(size, Duration::from_secs(50));
        assert_eq!(pace.next_columns(192, 384, long.clone()).len(), TUNING.call_grain_columns);
        pace.took(size, Duration::from_millis(50));
        assert_eq!(pace.next_columns(192, 384, long.clone()), usual);
        // A call that is too small is not measured.
        pace.took(10, Duration::from_millis(50));
        assert_eq!(pace.next_columns(192, 384, long), usual);
    }
}
