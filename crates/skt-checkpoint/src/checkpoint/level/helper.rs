//! The writer of a rank's images: a helper thread, or the rank itself.
//!
//! An image is written from the copy, the parities and the checksums of an epoch, which do not
//! change while it is written. Code that is about to write there ends the writing of images first,
//! and gets a [`Free`] as a proof of that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::hook::{Hook, Wait};
use super::Writer;
use super::writing::{Writing, Written};

/// Proof that the bytes to be overwritten are not lent to a writer of images.
#[must_use]
pub(crate) struct Free(());

pub(crate) enum Helper {
    None,
    Caller(Option<Writing>),
    Thread(Thread),
}

pub(crate) struct Thread {
    /// `None` once the thread has been requested to end.
    to: Option<Sender<Writing>>,
    from: Receiver<Vec<Written>>,
    is_busy: bool,
    asked: Arc<Asked>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Asked {
    /// The rank asks the thread to give up what it writes.
    give_up: AtomicBool,
    /// The progress of the thread, from [`Writing::progress`]; the seconds as bits.
    operations: AtomicU64,
    expected_seconds: AtomicU64,
}

/// How often a waiting rank calls its hook.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

impl Helper {
    pub(crate) fn start(writer: Writer) -> io::Result<Self> {
        Ok(match writer {
            Writer::Caller => Self::Caller(None),
            Writer::Thread(begin) => Self::Thread(Thread::start(begin)?),
        })
    }

    /// There is a writer, and the images before were taken back.
    pub(crate) fn write(&mut self, writing: Writing, _: Free) {
        match self {
            Self::None => unreachable!("there are no images without levels"),
            Self::Caller(busy) => {
                assert!(busy.replace(writing).is_none(), "taken back first")
            }
            Self::Thread(thread) => thread.write(writing),
        }
    }

    /// Does one operation, if the caller writes the images itself.
    pub(crate) fn advance(&mut self) {
        if let Self::Caller(Some(writing)) = self {
            writing.advance();
        }
    }

    /// The writing continues: it does not read what the caller is about to overwrite.
    pub(crate) fn leave(&self) -> Free {
        Free(())
    }

    pub(crate) fn done(&mut self) -> Option<Vec<Written>> {
        match self {
            Self::Thread(thread) => thread.done(),
            // Without a thread nothing is written between two calls of this rank.
            Self::None | Self::Caller(_) => None,
        }
    }

    /// Ends the writing of images, when it is done or, with `gives_up`, at once. Returns their
    /// results and the permission to overwrite their source. The wait is reported to `hook`.
    pub(crate) fn take_back(&mut self, gives_up: bool, hook: &dyn Hook) -> (Vec<Written>, Free) {
        let start = Instant::now();
        let report = |(operations, expected_seconds): (u64, f64)| {
            let seconds = start.elapsed().as_secs_f64();
            hook.waits(&Wait { seconds, operations, expected_seconds });
        };
        let written = match self {
            Self::None => Vec::new(),
            Self::Caller(busy) => busy.take().map_or_else(Vec::new, |mut writing| {
                if gives_up {
                    writing.give_up();
                } else {
                    report(writing.progress());
                    while writing.advance() {
                        report(writing.progress());
                    }
                }
                writing.into_written()
            }),
            Self::Thread(thread) => thread.take_back(gives_up, report),
        };
        (written, Free(()))
    }
}

impl Thread {
    fn start(begin: Arc<dyn Fn() + Send + Sync>) -> io::Result<Self> {
        let (to, jobs) = channel::<Writing>();
        let (done, from) = channel();
        let asked = Arc::new(Asked::default());
        let by_rank = asked.clone();
        let body = move || {
            begin();
            for mut writing in jobs {
                by_rank.write(&mut writing);
                // The rank waits for the results, or has ended.
                let _ = done.send(writing.into_written());
            }
        };
        let handle = thread::Builder::new().name("skt-images".into()).spawn(body)?;
        let (to, handle) = (Some(to), Some(handle));
        Ok(Self { to, from, is_busy: false, asked, handle })
    }

    fn done(&mut self) -> Option<Vec<Written>> {
        let written = self.from.try_recv().ok().filter(|_| self.is_busy)?;
        self.is_busy = false;
        Some(written)
    }

    fn write(&mut self, writing: Writing) {
        assert!(!self.is_busy, "taken back first");
        self.asked.give_up.store(false, Ordering::Relaxed);
        let to = self.to.as_ref().expect("it has not been requested to end");
        to.send(writing).expect("the thread ends only on request");
        self.is_busy = true;
    }

