//! Simulated ranks: every rank is a fiber of one thread, and one runs at a time.
//!
//! At every call a seeded scheduler chooses which rank continues, so that a run is a function of
//! its [`SimOptions`] alone. Every call and every [`Point`] is a numbered step, and ranks can be
//! killed at any of them. A run of a few hundred steps takes well under a millisecond, so a test
//! can stop a protocol at each of its steps in turn.
//!
//! As with MPI, survivors learn of a death late: after [`Linger`], in their present or next call. A
//! job in which no rank can continue, and none was killed, is a deadlock and is reported as such.

use std::collections::VecDeque;
use std::fmt::Display;
use std::ops::{Deref, Range};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use skt_comm::copied::{Key, Place, Receiving, SplitArgs, copy_message};
use skt_comm::{Comm, CommError, PageBuf, RecvRequest, Result, SendRequest, Tag, Transport};

use crate::ranks::{Meetings, run_all, switch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The number of the step, counted over all ranks from 1.
    pub step: u64,
    pub rank: usize,
}

/// How long survivors continue after a death before their calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// For this many steps, counted over all ranks.
    Steps(u64),
    /// Until none of them can continue.
    UntilBlocked,
}

#[derive(Debug, Clone)]
pub struct SimOptions {
    /// The host of each rank, as [`Transport::host`] returns it; one per rank, at most 63.
    pub hosts: Vec<String>,
    pub seed: u64,
    /// In how many of 256 steps another rank may take over.
    pub switches_of_256: u8,
    /// Whether a send is incomplete until its receive has begun, as MPI allows.
    pub rendezvous: bool,
    /// The ranks that die, and when; in any order.
    pub kills: Vec<Kill>,
    pub linger: Linger,
    /// Whether to record the name of every step, for a failing test to print.
    pub trace: bool,
}

impl SimOptions {
    /// Options for `ranks` ranks, each on its own host, none killed.
    pub fn new(ranks: usize, seed: u64) -> Self {
        Self {
            hosts: (0..ranks).map(|rank| format!("host{rank}")).collect(),
            seed,
            switches_of_256: 64,
            rendezvous: false,
            kills: Vec::new(),
            linger: Linger::Steps(0),
            trace: false,
        }
    }
}

/// The point that a rank has reached in its program: how many steps it has passed, and whether it
/// waits for others in the last of them. It rises as the rank proceeds. Between two steps (and
/// before the first wait in one) a rank is never interrupted, so a rank that is at this point in
/// two runs, and has received the same messages in both, is in the same state in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramPoint(u32);

impl ProgramPoint {
    pub(crate) const START: Self = Self(0);
    pub const ENDED: Self = Self(u32::MAX);
}

/// Observes a run, and may choose which rank continues. Called between the ranks, while all of them
/// are interrupted; it must not use their communicators.
pub trait Conductor: Send {
    /// Called when the run reaches this step, before any rank is killed in it.
    fn at_step(&mut self, _step: u64, _points: &[ProgramPoint]) {}

    /// Chooses which rank continues when one may be interrupted or cannot continue: one of those
    /// `able` (one bit each, never none). `None` leaves the choice to the seed.
    fn choose(&mut self, _points: &[ProgramPoint], _able: u64, _current: usize) -> Option<usize> {
        None
    }

    /// The answer to a rank that asks whether a message has arrived: it need not be seen at once.
    fn sees(&mut self, _rank: usize, is_here: bool) -> bool {
        is_here
    }
}

#[derive(Debug)]
pub struct SimOutcome<T, E> {
    pub results: Vec<std::result::Result<T, E>>,
    pub steps: u64,
    /// The ranks that were killed, one bit each.
    pub killed: u64,
    /// What each rank waited for, if none could continue.
    pub deadlock: Option<String>,
    /// One line per step, `<step> rank <rank>: <what>`; empty unless asked for.
    pub trace: Vec<String>,
}

struct Message {
    id: u64,
    key: Key,
    data: Vec<u8>,
}

