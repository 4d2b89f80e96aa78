//! Ranks with clocks, under a simulated network: they predict how long a run takes on a machine
//! that is not available.
//!
//! Every rank is a fiber of one thread, and one runs at a time. Its clock advances by its calls,
//! and by the work between two calls, which a [`Meter`] measures:
//!
//! ```text
//! send          call_seconds; then the message leaves as soon as the rank's port is free
//! on its way    message_seconds - 2 x call_seconds, then bytes x byte_seconds into the other port
//! receive       until the message has arrived; then call_seconds
//! test, probe   call_seconds; sees what has arrived by then, and nothing of the future
//! barrier       until the last rank has come; then log2(ranks) empty messages
//! ```
//!
//! Each rank has its own port, which sends one message at a time and receives one at a time:
//! messages that reach it together queue up in the order in which they reach it. A message enters
//! the receiver's port while it leaves the sender's. Data moves without the processors, so no rank
//! has to progress it ([`Transport::needs_calls`]). Queues inside the network and shared ports are
//! not modelled.
//!
//! The clocks decide what a rank sees, not the order in which ranks run: with an exact meter the
//! time is exact, too. Whenever a rank stops, the rank with the least clock continues (a
//! conservative discrete-event simulation), so nothing can arrive in its past. A rank that only
//! sends, or receives what has arrived, runs ahead of the others, since nothing that it does
//! depends on them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::Display;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use skt_comm::copied::{Key, Place, Receiving, SplitArgs, copy_message};
use skt_comm::{Comm, CommError, PageBuf, RecvRequest, Result, SendRequest, Tag, Transport};

use crate::ranks::{MeetingId, Meetings, run_all, switch};

/// Picoseconds: whole numbers are ordered, and their sum does not depend on the order.
pub type Ticks = u64;

const TICKS_PER_SECOND: f64 = 1e12;

/// Measures the work that the calling thread has done so far; never falls.
pub type Meter = fn() -> Ticks;

/// This machine's: the processor time of the thread.
pub fn processor_time() -> Ticks {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("a clock of each thread");
    Duration::from(now).as_nanos() as Ticks * 1000
}

/// The meter of processors that take no time: only messages take time.
pub fn no_work() -> Ticks {
    0
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Of an empty message, from the call that sends it to the return of the call that receives it.
    pub message_seconds: f64,
    /// Seconds of a byte through a port.
    pub byte_seconds: f64,
    /// Seconds that a call occupies its rank. The sending and the receiving call are parts of
    /// `message_seconds`.
    pub call_seconds: f64,
}

#[derive(Clone, Copy)]
struct NetworkTicks {
    call: Ticks,
    wire: Ticks,
    byte: f64,
}

impl Network {
    fn costs(&self) -> NetworkTicks {
        let ticks = |seconds: f64| (seconds * TICKS_PER_SECOND).round() as Ticks;
        let times = [self.message_seconds, self.byte_seconds, self.call_seconds];
        assert!(times.iter().all(|time| time.is_finite() && *time >= 0.0), "{self:?}");
        let (call, message) = (ticks(self.call_seconds), ticks(self.message_seconds));
        let wire = message.checked_sub(2 * call).expect("two calls are a part of a message");
        NetworkTicks { call, wire, byte: self.byte_seconds * TICKS_PER_SECOND }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Doing {
    Ready,
    Awaits(Key),
    /// The rank is in a barrier or a split.
    Meets,
    Ended,
}

struct Rank {
    clock: Ticks,
    /// How many times as fast as the meter the rank works.
    speed: f64,
    /// The meter's value when the last call returned.
    metered: Ticks,
    /// When the sending and the receiving side of the rank's port are free again.
    out_free: Ticks,
    in_free: Ticks,
    /// The messages that have passed the receiving side of the port or will pass it, each with its
    /// arrival time.
    inbox: HashMap<Key, VecDeque<(Ticks, Vec<u8>)>>,
    doing: Doing,
}

/// The first byte of a message that reaches a port.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    at: Ticks,
    /// Orders messages with the same `at` as they were sent.
    number: u64,
    dest: usize,
    key: Key,
    /// Time that all bytes of the message take through a port.
    length: Ticks,
    data: Vec<u8>,
}

struct State {
    ranks: Vec<Rank>,
    ready: BinaryHeap<Reverse<(Ticks, usize)>>,
    heads: BinaryHeap<Reverse<Head>>,
    sent: u64,
    meetings: Meetings,
    /// When the last rank so far has come to each meeting.
    latest: HashMap<MeetingId, Ticks>,
    aborted: Option<String>,
}

struct World {
    costs: NetworkTicks,
    meter: Meter,
    /// The ticks that reading the meter adds to it.
    meter_ticks: Ticks,
    state: Mutex<State>,
    epoch: Instant,
}

impl State {
    fn check(&self) -> Result<()> {
        self.aborted.clone().map_or(Ok(()), |reason| Err(CommError::aborted(reason)))
    }

