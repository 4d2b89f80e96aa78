//! The time of a run over all of its starts.
//!
//! Within a start the monotonic clock measures the time. Between two starts, the uptime of a node
//! that has stayed up does, as it cannot be set. The wall clock is used only if no such node is
//! left, and it never shortens the time. Reports contain when it was used, and when it was set.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use skt_comm::{Comm, CommError, collect};
use skt_host::clock::now_unix;
use skt_host::process::boot_id;
use skt_store::codec::checksum;

/// The number of nodes whose uptime a checkpoint keeps, in the header of each segment.
const UPTIMES_KEPT: usize = 16;
/// Wall clock and uptime may differ by this without a report, as clocks of nodes differ.
const STEP_SECONDS_MIN: f64 = 1.0;

/// The clocks of a node at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockReading {
    /// Identifies the boot of a kernel (and the time namespace) from which `uptime_seconds` counts.
    pub boot: u64,
    /// Seconds since the boot, including time asleep.
    pub uptime_seconds: f64,
    /// Seconds since 1970, by the wall clock.
    pub unix_seconds: f64,
}

/// A function that reads the clocks of this node.
pub type Clock = Arc<dyn Fn() -> ClockReading + Send + Sync>;

impl ClockReading {
    /// The clocks of the system.
    pub fn now() -> Self {
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
        // A time namespace shifts the uptime.
        let namespace = fs::read_link("/proc/self/ns/time").unwrap_or_default();
        Self {
            boot: checksum(format!("{} {}", boot_id(), namespace.display()).as_bytes()),
            uptime_seconds: uptime.tv_sec() as f64 + uptime.tv_nsec() as f64 * 1e-9,
            unix_seconds: now_unix(),
        }
    }

    /// Reads the clocks of all ranks at one instant, when they leave a barrier. Collective.
    pub(super) fn together(comm: &Comm, clock: &Clock) -> Result<(Instant, Self), CommError> {
        comm.barrier()?;
        Ok((Instant::now(), clock()))
    }
}

/// Seconds of the run, from the state of any method; rank 0's state is the one that counts.
pub(super) fn state_seconds(state: &[u8]) -> f64 {
    #[derive(Deserialize)]
    struct Elapsed {
        elapsed_seconds: f64,
    }
    let state: Elapsed = serde_json::from_slice(state).expect("a state that this program wrote");
    state.elapsed_seconds
}

/// The clocks when the run began; the same on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The wall clock of rank 0, in seconds since 1970.
    unix_seconds: f64,
    /// The boots of nodes, and their uptimes in seconds ([`ClockReading`]).
    uptimes: Vec<(u64, f64)>,
}

/// How much time of a run has passed when it is resumed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resumed {
    pub elapsed_seconds: f64,
    /// Whether no node has stayed up since the checkpoint.
    pub is_by_wall_clock: bool,
    /// Seconds by which the wall clock was set since the checkpoint, as far as known; 0 if too
    /// little to distinguish from noise.
    pub wall_clock_step_seconds: f64,
}

impl Origin {
    /// The origin of a run that has taken `elapsed_seconds` when all ranks took their `reading`.
    /// Collective.
    pub(crate) fn new(
        comm: &Comm,
        reading: &ClockReading,
        elapsed_seconds: f64,
    ) -> Result<Self, CommError> {
        let mine = [reading.boot, (reading.uptime_seconds - elapsed_seconds).to_bits()];
        let mut uptimes: Vec<(u64, f64)> = Vec::new();
        for [boot, uptime] in collect::all_gather(comm, &mine)? {
            if uptimes.len() < UPTIMES_KEPT && uptimes.iter().all(|(known, _)| *known != boot) {
                uptimes.push((boot, f64::from_bits(uptime)));
            }
        }
        let unix_seconds = reading.unix_seconds - elapsed_seconds;
        Ok(Self { unix_seconds: collect::broadcast_one(comm, unix_seconds, 0)?, uptimes })
    }

    /// When the run began, by the present wall clock of rank 0, in whole seconds since 1970.
    pub(crate) fn start_unix_seconds(&self) -> i64 {
        self.unix_seconds as i64
    }

    /// Moves the beginning of the run later by `seconds`.
    pub(crate) fn put_off(&mut self, seconds: f64) {
        self.unix_seconds += seconds;
        self.uptimes.iter_mut().for_each(|(_, uptime)| *uptime += seconds);
    }

