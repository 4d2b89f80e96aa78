//! A run with levels of images, on nodes and disks that can be lost, with one or more ranks per
//! node.
//!
//! With method `abft` the application changes its data in place. Region 0 then has one word, which
//! records whether the data is missing, torn, or that of a state. The application recomputes lost
//! data from the formula, as long as a group has lost no more than it has parities.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use skt_checkpoint::checkpoint::decide::{Refusal, Resume};
use skt_checkpoint::checkpoint::finish::FinishedRun;
use skt_checkpoint::checkpoint::hook::{Hook, Step, StepName};
use skt_checkpoint::checkpoint::level::{
    Disk, Generation, IMAGE_PAGE_BYTES, ImagesEvery, Level, Reach, Writer,
};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::protocol::{CheckpointError, Checkpointer, Config, Opened};
use skt_checkpoint::checkpoint::recover::Recovered;
use skt_comm::collect::all_reduce;
use skt_comm::{Comm, CommError};
use skt_sim::fibers::{Kill, Point, SimOptions, SimOutcome, run};
use skt_store::codec::checksum;
use twox_hash::XxHash3_64;

use super::cluster::{Book, Node, NodeMemory, Setup, fingerprint};
use super::disks::{Cut, Fault, Platter, Sealed, SimDisk};

#[derive(Clone, Copy, Debug)]
pub struct LevelSetup {
    pub reach: Reach,
    pub keep: usize,
    /// Seconds between two images. An epoch of the run takes [`EPOCH_SECONDS`], according to its
    /// states.
    pub every_seconds: f64,
}

/// More than any test takes.
pub const EPOCH_SECONDS: f64 = 1e6;

#[derive(Clone)]
pub struct World {
    pub setup: Setup,
    /// Ranks on a node; they are neighbours.
    pub ranks_a_node: usize,
    pub levels: Vec<LevelSetup>,
    /// See [`Config::damaged_cells_max`].
    pub damaged_cells_max: usize,
    pub nodes: Vec<Node>,
    /// For each level: one per node, or one for all.
    pub disks: Vec<Vec<Platter>>,
    pub sealed: Vec<Sealed>,
    /// The faults of disks towards the ranks of a node, by level and node.
    pub faults: BTreeMap<(usize, usize), Fault>,
    /// See [`SimDisk::spoiled`].
    pub spoiled: Option<Generation>,
    pub starts: u64,
    /// States that some rank was about to commit, or has committed.
    pub histories: BTreeSet<Vec<u8>>,
    pub is_reported: bool,
    /// Whether the application could not continue with what the last start had recovered first.
    pub is_judged: bool,
    /// The number of errors by which the last start has reported that images stay after its end.
    pub reported_to_stay: usize,
    /// Ranks that have reported a failed level after the last start had recovered.
    pub reported_to_fail: BTreeSet<usize>,
}

/// With `abft`: the regions of the word and of the data.
const WORD: usize = 0;
const DATA: usize = 1;
/// The word of data that is being changed; that of missing data is 0.
const TORN: u8 = 255;

fn word_of(history: &[u8]) -> u8 {
    1 + history.len() as u8
}

#[derive(Clone, Debug)]
pub struct How {
    pub seed: u64,
    pub kills: Vec<Kill>,
    pub until_epoch: u64,
    pub finish: bool,
    /// Whether its time is up at the last epoch: it stops once that epoch's images are complete.
    pub stops: bool,
    pub resume: Resume,
    pub nothing_hidden: bool,
    /// With `abft`: the application can use neither what was recovered first nor the newest images.
    pub doubts: bool,
}

impl How {
    pub fn none(seed: u64, until_epoch: u64) -> Self {
        let (kills, resume) = (Vec::new(), Resume::Auto);
        let (finish, stops, nothing_hidden, doubts) = (false, false, false, false);
        Self { seed, kills, until_epoch, finish, stops, resume, nothing_hidden, doubts }
    }

