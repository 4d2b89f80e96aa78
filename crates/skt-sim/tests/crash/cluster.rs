//! Nodes with memory that outlives processes, and an application on them that takes checkpoints:
//! the world in which the protocol is killed.
//!
//! The checker is separate from the code under test. It computes the true contents of every rank at
//! every epoch from a formula, keeps its own book of which rank has committed which epoch and which
//! memory is lost, and predicts from these alone what a restart must come to.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use skt_checkpoint::checkpoint::decide::{Refusal, Resume};
use skt_checkpoint::checkpoint::finish::FinishedRun;
use skt_checkpoint::checkpoint::header::{HeaderLayout, SegmentId};
use skt_checkpoint::checkpoint::hook::{Hook, Step, StepName};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::protocol::{
    CheckpointError, Checkpointer, Config, Hold, Memory, OpenSegment, Opened, Stats,
};
use skt_checkpoint::checkpoint::record::Record;
use skt_comm::{Comm, CommError};
use skt_sim::fibers::{
    Conductor, Kill, Linger, Point, SimComm, SimOptions, SimOutcome, run_conducted,
};
use skt_store::codec::CodecKind;
use skt_store::layout::{Active, Geometry, RegionShape, SegmentLayout};
use twox_hash::XxHash3_64;

use super::camera::{Camera, Staged, Witness};

const STATE_CAPACITY_BYTES: usize = 32;

pub fn code(is_xor: bool) -> CodecKind {
    if is_xor { CodecKind::Xor } else { CodecKind::ReedSolomon }
}

#[derive(Clone, Default)]
pub struct Node {
    pub segments: BTreeMap<SegmentId, Vec<u64>>,
    in_use: BTreeSet<SegmentId>,
    pub(super) doomed: BTreeSet<SegmentId>,
    pub(super) places: BTreeMap<SegmentId, usize>,
    pub(super) sizes: BTreeMap<SegmentId, usize>,
    /// The indices of the processes that hold the run.
    pub(super) locks: BTreeSet<usize>,
    /// The words that a process of an earlier start writes to a segment right after the current
    /// start has read it.
    pub ghosts: BTreeMap<SegmentId, Vec<u64>>,
}

impl Node {
    /// Makes a process of another job hold the run.
    pub fn hold(&mut self, index: usize) {
        self.locks.insert(index);
    }
}

pub struct NodeLock {
    index: usize,
    home: Arc<Mutex<Node>>,
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        self.home.lock().unwrap().locks.remove(&self.index);
    }
}

pub fn fingerprint(segments: &BTreeMap<SegmentId, Vec<u64>>) -> u64 {
    let mut hasher = XxHash3_64::new();
    for (id, words) in segments {
        hasher.write_usize(id.rank);
        hasher.write_u64(id.start);
        hasher.write(bytemuck::cast_slice(words));
    }
    hasher.finish()
}

pub struct NodeMemory {
    node: Arc<Mutex<Node>>,
    index: usize,
    book: Arc<Mutex<Book>>,
    /// The number of the process on its node, once it has a hold on the run.
    process: usize,
}

/// A segment in use: returns to its node when the process ends or dies.
pub struct NodeSegment {
    id: SegmentId,
    bytes: usize,
    /// From a leaked `Vec`.
    words: *mut u64,
    len: usize,
    home: Arc<Mutex<Node>>,
}

// SAFETY: owns its words; all ranks are fibers of one thread.
unsafe impl Send for NodeSegment {}

impl NodeSegment {
    fn new(id: SegmentId, bytes: usize, words: Vec<u64>, home: &Arc<Mutex<Node>>) -> Self {
        let words = Box::leak(words.into_boxed_slice());
        Self { id, bytes, words: words.as_mut_ptr(), len: words.len(), home: home.clone() }
    }
}

impl Deref for NodeSegment {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: this many bytes exist; nothing else writes to them.
        unsafe { std::slice::from_raw_parts(self.words.cast(), self.bytes) }
    }
}

impl DerefMut for NodeSegment {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.words.cast(), self.bytes) }
    }
}

