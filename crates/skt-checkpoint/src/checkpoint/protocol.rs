//! The checkpoint protocol: open and checkpoint; finish.rs has its end. docs/protocol.md says
//! what may be lost between any two lines of it.

use std::io;
use std::ops::{DerefMut, Range};
use std::sync::Arc;
use std::time::Instant;

use super::agree::{Decision, Plan, Refusal, Resume};
use super::code::Code;
use super::encode::{Band, Encoder, Scratch};
use super::finish::FinishedRun;
use super::gathered::Gathered;
use super::header::{HeaderLayout, Identity, SegmentId};
use super::hook::{Hook, Step, StepName};
use super::layout::{Active, Geometry, Part, RegionShape, SegmentLayout};
use super::link::Link;
use super::methods::Method;
use super::opening::Opening;
use super::parameters::parameters;
use super::phases::Taking;
pub use super::progress::Polled;
use super::record::Record;
use super::vault::{Backing, Vault};
use crate::comm::collect::{all_reduce, broadcast_bytes};
use crate::comm::{Comm, CommError};

/// Another rank's segment, to be read where it lies.
pub trait Peer {
    /// Bytes of the segment.
    ///
    /// # Safety
    /// Their owner must not write to them as long as the slice is in use.
    unsafe fn bytes(&self, range: Range<usize>) -> &[u8];

    /// These bytes will be read for the first time: whatever makes that faster.
    fn will_read(&self, _: Range<usize>) {}
}

/// Bytes of a message where nothing is measured: a recovery's, of members that
/// need none to encode.
const MESSAGE_BYTES: usize = 256 << 10;

/// Memory of a node that outlives the process: the segments of one run.
pub trait Memory {
    /// A segment in use.
    type Segment: DerefMut<Target = [u8]>;
    /// A segment in use by another rank.
    type Peer: Peer;

    /// A hold on the run, given up when dropped, and by the death of the process.
    type Lock;

    /// Keeps other jobs of this run off this node. Each process of a job on the node
    /// has a hold of its own, and an `index`, from 0 on.
    ///
    /// # Errors
    /// When another job has it, and does not give it up in some time; as the system
    /// has it.
    fn lock(&mut self, index: usize) -> io::Result<Self::Lock>;

    /// All segments of this run on this node.
    ///
    /// # Errors
    /// As the system has it.
    fn list(&mut self) -> io::Result<Vec<SegmentId>>;

    /// Reads as many bytes from the start of a segment as it has and as fit,
    /// and returns the size of the segment. Must not disturb its users.
    ///
    /// # Errors
    /// As the system has it.
    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize>;

    /// Makes a segment of zeros, its memory reserved.
    ///
    /// # Errors
    /// When there is no such room, or a segment of that name exists.
    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<Self::Segment>;

    /// Opens an existing segment.
    ///
    /// # Errors
    /// As the system has it.
    fn attach(&mut self, id: SegmentId) -> io::Result<Self::Segment>;

    /// The segment of another rank, if it can be read from this node.
    ///
    /// # Errors
    /// As the system has it.
    fn peer(&mut self, id: SegmentId) -> io::Result<Option<Self::Peer>>;

    /// Removes a segment; one that is gone already is no error.
    ///
    /// # Errors
    /// As the system has it.
    fn remove(&mut self, id: SegmentId) -> io::Result<()>;
}

