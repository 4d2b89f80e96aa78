//! Copies of memory that only calls of its owner can copy, as that of a device.

use std::sync::Arc;
use std::time::Instant;

use super::Saved;
use crate::checkpoint::hook::{Hook, Wait};

impl Saved<'_> {
    /// What reports between the pieces of copies that this rank is alive.
    pub fn copy_progress(&self) -> CopyProgress {
        CopyProgress::new(self.checkpointer.hook())
    }

    /// Counts the seconds of copies for the next checkpoint among its time, for [`Saved::due`].
    pub fn note_copied(&mut self, seconds: f64) {
        self.copy_seconds = seconds;
    }
}

const UNREPORTED_SECONDS: f64 = 0.5;

/// Reports between pieces that a rank which copies is alive. The others may wait for it, and a
/// supervisor must not take its silence for a hang.
pub struct CopyProgress {
    hook: Arc<dyn Hook>,
    begun: Instant,
    last_piece: Instant,
    pieces: u64,
    longest_seconds: f64,
}

impl CopyProgress {
    fn new(hook: Arc<dyn Hook>) -> Self {
        let now = Instant::now();
        Self { hook, begun: now, last_piece: now, pieces: 0, longest_seconds: 0.0 }
    }

    /// Called before each piece.
    pub fn report(&mut self) {
        let now = Instant::now();
        let piece_seconds = (now - self.last_piece).as_secs_f64();
        self.longest_seconds = self.longest_seconds.max(piece_seconds);
        (self.last_piece, self.pieces) = (now, self.pieces + 1);
        let seconds = self.begun.elapsed().as_secs_f64();
        if seconds >= UNREPORTED_SECONDS {
            let (operations, expected_seconds) = (self.pieces, self.longest_seconds);
            self.hook.waits(&Wait { seconds, operations, expected_seconds });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::checkpoint::hook::Step;

    #[derive(Default)]
    struct Waits(Mutex<Vec<Wait>>);

    impl Hook for Waits {
        fn at(&self, _: &Step) -> skt_comm::Result<()> {
            Ok(())
        }

        fn waits(&self, wait: &Wait) {
            self.0.lock().expect("no panic").push(*wait);
        }
    }

    #[test]
    fn only_long_copies_are_reported_piece_by_piece() {
        let waits = Arc::new(Waits::default());
        let mut progress = CopyProgress::new(waits.clone());
        progress.report();
        assert!(waits.0.lock().expect("no panic").is_empty());
        progress.begun -= Duration::from_secs(60);
        progress.last_piece -= Duration::from_secs(20);
        progress.report();
        progress.report();
        let reported = waits.0.lock().expect("no panic").clone();
        assert_eq!(reported.iter().map(|wait| wait.operations).collect::<Vec<_>>(), [2, 3]);
        assert!(reported.iter().all(|wait| wait.seconds >= 60.0 && wait.expected_seconds >= 20.0));
    }
}