    /// How much time of the run had passed when all ranks took their `reading`, at least
    /// `seconds_min`. The origin then refers to the clocks of the current nodes, which may still
    /// be up at the next start; the nodes on which the run began need not be. Collective; the
    /// result is the same on all ranks.
    pub(crate) fn resume(
        &mut self,
        comm: &Comm,
        reading: &ClockReading,
        seconds_min: f64,
    ) -> Result<Resumed, CommError> {
        let since_origin = |&(_, uptime): &(u64, f64)| reading.uptime_seconds - uptime;
        let known = self.uptimes.iter().find(|(boot, _)| *boot == reading.boot);
        let by_wall_clock = match comm.rank() {
            0 => reading.unix_seconds - self.unix_seconds,
            _ => f64::NEG_INFINITY,
        };
        let by_uptime = known.map_or(f64::NEG_INFINITY, since_origin);
        let mut most = [by_uptime, by_wall_clock, seconds_min];
        collect::all_max(comm, &mut most)?;
        let [by_uptime, by_wall_clock, seconds_min] = most;
        let is_by_wall_clock = by_uptime == f64::NEG_INFINITY;
        let elapsed_seconds =
            if is_by_wall_clock { by_wall_clock } else { by_uptime }.max(seconds_min);
        // Where only the wall clock counts, a step is known only if it went back.
        let step = by_wall_clock - elapsed_seconds;
        *self = Self::new(comm, reading, elapsed_seconds)?;
        Ok(Resumed {
            elapsed_seconds,
            is_by_wall_clock,
            wall_clock_step_seconds: if step.abs() > STEP_SECONDS_MIN { step } else { 0.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads;

    const DAY: f64 = 86400.0;

    /// The clocks of node `node` with kernel `boot`, up for about 1000 s when the run is
    /// `run_seconds` old, and a wall clock that is wrong by `off` seconds.
    fn at(node: usize, boot: u64, run_seconds: f64, off: f64) -> ClockReading {
        ClockReading {
            boot,
            uptime_seconds: 1000.0 * (node + 1) as f64 + run_seconds,
            unix_seconds: 1.7e9 + run_seconds + off,
        }
    }

    /// A run whose nodes' clocks read `first` 2 s after it began and `then` 20 s after it, with a
    /// checkpoint after 10 s.
    fn resumed(first: &[ClockReading], then: &[ClockReading]) -> Resumed {
        let ran = threads::run(first.len(), |comm| {
            let mut origin = Origin::new(&comm, &first[comm.rank()], 2.5)?;
            origin.put_off(0.5);
            origin.resume(&comm, &then[comm.rank()], 10.0)
        });
        let ran: Vec<Resumed> = ran.into_iter().map(Result::unwrap).collect();
        assert!(ran.iter().all(|resumed| *resumed == ran[0]), "{ran:?}");
        ran[0]
    }

    fn rounded(resumed: Resumed) -> (f64, bool, f64) {
        let Resumed { elapsed_seconds, is_by_wall_clock, wall_clock_step_seconds } = resumed;
        (elapsed_seconds.round(), is_by_wall_clock, wall_clock_step_seconds.round())
    }

    #[test]
    fn wall_clock_set_between_starts_is_ignored_and_reported() {
        for off in [0.0, 0.9, -DAY, DAY] {
            let first = [at(0, 7, 2.0, 0.0), at(1, 8, 2.0, 500.0)];
            let then = [at(0, 7, 20.0, off), at(1, 8, 20.0, -500.0)];
            let step = if off.abs() < 1.0 { 0.0 } else { off };
            assert_eq!(rounded(resumed(&first, &then)), (20.0, false, step));
        }
    }

    #[test]
    fn any_node_that_stays_up_provides_the_time() {
        let first = [at(0, 7, 2.0, DAY), at(1, 8, 2.0, 0.0), at(2, 9, 2.0, 0.0)];
        // Two nodes are replaced, and the third has another rank now.
        let then = [at(5, 3, 20.0, 0.0), at(2, 9, 20.0, 0.0), at(6, 4, 20.0, 0.0)];
        assert_eq!(rounded(resumed(&first, &then)), (20.0, false, -DAY));
    }

    #[test]
    fn wall_clock_without_nodes_that_stay_up_only_adds_time() {
        let first = [at(0, 7, 2.0, 0.0), at(1, 8, 2.0, 0.0)];
        let then = |off| [at(0, 17, 20.0, off), at(1, 18, 20.0, 0.0)];
        assert_eq!(rounded(resumed(&first, &then(0.0))), (20.0, true, 0.0));
        assert_eq!(rounded(resumed(&first, &then(DAY))), (DAY + 20.0, true, 0.0));
        // 10 s had passed when the checkpoint was taken.
        assert_eq!(rounded(resumed(&first, &then(-DAY))), (10.0, true, 10.0 - DAY));
    }

    /// One node after the other is replaced until none is left that the run began on. In the end a
    /// node that the run began on comes back, with a wrong wall clock.
    #[test]
    fn a_chain_of_replacements_keeps_the_time() {
        let nodes = [[7, 8], [9, 8], [9, 10], [11, 10], [11, 12]];
        let node = |boot: u64| usize::try_from(boot).unwrap();
        let ran = threads::run(2, |comm| {
            let at = |start: usize| {
                let boot = nodes[start][comm.rank()];
                at(node(boot), boot, 2.0 + 10.0 * start as f64, DAY * start as f64)
            };
            let mut origin = Origin::new(&comm, &at(0), 2.0)?;
            (1..nodes.len()).map(|start| origin.resume(&comm, &at(start), 0.0)).collect()
        });
        let ran: Vec<Vec<Resumed>> = ran.into_iter().map(Result::unwrap).collect();
        let found: Vec<_> = ran[0].iter().map(|&resumed| rounded(resumed)).collect();
        let want = [12.0, 22.0, 32.0, 42.0].map(|seconds| (seconds, false, DAY));
        assert_eq!((found, &ran[0]), (want.to_vec(), &ran[1]));
    }

    #[test]
    fn system_clocks_advance() {
        let (a, b) = (ClockReading::now(), ClockReading::now());
        assert_eq!(a.boot, b.boot);
        assert!(b.uptime_seconds >= a.uptime_seconds && a.uptime_seconds > 0.0);
    }

    #[test]
    fn large_job_keeps_few_uptimes() {
        let ran = threads::run(40, |comm| {
            let node = comm.rank() / 2;
            Origin::new(&comm, &at(node, 1 + node as u64, 0.0, 0.0), 0.0)
        });
        let origin = ran.into_iter().next().unwrap().unwrap();
        assert_eq!(origin.uptimes.len(), UPTIMES_KEPT);
        assert!(serde_json::to_string(&origin).unwrap().len() < 60 * UPTIMES_KEPT);
    }
}
