//! The record of a segment: which epoch its data holds, and whose decisions it follows.
//!
//! A record changes only by the transitions below. Each asserts the state before it and documents
//! the state after it. A changed record is in force once it is written (`Vault::store_record`). A
//! *torn* record is one that a death left half written: `Record::decode` recognizes it by the
//! checksum that comes last.
//!
//! ```text
//! new ── join ── confirm ──┬── commit ── stamp        self, double: for each epoch
//!                          ├── begin_update ── commit ── stamp              single
//!                          ├── rebuilt                         a replacement, once
//!                          └── finish                   the end: no other follows
//! ```
//! Invariants, which transitions and queries assert where they rely on them:
//!
//! 1. Record n + 1 replaces record n (`sequence`). The newest whole record is in force, and a slot
//!    without a whole copy makes the segment useless (header.rs).
//! 2. `commit` is `stamp` or `stamp + 1`. Only method `self` writes records with `stamp + 1`: the
//!    data is then in A and D, else in B and C. Ranks differ by at most one commit.
//! 3. `updating` is 0 or `stamp + 1`, and only method `single` sets it.
//! 4. A hollow record has `commit = stamp = updating = 0` and is not finished.
//! 5. Between joining a start and following it (`joined` is not empty) neither the data nor its
//!    description in the record changes.
//! 6. `joined` rises, and all of it is later than `lineage`.
//! 7. A finished record is the last: no start joins it, and no transition of the data follows.
//! 8. `state` belongs to epoch `commit`; once finished it is the result.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use super::methods::Method;
use skt_store::codec::checksum;

/// It needs more than a few only if start after start dies between joining and following.
const JOINED_MAX: usize = 16;
/// Superseded starts that a segment remembers: the latest, if there are more.
const LEFT_MAX: usize = 16;
/// Bytes of a record besides its state: the words, and the checksum after the state.
const RECORD_BYTES: usize = size_of::<Words>() + 8;
/// Bits of [`Words::flags`].
const HOLLOW: u64 = 1;
const FINISHED: u64 = 2;
const ROTTEN_IMAGES: u64 = 4;

/// Identifies one start of a job: a number that rises from start to start, and a random number that
/// distinguishes two starts that do not know of each other.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Pod,
    Zeroable,
)]
#[repr(C)]
pub struct StartId {
    /// Higher than that of all starts known to this one.
    pub number: u64,
    /// A random number.
    pub nonce: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// In a copy, with its parities: (B, C).
    Copy,
    /// In the workspace, with the parities that were built from it: (A, D).
    Workspace,
    /// Nowhere: the rank counts as lost.
    Nothing,
}

/// The record of a segment. Each field names the fault that it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// Number of this record. A death in the middle of a write leaves the record before it whole,
    /// in the other slot; the one with the higher number is in force.
    sequence: u64,
    /// The start whose decision this segment followed last. A segment on a node that was out of
    /// reach missed later decisions, and may hold a plausible epoch of an abandoned history: its
    /// lineage shows that it is stale.
    lineage: StartId,
    /// The starts that have read this segment since then, in their order; the latest if there are
    /// very many. A start that dies before all segments follow it leaves some with its lineage and
    /// some with the lineage before. The latter have joined that start, so they are not stale.
    joined: Vec<StartId>,
    /// The starts that were superseded when some rank's segment was not found: segments out of
    /// reach may name them as their lineage. When the lost node returns after the run has ended,
    /// its segment is thus recognized as a leftover, not as a run to resume.
    left: Vec<StartId>,
    /// Newest epoch whose commit this rank has seen, COMMIT(e). A death between two ranks' commits
    /// leaves both epochs in the job: the newest commit of any rank decides, since all parities
    /// were complete before it.
    commit: u64,
    /// Epoch that the settled copy and its parities hold. A death during the flush leaves the copy
    /// incomplete: while `stamp < commit`, recovery reads A and D instead.
    stamp: u64,
    /// Epoch that is being written over the only copy (method `single`), else 0. A death during the
    /// write leaves that copy incomplete, so the rank counts as lost.
    updating: u64,
    /// Set while the segment replaces a lost one and is not rebuilt yet. A death during the
    /// rebuilding leaves a segment with part of its data: it counts as lost again.
    hollow: bool,
    /// Set when the run has ended. A death between the end and the report must not lead to a
    /// restart from a checkpoint: the next start reports `state` instead.
    finished: bool,
    /// Set while the run depends on images of which some have rotted, until newer ones are
    /// complete. A start that resumes from memory does not read the images, and would not know that
    /// they survive fewer losses.
    rotten_images: bool,
    /// The application's state at epoch `commit`, or its result when `finished`. The process that
    /// knew it may be dead; every rank keeps a copy.
    state: Vec<u8>,
}

