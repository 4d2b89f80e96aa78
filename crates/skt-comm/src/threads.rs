//! Ranks as threads of one process, for tests, as a [`Comm`] like that over MPI.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::collect::{all_gather, broadcast};
use super::copied::{Key, Place, Receiving, Sent, copy_message};
use super::{Comm, CommError, PageBuf, RecvRequest, Result, SendRequest, Tag, Transport};

/// A receive that waits longer than this counts as a deadlock.
const HANG_LIMIT: Duration = Duration::from_secs(120);

/// How long a rank that polls waits for any message, once this many probes were in vain: ranks
/// share few cores, and those that poll would take them from those that work.
const PROBE_PAUSE: Duration = Duration::from_micros(100);
const PROBES_AWAKE: u32 = 100;

thread_local! {
    /// The probes of this thread that were in vain, since the last one that was not.
    static VAIN_PROBES: Cell<u32> = const { Cell::new(0) };
}

const TAG_BARRIER: Tag = 0x7f80;

type Messages = HashMap<Key, VecDeque<Vec<u8>>>;

#[derive(Default)]
struct Inbox {
    messages: Mutex<Messages>,
    arrived: Condvar,
}

struct World {
    inboxes: Vec<Inbox>,
    aborted: Mutex<Option<String>>,
    /// Whether there is a reason in `aborted`, which all ranks would wait for each other to read.
    is_aborted: AtomicBool,
    next_group: AtomicU32,
}

impl World {
    fn abort(&self, reason: &str) -> CommError {
        let reason = {
            let mut aborted = self.aborted.lock().expect("abort lock");
            aborted.get_or_insert_with(|| reason.to_owned()).clone()
        };
        self.is_aborted.store(true, Ordering::SeqCst);
        for inbox in &self.inboxes {
            // Under the lock: otherwise a rank between its check and its wait would miss the
            // notification.
            let _guard = inbox.messages.lock();
            inbox.arrived.notify_all();
        }
        CommError::aborted(reason)
    }

    fn check(&self) -> Result<()> {
        if !self.is_aborted.load(Ordering::SeqCst) {
            return Ok(());
        }
        match &*self.aborted.lock().expect("abort lock") {
            Some(reason) => Err(CommError::aborted(reason.clone())),
            None => Ok(()),
        }
    }
}

#[derive(Clone)]
struct ThreadComm {
    world: Arc<World>,
    place: Place,
}

/// Runs `body` as `size` ranks, each on its own thread, and returns the result of each. An error or
/// a panic of one rank aborts all the others.
pub fn run<T, E, F>(size: usize, body: F) -> Vec<std::result::Result<T, E>>
where
    T: Send,
    E: Send + std::fmt::Display,
    F: Fn(Comm) -> std::result::Result<T, E> + Sync,
{
    let world = Arc::new(World {
        inboxes: (0..size).map(|_| Inbox::default()).collect(),
        aborted: Mutex::new(None),
        is_aborted: AtomicBool::new(false),
        next_group: AtomicU32::new(1),
    });
    let place = Place::in_world(size);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (world, place, body) = (world.clone(), place(rank), &body);
                scope.spawn(move || {
                    let guard = AbortOnPanic(world.clone());
                    let result = body(Comm::new(ThreadComm { world: world.clone(), place }));
                    std::mem::forget(guard);
                    if let Err(error) = &result {
                        world.abort(&format!("rank {rank}: {error}"));
                    }
                    result
                })
            })
            .collect();
        let joined: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        joined
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

struct AbortOnPanic(Arc<World>);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        self.0.abort("a rank panicked");
    }
}

impl ThreadComm {
    fn inbox(&self) -> &Inbox {
        &self.world.inboxes[self.place.me()]
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.inbox().messages.lock().expect("inbox lock")
    }

    fn take(&self, source: usize, tag: Tag) -> Result<Vec<u8>> {
        let deadline = Instant::now() + HANG_LIMIT;
        let mut messages = self.lock();
        loop {
            if let Some(message) =
                messages.get_mut(&self.place.key(source, tag)).and_then(VecDeque::pop_front)
            {
                return Ok(message);
            }
            self.world.check()?;
            let now = Instant::now();
            if now >= deadline {
                drop(messages);
                return Err(self.world.abort(&format!(
                    "rank {} waited {HANG_LIMIT:?} for tag {tag} from rank {source}",
                    self.rank()
                )));
            }
            messages =
                self.inbox().arrived.wait_timeout(messages, deadline - now).expect("inbox").0;
        }
    }
}

impl Transport for ThreadComm {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.members.len()
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        let comm = Comm::new(self.clone());
        let all = all_gather(&comm, &[color.unwrap_or(u32::MAX), key])?;
        let args = all.iter().map(|&[color, key]| (Some(color).filter(|&c| c < u32::MAX), key));
        let args: Vec<_> = args.collect();
        // One new number per possible colour, the same on all ranks.
        let mut base = [self.world.next_group.load(Ordering::SeqCst)];
        if self.rank() == 0 {
            base[0] = self.world.next_group.fetch_add(self.size() as u32, Ordering::SeqCst);
        }
        broadcast(&comm, &mut base, 0)?;
        let place = self.place.after_split(&args, base[0]);
        Ok(place.map(|place| Comm::new(Self { world: self.world.clone(), place })))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
        self.world.check()?;
        let inbox = &self.world.inboxes[self.place.members[dest]];
        let mut messages = inbox.messages.lock().expect("inbox lock");
        messages.entry(self.place.key(self.rank(), tag)).or_default().push_back(data.to_vec());
        drop(messages);
        inbox.arrived.notify_all();
        Ok(())
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()> {
        for &(data, dest, tag) in sends {
            self.send_bytes(data, dest, tag)?;
        }
        for (data, source, tag) in recvs {
            copy_message(&self.take(*source, *tag)?, data, *source, *tag)?;
        }
        Ok(())
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>> {
        self.send_bytes(bytemuck::cast_slice(&buf[range]), dest, tag)?;
        Ok(Box::new(Sent))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>> {
        Ok(Box::new(Receiving::new(self.clone(), buf, range, source, tag)))
    }

    fn probe(&self, source: usize, tag: Tag) -> Result<bool> {
        self.world.check()?;
        let key = self.place.key(source, tag);
        let has_come = |messages: &Messages| messages.get(&key).is_some_and(|it| !it.is_empty());
        let (mut messages, vain) = (self.lock(), VAIN_PROBES.get());
        if vain >= PROBES_AWAKE && !has_come(&messages) {
            messages = self.inbox().arrived.wait_timeout(messages, PROBE_PAUSE).expect("inbox").0;
        }
        let has_come = has_come(&messages);
        VAIN_PROBES.set(if has_come { 0 } else { vain.saturating_add(1) });
        Ok(has_come)
    }

    fn barrier(&self) -> Result<()> {
        let mut step = 1;
        while step < self.size() {
            let to = (self.rank() + step) % self.size();
            let from = (self.rank() + self.size() - step) % self.size();
            let mut word = [0];
            self.exchange_bytes(&[(&[0], to, TAG_BARRIER)], &mut [(&mut word, from, TAG_BARRIER)])?;
            step <<= 1;
        }
        Ok(())
    }

    fn host(&self) -> String {
        "localhost".into()
    }

    fn abort(&self, reason: &str, _exit_code: i32) -> CommError {
        self.world.abort(reason)
    }
}