    fn abort(&mut self, reason: &str) -> CommError {
        let reason = self.aborted.get_or_insert_with(|| reason.to_owned()).clone();
        for rank in 0..self.ranks.len() {
            if matches!(self.ranks[rank].doing, Doing::Awaits(_) | Doing::Meets) {
                self.wake(rank, 0);
            }
        }
        CommError::aborted(reason)
    }

    /// Makes a rank continue at `at`, or at its own clock if that is later.
    fn wake(&mut self, rank: usize, at: Ticks) {
        let Rank { clock, doing, .. } = &mut self.ranks[rank];
        (*clock, *doing) = ((*clock).max(at), Doing::Ready);
        self.ready.push(Reverse((*clock, rank)));
    }

    /// Puts a message into the port, after those that reached it before.
    fn deliver(&mut self, Head { at, dest, key, length, data, .. }: Head) {
        let rank = &mut self.ranks[dest];
        let arrival = at.max(rank.in_free) + length;
        rank.in_free = arrival;
        rank.inbox.entry(key).or_default().push_back((arrival, data));
        if rank.doing == Doing::Awaits(key) {
            self.wake(dest, arrival);
        }
    }

    /// Returns the ready rank with the least clock, and first puts every message that has reached a
    /// port by then into its inbox; `None` when all have ended.
    fn next(&mut self) -> Option<usize> {
        loop {
            let least = self.ready.peek().map(|Reverse((clock, _))| *clock);
            if self.heads.peek().is_some_and(|Reverse(head)| least.is_none_or(|at| head.at <= at)) {
                let Reverse(head) = self.heads.pop().expect("just seen");
                self.deliver(head);
            } else if let Some(Reverse((_, rank))) = self.ready.pop() {
                return Some(rank);
            } else if self.ranks.iter().all(|rank| rank.doing == Doing::Ended) {
                return None;
            } else {
                let waits = self.ranks.iter().map(|rank| &rank.doing).enumerate();
                let waits: Vec<_> = waits.filter(|(_, doing)| **doing != Doing::Ended).collect();
                self.abort(&format!("deadlock: {waits:?}"));
            }
        }
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A rank that panics in a call leaves no half-made change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call of rank `me`: adds its work since the last call to its clock.
    fn turn(&self, me: usize) -> Result<Turn<'_>> {
        if std::thread::panicking() {
            return Err(CommError::aborted("this rank panicked"));
        }
        let metered = (self.meter)();
        let mut state = self.lock();
        let rank = &mut state.ranks[me];
        assert!(metered >= rank.metered, "a rank calls on its own thread alone");
        let work = (metered - rank.metered).saturating_sub(self.meter_ticks);
        rank.clock += (work as f64 / rank.speed).round() as Ticks;
        rank.metered = metered;
        state.check()?;
        Ok(Turn { world: self, me, state: Some(state) })
    }