type Receive = (usize, Key);

struct State {
    steps: u64,
    rng: SplitMix64,
    switches_of_256: u8,
    rendezvous: bool,
    done: u64,
    blocked: u64,
    dead: u64,
    kills: Vec<Kill>,
    linger: Linger,
    abort: Option<String>,
    abort_at: u64,
    gone: Vec<u32>,
    points: Vec<ProgramPoint>,
    inboxes: Vec<VecDeque<Message>>,
    /// Receives that have begun and have no message yet.
    begun: Vec<Receive>,
    next_message: u64,
    meetings: Meetings,
    waits: Vec<String>,
    deadlock: Option<String>,
    trace: Option<Vec<String>>,
}

struct World {
    hosts: Vec<String>,
    state: Mutex<State>,
    conductor: Option<Arc<Mutex<dyn Conductor>>>,
}

impl State {
    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Ranks that can continue, one bit each.
    fn able(&self) -> u64 {
        let all = (1u64 << self.inboxes.len()) - 1;
        all & !self.done & !self.blocked
    }

    fn pick(&mut self) -> Option<usize> {
        let mut able = self.able();
        if able == 0 {
            return None;
        }
        for _ in 0..self.random() % u64::from(able.count_ones()) {
            able &= able - 1;
        }
        Some(able.trailing_zeros() as usize)
    }

    fn fail(&mut self, reason: &str) {
        if self.abort.is_none() {
            self.abort = Some(reason.to_owned());
            self.abort_at = match self.linger {
                Linger::Steps(steps) => self.steps.saturating_add(steps),
                Linger::UntilBlocked => u64::MAX,
            };
        }
    }

    /// Counts a step and kills the ranks that are due.
    fn advance(&mut self) {
        self.steps += 1;
        let now = self.steps;
        for i in 0..self.kills.len() {
            let Kill { step, rank } = self.kills[i];
            if step <= now && self.dead & (1 << rank) == 0 && self.done & (1 << rank) == 0 {
                self.dead |= 1 << rank;
                self.blocked &= !(1 << rank);
                self.fail(&format!("rank {rank} died"));
            }
        }
        if self.aborted() {
            self.blocked = 0;
        }
    }

    fn aborted(&self) -> bool {
        self.abort.is_some() && self.steps >= self.abort_at
    }

    fn check(&self, rank: usize) -> Result<()> {
        if self.dead & (1 << rank) != 0 {
            return Err(CommError::Killed(self.steps));
        }
        match &self.abort {
            Some(reason) if self.aborted() => Err(CommError::aborted(reason.clone())),
            _ => Ok(()),
        }
    }

    /// No rank can continue: after a death the launcher ends the job; otherwise it is a deadlock.
    fn stuck(&mut self) {
        if self.abort.is_none() {
            let waits: Vec<String> = (0..self.waits.len())
                .filter(|&rank| self.done & (1 << rank) == 0)
                .map(|rank| format!("rank {rank}: {}", self.waits[rank]))
                .collect();
            self.deadlock = Some(waits.join("; "));
            self.abort = Some("deadlock".into());
        }
        self.abort_at = self.steps;
        self.blocked = 0;
    }

    fn post(&mut self, dest: usize, key: Key, data: &[u8]) -> u64 {
        let id = self.next_message;
        self.next_message += 1;
        self.inboxes[dest].push_back(Message { id, key, data: data.to_vec() });
        self.blocked &= !(1 << dest);
        id
    }

    fn has(&self, me: usize, key: Key) -> bool {
        self.inboxes[me].iter().any(|message| message.key == key)
    }

    fn take(&mut self, me: usize, key: Key) -> Option<Vec<u8>> {
        let at = self.inboxes[me].iter().position(|message| message.key == key)?;
        // A sender may wait for this receive; waking all is harmless.
        self.blocked = 0;
        self.inboxes[me].remove(at).map(|message| message.data)
    }