/// The words with which the bytes of a record begin in a segment, in little-endian order. The state
/// follows, then a checksum of all.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Words {
    sequence: u64,
    lineage: StartId,
    commit: u64,
    stamp: u64,
    updating: u64,
    flags: u64,
    state_bytes: u64,
    /// The starts of `Record::joined`; blank after the last one.
    joined: [StartId; JOINED_MAX],
    /// The starts of `Record::left`; blank after the last one.
    left: [StartId; LEFT_MAX],
}

/// The size is fixed, because segments outlive the program that wrote them.
const _: () = assert!(size_of::<Words>() == 8 * (8 + 2 * JOINED_MAX + 2 * LEFT_MAX));

impl Words {
    fn to_bytes(self) -> Vec<u8> {
        let words: &[u64] = bytemuck::cast_slice(std::slice::from_ref(&self));
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The words at the beginning of `bytes`; blank where these end.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut all = Self::zeroed();
        let words: &mut [u64] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut all));
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        all
    }
}

/// A list of starts in a record, blank after the last one.
fn listed<const MOST: usize>(starts: &[StartId]) -> [StartId; MOST] {
    assert!(starts.len() <= MOST, "{} starts", starts.len());
    let mut list = [StartId::default(); MOST];
    list[..starts.len()].copy_from_slice(starts);
    list
}

/// Transitions.
impl Record {
    /// The record of a segment that was just created. It holds no data: its rank is lost, or the
    /// run has not begun.
    pub fn for_new_segment() -> Self {
        Self { hollow: true, ..Self::default() }
    }

    /// Joins `start`, later than all starts known here, which has read the segment, without
    /// following it yet. The data stays what it was. `left` lists the starts that segments out of
    /// reach may name.
    pub fn join(&mut self, start: StartId, left: &[StartId]) {
        assert!(!self.finished, "no start continues a run that has ended");
        let known = self.joined.iter().chain([&self.lineage]).map(|known| known.number).max();
        assert!(known < Some(start.number), "{start:?} is later than {known:?}");
        self.joined.push(start);
        let surplus = self.joined.len().saturating_sub(JOINED_MAX);
        self.joined.drain(..surplus);
        self.left = left[left.len().saturating_sub(LEFT_MAX)..].to_vec();
    }

    /// Follows the decision of `start`, which all have joined last, to resume from `epoch` with
    /// `state`. A rank with data gets COMMIT(epoch) if it lacked it, so that its record names where
    /// its data is, whoever else is lost. A new segment becomes valid if the run begins here;
    /// otherwise it stays hollow until its data is rebuilt.
    pub fn confirm(&mut self, start: StartId, method: Method, epoch: u64, state: &[u8]) {
        assert_eq!(self.joined.last(), Some(&start), "joined before it is followed");
        if self.hollow {
            self.assert_blank();
            self.hollow = epoch > 0;
        } else {
            assert!(epoch > 0, "a run begins with new segments");
            assert_ne!(self.holds(method, epoch), Holds::Nothing, "it has data of the epoch");
            self.commit = epoch;
            self.state = state.to_vec();
            if self.holds(method, epoch) == Holds::Copy {
                (self.stamp, self.updating) = (epoch, 0);
            }
        }
        self.lineage = start;
        self.joined.clear();
    }