    /// Ends a rank and returns the rank that continues; after the last, the number of ranks.
    fn leave(&self, rank: usize, failure: Option<&str>) -> usize {
        let mut state = self.lock();
        state.ranks[rank].doing = Doing::Ended;
        if let Some(failure) = failure {
            state.abort(failure);
        }
        state.next().unwrap_or(state.ranks.len())
    }
}

struct Turn<'w> {
    world: &'w World,
    me: usize,
    /// `None` only while another rank runs.
    state: Option<MutexGuard<'w, State>>,
}

impl Turn<'_> {
    fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("this rank runs")
    }

    fn rank(&mut self) -> &mut Rank {
        let me = self.me;
        &mut self.state().ranks[me]
    }

    fn call(&mut self) {
        self.rank().clock += self.world.costs.call;
    }

    /// Lets the others run until this rank is woken and has the least clock.
    fn stop(&mut self, doing: Doing) -> Result<()> {
        let mut state = self.state.take().expect("this rank runs");
        if doing == Doing::Ready {
            state.wake(self.me, 0);
        } else {
            state.ranks[self.me].doing = doing;
        }
        let next = state.next().expect("this rank has not ended");
        drop(state);
        switch(self.me, next);
        self.state.insert(self.world.lock()).check()
    }

    /// The arrival, past or future, of the first message with this key that has not been received.
    fn arrival(&mut self, key: Key) -> Option<Ticks> {
        self.rank().inbox.get(&key)?.front().map(|(arrival, _)| *arrival)
    }

    fn wait_for_arrival(&mut self, key: Key) -> Result<()> {
        if self.arrival(key).is_none() {
            self.stop(Doing::Awaits(key))?;
        }
        let arrival = self.arrival(key).expect("what it was woken for");
        self.wait_until(arrival);
        Ok(())
    }

    fn wait_until(&mut self, at: Ticks) {
        let rank = self.rank();
        rank.clock = rank.clock.max(at);
    }

    /// Sends a message. Returns the time at which its last byte leaves the port.
    fn post(&mut self, dest: usize, key: Key, data: &[u8]) -> Ticks {
        self.call();
        let NetworkTicks { wire, byte, .. } = self.world.costs;
        let length = (data.len() as f64 * byte).round() as Ticks;
        let rank = self.rank();
        let start = rank.clock.max(rank.out_free);
        rank.out_free = start + length;
        let state = self.state();
        let (at, number, data) = (start + wire, state.sent, data.to_vec());
        state.sent += 1;
        state.heads.push(Reverse(Head { at, number, dest, key, length, data }));
        start + length
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let meter = self.world.meter;
        self.rank().metered = meter();
    }
}

/// Runs `body` as `size` ranks, and returns the result of each. An error or a panic of one rank
/// aborts all the others, and so does a deadlock. Panics when a rank did, after all have ended,
/// when a time of the network is negative or not finite, and when two calls take longer than a
/// message.
pub fn run<T, E, F>(
    size: usize,
    network: &Network,
    meter: Meter,
    body: F,
) -> Vec<std::result::Result<T, E>>
where
    E: Display,
    F: Fn(Comm) -> std::result::Result<T, E>,
{
    run_at_speeds(&vec![1.0; size], network, meter, body)
}

/// As [`run`], with a rank for each of `speeds`, above 0: rank i takes 1 / `speeds[i]` of the time
/// that the meter measures for its work. Messages take the same time for all.
pub fn run_at_speeds<T, E, F>(
    speeds: &[f64],
    network: &Network,
    meter: Meter,
    body: F,
) -> Vec<std::result::Result<T, E>>
where
    E: Display,
    F: Fn(Comm) -> std::result::Result<T, E>,
{
    run_ranks(speeds, network, meter, |rank| body(Comm::new(rank)))
}

