//! Two short measurements: the memory of a node, and the link between two nodes.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_host::median::nonempty_median;
use skt_host::thread_clock::thread_cpu_seconds;

use skt_comm::{Comm, CommError, PageBuf, Tag};
use skt_host::counters::{Root, topology};
use skt_host::memory;
use skt_solver::blas::triad;
use skt_solver::team::Team;

/// The processor time of a thread for which the memory is measured, and the least number of passes:
/// other programs on the core make some passes longer, but not all.
const MEMORY_SECONDS: f64 = 0.3;
const MIN_PASSES: usize = 5;
/// How long a link is measured: many time slices of a scheduler.
const LINK_SECONDS: f64 = 1.0;
/// The three arrays of all threads of a node together take this number of times the caches of the
/// last level, which then serve an eighth of the accesses at most.
const TIMES_THE_CACHES: u64 = 8;
/// The least doubles of an array of a thread: 24 MiB for the three, where the caches are not known.
const MIN_DOUBLES: u64 = 1 << 20;
/// The most doubles of an array of a thread, 192 MiB for the three: a virtual machine of a few
/// processors sees the whole cache of its host, and need not fill it to measure what is its own.
const MAX_DOUBLES: u64 = 8 << 20;
/// The share of the free memory that the arrays may take: containers on one host measure at once,
/// and each of them takes the free memory of the host for its own.
const SHARE_OF_MEMORY: u64 = 16;
/// Bytes of the first message, and of the largest, over a link.
const MESSAGE_BYTES: (usize, usize) = (64 << 10, 4 << 20);
const TRIPS: usize = 50;

const TAG_LINK: Tag = 0x162;

/// The bandwidth of the memory with all threads of `team` at work, in 10^9 bytes a second:
/// `a = b + 3 c` on arrays beyond the caches, three doubles a step, as STREAM counts them. The node
/// has `threads` threads at work in all. `None` when there is no memory for it.
pub(crate) fn memory_gigabytes_a_second(team: &Team, threads: usize) -> Option<f64> {
    let caches_bytes = topology::last_level_bytes(&Root::this_machine());
    let doubles = doubles_of_arrays(caches_bytes, memory::this_process().free_bytes(), threads);
    let all = Mutex::new(Some(0.0));
    let of_thread = |_thread: usize| {
        let rate = triad(doubles);
        let mut all = all.lock().expect("no thread panics");
        *all = all.zip(rate).map(|(all, rate)| all + rate);
    };
    team.fork(&of_thread, || ());
    all.into_inner().expect("no thread panics")
}

/// Doubles of each of the three arrays of one of `threads` threads.
fn doubles_of_arrays(caches_bytes: Option<u64>, free_bytes: Option<u64>, threads: usize) -> usize {
    let each = |bytes: u64| bytes / (3 * size_of::<f64>() as u64 * threads as u64);
    let wanted = each(TIMES_THE_CACHES * caches_bytes.unwrap_or(0)).clamp(MIN_DOUBLES, MAX_DOUBLES);
    let most = free_bytes.map_or(u64::MAX, |bytes| each(bytes / SHARE_OF_MEMORY));
    wanted.min(most.max(MIN_DOUBLES)) as usize
}

/// The bandwidth of this thread, on arrays of `doubles` doubles: that of its fastest pass, as
/// STREAM takes it. Another program makes some passes slow, a bad memory all of them.
fn triad(doubles: usize) -> Option<f64> {
    let array = |value: f64| {
        let mut array = Vec::new();
        array.try_reserve_exact(doubles).ok()?;
        // This thread touches the pages first, so they are near it.
        array.resize(doubles, value);
        Some(array)
    };
    let (mut a, b, c) = (array(0.0)?, array(1.0)?, array(2.0)?);
    let (start, mut passes, mut fastest_seconds) = (thread_cpu_seconds(), 0, f64::INFINITY);
    while passes < MIN_PASSES || thread_cpu_seconds() - start < MEMORY_SECONDS {
        let pass = Instant::now();
        triad::pass(3.0, &c, &b, &mut a);
        std::hint::black_box(&mut a);
        fastest_seconds = pass.elapsed().as_secs_f64().max(1e-9).min(fastest_seconds);
        passes += 1;
    }
    Some((3 * doubles * size_of::<f64>()) as f64 / fastest_seconds / 1e9)
}