    /// Method `single`: marks the only copy as incomplete until COMMIT(epoch).
    pub(crate) fn begin_update(&mut self, epoch: u64) {
        self.assert_settled();
        self.assert_follows();
        assert_eq!(epoch, self.stamp + 1);
        self.updating = epoch;
    }

    /// COMMIT(epoch): the parities of all ranks of the job are complete. The data is in A and D
    /// until the epoch is stamped. The epoch before is settled, or an update to `epoch` has begun.
    pub fn commit(&mut self, epoch: u64, state: Vec<u8>) {
        self.assert_follows();
        assert!(!self.hollow && !self.finished && self.commit == self.stamp);
        assert_eq!(epoch, self.commit + 1);
        assert!(self.updating == 0 || self.updating == epoch);
        (self.commit, self.state) = (epoch, state);
    }

    /// Stamps the epoch, which is committed: a copy and its parities, (B, C), hold it.
    pub fn stamp(&mut self, epoch: u64) {
        self.assert_follows();
        assert!(!self.hollow && !self.finished);
        assert_eq!((self.commit, self.stamp + 1), (epoch, epoch), "committed, not stamped");
        (self.stamp, self.updating) = (epoch, 0);
    }

    /// Ends the rebuilding of a replacement: (B, C) hold all that its rank had at the epoch.
    pub fn rebuilt(&mut self, epoch: u64, state: &[u8]) {
        self.assert_follows();
        assert!(self.hollow && epoch > 0, "a replacement of a lost segment");
        self.assert_blank();
        (self.commit, self.stamp, self.hollow) = (epoch, epoch, false);
        self.state = state.to_vec();
    }

    /// Notes that some of the images that the run depends on have rotted, for later starts that do
    /// not read them.
    pub(crate) fn note_rotten_images(&mut self) {
        self.rotten_images = true;
    }

    /// Drops the note of rotten images: newer images are complete.
    pub(crate) fn forget_rotten_images(&mut self) {
        self.rotten_images = false;
    }

    /// Ends the run, whose last epoch is settled: from now on the record holds its result alone.
    pub fn finish(&mut self, result: &[u8]) {
        self.assert_settled();
        self.finished = true;
        self.state = result.to_vec();
    }

    /// Takes the next sequence number, before the record is written, and returns it.
    pub fn advance(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The newest epoch is complete in a copy with its parities, and the run has not ended.
    pub(crate) fn assert_settled(&self) {
        assert!(!self.hollow && !self.finished, "a rank with data, of a run that continues");
        assert_eq!((self.commit, self.updating), (self.stamp, 0), "the last epoch is settled");
    }

    fn assert_follows(&self) {
        assert!(self.joined.is_empty(), "it follows the start that it has joined");
    }

    fn assert_blank(&self) {
        assert_eq!((self.commit, self.stamp, self.updating), (0, 0, 0), "a new segment");
        assert!(!self.finished);
    }
}

impl Record {
    /// Where the data of `epoch` is stored. `epoch` is one that a restart may choose: no later than
    /// the newest commit of the job, from which each rank's commit differs by at most one.
    pub(crate) fn holds(&self, method: Method, epoch: u64) -> Holds {
        let is_whole = match method {
            // The epoch is in (B, C) once it is stamped, before that in (A, D), which are complete
            // since the barrier before the first commit, and do not change until the stamp.
            Method::SelfCheckpoint => {
                assert!(self.commit == self.stamp || self.commit == self.stamp + 1);
                self.stamp == epoch || self.stamp + 1 == epoch
            }
            // The other copy is complete since the barrier before the first commit.
            Method::Double => self.commit == epoch || self.commit + 1 == epoch,
            // Whatever state the segment is in, the application can bring it to the state of all
            // others.
            Method::Abft => self.commit == epoch || self.commit + 1 == epoch,
            // A copy that is being updated to `epoch` is complete: a restart chooses an epoch only
            // if some rank has committed it, and all ranks complete their copies before. A copy
            // that is being updated to a later epoch may be half written.
            Method::Single => {
                (self.stamp == epoch && self.updating == 0)
                    || (self.stamp + 1 == epoch && self.updating == epoch)
            }
            Method::None => false,
        };
        match (is_whole && !self.hollow, method.flushes() && self.stamp < epoch) {
            (false, _) => Holds::Nothing,
            (true, true) => Holds::Workspace,
            (true, false) => Holds::Copy,
        }
    }