fn run_ranks<T, E: Display>(
    speeds: &[f64],
    network: &Network,
    meter: Meter,
    body: impl Fn(ClockedComm) -> std::result::Result<T, E>,
) -> Vec<std::result::Result<T, E>> {
    assert!(speeds.iter().all(|speed| *speed > 0.0 && speed.is_finite()), "{speeds:?}");
    let size = speeds.len();
    let rank = |&speed: &f64| Rank {
        clock: 0,
        speed,
        metered: 0,
        out_free: 0,
        in_free: 0,
        inbox: HashMap::new(),
        doing: Doing::Ready,
    };
    let state = State {
        ranks: speeds.iter().map(rank).collect(),
        ready: (0..size).map(|rank| Reverse((0, rank))).collect(),
        heads: BinaryHeap::new(),
        sent: 0,
        meetings: Meetings::default(),
        latest: HashMap::new(),
        aborted: None,
    };
    let world = Arc::new(World {
        costs: network.costs(),
        meter,
        meter_ticks: (0..100).map(|_| (meter(), meter())).map(|(a, b)| b - a).min().unwrap_or(0),
        state: Mutex::new(state),
        epoch: Instant::now(),
    });
    let place = Place::in_world(size);
    let first = world.lock().next().expect("none has ended");
    let ended = run_all(
        size,
        first,
        |rank| {
            world.lock().ranks[rank].metered = meter();
            body(ClockedComm { world: world.clone(), place: place(rank) })
        },
        |rank, failure| world.leave(rank, failure),
    );
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

#[derive(Clone)]
struct ClockedComm {
    world: Arc<World>,
    place: Place,
}

/// A send whose bytes are leaving the port.
struct Leaving {
    world: Arc<World>,
    me: usize,
    gone: Ticks,
}

impl SendRequest for Leaving {
    fn test(&mut self) -> Result<bool> {
        let mut turn = self.world.turn(self.me)?;
        turn.call();
        Ok(turn.rank().clock >= self.gone)
    }

    fn wait(self: Box<Self>) -> Result<()> {
        self.world.turn(self.me)?.wait_until(self.gone);
        Ok(())
    }
}

impl ClockedComm {
    fn me(&self) -> usize {
        self.place.me()
    }

    fn turn(&self) -> Result<Turn<'_>> {
        self.world.turn(self.me())
    }

    fn post(&self, data: &[u8], dest: usize, tag: Tag) -> Result<Ticks> {
        Ok(self.turn()?.post(self.place.members[dest], self.place.key(self.rank(), tag), data))
    }

    /// Waits until all members have called it. Returns the colours and keys of all, and the first
    /// of the numbers for new groups.
    fn meet(&self, mine: SplitArgs) -> Result<(Vec<SplitArgs>, u32)> {
        let mut turn = self.turn()?;
        let clock = turn.rank().clock;
        let state = turn.state();
        let (id, all_are_here) = state.meetings.enter(&self.place, mine);
        let latest = state.latest.entry(id).or_default();
        *latest = clock.max(*latest);
        if all_are_here {
            let levels = Ticks::from(self.size().next_power_of_two().ilog2());
            let costs = self.world.costs;
            let end = *latest + levels * (costs.wire + 2 * costs.call);
            state.latest.remove(&id);
            let others = self.place.members.iter().filter(|&&member| member != self.me());
            others.for_each(|&member| state.wake(member, end));
            turn.wait_until(end);
        } else {
            turn.stop(Doing::Meets)?;
        }
        Ok(turn.state().meetings.leave(id).expect("all have come"))
    }
}

