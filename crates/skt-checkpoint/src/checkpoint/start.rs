//! The first steps of a start: take hold of the run, list what is there, agree, and verify that the
//! decision still holds once the segments are opened.
//!
//! Nothing changes here. What a process has found is valid only while no other process writes to
//! it, and a process of an earlier start may outlive its job a little. So each process opens its
//! segment, which excludes all others, and reads it again before any process changes anything.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::config::Config;
use super::decide::{
    Content, Decision, Finished, FoundSegment, Obstacle, Offer, Refusal, Rules, StartPlan, decide,
};
use super::error::{CheckpointError, Result, memory_error};
use super::header::{HeaderLayout, Identity, SegmentId};
use super::hook::{Hook, Step, StepName};
use super::level::failed::{level_error, remove_images};
use super::level::format::encode_choice;
use super::level::probe::{ImageQuery, Seen};
use super::level::{FileId, IMAGE_PAGE_BYTES, Level, Reach, Rotten, Slot, SpacedRanks};
use super::memory::{Hold, Memory, OpenSegment};
use super::methods::Method;
use super::parameters::{Parameters, differences, parameters_fingerprint};
use super::vault::Backing;
use skt_comm::Comm;
use skt_comm::collect::{
    all_gather, all_gather_json, all_reduce, broadcast, broadcast_bytes, broadcast_json,
    gather_bytes,
};
use skt_host::units;
use skt_host::waits::{self, Announced};
use skt_store::codec::checksum;

/// More than any identity has: 255 members, and the parameters in words.
const IDENTITY_BYTES_MAX: usize = 1 << 20;

pub(super) struct Start<'n> {
    pub memory: Box<dyn Memory + 'n>,
    pub header: HeaderLayout,
    pub hook: Arc<dyn Hook>,
    /// Keeps other jobs of this run off the node.
    pub lock: Option<Hold>,
    /// The number of this process on its node.
    index: usize,
    pub fingerprint: u64,
    /// The parameters of the fingerprint, for people to read.
    pub parameters: Parameters,
    /// The segments that the first process of this node has found there.
    segments: Vec<FoundSegment>,
    /// The states of these segments, on that process.
    states: BTreeMap<SegmentId, Vec<u8>>,
    /// The largest progress that these segments note, on that process.
    pub progress: u64,
    pub levels: Vec<Level>,
    /// What this process sees of each level.
    pub seen: Vec<Seen>,
    pub rotten: Vec<Rotten>,
}

impl<'n> Start<'n> {
    /// Takes hold of the run on this node, unless it has the `lock` from an earlier decision, finds
    /// its segments and images, and returns what all processes have decided, without the sources
    /// that an earlier decision has found `rotten`. Collective.
    pub(crate) fn decide(
        comm: &Comm,
        memory: Box<dyn Memory + 'n>,
        config: &Config,
        parameters: Parameters,
        hook: Arc<dyn Hook>,
        lock: Option<Hold>,
        rotten: Vec<Rotten>,
    ) -> Result<(Self, Decision)> {
        let (run_id, capacity_bytes) = (&config.run_id, config.state_capacity_bytes);
        let header = HeaderLayout::new(run_id, config.ranks(comm.size()), capacity_bytes);
        let fingerprint = parameters_fingerprint(&config.run_id, &parameters);
        let (segments, states) = (Vec::new(), BTreeMap::new());
        let (levels, seen) = (config.levels.clone(), Vec::new());
        let mut this = Self {
            memory,
            header,
            hook,
            lock,
            index: 0,
            fingerprint,
            parameters,
            segments,
            states,
            progress: 0,
            levels,
            seen,
            rotten,
        };
        let mut wait = Announced::begin("all ranks to open the run");
        let node = processes_of_node(comm, &config.node)?;
        let index = node.rank();
        this.index = index;
        wait.update("all ranks to take hold of the run and to find its segments and images");
        let is_lasting = config.method != Method::None;
        let held = if is_lasting && this.lock.is_none() { this.hold(index)? } else { None };
        this.hook.at(&Step::new(StepName::Agree, 0))?;
        if is_lasting && held.is_none() {
            // A job with fewer processes than ranks ignores the segments of lost ranks, which no
            // process will take over.
            let is_short = config.may_lose.is_some();
            this.find_segments(&node, is_short, config.rank_in_run)?;
            this.probe_images(comm, is_short);
        }
        let rules = Rules { config, rotten: &this.rotten };
        let mut decision = decide_on_all(comm, &this.offer(config, held), &rules)?;
        match &mut decision {
            Decision::Work(StartPlan { load: Some(load), state, .. }) => {
                let (process, id) = load.holder;
                let of = |images: &Seen| {
                    let image = images.images.iter().find(|(found, _)| found.id == id);
                    image.expect("it was offered").1.clone()
                };
                *state = broadcast_from(comm, process, || of(&this.seen[load.level]))?;
            }
            Decision::Work(StartPlan { holder: Some((process, id)), state, .. })
            | Decision::Finished(Finished { holder: (process, id), result: state, .. }) => {
                *state = broadcast_from(comm, *process, || this.states[id].clone())?;
            }
            Decision::Work(StartPlan { holder: None, .. }) => {}
        }
        Ok((this, decision))
    }