/// What a checkpoint is to be like. All but `domain`, `node`, `clock` and `nonce`
/// must be the same on all ranks.
#[derive(Debug, Clone)]
pub struct Config<K> {
    /// Name of the run.
    pub run_id: String,
    /// Whatever else must be the same for a segment to be of use: the
    /// application's parameters.
    pub application: String,
    /// The method.
    pub method: Method,
    /// The code; shaped for each group.
    pub code: K,
    /// Members of a group, n.
    pub members: usize,
    /// Parities of a stripe, m.
    pub parities: usize,
    /// Ranks of each group, where the application has the groups: all of one size, with
    /// all ranks. `None`: they are formed.
    pub groups: Option<Vec<Vec<usize>>>,
    /// How parities are computed.
    pub encoder: Encoder,
    /// Bytes of a message when encoding; `None`: what [`Link::measure`] finds
    /// best. The parities do not depend on it.
    pub message_bytes: Option<usize>,
    /// Whether members of a group may stand in one failure domain.
    pub allow_shared_domains: bool,
    /// What to do with what is found.
    pub resume: Resume,
    /// Failure domain of this process.
    pub domain: String,
    /// Node of this process: those of one node see the same segments.
    pub node: String,
    /// Wall clock at the start of this process, in any unit (always the same
    /// one); that of process 0 counts.
    pub clock: u64,
    /// A random number; that of process 0 counts.
    pub nonce: u64,
    /// Most bytes of state that a checkpoint takes.
    pub state_capacity_bytes: usize,
    /// Bands that a region is cut into, at most.
    pub bands: usize,
    /// Bytes of a cell, which has a checksum of its own. A multiple of 8.
    pub cell_bytes: usize,
    /// Bytes of messages that are under way at once, about, in a group that
    /// encodes while the application computes; one message is a sixteenth of them
    /// at most.
    pub in_flight_bytes: usize,
    /// Parts of a segment start on a multiple of this, and of 8.
    pub align_bytes: usize,
    /// B, C, D and the header are written in pieces of this size.
    pub chunk_bytes: usize,
    /// Whether to check, before each checkpoint, that what is said to be
    /// unchanged is unchanged. Reads all of A, B, C and D.
    pub check_frozen: bool,
}

impl<K> Config<K> {
    /// The defaults: groups of 16 with one parity, method `self`.
    pub fn new(run_id: &str, code: K) -> Self {
        Self {
            run_id: run_id.to_owned(),
            application: String::new(),
            method: Method::SelfCheckpoint,
            code,
            members: 16,
            parities: 1,
            groups: None,
            encoder: Encoder::Auto,
            message_bytes: None,
            allow_shared_domains: false,
            resume: Resume::Auto,
            domain: String::new(),
            node: String::new(),
            clock: 0,
            nonce: 0,
            state_capacity_bytes: 4096,
            bands: super::layout::BANDS,
            cell_bytes: super::layout::CELL_BYTES,
            in_flight_bytes: 4 << 20,
            align_bytes: 4096,
            chunk_bytes: 1 << 20,
            check_frozen: cfg!(debug_assertions),
        }
    }
}

/// Why a checkpoint or a recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The job is ending: a rank died.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The job cannot go on from what was found.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The node's memory.
    #[error("{what} of rank {rank}'s segment ({bytes} bytes): {source}")]
    Memory {
        /// What was tried.
        what: &'static str,
        /// The rank whose segment it is.
        rank: usize,
        /// Its size, 0 where not known.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The code does not reach to the group's size.
    #[error("a group of {members} with {parities} parities: {reason}")]
    Code {
        /// Members of the group.
        members: usize,
        /// Parities of a stripe.
        parities: usize,
        /// What the code said.
        reason: String,
    },
    /// Members cannot read each other's memory.
    #[error(
        "encoder `direct` needs all ranks of a group on one host, where each sees the segments of \
         the others; here some do not. Use `auto` or `ring`"
    )]
    NotDirect,
    /// The application's state, or the result of the run, does not fit into the
    /// header.
    #[error(
        "a state or result of {bytes} bytes; the header was made for {capacity} at most \
         (state_capacity_bytes)"
    )]
    StateTooLarge {
        /// Its size.
        bytes: usize,
        /// The room there is.
        capacity: usize,
    },
}

