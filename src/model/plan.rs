//! From a machine to a configuration: which N, which protocol, which group, how
//! often, and what each alternative would give.
//!
//! Every candidate is a protocol with a group of n members and m parities. Its
//! share of the memory fixes N (Tang et al., eq. 6 to 8), N the efficiency
//! (eq. 2), both the work; its group fixes the time of a checkpoint (Chen and
//! Dongarra, eq. 8), that and the MTBF the best interval, the expected time and
//! the probability to finish ([`InMemoryJob`]). Of the candidates that this
//! program can run (none and self) and that finish as surely as is asked for,
//! the one with the highest expected rate is taken.

use super::chen::{Code, Network};
use super::error::{at_least, fraction, non_negative, positive};
use super::inmemory::{Expectation, InMemoryJob};
use super::tang::efficiency::Efficiency;
use super::tang::memory::{MemorySplit, Protocol};
use super::tang::volume::Saved;
use super::{Group, ModelError};
use crate::config::validate::near_square;

/// Group sizes that are tried.
const GROUP_SIZES: [usize; 6] = [2, 4, 8, 16, 24, 32];
/// Numbers of parities that are tried.
const PARITIES: [usize; 4] = [1, 2, 3, 4];

/// A machine, and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Nodes that compute.
    pub nodes: usize,
    /// Nodes that wait.
    pub spares: usize,
    /// Ranks on a node.
    pub ranks_per_node: usize,
    /// Memory of a node that the run may use, in bytes.
    pub node_memory_bytes: f64,
    /// Rate of a node's matrix product.
    pub node_flops: f64,
    /// The network, as one node sees it.
    pub network: Network,
    /// Copy from memory to memory on a node.
    pub copy_bytes_per_second: f64,
    /// Mean time between failures of one node.
    pub node_mtbf_seconds: f64,
    /// Detection, replacement and relaunch after a failure.
    pub downtime_seconds: f64,
    /// Blocking factor; N is a multiple of it.
    pub nb: usize,
    /// `E(N)` of the machine, as a fraction of `nodes * node_flops`.
    pub efficiency: Efficiency,
    /// Least probability to finish in one go.
    pub finish_probability: f64,
}

/// Share of the memory that panels, buffers and the program itself take.
const WORKSPACE_FRACTION: f64 = 0.04;

/// Efficiency where no run has been measured: Tang et al., table 3, has a =
/// 1.19 of the nominal peak and b/a = 25,500 rows at 128 ranks. Against a
/// measured matrix product a is taken as 1.05; b grows with the square root of
/// the ranks, as it must for E to stay where N grows with it.
pub fn assumed_efficiency(ranks: usize) -> Efficiency {
    const LIMIT: f64 = 1.05;
    const HALF_AT_128_RANKS: f64 = 25_500.0;
    Efficiency { a: LIMIT, b: LIMIT * HALF_AT_128_RANKS * (ranks as f64 / 128.0).sqrt() }
}

/// An [`Efficiency`] measured on `measured_ranks`, for another number of ranks:
/// the N^2 part grows with the square root of the ranks.
pub fn scaled_efficiency(measured: Efficiency, measured_ranks: usize, ranks: usize) -> Efficiency {
    Efficiency { a: measured.a, b: measured.b * (ranks as f64 / measured_ranks as f64).sqrt() }
}

/// One way to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// What is kept.
    pub protocol: Protocol,
    /// Members and parities.
    pub group: Group,
    /// Order of the matrix.
    pub n: usize,
    /// Efficiency of the computation alone, `E(N)`.
    pub hpl_efficiency: f64,
    /// Time of the computation alone.
    pub work_seconds: f64,
    /// Mean time of one checkpoint.
    pub checkpoint_seconds: f64,
    /// Time to rebuild lost members.
    pub recovery_seconds: f64,
    /// Memory of a node.
    pub memory: MemorySplit,
    /// Interval, time, probabilities.
    pub expected: Expectation,
    /// Flops over expected time.
    pub expected_gflops: f64,
}

/// The outcome: all candidates and which is taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Process rows and columns.
    pub grid: (usize, usize),
    /// Every candidate, by protocol, then parities, then group size.
    pub candidates: Vec<Candidate>,
    /// Index of the chosen one.
    pub chosen: usize,
    /// Whether it finishes as surely as was asked for.
    pub meets_probability: bool,
}