    /// The record's sequence number; the highest is in force.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The start whose decision it followed last.
    pub fn lineage(&self) -> StartId {
        self.lineage
    }

    /// The starts that it has joined since, in rising order.
    pub fn joined(&self) -> &[StartId] {
        &self.joined
    }

    /// The starts that segments out of reach may name as their lineage.
    pub fn left(&self) -> &[StartId] {
        &self.left
    }

    /// Newest epoch whose COMMIT it has.
    pub fn committed(&self) -> u64 {
        self.commit
    }

    /// Newest epoch that a copy is known to hold.
    pub fn stamped(&self) -> u64 {
        self.stamp
    }

    /// Epoch that is being written over the only copy, else 0 (method `single`).
    pub fn updating(&self) -> u64 {
        self.updating
    }

    /// Whether it replaces a lost segment and is not rebuilt yet.
    pub fn is_hollow(&self) -> bool {
        self.hollow
    }

    /// Whether the run has ended.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn has_rotten_images(&self) -> bool {
        self.rotten_images
    }

    /// The application's state at the committed epoch; its result once the run has ended.
    pub fn state(&self) -> &[u8] {
        &self.state
    }
}

impl Record {
    pub(super) fn without_state(&self) -> Self {
        Self { joined: self.joined.clone(), left: self.left.clone(), state: Vec::new(), ..*self }
    }

    pub(super) fn bytes_with(state_bytes: usize) -> usize {
        RECORD_BYTES + state_bytes
    }