    fn take_back(&mut self, gives_up: bool, report: impl Fn((u64, f64))) -> Vec<Written> {
        if !std::mem::take(&mut self.is_busy) {
            return Vec::new();
        }
        self.asked.give_up.store(gives_up, Ordering::Relaxed);
        loop {
            match self.from.recv_timeout(REPORT_PERIOD) {
                Ok(written) => return written,
                Err(RecvTimeoutError::Timeout) => report(self.asked.progress()),
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread ends only on request")
                }
            }
        }
    }
}

impl Asked {
    fn report(&self, (operations, expected_seconds): (u64, f64)) {
        self.expected_seconds.store(expected_seconds.to_bits(), Ordering::Relaxed);
        // Who sees the operation also sees the seconds that it may take.
        self.operations.store(operations, Ordering::Release);
    }

    fn progress(&self) -> (u64, f64) {
        let operations = self.operations.load(Ordering::Acquire);
        (operations, f64::from_bits(self.expected_seconds.load(Ordering::Relaxed)))
    }

    fn write(&self, writing: &mut Writing) {
        loop {
            if self.give_up.load(Ordering::Relaxed) {
                return writing.give_up();
            }
            self.report(writing.progress());
            if !writing.advance() {
                return;
            }
        }
    }
}

impl Drop for Thread {
    /// Ensures that nothing reads the segment after this.
    fn drop(&mut self) {
        self.asked.give_up.store(true, Ordering::Relaxed);
        self.to = None;
        if let Some(handle) = self.handle.take() {
            // If the thread has panicked, the rank learns of it when it takes the images back.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::hook::NoHook;
    use super::super::super::record::StartId;
    use super::super::super::vault::{Backing, Vault};
    use super::super::disk::{Disk, FileId, Slot};
    use super::super::folder::ImageFolder;
    use super::super::ranks::SpacedRanks;
    use super::super::writing::{ImageEnd, NewImage, Sealed};
    use super::super::{Generation, IMAGE_PAGE_BYTES};
    use super::*;

    const BODY_BYTES: usize = 64 << 10;
    const PIECE_BYTES: usize = 4 << 10;

    /// One image is begun, and two files of it are to be removed; after it come another image and
    /// files of a level without one. Nothing is forgotten where they are given up.
    #[test]
    fn files_due_for_removal_stay_where_images_are_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = ImageFolder::open(folder.path(), "run", 0, None).expect("a disk");
        let disk: Arc<dyn Disk> = Arc::new(disk);
        for operations in 0..=4 {
            let memory = Backing::Private(vec![7; BODY_BYTES / 8]);
            let mut vault = Vault::new(memory, Arc::new(NoHook), BODY_BYTES);
            // SAFETY: nothing writes to it, and it is dropped after the writing.
            let lent = unsafe { vault.lend(&[0..BODY_BYTES / 2, BODY_BYTES / 2..BODY_BYTES]) };
            let generation = |epoch| Generation { start: StartId { number: 1, nonce: 1 }, epoch };
            let file =
                |epoch| FileId { generation: generation(epoch), ranks: SpacedRanks::alone(0) };
            let image = |(level, remove, is_written): (usize, &[u64], bool)| NewImage {
                level,
                disk: disk.clone(),
                generation: generation(9),
                slot: Slot { rank: 0, ranks: SpacedRanks::alone(0), bytes: 1 << 20 },
                remove: remove.iter().copied().map(file).collect(),
                sealed: is_written.then(|| Sealed {
                    seal: vec![1; IMAGE_PAGE_BYTES],
                    places: vec![0, BODY_BYTES as u64 / 2],
                    body_bytes: BODY_BYTES as u64,
                }),
            };
            let images = [(0, &[1, 2][..], true), (1, &[3], true), (2, &[4, 5], false)];
            let images = images.into_iter().map(image).collect();
            let mut writing = Writing::new(lent, images, PIECE_BYTES);
            (0..operations).for_each(|_| assert!(writing.advance()));
            writing.give_up();
            let written = writing.into_written();
            let left = written.iter().map(|one| one.left.iter().map(|f| f.generation.epoch));
            let left: Vec<Vec<u64>> = left.map(Iterator::collect).collect();
            let of_first = [1, 2][operations.min(2)..].to_vec();
            assert_eq!(left, [of_first, vec![3], vec![4, 5]], "after {operations} operations");
            let ends = [0, 1, 2].map(|i| matches!(written[i].end, ImageEnd::GivenUp));
            assert_eq!(ends, [true, true, false], "where there is no image, none is given up");
        }
    }
}
