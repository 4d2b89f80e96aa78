//! Measures the links between the hosts of a test, before its clock starts and after it stops.
//!
//! The first rank of each host sends a message to that of another one and gets it back, while both
//! wait for nothing else. So the time depends neither on what a rank computes nor on clocks. Each
//! host does so with three others at most, in the rounds of a tournament: however many hosts there
//! are, a sample takes as long as three pairs.

use std::collections::BTreeSet;

use skt_host::tournament;

use skt_comm::{Comm, CommError, Tag, collect};
use skt_health::slow::links::{Links, MIN_LINKS, SAMPLES, SlowLink, Times, judge};

const TAG_TRIP: Tag = 0x171;
/// Number of hosts that a host exchanges messages with: two more links at each end distinguish a
/// slow link from a slow host.
const ROUNDS: usize = 3;
/// Doubles of a message, 64 KiB: it takes long both where the latency is large and where the
/// bandwidth is small.
const DOUBLES: usize = 8192;
/// Round trips of which the quickest counts: an interrupt or another process delays a few of them.
const TRIPS: usize = 20;
/// No further trip is begun after this time, so that a slow link does not hold up the others.
const LONGEST_SECONDS: f64 = 0.1;

/// The links of a test, on one rank.
pub(crate) struct LinkWatch<'c> {
    comm: &'c Comm,
    /// The pair of this rank in each round, if it is the first rank of its host.
    pairs: Vec<Option<[usize; 2]>>,
    message: Vec<f64>,
    /// On rank 0: all links.
    links: Links,
    /// On rank 0: the first rank of each host.
    firsts: Vec<usize>,
    /// On rank 0: the times before the clock started.
    before: Vec<Times>,
    /// On rank 0: the links that were slow before the clock started.
    pub slow_before: Vec<SlowLink>,
}

impl<'c> LinkWatch<'c> {
    /// Measures the links before a test. `hosts` are those of all ranks, on rank 0. `None`, on all
    /// ranks, where there are too few links to compare them. Collective.
    pub(crate) fn begin(comm: &'c Comm, hosts: &[&str]) -> Result<Option<Self>, CommError> {
        let mut seen = BTreeSet::new();
        let ranks = (0..hosts.len() as u64).filter(|rank| seen.insert(hosts[*rank as usize]));
        let ranks: Vec<u64> = ranks.collect();
        let mut bytes = bytemuck::cast_slice(&ranks).to_vec();
        collect::broadcast_bytes(comm, &mut bytes, 0)?;
        let firsts: Vec<u64> = bytemuck::allocation::pod_collect_to_vec(&bytes);
        let firsts: Vec<usize> = firsts.into_iter().map(|rank| rank as usize).collect();
        let rounds = tournament::rounds(firsts.len(), ROUNDS);
        let ends = rounds.concat();
        if ends.len() < MIN_LINKS {
            return Ok(None);
        }
        let of_this_rank = |round: &Vec<[usize; 2]>| {
            let mut pairs = round.iter().map(|pair| pair.map(|host| firsts[host]));
            pairs.find(|pair| pair.contains(&comm.rank()))
        };
        let pairs = rounds.iter().map(of_this_rank).collect();
        let hosts = firsts.iter().filter_map(|&rank| hosts.get(rank));
        let links = Links { hosts: hosts.map(|host| (*host).to_owned()).collect(), ends };
        let (message, before, slow_before) = (vec![0.0; DOUBLES], Vec::new(), Vec::new());
        let mut watch = Self { comm, pairs, message, links, firsts, before, slow_before };
        watch.before = watch.measure()?;
        watch.slow_before = judge(&watch.links, &watch.before, &watch.before);
        Ok(Some(watch))
    }

    /// Measures the links after the test. Returns the slow ones on rank 0. Collective.
    pub(crate) fn finish(mut self) -> Result<Vec<SlowLink>, CommError> {
        let after = self.measure()?;
        Ok(judge(&self.links, &self.before, &after))
    }