    /// A checksum comes last, so the record is in force with its last bytes, not before.
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags =
            [(self.hollow, HOLLOW), (self.finished, FINISHED), (self.rotten_images, ROTTEN_IMAGES)];
        let words = Words {
            sequence: self.sequence,
            lineage: self.lineage,
            commit: self.commit,
            stamp: self.stamp,
            updating: self.updating,
            flags: flags.map(|(is_set, bit)| u64::from(is_set) * bit).iter().sum(),
            state_bytes: self.state.len() as u64,
            joined: listed(&self.joined),
            left: listed(&self.left),
        };
        let mut bytes = words.to_bytes();
        bytes.extend(&self.state);
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// Reads one copy; `None` when it is blank, torn or damaged. Which of the copies of a segment
    /// is in force is for `decode_record` in `header.rs`.
    pub(super) fn decode(copy: &[u8]) -> Option<Self> {
        let words = Words::from_bytes(copy);
        let end = size_of::<Words>().checked_add(usize::try_from(words.state_bytes).ok()?)?;
        let (body, rest) = (copy.get(..end)?, &copy[end..]);
        if checksum(body) != u64::from_le_bytes(*rest.first_chunk()?) {
            return None;
        }
        let starts = |list: &[StartId]| {
            list.iter().copied().filter(|start| *start != StartId::default()).collect()
        };
        Some(Self {
            sequence: words.sequence,
            lineage: words.lineage,
            joined: starts(&words.joined),
            left: starts(&words.left),
            commit: words.commit,
            stamp: words.stamp,
            updating: words.updating,
            hollow: words.flags & HOLLOW != 0,
            finished: words.flags & FINISHED != 0,
            rotten_images: words.flags & ROTTEN_IMAGES != 0,
            state: body[size_of::<Words>()..].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const SELF: Method = Method::SelfCheckpoint;

    fn start(number: u64) -> StartId {
        StartId { number, nonce: 7 }
    }

    fn begun(method: Method) -> Record {
        let mut record = Record::for_new_segment();
        record.join(start(1), &[]);
        record.confirm(start(1), method, 0, &[]);
        record
    }

    /// The record of a rank with epochs 1 to `epoch`.
    fn settled(epoch: u64) -> Record {
        let mut record = begun(SELF);
        for epoch in 1..=epoch {
            record.commit(epoch, vec![epoch as u8]);
            record.stamp(epoch);
        }
        record
    }

    /// Segments outlive the program: a newer one must read and write the same bytes.
    #[test]
    fn the_bytes_of_a_record_stay_what_they_are() {
        let record = Record {
            sequence: 0x0102_0304_0506_0708,
            lineage: StartId { number: 11, nonce: 12 },
            joined: vec![StartId { number: 21, nonce: 22 }, StartId { number: 23, nonce: 24 }],
            left: vec![StartId { number: 31, nonce: 32 }],
            commit: 41,
            stamp: 42,
            updating: 43,
            hollow: true,
            finished: false,
            rotten_images: true,
            state: b"state".to_vec(),
        };
        let mut words = [0u64; 8 + 32 + 32];
        words[..8].copy_from_slice(&[0x0102_0304_0506_0708, 11, 12, 41, 42, 43, 1 + 4, 5]);
        words[8..12].copy_from_slice(&[21, 22, 23, 24]);
        words[40..42].copy_from_slice(&[31, 32]);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(b"state");
        bytes.extend(checksum(&bytes).to_le_bytes());
        assert_eq!(record.encode(), bytes);
        assert_eq!(bytes.len(), Record::bytes_with(5));
        assert_eq!(Record::decode(&bytes), Some(record));
    }

    #[test]
    fn latest_of_many_starts_are_remembered() {
        let mut record = Record::for_new_segment();
        let starts: Vec<StartId> = (1..40).map(start).collect();
        starts.iter().for_each(|&start| record.join(start, &starts));
        assert_eq!(record.joined(), &starts[39 - JOINED_MAX..]);
        assert_eq!(record.left(), &starts[39 - LEFT_MAX..]);
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        record.confirm(starts[38], SELF, 0, &[]);
        assert_eq!((record.lineage(), record.joined()), (starts[38], &[][..]));
    }

    #[test]
    fn record_state_follows_its_last_transition() {
        let mut record = settled(4);
        assert_eq!([4, 5].map(|e| record.holds(SELF, e)), [Holds::Copy, Holds::Workspace]);
        record.commit(5, vec![5]);
        assert_eq!(record.holds(SELF, 5), Holds::Workspace);
        record.stamp(5);
        assert_eq!(record.holds(SELF, 5), Holds::Copy);
        // This rank has not seen the commit of the others and gets it from the start.
        record.join(start(2), &[]);
        record.confirm(start(2), SELF, 6, &[6]);
        assert_eq!((record.committed(), record.stamped(), record.state()), (6, 5, &[6][..]));
        assert_eq!(record.holds(SELF, 6), Holds::Workspace);
        let mut double = settled(4);
        double.join(start(2), &[]);
        double.confirm(start(2), Method::Double, 5, &[5]);
        assert_eq!((double.stamped(), double.holds(Method::Double, 5)), (5, Holds::Copy));
    }

    #[test]
    fn the_only_copy_is_incomplete_while_it_is_updated() {
        let mut record = settled(4);
        assert_eq!(record.holds(Method::Single, 4), Holds::Copy);
        record.begin_update(5);
        assert_eq!(record.holds(Method::Single, 4), Holds::Nothing);
        // Some rank has seen the end of the update.
        assert_eq!(record.holds(Method::Single, 5), Holds::Copy);
        record.commit(5, vec![]);
        record.stamp(5);
        assert_eq!((record.updating(), record.holds(Method::Single, 5)), (0, Holds::Copy));
    }

    #[test]
    fn replacement_is_hollow_until_rebuilt() {
        let mut record = Record::for_new_segment();
        record.join(start(2), &[]);
        for epoch in [0, 1, 5] {
            assert_eq!(record.holds(SELF, epoch), Holds::Nothing);
        }
        record.confirm(start(2), SELF, 5, &[5]);
        assert_eq!(record.holds(SELF, 5), Holds::Nothing);
        record.rebuilt(5, &[5]);
        record.assert_settled();
        assert_eq!((record.holds(SELF, 5), record.state()), (Holds::Copy, &[5][..]));
    }

    /// The note survives all other transitions, until newer images are complete.
    #[test]
    fn rotten_images_are_noted_until_they_are_forgotten() {
        let mut record = Record::for_new_segment();
        record.join(start(2), &[]);
        record.confirm(start(2), SELF, 5, &[5]);
        record.note_rotten_images();
        record.rebuilt(5, &[5]);
        record.join(start(3), &[]);
        record.confirm(start(3), SELF, 5, &[5]);
        record.commit(6, vec![]);
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        assert!(record.has_rotten_images() && !record.is_hollow() && !record.is_finished());
        record.forget_rotten_images();
        assert!(!Record::decode(&record.encode()).expect("whole").has_rotten_images());
    }

    #[test]
    fn transitions_from_wrong_states_panic() {
        let committed = || {
            let mut record = settled(4);
            record.commit(5, vec![]);
            record
        };
        let updating = || {
            let mut record = settled(4);
            record.begin_update(5);
            record
        };
        let joined = || {
            let mut record = settled(4);
            record.join(start(2), &[]);
            record
        };
        let finished = || {
            let mut record = settled(4);
            record.finish(b"result");
            record
        };
        let refuse = |what: &str, mut record: Record, change: &dyn Fn(&mut Record)| {
            let before = record.clone();
            let changed = catch_unwind(AssertUnwindSafe(|| change(&mut record)));
            assert!(changed.is_err(), "{what} of {before:?}");
            assert_eq!(record, before, "{what}");
        };
        refuse("a start that is not later", joined(), &|r| r.join(start(2), &[]));
        refuse("a start of a run that has ended", finished(), &|r| r.join(start(3), &[]));
        refuse("another start than it has joined", joined(), &|r| {
            r.confirm(start(3), SELF, 4, &[])
        });
        refuse("a start it has not joined", settled(4), &|r| r.confirm(start(2), SELF, 4, &[]));
        refuse("an epoch it has not", joined(), &|r| r.confirm(start(2), SELF, 6, &[]));
        refuse("a beginning with data", joined(), &|r| r.confirm(start(2), SELF, 0, &[]));
        refuse("COMMIT while it only joined", joined(), &|r| r.commit(5, vec![]));
        refuse("COMMIT before the last stamp", committed(), &|r| r.commit(6, vec![]));
        refuse("COMMIT of no next epoch", settled(4), &|r| r.commit(6, vec![]));
        refuse("COMMIT of another update", updating(), &|r| r.commit(6, vec![]));
        refuse("COMMIT after the end", finished(), &|r| r.commit(5, vec![]));
        refuse("a stamp without COMMIT", settled(4), &|r| r.stamp(5));
        refuse("a stamp of another epoch", committed(), &|r| r.stamp(6));
        refuse("an update of a copy not settled", committed(), &|r| r.begin_update(6));
        refuse("an update within another", updating(), &|r| r.begin_update(5));
        refuse("a rank with data rebuilt", settled(4), &|r| r.rebuilt(4, &[]));
        refuse("a new segment committed", Record::for_new_segment(), &|r| r.commit(1, vec![]));
        refuse("the end before the stamp", committed(), &|r| r.finish(b""));
        refuse("the end within an update", updating(), &|r| r.finish(b""));
        refuse("the end of a lost rank", Record::for_new_segment(), &|r| r.finish(b""));
        refuse("the end twice", finished(), &|r| r.finish(b""));
    }
}