impl Plan {
    /// The chosen candidate.
    pub fn choice(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// The best candidate of a protocol, by expected rate among those that meet
    /// the probability, else by probability.
    pub fn best_of(&self, protocol: Protocol, finish_probability: f64) -> Option<&Candidate> {
        let of: Vec<usize> = (0..self.candidates.len())
            .filter(|&i| self.candidates[i].protocol == protocol)
            .collect();
        choose(&self.candidates, &of, finish_probability).map(|(i, _)| &self.candidates[i])
    }
}

impl Machine {
    /// # Errors
    /// The first parameter outside of its range.
    pub fn validate(&self) -> Result<(), ModelError> {
        at_least("nodes", self.nodes, 1, "1 or more")?;
        at_least("ranks_per_node", self.ranks_per_node, 1, "1 or more")?;
        at_least("nb", self.nb, 1, "1 or more")?;
        positive("node_memory_bytes", self.node_memory_bytes)?;
        positive("node_flops", self.node_flops)?;
        positive("copy_bytes_per_second", self.copy_bytes_per_second)?;
        positive("node_mtbf_seconds", self.node_mtbf_seconds)?;
        non_negative("downtime_seconds", self.downtime_seconds)?;
        fraction("finish_probability", self.finish_probability)?;
        self.network.validate()
    }

    /// All candidates, and the one to take.
    ///
    /// # Errors
    /// As [`Machine::validate`]; [`ModelError::Plan`] where the memory does not
    /// hold one block a rank.
    pub fn plan(&self) -> Result<Plan, ModelError> {
        self.validate()?;
        let mut candidates = vec![self.candidate(Protocol::None, Group::new(2, 1)?)?];
        for protocol in [Protocol::Single, Protocol::Double, Protocol::SelfCheckpoint] {
            for parities in PARITIES {
                for size in GROUP_SIZES {
                    if 2 * parities <= size && size <= self.nodes {
                        candidates.push(self.candidate(protocol, Group::new(size, parities)?)?);
                    }
                }
            }
        }
        let all: Vec<usize> =
            (0..candidates.len()).filter(|&i| is_runnable(candidates[i].protocol)).collect();
        let (chosen, meets_probability) =
            choose(&candidates, &all, self.finish_probability).expect("there is always none");
        let grid = near_square(self.nodes * self.ranks_per_node);
        Ok(Plan { grid, candidates, chosen, meets_probability })
    }

    fn candidate(&self, protocol: Protocol, group: Group) -> Result<Candidate, ModelError> {
        let usable_bytes = self.node_memory_bytes * (1.0 - WORKSPACE_FRACTION);
        let memory = protocol.split(group, usable_bytes);
        let n = self.order(memory.workspace_bytes)?;
        let order = n as f64;
        let flops = order * order * (2.0 * order / 3.0 + 1.5);
        let hpl_efficiency = self.efficiency.at(order);
        let work_seconds = flops / (hpl_efficiency * self.node_flops * self.nodes as f64);
        let (checkpoint_seconds, recovery_seconds) = match protocol {
            Protocol::None => (0.0, 0.0),
            _ => self.checkpoint_and_recovery(group, order)?,
        };
        let job = InMemoryJob {
            protocol,
            group,
            nodes: self.nodes.max(group.size()),
            spares: self.spares,
            node_mtbf_seconds: self.node_mtbf_seconds,
            work_seconds,
            checkpoint_seconds,
            overlap_fraction: 0.0,
            downtime_seconds: self.downtime_seconds,
            recovery_seconds,
        };
        let expected = job.expect(job.best_interval_seconds()?)?;
        Ok(Candidate {
            protocol,
            group,
            n,
            hpl_efficiency,
            work_seconds,
            checkpoint_seconds,
            recovery_seconds,
            memory,
            expected,
            expected_gflops: flops / expected.time_seconds / 1e9,
        })
    }

    /// The largest multiple of NB whose matrix fits.
    fn order(&self, workspace_bytes: f64) -> Result<usize, ModelError> {
        let doubles = workspace_bytes * self.nodes as f64 / 8.0;
        let n = doubles.sqrt() as usize / self.nb * self.nb;
        if n == 0 {
            return Err(ModelError::Plan {
                reason: format!(
                    "{workspace_bytes:.0} bytes a node hold not one block of {}; give more memory \
                     or a smaller NB",
                    self.nb
                ),
            });
        }
        Ok(n)
    }