/// Result of a checkpoint operation.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// What a start has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Epoch to go on from; 0: from the beginning.
    pub epoch: u64,
    /// Number of this start within the run.
    pub attempt: u64,
    /// Ranks whose data must be rebuilt.
    pub lost: Vec<usize>,
    /// Segments that were found and are of no use: stale, torn, or surplus.
    pub unusable: usize,
    /// Logical rank of each process.
    pub ranks: Vec<usize>,
    /// Ranks of each group.
    pub groups: Vec<Vec<usize>>,
    /// Some group has two members in one domain.
    pub shared_domains: bool,
    /// All ranks stand in one domain: protects against the death of processes
    /// only.
    pub single_domain: bool,
}

/// What a checkpoint did on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// The epoch it made.
    pub epoch: u64,
    /// Bytes of A that went into parities.
    pub encoded_bytes: usize,
    /// Bytes copied into B and C.
    pub copied_bytes: usize,
    /// Seconds to encode.
    pub encode_seconds: f64,
    /// Seconds in the barrier: waiting for the slowest group.
    pub barrier_seconds: f64,
    /// Seconds to agree that the epoch is complete, the barrier included; method
    /// `self` alone counts them.
    pub agree_seconds: f64,
    /// Seconds from there to the end of COMMIT; method `self` alone counts them.
    pub commit_seconds: f64,
    /// Seconds to copy, before and behind COMMIT.
    pub copy_seconds: f64,
    /// Seconds of them behind COMMIT; method `self` alone counts them.
    pub flush_seconds: f64,
}

/// A run as a start has found it.
pub enum Opened<C: Comm, M: Memory, K> {
    /// There is work to do.
    Ready(Box<Checkpointer<C, M, K>>, Found),
    /// An earlier start has come to the end.
    Finished(FinishedRun<C, M>),
}