    pub fn killed(seed: u64, until_epoch: u64, step: u64, rank: usize) -> Self {
        Self { kills: vec![Kill { step, rank }], ..Self::none(seed, until_epoch) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    Fresh,
    /// Resumed with this state, from memory or from these images of a level.
    Resumed(Vec<u8>, Option<(usize, Generation)>),
    Refused(Refusal),
    Finished,
}

pub type Ran = SimOutcome<Came, CheckpointError>;

/// The hook of a process, which notifies its disks when it loads its image.
struct Steps(Point, Arc<AtomicBool>);

impl Hook for Steps {
    fn at(&self, step: &Step) -> Result<(), CommError> {
        match step.name {
            StepName::Confirm => self.1.store(true, Ordering::Relaxed),
            StepName::RecoverVerify => self.1.store(false, Ordering::Relaxed),
            _ => {}
        }
        self.0.step(step)
    }
}

impl World {
    pub fn new(setup: &Setup, levels: &[LevelSetup]) -> Self {
        Self::on_nodes_of(1, setup, levels)
    }

    pub fn on_nodes_of(ranks_a_node: usize, setup: &Setup, levels: &[LevelSetup]) -> Self {
        assert!(setup.ranks.is_multiple_of(ranks_a_node));
        let nodes = setup.ranks / ranks_a_node;
        let platters = |level: &LevelSetup| match level.reach {
            Reach::Local => vec![Platter::default(); nodes],
            Reach::Global => vec![Platter::default()],
        };
        Self {
            setup: setup.clone(),
            ranks_a_node,
            levels: levels.to_vec(),
            damaged_cells_max: 1 << 16,
            nodes: vec![Node::default(); nodes],
            disks: levels.iter().map(platters).collect(),
            sealed: vec![Sealed::default(); levels.len()],
            faults: BTreeMap::new(),
            spoiled: None,
            starts: 0,
            histories: BTreeSet::new(),
            is_reported: false,
            is_judged: false,
            reported_to_stay: 0,
            reported_to_fail: BTreeSet::new(),
        }
    }

    /// Loses the memory of these nodes, and what their disks had not synced.
    pub fn power_off(&mut self, nodes: impl Iterator<Item = usize>, cut: Cut) {
        for node in nodes {
            self.nodes[node] = Node::default();
            for (number, level) in self.levels.iter().enumerate() {
                if level.reach == Reach::Local {
                    self.disks[number][node].cut(cut);
                }
            }
        }
        for (number, level) in self.levels.iter().enumerate() {
            if level.reach == Reach::Global {
                self.disks[number][0].cut(cut);
            }
        }
    }

    /// The checksum of everything that the next start depends on.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = XxHash3_64::new();
        for node in &self.nodes {
            fingerprint(&node.segments).hash(&mut hasher);
        }
        self.disks.iter().flatten().for_each(|platter| platter.hash_into(&mut hasher));
        hasher.finish()
    }

    pub fn disks_fingerprint(&self, level: usize) -> u64 {
        let mut hasher = XxHash3_64::new();
        self.disks[level].iter().for_each(|platter| platter.hash_into(&mut hasher));
        hasher.finish()
    }

    pub fn lose_disk(&mut self, node: usize) {
        for (number, level) in self.levels.iter().enumerate() {
            if level.reach == Reach::Local {
                self.disks[number][node] = Platter::default();
                for ranks in self.sealed[number].0.values_mut() {
                    ranks.retain(|rank| rank / self.ranks_a_node != node);
                }
            }
        }
    }

    /// Spoils all data and parities in a node's memory.
    pub fn rot_memory(&mut self, node: usize) {
        let header_bytes = self.setup.header().bytes();
        for words in self.nodes[node].segments.values_mut() {
            words[header_bytes.div_ceil(8)..].iter_mut().for_each(|word| *word ^= 1);
        }
    }

    /// Spoils all data and parities in the images of a rank's epoch on a level.
    pub fn rot_image(&mut self, level: usize, rank: usize, epoch: u64) {
        for platter in &mut self.disks[level] {
            let images = platter.images().into_iter();
            for id in images.filter(|id| (id.rank, id.generation.epoch) == (rank, epoch)) {
                let body = platter.bytes_mut(id).iter_mut().skip(IMAGE_PAGE_BYTES);
                body.for_each(|byte| *byte ^= 1);
            }
        }
    }

    /// The newest generation that the next start can resume from, whatever happens to memory: it
    /// lacks no more images than there are parities.
    pub fn promise(&self) -> Option<Generation> {
        let missing = self.setup.parities;
        let suffices = |ranks: &BTreeSet<usize>| ranks.len() + missing >= self.setup.ranks;
        let of = |sealed: &Sealed| {
            let all = sealed.0.iter().filter(|(_, ranks)| suffices(ranks));
            all.map(|(generation, _)| *generation).next_back()
        };
        self.sealed.iter().filter_map(of).max()
    }

    /// Whether a disk has the whole note of a checkpoint that was chosen.
    pub fn noted(&self) -> bool {
        let is_whole = |bytes: &[u8]| {
            let Some((note, sum)) = bytes.get(..40).and_then(|all| all.split_at_checked(32)) else {
                return false;
            };
            note.starts_with(b"SKTCHSN1") && sum == checksum(note).to_le_bytes()
        };
        let has_note = |platter: &Platter| {
            let mut platter = platter.clone();
            platter.images().into_iter().any(|id| is_whole(platter.bytes_mut(id)))
        };
        self.disks.iter().flatten().any(has_note)
    }

    /// Checks that the ranks of a node share a file where all see it, and that no level has more
    /// generations than it has room for.
    pub fn check_files(&self) {
        for (level, platters) in self.levels.iter().zip(&self.disks) {
            let most = match level.reach {
                Reach::Local => self.ranks_a_node,
                Reach::Global => self.nodes.len(),
            };
            for platter in platters {
                let mut files: BTreeMap<Generation, usize> = BTreeMap::new();
                for file in platter.files() {
                    *files.entry(file.generation).or_default() += 1;
                }
                assert!(files.values().all(|&count| count <= most), "{files:?}");
                assert!(files.len() <= level.keep + 2, "{files:?}");
            }
        }
    }

    /// Starts the job, and checks each process on the way.
    pub fn start(&mut self, how: &How) -> Ran {
        self.starts += 1;
        let starts = self.starts;
        let share = |all: &mut Vec<Platter>| -> Vec<_> {
            all.drain(..).map(|platter| Arc::new(Mutex::new(platter))).collect()
        };
        let disks: Vec<Vec<_>> = self.disks.iter_mut().map(share).collect();
        let nodes: Vec<_> = self.nodes.drain(..).map(|node| Arc::new(Mutex::new(node))).collect();
        let sealed: Vec<_> =
            self.sealed.drain(..).map(|sealed| Arc::new(Mutex::new(sealed))).collect();
        let histories = Arc::new(Mutex::new(std::mem::take(&mut self.histories)));
        let reported = Arc::new(Mutex::new(self.is_reported));
        let (judged, stay) = (Mutex::new(false), Mutex::new(0));
        let fail = Mutex::new(BTreeSet::new());
        let options = SimOptions {
            kills: how.kills.clone(),
            rendezvous: how.seed % 2 == 1,
            ..SimOptions::new(self.setup.ranks, how.seed)
        };
        let outcome = run(&options, |comm| {
            let node = comm.rank() / self.ranks_a_node;
            let is_loading = Arc::new(AtomicBool::new(false));
            let level = |number: usize| {
                let LevelSetup { reach, keep, every_seconds } = self.levels[number];
                let place = if reach == Reach::Local { node } else { 0 };
                let (platter, point) = (disks[number][place].clone(), comm.point());
                let (fault, sealed) =
                    (self.faults.get(&(number, node)).copied(), sealed[number].clone());
                let (is_loading, spoiled) = (is_loading.clone(), self.spoiled);
                let disk: Arc<dyn Disk> =
                    Arc::new(SimDisk { platter, fault, point, sealed, is_loading, spoiled });
                Level {
                    name: format!("{reach}"),
                    disk,
                    reach,
                    every: ImagesEvery::Seconds(every_seconds),
                    keep,
                }
            };
            let levels = (0..self.levels.len()).map(level).collect();
            let book = Arc::new(Mutex::new(Book::default()));
            let memory = NodeMemory::new(&nodes[node], node, &book);
            let process = Process {
                setup: &self.setup,
                node,
                how,
                starts,
                damaged_cells_max: self.damaged_cells_max,
                point: comm.point(),
                is_loading,
                histories: &histories,
                reported: &reported,
                judged: &judged,
                stay: &stay,
                fail: &fail,
            };
            process.live(&comm, memory, levels)
        });
        let unshare = |all: Vec<Arc<Mutex<Platter>>>| -> Vec<Platter> {
            let end = |platter: Arc<Mutex<Platter>>| {
                let mut platter = platter.lock().unwrap().clone();
                platter.close_all();
                platter
            };
            all.into_iter().map(end).collect()
        };
        self.disks = disks.into_iter().map(unshare).collect();
        self.nodes = nodes
            .into_iter()
            .map(|node| Arc::into_inner(node).expect("all have ended").into_inner().unwrap())
            .collect();
        self.sealed = sealed.iter().map(|sealed| sealed.lock().unwrap().clone()).collect();
        self.histories = histories.lock().unwrap().clone();
        self.is_reported = *reported.lock().unwrap();
        self.is_judged = judged.into_inner().unwrap();
        self.reported_to_stay = stay.into_inner().unwrap();
        self.reported_to_fail = fail.into_inner().unwrap();
        let is_reported = self.reported_to_stay > 0 || !self.reported_to_fail.is_empty();
        // A rank that is killed in an operation on a disk takes that for a failure of the disk.
        let is_well = self.faults.is_empty() && how.kills.is_empty();
        assert!(!is_reported || !is_well, "all disks are well");
        assert_eq!(outcome.deadlock, None, "deadlock");
        outcome
    }
}

struct Process<'a> {
    setup: &'a Setup,
    node: usize,
    how: &'a How,
    starts: u64,
    damaged_cells_max: usize,
    point: Point,
    is_loading: Arc<AtomicBool>,
    histories: &'a Mutex<BTreeSet<Vec<u8>>>,
    reported: &'a Mutex<bool>,
    judged: &'a Mutex<bool>,
    stay: &'a Mutex<usize>,
    fail: &'a Mutex<BTreeSet<usize>>,
}

