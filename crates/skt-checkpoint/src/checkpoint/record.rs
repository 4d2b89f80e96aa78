//! The record of a segment: how far it is, and whose decisions it has followed.
//!
//! A record changes by these transitions alone. Each asserts what the record stands for
//! before it, and says what it stands for from then on; in force it is once it is written.
//!
//! ```text
//! new ── join ── confirm ──┬── commit ── stamp        self, double: for each epoch
//!                          ├── begin_update ── commit ── stamp              single
//!                          ├── rebuilt                         a replacement, once
//!                          └── finish                   the end: no other follows
//! ```

use serde::{Deserialize, Serialize};

use super::codec::checksum;
use super::methods::Method;

/// Starts that a segment remembers to have joined: more come only while starts die between
/// joining and following.
const JOINED_MAX: usize = 16;
/// Superseded starts that a segment remembers; of more, the latest.
const LEFT_MAX: usize = 16;
const RECORD_WORDS: usize = 9 + 2 * JOINED_MAX + 2 * LEFT_MAX;
/// Bits of a record's word of flags.
const HOLLOW: u64 = 1;
const FINISHED: u64 = 2;
const ROTTEN_IMAGES: u64 = 4;

/// One start of a job: a number that rises from start to start, and a random
/// one, so that two starts that do not know of each other are told apart.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct StartId {
    /// Rises from start to start.
    pub number: u64,
    /// Random.
    pub nonce: u64,
}

/// Where a rank's data of an epoch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// In a copy, with its parities: (B, C).
    Copy,
    /// In the workspace, with the parities that were built from it: (A, D).
    Workspace,
    /// Nowhere: the rank is lost.
    Nothing,
}

/// How far a segment is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// Counts the records; the higher one is in force.
    sequence: u64,
    /// The start of the job whose decisions this segment has followed last.
    lineage: StartId,
    /// The starts of the job since then that have read this segment, in their order;
    /// of very many the latest.
    joined: Vec<StartId>,
    /// The starts that out-of-reach segments of this run may name as their lineage:
    /// those that were superseded when some rank's segment was not to be found.
    left: Vec<StartId>,
    /// Newest epoch whose commit this rank has seen, COMMIT(e).
    commit: u64,
    /// Epoch that the settled copy and parities are known to hold.
    stamp: u64,
    /// Epoch that is being written over the settled copy (method `single`).
    updating: u64,
    /// Set while the segment stands for a lost one and is not rebuilt yet.
    hollow: bool,
    /// Set when the run has come to its end: there is nothing to go on with.
    finished: bool,
    /// Set where the run has gone on from images of which some had rotted, until newer ones
    /// are complete.
    rotten_images: bool,
    /// The application's state at epoch `commit`; its result when `finished`.
    state: Vec<u8>,
}

/// Transitions.
impl Record {
    /// Of a segment that was just created. It stands for nothing: a rank whose data is
    /// lost, or has not come to be.
    pub fn of_new_segment() -> Self {
        Self { hollow: true, ..Self::default() }
    }

    /// Takes part in this start, which has looked at the segment, without following it
    /// yet. The data stands for what it stood for before. `left`: the starts that
    /// segments out of reach may name.
    ///
    /// # Panics
    /// When the run has ended, or the start is not later than all that are known here.
    pub fn join(&mut self, start: StartId, left: &[StartId]) {
        assert!(!self.finished, "no start goes on with a run that has ended");
        let known = self.joined.iter().chain([&self.lineage]).map(|known| known.number).max();
        assert!(known < Some(start.number), "{start:?} is later than {known:?}");
        self.joined.push(start);
        let surplus = self.joined.len().saturating_sub(JOINED_MAX);
        self.joined.drain(..surplus);
        self.left = left[left.len().saturating_sub(LEFT_MAX)..].to_vec();
    }

    /// All have joined this start: its decision is followed from here on, to go on from
    /// `epoch` with `state`. A rank with data has COMMIT(epoch) now, if it lacked it, so
    /// that whoever else is lost, it is known where its data is; a new segment is a true
    /// one where the run begins, and hollow still where its data has to be rebuilt here.
    ///
    /// # Panics
    /// When it has not joined the start last, or has data of other epochs than these.
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

    /// Method `single`: the only copy is torn from here on, until COMMIT(epoch).
    ///
    /// # Panics
    /// When the epoch before is not settled.
    pub fn begin_update(&mut self, epoch: u64) {
        self.assert_settled();
        self.assert_follows();
        assert_eq!(epoch, self.stamp + 1);
        self.updating = epoch;
    }

    /// COMMIT(epoch): the parities of all ranks of the job are complete. The data is in
    /// A and D until it is stamped.
    ///
    /// # Panics
    /// When the epoch before is not settled, but for an update that has begun.
    pub fn commit(&mut self, epoch: u64, state: Vec<u8>) {
        self.assert_follows();
        assert!(!self.hollow && !self.finished && self.commit == self.stamp);
        assert_eq!(epoch, self.commit + 1);
        assert!(self.updating == 0 || self.updating == epoch);
        (self.commit, self.state) = (epoch, state);
    }