    /// What this process brings to the agreement; `held` is why it could not take hold of the run.
    fn offer(&self, config: &Config, held: Option<Obstacle>) -> Offer {
        Offer {
            host: config.host.clone(),
            domain: config.domain.clone(),
            node: config.node.clone(),
            rank_in_run: config.rank_in_run,
            held,
            segments: if self.index == 0 { self.segments.clone() } else { Vec::new() },
            images: (self.seen.iter())
                .map(|seen| seen.images.iter().map(|(image, _)| image.clone()).collect())
                .collect(),
            failures: self.seen.iter().map(|seen| seen.failure.clone()).collect(),
        }
    }

    /// A job that `is_short` of processes resumes from memory or not at all, without images.
    fn probe_images(&mut self, comm: &Comm, is_short: bool) {
        let (header, fingerprint) = (&self.header, self.fingerprint);
        let wanted = ImageQuery { header, fingerprint, parameters: &self.parameters };
        for level in &self.levels {
            let _wait = Announced::begin(format!("level {} to list its images", level.name));
            let is_ours =
                |rank: usize| !is_short && level.is_managed_by(rank, comm.rank(), comm.size());
            // Of a disk that all processes of the node see, one of them reads the images.
            let is_reader = level.reach == Reach::Global || self.index == 0;
            self.seen.push(wanted.probe(level, is_ours, is_reader));
        }
    }

    /// The files that this process manages, by level; none of a level that is given up.
    pub(crate) fn seen_files(&self, plan: &StartPlan) -> Vec<Vec<FileId>> {
        let of_level = |(seen, given_up): (&Seen, &Option<String>)| match given_up {
            Some(_) => Vec::new(),
            None => seen.files.clone(),
        };
        self.seen.iter().zip(&plan.given_up).map(of_level).collect()
    }

    /// Removes all image files that this process manages.
    pub(crate) fn discard_all_images(&self, plan: &StartPlan) -> Result<()> {
        let before = || self.hook.at(&Step::new(StepName::Discard, plan.epoch));
        for (level, files) in self.levels.iter().zip(self.seen_files(plan)) {
            remove_images(level, &files, &before)?;
        }
        Ok(())
    }

    /// Notes on all levels which checkpoint this start has to resume from, before anything is
    /// removed: later starts pass over newer ones, until this one or a later one has some.
    /// Collective.
    pub(crate) fn note_choice(&self, comm: &Comm, plan: &StartPlan) -> Result<()> {
        let note = plan.note.as_deref().and_then(|note| Some((note.name, note.chosen?)));
        let Some((name, chosen)) = note else { return Ok(()) };
        let rank = plan.ranks[comm.rank()];
        let slot = Slot { rank, ranks: SpacedRanks::alone(rank), bytes: IMAGE_PAGE_BYTES as u64 };
        for (level, given_up) in self.levels.iter().zip(&plan.given_up) {
            let writes = match level.reach {
                Reach::Local => self.index == 0,
                Reach::Global => comm.rank() == 0,
            };
            if !writes || given_up.is_some() {
                continue;
            }
            let write = || {
                let mut file = level.disk.create(name, &slot)?;
                level.disk.sync_names()?;
                file.write_at(0, &encode_choice(chosen))?;
                file.sync()
            };
            write().map_err(level_error("noting the chosen checkpoint", level))?;
        }
        // No process removes anything before all notes are safe.
        Ok(comm.barrier()?)
    }

    /// As process number `index` of this node. Returns the reason if another job has the run.
    fn hold(&mut self, index: usize) -> Result<Option<Obstacle>> {
        self.hook.at(&Step::new(StepName::Lock, 0))?;
        match self.memory.lock(index) {
            Ok(lock) => {
                self.lock = Some(lock);
                Ok(None)
            }
            Err(error) => Ok(Some(error.into())),
        }
    }