    /// Whether rank `dest` has received message `id`, or has begun to: then MPI delivers it,
    /// whatever the rank does next.
    fn is_taken(&self, dest: usize, id: u64) -> bool {
        let Some(at) = self.inboxes[dest].iter().position(|m| m.id == id) else { return true };
        let key = self.inboxes[dest][at].key;
        let before = self.inboxes[dest].iter().take(at).filter(|m| m.key == key).count();
        before < self.begun.iter().filter(|&&begun| begun == (dest, key)).count()
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A conductor that panics leaves no half-made change of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conductor; `None` once it has panicked.
    fn conductor(&self) -> Option<MutexGuard<'_, dyn Conductor + 'static>> {
        self.conductor.as_ref()?.lock().ok()
    }

    fn ranks(&self) -> usize {
        self.hosts.len()
    }

    fn conducted(&self, state: &State, current: usize) -> Option<usize> {
        let able = state.able();
        if able == 0 {
            return None;
        }
        let next = self.conductor()?.choose(&state.points, able, current)?;
        assert!(able >> next & 1 == 1, "rank {next} cannot continue");
        Some(next)
    }

    fn pick(&self, state: &mut State, current: usize) -> Option<usize> {
        self.conducted(state, current).or_else(|| state.pick())
    }

    /// Numbers the step, and may let another rank run first.
    fn step(&self, rank: usize, what: &dyn Display) -> Result<()> {
        if std::thread::panicking() {
            return Err(CommError::aborted("this rank panicked"));
        }
        let mut state = self.lock();
        state.points[rank] = ProgramPoint(2 * state.gone[rank]);
        if let Some(mut conductor) = self.conductor() {
            conductor.at_step(state.steps + 1, &state.points);
        }
        state.advance();
        let line = state.trace.is_some().then(|| format!("{} rank {rank}: {what}", state.steps));
        if let (Some(trace), Some(line)) = (&mut state.trace, line) {
            trace.push(line);
        }
        state.check(rank)?;
        let next = self.conducted(&state, rank).unwrap_or_else(|| {
            let switches = u64::from(state.switches_of_256);
            let stays = state.random() % 256 >= switches;
            if stays { rank } else { state.pick().unwrap_or(rank) }
        });
        if next != rank {
            drop(state);
            switch(rank, next);
            state = self.lock();
            state.check(rank)?;
        }
        state.gone[rank] += 1;
        Ok(())
    }

    fn wait<T>(
        &self,
        rank: usize,
        what: impl Fn() -> String,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        state.points[rank] = ProgramPoint(2 * state.gone[rank] - 1);
        let first = self.conducted(&state, rank);
        drop(state);
        if let Some(next) = first {
            switch(rank, next);
        }
        loop {
            let mut state = self.lock();
            state.check(rank)?;
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            state.blocked |= 1 << rank;
            state.waits[rank] = what();
            let Some(next) = self.pick(&mut state, rank) else {
                state.stuck();
                continue;
            };
            drop(state);
            switch(rank, next);
        }
    }

    /// Returns the rank that continues; after the last, the number of ranks.
    fn leave(&self, rank: usize, failure: Option<&str>) -> usize {
        let mut state = self.lock();
        state.done |= 1 << rank;
        state.points[rank] = ProgramPoint::ENDED;
        if let Some(reason) = failure {
            state.fail(reason);
            if state.aborted() {
                state.blocked = 0;
            }
        }
        let all = (1u64 << self.ranks()) - 1;
        if state.done == all {
            return self.ranks();
        }
        self.pick(&mut state, rank).unwrap_or_else(|| {
            state.stuck();
            state.pick().expect("a rank that is not done")
        })
    }
}

/// Makes the allocator keep what this process frees: thousands of runs take the same workspaces,
/// and a sixth of their time would go into the kernel's zeroing of pages.
fn keep_freed_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // SAFETY: sets a number of the allocator, under its lock.
            unsafe { libc::mallopt(parameter, 1 << 30) };
        }
    });
}

