//! The times of a test with checksums, in memory that outlives the process.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use skt_host::phases::{EarlierStarts, Interruptions, PhaseTotals};

use super::split::CLOCK_BYTES;
use crate::ptest::max_and_mean;
use skt_comm::{Comm, CommError};

/// Seconds of the run so far, and how it spent them. The order is that of the words in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Times {
    pub seconds: f64,
    interruptions: Interruptions,
    totals: PhaseTotals,
}

impl Times {
    pub(crate) fn new(seconds: f64, earlier: EarlierStarts) -> Self {
        let EarlierStarts { totals, interruptions } = earlier;
        Self { seconds, interruptions, totals }
    }

    pub(crate) fn earlier(&self) -> EarlierStarts {
        EarlierStarts { totals: self.totals, interruptions: self.interruptions }
    }
}

const WORDS: usize = size_of::<Times>() / size_of::<u64>();
const _: () = assert!(size_of::<Times>() <= CLOCK_BYTES);

/// The times of a rank, as of the end of the last step. A death while they are written mixes those
/// of two steps.
pub(super) struct KeptTimes<'t>(&'t [AtomicU64; WORDS]);

impl KeptTimes<'_> {
    /// The times at `start`.
    ///
    /// # Safety
    /// The page at `start` exists for as long as this, and is accessed in no other way, except in
    /// calls of the checkpointer, which are no calls of this.
    pub(crate) unsafe fn at(start: *mut u8) -> Self {
        // SAFETY: the caller's promise; a page is aligned, and has the words.
        Self(unsafe { &*start.cast() })
    }

    pub(crate) fn get(&self) -> Times {
        bytemuck::cast(self.words())
    }

    fn words(&self) -> [u64; WORDS] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, times: &Times) {
        let words: [u64; WORDS] = bytemuck::cast(*times);
        self.0.iter().zip(words).for_each(|(kept, word)| kept.store(word, Ordering::Relaxed));
    }

    /// The times of all ranks together, the means those of ranks with data, as in the report; a
    /// rank whose memory is new has none. Collective.
    pub(crate) fn agreed(&self, comm: &Comm, has_data: bool) -> Result<Times, CommError> {
        let mut mine = [0.0; WORDS + 1];
        mine[..WORDS].copy_from_slice(&self.words().map(f64::from_bits));
        if has_data {
            mine[WORDS] = f64::from(u8::from(self.get().seconds > 0.0));
        } else {
            mine[WORDS - size_of::<PhaseTotals>() / size_of::<f64>()..].fill(0.0);
        }
        let ([max @ .., any], [mean @ .., known]) = max_and_mean(comm, mine)?.into();
        let (mut times, mean): (Times, Times) = (bytemuck::cast(max), bytemuck::cast(mean));
        let known = if any > 0.0 { known } else { 1.0 };
        times.totals.mean = mean.totals.mean.map(|mean| mean / known);
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads;

    fn times(scale: f64) -> Times {
        let parts = [scale; 9];
        let interruptions = Interruptions { lost_seconds: 1.0, ..Interruptions::default() };
        let totals = PhaseTotals { max: parts, mean: parts };
        Times { seconds: 9.0 + scale, interruptions, totals }
    }

    #[test]
    fn times_of_lost_ranks_do_not_count() {
        // Rank 2 has new memory, and rank 3 has checksums.
        let ranks = threads::run(4, |world| {
            let words = [const { AtomicU64::new(0) }; WORDS];
            let kept = KeptTimes(&words);
            if world.rank() == 3 {
                kept.set(&times(0.5));
            } else if world.rank() < 2 {
                kept.set(&times(1.0 + 2.0 * world.rank() as f64));
                assert_eq!(kept.get(), times(1.0 + 2.0 * world.rank() as f64));
            }
            kept.agreed(&world, world.rank() < 3)
        });
        let want = Times { totals: PhaseTotals { max: [3.0; 9], mean: [2.0; 9] }, ..times(3.0) };
        for agreed in ranks {
            assert_eq!(agreed.expect("no rank is lost"), want);
        }
    }
}
