//! The levels of images that a machine has room for, from its bandwidths and failures.
//!
//! Which failures need which level: an event that destroys the memory of all nodes leaves their
//! disks, so images on these are enough. More losses in a group than it survives take the disks of
//! those nodes with them, because other nodes replace them: only a file system that all nodes share
//! is left. If there is only one level, it serves all failures that it can restore from.

use super::{Level, Validity};
use crate::ModelError;
use crate::error::positive;
use crate::levels::Levels;
use crate::plan::{Candidate, PlannedMachine};
use crate::tang::memory::Protocol;

/// At which a core passes an image on to the page cache: what the writer of an image takes from the
/// cores of its rank. CPU seconds of writers in three runs of 7 images of 132 MB, on ext4 on a
/// virtual disk, gave 1.22 to 1.32 GB/s; a run measures its own rate.
const IMAGE_BYTES_PER_CORE_SECOND: f64 = 1.25e9;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storage {
    /// Bandwidth of a node's own disk, for reading as for writing; `None` for no images there.
    pub local_bytes_per_second: Option<f64>,
    /// Of the file system that all nodes share, for all together; `None` for no images there.
    pub global_bytes_per_second: Option<f64>,
    /// Mean time between events that destroy the memory of all nodes, such as power cuts.
    pub machine_mtbf_seconds: f64,
    /// Whether images on the nodes' own disks, if they pay, are also written; otherwise they are
    /// planned only for comparison, and serve no failure.
    pub writes_local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredIn {
    /// On each node's own disk.
    Local,
    /// On a file system that all nodes share.
    Global,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedLevel {
    pub stored_in: StoredIn,
    /// Bytes of the images of one node: its part of the matrix and the parities for it.
    pub node_bytes: f64,
    pub level: Level,
    /// Number of checkpoints in memory per image.
    pub every: usize,
    /// Seconds of work from one image to the next.
    pub interval_seconds: f64,
    /// The share of the time that images and the failures that need them take.
    pub loss_share: f64,
    /// The share of the time that these failures take without the level: such a failure then
    /// destroys half of the run on average.
    pub loss_share_without: f64,
    pub validity: Validity,
}

impl PlannedLevel {
    /// Whether the level saves more than it costs.
    pub fn pays(&self) -> bool {
        self.loss_share < self.loss_share_without
    }
}

impl Storage {
    pub fn validate(&self) -> Result<(), ModelError> {
        for (name, rate) in [
            ("local_bytes_per_second", self.local_bytes_per_second),
            ("global_bytes_per_second", self.global_bytes_per_second),
        ] {
            rate.map_or(Ok(0.0), |rate| positive(name, rate))?;
        }
        positive("machine_mtbf_seconds", self.machine_mtbf_seconds)?;
        Ok(())
    }

    /// The levels of images for a candidate, the nearest first; empty if it takes no checkpoints
    /// that images could be made of (protocols other than self and double).
    pub fn plan(
        &self,
        machine: &PlannedMachine,
        candidate: &Candidate,
    ) -> Result<Vec<PlannedLevel>, ModelError> {
        self.validate()?;
        candidate.job.validate()?;
        if !matches!(candidate.job.protocol, Protocol::SelfCheckpoint | Protocol::Double) {
            return Ok(Vec::new());
        }
        let job = &candidate.job;
        let planned = |stored_in, rate, mtbf_seconds| {
            planned(machine, candidate, stored_in, rate, mtbf_seconds)
        };
        let mut levels = Vec::new();
        if let Some(rate) = self.local_bytes_per_second {
            levels.push(planned(StoredIn::Local, rate, self.machine_mtbf_seconds)?);
        }
        if let Some(all) = self.global_bytes_per_second {
            let is_local_there = self.writes_local && levels.iter().any(PlannedLevel::pays);
            let cuts = if is_local_there { 0.0 } else { 1.0 / self.machine_mtbf_seconds };
            let mtbf_seconds = 1.0 / (cuts + 1.0 / job.data_loss_mtbf_seconds());
            levels.push(planned(StoredIn::Global, all / machine.nodes as f64, mtbf_seconds)?);
        }
        Ok(levels)
    }
}

/// `mtbf_seconds` is the mean time between failures that need the level and no nearer one.
fn planned(
    machine: &PlannedMachine,
    candidate: &Candidate,
    stored_in: StoredIn,
    node_bytes_per_second: f64,
    mtbf_seconds: f64,
) -> Result<PlannedLevel, ModelError> {
    let job = &candidate.job;
    let formed = machine.formed(job.protocol, job.group)?;
    let node_bytes = candidate.memory.workspace_bytes * (1.0 + formed.parity_ratio());
    // Data that passes through the solver's cores costs it time; helper cores only limit the rate.
    let cores_of = |count: usize| count as f64 * IMAGE_BYTES_PER_CORE_SECOND;
    let (rate, solver_seconds) = match machine.helper_cores {
        0 => {
            (node_bytes_per_second, node_bytes / cores_of(machine.ranks_per_node * machine.threads))
        }
        helpers => (node_bytes_per_second.min(cores_of(helpers)), 0.0),
    };
    let write_seconds = node_bytes / rate;
    let work_seconds = candidate.cut_seconds().min(job.work_seconds);
    // The next checkpoint waits until the previous image no longer needs its data.
    let waits_seconds = (write_seconds - work_seconds).max(0.0);
    let level = Level {
        cost_seconds: waits_seconds + solver_seconds,
        write_seconds,
        // An image is read as fast as it is written, then verified and copied.
        outage_seconds: job.outage_seconds() + write_seconds,
        mtbf_seconds,
    };
    let memory = Level {
        cost_seconds: (1.0 - job.overlap_fraction) * job.checkpoint_seconds,
        write_seconds: 0.0,
        outage_seconds: job.outage_seconds(),
        mtbf_seconds: job.system_mtbf_seconds(),
    };
    let levels = Levels { memory, images: vec![level] };
    let schedule = levels.best_images(work_seconds)?;
    let period_seconds = levels.periods_seconds(&schedule)[1];
    let every = schedule.every[0];
    Ok(PlannedLevel {
        stored_in,
        node_bytes,
        level,
        every,
        interval_seconds: every as f64 * work_seconds,
        loss_share: level.loss_share(period_seconds),
        loss_share_without: (job.outage_seconds() + 0.5 * job.work_seconds) / level.mtbf_seconds,
        validity: level.validity(period_seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chen::Network;
    use crate::kinds::NodeKinds;
    use crate::{HOUR_SECONDS, YEAR_SECONDS, path};

    fn machine() -> PlannedMachine {
        PlannedMachine {
            nodes: 100,
            spares: None,
            ranks_per_node: 4,
            threads: 16,
            cores_per_node: 64,
            helper_cores: 0,
            node_memory_bytes: 220e9,
            leaves_room: false,
            core: path::Machine::ZEN4_CORE.with_core_flops(40e9),
            kinds: NodeKinds::default(),
            rate_over_model: 1.0,
            network: Network {
                latency_seconds: 2e-6,
                transfer_seconds_per_byte: 4e-11,
                reduce_seconds_per_byte: 5e-11,
            },
            copy_bytes_per_second: 20e9,
            checkpoint_bytes_per_second: None,
            node_mtbf_seconds: 0.5 * YEAR_SECONDS,
            downtime_seconds: 90.0,
            nb: 256,
            finish_probability: 0.99,
            is_mxp: false,
        }
    }

    const BOTH: Storage = Storage {
        local_bytes_per_second: Some(2e9),
        global_bytes_per_second: Some(50e9),
        machine_mtbf_seconds: 24.0 * HOUR_SECONDS,
        writes_local: true,
    };

    /// Writing by a helper core costs the solver nothing, and is no faster than the core.
    #[test]
    fn helper_cores_take_over_what_images_cost() {
        let plan = machine().plan().unwrap();
        let with = |helper_cores| {
            let machine = PlannedMachine { helper_cores, ..machine() };
            let disk = Storage { global_bytes_per_second: None, ..BOTH };
            disk.plan(&machine, plan.choice()).unwrap()[0]
        };
        let (alone, helped, twice) = (with(0), with(1), with(2));
        assert!(alone.level.cost_seconds > 0.0 && alone.node_bytes == helped.node_bytes);
        assert_eq!(alone.level.write_seconds, alone.node_bytes / 2e9);
        assert_eq!(helped.level.write_seconds, alone.node_bytes / 1.25e9);
        assert_eq!(twice.level.write_seconds, alone.node_bytes / 2e9);
        assert_eq!(twice.level.cost_seconds, 0.0);
    }

    #[test]
    fn levels_of_a_machine_by_hand() {
        let machine = machine();
        let plan = machine.plan().unwrap();
        let choice = plan.choice();
        let [local, global] = BOTH.plan(&machine, choice).unwrap()[..] else { panic!() };
        let (group, memory) = (choice.job.group, choice.memory);
        // Self has one copy, and an image has one of its two sets of parities.
        let bytes = memory.copies_bytes + 0.5 * memory.parities_bytes;
        assert!((local.node_bytes / bytes - 1.0).abs() < 1e-12, "{group:?}");
        assert!((local.level.write_seconds / (bytes / 2e9) - 1.0).abs() < 1e-12);
        assert!((global.level.write_seconds / (bytes * 100.0 / 50e9) - 1.0).abs() < 1e-12);
        // The writing is hidden, except for what the writers take of 64 cores.
        let cost = bytes / (64.0 * IMAGE_BYTES_PER_CORE_SECOND);
        assert!((local.level.cost_seconds / cost - 1.0).abs() < 1e-12);
        let young = (2.0 * cost * 24.0 * HOUR_SECONDS).sqrt();
        let step = choice.expected.interval_seconds;
        assert!((local.interval_seconds - young).abs() < step, "{local:?} {young}");
        assert_eq!(local.interval_seconds, local.every as f64 * step);
        assert!(local.pays() && local.validity == Validity::Valid);
        // Losses beyond a group's parities are so rare that images for them do not pay.
        assert!(!global.pays() && global.level.mtbf_seconds > 50.0 * YEAR_SECONDS);
    }

    #[test]
    fn where_there_is_no_disk_the_file_system_serves_power_cuts() {
        let machine = machine();
        let plan = machine.plan().unwrap();
        let alone = Storage { local_bytes_per_second: None, ..BOTH };
        let [global] = alone.plan(&machine, plan.choice()).unwrap()[..] else { panic!() };
        assert_eq!(global.stored_in, StoredIn::Global);
        assert!((global.level.mtbf_seconds / (24.0 * HOUR_SECONDS) - 1.0).abs() < 1e-3);
        // A slow file system delays checkpoints, and each image costs the waiting.
        let slow = Storage { global_bytes_per_second: Some(0.5e9), ..alone };
        let [slow] = slow.plan(&machine, plan.choice()).unwrap()[..] else { panic!() };
        let waits = slow.level.write_seconds - plan.choice().expected.interval_seconds;
        assert!(waits > 0.0 && slow.level.cost_seconds > waits);
        assert!(slow.interval_seconds > global.interval_seconds);
        assert!(slow.interval_seconds >= slow.level.write_seconds);
    }

    /// A disk so slow that images on it do not pay, or are not written, leaves power cuts to the
    /// file system.
    #[test]
    fn a_level_that_is_not_written_serves_no_failures() {
        let plan = machine().plan().unwrap();
        let global = |storage: Storage| {
            let [.., global] = storage.plan(&machine(), plan.choice()).unwrap()[..] else {
                panic!()
            };
            assert_eq!(global.stored_in, StoredIn::Global);
            global.level.mtbf_seconds
        };
        let alone = global(Storage { local_bytes_per_second: None, ..BOTH });
        assert!(global(BOTH) > 100.0 * alone);
        assert_eq!(global(Storage { local_bytes_per_second: Some(1e6), ..BOTH }), alone);
        assert_eq!(global(Storage { writes_local: false, ..BOTH }), alone);
    }

    #[test]
    fn no_images_without_checkpoints_and_bad_storage_is_refused() {
        let reliable = PlannedMachine { node_mtbf_seconds: 1e6 * YEAR_SECONDS, ..machine() };
        let plan = reliable.plan().unwrap();
        assert_eq!(plan.choice().job.protocol, Protocol::None);
        assert_eq!(BOTH.plan(&reliable, plan.choice()).unwrap(), []);
        let bad = Storage { local_bytes_per_second: Some(0.0), ..BOTH };
        let why = bad.plan(&reliable, plan.choice()).unwrap_err().to_string();
        assert!(why.starts_with("local_bytes_per_second = 0"), "{why}");
    }
}