    /// Finds the segments on this node, in a job that `is_short` those of its processes' ranks
    /// alone. One process reads them for all: their number grows with that of the processes, and a
    /// segment that is being read may seem in use to others. Collective over the `node`.
    fn find_segments(
        &mut self,
        node: &Comm,
        is_short: bool,
        rank_in_run: Option<usize>,
    ) -> Result<()> {
        let number = |rank: Option<usize>| rank.map_or(u64::MAX, |rank| rank as u64);
        let ranks = if is_short { all_gather(node, &number(rank_in_run))? } else { Vec::new() };
        if self.index == 0 {
            self.read_segments(|rank| !is_short || ranks.contains(&number(Some(rank))))?;
        }
        self.segments = broadcast_json(node, &self.segments, 0)?;
        Ok(())
    }

    /// Reads the segments of the `wanted` ranks.
    fn read_segments(&mut self, wanted: impl Fn(usize) -> bool) -> Result<()> {
        let mut ids = self.memory.list().map_err(|source| CheckpointError::Memory {
            what: "listing the segments of this node".into(),
            source,
        })?;
        ids.retain(|id| wanted(id.rank));
        ids.sort_unstable();
        for id in ids {
            match self.read(id) {
                Ok((bytes, size)) => {
                    self.segments.push(self.found(id, &bytes, size));
                    let record = self.header.decode_record(&bytes);
                    self.states.extend(record.map(|record| (id, record.state().to_vec())));
                    self.progress = self.progress.max(self.progress_of(&bytes));
                }
                // Another process of the node has removed it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(memory_error("reading", id)(error)),
            }
        }
        Ok(())
    }

    /// The progress that a segment with this header notes; 0 unless it belongs to this run.
    fn progress_of(&self, header: &[u8]) -> u64 {
        let is_ours = |identity: &Identity| identity.fingerprint == self.fingerprint;
        let ours = self.header.decode_identity(header).filter(is_ours);
        let noted = ours.and_then(|_| header.get(self.header.progress()));
        noted.map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().expect("a word")))
    }

    /// Reads the header of a segment, and its size in bytes. If the segment's identity is longer
    /// than this start's header, reads all of the identity.
    fn read(&mut self, id: SegmentId) -> io::Result<(Vec<u8>, usize)> {
        let mut bytes = vec![0; self.header.bytes()];
        let size = self.memory.read_header(id, &mut bytes)?;
        let needed = HeaderLayout::identity_bytes(&bytes).unwrap_or(0);
        // A length that no identity has is damaged, and must not fill the memory of the node.
        if needed <= bytes.len() || needed > size.min(IDENTITY_BYTES_MAX) {
            return Ok((bytes, size));
        }
        bytes.resize(needed, 0);
        let size = self.memory.read_header(id, &mut bytes)?;
        Ok((bytes, size))
    }

    /// Describes a segment of `size` bytes that begins with `bytes`.
    fn found(&self, id: SegmentId, bytes: &[u8], size: usize) -> FoundSegment {
        let identity = self.header.decode_identity(bytes);
        let is_other = |identity: &Identity| identity.fingerprint != self.fingerprint;
        let other = match &identity {
            None if HeaderLayout::is_of_another_version(bytes) => Some(Parameters::new()),
            None => None,
            Some(identity) => is_other(identity).then(|| identity.parameters.clone()),
        };
        let content = identity.filter(|identity| !is_other(identity)).and_then(|identity| {
            let record = self.header.decode_record(bytes)?;
            let is_its_own = identity.bytes == size && identity.rank == id.rank;
            is_its_own.then(|| Content::new(identity, &record))
        });
        FoundSegment {
            id,
            content,
            other: other.map(|theirs| differences(&theirs, &self.parameters)),
        }
    }

    /// Opens these segments, which this process has offered; [`Refusal::Changed`] on all processes,
    /// if any process finds a segment that is not as it was offered. Collective.
    pub(crate) fn take(&mut self, comm: &Comm, ids: &[SegmentId]) -> Result<Vec<OpenSegment>> {
        let mut segments = Vec::with_capacity(ids.len());
        let mut changed = None;
        for &id in ids {
            match self.memory.attach(id) {
                Ok(segment) if self.is_as_offered(id, &segment) => segments.push(segment),
                Ok(_) => changed = Some(id),
                Err(error) if error.kind() == io::ErrorKind::NotFound => changed = Some(id),
                Err(error) => return Err(memory_error("opening", id)(error)),
            }
        }
        let mut first = [changed.map_or(u64::MAX, |_| comm.rank() as u64)];
        all_reduce(comm, &mut first, u64::min)?;
        if first[0] == u64::MAX {
            return Ok(segments);
        }
        let process = first[0] as usize;
        let mut rank = [changed.map_or(0, |id| id.rank as u64)];
        broadcast(comm, &mut rank, process)?;
        Err(Refusal::Changed { process, rank: rank[0] as usize }.into())
    }

    fn is_as_offered(&self, id: SegmentId, segment: &[u8]) -> bool {
        let header = &segment[..segment.len().min(self.header.bytes())];
        let now = self.found(id, header, segment.len());
        self.segments.contains(&now)
    }

    /// The memory of segment `id`: `segment` if this process has taken it over, else a new one.
    pub(crate) fn backing(
        &mut self,
        method: Method,
        segment: Option<OpenSegment>,
        id: SegmentId,
        bytes: usize,
        epoch: u64,
    ) -> Result<Backing> {
        Ok(match (method, segment) {
            (Method::None, _) => Backing::Private(vec![0; bytes.div_ceil(8)]),
            (_, Some(segment)) => Backing::Lasting(segment),
            (_, None) => Backing::Lasting(self.make(id, bytes, epoch)?),
        })
    }

    fn make(&mut self, id: SegmentId, bytes: usize, epoch: u64) -> Result<OpenSegment> {
        self.hook.at(&Step::new(StepName::Create, epoch))?;
        let _wait =
            Announced::begin(format!("a segment of {} of memory", units::bytes(bytes as u64)));
        self.memory.create(id, bytes).map_err(|source| CheckpointError::Memory {
            what: format!(
                "creating the segment of rank {} ({})",
                id.rank,
                units::bytes(bytes as u64)
            ),
            source,
        })
    }

    pub(crate) fn discard(&mut self, ids: &[SegmentId], epoch: u64) -> Result<()> {
        for &id in ids {
            self.hook.at(&Step::new(StepName::Discard, epoch))?;
            self.memory.remove(id).map_err(memory_error("removing", id))?;
        }
        Ok(())
    }
}