impl Transport for ClockedComm {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.members.len()
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        let (args, base) = self.meet((color, key))?;
        let place = self.place.after_split(&args, base);
        Ok(place.map(|place| Comm::new(Self { world: self.world.clone(), place })))
    }

    /// Returns when the bytes have left the port.
    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
        let gone = self.post(data, dest, tag)?;
        self.turn()?.wait_until(gone);
        Ok(())
    }

    fn recv_bytes(&self, data: &mut [u8], source: usize, tag: Tag) -> Result<()> {
        let (key, mut turn) = (self.place.key(source, tag), self.turn()?);
        turn.wait_for_arrival(key)?;
        turn.call();
        let queue = turn.rank().inbox.get_mut(&key).expect("it has arrived");
        let (_, message) = queue.pop_front().expect("it has arrived");
        copy_message(&message, data, source, tag)
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()> {
        let mut gone = 0;
        for &(data, dest, tag) in sends {
            gone = self.post(data, dest, tag)?;
        }
        for (data, source, tag) in recvs {
            self.recv_bytes(data, *source, *tag)?;
        }
        self.turn()?.wait_until(gone);
        Ok(())
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>> {
        let gone = self.post(bytemuck::cast_slice(&buf[range]), dest, tag)?;
        Ok(Box::new(Leaving { world: self.world.clone(), me: self.me(), gone }))
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
        let (key, mut turn) = (self.place.key(source, tag), self.turn()?);
        turn.call();
        if turn.arrival(key).is_none() {
            turn.stop(Doing::Ready)?;
        }
        let clock = turn.rank().clock;
        Ok(turn.arrival(key).is_some_and(|arrival| arrival <= clock))
    }

    fn await_message(&self, source: usize, tag: Tag) -> Result<()> {
        self.turn()?.wait_for_arrival(self.place.key(source, tag))
    }

    fn barrier(&self) -> Result<()> {
        self.meet((None, 0)).map(drop)
    }

    fn host(&self) -> String {
        format!("simulated{}", self.me())
    }

    fn abort(&self, reason: &str, _exit_code: i32) -> CommError {
        self.world.lock().abort(reason)
    }

    fn now(&self) -> Instant {
        let ticks = self.turn().map_or(0, |mut turn| turn.rank().clock);
        self.world.epoch + Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
    }

    fn needs_calls(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use skt_comm::collect::{all_gather_bytes, all_sum};

    use super::*;

    const NETWORK: Network =
        Network { message_seconds: 10.0, byte_seconds: 2.0, call_seconds: 1.0 };

    thread_local! {
        static WORK: Cell<Ticks> = const { Cell::new(0) };
        static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    fn work(seconds: u64) {
        WORK.set(WORK.get() + seconds * TICKS_PER_SECOND as Ticks);
    }

    /// The ranks work for the prescribed time. Returns their clocks at the end, in seconds.
    fn clocks(size: usize, body: impl Fn(&Comm) -> Result<()> + Sync) -> Vec<f64> {
        let ended = clocks_at_speeds(&vec![1.0; size], body);
        ended.into_iter().map(|end| end.unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    fn clocks_at_speeds(speeds: &[f64], body: impl Fn(&Comm) -> Result<()>) -> Vec<Result<f64>> {
        run_ranks(
            speeds,
            &NETWORK,
            || WORK.get(),
            |rank| {
                EPOCH.set(Some(rank.world.epoch));
                let comm = Comm::new(rank);
                body(&comm)?;
                Ok(seconds(&comm))
            },
        )
    }

    fn seconds(comm: &Comm) -> f64 {
        (comm.now() - EPOCH.get().expect("a run")).as_secs_f64()
    }

    fn buffer(doubles: usize) -> PageBuf {
        PageBuf::new(doubles).expect("memory")
    }

    #[test]
    fn there_and_back_takes_two_messages() {
        for bytes in [0, 1, 100] {
            let ends = clocks(2, |comm| {
                let (mut data, other) = (vec![0u8; bytes], 1 - comm.rank());
                if comm.rank() == 0 {
                    comm.send(&data, other, 1)?;
                    return comm.recv(&mut data, other, 1);
                }
                comm.recv(&mut data, other, 1)?;
                comm.send(&data, other, 1)
            });
            // Rank 1 ends when its second message has left its port: its time lacks the wire and
            // the receive.
            let there = 10.0 + 2.0 * bytes as f64;
            assert_eq!(ends, [2.0 * there, 2.0 * there - 9.0], "{bytes} bytes");
        }
    }

    #[test]
    fn an_exchange_goes_both_ways_at_once() {
        let ends = clocks(2, |comm| {
            let other = 1 - comm.rank();
            comm.sendrecv(&[0u8; 50], other, &mut [0u8; 50], other, 1)
        });
        assert_eq!(ends, [110.0; 2]);
    }

    #[test]
    fn work_hides_a_message_as_far_as_it_is_long_enough() {
        for worked in [0, 40, 87, 88, 200] {
            let ends = clocks(2, |comm| {
                if comm.rank() == 0 {
                    let sent = comm.isend(Arc::new(buffer(5)), 0..5, 1, 1)?;
                    // The port sends, not the processor.
                    assert_eq!(seconds(comm), 1.0);
                    return sent.wait();
                }
                let mut recv = comm.irecv(buffer(5), 0..5, 0, 1)?;
                work(worked);
                // It arrives at 89; the test takes a second.
                assert_eq!(recv.test()?, worked >= 88, "{worked} s of work");
                recv.wait().map(drop)
            });
            let end = if worked >= 88 { worked as f64 + 2.0 } else { 90.0 };
            assert_eq!(ends, [81.0, end], "{worked} s of work");
        }
    }

    #[test]
    fn a_port_sends_one_message_at_a_time() {
        let ends = clocks(4, |comm| {
            if comm.rank() > 0 {
                return comm.recv(&mut [0u8; 8], 0, 1);
            }
            let buf = Arc::new(buffer(1));
            let sends: Vec<_> = (1..4).map(|to| comm.isend(buf.clone(), 0..1, to, 1)).collect();
            assert_eq!(seconds(comm), 3.0);
            sends.into_iter().try_for_each(|send| send?.wait())
        });
        // The messages leave at 1, 17 and 33, and take 8 s on the wire and 16 s in the other port.
        assert_eq!(ends, [49.0, 26.0, 42.0, 58.0]);
    }

    #[test]
    fn a_port_receives_one_message_at_a_time() {
        let ends = clocks(4, |comm| {
            if comm.rank() > 0 {
                return comm.send(&[0u8; 8], 0, 1);
            }
            (1..4).rev().try_for_each(|from| comm.recv(&mut [0u8; 8], from, 1))
        });
        // The last message is through the port at 9 + 3 * 16.
        assert_eq!(ends, [60.0, 17.0, 17.0, 17.0]);
    }

    /// A message that waits in the sender's port does not delay the receiver's port.
    #[test]
    fn port_receives_messages_in_order_of_arrival() {
        let ends = clocks(3, |comm| match comm.rank() {
            0 => {
                comm.recv(&mut [0u8; 8], 1, 1)?;
                comm.recv(&mut [0u8; 8], 2, 1)
            }
            1 => {
                let buf = Arc::new(buffer(6));
                comm.isend(buf.clone(), 0..6, 2, 1)?;
                comm.isend(buf, 0..1, 0, 1)?.wait()
            }
            _ => {
                work(20);
                comm.send(&[0u8; 8], 0, 1)?;
                comm.recv(&mut [0u8; 48], 1, 1)
            }
        });
        assert_eq!(ends, [123.0, 113.0, 106.0]);
    }

    #[test]
    fn probe_sees_past_messages_and_no_future_ones() {
        for poller in 0..2 {
            clocks(2, |comm| {
                if comm.rank() != poller {
                    work(5);
                    return comm.send(&[0u8; 3], poller, 1);
                }
                let mut probes = 1;
                while !comm.probe(1 - poller, 1)? {
                    probes += 1;
                }
                // Sent at 6, at the port at 14, received at 20; a probe takes a second.
                assert_eq!((probes, seconds(comm)), (20, 20.0));
                comm.await_message(1 - poller, 1)?;
                assert_eq!(seconds(comm), 20.0);
                comm.recv(&mut [0u8; 3], 1 - poller, 1)
            });
        }
    }

    #[test]
    fn a_barrier_ends_for_all_when_the_last_has_come() {
        let ends = clocks(5, |comm| {
            work(3 * comm.rank() as u64);
            comm.barrier()
        });
        assert_eq!(ends, [42.0; 5]);
    }

    #[test]
    fn collectives_work_and_take_the_same_time_twice() {
        for size in [1, 2, 7, 200] {
            let all = || {
                clocks(size, |comm| {
                    work(comm.rank() as u64 * 7 % 5);
                    let mut sum = [comm.rank() as f64];
                    all_sum(comm, &mut sum)?;
                    assert_eq!(sum[0], (size * (size - 1) / 2) as f64);
                    let rank = comm.rank() as u32;
                    let part = comm.split(Some(rank % 3), size as u32 - rank)?.expect("a colour");
                    let all = all_gather_bytes(&part, &[rank as u8])?;
                    let members = (0..size).rev().filter(|r| r % 3 == comm.rank() % 3);
                    assert_eq!(all, members.map(|r| vec![r as u8]).collect::<Vec<_>>());
                    part.barrier()
                })
            };
            assert_eq!(all(), all());
        }
    }

    #[test]
    fn a_rank_works_at_its_speed() {
        let ends = clocks_at_speeds(&[1.0, 0.5, 4.0], |_| {
            work(12);
            Ok(())
        });
        assert_eq!(ends.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [12.0, 24.0, 3.0]);
    }

    /// A clock advances by the processor time between the end of one call and the beginning of the
    /// next: by no more than what passes around both, by no less than what passes between them.
    #[test]
    fn processor_time_is_the_meter_of_this_machine() {
        const WORK: Ticks = TICKS_PER_SECOND as Ticks / 100;
        let network = Network { call_seconds: 0.0, ..NETWORK };
        let ends = run_ranks(&[1.0; 2], &network, processor_time, |comm| {
            let clock = || Ok::<_, CommError>(comm.turn()?.rank().clock);
            let around = processor_time();
            let begin = clock()?;
            let between = processor_time();
            while comm.rank() == 1 && processor_time() - between < WORK {}
            // Takes no processor time.
            std::thread::sleep(Duration::from_millis(20));
            let between = processor_time() - between;
            let clock = clock()? - begin;
            let around = processor_time() - around;
            Ok::<_, CommError>((between.saturating_sub(comm.world.meter_ticks), clock, around))
        });
        for end in ends {
            let (between, clock, around) = end.expect("no error");
            assert!((between..=around).contains(&clock), "{between} {clock} {around}");
        }
    }

    #[test]
    fn a_deadlock_is_an_error_of_all() {
        let ends = run(3, &NETWORK, no_work, |comm| match comm.rank() {
            0 => comm.barrier(),
            _ => comm.recv(&mut [0u8], 0, 5),
        });
        for end in ends {
            let error = end.expect_err("a deadlock").to_string();
            assert!(error.contains("deadlock: [(0, Meets), (1, Awaits((0, 0, 5)))"), "{error}");
        }
    }

    #[test]
    fn an_error_of_one_rank_aborts_the_others() {
        let ends = run(3, &NETWORK, no_work, |comm| match comm.rank() {
            1 => Err(comm.abort("no more", 1)),
            _ => comm.barrier(),
        });
        assert!(ends.iter().all(|end| *end == Err(CommError::aborted("no more"))));
    }

    #[test]
    #[should_panic(expected = "rank 1 fell over")]
    fn a_panic_reaches_the_caller() {
        let _ = run(3, &NETWORK, no_work, |comm| {
            comm.barrier()?;
            assert!(comm.rank() != 1, "rank 1 fell over");
            comm.barrier()
        });
    }
}