/// Checkpoints of one rank's regions.
pub struct Checkpointer<C: Comm, M: Memory, K> {
    pub(super) job: C,
    pub(super) group: C,
    pub(super) config: Config<K>,
    pub(super) code: K,
    pub(super) memory: M,
    pub(super) id: SegmentId,
    pub(super) header: HeaderLayout,
    pub(super) layout: SegmentLayout,
    pub(super) vault: Vault<M::Segment>,
    pub(super) record: Record,
    pub(super) plan: Plan,
    /// Whether A may be used: recovery is done, or there is nothing to recover.
    pub(super) ready: bool,
    /// Where the two sets of parities (`self`), or the two copies (`double`), may
    /// differ: what the last checkpoint took.
    pub(super) last_active: Vec<Active>,
    pub(super) scratch: Scratch,
    /// How this group computes parities.
    pub(super) encoder: Encoder,
    /// Bytes of its messages when it does, about.
    pub(super) message_bytes: usize,
    /// The epoch that is being taken.
    pub(super) taking: Option<Taking<C>>,
    /// Checksums of the others' data, of the epoch that is being taken.
    pub(super) gathered: Gathered,
    /// Segments of the group's members but this one, by place in the group;
    /// empty when they are not all within reach.
    pub(super) peers: Vec<Option<M::Peer>>,
    /// Last, to be given up when the segment is.
    pub(super) lock: Option<M::Lock>,
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// Finds what there is of the run, agrees with all processes on who takes
    /// which rank and on the epoch to go on from, and makes what is missing.
    /// Collective over `comm`, which has one process for each rank.
    ///
    /// The rank of this process in the run is [`Checkpointer::rank`], which
    /// need not be its rank in `comm`. Call [`Checkpointer::recover`] next.
    ///
    /// Where an earlier start has come to the end of the run, there is no
    /// checkpointer but the result, see [`Opened::Finished`].
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] on all processes, with nothing changed,
    /// when the job cannot go on; the others as they happen, on one process.
    pub fn open(
        comm: &C,
        memory: M,
        config: Config<K>,
        shapes: &[RegionShape],
        hook: Arc<dyn Hook>,
    ) -> Result<Opened<C, M, K>> {
        let parameters = parameters(&config, shapes, comm.size());
        let (mut opening, decision) = Opening::agree(comm, memory, &config, parameters, hook)?;
        let plan = match decision {
            Decision::Work(plan) => plan,
            Decision::Finished(finished) => {
                let run = FinishedRun::found(comm, opening, config.chunk_bytes, finished)?;
                return Ok(Opened::Finished(run));
            }
        };
        let process = comm.rank();
        let rank = plan.ranks[process];
        let attached = plan.attach[process];
        let segment = opening.take(comm, attached.as_slice())?.pop();
        opening.discard(&plan.discard[process], plan.epoch)?;
        // Room is made on all nodes before anything new is put there.
        comm.barrier()?;
        let Opening { mut memory, header, hook, lock, fingerprint, parameters, .. } = opening;

        let group = plan.groups.iter().position(|members| members.contains(&rank));
        let group = group.expect("every rank has a group");
        let members = plan.groups[group].clone();
        let (geometry, code) = shaped(&config, members.len())?;
        let parts = config.method.parts();
        let align = config.align_bytes;
        let (bands, cell_bytes) = (config.bands, config.cell_bytes);
        let layout =
            SegmentLayout::new(header.bytes(), shapes, geometry, bands, parts, cell_bytes, align);
        let id = attached.unwrap_or(SegmentId { rank, attempt: plan.attempt.number });
        let backing = match (config.method, segment) {
            (Method::None, _) => Backing::Private(vec![0; layout.bytes.div_ceil(8)]),
            (_, Some(segment)) => Backing::Lasting(segment),
            (_, None) => {
                hook.at(&Step::new(StepName::Create, plan.epoch))?;
                let create = memory.create(id, layout.bytes);
                Backing::Lasting(create.map_err(memory_error("creating", id, layout.bytes))?)
            }
        };
        let vault = Vault::new(backing, hook, config.chunk_bytes);
        let identity = Identity {
            run_id: config.run_id.clone(),
            fingerprint,
            parameters,
            rank,
            group,
            members,
            bytes: layout.bytes,
        };
        let group_comm = comm.split(Some(group as u32), rank as u32)?.expect("a colour");
        let job = comm.split(Some(0), rank as u32)?.expect("a colour");
        let mut this = Self {
            job,
            group: group_comm,
            code,
            memory,
            id,
            header,
            vault,
            record: Record::default(),
            ready: plan.epoch == 0,
            last_active: vec![config.method.apart_at_start(); shapes.len()],
            scratch: Scratch::default(),
            encoder: config.encoder.with_messages(),
            message_bytes: config.message_bytes.unwrap_or(MESSAGE_BYTES),
            taking: None,
            gathered: Gathered::default(),
            peers: Vec::new(),
            lock,
            layout,
            plan,
            config,
        };
        if this.config.method != Method::None {
            this.join(&identity, attached.is_some())?;
            this.vault.step(Step::new(StepName::Joined, this.plan.epoch))?;
            this.job.barrier()?;
            // All segments are there.
            let encodes = this.config.method.parts().1 > 0;
            if encodes {
                this.meet_peers(attached.is_none())?;
            }
            this.confirm()?;
            if encodes {
                this.prepare_to_encode()?;
            }
        }
        let found = this.found();
        Ok(Opened::Ready(Box::new(this), found))
    }

    /// Takes part in this attempt; nothing that a later start could miss has
    /// changed yet.
    fn join(&mut self, identity: &Identity, attached: bool) -> Result<()> {
        let step = Step::new(StepName::Join, self.plan.epoch);
        if attached {
            let header = self.vault.bytes(0..self.header.bytes());
            self.record = self.header.decode_record(header).expect("as it was offered");
        } else {
            self.record = Record::of_new_segment();
        }
        self.record.join(self.plan.attempt, &self.plan.left);
        self.write_record(step)?;
        if !attached {
            // Last: a segment without its identity is nobody's.
            let bytes = self.header.encode_identity(identity);
            self.vault.store(0, &bytes, step)?;
            self.vault.order();
        }
        Ok(())
    }

    /// All have joined: from here on segments follow this attempt's decision.
    /// A segment that has not joined is stale from now on.
    fn confirm(&mut self) -> Result<()> {
        let Plan { attempt, epoch, state, .. } = &self.plan;
        let step = Step::new(StepName::Confirm, *epoch);
        // COMMIT(e) before the flush, or a second death would find B torn and nobody to
        // say that (A, D) is what counts.
        self.record.confirm(*attempt, self.config.method, *epoch, state);
        self.write_record(step)
    }

    /// Looks for the segments of the group's other members. If each of the group
    /// can read those of all others, parities need no messages.
    fn meet_peers(&mut self, is_new: bool) -> Result<()> {
        let asked = self.config.encoder;
        if !matches!(asked, Encoder::Auto | Encoder::Direct) {
            return Ok(());
        }
        let (me, ranks) = (self.group.rank(), self.group_ranks());
        let mut attempts = vec![0; ranks.len()];
        attempts[me] = self.id.attempt;
        all_reduce(&self.group, &mut attempts, u64::max)?;
        let mut peers = Vec::with_capacity(ranks.len());
        for (member, (&rank, &attempt)) in ranks.iter().zip(&attempts).enumerate() {
            let id = SegmentId { rank, attempt };
            let peer = match member == me {
                true => None,
                false => self.memory.peer(id).map_err(memory_error("looking into", id, 0))?,
            };
            peers.push(peer);
        }
        let sees_all = peers.iter().filter(|peer| peer.is_some()).count() + 1 == ranks.len();
        let mut all_see = [u8::from(sees_all)];
        // Who asks for it must have it everywhere.
        let who = if asked == Encoder::Direct { &self.job } else { &self.group };
        all_reduce(who, &mut all_see, u8::min)?;
        if all_see[0] != 0 {
            (self.encoder, self.peers) = (Encoder::Direct, peers);
        } else if asked == Encoder::Direct {
            if is_new {
                let remove = self.memory.remove(self.id);
                remove.map_err(memory_error("removing", self.id, self.layout.bytes))?;
            }
            // The first to say it ends the job: nothing is to be left by then.
            self.job.barrier()?;
            return Err(CheckpointError::NotDirect);
        }
        Ok(())
    }

    /// Measures what messages cost where parities need any and their length is
    /// not given; else makes the others' memory ready to be read.
    fn prepare_to_encode(&mut self) -> Result<()> {
        if self.encoder == Encoder::Direct {
            for region in 0..self.layout.regions.len() {
                self.band(region).prepare_direct();
            }
        } else if self.config.message_bytes.is_none() {
            let link = Link::measure(&self.group, &self.code)?;
            // All that goes round before the pipeline runs dry: a band's parity.
            let bands = self.layout.regions.iter().map(|parts| parts.stripes);
            let parity = bands.map(|stripes| stripes.block_rows * stripes.shape.pitch_bytes);
            let bytes = parity.max().unwrap_or_default();
            self.message_bytes = link.message_bytes(bytes, self.group.size());
        }
        Ok(())
    }

    /// Ranks of this process's group, by place in it.
    pub(super) fn group_ranks(&self) -> Vec<usize> {
        let mine = self.plan.groups.iter().find(|group| group.contains(&self.job.rank()));
        mine.expect("every rank has a group").clone()
    }

    /// Bytes of the messages of this rank's group when it encodes, about; 0
    /// where it needs none.
    pub fn message_bytes(&self) -> usize {
        match self.encoder {
            Encoder::Direct => 0,
            _ => self.message_bytes,
        }
    }

    /// How this rank's group computes parities.
    pub fn encoder(&self) -> Encoder {
        self.encoder
    }

    fn found(&self) -> Found {
        let plan = &self.plan;
        Found {
            epoch: plan.epoch,
            attempt: plan.attempt.number,
            lost: plan.lost.clone(),
            unusable: plan.unusable,
            ranks: plan.ranks.clone(),
            groups: plan.groups.clone(),
            shared_domains: plan.shared_domains,
            single_domain: plan.single_domain,
        }
    }

    /// Makes the record in memory the one in force.
    pub(super) fn write_record(&mut self, step: Step) -> Result<()> {
        Ok(self.vault.store_record(&self.header, &mut self.record, step)?)
    }

    /// This process's rank in the run.
    pub fn rank(&self) -> usize {
        self.job.rank()
    }

    /// All processes, in the order of their ranks in the run.
    pub fn comm(&self) -> &C {
        &self.job
    }

    /// Newest epoch; 0 before the first checkpoint.
    pub fn epoch(&self) -> u64 {
        self.record.committed()
    }

    /// Bytes of this rank's segment.
    pub fn segment_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// The live workspace of a region, A.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn region(&mut self, region: usize) -> &mut [u8] {
        assert!(self.ready, "recover first");
        let a = self.layout.regions[region].a;
        self.vault.bytes_mut(a.range())
    }

    /// Where a region begins, and its bytes; valid as long as this checkpointer.
    /// For an application that computes while a checkpoint is taken: it keeps off
    /// the rows that it has called ready.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn region_at(&mut self, region: usize) -> (*mut u8, usize) {
        assert!(self.ready, "recover first");
        let a = self.layout.regions[region].a.range();
        (self.vault.pointer(a.clone()), a.len())
    }

    /// The live workspaces of all regions, to be used at once.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn regions(&mut self) -> Vec<&mut [u8]> {
        assert!(self.ready, "recover first");
        let bytes = self.layout.bytes;
        let mut rest = self.vault.bytes_mut(0..bytes);
        let mut at = 0;
        let mut regions = Vec::with_capacity(self.layout.regions.len());
        for parts in &self.layout.regions {
            let a = parts.a.range();
            let (_, tail) = rest.split_at_mut(a.start - at);
            let (region, tail) = tail.split_at_mut(a.len());
            regions.push(region);
            (rest, at) = (tail, a.end);
        }
        regions
    }

    /// Takes a checkpoint. Collective over the job, at a consistent cut: no
    /// message of the application is under way.
    ///
    /// `active` says for each region what may have changed since the last
    /// checkpoint; a group uses the least of its members. `state` is kept with
    /// it; it is that of rank 0 which counts, so it must mean the same to all.
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died; then only `open` in a new
    /// start of the job helps. [`CheckpointError::StateTooLarge`].
    ///
    /// # Panics
    /// With `check_frozen`, when something outside of `active` has changed.
    pub fn checkpoint(&mut self, active: &[Active], state: &[u8]) -> Result<Stats> {
        let capacity = self.config.state_capacity_bytes;
        if state.len() > capacity {
            return Err(CheckpointError::StateTooLarge { bytes: state.len(), capacity });
        }
        // All rows are ready, and nobody can change them before this returns.
        self.begin_in(active, None)?;
        self.complete(state)
    }

    /// Method `abft`: the state is that of all ranks when all have come here. The data is
    /// what it is.
    pub(super) fn keep_state(&mut self, state: &[u8]) -> Result<Stats> {
        self.record.assert_settled();
        let epoch = self.record.stamped() + 1;
        let mut state = state.to_vec();
        let mut stats = Stats { epoch, ..Stats::default() };
        self.vault.step(Step::new(StepName::Checkpoint, epoch))?;
        broadcast_bytes(&self.job, &mut state, 0)?;
        self.barrier(epoch, &mut stats)?;
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))?;
        Ok(stats)
    }

    /// The parities of epoch - 2 become those of `epoch`. They differ from those
    /// of epoch - 1 where A was active then. What is active now is encoded anew;
    /// the rest of that, which froze in between, is copied. All checksums are.
    pub(super) fn carry_all(
        &mut self,
        epoch: u64,
        active: &[Active],
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        for (region, &now) in active.iter().enumerate() {
            stats.copied_bytes += self.carry_sums(region, epoch)?;
            let before = self.last_active[region];
            let stripes = self.layout.regions[region].stripes;
            let encoded = stripes.bands_from(now.row);
            for band in stripes.bands_from(before.row) {
                let end = if encoded.contains(&band) { now.byte } else { usize::MAX };
                let step = Step::new(StepName::Carry, epoch).band(region, band);
                stats.copied_bytes += self.carry_band(region, band, before.byte..end, step)?;
            }
        }
        stats.copy_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The checksums of the epoch before become those of `epoch`, where it does not
    /// compute others. Returns their bytes.
    fn carry_sums(&mut self, region: usize, epoch: u64) -> Result<usize> {
        let method = self.config.method;
        let sums = &self.layout.regions[region].sums;
        let (from, to) = (sums[method.encoded(epoch - 1)], sums[method.encoded(epoch)]);
        let all = (0..from.rows, 0..from.pitch_bytes);
        self.copy_rows(from, to, all.0, all.1, Step::new(StepName::Carry, epoch).band(region, 0))
    }

    /// Copies bytes `bytes` of each row of one band's parities from the set of
    /// the epoch before into that of the step's epoch.
    fn carry_band(
        &mut self,
        region: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<usize> {
        let method = self.config.method;
        let parts = &self.layout.regions[region];
        let (_, old) = method.settled(step.epoch - 1);
        let (from, to) = (parts.parity[old], parts.parity[method.encoded(step.epoch)]);
        let rows = parts.stripes.parities(band);
        let bytes = bytes.start..bytes.end.min(from.pitch_bytes);
        if bytes.is_empty() {
            return Ok(0);
        }
        self.vault.step(step)?;
        self.copy_rows(from, to, rows, bytes, step)
    }

    /// Copy A to the older B and encode A into its parities; barrier; COMMIT.
    pub(super) fn take_double(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        stats: &mut Stats,
    ) -> Result<()> {
        // That copy is two epochs old: what changed since then counts.
        let active: Vec<Active> = (active.iter().zip(&self.last_active))
            .map(|(a, b)| Active { row: a.row.min(b.row), byte: a.byte.min(b.byte) })
            .collect();
        for region in 0..active.len() {
            stats.copied_bytes += self.carry_sums(region, epoch)?;
        }
        self.copy_all(epoch, &active, stats)?;
        self.encode_all(epoch, &active, stats)?;
        self.barrier(epoch, stats)?;
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))
    }

    /// Mark the copy as torn; copy and encode over it; barrier; COMMIT.
    pub(super) fn take_single(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        stats: &mut Stats,
    ) -> Result<()> {
        self.record.begin_update(epoch);
        self.write_record(Step::new(StepName::Begin, epoch))?;
        self.copy_all(epoch, active, stats)?;
        self.encode_all(epoch, active, stats)?;
        self.barrier(epoch, stats)?;
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))
    }

    pub(super) fn barrier(&mut self, epoch: u64, stats: &mut Stats) -> Result<()> {
        self.vault.step(Step::new(StepName::Barrier, epoch))?;
        self.vault.order();
        let start = Instant::now();
        self.job.barrier()?;
        stats.barrier_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }

    fn encode_all(&mut self, epoch: u64, active: &[Active], stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        let encoding = self.start_encoding(epoch, active, None)?;
        stats.encode_seconds += start.elapsed().as_secs_f64();
        self.finish_encoding(encoding, stats)
    }

    pub(super) fn band(&mut self, region: usize) -> Band<'_, C, K, M::Segment, M::Peer> {
        Band {
            comm: &self.group,
            code: &self.code,
            vault: &mut self.vault,
            parts: &self.layout.regions[region],
            segment_bytes: self.message_bytes,
            scratch: &mut self.scratch,
            peers: &self.peers,
            gathered: &mut self.gathered,
        }
    }

    fn copy_all(&mut self, epoch: u64, active: &[Active], stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        let (copy, _) = self.config.method.settled(epoch);
        for (region, active) in active.iter().enumerate() {
            let parts = &self.layout.regions[region];
            let (a, b, stripes) = (parts.a, parts.b[copy], parts.stripes);
            for band in stripes.bands_from(active.row) {
                let step = Step::new(StepName::Copy, epoch).band(region, band);
                self.vault.step(step)?;
                let bytes = active.byte..a.pitch_bytes;
                stats.copied_bytes += self.copy_rows(a, b, stripes.band(band), bytes, step)?;
            }
        }
        stats.copy_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Copies bytes `bytes` of rows of one part to the same of another.
    pub(super) fn copy_rows(
        &mut self,
        from: Part,
        to: Part,
        rows: Range<usize>,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<usize> {
        let pitch = from.pitch_bytes;
        if rows.is_empty() || bytes.is_empty() {
            return Ok(0);
        }
        if bytes == (0..pitch) {
            let start = from.at(rows.start, 0..pitch).start;
            let end = from.at(rows.end - 1, 0..pitch).end;
            self.vault.copy(start..end, to.at(rows.start, 0..pitch).start, step)?;
        } else {
            for row in rows.clone() {
                let into = to.at(row, bytes.clone()).start;
                self.vault.copy(from.at(row, bytes.clone()), into, step)?;
            }
        }
        Ok(rows.len() * bytes.len())
    }

    /// Frozen means frozen: outside of `active` A equals its copy.
    pub(super) fn assert_frozen(&self, active: &[Active]) {
        let (copy, _) = self.config.method.settled(self.record.stamped());
        for (index, (parts, active)) in self.layout.regions.iter().zip(active).enumerate() {
            if let Some(row) =
                self.first_difference(parts.a, parts.b[copy], active.row, active.byte)
            {
                panic!("row {row} of region {index} has changed outside of {active:?}");
            }
        }
    }

    /// Outside of the bands and bytes that were encoded, the new parities equal
    /// those of the epoch before.
    pub(super) fn assert_carried(&self, active: &[Active]) {
        for (index, (parts, active)) in self.layout.regions.iter().zip(active).enumerate() {
            let bands = parts.stripes.bands_from(active.row);
            let first = if bands.is_empty() {
                parts.stripes.parity_rows()
            } else {
                parts.stripes.parities(bands.start).start
            };
            let [one, two] = parts.parity[..] else { unreachable!("method self has two sets") };
            if let Some(row) = self.first_difference(one, two, first, active.byte) {
                panic!("parity row {row} of region {index} has thawed outside of {active:?}");
            }
        }
    }

    /// The first row in which two parts differ, in rows before `row` and in the
    /// bytes before `byte` of the others.
    fn first_difference(&self, one: Part, two: Part, row: usize, byte: usize) -> Option<usize> {
        let pitch = one.pitch_bytes;
        (0..one.rows).find(|&r| {
            let kept = 0..if r < row { pitch } else { byte.min(pitch) };
            self.vault.bytes(one.at(r, kept.clone())) != self.vault.bytes(two.at(r, kept))
        })
    }
}

/// Geometry and code of a group. Without checkpoints neither is used, and any
/// legal geometry does, also for a job of one rank.
fn shaped<K: Code + Clone>(config: &Config<K>, members: usize) -> Result<(Geometry, K)> {
    if config.method.parts().1 == 0 {
        return Ok((Geometry { members: 2, parities: 1 }, config.code.clone()));
    }
    let geometry = Geometry { members, parities: config.parities };
    let code = config.code.shaped(geometry.data(), geometry.parities);
    let refused = |reason| CheckpointError::Code { members, parities: geometry.parities, reason };
    Ok((geometry, code.map_err(refused)?))
}

pub(super) fn memory_error(
    what: &'static str,
    id: SegmentId,
    bytes: usize,
) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| CheckpointError::Memory { what, rank: id.rank, bytes, source }
}