/// On all nodes, before a job that has the hold looks for anything. Returns the number of this
/// process on its node, too; [`Refusal::Held`] on all processes, if another job has the run.
/// Collective.
pub(crate) fn take_hold(
    comm: &Comm,
    memory: &mut dyn Memory,
    config: &Config,
    hook: &dyn Hook,
) -> Result<(usize, Hold)> {
    let _wait = Announced::begin("all ranks to take hold of the run");
    let index = processes_of_node(comm, &config.node)?.rank();
    hook.at(&Step::new(StepName::Lock, 0))?;
    let taken = memory.lock(index).map_err(Obstacle::from);
    let held = all_gather_json(comm, &taken.as_ref().err().cloned())?;
    match Obstacle::refusal(held) {
        Some(held) => Err(held.into()),
        None => Ok((index, taken.expect("no process is kept from it"))),
    }
}

/// The processes that see the same segments as this one, in their order. Collective.
fn processes_of_node(comm: &Comm, node: &str) -> Result<Comm> {
    let nodes = all_gather(comm, &checksum(node.as_bytes()))?;
    let first = nodes.iter().position(|other| *other == nodes[comm.rank()]);
    let first = first.expect("this process is one of them");
    Ok(comm.split(Some(first as u32), comm.rank() as u32)?.expect("a colour"))
}

/// The state that process `process` has found. Collective.
fn broadcast_from(comm: &Comm, process: usize, state: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>> {
    let mut state = if comm.rank() == process { state() } else { Vec::new() };
    broadcast_bytes(comm, &mut state, process)?;
    Ok(state)
}

/// Decides for all processes: one gather, one decision on process 0, one broadcast. Collective.
fn decide_on_all(comm: &Comm, offer: &Offer, rules: &Rules) -> Result<Decision> {
    let offer = serde_json::to_vec(offer).expect("plain data");
    let gathered = gather_bytes(comm, &offer, 0)?;
    let mut answer = gathered.map_or_else(Vec::new, |offers| {
        let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).expect("written just now");
        let offers: Vec<Offer> = offers.iter().map(read).collect();
        waits::name_hosts(offers.iter().map(|offer| offer.host.as_str()));
        serde_json::to_vec(&decide(&offers, rules)).expect("plain data")
    });
    broadcast_bytes(comm, &mut answer, 0)?;
    let answer: std::result::Result<Decision, Refusal> =
        serde_json::from_slice(&answer).expect("written just now");
    Ok(answer?)
}