    /// A copy and its parities, (B, C), hold the epoch.
    ///
    /// # Panics
    /// When it is not committed, or stamped already.
    pub fn stamp(&mut self, epoch: u64) {
        self.assert_follows();
        assert!(!self.hollow && !self.finished);
        assert_eq!((self.commit, self.stamp + 1), (epoch, epoch), "committed, not stamped");
        (self.stamp, self.updating) = (epoch, 0);
    }

    /// A replacement has all that its rank had at the epoch, in (B, C): a loss no more.
    ///
    /// # Panics
    /// When it is none.
    pub fn rebuilt(&mut self, epoch: u64, state: &[u8]) {
        self.assert_follows();
        assert!(self.hollow && epoch > 0, "a replacement of a lost segment");
        self.assert_blank();
        (self.commit, self.stamp, self.hollow) = (epoch, epoch, false);
        self.state = state.to_vec();
    }

    /// Of the images that the run goes on from some have rotted: a later start is to know it, also
    /// where it does not read them.
    pub fn note_rotten_images(&mut self) {
        self.rotten_images = true;
    }

    /// Newer images are complete.
    pub fn forget_rotten_images(&mut self) {
        self.rotten_images = false;
    }

    /// The run has come to its end: the record stands for its result alone.
    ///
    /// # Panics
    /// When the last epoch is not settled, or the run has ended before.
    pub fn finish(&mut self, result: &[u8]) {
        self.assert_settled();
        self.finished = true;
        self.state = result.to_vec();
    }