/// Runs `body` on at most 63 simulated ranks. Panics when a rank did, after all have ended.
pub fn run<T, E, F>(options: &SimOptions, body: F) -> SimOutcome<T, E>
where
    E: Display,
    F: Fn(SimComm) -> std::result::Result<T, E>,
{
    run_conducted(options, None, body)
}

/// [`run`] under a conductor, which must choose a rank that can continue.
pub fn run_conducted<T, E, F>(
    options: &SimOptions,
    conductor: Option<Arc<Mutex<dyn Conductor>>>,
    body: F,
) -> SimOutcome<T, E>
where
    E: Display,
    F: Fn(SimComm) -> std::result::Result<T, E>,
{
    let size = options.hosts.len();
    assert!((1..64).contains(&size), "1 to 63 ranks");
    keep_freed_memory();
    let world = Arc::new(World::new(options, conductor));
    let place = Place::in_world(size);
    let first = world.pick(&mut world.lock(), 0).expect("no rank has ended yet");
    let results = run_all(
        size,
        first,
        |rank| body(SimComm::new(SimTransport { world: world.clone(), place: place(rank) })),
        |rank, failure| world.leave(rank, failure),
    );
    let results = results.unwrap_or_else(|panic| resume_unwind(panic));
    let mut state = world.lock();
    SimOutcome {
        results,
        steps: state.steps,
        killed: state.dead,
        deadlock: state.deadlock.take(),
        trace: state.trace.take().unwrap_or_default(),
    }
}

impl World {
    fn new(options: &SimOptions, conductor: Option<Arc<Mutex<dyn Conductor>>>) -> Self {
        let size = options.hosts.len();
        let state = State {
            steps: 0,
            rng: SplitMix64::seed_from_u64(options.seed),
            switches_of_256: options.switches_of_256,
            rendezvous: options.rendezvous,
            done: 0,
            blocked: 0,
            dead: 0,
            kills: options.kills.clone(),
            linger: options.linger,
            abort: None,
            abort_at: u64::MAX,
            gone: vec![0; size],
            points: vec![ProgramPoint::START; size],
            inboxes: (0..size).map(|_| VecDeque::new()).collect(),
            begun: Vec::new(),
            next_message: 0,
            meetings: Meetings::default(),
            waits: vec![String::new(); size],
            deadlock: None,
            trace: options.trace.then(Vec::new),
        };
        Self { hosts: options.hosts.clone(), state: Mutex::new(state), conductor }
    }
}

/// The group of all ranks, as one of them has it, and the steps of this rank outside of it.
pub struct SimComm {
    comm: Comm,
    point: Point,
}

impl SimComm {
    fn new(transport: SimTransport) -> Self {
        let point = Point { world: transport.world.clone(), me: transport.me() };
        Self { comm: Comm::new(transport), point }
    }

    pub fn point(&self) -> Point {
        self.point.clone()
    }
}

impl Deref for SimComm {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

#[derive(Clone)]
struct SimTransport {
    world: Arc<World>,
    place: Place,
}

/// A source of steps outside of communication; see [`SimComm::point`].
#[derive(Clone)]
pub struct Point {
    world: Arc<World>,
    me: usize,
}

impl Point {
    /// A numbered step: another rank may run here, and this one may be killed.
    pub fn step(&self, what: &dyn Display) -> Result<()> {
        self.world.step(self.me, what)
    }
}

impl SimTransport {
    fn me(&self) -> usize {
        self.place.me()
    }

    fn post(&self, data: &[u8], dest: usize, tag: Tag) -> Result<u64> {
        self.world.step(self.me(), &format_args!("send {} bytes to {dest}", data.len()))?;
        let mut state = self.world.lock();
        Ok(state.post(self.place.members[dest], self.place.key(self.rank(), tag), data))
    }

    fn await_taken(&self, id: u64, dest: usize, tag: Tag) -> Result<()> {
        let inbox = self.place.members[dest];
        self.world.wait(
            self.me(),
            || format!("rank {dest} to receive tag {tag}"),
            |state| state.is_taken(inbox, id).then_some(()),
        )
    }

