//! Who writes images: a thread of its own beside each rank, or the rank itself.
//!
//! An image is written from the copy, the parities and the checksums of an epoch, which
//! nobody writes to meanwhile. Who is to do that takes them back first and has [`Free`] to
//! show for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::writing::{Writing, Written};
use super::{WhenBusy, Writer};

/// What is to be written over is not lent to a writer of images.
#[must_use]
pub struct Free(());

/// Writes the images of one rank.
pub struct Helper {
    way: Way,
}

enum Way {
    /// No levels, or nothing to write yet.
    None,
    Caller(Option<Writing>),
    Thread(Thread),
}

/// The thread, which waits for the next images when it has none.
struct Thread {
    /// Nothing any more when it is to end.
    to: Option<Sender<Writing>>,
    from: Receiver<Vec<Written>>,
    is_busy: bool,
    /// Whether it is to give up what it writes.
    give_up: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Helper {
    /// Nothing to write, ever.
    pub fn none() -> Self {
        Self { way: Way::None }
    }

    /// Starts a writer.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub fn start(writer: Writer) -> io::Result<Self> {
        Ok(match writer {
            Writer::Caller => Self { way: Way::Caller(None) },
            Writer::Thread(begin) => Self { way: Way::Thread(Thread::start(begin)?) },
        })
    }

    /// Has these images written.
    ///
    /// # Panics
    /// When the last ones were not taken back, or there is no writer.
    pub fn write(&mut self, writing: Writing, _: Free) {
        match &mut self.way {
            Way::None => unreachable!("there are no images without levels"),
            Way::Caller(busy) => assert!(busy.replace(writing).is_none(), "taken back first"),
            Way::Thread(thread) => thread.write(writing),
        }
    }

    /// Goes on by one operation, where the caller writes.
    pub fn advance(&mut self) {
        if let Way::Caller(Some(writing)) = &mut self.way {
            writing.advance();
        }
    }

    /// What is being written goes on, from other bytes than those that its caller is about
    /// to write over.
    pub fn leave(&self) -> Free {
        Free(())
    }

    /// Ends what is being written, now or when it is done. What became of it, and leave to
    /// write over what it was written from.
    pub fn take_back(&mut self, when_busy: WhenBusy) -> (Vec<Written>, Free) {
        let written = match &mut self.way {
            Way::None => Vec::new(),
            Way::Caller(busy) => busy.take().map_or_else(Vec::new, |mut writing| {
                match when_busy {
                    WhenBusy::Wait => while writing.advance() {},
                    WhenBusy::Skip => writing.give_up(),
                }
                writing.into_written()
            }),
            Way::Thread(thread) => thread.take_back(when_busy),
        };
        (written, Free(()))
    }
}

impl Thread {
    fn start(begin: Arc<dyn Fn() + Send + Sync>) -> io::Result<Self> {
        let (to, jobs) = channel::<Writing>();
        let (done, from) = channel();
        let give_up = Arc::new(AtomicBool::new(false));
        let asked = give_up.clone();
        let body = move || {
            begin();
            for mut writing in jobs {
                let mut goes_on = true;
                while goes_on && !asked.load(Ordering::Relaxed) {
                    goes_on = writing.advance();
                }
                if goes_on {
                    writing.give_up();
                }
                // The rank waits for it, or is gone.
                let _ = done.send(writing.into_written());
            }
        };
        let handle = std::thread::Builder::new().name("skt-images".into()).spawn(body)?;
        let (to, handle) = (Some(to), Some(handle));
        Ok(Self { to, from, is_busy: false, give_up, handle })
    }

    fn write(&mut self, writing: Writing) {
        assert!(!self.is_busy, "taken back first");
        self.give_up.store(false, Ordering::Relaxed);
        let to = self.to.as_ref().expect("it has not been told to end");
        to.send(writing).expect("the thread ends when it is told to");
        self.is_busy = true;
    }

    fn take_back(&mut self, when_busy: WhenBusy) -> Vec<Written> {
        if !std::mem::take(&mut self.is_busy) {
            return Vec::new();
        }
        if when_busy == WhenBusy::Skip {
            self.give_up.store(true, Ordering::Relaxed);
        }
        self.from.recv().expect("the thread ends when it is told to")
    }
}

impl Drop for Thread {
    /// Before the segment goes, nobody reads it any more.
    fn drop(&mut self) {
        self.give_up.store(true, Ordering::Relaxed);
        self.to = None;
        if let Some(handle) = self.handle.take() {
            // It has panicked: the rank will hear of it where it takes back.
            let _ = handle.join();
        }
    }
}