    /// On rank 0, the times of all links. Collective.
    fn measure(&mut self) -> Result<Vec<Times>, CommError> {
        let (comm, me) = (self.comm, self.comm.rank());
        let mut own = vec![Times::default(); self.pairs.len()];
        for sample in 0..SAMPLES {
            for (pair, times) in self.pairs.iter().zip(&mut own) {
                match *pair {
                    Some([first, other]) if first == me => {
                        times[sample] = trip_seconds(comm, other, &mut self.message)?;
                    }
                    Some([first, _]) => answer(comm, first, &mut self.message)?,
                    None => {}
                }
            }
        }
        let is_mine = |pair: &Option<[usize; 2]>| pair.is_some_and(|[first, _]| first == me);
        let pairs = self.pairs.iter().zip(own);
        let own: Vec<Times> =
            pairs.filter(|(pair, _)| is_mine(pair)).map(|(_, times)| times).collect();
        let all = collect::gather_bytes(comm, bytemuck::cast_slice(&own), 0)?;
        let all = all.unwrap_or_default().into_iter();
        let of_rank = |bytes: Vec<u8>| bytemuck::allocation::pod_collect_to_vec(&bytes).into_iter();
        let mut all: Vec<std::vec::IntoIter<Times>> = all.map(of_rank).collect();
        let mut next = |[first, _]: &[usize; 2]| all.get_mut(self.firsts[*first])?.next();
        Ok(self.links.ends.iter().filter_map(&mut next).collect())
    }
}

/// The seconds of half a round trip to rank `other`, which calls [`answer`]: the quickest one.
fn trip_seconds(comm: &Comm, other: usize, message: &mut [f64]) -> Result<f64, CommError> {
    let mut trip = |is_last: bool| {
        let start = comm.now();
        message[0] = f64::from(u8::from(is_last));
        comm.send(message, other, TAG_TRIP)?;
        comm.recv(message, other, TAG_TRIP)?;
        Ok::<_, CommError>((comm.now() - start).as_secs_f64())
    };
    // The first trip also waits for the other rank to come here.
    trip(false)?;
    let (begun, mut quickest) = (comm.now(), f64::INFINITY);
    for left in (0..TRIPS).rev() {
        let is_last = left == 0 || (comm.now() - begun).as_secs_f64() > LONGEST_SECONDS;
        quickest = quickest.min(trip(is_last)? / 2.0);
        if is_last {
            break;
        }
    }
    Ok(quickest)
}

/// Returns the messages of rank `other`, which calls [`trip_seconds`].
fn answer(comm: &Comm, other: usize, message: &mut [f64]) -> Result<(), CommError> {
    loop {
        comm.recv(message, other, TAG_TRIP)?;
        comm.send(message, other, TAG_TRIP)?;
        if message[0] != 0.0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads::run;

    #[test]
    fn rank_0_receives_all_times() {
        // Several ranks a host, in any order.
        for hosts in [vec!["a", "a", "b", "c", "b"], vec!["a", "b", "c", "d", "e", "f", "a"]] {
            let all = run(hosts.len(), |comm| {
                let hosts = if comm.rank() == 0 { &hosts[..] } else { &[] };
                let mut watch = LinkWatch::begin(&comm, hosts)?.expect("three links");
                let after = watch.measure()?;
                Ok::<_, CommError>((watch.links, [watch.before, after]))
            });
            let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
            let (links, times) = &all[0];
            assert!(times.iter().all(|times| times.len() == links.ends.len()));
            let mut times = times.iter().flatten().flatten();
            assert!(times.all(|time| *time > 0.0 && time.is_finite()), "{all:?}");
            assert!(all[1..].iter().all(|(_, times)| times.iter().all(Vec::is_empty)));
        }
    }

    #[test]
    fn two_hosts_are_not_compared() {
        let begun =
            run(3, |comm| Ok::<_, CommError>(LinkWatch::begin(&comm, &["a", "b", "a"])?.is_some()));
        assert!(begun.into_iter().all(|is_some| is_some == Ok(false)));
    }

    /// The error of a lost rank comes to all that wait for it, directly or by others.
    #[test]
    fn a_rank_that_is_lost_makes_the_others_fail() {
        let hosts = ["a", "b", "c", "d"];
        for lost in 0..hosts.len() {
            let ended = run(hosts.len(), |comm| {
                let mut watch = LinkWatch::begin(&comm, &hosts)?.expect("six links");
                if comm.rank() == lost {
                    return Err(CommError::Killed(0));
                }
                watch.measure().map(|_| ())
            });
            assert!(ended.iter().all(Result::is_err), "{lost}: {ended:?}");
        }
    }
}
