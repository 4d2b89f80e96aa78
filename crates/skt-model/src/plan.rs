//! Plans a run, from a machine to a configuration: which N, protocol, group, interval and number of
//! spares, and what each alternative would give.
//!
//! Every candidate is a protocol with a group of n members and m parities. Its share of the memory
//! gives N (Tang et al., eq. 6 to 8), N gives the efficiency (the model of the solver's critical
//! path, [`path`]), and both give the work. Its group gives the time of a checkpoint (Chen and
//! Dongarra, eq. 8, or a measured rate). This time and the MTBF give the best interval, the
//! expected time and the probability to finish ([`InMemoryJob`]).
//!
//! With checksums in the elimination a group is a process row: the ranks with checksums do no
//! counted work, nothing is saved, and a failure costs the step in which it strikes.
//!
//! The plan chooses among the recommended candidates: it takes protocol none if its rate is within
//! [`RATE_TOLERANCE`] of the highest expected rate, else the smallest group with such a rate.
//! Recommended are protocol none, whose expected time includes its restarts, and each self
//! checkpoint that keeps its data with the required probability and has a rate more than
//! [`RATE_TOLERANCE`] above that of the same matrix without checkpoints. A smaller matrix is done
//! sooner, and so fails less often: that gain of rate is not due to the checkpoints. Spares do not
//! decide: their number follows from the choice.

use std::ops::RangeInclusive;

use skt_host::layout::near_square;

use super::chen::{Code, Network};
use super::error::{at_least, fraction, non_negative, positive, within};
use super::inmemory::{Expectation, InMemoryJob};
use super::kinds::{NodeKinds, padding};
use super::path::{self, RunParams};
use super::tang::memory::{MemorySplit, Protocol};
use super::tang::volume::Saved;
use super::{Group, ModelError, exact};

const GROUP_SIZES: [usize; 6] = [2, 4, 8, 16, 24, 32];
const PARITIES: [usize; 4] = [1, 2, 3, 4];

const CHECKSUMS: RangeInclusive<usize> = 1..=3;
const MAX_WIDTH: usize = 255;

/// The largest relative gain in rate that does not justify checkpoints or a larger group: runs of
/// the same configuration differ by more, while in a larger group more nodes depend on each other
/// and a recovery takes longer.
pub const RATE_TOLERANCE: f64 = 0.003;

/// The least share of the memory that panels, buffers and the program itself take.
const WORKSPACE_FRACTION: f64 = 0.04;

/// Of HPL-MxP, in double precision: x, the residual, and the basis of 50 steps of GMRES.
const REFINEMENT_VECTORS: f64 = 53.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedMachine {
    pub nodes: usize,
    /// Number of spare nodes; `None` for as many as needed.
    pub spares: Option<usize>,
    pub ranks_per_node: usize,
    pub threads: usize,
    /// Cores per node; cores without a rank are idle.
    pub cores_per_node: usize,
    /// Cores per node that are kept from the solver, and compute the parities of protocol self while
    /// it continues; without them the solver's threads stop for it.
    pub helper_cores: usize,
    /// Bytes of memory per node that the run may use.
    pub node_memory_bytes: f64,
    /// Whether protected runs leave of that the memory for the ranks of one lost node.
    pub leaves_room: bool,
    /// Of a core, with the message times within a node; of unequal nodes with their mean rate.
    pub core: path::Machine,
    /// The kinds of nodes, if their cores are unequally fast: process columns then get blocks by
    /// their rates, and there is no protocol abft.
    pub kinds: NodeKinds,
    /// Relative to the rate by the model of the critical path; 1 if nothing was measured.
    pub rate_over_model: f64,
    /// The network, as one node sees it.
    pub network: Network,
    /// Rate of copies from memory to memory on a node.
    pub copy_bytes_per_second: f64,
    /// The measured rate at which a node encodes and copies its part of the matrix with one parity;
    /// `None` to compute it.
    pub checkpoint_bytes_per_second: Option<f64>,
    pub node_mtbf_seconds: f64,
    /// Time for detection, replacement and relaunch after a failure.
    pub downtime_seconds: f64,
    /// Blocking factor, NB; N is a multiple of it.
    pub nb: usize,
    /// The least probability to finish without a loss of data and with the spares.
    pub finish_probability: f64,
    /// Whether the run is one of HPL-MxP: the matrix is in single precision, and there is no
    /// protocol abft. Its refinement takes memory here, but no time.
    pub is_mxp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub n: usize,
    /// Process rows, and process columns that hold data.
    pub grid: (usize, usize),
    /// Of the computation alone, `E(N)`, on all processes, including those with checksums.
    pub hpl_efficiency: f64,
    /// The memory of a node, by part.
    pub memory: MemorySplit,
    /// With the times of the work, of a mean checkpoint and of a recovery.
    pub job: InMemoryJob,
    /// To finish with the required probability, or, if data are lost too often for that, to suffice
    /// with this probability. `None` if 100,000 spares do not.
    pub fewest_spares: Option<usize>,
    pub expected: Expectation,
    /// The expected rate: operations over expected time, in Gflop/s.
    pub expected_gflops: f64,
}

impl Candidate {
    /// Number of checkpoints of a run without failures (`InMemoryJob::checkpoints`).
    pub fn checkpoints(&self) -> f64 {
        self.job.checkpoints(self.expected.interval_seconds)
    }

    /// Seconds of work from one checkpoint to the next (`InMemoryJob::cut_seconds`).
    pub fn cut_seconds(&self) -> f64 {
        self.job.cut_seconds(self.expected.interval_seconds)
    }

    /// The relative gain in rate through checkpoints, over the same matrix without them.
    pub fn gain(&self) -> f64 {
        let Self { job, expected, .. } = self;
        let mtbf_seconds = job.system_mtbf_seconds();
        let unprotected_seconds =
            exact::segment_seconds(job.work_seconds, job.downtime_seconds, mtbf_seconds);
        unprotected_seconds / expected.time_seconds - 1.0
    }

    /// The parts of the expected time in seconds: the computation, once; its checkpoints, once;
    /// downtime and recovery; work and checkpoints that failures destroy.
    pub fn time_parts(&self) -> [f64; 4] {
        let Self { job, expected, .. } = self;
        let standing = 1.0 - job.overlap_fraction;
        let checkpoints_seconds = self.checkpoints() * standing * job.checkpoint_seconds;
        // An outage that takes no time takes none for any number of failures, even an infinite one.
        let outage_seconds = job.outage_seconds();
        let outages_seconds =
            if outage_seconds > 0.0 { expected.failures * outage_seconds } else { 0.0 };
        let known = job.work_seconds + checkpoints_seconds + outages_seconds;
        // A run that never ends loses work for ever.
        let lost_seconds = match expected.time_seconds {
            f64::INFINITY => f64::INFINITY,
            all => (all - known).max(0.0),
        };
        [job.work_seconds, checkpoints_seconds, outages_seconds, lost_seconds]
    }
}

/// A changed input of the plan, and the outcome of the planned run, with its planned interval and
/// spares, under this change.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The changed input.
    pub what: String,
    /// The best number of seconds of work from one checkpoint to the next under this change.
    pub cut_seconds: f64,
    /// The smallest number of spares that would suffice with the required probability.
    pub fewest_spares: Option<usize>,
    pub expected: Expectation,
    /// The expected rate: operations over expected time, in Gflop/s.
    pub expected_gflops: f64,
}