/// A link, as both its ends measure it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkRate {
    /// 10^9 bytes a second in each direction, both at once.
    pub gigabytes_a_second: f64,
    /// Microseconds for 8 bytes in one direction.
    pub microseconds: f64,
}

/// Measures the link to rank `other`; both ranks call this. The messages grow while they are quick,
/// so a slow link takes about as long as a fast one.
pub(crate) fn link(comm: &Comm, other: usize) -> Result<LinkRate, CommError> {
    let [least, most] = [MESSAGE_BYTES.0, MESSAGE_BYTES.1].map(|bytes| bytes / size_of::<f64>());
    let buffer = || {
        let failed = |why: std::io::Error| CommError::Transport {
            call: "screen",
            what: format!("no memory for a message: {why}"),
        };
        PageBuf::new(most).map_err(failed)
    };
    let (out, mut into) = (Arc::new(buffer()?), buffer()?);
    // The messages own their buffers: nothing is copied but what the transport copies.
    let trip = |len: usize, into: PageBuf| -> Result<(f64, PageBuf), CommError> {
        let start = Instant::now();
        let recv = comm.irecv(into, 0..len, other, TAG_LINK)?;
        let send = comm.isend(Arc::clone(&out), 0..len, other, TAG_LINK)?;
        let into = recv.wait()?;
        send.wait()?;
        Ok((start.elapsed().as_secs_f64().max(1e-9), into))
    };
    let mut seconds;
    let mut trips = Vec::new();
    for _ in 0..TRIPS {
        (seconds, into) = trip(1, into)?;
        trips.push(seconds);
    }
    let microseconds = nonempty_median(trips) * 1e6;
    let (mut len, mut rates) = (least, Vec::new());
    let start = Instant::now();
    loop {
        (seconds, into) = trip(len, into)?;
        rates.push((len * size_of::<f64>()) as f64 / seconds / 1e9);
        // Both ranks must do the same next: the slower clock decides.
        let mine = [start.elapsed().as_secs_f64(), seconds];
        let mut theirs = [0.0; 2];
        comm.sendrecv(&mine, other, &mut theirs, other, TAG_LINK)?;
        if mine[0].max(theirs[0]) > LINK_SECONDS {
            break;
        }
        if len < most && mine[1].max(theirs[1]) < LINK_SECONDS / 16.0 {
            len *= 2;
            rates.clear();
        }
    }
    Ok(LinkRate { gigabytes_a_second: nonempty_median(rates), microseconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads::run as run_ranks;

    #[test]
    fn arrays_are_beyond_the_caches_within_the_free_memory() {
        let (gib, mib) = (1 << 30, 1 << 20);
        assert_eq!(doubles_of_arrays(None, None, 4), mib);
        assert_eq!(doubles_of_arrays(Some(3 << 20), Some(gib), 64), mib, "never less");
        // 768 MiB of stacked caches, for two threads and for 96.
        let caches = Some(768 << 20);
        assert_eq!(doubles_of_arrays(caches, Some(256 * gib), 2), 8 * mib, "never more");
        assert_eq!(doubles_of_arrays(caches, Some(256 * gib), 96), 128 * mib / 48);
        assert_eq!(doubles_of_arrays(caches, Some(3 * gib), 2), 4 * mib, "a sixteenth is taken");
    }

    #[test]
    fn memory_and_links_have_plausible_rates() {
        let rate = memory_gigabytes_a_second(&Team::solo(), 1).expect("memory");
        assert!((1e-3..1e4).contains(&rate), "{rate}");
        let rates = run_ranks(2, |world| link(&world, 1 - world.rank()));
        for rate in rates.into_iter().map(Result::unwrap) {
            // On a busy machine each message waits for a turn of the scheduler.
            assert!((1e-6..1e4).contains(&rate.gigabytes_a_second), "{rate:?}");
            assert!((1e-3..1e6).contains(&rate.microseconds), "{rate:?}");
        }
    }
}