    /// Is to be written, behind the one in force. Returns its number.
    pub fn advance(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Asserts that the newest epoch is in a copy with its parities, whole, and that
    /// the run goes on.
    pub fn assert_settled(&self) {
        assert!(!self.hollow && !self.finished, "a rank with data, of a run that goes on");
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

/// What it says.
impl Record {
    /// Where the data of `epoch` is, of those epochs that a restart may come to: no
    /// later than the newest commit of the job, and no rank is two commits behind.
    pub fn holds(&self, method: Method, epoch: u64) -> Holds {
        let is_whole = match method {
            // From (B, C) when stamped, else from (A, D): complete since the
            // barrier before anybody's commit, and untouched until the stamp.
            Method::SelfCheckpoint => {
                assert!(self.commit == self.stamp || self.commit == self.stamp + 1);
                self.stamp == epoch || self.stamp + 1 == epoch
            }
            // The other copy is complete since that barrier.
            Method::Double => self.commit == epoch || self.commit + 1 == epoch,
            // Wherever it is, it can be brought to where all others are.
            Method::Abft => self.commit == epoch || self.commit + 1 == epoch,
            // Complete at `epoch` when somebody has seen the end of the update;
            // half-written when nobody has.
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

    /// Its number; the highest is in force.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The start that it has followed last.
    pub fn lineage(&self) -> StartId {
        self.lineage
    }

    /// The starts that it has joined since, rising.
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

    /// Newest epoch that is known to be in a copy.
    pub fn stamped(&self) -> u64 {
        self.stamp
    }

    /// Epoch that is being written over the only copy, 0 for none (method `single`).
    pub fn updating(&self) -> u64 {
        self.updating
    }

    /// Whether it stands for a lost rank that is not rebuilt yet.
    pub fn is_hollow(&self) -> bool {
        self.hollow
    }

    /// Whether the run has come to its end.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether some of the images that the run went on from had rotted, and no newer ones are
    /// complete.
    pub fn has_rotten_images(&self) -> bool {
        self.rotten_images
    }

    /// The application's state of the epoch committed; its result at the end.
    pub fn state(&self) -> &[u8] {
        &self.state
    }
}

/// As it stands in a segment.
impl Record {
    /// All but the state.
    pub(super) fn without_state(&self) -> Self {
        Self { joined: self.joined.clone(), left: self.left.clone(), state: Vec::new(), ..*self }
    }

    /// Bytes of a record whose state has so many.
    pub(super) fn bytes_with(state_bytes: usize) -> usize {
        8 * RECORD_WORDS + state_bytes
    }

    /// With a checksum, which comes last: so a record is in force with its last bytes,
    /// not before.
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags =
            [(self.hollow, HOLLOW), (self.finished, FINISHED), (self.rotten_images, ROTTEN_IMAGES)];
        let mut words = vec![
            self.sequence,
            self.lineage.number,
            self.lineage.nonce,
            self.commit,
            self.stamp,
            self.updating,
            flags.map(|(is_set, bit)| u64::from(is_set) * bit).iter().sum(),
            self.state.len() as u64,
        ];
        for (starts, most) in [(&self.joined, JOINED_MAX), (&self.left, LEFT_MAX)] {
            assert!(starts.len() <= most, "{} starts", starts.len());
            let end = words.len() + 2 * most;
            words.extend(starts.iter().flat_map(|start| [start.number, start.nonce]));
            words.resize(end, 0);
        }
        words.resize(RECORD_WORDS - 1, 0);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(&self.state);
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// Reads one copy; `None` when it is blank, torn or damaged.
    pub(super) fn decode(copy: &[u8]) -> Option<Self> {
        let mut words = [0u64; RECORD_WORDS - 1];
        for (word, bytes) in words.iter_mut().zip(copy.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let fixed_bytes = 8 * words.len();
        let end = fixed_bytes.checked_add(usize::try_from(words[7]).ok()?)?;
        let (body, rest) = (copy.get(..end)?, &copy[end..]);
        if checksum(body) != u64::from_le_bytes(*rest.first_chunk()?) {
            return None;
        }
        let starts = |words: &[u64]| {
            let pairs = words.chunks_exact(2);
            let starts = pairs.map(|pair| StartId { number: pair[0], nonce: pair[1] });
            starts.filter(|start| *start != StartId::default()).collect()
        };
        let (joined, left) = words[8..].split_at(2 * JOINED_MAX);
        Some(Self {
            sequence: words[0],
            lineage: StartId { number: words[1], nonce: words[2] },
            joined: starts(joined),
            left: starts(left),
            commit: words[3],
            stamp: words[4],
            updating: words[5],
            hollow: words[6] & HOLLOW != 0,
            finished: words[6] & FINISHED != 0,
            rotten_images: words[6] & ROTTEN_IMAGES != 0,
            state: body[fixed_bytes..].to_vec(),
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

    /// Of a run that has just begun.
    fn begun(method: Method) -> Record {
        let mut record = Record::of_new_segment();
        record.join(start(1), &[]);
        record.confirm(start(1), method, 0, &[]);
        record
    }

    /// A rank with epochs up to this one.
    fn settled(epoch: u64) -> Record {
        let mut record = begun(SELF);
        for epoch in 1..=epoch {
            record.commit(epoch, vec![epoch as u8]);
            record.stamp(epoch);
        }
        record
    }

    #[test]
    fn of_very_many_starts_the_latest_are_remembered() {
        let mut record = Record::of_new_segment();
        let starts: Vec<StartId> = (1..40).map(start).collect();
        starts.iter().for_each(|&start| record.join(start, &starts));
        assert_eq!(record.joined(), &starts[39 - JOINED_MAX..]);
        assert_eq!(record.left(), &starts[39 - LEFT_MAX..]);
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        record.confirm(starts[38], SELF, 0, &[]);
        assert_eq!((record.lineage(), record.joined()), (starts[38], &[][..]));
    }

    #[test]
    fn a_record_stands_for_what_its_last_transition_says() {
        let mut record = settled(4);
        assert_eq!([4, 5].map(|e| record.holds(SELF, e)), [Holds::Copy, Holds::Workspace]);
        record.commit(5, vec![5]);
        assert_eq!(record.holds(SELF, 5), Holds::Workspace);
        record.stamp(5);
        assert_eq!(record.holds(SELF, 5), Holds::Copy);
        // It has not seen the commit of the others: the start tells it.
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
    fn the_only_copy_is_torn_while_it_is_updated() {
        let mut record = settled(4);
        assert_eq!(record.holds(Method::Single, 4), Holds::Copy);
        record.begin_update(5);
        assert_eq!(record.holds(Method::Single, 4), Holds::Nothing);
        // Somebody has seen the end of the update.
        assert_eq!(record.holds(Method::Single, 5), Holds::Copy);
        record.commit(5, vec![]);
        record.stamp(5);
        assert_eq!((record.updating(), record.holds(Method::Single, 5)), (0, Holds::Copy));
    }

    #[test]
    fn a_replacement_stands_for_nothing_until_it_is_rebuilt() {
        let mut record = Record::of_new_segment();
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

    /// Whatever becomes of the segment, until newer images are complete.
    #[test]
    fn rotten_images_are_noted_until_they_are_forgotten() {
        let mut record = Record::of_new_segment();
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
    fn no_transition_but_from_the_state_before_it() {
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
        refuse("COMMIT behind the end", finished(), &|r| r.commit(5, vec![]));
        refuse("a stamp without COMMIT", settled(4), &|r| r.stamp(5));
        refuse("a stamp of another epoch", committed(), &|r| r.stamp(6));
        refuse("an update of a copy not settled", committed(), &|r| r.begin_update(6));
        refuse("an update within another", updating(), &|r| r.begin_update(5));
        refuse("a rank with data rebuilt", settled(4), &|r| r.rebuilt(4, &[]));
        refuse("a new segment committed", Record::of_new_segment(), &|r| r.commit(1, vec![]));
        refuse("the end before the stamp", committed(), &|r| r.finish(b""));
        refuse("the end within an update", updating(), &|r| r.finish(b""));
        refuse("the end of a lost rank", Record::of_new_segment(), &|r| r.finish(b""));
        refuse("the end twice", finished(), &|r| r.finish(b""));
    }
}
