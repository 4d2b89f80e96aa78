//! What the first rank of a node reports to rank 0, and what rank 0 sends to all ranks.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::probe::LinkRate;
use super::results::{Events, NodeRates, Solve};
use skt_comm::{Comm, CommError, Tag};

/// Of a [`NodeReport`] to rank 0.
pub(crate) const TAG_REPORT: Tag = 0x160;
/// Of an [`Instruction`] of rank 0.
pub(crate) const TAG_INSTRUCTION: Tag = 0x161;
/// The longest message in bytes: a longer one is none of ours.
const MAX_BYTES: u64 = 1 << 24;
const POLL_PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum NodeReport {
    Ready(NodeRates),
    Solved(Solve),
    Joined(Joined),
    Counted(Events),
    Failed(String),
}

/// What the first node of a pair reports of a stage; nothing if it took no part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Joined {
    pub link: Option<LinkRate>,
    pub solve: Option<Solve>,
    /// Why no system was solved; from any node of the pair.
    pub lost: Option<String>,
}

/// A part of a screening, for all nodes but those that are lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Work {
    Ready,
    /// Each node alone solves this many systems.
    Solve {
        n: usize,
        rounds: usize,
    },
    /// The pairs of a stage solve a system.
    Join {
        n: usize,
        stage: usize,
    },
    Count,
}

/// What rank 0 sends to all ranks before each part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Do this work within these seconds.
    Do {
        work: Work,
        lost: Vec<usize>,
        seconds: f64,
    },
    End(u8),
}

/// Sends a message as JSON: plain data.
pub(crate) fn send<T: Serialize>(
    world: &Comm,
    message: &T,
    to: usize,
    tag: Tag,
) -> Result<(), CommError> {
    let bytes = serde_json::to_vec(message).expect("plain data");
    world.send(&[bytes.len() as u64], to, tag)?;
    world.send(&bytes, to, tag)
}

pub(crate) fn receive<T: DeserializeOwned>(
    world: &Comm,
    from: usize,
    tag: Tag,
) -> Result<T, CommError> {
    let mut len = [0u64];
    world.recv(&mut len, from, tag)?;
    let wrong = |what: String| CommError::Transport { call: "screen", what };
    if len[0] > MAX_BYTES {
        return Err(wrong(format!("rank {from} sends {} bytes", len[0])));
    }
    let mut bytes = vec![0u8; len[0] as usize];
    world.recv(&mut bytes, from, tag)?;
    serde_json::from_slice(&bytes).map_err(|why| wrong(format!("rank {from} sends {why}")))
}

/// Waits for news of the ranks `awaited`, until none is left or time `is_over`, and returns those
/// that are left. Calls `take` with each news, which returns whether more is awaited of that rank.
pub(crate) fn collect(
    world: &Comm,
    is_over: impl Fn() -> bool,
    mut awaited: Vec<usize>,
    mut take: impl FnMut(usize, NodeReport) -> bool,
) -> Result<Vec<usize>, CommError> {
    while !awaited.is_empty() {
        let (mut still, mut is_idle) = (Vec::new(), true);
        for rank in awaited {
            if !world.probe(rank, TAG_REPORT)? {
                still.push(rank);
                continue;
            }
            is_idle = false;
            if take(rank, receive(world, rank, TAG_REPORT)?) {
                still.push(rank);
            }
        }
        awaited = still;
        if is_over() {
            break;
        }
        if is_idle {
            std::thread::sleep(POLL_PAUSE);
        }
    }
    Ok(awaited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads::run as run_ranks;
    use std::time::Instant;

    #[test]
    fn news_of_all_comes_and_who_is_silent_is_returned() {
        let silent = run_ranks(4, |world| {
            if world.rank() > 0 {
                if world.rank() < 3 {
                    send(
                        &world,
                        &NodeReport::Failed(format!("of {}", world.rank())),
                        0,
                        TAG_REPORT,
                    )
                    .unwrap();
                }
                world.barrier().unwrap();
                let got: Instruction = receive(&world, 0, TAG_INSTRUCTION).unwrap();
                assert_eq!(got, Instruction::End(1));
                return Ok::<_, CommError>(Vec::new());
            }
            // All others have sent their reports: the time is for the silent one alone.
            world.barrier().unwrap();
            let begun = Instant::now();
            let is_over = || begun.elapsed() > Duration::from_millis(20);
            let mut received = Vec::new();
            let take = |rank, report| {
                received.push((rank, report));
                false
            };
            let silent = collect(&world, is_over, vec![1, 2, 3], take).unwrap();
            received.sort_by_key(|(rank, _)| *rank);
            let words = |rank| (rank, NodeReport::Failed(format!("of {rank}")));
            assert_eq!(received, [words(1), words(2)]);
            (1..4).for_each(|to| send(&world, &Instruction::End(1), to, TAG_INSTRUCTION).unwrap());
            Ok(silent)
        });
        assert_eq!(silent[0], Ok(vec![3]));
    }
}
