//! The cost of a message between members of a group, measured at the start.

use std::ops::RangeInclusive;
use std::time::Instant;

use crate::tuning::TUNING;
use skt_comm::collect::all_max;
use skt_comm::{Comm, PageBuf, Result, Tag};
use skt_store::codec::{self, Codec};

const TAG_COST: Tag = 5;
/// Legal lengths of messages, in bytes.
pub const MESSAGE_BYTES: RangeInclusive<usize> =
    TUNING.message_bytes_least..=TUNING.message_bytes_most;

/// The cost of a message between neighbours of a group while all members send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MessageCost {
    /// Seconds that the shortest message takes.
    pub latency_seconds: f64,
    pub send_seconds_per_byte: f64,
    /// Seconds to add a byte to a partial sum.
    pub add_seconds_per_byte: f64,
}

impl MessageCost {
    /// Measures the cost, within some milliseconds on a fast network: all members pass messages
    /// around the ring, as they do when they encode. Collective; returns the worst of the members,
    /// the same on all.
    pub(crate) fn measure(comm: &Comm, code: &Codec) -> Result<Self> {
        let buffer = || PageBuf::for_messages(TUNING.link_long_bytes / size_of::<f64>());
        let (mut out, mut into) = (buffer()?, buffer()?);
        let mut best_of = |rounds: usize, bytes: usize| -> Result<f64> {
            let (me, n) = (comm.rank(), comm.size());
            let mut best = f64::INFINITY;
            for _ in 0..rounds {
                comm.barrier()?;
                let start = Instant::now();
                let out = &bytemuck::cast_slice::<f64, u8>(&out)[..bytes];
                let into = &mut bytemuck::cast_slice_mut::<f64, u8>(&mut into)[..bytes];
                let mut recvs = [(into, (me + n - 1) % n, TAG_COST)];
                comm.exchange_bytes(&[(out, (me + 1) % n, TAG_COST)], &mut recvs)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            Ok(best)
        };
        let short = best_of(TUNING.link_short_rounds, 8)?;
        let long = best_of(TUNING.link_long_rounds, TUNING.link_long_bytes)?;
        let mut add = f64::INFINITY;
        for _ in 0..TUNING.link_long_rounds {
            let start = Instant::now();
            let source = bytemuck::cast_slice(&into);
            codec::fma(code.one(), source, bytemuck::cast_slice_mut(&mut out));
            add = add.min(start.elapsed().as_secs_f64());
        }
        let mut worst = [short, (long - short).max(0.0), add];
        all_max(comm, &mut worst)?;
        Ok(Self {
            latency_seconds: worst[0],
            send_seconds_per_byte: worst[1] / TUNING.link_long_bytes as f64,
            add_seconds_per_byte: worst[2] / TUNING.link_long_bytes as f64,
        })
    }

    /// The length of messages that moves `bytes` around a group of `members` fastest, within
    /// [`MESSAGE_BYTES`].
    pub(crate) fn message_bytes(&self, bytes: usize, members: usize) -> usize {
        let Self { latency_seconds, send_seconds_per_byte, add_seconds_per_byte } = *self;
        let best = optimal_segment_bytes(
            bytes,
            members,
            latency_seconds,
            send_seconds_per_byte,
            add_seconds_per_byte,
        );
        best.clamp(*MESSAGE_BYTES.start(), *MESSAGE_BYTES.end())
    }
}

/// The segment size that makes a pipelined chain fastest: with t = bytes/s segments over p
/// processes, `T(s) = (p - 2 + t) (alpha + (beta + gamma) s)` is least at
///
/// ```text
/// s = sqrt(bytes alpha / ((p - 2) (beta + gamma)))
/// ```
///
/// (Chen and Dongarra, section 3.3). `alpha` is the latency of a message in seconds; `beta` and
/// `gamma` are the seconds to send and to add one byte. The result is a multiple of 64 bytes, a
/// cache line: at least one, and at most what `bytes` need.
pub(crate) fn optimal_segment_bytes(
    bytes: usize,
    processes: usize,
    alpha_seconds: f64,
    beta_seconds_per_byte: f64,
    gamma_seconds_per_byte: f64,
) -> usize {
    const LINE: usize = 64;
    let most = bytes.max(1).next_multiple_of(LINE);
    if processes <= 2 {
        // No pipeline to fill: one message.
        return most;
    }
    let hops = (processes - 2) as f64;
    let per_byte = beta_seconds_per_byte + gamma_seconds_per_byte;
    let best = (bytes as f64 * alpha_seconds / (hops * per_byte)).sqrt();
    if !best.is_finite() {
        return most;
    }
    ((best / LINE as f64).round() as usize * LINE).clamp(LINE, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_comm::threads;
    use skt_store::codec::CodecKind;

    #[test]
    fn all_members_measure_the_same_and_choose_within_bounds() {
        let code = Codec::new(CodecKind::Xor, 2, 1).expect("a shape of the code");
        let costs = threads::run(3, |comm| MessageCost::measure(&comm, &code));
        let costs: Vec<MessageCost> =
            costs.into_iter().map(|cost| cost.expect("no rank dies")).collect();
        assert!(costs.iter().all(|cost| *cost == costs[0]));
        assert!(costs[0].latency_seconds > 0.0 && costs[0].add_seconds_per_byte > 0.0);
        for bytes in [0, 1 << 10, 1 << 20, 1 << 40] {
            for members in [2, 3, 200] {
                assert!(MESSAGE_BYTES.contains(&costs[0].message_bytes(bytes, members)));
            }
        }
    }

    #[test]
    fn slower_starts_ask_for_longer_messages() {
        let cost = |latency_seconds| MessageCost {
            latency_seconds,
            send_seconds_per_byte: 1e-10,
            add_seconds_per_byte: 1e-10,
        };
        let [fast, slow] = [1e-6, 1e-4].map(|seconds| cost(seconds).message_bytes(64 << 20, 16));
        assert!(slow > 9 * fast && slow < 11 * fast, "{fast} {slow}");
    }

    #[test]
    fn the_segment_is_the_optimum_of_the_pipeline() {
        let (alpha, beta, gamma) = (2e-6, 1e-10, 0.8e-10);
        for processes in [3, 4, 16, 256] {
            let bytes = 256 << 20;
            let time =
                |s: f64| (processes as f64 - 2.0 + bytes as f64 / s) * (alpha + (beta + gamma) * s);
            let best = optimal_segment_bytes(bytes, processes, alpha, beta, gamma) as f64;
            assert!(time(best) <= time(best * 1.1) && time(best) <= time(best / 1.1));
        }
        assert_eq!(optimal_segment_bytes(1000, 2, alpha, beta, gamma), 1024);
        assert_eq!(optimal_segment_bytes(1000, 5, 0.0, beta, gamma), 64);
        assert_eq!(optimal_segment_bytes(0, 5, alpha, 0.0, 0.0), 64);
    }
}