    fn take(&self, source: usize, tag: Tag) -> Result<Vec<u8>> {
        let (me, key) = (self.me(), self.place.key(source, tag));
        self.world.step(me, &format_args!("receive from {source}"))?;
        self.world.wait(me, || format!("tag {tag} from rank {source}"), |state| state.take(me, key))
    }

    fn receive_into(&self, data: &mut [u8], source: usize, tag: Tag) -> Result<()> {
        copy_message(&self.take(source, tag)?, data, source, tag)
    }

    /// Waits until all members have called it. Returns the colours and keys of all, and the first
    /// of the numbers for new groups.
    fn meet(&self, what: &'static str, mine: SplitArgs) -> Result<(Vec<SplitArgs>, u32)> {
        self.world.step(self.me(), &what)?;
        let mut state = self.world.lock();
        let (id, all_are_here) = state.meetings.enter(&self.place, mine);
        if all_are_here {
            state.blocked = 0;
        }
        drop(state);
        self.world.wait(self.me(), || what.to_owned(), |state| state.meetings.leave(id))
    }
}

struct Sending {
    comm: SimTransport,
    id: u64,
    dest: usize,
    tag: Tag,
    is_taken: bool,
    /// Kept, so that it is not free before the send is complete.
    _buf: Arc<PageBuf>,
}

impl SendRequest for Sending {
    fn test(&mut self) -> Result<bool> {
        if !self.is_taken {
            let (world, me) = (&self.comm.world, self.comm.me());
            world.step(me, &"test of a send")?;
            let is_taken = world.lock().is_taken(self.comm.place.members[self.dest], self.id);
            let mut conductor = world.conductor();
            self.is_taken =
                conductor.as_mut().map_or(is_taken, |conductor| conductor.sees(me, is_taken));
        }
        Ok(self.is_taken)
    }

    fn wait(self: Box<Self>) -> Result<()> {
        if self.is_taken { Ok(()) } else { self.comm.await_taken(self.id, self.dest, self.tag) }
    }
}

struct PendingRecv {
    receiving: Receiving<SimTransport>,
    /// Present until the message has arrived.
    begun: Option<BegunReceive>,
}

struct BegunReceive(Arc<World>, Receive);

impl Drop for BegunReceive {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        // A message to a rank that dies may have arrived before its death.
        if state.dead >> self.1.0 & 1 == 0 {
            let at = state.begun.iter().position(|receive| *receive == self.1);
            state.begun.swap_remove(at.expect("it is begun"));
        }
    }
}

impl RecvRequest for PendingRecv {
    fn test(&mut self) -> Result<bool> {
        let is_here = self.receiving.test()?;
        if is_here {
            self.begun = None;
        }
        Ok(is_here)
    }

    fn wait(self: Box<Self>) -> Result<PageBuf> {
        Box::new(self.receiving).wait()
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.members.len()
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        let (args, base) = self.meet("split", (color, key))?;
        let place = self.place.after_split(&args, base);
        Ok(place.map(|place| Comm::new(Self { world: self.world.clone(), place })))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
        let id = self.post(data, dest, tag)?;
        if self.world.lock().rendezvous {
            self.await_taken(id, dest, tag)?;
        }
        Ok(())
    }