/// The factor by which a checkpoint may take longer than computed: Tang et al. measured 16 s
/// (section 7.3) where the model computes 3.8 to 5 s for such nodes.
const CHECKPOINT_TIMES: f64 = 4.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Process rows and columns.
    pub grid: (usize, usize),
    /// All candidates, by protocol, then parities, then group size.
    pub candidates: Vec<Candidate>,
    /// Index of the chosen candidate.
    pub chosen: usize,
    /// Index of the fastest recommended candidate that keeps its data, else of the surest; it
    /// differs from the chosen one if that has a smaller group.
    pub fastest: usize,
    /// Whether the chosen candidate keeps its data as surely as is asked for, or has none to keep.
    pub keeps_data: bool,
}

impl Plan {
    pub fn choice(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// The fastest that keeps its data with `probability`, else the surest.
    pub fn best_of(&self, protocol: Protocol, probability: f64) -> Option<usize> {
        best(&self.candidates, |candidate| candidate.job.protocol == protocol, probability)
            .map(|(index, _)| index)
    }
}

impl PlannedMachine {
    pub fn validate(&self) -> Result<(), ModelError> {
        for (name, value) in [
            ("nodes", self.nodes),
            ("ranks_per_node", self.ranks_per_node),
            ("threads", self.threads),
            ("nb", self.nb),
        ] {
            at_least(name, value, 1, "1 or more")?;
        }
        let nodes = self.kinds.nodes();
        if !self.kinds.are_equal() {
            within("nodes", self.nodes, nodes..=nodes, "those of all kinds")?;
        }
        positive("node_memory_bytes", self.node_memory_bytes)?;
        positive("rate_over_model", self.rate_over_model)?;
        positive("copy_bytes_per_second", self.copy_bytes_per_second)?;
        if let Some(rate) = self.checkpoint_bytes_per_second {
            positive("checkpoint_bytes_per_second", rate)?;
        }
        positive("node_mtbf_seconds", self.node_mtbf_seconds)?;
        non_negative("downtime_seconds", self.downtime_seconds)?;
        fraction("finish_probability", self.finish_probability)?;
        self.core.validate()?;
        self.network.validate()
    }

    /// This machine with cores of `kinds`; of several, each process column gets blocks by its rate.
    pub fn with_kinds(&self, kinds: NodeKinds) -> Self {
        if kinds.are_equal() {
            return Self { kinds, ..*self };
        }
        Self { kinds, core: self.core.with_core_flops(kinds.mean_core_flops()), ..*self }
    }

    /// All process columns get equally many blocks, so that all nodes are as fast as the slowest.
    pub fn with_equal_blocks(&self) -> Self {
        let slowest = self.kinds.slowest_core_flops();
        let core = slowest.map_or(self.core, |flops| self.core.with_core_flops(flops));
        Self { kinds: NodeKinds::default(), core, ..*self }
    }

    /// The rate of a core of each process column on a grid, in flop/s; none if all are equal.
    pub fn column_core_flops(&self, grid: (usize, usize)) -> Vec<f64> {
        self.kinds.column_core_flops(self.ranks_per_node, grid)
    }

    /// The columns for which each rank has memory, relative to their mean.
    pub fn padding(&self, grid: (usize, usize)) -> f64 {
        padding(&self.column_core_flops(grid))
    }

    /// Without checkpoints, helper cores have no work and go to the solver.
    pub fn running(&self, protocol: Protocol) -> Self {
        if self.helper_cores == 0 || protocol.takes_checkpoints() {
            return *self;
        }
        Self { helper_cores: 0, ranks_per_node: self.cores_per_node / self.threads, ..*self }
    }

    /// The smallest of the groups that a run forms on these nodes when it is asked for `group`. The
    /// nodes are cut into as few spans of at most its size as possible, so that groups are smaller
    /// where the size does not divide the nodes (`skt_checkpoint`'s `checkpoint::group::form`).
    pub(crate) fn formed(&self, protocol: Protocol, group: Group) -> Result<Group, ModelError> {
        if !protocol.takes_checkpoints() {
            return Ok(group);
        }
        let (nodes, size, parities) = (self.nodes, group.size(), group.parities());
        let spans = nodes.div_ceil(size).min(nodes / (2 * parities)).max(1);
        Group::new(nodes / spans, parities)
    }

    /// Bytes of a node for the matrix, copies and parities: what panels and buffers leave.
    ///
    /// Panels and buffers take 3 NB (N/P + N/Q) elements a rank. Let a node have u bytes left, the
    /// matrix the share f of them, and panels and buffers b N bytes. Then N = sqrt(f u nodes / e)
    /// with elements of e bytes, and u + b N is the node's memory: a quadratic equation in sqrt(u).
    /// On nodes of unequal speed all have memory for w times the mean ([`Self::padding`]), so that
    /// N = sqrt(f u nodes / (e w)), and a rank has w N/Q columns.
    fn usable_bytes(&self, protocol: Protocol, group: Group, grid: (usize, usize)) -> f64 {
        let padding = self.padding(grid);
        let (p, q, ranks) = (grid.0 as f64, grid.1 as f64 / padding, self.ranks_per_node as f64);
        let share = protocol.available_fraction(group) / padding;
        let element_bytes = self.element_bytes();
        let panels = element_bytes * ranks * 3.0 * self.nb as f64 * (1.0 / p + 1.0 / q);
        let vectors = if self.is_mxp { 8.0 * ranks * REFINEMENT_VECTORS / q } else { 0.0 };
        let linear = (panels + vectors) * (share * self.nodes as f64 / element_bytes).sqrt();
        let memory = self.node_memory_bytes;
        let memory = memory * ranks / (ranks + self.guests(protocol) as f64);
        let root = 2.0 * memory / (linear + (linear * linear + 4.0 * memory).sqrt());
        (root * root).min(memory * (1.0 - WORKSPACE_FRACTION))
    }

    /// Ranks for which each node leaves memory, if the others share those of a lost node evenly.
    pub fn guests(&self, protocol: Protocol) -> usize {
        if !self.leaves_room || protocol == Protocol::None {
            return 0;
        }
        self.ranks_per_node.div_ceil((self.nodes - 1).max(1))
    }

    /// Bytes of an element of the matrix.
    pub fn element_bytes(&self) -> f64 {
        if self.is_mxp { 4.0 } else { 8.0 }
    }

    fn in_precision(&self, core: path::Machine) -> path::Machine {
        if self.is_mxp { core.in_single_precision() } else { core }
    }

    /// Of matrix products, in the precision of the run, on all cores that the solver uses.
    pub fn node_flops(&self) -> f64 {
        let core = self.in_precision(self.core);
        (self.ranks_per_node * self.threads) as f64 / core.product_flop_seconds
    }