type Saved = Checkpointer<'static>;

impl Process<'_> {
    fn config(&self, levels: Vec<Level>) -> Config {
        let (setup, name) = (self.setup, format!("node{}", self.node));
        Config {
            resume: self.how.resume,
            nothing_hidden: self.how.nothing_hidden,
            host: name.clone(),
            // Messages must name the host, not the domain.
            domain: format!("rack of {name}"),
            node: name,
            clock: self.starts,
            nonce: self.starts * 7919 % 1000,
            damaged_cells_max: self.damaged_cells_max,
            levels,
            state_seconds: Some(|state| EPOCH_SECONDS * state.len() as f64),
            image_writer: Writer::Caller,
            image_piece_bytes: setup.chunk_bytes,
            image_align_bytes: IMAGE_PAGE_BYTES as u64,
            ..setup.config()
        }
    }

    fn live(
        &self,
        comm: &Comm,
        memory: NodeMemory,
        levels: Vec<Level>,
    ) -> Result<Came, CheckpointError> {
        let hook = Arc::new(Steps(self.point.clone(), self.is_loading.clone()));
        let config = self.config(levels);
        let opened = Checkpointer::open(comm, memory, config, &self.setup.shapes, hook);
        let saved = match opened {
            Err(CheckpointError::Refused(refusal)) => return Ok(Came::Refused(refusal)),
            Ok(Opened::Finished(done)) => {
                self.point.step(&"report")?;
                *self.reported.lock().unwrap() = true;
                self.clear(done)?;
                return Ok(Came::Finished);
            }
            Ok(Opened::Ready(saved)) => saved,
            Err(error) => return Err(error),
        };
        let (mut saved, recovered) = match self.recover(saved) {
            Err(CheckpointError::Refused(refusal)) => return Ok(Came::Refused(refusal)),
            recovered => recovered?,
        };
        let rank = saved.rank();
        if saved.level_reports().iter().any(|report| report.failure.is_some()) {
            self.fail.lock().unwrap().insert(rank);
        }
        let load = saved.found().load.as_ref().map(|load| (load.level, load.generation));
        let (came, mut history) = match recovered {
            None => {
                for region in self.regions() {
                    let start = self.setup.contents(rank, region, &[]);
                    saved.region(region).copy_from_slice(&start);
                }
                (Came::Fresh, Vec::new())
            }
            Some(recovered) => {
                let state = recovered.state.clone();
                assert!(self.histories.lock().unwrap().contains(&state), "{state:?} never was");
                assert_eq!(recovered.epoch, state.len() as u64);
                if self.is_abft() {
                    self.go_to(&mut saved, rank, &recovered, load.is_some())?;
                }
                (Came::Resumed(state.clone(), load), state)
            }
        };
        self.check(&mut saved, rank, &history);
        let before = history.len();
        while saved.epoch() < self.how.until_epoch {
            history.push(self.starts as u8);
            self.compute(&mut saved, rank, &history)?;
            self.histories.lock().unwrap().insert(history.clone());
            let epoch = history.len() as u64;
            let active: Vec<_> = (0..self.setup.shapes.len())
                .map(|region| self.setup.active(epoch, rank, region))
                .collect();
            if self.how.stops && epoch == self.how.until_epoch {
                saved.make_images_due();
            }
            saved.checkpoint(&active, &history)?;
        }
        self.check(&mut saved, rank, &history);
        if self.how.stops && history.len() > before {
            let whole = saved.finish_images()?;
            assert!(whole.iter().all(|is_whole| *is_whole), "{whole:?}");
            return Ok(came);
        }
        // Images are written while the application works.
        for _ in 0..6 {
            self.point.step(&"work")?;
            saved.poll()?;
        }
        if self.how.finish {
            let done = saved.finish(b"result")?;
            self.point.step(&"report")?;
            *self.reported.lock().unwrap() = true;
            self.clear(done)?;
            return Ok(Came::Finished);
        }
        Ok(came)
    }

    fn clear(&self, done: FinishedRun<'static>) -> Result<(), CheckpointError> {
        let stay = done.clear()?;
        *self.stay.lock().unwrap() += stay.len();
        Ok(())
    }

    fn is_abft(&self) -> bool {
        self.setup.method == Method::Abft
    }

    fn regions(&self) -> Range<usize> {
        if self.is_abft() { DATA..DATA + 1 } else { 0..self.setup.shapes.len() }
    }

    /// Recovers something that the application can continue with.
    fn recover(
        &self,
        saved: Box<Saved>,
    ) -> Result<(Box<Saved>, Option<Recovered>), CheckpointError> {
        let (mut saved, mut recovered) = saved.recover()?;
        if self.how.doubts {
            (saved, recovered) = saved.recover_without("it is wrong", true)?;
        }
        while self.is_abft() && recovered.is_some() && self.is_too_little(&mut saved)? {
            *self.judged.lock().unwrap() = true;
            (saved, recovered) = saved.recover_without("too little is there", false)?;
        }
        Ok((saved, recovered))
    }

    /// Whether more ranks have missing or torn data than there are parities.
    fn is_too_little(&self, saved: &mut Saved) -> Result<bool, CheckpointError> {
        let mut lost = vec![0u8; self.setup.ranks];
        lost[saved.rank()] = u8::from([0, TORN].contains(&saved.region(WORD)[0]));
        all_reduce(saved.comm(), &mut lost, u8::max)?;
        Ok(lost.iter().filter(|&&is_lost| is_lost > 0).count() > self.setup.parities)
    }

    /// Takes the data of a rank to the recovered state, from whatever a death has left of it in
    /// memory, or from its image.
    fn go_to(
        &self,
        saved: &mut Saved,
        rank: usize,
        recovered: &Recovered,
        is_loaded: bool,
    ) -> Result<(), CheckpointError> {
        let truth = self.setup.contents(rank, DATA, &recovered.state);
        let word = word_of(&recovered.state);
        let is_lost = recovered.rebuilt.contains(&rank);
        if is_lost {
            let is_blank = saved.regions().iter().all(|bytes| bytes.iter().all(|&b| b == 0));
            assert!(is_blank, "nothing is left of what is lost or has rotted");
        } else if is_loaded {
            assert!(
                *saved.region(DATA) == truth[..] && saved.region(WORD)[0] == word,
                "rank {rank}"
            );
        }
        if !is_lost && saved.region(WORD)[0] != word {
            saved.region(WORD)[0] = TORN;
        }
        self.point.step(&"go to the cut")?;
        saved.region(DATA).copy_from_slice(&truth);
        self.point.step(&"at the cut")?;
        saved.region(WORD)[0] = word;
        Ok(())
    }

    /// The number of operations on its image that a rank does before the next checkpoint: enough
    /// for all in each third epoch, else a random number.
    fn operations(&self, rank: usize, epoch: usize) -> usize {
        match epoch % 3 {
            0 => 32,
            _ => (self.how.seed as usize + 7 * rank + 5 * epoch) % 24,
        }
    }

    /// Writes A piece by piece, while images are written.
    fn compute(
        &self,
        saved: &mut Saved,
        rank: usize,
        history: &[u8],
    ) -> Result<(), CheckpointError> {
        if self.is_abft() {
            saved.region(WORD)[0] = TORN;
        }
        let mut left = self.operations(rank, history.len());
        for region in self.regions() {
            let after = self.setup.contents(rank, region, history);
            let half = after.len() / 2;
            for part in [0..half, half..after.len()] {
                self.point.step(&"compute")?;
                saved.region(region)[part.clone()].copy_from_slice(&after[part]);
                let now = left.min(8);
                for _ in 0..now {
                    saved.poll()?;
                }
                left -= now;
            }
        }
        if self.is_abft() {
            saved.region(WORD)[0] = word_of(history);
        }
        Ok(())
    }

    fn check(&self, saved: &mut Saved, rank: usize, history: &[u8]) {
        for region in self.regions() {
            let bytes = saved.region(region);
            let truth = self.setup.contents(rank, region, history);
            assert!(*bytes == truth[..], "rank {rank} region {region} is wrong");
        }
    }
}