    fn recv_bytes(&self, data: &mut [u8], source: usize, tag: Tag) -> Result<()> {
        self.receive_into(data, source, tag)
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()> {
        let mut posted = Vec::with_capacity(sends.len());
        for &(data, dest, tag) in sends {
            posted.push((self.post(data, dest, tag)?, dest, tag));
        }
        for (data, source, tag) in recvs {
            self.receive_into(data, *source, *tag)?;
        }
        if self.world.lock().rendezvous {
            for (id, dest, tag) in posted {
                self.await_taken(id, dest, tag)?;
            }
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
        let rendezvous = self.world.lock().rendezvous;
        let id = self.post(bytemuck::cast_slice(&buf[range]), dest, tag)?;
        let is_taken = !rendezvous;
        Ok(Box::new(Sending { comm: self.clone(), id, dest, tag, is_taken, _buf: buf }))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>> {
        let receive = (self.me(), self.place.key(source, tag));
        let mut state = self.world.lock();
        state.begun.push(receive);
        // The sender may wait for this receive.
        state.blocked = 0;
        drop(state);
        let begun = Some(BegunReceive(self.world.clone(), receive));
        let receiving = Receiving::new(self.clone(), buf, range, source, tag);
        Ok(Box::new(PendingRecv { receiving, begun }))
    }

    fn probe(&self, source: usize, tag: Tag) -> Result<bool> {
        let me = self.me();
        self.world.step(me, &"probe")?;
        let is_here = self.world.lock().has(me, self.place.key(source, tag));
        let mut conductor = self.world.conductor();
        Ok(conductor.as_mut().map_or(is_here, |conductor| conductor.sees(me, is_here)))
    }

    fn await_message(&self, source: usize, tag: Tag) -> Result<()> {
        let (me, key) = (self.me(), self.place.key(source, tag));
        self.world.wait(
            me,
            || format!("a message from {} (tag {tag})", key.1),
            |state| state.has(me, key).then_some(()),
        )
    }

    fn barrier(&self) -> Result<()> {
        self.meet("barrier", (None, 0)).map(drop)
    }

    fn host(&self) -> String {
        self.world.hosts[self.me()].clone()
    }

    fn abort(&self, reason: &str, _exit_code: i32) -> CommError {
        self.world.lock().fail(reason);
        CommError::aborted(reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use skt_comm::collect::{all_gather_bytes, all_sum};

    use super::*;

    #[test]
    fn collectives_work_under_every_schedule() {
        for seed in 0..200 {
            let mut options = SimOptions::new(1 + seed as usize % 9, seed);
            options.rendezvous = seed % 2 == 0;
            let size = options.hosts.len();
            let outcome = run(&options, |comm| -> Result<()> {
                let mut sum = [comm.rank() as f64];
                all_sum(&comm, &mut sum)?;
                assert_eq!(sum[0], (size * (size - 1) / 2) as f64);
                let half = comm.split(Some(comm.rank() as u32 % 2), 9 - comm.rank() as u32)?;
                let half = half.expect("a colour");
                half.barrier()?;
                let all = all_gather_bytes(&half, &[comm.rank() as u8])?;
                let mut expected: Vec<Vec<u8>> =
                    (0..size).filter(|r| r % 2 == comm.rank() % 2).map(|r| vec![r as u8]).collect();
                expected.reverse();
                assert_eq!(all, expected);
                comm.barrier()
            });
            assert!(outcome.results.iter().all(Result::is_ok), "seed {seed}: {outcome:?}");
        }
    }

    fn ring(options: &SimOptions) -> SimOutcome<u64, CommError> {
        run(options, |comm| {
            let (next, last) = ((comm.rank() + 1) % comm.size(), comm.rank() + comm.size() - 1);
            let mut sum = comm.rank() as u64;
            let mut out = [sum];
            for _ in 1..comm.size() {
                let mut got = [0u64];
                comm.sendrecv(&out, next, &mut got, last % comm.size(), 1)?;
                sum += got[0];
                out = got;
                comm.point().step(&"added")?;
            }
            Ok(sum)
        })
    }

    #[test]
    fn a_run_is_a_function_of_its_options() {
        let mut options = SimOptions::new(5, 7);
        options.trace = true;
        let (a, b) = (ring(&options), ring(&options));
        assert_eq!(a.trace, b.trace);
        assert_eq!(a.trace.len() as u64, a.steps);
        options.seed = 8;
        assert_ne!(ring(&options).trace, a.trace);
    }

    /// Holds rank 2 back, and records what it sees.
    #[derive(Default)]
    struct LastComesLast {
        steps: Vec<(u64, Vec<ProgramPoint>)>,
        stuck: usize,
        panics: bool,
    }

    impl Conductor for LastComesLast {
        fn at_step(&mut self, step: u64, points: &[ProgramPoint]) {
            self.steps.push((step, points.to_vec()));
        }

        fn choose(&mut self, _: &[ProgramPoint], able: u64, current: usize) -> Option<usize> {
            assert!(!self.panics || self.steps.len() < 5, "the conductor fell over");
            let others = able & !(1 << 2);
            self.stuck += usize::from(others == 0);
            match others >> current & 1 {
                1 => Some(current),
                _ if others != 0 => Some(others.trailing_zeros() as usize),
                _ => Some(2),
            }
        }
    }

    struct Nobody;
    impl Conductor for Nobody {}

    fn conducted<C: Conductor + 'static>(options: &SimOptions, conductor: C) -> (Vec<String>, C) {
        let conductor = Arc::new(Mutex::new(conductor));
        let outcome = run_conducted(options, Some(conductor.clone()), |comm| {
            comm.barrier()?;
            let (next, last) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
            comm.send(&[comm.rank() as u8], next, 1)?;
            let mut got = [9u8];
            comm.recv(&mut got, last, 1)?;
            assert_eq!(usize::from(got[0]), last);
            comm.barrier()
        });
        assert!(outcome.results.iter().all(Result::is_ok), "{outcome:?}");
        let conductor = Arc::into_inner(conductor).expect("the run is over").into_inner();
        (outcome.trace, conductor.expect("in order"))
    }

    #[test]
    fn a_conductor_holds_a_rank_back_until_all_others_are_stuck() {
        let options = SimOptions { trace: true, ..SimOptions::new(3, 4) };
        let (trace, seen) = conducted(&options, LastComesLast::default());
        let of_last = |line: &String| line.contains(" rank 2:");
        let first = trace.iter().position(of_last).expect("it comes to its turn");
        // The others wait in the barrier.
        assert_eq!(first, 2, "{trace:?}");
        assert!(seen.stuck > 2);
        let numbers: Vec<u64> = seen.steps.iter().map(|(step, _)| *step).collect();
        assert_eq!(numbers, (1..=trace.len() as u64).collect::<Vec<_>>());
        for pair in seen.steps.windows(2) {
            let mut points = pair[0].1.iter().zip(&pair[1].1);
            assert!(points.all(|(before, after)| before <= after), "{pair:?}");
        }
    }

    #[test]
    fn passive_conductor_changes_nothing() {
        for seed in 0..50 {
            let options =
                SimOptions { trace: true, rendezvous: seed % 2 == 0, ..SimOptions::new(4, seed) };
            let nobody: Arc<Mutex<dyn Conductor>> = Arc::new(Mutex::new(Nobody));
            let body = |comm: SimComm| all_sum(&comm, &mut [comm.rank() as f64]);
            let (alone, seen) = (run(&options, body), run_conducted(&options, Some(nobody), body));
            assert_eq!(alone.trace, seen.trace);
        }
    }

    #[test]
    #[should_panic(expected = "the conductor fell over")]
    fn a_panic_of_the_conductor_reaches_the_caller() {
        conducted(&SimOptions::new(3, 0), LastComesLast { panics: true, ..Default::default() });
    }

    #[test]
    fn a_death_at_any_step_ends_all_ranks() {
        let steps = ring(&SimOptions::new(4, 1)).steps;
        for linger in [Linger::Steps(0), Linger::Steps(3), Linger::UntilBlocked] {
            for step in 1..=steps {
                let kills = vec![Kill { step, rank: 2 }];
                let outcome = ring(&SimOptions { kills, linger, ..SimOptions::new(4, 1) });
                assert_eq!(outcome.deadlock, None);
                let done = outcome.results[2].is_ok();
                assert_eq!(done, outcome.killed == 0, "step {step}: {outcome:?}");
                assert!(done || matches!(outcome.results[2], Err(CommError::Killed(_))));
            }
        }
    }

    #[test]
    fn a_deadlock_is_reported_not_waited_for() {
        let outcome = run(&SimOptions::new(3, 0), |comm| comm.recv(&mut [0u8], 0, 5));
        assert!(outcome.deadlock.expect("a deadlock").contains("tag 5 from rank 0"));
        let mut options = SimOptions::new(2, 0);
        let head_on = |comm: SimComm| {
            comm.send(&[1u8], 1 - comm.rank(), 0)?;
            comm.recv(&mut [0u8], 1 - comm.rank(), 0)
        };
        assert_eq!(run(&options, head_on).deadlock, None);
        options.rendezvous = true;
        assert!(run(&options, head_on).deadlock.is_some());
    }

    /// Rank 0 sends to rank 1, which first announces that it is about to receive.
    fn one_send(
        rendezvous: bool,
        kills: Vec<Kill>,
        receiver: impl Fn(&SimComm) -> Result<()>,
    ) -> SimOutcome<bool, CommError> {
        let linger = Linger::UntilBlocked;
        let options =
            SimOptions { rendezvous, kills, linger, trace: true, ..SimOptions::new(2, 0) };
        run(&options, |comm| {
            if comm.rank() == 1 {
                receiver(&comm)?;
                return Ok(true);
            }
            let buf = Arc::new(PageBuf::for_messages(1).expect("memory"));
            let mut send = comm.isend(buf.clone(), 0..1, 1, 7)?;
            for _ in 0..20 {
                assert_eq!(send.test()?, !rendezvous, "its receive has not begun");
            }
            comm.send(&[0u8], 1, 8)?;
            comm.recv(&mut [0u8], 1, 9)?;
            let is_complete = send.test()?;
            send.wait()?;
            assert!(Arc::into_inner(buf).is_some(), "the buffer is free");
            Ok(is_complete)
        })
    }

    #[test]
    fn a_send_is_under_way_until_its_receive_begins() {
        let begins = |comm: &SimComm| {
            comm.recv(&mut [0u8], 0, 8)?;
            let buf = PageBuf::for_messages(1).expect("memory");
            let receive = comm.irecv(buf, 0..1, 0, 7)?;
            comm.send(&[0u8], 0, 9)?;
            receive.wait().map(drop)
        };
        for rendezvous in [false, true] {
            let outcome = one_send(rendezvous, vec![], begins);
            assert!(matches!(outcome.results[0], Ok(true)), "{outcome:?}");
        }
        // Without a receive, a send that waits for one never ends.
        let never = |comm: &SimComm| {
            comm.recv(&mut [0u8], 0, 8)?;
            comm.send(&[0u8], 0, 9)
        };
        assert_eq!(one_send(false, vec![], never).deadlock, None);
        assert!(one_send(true, vec![], never).deadlock.is_some());
    }

    /// Predictions of what a death leaves rely on this: only the dead rank's progress decides.
    #[test]
    fn send_to_a_dead_rank_completes_if_its_receive_had_begun() {
        let dies = |comm: &SimComm| {
            comm.recv(&mut [0u8], 0, 8)?;
            let buf = PageBuf::for_messages(1).expect("memory");
            let receive = comm.irecv(buf, 0..1, 0, 7)?;
            comm.send(&[0u8], 0, 9)?;
            comm.point().step(&"the death")?;
            receive.wait().map(drop)
        };
        let trace = one_send(true, vec![], dies).trace;
        let at = trace.iter().position(|line| line.contains("the death")).expect("a step");
        let kill = Kill { step: at as u64 + 1, rank: 1 };
        let outcome = one_send(true, vec![kill], dies);
        assert!(matches!(outcome.results[0], Ok(true)), "{outcome:?}");
        assert!(matches!(outcome.results[1], Err(CommError::Killed(_))), "{outcome:?}");
    }

    #[test]
    #[should_panic(expected = "rank 1 fell over")]
    fn a_panic_reaches_the_caller() {
        run(&SimOptions::new(3, 0), |comm| -> Result<()> {
            comm.barrier()?;
            assert!(comm.rank() != 1, "rank 1 fell over");
            comm.barrier()
        });
    }
}