    pub fn plan(&self) -> Result<Plan, ModelError> {
        self.validate()?;
        self.validate_kinds()?;
        let sized = self
            .ways()?
            .into_iter()
            .map(|(protocol, group)| {
                let machine = self.running(protocol);
                let formed = machine.formed(protocol, group)?;
                let grid = machine.grid(protocol, group);
                let memory = protocol.split(formed, machine.usable_bytes(protocol, formed, grid));
                let n = machine.order(memory.workspace_bytes / machine.padding(grid))?;
                Ok((protocol, group, memory, n))
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        let on_all = |way: &&(Protocol, Group, MemorySplit, usize)| way.0 != Protocol::Abft;
        let orders = || sized.iter().filter(on_all).map(|way| way.3);
        let (least, most) = (orders().min().expect("none"), orders().max().expect("none"));
        let curve = EfficiencyCurve::walked(self, least, most)?;
        let candidates = sized
            .into_iter()
            .map(|(protocol, group, memory, n)| {
                let machine = self.running(protocol);
                let grid = machine.grid(protocol, group);
                // With checksums all rows of a step must be there before any of its products.
                let halves = protocol != Protocol::Abft;
                let efficiency = if halves && machine == *self {
                    curve.at(n)
                } else {
                    let run = RunParams { halves, ..machine.run_on(n, grid) };
                    machine.walked_efficiency(&run)?
                };
                machine.candidate(protocol, group, memory, n, grid, efficiency)
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        let (fastest, keeps_data) = best(&candidates, is_recommended, self.finish_probability)
            .expect("there is always none");
        let chosen = if keeps_data { self.smallest_group(&candidates, fastest) } else { fastest };
        Ok(Plan { grid: candidates[chosen].grid, candidates, chosen, fastest, keeps_data })
    }

    /// Refuses more kinds of nodes than there are process columns, which have a rate each.
    fn validate_kinds(&self) -> Result<(), ModelError> {
        let kinds = self.kinds.list().len();
        for machine in [*self, self.running(Protocol::None)] {
            let (p, q) = near_square(self.nodes * machine.ranks_per_node);
            if kinds > q {
                return Err(ModelError::no_plan(format!(
                    "{kinds} kinds of nodes and a {p} x {q} grid, whose process columns have a \
                     rate each; leave out a kind"
                )));
            }
        }
        Ok(())
    }

    /// Half of the MTBF; and, if the time of a checkpoint was computed, four times that time.
    pub fn what_ifs(&self, plan: &Plan) -> Result<Vec<WhatIf>, ModelError> {
        let job = plan.choice().job;
        let mut changed = vec![(
            "an MTBF of half as much".to_owned(),
            InMemoryJob { node_mtbf_seconds: 0.5 * job.node_mtbf_seconds, ..job },
        )];
        if job.protocol != Protocol::None && self.checkpoint_bytes_per_second.is_none() {
            let slower = InMemoryJob {
                checkpoint_seconds: CHECKPOINT_TIMES * job.checkpoint_seconds,
                recovery_seconds: CHECKPOINT_TIMES * job.recovery_seconds,
                ..job
            };
            changed.push((format!("checkpoints of {CHECKPOINT_TIMES} times as long"), slower));
        }
        let planned_seconds = plan.choice().expected.interval_seconds;
        let what_if = |(what, job): (String, InMemoryJob)| {
            let expected = job.expect(planned_seconds)?;
            Ok(WhatIf {
                what,
                cut_seconds: job.cut_seconds(job.best_interval_seconds()?),
                fewest_spares: job.fewest_spares(planned_seconds, self.finish_probability)?,
                expected,
                expected_gflops: self.run(plan.choice().n).flops() / expected.time_seconds / 1e9,
            })
        };
        changed.into_iter().map(what_if).collect()
    }

    fn ways(&self) -> Result<Vec<(Protocol, Group)>, ModelError> {
        let mut ways = vec![(Protocol::None, Group::new(2, 1)?)];
        for protocol in [Protocol::Single, Protocol::Double, Protocol::SelfCheckpoint] {
            for parities in PARITIES {
                for size in GROUP_SIZES {
                    if 2 * parities <= size && size <= self.nodes {
                        ways.push((protocol, Group::new(size, parities)?));
                    }
                }
            }
        }
        for parities in CHECKSUMS.filter(|_| !self.is_mxp && self.kinds.are_equal()) {
            for size in self.running(Protocol::Abft).widths().filter(|size| 2 * parities <= *size) {
                ways.push((Protocol::Abft, Group::new(size, parities)?));
            }
        }
        Ok(ways)
    }

    /// Lengths of process rows, including checksums, that are tried. Each rank of a row is on
    /// another node, so that the loss of a node costs no row more than one rank. No length is
    /// shorter than a process column, unless all are.
    fn widths(&self) -> impl Iterator<Item = usize> {
        let (nodes, ranks) = (self.nodes, self.nodes * self.ranks_per_node);
        let whole = move |width: &usize| nodes.is_multiple_of(*width);
        let longest = (2..=nodes.min(MAX_WIDTH)).filter(whole).max().unwrap_or(0);
        (2..=longest).filter(whole).filter(move |width| *width == longest || width * width >= ranks)
    }

    fn grid(&self, protocol: Protocol, group: Group) -> (usize, usize) {
        let ranks = self.nodes * self.ranks_per_node;
        match protocol {
            Protocol::Abft => (ranks / group.size(), group.size() - group.parities()),
            _ => near_square(ranks),
        }
    }

    /// Picks the smallest group (0 for protocol none), then the highest rate, among the recommended
    /// candidates that keep their data at a rate within [`RATE_TOLERANCE`] of the fastest.
    fn smallest_group(&self, candidates: &[Candidate], fastest: usize) -> usize {
        let enough = candidates[fastest].expected_gflops * (1.0 - RATE_TOLERANCE);
        let size = |candidate: &Candidate| match candidate.job.protocol {
            Protocol::None => 0,
            _ => candidate.job.group.size(),
        };
        (0..candidates.len())
            .filter(|&i| {
                let other = &candidates[i];
                is_recommended(other)
                    && keeps_data(other, self.finish_probability)
                    && other.expected_gflops >= enough
            })
            .min_by(|&a, &b| {
                let (a, b) = (&candidates[a], &candidates[b]);
                let sizes = size(a).cmp(&size(b));
                sizes.then(b.expected_gflops.total_cmp(&a.expected_gflops))
            })
            .unwrap_or(fastest)
    }

    fn candidate(
        &self,
        protocol: Protocol,
        group: Group,
        memory: MemorySplit,
        n: usize,
        grid: (usize, usize),
        hpl_efficiency: f64,
    ) -> Result<Candidate, ModelError> {
        let flops = self.run(n).flops();
        let work_seconds = flops / (hpl_efficiency * self.node_flops() * self.nodes as f64);
        let step_seconds = work_seconds / n.div_ceil(self.nb) as f64;
        let (checkpoint_seconds, recovery_seconds) = match protocol {
            Protocol::None => (0.0, 0.0),
            Protocol::Abft => (0.0, step_seconds + self.rebuilding_seconds(group, &memory)?),
            _ => self.checkpoint_and_recovery(group, n as f64, grid)?,
        };
        let ample = InMemoryJob {
            protocol,
            group,
            nodes: self.nodes,
            spares: None,
            node_mtbf_seconds: self.node_mtbf_seconds,
            work_seconds,
            checkpoint_seconds,
            overlap_fraction: self.overlap_fraction(protocol, n as f64, grid, checkpoint_seconds),
            downtime_seconds: self.downtime_seconds,
            recovery_seconds,
        };
        let interval_seconds = match protocol {
            Protocol::Abft => step_seconds,
            _ => ample.best_interval_seconds()?,
        };
        let keeps_data = ample.expect(interval_seconds)?.keeps_data_probability;
        let suffice = self.finish_probability / keeps_data;
        let suffice = if suffice < 1.0 { suffice } else { self.finish_probability };
        let fewest_spares = ample.fewest_spares(interval_seconds, suffice)?;
        let job = InMemoryJob { spares: self.spares.or(fewest_spares), ..ample };
        let expected = job.expect(interval_seconds)?;
        let expected_gflops = flops / expected.time_seconds / 1e9;
        Ok(Candidate {
            n,
            grid,
            hpl_efficiency,
            memory,
            job,
            fewest_spares,
            expected,
            expected_gflops,
        })
    }

    /// The largest multiple of NB whose matrix fits into the memory.
    fn order(&self, workspace_bytes: f64) -> Result<usize, ModelError> {
        let elements = workspace_bytes * self.nodes as f64 / self.element_bytes();
        let n = elements.sqrt() as usize / self.nb * self.nb;
        if n == 0 {
            return Err(ModelError::no_plan(format!(
                "{workspace_bytes:.0} bytes a node hold not one block of {}",
                self.nb
            )));
        }
        Ok(n)
    }

    /// The run of order `n` in the planned configuration, with defaults for everything else.
    pub fn run(&self, n: usize) -> RunParams {
        self.run_on(n, near_square(self.nodes * self.ranks_per_node))
    }

    fn run_on(&self, n: usize, grid: (usize, usize)) -> RunParams {
        RunParams { threads: self.threads, ..RunParams::new(n, self.nb, grid) }
    }

    /// E(N) of a run on all nodes, by the model of the critical path.
    fn walked_efficiency(&self, run: &RunParams) -> Result<f64, ModelError> {
        let core = networked(&self.core, &self.network, self.nodes, self.ranks_per_node);
        let core = self.in_precision(core);
        let rates = self.kinds.column_rates(self.ranks_per_node, (run.p, run.q));
        let rate = run.flops() / path::estimate_unequal_seconds(run, &core, &rates)?;
        Ok(self.rate_over_model * rate / (self.node_flops() * self.nodes as f64))
    }

    /// One sum along the process rows of the lost node: Chen and Dongarra, eq. 8.
    fn rebuilding_seconds(&self, group: Group, memory: &MemorySplit) -> Result<f64, ModelError> {
        let code = if group.parities() == 1 { Code::Sum } else { Code::Weighted };
        // A node has its part of the data, or as many bytes of checksums.
        let node_bytes = memory.total_bytes();
        self.network.grouped_seconds(group.size(), 1, node_bytes, code)
    }

    /// Seconds of a mean checkpoint, which saves the trailing corner, 3/5 of the matrix on average;
    /// and of a recovery, which encodes all of the matrix again and copies it back.
    fn checkpoint_and_recovery(
        &self,
        group: Group,
        order: f64,
        grid: (usize, usize),
    ) -> Result<(f64, f64), ModelError> {
        let [mean_bytes, node_bytes] = self.saved_bytes(order, grid);
        Ok((self.saving_seconds(group, mean_bytes)?, self.saving_seconds(group, node_bytes)?))
    }

    /// Of a node's matrix, what a checkpoint saves on average, and all, on the node with the most.
    fn saved_bytes(&self, order: f64, grid: (usize, usize)) -> [f64; 2] {
        let mean_bytes = self.element_bytes() * order * order / self.nodes as f64;
        let node_bytes = self.padding(grid) * mean_bytes;
        [node_bytes * Saved::Corner.mean_fraction_by_time(), node_bytes]
    }

    /// The share of full speed at which the solver continues during a checkpoint: with helper cores
    /// everything except the copy.
    fn overlap_fraction(
        &self,
        protocol: Protocol,
        order: f64,
        grid: (usize, usize),
        checkpoint_seconds: f64,
    ) -> f64 {
        if protocol != Protocol::SelfCheckpoint || self.helper_cores == 0 {
            return 0.0;
        }
        let [mean_bytes, _] = self.saved_bytes(order, grid);
        let copy_seconds = mean_bytes / self.copy_bytes_per_second;
        // A checkpoint that takes no time overlaps nothing.
        (1.0 - copy_seconds / checkpoint_seconds).max(0.0)
    }

    /// Seconds to encode and copy `bytes` of each node: Chen and Dongarra, eq. 8, followed by the
    /// copy; or at the measured rate, once per parity.
    fn saving_seconds(&self, group: Group, bytes: f64) -> Result<f64, ModelError> {
        let parities = group.parities();
        if let Some(rate) = self.checkpoint_bytes_per_second {
            return Ok(parities as f64 * bytes / rate);
        }
        let code = if parities == 1 { Code::Sum } else { Code::Weighted };
        let encode = self.network.grouped_seconds(group.size(), parities, bytes, code)?;
        Ok(encode + bytes / self.copy_bytes_per_second)
    }
}

/// For messages between `nodes` nodes, whose network the ranks of a node share evenly.
pub fn networked(
    core: &path::Machine,
    network: &Network,
    nodes: usize,
    ranks_per_node: usize,
) -> path::Machine {
    if nodes == 1 {
        return *core;
    }
    path::Machine {
        message_seconds: network.latency_seconds,
        message_byte_seconds: network.transfer_seconds_per_byte * ranks_per_node as f64,
        ..*core
    }
}

/// By the model of the critical path, walked at a few orders. ln E is a polynomial of ln N.
struct EfficiencyCurve {
    /// Pairs of ln N and ln E.
    points: Vec<(f64, f64)>,
}

impl EfficiencyCurve {
    /// The curve over all orders from `least` to `most`, both multiples of NB.
    fn walked(machine: &PlannedMachine, least: usize, most: usize) -> Result<Self, ModelError> {
        const POINTS: i32 = 4;
        let ratio = most as f64 / least as f64;
        let mut orders: Vec<usize> = (0..POINTS)
            .map(|i| least as f64 * ratio.powf(f64::from(i) / f64::from(POINTS - 1)))
            .map(|n| (n / machine.nb as f64).round() as usize * machine.nb)
            .collect();
        orders.dedup();
        let points = orders
            .into_iter()
            .map(|n| {
                let efficiency = machine.walked_efficiency(&machine.run(n))?;
                Ok(((n as f64).ln(), efficiency.ln()))
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        Ok(Self { points })
    }

    /// E(n), by Lagrange's formula.
    fn at(&self, n: usize) -> f64 {
        let x = (n as f64).ln();
        let term = |i: usize, (xi, yi): (f64, f64)| -> f64 {
            let others = self.points.iter().enumerate().filter(|(j, _)| *j != i);
            others.map(|(_, (xj, _))| (x - xj) / (xi - xj)).product::<f64>() * yi
        };
        self.points.iter().enumerate().map(|(i, &point)| term(i, point)).sum::<f64>().exp()
    }
}

/// Whether to recommend the candidate; others can be run for comparison.
fn is_recommended(candidate: &Candidate) -> bool {
    match candidate.job.protocol {
        Protocol::None => true,
        Protocol::SelfCheckpoint => candidate.gain() > RATE_TOLERANCE,
        _ => false,
    }
}

/// True for protocol none, which saves no data: its expected time includes the restarts.
fn keeps_data(candidate: &Candidate, probability: f64) -> bool {
    candidate.job.protocol == Protocol::None
        || candidate.expected.keeps_data_probability >= probability
}

/// The fastest of the `eligible` candidates that keeps its data with `probability`, and true. If
/// there is none, or if it takes no checkpoints and another candidate is faster by more than
/// [`RATE_TOLERANCE`], the surest candidate, and false.
fn best(
    candidates: &[Candidate],
    eligible: impl Fn(&Candidate) -> bool,
    probability: f64,
) -> Option<(usize, bool)> {
    let all = || candidates.iter().enumerate().filter(|(_, candidate)| eligible(candidate));
    let rate = |candidate: &Candidate| candidate.expected_gflops;
    let keeps = |candidate: &Candidate| candidate.expected.keeps_data_probability;
    let sure = all().filter(|(_, candidate)| keeps_data(candidate, probability));
    if let Some((index, fastest)) = sure.max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b))) {
        // A run that starts over and over is no alternative to checkpoints that make progress, even
        // if these may lose data.
        let enough = |other: &Candidate| (1.0 - RATE_TOLERANCE) * rate(other);
        let is_beaten = || all().any(|(_, other)| enough(other) > rate(fastest));
        if fastest.job.protocol != Protocol::None || !is_beaten() {
            return Some((index, true));
        }
    }
    let surest = |a: &Candidate, b: &Candidate| {
        keeps(a).total_cmp(&keeps(b)).then(rate(a).total_cmp(&rate(b)))
    };
    all().max_by(|(_, a), (_, b)| surest(a, b)).map(|(index, _)| (index, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NodeKind;
    use crate::path::{Changes, predict};
    use crate::{HOUR_SECONDS, YEAR_SECONDS};

    fn cluster(nodes: usize, node_mtbf_seconds: f64) -> PlannedMachine {
        PlannedMachine {
            nodes,
            spares: Some(50),
            ranks_per_node: 2,
            threads: 4,
            cores_per_node: 8,
            helper_cores: 0,
            node_memory_bytes: 64e9,
            leaves_room: false,
            core: path::Machine::ZEN4_CORE.with_core_flops(50e9),
            kinds: NodeKinds::default(),
            rate_over_model: 1.0,
            network: Network {
                latency_seconds: 2e-6,
                transfer_seconds_per_byte: 1e-10,
                reduce_seconds_per_byte: 5e-11,
            },
            copy_bytes_per_second: 20e9,
            checkpoint_bytes_per_second: None,
            node_mtbf_seconds,
            downtime_seconds: 60.0,
            nb: 256,
            finish_probability: 0.99,
            is_mxp: false,
        }
    }

    /// In groups of 16, copies and parities of a matrix in single precision take as much memory as
    /// a matrix in double precision alone.
    #[test]
    fn protected_hpl_mxp_has_the_n_of_unprotected_hpl() {
        let hpl = cluster(64, YEAR_SECONDS);
        let mxp = PlannedMachine { is_mxp: true, ..hpl };
        let order = |machine: &PlannedMachine, protocol: Protocol, size: usize| {
            let plan = machine.plan().unwrap();
            let is_asked = |candidate: &&Candidate| {
                let InMemoryJob { protocol: of_job, group, .. } = candidate.job;
                let is_of_group = protocol == Protocol::None || group.size() == size;
                of_job == protocol && is_of_group && group.parities() == 1
            };
            plan.candidates.iter().find(is_asked).expect("a candidate").n as f64
        };
        let ratio = order(&mxp, Protocol::SelfCheckpoint, 16) / order(&hpl, Protocol::None, 16);
        assert!((0.95..1.0).contains(&ratio), "{ratio}");
        let ratio = order(&mxp, Protocol::None, 16) / order(&hpl, Protocol::None, 16);
        assert!((1.38..2.0f64.sqrt()).contains(&ratio), "{ratio}");
        let plan = mxp.plan().unwrap();
        assert!(plan.candidates.iter().all(|candidate| candidate.job.protocol != Protocol::Abft));
        let (choice, of_hpl) = (plan.choice(), hpl.plan().unwrap());
        let times = choice.expected_gflops / of_hpl.choice().expected_gflops;
        assert!((1.8..2.1).contains(&times), "{times}");
        assert_eq!(mxp.node_flops(), 2.0 * hpl.node_flops());
        let latency = path::Machine::ZEN4_CORE.message_seconds;
        assert_eq!(path::Machine::ZEN4_CORE.in_single_precision().message_seconds, latency);
    }

    /// Encoding next to the solver costs it only the time of the copy, and the cores.
    #[test]
    fn encoding_on_helper_cores_costs_cores_and_no_time() {
        let at_once = cluster(64, YEAR_SECONDS);
        // 8 cores, of which the solver has 4.
        let helped = PlannedMachine { helper_cores: 4, ranks_per_node: 1, ..at_once };
        let best = |machine: &PlannedMachine| {
            let plan = machine.plan().unwrap();
            plan.candidates[plan.best_of(Protocol::SelfCheckpoint, 0.99).unwrap()]
        };
        let (stands, by_helpers) = (best(&at_once), best(&helped));
        assert_eq!(stands.job.overlap_fraction, 0.0);
        let bytes =
            8.0 * (by_helpers.n as f64).powi(2) / 64.0 * Saved::Corner.mean_fraction_by_time();
        let copied = bytes / 20e9 / by_helpers.job.checkpoint_seconds;
        assert!((by_helpers.job.overlap_fraction - (1.0 - copied)).abs() < 1e-12);
        assert!(by_helpers.expected.efficiency > stands.expected.efficiency);
        assert!(by_helpers.expected_gflops < 0.6 * stands.expected_gflops, "half of the cores");
        assert_eq!(helped.running(Protocol::None), at_once);
        // Of 12 cores, 3 helper cores leave 2 ranks of 4 threads, with one core idle.
        let uneven =
            PlannedMachine { cores_per_node: 12, helper_cores: 3, ranks_per_node: 2, ..at_once };
        assert_eq!(uneven.running(Protocol::None).ranks_per_node, 3);
        let all: f64 = by_helpers.time_parts().iter().sum();
        assert!((all / by_helpers.expected.time_seconds - 1.0).abs() < 1e-6);
        for protocol in [Protocol::None, Protocol::Single, Protocol::Double, Protocol::Abft] {
            let others = helped.plan().unwrap().candidates.into_iter();
            let mut others = others.filter(|c| c.job.protocol == protocol);
            assert!(others.all(|c| c.job.overlap_fraction == 0.0), "{protocol:?}");
        }
    }

    #[test]
    fn one_node_fails_as_often_as_one_node() {
        let plan = cluster(1, YEAR_SECONDS).plan().unwrap();
        assert_eq!(plan.choice().job.system_mtbf_seconds(), YEAR_SECONDS);
    }

    /// A slow network makes an encoding take longer than the best interval, so that checkpoints
    /// during the computation follow one another without a gap.
    #[test]
    fn work_during_checkpoints_counts_in_their_number() {
        let mut machine = PlannedMachine { helper_cores: 4, ranks_per_node: 1, ..cluster(64, 2e7) };
        machine.network.transfer_seconds_per_byte = 1e-8;
        let plan = machine.plan().unwrap();
        let best = &plan.candidates[plan.best_of(Protocol::SelfCheckpoint, 0.99).unwrap()];
        let (job, interval_seconds) = (&best.job, best.expected.interval_seconds);
        let overlap_seconds = job.overlap_fraction * job.checkpoint_seconds;
        assert!(overlap_seconds > 0.1 * interval_seconds);
        let work_seconds =
            best.checkpoints() * (interval_seconds + overlap_seconds) + interval_seconds;
        assert!((work_seconds / job.work_seconds - 1.0).abs() < 1e-12, "{best:?}");
        let all: f64 = best.time_parts().iter().sum();
        assert!((all / best.expected.time_seconds - 1.0).abs() < 1e-12, "{all}");
    }

    /// The run cuts five nodes into groups of two and three; in the group of two each member keeps
    /// as much in parities as in data.
    #[test]
    fn the_smallest_group_that_is_formed_decides_the_memory() {
        let plan = cluster(5, 0.1 * YEAR_SECONDS).plan().unwrap();
        let group = Group::new(4, 1).unwrap();
        let is_of =
            |c: &&Candidate| c.job.protocol == Protocol::SelfCheckpoint && c.job.group == group;
        let split = plan.candidates.iter().find(is_of).unwrap().memory;
        assert_eq!(split.workspace_bytes, 0.25 * split.total_bytes());
        assert_eq!(split.parities_bytes, 2.0 * split.workspace_bytes);
    }

    #[test]
    fn helper_cores_cost_nothing_where_they_have_no_work() {
        let without = PlannedMachine { threads: 1, ranks_per_node: 8, ..cluster(64, YEAR_SECONDS) };
        let with = PlannedMachine { helper_cores: 4, ranks_per_node: 4, ..without };
        let (without, with) = (without.plan().unwrap(), with.plan().unwrap());
        for protocol in [Protocol::None, Protocol::Abft] {
            let of = |plan: &Plan| plan.candidates[plan.best_of(protocol, 0.99).unwrap()];
            let (alone, helped) = (of(&without), of(&with));
            assert_eq!((alone.n, alone.grid), (helped.n, helped.grid));
            let ratio = helped.expected_gflops / alone.expected_gflops;
            assert!((ratio - 1.0).abs() < 1e-9, "{protocol:?}: {ratio}");
        }
    }

    #[test]
    fn matrix_and_work_space_of_many_ranks_fit() {
        let many = PlannedMachine {
            threads: 1,
            ranks_per_node: 64,
            cores_per_node: 64,
            ..cluster(1_000, YEAR_SECONDS)
        };
        for candidate in many.plan().unwrap().candidates {
            let (p, q) = candidate.grid;
            let n = candidate.n as f64;
            let rank_doubles = 3.0 * 256.0 * (n / p as f64 + n / q as f64);
            let matrix_bytes = 8.0 * n * n / 1_000.0;
            assert!(matrix_bytes <= candidate.memory.workspace_bytes);
            let bytes = candidate.memory.total_bytes() + 64.0 * 8.0 * rank_doubles;
            assert!(bytes <= 64e9, "{candidate:?}: {bytes}");
        }
    }

    #[test]
    fn room_for_a_lost_node_is_the_memory_of_its_ranks() {
        for (nodes, each, guests) in [(64, 4, 1), (4, 8, 3), (2, 8, 8)] {
            let full = PlannedMachine {
                threads: 1,
                ranks_per_node: each,
                cores_per_node: each,
                ..cluster(nodes, YEAR_SECONDS)
            };
            let left = PlannedMachine { leaves_room: true, ..full };
            let share = each as f64 / (each + guests) as f64;
            let less = PlannedMachine { node_memory_bytes: share * full.node_memory_bytes, ..full };
            let [full, left, less] = [full, left, less].map(|machine| machine.plan().unwrap());
            for (index, left) in left.candidates.iter().enumerate() {
                let protocol = left.job.protocol;
                let same = if protocol == Protocol::None { &full } else { &less };
                assert_eq!(left.n, same.candidates[index].n, "{nodes} nodes, {protocol}");
            }
        }
    }

    fn kinds(list: &[(usize, f64)]) -> NodeKinds {
        let kind = |&(nodes, gflops): &(usize, f64)| NodeKind { nodes, core_flops: 1e9 * gflops };
        NodeKinds::new(&list.iter().map(kind).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn equal_kinds_plan_as_equal_nodes() {
        let machine = cluster(64, YEAR_SECONDS);
        let same = machine.with_kinds(kinds(&[(60, 50.0), (4, 50.0)]));
        assert_eq!(same.plan(), machine.plan());
        assert_eq!(machine.with_equal_blocks(), machine);
    }

    /// 128 ranks on 8 x 16: twelve process columns of the fast nodes, and four of the slow ones.
    #[test]
    fn nodes_of_unequal_speed_by_hand() {
        let core = path::Machine::ZEN4_CORE.with_core_flops(55e9);
        let equal = PlannedMachine { core, ..cluster(64, YEAR_SECONDS) };
        let unequal = equal.with_kinds(kinds(&[(16, 40.0), (48, 60.0)]));
        let (plan, of_equal) = (unequal.plan().unwrap(), equal.plan().unwrap());
        let padding = 60.0 / 55.0;
        assert!((unequal.padding((8, 16)) - padding).abs() < 1e-12);
        assert_eq!(unequal.padding((8, 16)), unequal.padding(plan.grid));
        let is_abft = |c: &Candidate| c.job.protocol == Protocol::Abft;
        assert!(!plan.candidates.iter().any(is_abft));
        for candidate in &plan.candidates {
            let n = candidate.n as f64;
            let padded_bytes = padding * 8.0 * n * n / 64.0;
            assert!(padded_bytes <= candidate.memory.workspace_bytes);
            assert!(padded_bytes >= 0.99 * candidate.memory.workspace_bytes, "{candidate:?}");
        }
        // Twelve columns of 60 and four of 40 are 55 on average, of which as much is reached as
        // of 55 everywhere, on a matrix that is smaller by the root of the padding.
        let (none, of_equal) = (&plan.candidates[0], &of_equal.candidates[0]);
        assert!((of_equal.n as f64 / none.n as f64 / padding.sqrt() - 1.0).abs() < 0.01);
        assert!((unequal.node_flops() / (8.0 * 55e9) - 1.0).abs() < 1e-12);
        let loss = of_equal.hpl_efficiency - none.hpl_efficiency;
        assert!((0.0..0.01).contains(&loss), "{loss}");
        // With as many blocks each, all are as fast as the slow ones.
        let blocks = unequal.with_equal_blocks().plan().unwrap().candidates[0].expected_gflops;
        let gain = none.expected_gflops / blocks;
        assert!((1.3..1.4).contains(&gain), "{gain}");
        // A checkpoint saves as much as the node with the most.
        let of_self = |plan: &Plan| {
            let job = |c: &&Candidate| c.job.protocol == Protocol::SelfCheckpoint;
            let first = plan.candidates.iter().find(job).unwrap();
            first.job.recovery_seconds / (first.n as f64).powi(2)
        };
        let times = of_self(&plan) / of_self(&equal.plan().unwrap());
        assert!((times / padding - 1.0).abs() < 0.01, "{times}");
    }

    #[test]
    fn more_kinds_than_process_columns_are_refused() {
        let machine = PlannedMachine { ranks_per_node: 1, ..cluster(4, YEAR_SECONDS) };
        let why = |list: &[(usize, f64)]| machine.with_kinds(kinds(list)).plan().unwrap_err();
        let refused = why(&[(2, 40.0), (1, 35.0), (1, 30.0)]).to_string();
        assert!(refused.contains("3 kinds of nodes and a 2 x 2 grid"), "{refused}");
        assert!(machine.with_kinds(kinds(&[(2, 40.0), (2, 35.0)])).plan().is_ok());
        let refused = why(&[(2, 40.0), (1, 35.0)]).to_string();
        assert!(refused.contains("nodes = 4"), "{refused}");
    }

    #[test]
    fn a_gain_within_the_tolerance_does_not_beat_what_needs_no_luck() {
        let plan = cluster(300, 0.25 * YEAR_SECONDS).plan().unwrap();
        let none = plan.candidates[plan.best_of(Protocol::None, 0.99).unwrap()];
        let mut unsure = plan.candidates[plan.best_of(Protocol::SelfCheckpoint, 0.99).unwrap()];
        unsure.expected.keeps_data_probability = 0.5;
        let mut best_if = |gain: f64| {
            unsure.expected_gflops = (1.0 + gain) * none.expected_gflops;
            best(&[none, unsure], |_| true, 0.99).unwrap()
        };
        assert_eq!(best_if(0.5 * RATE_TOLERANCE), (0, true));
        assert_eq!(best_if(2.0 * RATE_TOLERANCE), (1, false));
    }

    #[test]
    fn a_reliable_machine_needs_no_checkpoint() {
        let plan = cluster(64, 1e6 * YEAR_SECONDS).plan().unwrap();
        assert_eq!(plan.choice().job.protocol, Protocol::None);
        assert_eq!(plan.choice().fewest_spares, Some(0));
        assert!(plan.keeps_data);
    }

    /// 200 nodes of 128 cores and 512 GiB, each with an MTBF of five years.
    fn large_nodes() -> PlannedMachine {
        PlannedMachine {
            ranks_per_node: 8,
            threads: 16,
            cores_per_node: 128,
            node_memory_bytes: 0.8 * 512.0 * f64::from(1 << 30),
            spares: None,
            downtime_seconds: 90.0,
            ..cluster(200, 43_800.0 * HOUR_SECONDS)
        }
    }

    fn network_of_large_nodes(
        transfer_seconds_per_byte: f64,
        reduce_seconds_per_byte: f64,
    ) -> Network {
        Network { latency_seconds: 2e-6, transfer_seconds_per_byte, reduce_seconds_per_byte }
    }

    #[test]
    fn memory_for_checkpoints_that_are_never_taken_is_the_matrix() {
        // The MTBF of a node is five years; a run with self takes 1.2 h, and no checkpoint is due.
        let machine = PlannedMachine {
            network: network_of_large_nodes(1e-10, 1e-10),
            copy_bytes_per_second: 10e9,
            ..large_nodes()
        };
        let plan = machine.plan().unwrap();
        let choice = plan.choice();
        assert!(
            choice.job.protocol == Protocol::None || choice.checkpoints() > 0.0,
            "{:?} of {:?} with {} checkpoints",
            choice.job.protocol,
            choice.job.group,
            choice.checkpoints()
        );
    }

    /// With self checkpoints the matrix is so much smaller that hardly a failure strikes while it
    /// is solved, with or without them.
    #[test]
    fn a_run_that_is_merely_shorter_is_no_merit_of_checkpoints() {
        let machine = PlannedMachine {
            core: path::Machine::ZEN4_CORE.with_core_flops(40e9),
            network: network_of_large_nodes(4e-11, 5e-11),
            ..large_nodes()
        };
        let plan = machine.plan().unwrap();
        let choice = plan.choice();
        let best = &plan.candidates[plan.best_of(Protocol::SelfCheckpoint, 0.99).unwrap()];
        assert!(best.expected_gflops > (1.0 + RATE_TOLERANCE) * choice.expected_gflops);
        assert!(best.checkpoints() > 0.0 && best.gain() > 0.0 && best.gain() < RATE_TOLERANCE);
        assert_eq!(choice.job.protocol, Protocol::None);
        // The gain is that over none on the same matrix.
        let InMemoryJob { work_seconds, downtime_seconds, .. } = best.job;
        let mtbf = 43_800.0 * HOUR_SECONDS / 200.0;
        let unprotected = (work_seconds / mtbf).exp_m1() * mtbf * (downtime_seconds / mtbf).exp();
        let gain = unprotected / best.expected.time_seconds - 1.0;
        assert!((best.gain() - gain).abs() < 1e-12);
    }

    #[test]
    fn an_unreliable_one_takes_the_self_checkpoint() {
        let machine = cluster(300, 0.25 * YEAR_SECONDS);
        let plan = machine.plan().unwrap();
        assert!(plan.keeps_data);
        let choice = plan.choice();
        assert_eq!(choice.job.protocol, Protocol::SelfCheckpoint);
        let best_of = |protocol| &plan.candidates[plan.best_of(protocol, 0.99).unwrap()];
        // The double checkpoint leaves a third of the memory: a smaller, slower matrix.
        let (double, fastest) = (best_of(Protocol::Double), &plan.candidates[plan.fastest]);
        assert!(double.n < fastest.n && double.expected_gflops < fastest.expected_gflops);
        let none = best_of(Protocol::None);
        assert!(none.n > choice.n && none.expected.finish_probability() < 0.5);
    }

    #[test]
    fn a_larger_group_has_to_be_worth_it() {
        let machine = cluster(100, 0.1 * YEAR_SECONDS);
        let plan = machine.plan().unwrap();
        let (choice, fastest) = (plan.choice(), &plan.candidates[plan.fastest]);
        assert!(choice.job.group.size() < fastest.job.group.size());
        assert!(choice.expected_gflops >= (1.0 - RATE_TOLERANCE) * fastest.expected_gflops);
        for smaller in plan.candidates.iter().filter(|candidate| {
            candidate.job.protocol == Protocol::SelfCheckpoint
                && candidate.job.group.size() < choice.job.group.size()
                && candidate.expected.keeps_data_probability >= 0.99
        }) {
            assert!(smaller.expected_gflops < (1.0 - RATE_TOLERANCE) * fastest.expected_gflops);
        }
    }

    #[test]
    fn spares_follow_from_the_choice_and_do_not_decide_it() {
        let with = |spares| PlannedMachine { spares, ..cluster(100, 0.1 * YEAR_SECONDS) };
        let free = with(None).plan().unwrap();
        let fewest = free.choice().fewest_spares.unwrap();
        assert!(fewest > 0);
        assert!(free.choice().expected.finish_probability() >= 0.99);
        let finishes = |spares| {
            let plan = with(Some(spares)).plan().unwrap();
            assert_eq!(plan.choice().job.group, free.choice().job.group, "{spares} spares");
            plan.choice().expected.finish_probability()
        };
        assert!(finishes(fewest - 1) < 0.99);
        assert!(finishes(fewest) >= 0.99);
    }

    #[test]
    fn the_network_counts() {
        let at = |bytes_per_second: f64| {
            let mut machine = cluster(16, YEAR_SECONDS);
            machine.network.transfer_seconds_per_byte = 1.0 / bytes_per_second;
            machine.plan().unwrap().choice().hpl_efficiency
        };
        assert!(at(0.01e9) < 0.2 * at(10e9), "{} {}", at(0.01e9), at(10e9));
        // One node has no network.
        let alone = PlannedMachine { nodes: 1, ..cluster(1, YEAR_SECONDS) };
        let mut slow = alone;
        slow.network.transfer_seconds_per_byte = 1e-6;
        let efficiency = |machine: PlannedMachine| machine.plan().unwrap().choice().hpl_efficiency;
        assert_eq!(efficiency(alone), efficiency(slow));
    }

    #[test]
    fn between_the_orders_walked_the_efficiency_is_that_of_the_walk() {
        for bytes_per_second in [0.05e9, 1e9, 20e9] {
            let mut machine = cluster(24, YEAR_SECONDS);
            machine.network.transfer_seconds_per_byte = 1.0 / bytes_per_second;
            let core = networked(&machine.core, &machine.network, 24, 2);
            for candidate in machine.plan().unwrap().candidates {
                let halves = candidate.job.protocol != Protocol::Abft;
                let run = RunParams { halves, ..machine.run_on(candidate.n, candidate.grid) };
                let (p, q) = candidate.grid;
                let of_data = (p * q) as f64 / 48.0;
                let walked =
                    of_data * predict(&run, &core, &Changes::default()).unwrap().efficiency;
                let error = candidate.hpl_efficiency / walked - 1.0;
                assert!(
                    error.abs() < 0.005,
                    "N {}: {error}, {bytes_per_second}, {:?}",
                    candidate.n,
                    candidate.job.protocol
                );
            }
        }
    }

    #[test]
    fn a_measured_rate_takes_the_place_of_the_computed_checkpoint() {
        let machine = PlannedMachine {
            checkpoint_bytes_per_second: Some(1e9),
            ..cluster(100, 0.1 * YEAR_SECONDS)
        };
        let candidates = machine.plan().unwrap().candidates;
        for candidate in candidates.iter().filter(|other| other.job.protocol != Protocol::Abft) {
            let InMemoryJob { protocol, group, checkpoint_seconds, recovery_seconds, .. } =
                candidate.job;
            let of_matrix = match protocol {
                Protocol::None => 0.0,
                _ => group.parities() as f64 * 8.0 * (candidate.n as f64).powi(2) / 1e11,
            };
            assert!((recovery_seconds - of_matrix).abs() < 1e-9);
            assert!((checkpoint_seconds - 0.6 * of_matrix).abs() < 1e-9);
        }
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

    /// By hand, for 96 nodes of 2 ranks: the shares, the time of a run without failures and with
    /// them, and the losses.
    #[test]
    fn checksums_by_hand() {
        let machine = cluster(96, YEAR_SECONDS);
        let plan = machine.plan().unwrap();
        let of_abft = |m| {
            let is = move |c: &&Candidate| {
                c.job.protocol == Protocol::Abft && c.job.group == Group::new(48, m).unwrap()
            };
            plan.candidates.iter().find(is).unwrap()
        };
        // 192 ranks in rows of 48: each of 48 nodes has one rank of a row.
        let (one, three) = (of_abft(1), of_abft(3));
        assert_eq!((one.grid, three.grid), ((4, 47), (4, 45)));
        // Panels and buffers of two ranks, 3 NB (N/4 + N/47) doubles each, take more than 4 %.
        let panel_bytes = 2.0 * 8.0 * 3.0 * 256.0 * (1.0 / 4.0 + 1.0 / 47.0);
        let all = one.memory.total_bytes();
        let n = (all * 47.0 / 48.0 * 96.0 / 8.0f64).sqrt();
        assert!(all < 0.96 * 64e9);
        assert!(((all + panel_bytes * n) / 64e9 - 1.0).abs() < 1e-12);
        assert!((one.memory.workspace_bytes / all - 47.0 / 48.0).abs() < 1e-12);
        assert_eq!(one.memory.copies_bytes, 0.0);
        assert_eq!(one.n, (n / 256.0) as usize * 256);
        // 49 processes in the chain, 2 us, 10 GB/s, sums at 20 GB/s; and a step.
        let sum = ((48.0f64 - 1.0) * 2e-6).sqrt() + (all * 1.5e-10f64).sqrt();
        let step = one.job.work_seconds / (one.n / 256) as f64;
        assert!((one.job.recovery_seconds / (sum * sum + step) - 1.0).abs() < 1e-9);
        // Only outages and the step that a failure strikes count: W e^(V/mu) (e^(s/mu) - 1) mu/s.
        let mtbf = YEAR_SECONDS / 96.0;
        let outage = 60.0 + one.job.recovery_seconds;
        let time =
            one.job.work_seconds * (outage / mtbf).exp() * (step / mtbf).exp_m1() * mtbf / step;
        assert!((one.expected.time_seconds / time - 1.0).abs() < 1e-9);
        assert_eq!(one.time_parts()[1], 0.0);
        // Data is lost if a second rank of the same rows fails before the outage is over; with
        // three checksums, a fourth.
        let lost = 1.0 - one.expected.keeps_data_probability;
        let by_hand = one.expected.failures * 47.0 * outage / YEAR_SECONDS;
        assert!((lost / by_hand - 1.0).abs() < 0.01, "{lost} {by_hand}");
        assert!(three.expected.keeps_data_probability > 1.0 - 1e-9);
        // The candidate is there for comparison.
        assert!(plan.best_of(Protocol::Abft, 0.99).is_some());
        assert_ne!(plan.choice().job.protocol, Protocol::Abft);
        // Two ranks of a node in one row would be lost together.
        assert!(machine.widths().all(|width| 192 / width % 2 == 0));
        assert_eq!(cluster(4_000, YEAR_SECONDS).widths().last(), Some(250));
    }

    #[test]
    fn a_hopeless_machine_gets_the_safest_protocol_and_a_warning() {
        let plan = cluster(100, 0.15 * HOUR_SECONDS).plan().unwrap();
        assert!(!plan.keeps_data);
        // A run that never ends has a rate of 0, and is lost work.
        let machine = cluster(100, 1e-4 * HOUR_SECONDS);
        let plan = machine.plan().unwrap();
        let choice = plan.choice();
        assert_eq!(choice.expected.time_seconds, f64::INFINITY);
        assert_eq!(choice.time_parts()[3], f64::INFINITY);
        for what_if in machine.what_ifs(&plan).unwrap() {
            assert_eq!(what_if.expected_gflops, 0.0, "{}", what_if.what);
        }
    }

    #[test]
    fn bad_machines_are_refused() {
        let bad = PlannedMachine { node_mtbf_seconds: -1.0, ..cluster(4, 1.0) };
        assert!(bad.plan().unwrap_err().to_string().starts_with("node_mtbf_seconds = -1"));
        let tiny = PlannedMachine { node_memory_bytes: 1e5, ..cluster(4, YEAR_SECONDS) };
        assert!(tiny.plan().unwrap_err().to_string().starts_with("no configuration"));
    }
}
