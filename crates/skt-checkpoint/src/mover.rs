//! Memory that only calls of its owner can copy, as that of a device.

use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint::hook::{Hook, Wait};

/// The most bytes that one call of a [`Mover`] copies. Between two pieces a rank reports that it is
/// alive, and learns of the failures of others.
pub const PIECE_BYTES: usize = 32 << 20;

/// Copies between the host and a piece of memory that the host does not access.
pub trait Mover {
    /// Copies `host.len()` bytes of the memory, from byte `offset` on, to `host`. All of them have
    /// arrived when this returns; after an error `host` may have any contents.
    fn to_host(&mut self, offset: usize, host: &mut [u8]) -> Result<(), MoveError>;

    /// Copies `host` to the memory, from byte `offset` on. `host` is free to change when this
    /// returns; after an error these bytes of the memory may have any contents.
    #[expect(clippy::wrong_self_convention, reason = "the direction, as in `to_host`")]
    fn from_host(&mut self, offset: usize, host: &[u8]) -> Result<(), MoveError>;
}

/// Why a copy failed, in the terms of the device's own library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} (code {code})")]
pub struct MoveError {
    /// The code of the failed call.
    pub code: i32,
    /// The meaning of the code, and the call if it is known.
    pub text: String,
}

/// Copies all of a mover's memory to `host`, piece by piece, with `between` before each piece.
pub fn to_host<E: From<MoveError>>(
    mover: &mut dyn Mover,
    host: &mut [u8],
    mut between: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for (index, piece) in host.chunks_mut(PIECE_BYTES).enumerate() {
        between()?;
        mover.to_host(index * PIECE_BYTES, piece)?;
    }
    Ok(())
}

/// Copies `host` to a mover's memory, piece by piece, with `between` before each piece.
pub fn from_host<E: From<MoveError>>(
    mover: &mut dyn Mover,
    host: &[u8],
    mut between: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    for (index, piece) in host.chunks(PIECE_BYTES).enumerate() {
        between()?;
        mover.from_host(index * PIECE_BYTES, piece)?;
    }
    Ok(())
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
    pub(crate) fn new(hook: Arc<dyn Hook>) -> Self {
        let now = Instant::now();
        Self { hook, begun: now, last_piece: now, pieces: 0, longest_seconds: 0.0 }
    }

    /// Called before each piece.
    pub fn report(&mut self) {
        let now = Instant::now();
        let piece_seconds = (now - self.last_piece).as_secs_f64();
        self.longest_seconds = self.longest_seconds.max(piece_seconds);
        (self.last_piece, self.pieces) = (now, self.pieces + 1);
        if self.seconds() < UNREPORTED_SECONDS {
            return;
        }
        self.hook.waits(&Wait {
            seconds: self.seconds(),
            operations: self.pieces,
            expected_seconds: self.longest_seconds,
        });
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
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