impl Drop for NodeSegment {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`, put together once.
        let words = unsafe { Vec::from_raw_parts(self.words, self.len, self.len) };
        let mut node = self.home.lock().unwrap();
        node.in_use.remove(&self.id);
        node.places.remove(&self.id);
        if !node.doomed.remove(&self.id) {
            // The words keep their address.
            node.segments.insert(self.id, words);
        }
    }
}

impl NodeMemory {
    pub fn new(node: &Arc<Mutex<Node>>, index: usize, book: &Arc<Mutex<Book>>) -> Self {
        Self { node: node.clone(), index, book: book.clone(), process: 0 }
    }
}

impl Memory for NodeMemory {
    fn lock(&mut self, index: usize) -> io::Result<Hold> {
        if !self.node.lock().unwrap().locks.insert(index) {
            return Err(io::Error::other("another job has it"));
        }
        self.process = index;
        Ok(Arc::new(NodeLock { index, home: self.node.clone() }))
    }

    fn list(&mut self) -> io::Result<Vec<SegmentId>> {
        let node = self.node.lock().unwrap();
        assert!(node.in_use.is_empty(), "all look around before anyone opens");
        assert!(!node.locks.is_empty(), "nobody looks around without a hold on the run");
        assert_eq!(self.process, 0, "one process of a node looks around for all");
        Ok(node.segments.keys().copied().collect())
    }

    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize> {
        let mut node = self.node.lock().unwrap();
        let bytes = node.sizes[&id];
        let all = &bytemuck::cast_slice::<u64, u8>(&node.segments[&id])[..bytes];
        let len = all.len().min(into.len());
        into[..len].copy_from_slice(&all[..len]);
        if let Some(words) = node.ghosts.remove(&id) {
            node.segments.insert(id, words);
        }
        Ok(bytes)
    }

    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<OpenSegment> {
        let mut node = self.node.lock().unwrap();
        if node.segments.contains_key(&id) || !node.in_use.insert(id) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        node.sizes.insert(id, bytes);
        let segment = NodeSegment::new(id, bytes, vec![0; bytes.div_ceil(8)], &self.node);
        node.places.insert(id, segment.words as usize);
        Ok(Box::new(segment))
    }

    fn attach(&mut self, id: SegmentId) -> io::Result<OpenSegment> {
        let mut node = self.node.lock().unwrap();
        let words = node.segments.remove(&id).expect("a segment that was offered");
        assert!(node.in_use.insert(id), "one process a segment");
        let segment = NodeSegment::new(id, node.sizes[&id], words, &self.node);
        node.places.insert(id, segment.words as usize);
        Ok(Box::new(segment))
    }

    fn remove(&mut self, id: SegmentId) -> io::Result<()> {
        let mut node = self.node.lock().unwrap();
        if node.in_use.contains(&id) {
            node.doomed.insert(id);
        } else {
            node.segments.remove(&id);
        }
        let mut book = self.book.lock().unwrap();
        if book.home.get(&id.rank) == Some(&self.index) {
            book.forget_rank(id.rank);
        }
        if node.segments.is_empty() && node.in_use.is_subset(&node.doomed) {
            // The node's knowledge is lost with its segments.
            book.followed.remove(&self.index);
            book.joined.remove(&self.index);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub ranks: usize,
    pub members: usize,
    pub parities: usize,
    pub method: Method,
    pub code: CodecKind,
    pub shapes: Vec<RegionShape>,
    pub bands: usize,
    pub segment_bytes: usize,
    pub chunk_bytes: usize,
    pub allow_shared_domains: bool,
    /// Epochs over which the active rectangle shrinks to nothing.
    pub shrink_over: u64,
    /// Whether everything is active again in each third epoch.
    pub thaws: bool,
    /// Rows that become ready at a time, if checkpoints are taken in phases.
    pub piece_rows: Option<usize>,
    /// Number of stages before the pieces, each making final what is above or left of a corner.
    pub stages: usize,
    /// Bytes of a cell (the unit of a checksum), and bytes of messages in transit.
    pub cell_bytes: usize,
    pub in_flight_bytes: usize,
    /// Rows that the application claims to have left unchanged although it has changed them.
    pub lie_rows: usize,
    pub state_capacity_bytes: usize,
}

impl Setup {
    /// The settings of a process's checkpoints, without those that differ between processes.
    pub fn config(&self) -> Config {
        Config {
            method: self.method,
            members: self.members,
            parities: self.parities,
            message_bytes: self.segment_bytes,
            allow_shared_domains: self.allow_shared_domains,
            state_capacity_bytes: self.state_capacity_bytes,
            bands: self.bands,
            cell_bytes: self.cell_bytes,
            in_flight_bytes: self.in_flight_bytes,
            align_bytes: 8,
            chunk_bytes: self.chunk_bytes,
            check_frozen: true,
            ..Config::new("run", self.code)
        }
    }

    pub fn small(ranks: usize, parities: usize) -> Self {
        Self {
            ranks,
            members: ranks,
            parities,
            method: Method::SelfCheckpoint,
            code: code(parities == 1),
            shapes: vec![
                RegionShape { rows: 2 * (ranks - parities), pitch_bytes: 16 },
                RegionShape { rows: 1, pitch_bytes: 8 },
            ],
            bands: 2,
            segment_bytes: 64,
            chunk_bytes: 48,
            allow_shared_domains: false,
            shrink_over: 2,
            thaws: false,
            piece_rows: None,
            stages: 0,
            cell_bytes: 8,
            in_flight_bytes: 192,
            lie_rows: 0,
            state_capacity_bytes: STATE_CAPACITY_BYTES,
        }
    }

    pub fn header(&self) -> HeaderLayout {
        HeaderLayout::new("run", self.ranks, self.state_capacity_bytes)
    }

    pub fn layout(&self) -> SegmentLayout {
        let geometry = Geometry { members: self.ranks, parities: self.parities };
        let (areas, header) = (self.method.areas(), self.header().bytes());
        SegmentLayout::new(header, &self.shapes, geometry, self.bands, areas, self.cell_bytes, 8)
    }

    /// The part of a region that rank `rank` changes before epoch `epoch`.
    pub fn active(&self, epoch: u64, rank: usize, region: usize) -> Active {
        if region > 0 || (self.thaws && epoch.is_multiple_of(3)) {
            return Active::ALL;
        }
        let shape = self.shapes[0];
        let part = (epoch - 1).min(self.shrink_over) as usize;
        let over = self.shrink_over as usize;
        // Ranks differ a little, as in a block-cyclic matrix.
        let row = (shape.rows * part / over + rank % 2).min(shape.rows);
        let row = if part == 0 { 0 } else { row };
        Active { row, byte: (shape.pitch_bytes * part / over / 8) * 8 }
    }

    /// The corners of the active part of an epoch, each within the one before.
    pub fn corners(&self, epoch: u64, rank: usize, region: usize) -> Vec<Active> {
        let RegionShape { rows, pitch_bytes } = self.shapes[region];
        let from = self.active(epoch, rank, region);
        let (row, byte) = (from.row.min(rows), from.byte.min(pitch_bytes));
        let between =
            |low: usize, high: usize, stage| low + (high - low) * stage / (self.stages + 1);
        let corner = |stage| Active {
            row: between(row, rows, stage),
            byte: between(byte / 8, pitch_bytes / 8, stage) * 8,
        };
        (1..=self.stages).map(corner).collect()
    }

    /// The true contents of a region of a rank, given what happened in each epoch so far.
    pub fn contents(&self, rank: usize, region: usize, history: &[u8]) -> Vec<u8> {
        let shape = self.shapes[region];
        let mut bytes = vec![0; shape.bytes()];
        self.change(&mut bytes, rank, region, 0, Active::ALL, 0);
        for (i, &what) in history.iter().enumerate() {
            let epoch = i as u64 + 1;
            let active = self.active(epoch, rank, region);
            self.change(&mut bytes, rank, region, epoch, active, what);
        }
        bytes
    }

    fn change(&self, a: &mut [u8], rank: usize, region: usize, epoch: u64, at: Active, what: u8) {
        let pitch = self.shapes[region].pitch_bytes;
        for (i, byte) in a.iter_mut().enumerate() {
            if i / pitch >= at.row && i % pitch >= at.byte {
                let seed = [rank as u64, region as u64, epoch, i as u64, u64::from(what)];
                let mix =
                    |h: u64, x: u64| (h ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
                *byte = (seed.into_iter().fold(77, mix) >> 40) as u8;
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Book {
    /// Ranks whose data is lost and not rebuilt.
    pub lost: BTreeSet<usize>,
    /// The newest commit in each rank's memory, with its state.
    pub committed: BTreeMap<usize, (u64, Vec<u8>)>,
    /// The newest epoch that each rank's memory is stamped with, and the epoch that it is being
    /// updated to (for method `single`).
    pub stamped: BTreeMap<usize, u64>,
    pub updating: BTreeMap<usize, u64>,
    pub home: BTreeMap<usize, usize>,
    /// The groups, as formed at the first start.
    pub groups: Vec<Vec<usize>>,
    pub starts: u64,
    /// The starts that each node's memory has joined, and the newest that it has followed.
    pub joined: BTreeMap<usize, BTreeSet<u64>>,
    pub followed: BTreeMap<usize, u64>,
    /// Ranks whose memory has the mark that the run has ended, and the result.
    pub marked: BTreeMap<usize, Vec<u8>>,
    /// Ranks that have come to the end in the present start.
    pub at_end: BTreeSet<usize>,
    pub reported: Option<Vec<u8>>,
    /// Whether nodes have been out of reach: then the result in their memory may be reported, too.
    pub was_split: bool,
}

impl Book {
    fn forget_rank(&mut self, rank: usize) {
        self.home.remove(&rank);
        self.committed.remove(&rank);
        self.stamped.remove(&rank);
        self.updating.remove(&rank);
        self.marked.remove(&rank);
        self.lost.insert(rank);
    }

    pub fn forget_node(&mut self, node: usize) {
        let gone: Vec<usize> =
            self.home.iter().filter(|(_, n)| **n == node).map(|(&rank, _)| rank).collect();
        for rank in gone {
            self.forget_rank(rank);
        }
    }

    /// The checksum of everything that the next start depends on.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { lost, committed, updating, marked, reported, .. } = self;
        (lost, committed, updating, marked, reported).hash(&mut hasher);
        hasher.finish()
    }
}

/// A node that is out of reach, with its memory intact, and the book's entries for the rank on it.
#[derive(Clone)]
struct Away {
    node: usize,
    rank: usize,
    segment: SegmentId,
    committed: (u64, Vec<u8>),
    stamped: u64,
    updating: Option<u64>,
    marked: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prediction {
    Fresh,
    Recovered(u64, Vec<u8>),
    Unrecoverable(u64, BTreeSet<usize>),
    Finished(Vec<u8>),
}

/// The cluster between two starts of the job.
#[derive(Clone)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    /// The node of each process of the next start.
    pub placement: Vec<usize>,
    pub domains: Vec<String>,
    pub book: Book,
    away: Vec<Away>,
    /// Nodes that are present and stale.
    stale: Vec<Away>,
}

impl Cluster {
    pub fn new(setup: &Setup, per_node: usize) -> Self {
        let nodes = setup.ranks.div_ceil(per_node);
        Self {
            nodes: vec![Node::default(); nodes],
            placement: (0..setup.ranks).map(|rank| rank / per_node).collect(),
            domains: (0..nodes).map(|node| format!("node{node}")).collect(),
            book: Book::default(),
            away: Vec::new(),
            stale: Vec::new(),
        }
    }

    /// Loses the memory of these nodes; new nodes replace them.
    pub fn lose_nodes(&mut self, lost: &BTreeSet<usize>) {
        for &node in lost {
            let fresh = self.nodes.len();
            self.nodes.push(Node::default());
            self.domains.push(format!("node{fresh}"));
            self.placement.iter_mut().filter(|p| **p == node).for_each(|p| *p = fresh);
            self.nodes[node] = Node::default();
            self.book.forget_node(node);
        }
    }

    /// Puts a node with one rank out of reach; it may return. False if it has no rank.
    pub fn send_away(&mut self, node: usize) -> bool {
        let home = self.book.home.iter().find(|(_, n)| **n == node);
        let Some(rank) = home.map(|(&rank, _)| rank) else { return false };
        let away = self.set_aside(node, rank);
        let fresh = self.nodes.len();
        self.nodes.push(Node::default());
        self.domains.push(format!("node{fresh}"));
        self.placement.iter_mut().filter(|p| **p == node).for_each(|p| *p = fresh);
        self.book.was_split = true;
        self.away.push(away);
        true
    }

    fn set_aside(&mut self, node: usize, rank: usize) -> Away {
        let book = &mut self.book;
        let of_rank = self.nodes[node].segments.keys().copied().filter(|id| id.rank == rank);
        let away = Away {
            node,
            rank,
            segment: of_rank.max().expect("at home here"),
            committed: book.committed[&rank].clone(),
            stamped: book.stamped[&rank],
            updating: book.updating.get(&rank).copied(),
            marked: book.marked.get(&rank).cloned(),
        };
        book.forget_rank(rank);
        away
    }

    /// Returns a node that was out of reach, in place of one without a rank.
    pub fn bring_back(&mut self, index: usize) {
        let has_rank = |node: &usize| {
            self.book.home.values().any(|n| n == node)
                || self.stale.iter().any(|away| away.node == *node)
        };
        let Some(place) = self.placement.iter().position(|node| !has_rank(node)) else { return };
        if self.away.is_empty() {
            return;
        }
        let away = self.away.swap_remove(index % self.away.len());
        self.placement[place] = away.node;
        self.stale.push(away);
    }

    /// By any node present; a node that has not joined that start does not count.
    fn newest_followed(&self) -> u64 {
        let followed = self.placement.iter().filter_map(|node| self.book.followed.get(node));
        followed.copied().max().unwrap_or(0)
    }

    /// Reconsiders which memory counts: a node present counts if it has followed or joined the
    /// newest start that any node present has followed; otherwise it is stale, as long as those
    /// nodes are present.
    pub fn reconsider(&mut self) {
        let newest = self.newest_followed();
        let counts = |book: &Book, node: usize| {
            let followed = book.followed.get(&node).copied().unwrap_or(0);
            followed == newest || book.joined.get(&node).is_some_and(|all| all.contains(&newest))
        };
        for (rank, node) in self.book.home.clone() {
            if !counts(&self.book, node) {
                let away = self.set_aside(node, rank);
                self.stale.push(away);
            }
        }
        for away in std::mem::take(&mut self.stale) {
            let has_segment = self.nodes[away.node].segments.contains_key(&away.segment);
            if !has_segment || !self.placement.contains(&away.node) {
                continue;
            }
            let book = &mut self.book;
            if !counts(book, away.node) {
                self.stale.push(away);
                continue;
            }
            book.lost.remove(&away.rank);
            book.home.insert(away.rank, away.node);
            book.committed.insert(away.rank, away.committed);
            book.stamped.insert(away.rank, away.stamped);
            if let Some(epoch) = away.updating {
                book.updating.insert(away.rank, epoch);
            }
            if let Some(result) = away.marked {
                book.marked.insert(away.rank, result);
            }
        }
    }

    /// All headers as text, for a failing case to print.
    pub fn describe(&self, setup: &Setup) -> String {
        let header = setup.header();
        let mut text = format!("{:?}\n", self.book);
        for (process, &node) in self.placement.iter().enumerate() {
            text += &format!("process {process} on node {node}");
            for (id, words) in &self.nodes[node].segments {
                let record = header.decode_record(bytemuck::cast_slice(words));
                text += &format!(" {id:?} {record:?}");
            }
            text.push('\n');
        }
        text
    }

    pub fn segments(&self) -> usize {
        self.placement.iter().map(|&node| self.nodes[node].segments.len()).sum()
    }

    /// The header of each segment, with starts numbered by age, without the contents.
    pub fn outline(&self, setup: &Setup) -> Vec<u64> {
        let header = setup.header();
        let mut found = Vec::new();
        for (place, &node) in self.placement.iter().enumerate() {
            for (id, words) in &self.nodes[node].segments {
                let bytes = bytemuck::cast_slice(words);
                let whole = header.decode_identity(bytes).is_some();
                let record = header.decode_record(bytes).unwrap_or_default();
                found.push((place, id.rank, whole, record));
            }
        }
        let mut starts: Vec<_> =
            found.iter().flat_map(|(.., r)| [&[r.lineage()], r.joined()].concat()).collect();
        starts.sort_unstable();
        starts.dedup();
        let age = |start| starts.binary_search(&start).expect("listed") as u64;
        let low = found.iter().map(|(.., record)| record.stamped()).min().unwrap_or(0);
        // Members differ only in their numbers, so this is a set.
        let kinds: BTreeSet<[u64; 9]> = found
            .into_iter()
            .map(|(place, rank, whole, record)| {
                let moved = u64::from(place != rank);
                let lineage = age(record.lineage());
                let joined = record.joined().iter().map(|&start| 1 << age(start)).sum();
                let commit = record.committed().saturating_sub(low);
                let stamp = record.stamped();
                let stamp = stamp.saturating_sub(low) + 10 * u64::from(stamp == 0);
                let updating = record.updating().saturating_sub(low);
                let [hollow, finished] = [record.is_hollow(), record.is_finished()].map(u64::from);
                let whole = u64::from(whole);
                let flags = [moved, whole, lineage, joined, commit, stamp, updating, hollow];
                let [a, b, c, d, e, f, g, h] = flags;
                [a, b, c, d, e, f, g, h, finished]
            })
            .collect();
        let mut outline = vec![self.book.lost.len() as u64];
        outline.extend(kinds.into_iter().flatten());
        outline
    }

    /// The checksum of everything that the next start depends on.
    pub fn fingerprint(&self) -> u64 {
        let nodes = self.placement.iter().map(|&node| fingerprint(&self.nodes[node].segments));
        Self::fingerprint_of(nodes, self.book.fingerprint())
    }

    /// As [`Cluster::fingerprint`]; `nodes` are in the order of the processes.
    pub fn fingerprint_of(nodes: impl Iterator<Item = u64>, book: u64) -> u64 {
        nodes.fold(book, |all, node| {
            (all.rotate_left(23) ^ node).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// Once a result is reported, no start may compute again while anything is left of a run that
    /// has seen its end.
    fn check_promise(&self, predicted: &Prediction) {
        if let (Some(reported), false) = (&self.book.reported, self.book.was_split) {
            match predicted {
                Prediction::Finished(result) => assert_eq!(result, reported),
                Prediction::Fresh => {}
                other => panic!("{reported:?} was reported, and now {other:?}"),
            }
        }
    }

    pub fn predict(&self, setup: &Setup) -> Prediction {
        let book = &self.book;
        if let Some(result) = book.marked.values().next() {
            return Prediction::Finished(result.clone());
        }
        let Some((epoch, state)) = book.committed.values().max_by_key(|c| c.0).cloned() else {
            return Prediction::Fresh;
        };
        if epoch == 0 {
            return Prediction::Fresh;
        }
        let mut lost = book.lost.clone();
        if setup.method == Method::Single {
            // The copy is half written if no rank has seen the end of the update.
            let torn = book.updating.iter().filter(|(_, e)| **e > epoch).map(|(&rank, _)| rank);
            lost.extend(torn);
        }
        let mut broken = BTreeSet::new();
        for group in &book.groups {
            let gone: Vec<usize> = group.iter().copied().filter(|r| lost.contains(r)).collect();
            if gone.len() > setup.parities {
                broken.extend(gone);
            }
        }
        if broken.is_empty() {
            Prediction::Recovered(epoch, state)
        } else {
            Prediction::Unrecoverable(epoch, broken)
        }
    }
}

#[derive(Clone, Debug)]
pub struct Disturbance {
    pub seed: u64,
    pub kills: Vec<Kill>,
    pub linger: Linger,
    pub rendezvous: bool,
    pub switches_of_256: u8,
    pub resume: Resume,
    /// Checkpoints to take before the job ends normally.
    pub until_epoch: u64,
    pub finish: bool,
    /// The refusal that must come, whatever the book expects.
    pub refusal: Option<Refusal>,
    pub trace: bool,
}

impl Disturbance {
    pub fn none(seed: u64, until_epoch: u64) -> Self {
        Self {
            seed,
            kills: Vec::new(),
            linger: Linger::Steps(0),
            rendezvous: seed % 2 == 1,
            switches_of_256: 64,
            resume: Resume::Auto,
            until_epoch,
            finish: false,
            refusal: None,
            trace: false,
        }
    }
}

/// The rank that a process has taken, and the state of the epoch that it makes or restores.
type Known = Arc<Mutex<Option<(usize, Vec<u8>)>>>;

struct BookHook {
    point: Point,
    book: Arc<Mutex<Book>>,
    node: usize,
    memory: Arc<Mutex<Node>>,
    rank: Known,
    ranks: usize,
    result: Vec<u8>,
}

impl BookHook {
    fn check_end(&self, step: &Step) {
        let mut book = self.book.lock().unwrap();
        let rank = self.rank.lock().unwrap().as_ref().map(|(rank, _)| *rank);
        match (step.name, rank) {
            (StepName::Finish, Some(rank)) => {
                book.at_end.insert(rank);
            }
            (StepName::Mark, Some(_)) => {
                assert_eq!(book.at_end.len(), self.ranks, "marked before all were done");
            }
            // This step comes right after the mark.
            (StepName::Marked, Some(rank)) => {
                book.marked.insert(rank, self.result.clone());
            }
            // A start that found the run ended marks the other segments of its node.
            (StepName::Mark | StepName::Marked, None) => {
                let header = HeaderLayout::new("run", self.ranks, STATE_CAPACITY_BYTES);
                for (id, words) in &self.memory.lock().unwrap().segments {
                    let record = header.decode_record(bytemuck::cast_slice(words));
                    let record = record.filter(Record::is_finished);
                    if let (Some(record), Some(node)) = (record, book.home.get(&id.rank))
                        && *node == self.node
                    {
                        book.marked.insert(id.rank, record.state().to_vec());
                    }
                }
            }
            (StepName::Remove, _) => {
                assert!(book.reported.is_some(), "removed before it was reported")
            }
            _ => {}
        }
    }
}

impl Hook for BookHook {
    fn at(&self, step: &Step) -> Result<(), CommError> {
        self.check_end(step);
        if step.name == StepName::Joined {
            let mut book = self.book.lock().unwrap();
            let starts = book.starts;
            book.joined.entry(self.node).or_default().insert(starts);
        }
        if let Some((rank, state)) = &*self.rank.lock().unwrap() {
            let mut book = self.book.lock().unwrap();
            match step.name {
                // This step comes right after the record of a rebuilt and stamped segment.
                StepName::RecoverCopy if step.chunk.is_none() => {
                    book.lost.remove(rank);
                    book.home.insert(*rank, self.node);
                    book.committed.insert(*rank, (step.epoch, state.clone()));
                    book.stamped.insert(*rank, step.epoch);
                }
                // These steps come right after COMMIT.
                StepName::Flush | StepName::Stamp => {
                    book.committed.insert(*rank, (step.epoch, state.clone()));
                }
                // These steps come right after the mark that the update begins.
                StepName::Copy | StepName::Encode | StepName::Barrier if step.chunk.is_none() => {
                    book.updating.insert(*rank, step.epoch);
                }
                _ => {}
            }
        }
        self.point.step(step)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub refused: bool,
    pub result: Option<Vec<u8>>,
    pub epoch: u64,
    pub state: Vec<u8>,
    pub lost: Vec<usize>,
}

pub type Ran = SimOutcome<Ended, CheckpointError>;

/// Starts the job once, disturbed by `how`, and checks every process on the way.
pub fn start(setup: &Setup, cluster: &mut Cluster, how: &Disturbance) -> Ran {
    start_before::<()>(setup, cluster, how, None).0
}

pub fn start_before<W: Witness>(
    setup: &Setup,
    cluster: &mut Cluster,
    how: &Disturbance,
    witness: Option<W>,
) -> (Ran, Option<W>) {
    let predicted = match how.resume {
        Resume::Never => Prediction::Fresh,
        _ => cluster.predict(setup),
    };
    cluster.check_promise(&predicted);
    if predicted == Prediction::Fresh {
        cluster.book.reported = None;
    }
    cluster.book.at_end.clear();
    cluster.book.starts += 1;
    let starts = cluster.book.starts;
    let book = Arc::new(Mutex::new(std::mem::take(&mut cluster.book)));
    let nodes: Vec<Arc<Mutex<Node>>> =
        cluster.nodes.drain(..).map(|node| Arc::new(Mutex::new(node))).collect();
    let (placement, domains) = (&cluster.placement, &cluster.domains);
    let options = SimOptions {
        hosts: placement.iter().map(|&node| format!("host{node}")).collect(),
        seed: how.seed,
        switches_of_256: how.switches_of_256,
        rendezvous: how.rendezvous,
        kills: how.kills.clone(),
        linger: how.linger,
        trace: how.trace,
    };
    let staged = witness.map(|witness| {
        let camera = Camera::new(&nodes, placement, &book);
        Arc::new(Mutex::new(Staged { witness, camera }))
    });
    let conductor = staged.clone().map(|staged| staged as Arc<Mutex<dyn Conductor>>);
    let outcome = run_conducted(&options, conductor, |comm| {
        let node = placement[comm.rank()];
        let mut process = Process {
            setup,
            how,
            book: book.clone(),
            node,
            known: Arc::new(Mutex::new(None)),
            point: comm.point(),
        };
        let memory = NodeMemory::new(&nodes[node], node, &book);
        process.live(comm, memory, &domains[node], starts, &predicted)
    });
    let witness = staged.map(|staged| {
        let staged = Arc::into_inner(staged).expect("the run is over").into_inner().unwrap();
        let Staged { mut witness, mut camera } = staged;
        witness.at_end(&mut camera);
        witness
    });
    cluster.nodes = nodes
        .into_iter()
        .map(|node| Arc::into_inner(node).expect("all have ended").into_inner().unwrap())
        .collect();
    cluster.book = Arc::into_inner(book).expect("all have ended").into_inner().unwrap();
    assert_eq!(outcome.deadlock, None, "deadlock");
    (outcome, witness)
}

struct Process<'a> {
    setup: &'a Setup,
    how: &'a Disturbance,
    book: Arc<Mutex<Book>>,
    node: usize,
    known: Known,
    point: Point,
}

impl Process<'_> {
    fn config(&self, domain: &str, nonce: u64) -> Config {
        Config {
            resume: self.how.resume,
            domain: domain.to_owned(),
            node: format!("{}", self.node),
            clock: nonce,
            nonce: nonce * 7919 % 1000,
            ..self.setup.config()
        }
    }

    fn live(
        &mut self,
        comm: SimComm,
        memory: NodeMemory,
        domain: &str,
        starts: u64,
        predicted: &Prediction,
    ) -> Result<Ended, CheckpointError> {
        let (point, book) = (self.point.clone(), self.book.clone());
        let (ranks, result) = (self.setup.ranks, result_of(starts, self.how.until_epoch));
        let (node, rank) = (self.node, self.known.clone());
        let at = memory.node.clone();
        let hook = BookHook { point, book, node, memory: at, rank, ranks, result: result.clone() };
        let config = self.config(domain, starts);
        let opened = Checkpointer::open(&comm, memory, config, &self.setup.shapes, Arc::new(hook));
        let ckpt = match opened {
            Err(CheckpointError::Refused(refusal)) if self.how.refusal.is_some() => {
                assert_eq!(Some(&refusal), self.how.refusal.as_ref());
                return Ok(Ended { refused: true, ..Ended::default() });
            }
            Err(CheckpointError::Refused(refusal)) => {
                // An orderly end, which kills no rank.
                check_refusal(&refusal, predicted);
                return Ok(Ended { refused: true, ..Ended::default() });
            }
            Ok(Opened::Finished(done)) => {
                let Prediction::Finished(result) = predicted else {
                    panic!("reported as done, predicted {predicted:?}");
                };
                return self.report(&comm, done, result);
            }
            Ok(Opened::Ready(ckpt)) => ckpt,
            Err(error) => return Err(error),
        };
        let (rank, found) = (ckpt.rank(), ckpt.found().clone());
        self.note_open(rank, found.epoch, &found.lost, &found.groups, predicted);
        let (mut ckpt, recovered) = ckpt.recover()?;
        let mut state = match recovered {
            None => {
                assert_eq!(*predicted, Prediction::Fresh);
                for region in 0..self.setup.shapes.len() {
                    let start = self.setup.contents(rank, region, &[]);
                    ckpt.region(region).copy_from_slice(&start);
                }
                Vec::new()
            }
            Some(recovered) => {
                let got = Prediction::Recovered(recovered.epoch, recovered.state.clone());
                assert_eq!(got, *predicted, "rank {rank}");
                recovered.state
            }
        };
        self.check(&mut ckpt, rank, &state);
        while ckpt.epoch() < self.how.until_epoch {
            state.push(starts as u8);
            let epoch = state.len() as u64;
            let stats = match self.setup.piece_rows {
                None => {
                    self.compute(&mut ckpt, rank, &state)?;
                    self.cut(&state);
                    ckpt.checkpoint(&self.claims(rank, epoch), &state)?
                }
                Some(piece_rows) => self.take_in_phases(&mut ckpt, rank, &state, piece_rows)?,
            };
            assert_eq!(stats.epoch, epoch);
            let mut book = self.book.lock().unwrap();
            book.committed.insert(rank, (epoch, state.clone()));
            book.stamped.insert(rank, epoch);
            book.updating.remove(&rank);
        }
        self.check(&mut ckpt, rank, &state);
        if self.setup.piece_rows.is_some() {
            // The job ends in the middle of its work.
            self.work_on(&mut ckpt, rank, state.len() as u64 + 1)?;
        }
        let ended = Ended { epoch: ckpt.epoch(), state, lost: found.lost, ..Ended::default() };
        if !self.how.finish {
            return Ok(ended);
        }
        // Only the result of rank 0 counts.
        let done = ckpt.finish(if rank == 0 { &result } else { &[7] })?;
        Ok(Ended { result: self.report(&comm, done, &result)?.result, ..ended })
    }

    /// Reports a result on process 0, and removes the rest of the run.
    fn report(
        &self,
        comm: &Comm,
        done: FinishedRun,
        result: &[u8],
    ) -> Result<Ended, CheckpointError> {
        assert_eq!(done.result(), result);
        self.point.step(&"report")?;
        if comm.rank() == 0 {
            let mut book = self.book.lock().unwrap();
            // Whichever rank is lost after this, the others have the same result.
            let bearing: BTreeSet<usize> = book.home.keys().copied().collect();
            assert_eq!(book.marked.keys().copied().collect::<BTreeSet<_>>(), bearing);
            let reported = book.reported.get_or_insert_with(|| result.to_vec());
            let is_same = reported == result;
            assert!(is_same || book.was_split, "another result was reported before");
            drop(book);
            self.point.step(&"reported")?;
        }
        done.clear()?;
        Ok(Ended { result: Some(result.to_vec()), ..Ended::default() })
    }

    /// Updates the book right after the last record that `open` writes.
    fn note_open(
        &self,
        rank: usize,
        epoch: u64,
        lost: &[usize],
        groups: &[Vec<usize>],
        predicted: &Prediction,
    ) {
        let mut book = self.book.lock().unwrap();
        let starts = book.starts;
        book.followed.insert(self.node, starts);
        let state = match predicted {
            Prediction::Fresh => {
                assert_eq!(epoch, 0);
                book.lost.remove(&rank);
                book.home.insert(rank, self.node);
                book.committed.insert(rank, (0, Vec::new()));
                book.stamped.insert(rank, 0);
                book.updating.remove(&rank);
                book.groups = groups.to_vec();
                Vec::new()
            }
            Prediction::Recovered(_, state) => {
                assert_eq!(book.groups, groups, "groups outlive restarts");
                if lost.contains(&rank) {
                    // Torn copies of `single` are lost without a death.
                    book.lost.insert(rank);
                    book.committed.remove(&rank);
                } else {
                    assert_eq!(book.home[&rank], self.node, "a rank is where its data is");
                    book.committed.insert(rank, (epoch, state.clone()));
                }
                book.updating.remove(&rank);
                state.clone()
            }
            Prediction::Unrecoverable(..) | Prediction::Finished(_) => {
                panic!("opened, and should not have been: {predicted:?}")
            }
        };
        *self.known.lock().unwrap() = Some((rank, state));
    }

    /// Writes A piece by piece, with steps at which the rank may be killed.
    fn compute(
        &self,
        ckpt: &mut Checkpointer,
        rank: usize,
        history: &[u8],
    ) -> Result<(), CheckpointError> {
        for region in 0..self.setup.shapes.len() {
            let after = self.setup.contents(rank, region, history);
            let half = after.len() / 2;
            self.point.step(&"compute")?;
            ckpt.region(region)[..half].copy_from_slice(&after[..half]);
            self.point.step(&"compute")?;
            ckpt.region(region)[half..].copy_from_slice(&after[half..]);
        }
        Ok(())
    }

    fn cut(&self, state: &[u8]) {
        self.known.lock().unwrap().as_mut().unwrap().1 = state.to_vec();
    }

    fn claims(&self, rank: usize, epoch: u64) -> Vec<Active> {
        let claim = |region| {
            let active = self.setup.active(epoch, rank, region);
            Active { row: active.row + self.setup.lie_rows, ..active }
        };
        (0..self.setup.shapes.len()).map(claim).collect()
    }

    /// Computes for the next epoch, and encodes what is final at the same time.
    fn take_in_phases(
        &self,
        ckpt: &mut Checkpointer,
        rank: usize,
        history: &[u8],
        piece_rows: usize,
    ) -> Result<Stats, CheckpointError> {
        let epoch = history.len() as u64;
        self.work_on(ckpt, rank, epoch)?;
        let stages: Vec<_> = (0..self.setup.shapes.len())
            .map(|region| self.setup.corners(epoch, rank, region))
            .collect();
        ckpt.begin_in_stages(&self.claims(rank, epoch), &stages)?;
        for stage in 0..self.setup.stages {
            for (region, corners) in stages.iter().enumerate() {
                let RegionShape { rows, pitch_bytes } = self.setup.shapes[region];
                let truth = self.setup.contents(rank, region, history);
                let corner = corners[stage];
                self.point.step(&"compute")?;
                for row in 0..rows {
                    let end = if row < corner.row { pitch_bytes } else { corner.byte };
                    let bytes = row * pitch_bytes..row * pitch_bytes + end;
                    ckpt.region(region)[bytes.clone()].copy_from_slice(&truth[bytes]);
                }
                // SAFETY: not changed again before `complete` below.
                unsafe { ckpt.ready(region, corner) };
                ckpt.poll()?;
            }
        }
        for (region, &RegionShape { rows, pitch_bytes }) in self.setup.shapes.iter().enumerate() {
            let truth = self.setup.contents(rank, region, history);
            let inside = stages[region].last().copied().unwrap_or(Active::ALL);
            for first in (0..rows).step_by(piece_rows) {
                let end = (first + piece_rows).min(rows);
                self.point.step(&"compute")?;
                for row in first.max(inside.row)..end {
                    let bytes = row * pitch_bytes + inside.byte..(row + 1) * pitch_bytes;
                    ckpt.region(region)[bytes.clone()].copy_from_slice(&truth[bytes]);
                }
                // SAFETY: not changed again before `complete` below.
                unsafe { ckpt.ready(region, Active { row: end, byte: 0 }) };
                ckpt.poll()?;
            }
        }
        self.cut(history);
        ckpt.complete(history)
    }

    /// Columns, single rows, and the first rows: the contents then match no epoch.
    fn work_on(
        &self,
        ckpt: &mut Checkpointer,
        rank: usize,
        epoch: u64,
    ) -> Result<(), CheckpointError> {
        for (region, &RegionShape { rows, pitch_bytes }) in self.setup.shapes.iter().enumerate() {
            let Active { row, byte } = self.setup.active(epoch, rank, region);
            let (row, byte) = (row.min(rows), byte.min(pitch_bytes));
            let middle = row + (rows - row) / 2;
            let column = (byte + (pitch_bytes - byte) / 2) / 8 * 8;
            let parts = [
                (row..rows, column.max(byte)..(column + 8).min(pitch_bytes)),
                (rows.max(row + 1) - 1..rows, byte..pitch_bytes),
                (row..middle, byte..pitch_bytes),
            ];
            for (rows, bytes) in parts {
                self.point.step(&"work")?;
                let a = ckpt.region(region);
                for row in rows {
                    let at = row * pitch_bytes;
                    a[at + bytes.start..at + bytes.end]
                        .iter_mut()
                        .for_each(|byte| *byte = byte.wrapping_add(0x35));
                }
            }
        }
        Ok(())
    }

    fn check(&self, ckpt: &mut Checkpointer, rank: usize, history: &[u8]) {
        for (region, bytes) in ckpt.regions().into_iter().enumerate() {
            let truth = self.setup.contents(rank, region, history);
            assert!(*bytes == truth[..], "rank {rank} region {region} is wrong");
        }
    }
}

/// A result that differs from start to start, as times do.
fn result_of(starts: u64, epoch: u64) -> Vec<u8> {
    vec![b'R', starts as u8, epoch as u8, 1, 2, 3]
}

fn check_refusal(refusal: &Refusal, predicted: &Prediction) {
    let (Refusal::Unrecoverable { epoch, lost, .. }, Prediction::Unrecoverable(at, broken)) =
        (refusal, predicted)
    else {
        panic!("refused with `{refusal}`, foretold {predicted:?}");
    };
    assert_eq!(epoch, at);
    let named: BTreeSet<usize> = lost.iter().flat_map(|group| &group.ranks).copied().collect();
    assert_eq!(named, *broken);
}

/// Checks that an undisturbed start had the predicted outcome, the same on all ranks.
pub fn check_undisturbed(ran: &Ran, predicted: &Prediction) {
    let refused = matches!(predicted, Prediction::Unrecoverable(..));
    let mut first = None;
    for result in &ran.results {
        let ended = result.as_ref().unwrap_or_else(|e| panic!("undisturbed, and yet: {e}"));
        assert_eq!(ended.refused, refused);
        if let Prediction::Finished(result) = predicted {
            assert_eq!(ended.result.as_ref(), Some(result), "another result than before");
        }
        let first = first.get_or_insert((ended.epoch, &ended.state, &ended.result));
        assert_eq!((ended.epoch, &ended.state, &ended.result), *first);
    }
}