/// An undisturbed start came to what was promised, the same on all ranks; returns it.
pub fn check_kept(ran: &Ran, promise: Option<Generation>, memory_is_gone: bool) -> Came {
    let came: Vec<&Came> =
        ran.results.iter().map(|result| result.as_ref().expect("undisturbed")).collect();
    assert!(came.iter().all(|other| *other == came[0]), "{came:?}");
    match (came[0], promise) {
        (Came::Resumed(_, Some((_, generation))), Some(promise)) => {
            assert!(*generation >= promise, "{generation:?}, and {promise:?} was complete");
        }
        (Came::Resumed(_, None), _) => assert!(!memory_is_gone),
        (Came::Fresh | Came::Refused(_), Some(promise)) => {
            panic!("{:?}, and {promise:?} was complete", came[0]);
        }
        (_, None) | (Came::Finished, _) => {}
    }
    came[0].clone()
}

#[derive(Default, Debug)]
pub struct Count(pub BTreeMap<&'static str, usize>);

impl Count {
    pub fn add(&mut self, came: &Came) {
        let name = match came {
            Came::Fresh => "from the beginning",
            Came::Resumed(_, None) => "from memory",
            Came::Resumed(_, Some((0, _))) => "from level 0",
            Came::Resumed(_, Some(_)) => "from level 1",
            Came::Refused(Refusal::Damaged { .. }) => "refused as damaged",
            Came::Refused(_) => "refused",
            Came::Finished => "got the result",
        };
        *self.0.entry(name).or_default() += 1;
    }
}