    /// A checkpoint encodes (Chen and Dongarra, eq. 8: m encodings in the group)
    /// and copies the trailing corner, on average 3/5 of the matrix; a recovery
    /// encodes all of it once more and copies it back.
    fn checkpoint_and_recovery(&self, group: Group, order: f64) -> Result<(f64, f64), ModelError> {
        let node_bytes = 8.0 * order * order / self.nodes as f64;
        let code = if group.parities() == 1 { Code::Sum } else { Code::Weighted };
        let both_seconds = |bytes: f64| -> Result<f64, ModelError> {
            let encode =
                self.network.grouped_seconds(group.size(), group.parities(), bytes, code)?;
            Ok(encode + bytes / self.copy_bytes_per_second)
        };
        let mean_bytes = node_bytes * Saved::Corner.mean_fraction_by_time();
        Ok((both_seconds(mean_bytes)?, both_seconds(node_bytes)?))
    }
}

/// Whether this program can run a protocol; the others are there to compare.
fn is_runnable(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::None | Protocol::SelfCheckpoint)
}

/// The fastest of those that meet the probability, and true; else the surest,
/// and false.
fn choose(
    candidates: &[Candidate],
    among: &[usize],
    finish_probability: f64,
) -> Option<(usize, bool)> {
    let rate = |i: &usize| candidates[*i].expected_gflops;
    let probability = |i: &usize| candidates[*i].expected.finish_probability();
    let fastest = among
        .iter()
        .filter(|i| probability(i) >= finish_probability)
        .max_by(|a, b| rate(a).total_cmp(&rate(b)));
    if let Some(&index) = fastest {
        return Some((index, true));
    }
    among
        .iter()
        .max_by(|a, b| probability(a).total_cmp(&probability(b)).then(rate(a).total_cmp(&rate(b))))
        .map(|&index| (index, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HOUR_SECONDS, YEAR_SECONDS};

    fn cluster(nodes: usize, node_mtbf_seconds: f64) -> Machine {
        Machine {
            nodes,
            spares: 50,
            ranks_per_node: 2,
            node_memory_bytes: 64e9,
            node_flops: 400e9,
            network: Network {
                latency_seconds: 2e-6,
                transfer_seconds_per_byte: 1e-10,
                reduce_seconds_per_byte: 5e-11,
            },
            copy_bytes_per_second: 20e9,
            node_mtbf_seconds,
            downtime_seconds: 60.0,
            nb: 256,
            efficiency: assumed_efficiency(2 * nodes),
            finish_probability: 0.99,
        }
    }

    #[test]
    fn a_reliable_machine_needs_no_checkpoint() {
        let plan = cluster(64, 1e6 * YEAR_SECONDS).plan().unwrap();
        assert_eq!(plan.choice().protocol, Protocol::None);
        assert!(plan.meets_probability);
    }

    #[test]
    fn an_unreliable_one_takes_the_self_checkpoint() {
        let machine = cluster(1_000, 1.0 * YEAR_SECONDS);
        let plan = machine.plan().unwrap();
        assert!(plan.meets_probability);
        let choice = plan.choice();
        assert_eq!(choice.protocol, Protocol::SelfCheckpoint);
        // The double checkpoint keeps a third of the memory: a smaller, slower matrix.
        let double = plan.best_of(Protocol::Double, 0.99).unwrap();
        assert!(double.n < choice.n && double.expected_gflops < choice.expected_gflops);
        let none = plan.best_of(Protocol::None, 0.99).unwrap();
        assert!(none.n > choice.n && none.expected.finish_probability() < 0.5);
    }

    #[test]
    fn the_matrix_fits_and_is_whole_blocks() {
        let machine = cluster(100, YEAR_SECONDS);
        for candidate in machine.plan().unwrap().candidates {
            assert_eq!(candidate.n % 256, 0);
            let n = candidate.n as f64;
            assert!(8.0 * n * n / 100.0 <= candidate.memory.workspace_bytes);
            assert!(candidate.memory.total_bytes() <= 64e9);
            assert!(candidate.expected.efficiency <= 1.0);
        }
    }

    #[test]
    fn a_hopeless_machine_gets_the_surest_and_is_told() {
        let plan = cluster(1_000, 30.0 * HOUR_SECONDS).plan().unwrap();
        assert!(!plan.meets_probability);
    }

    #[test]
    fn bad_machines_are_refused() {
        let bad = Machine { node_mtbf_seconds: -1.0, ..cluster(4, 1.0) };
        assert!(bad.plan().unwrap_err().to_string().starts_with("node_mtbf_seconds = -1"));
        let tiny = Machine { node_memory_bytes: 1e5, ..cluster(4, YEAR_SECONDS) };
        assert!(matches!(tiny.plan(), Err(ModelError::Plan { .. })));
    }
}
