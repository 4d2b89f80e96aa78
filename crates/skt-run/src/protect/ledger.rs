//! The ledger of a run: the results of its finished tests, kept on every node until the whole
//! report is written, so that a death in a later test, or between two tests, loses none of them. It
//! also has what must be known of an unfinished test before it has a checkpoint: when it began, and
//! its restarts.
//!
//! The segments of a test are removed when it is reported, as the next test needs their memory. Its
//! result stays in the ledger, one small segment on each node. Each result makes a new segment, and
//! then removes the old one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::chosen::Chosen;
use super::clock::Origin;
use super::segments::sweep_tests;
use super::{Settings, result};
use crate::error::JobError;
use crate::record::{Restart, TestRecord};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::level::folder;
use skt_checkpoint::checkpoint::record::StartId;
use skt_comm::{Comm, CommError, collect};
use skt_config::TestSpec;
use skt_host::clock::now_unix;
use skt_store::codec::checksum;
use skt_store::store::{SegmentInfo, SegmentName, Store, StoreError};

const ROLE: &str = "results.a";
/// No run writes this number of segments of a kind: one with such a number is not ours.
const NUMBERS_MAX: u64 = 1 << 48;

/// The results of the tests of a run, as JSON, by their numbers.
pub type Results = BTreeMap<usize, String>;

/// The results of finished tests, in this process and on its node.
pub struct Ledger<'a> {
    store: &'a (dyn Store + Send + Sync),
    run: String,
    /// This process's rank in the job, if it keeps its node's ledger.
    keeper: Option<usize>,
    /// The number of the newest segment.
    number: u64,
    content: Content,
    /// Whether this start began the run: it found no ledger on any node.
    is_new: bool,
}

/// The tests that had no images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoImages {
    /// Tests after this one had no images.
    after: u64,
    /// The levels at which they had none, as a checksum of their names.
    levels: u64,
}

/// The content of a segment of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    /// When the run began, in nanoseconds since 1970: a node that comes back may have results of an
    /// earlier run of that name, which was given up.
    pub(super) life: u64,
    /// The starts that unreachable segments and ledgers may name.
    pub(super) left: Vec<StartId>,
    pub(super) results: Results,
    /// The tests that had no images when a start looked.
    pub(super) no_images: Option<NoImages>,
    /// The number of notes about the beginning of tests.
    pub(super) notes: u64,
    /// The latest note about each unfinished test, as JSON, by its number.
    pub(super) begun: Results,
    /// What the run has chosen for itself, once it is noted.
    pub(super) chosen: Option<Chosen>,
}

impl<'a> Ledger<'a> {
    /// Finds what earlier starts have kept on any node, unless the run starts over (`is_afresh`),
    /// and keeps it on all nodes. The results are the same on all ranks. One process of each node
    /// `is_keeper`, and looks for them. Collective.
    pub fn open(
        world: &Comm,
        store: &'a (dyn Store + Send + Sync),
        run: &str,
        is_keeper: bool,
        is_afresh: bool,
    ) -> Result<Self, JobError> {
        let found = if is_keeper { found(store, run, ROLE)? } else { Vec::new() };
        let number = found.iter().map(|(_, number, _)| *number).max().unwrap_or(0);
        let contents: Vec<Content> =
            found.into_iter().filter_map(|(_, _, content)| content).collect();
        let own = if is_afresh { Content::default() } else { latest(&contents) };
        let mut content = newest(world, own.clone())?;
        let is_new = content.life == 0;
        if is_new {
            content.life = collect::broadcast_one(world, (1e9 * now_unix()) as u64, 0)?;
        }
        let id = content.id();
        let given_up = contents.iter().map(Content::id).filter(|other| *other != id);
        let mut left: Vec<StartId> =
            contents.iter().flat_map(|content| content.left.clone()).chain(given_up).collect();
        let has_it = own.id() == id;
        // A node without this ledger has replaced a node that may still have it.
        let mut some = [u8::from(has_it), u8::from(is_keeper && !has_it)];
        collect::all_reduce(world, &mut some, u8::max)?;
        if some == [1, 1] {
            left.push(id);
        }
        content.left = union(world, &left)?;
        let keeper = is_keeper.then(|| world.rank());
        let mut ledger = Self { store, run: run.to_owned(), keeper, number, content, is_new };
        // All ranks have looked before any segment is removed.
        if is_keeper && own.life != 0 && !has_it {
            // This node took no part in the run so far, because each start writes its ledger before
            // it has data of a test. The run has not reached the tests after its first unfinished
            // one, and would skip tests if it found data of such a test here. The node's own
            // ledger, which identifies whose data that is, is replaced last.
            sweep_tests(store, run, |test| test > ledger.done())?;
        }
        ledger.keep()?;
        // No rank looks for data of tests before all is removed.
        world.barrier()?;
        Ok(ledger)
    }

    /// Whether this start began the run: it found no ledger of the run on any node.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The results so far, by the numbers of their tests; `None` for a result that cannot be read.
    pub fn results(&self) -> impl Iterator<Item = (usize, Option<TestRecord>)> {
        self.content.results.iter().map(|(&test, json)| (test, result::try_read(json.as_bytes())))
    }

    /// The number of finished tests, from the first on without a gap.
    pub fn done(&self) -> usize {
        (0..).take_while(|test| self.content.results.contains_key(test)).count()
    }

    /// The starts whose unreachable segments are left over once this run has ended; empty if all
    /// were always reachable.
    pub(crate) fn left(&self) -> Vec<StartId> {
        let own = (!self.content.left.is_empty()).then(|| self.content.id());
        self.content.left.iter().copied().chain(own).collect()
    }

    /// Adds rank 0's results, to be read by [`result::read`], by the numbers of their tests, and
    /// the starts that unreachable segments of these may name. The inner result is whether this
    /// process could write them; earlier results stay in any case. Collective.
    pub fn add(
        &mut self,
        world: &Comm,
        results: Results,
        left: &[StartId],
    ) -> Result<Result<(), StoreError>, CommError> {
        let (left, results): (Vec<StartId>, Results) =
            collect::broadcast_json(world, &(left.to_vec(), results), 0)?;
        // All notes are about tests that are finished now: no other test has begun.
        self.content.begun.clear();
        self.content.left.extend(left);
        self.content.results.extend(results);
        Ok(self.keep())
    }

    /// Whether a start of this run has seen that no test after `test` has images at these `levels`.
    pub(crate) fn has_no_images_after(&self, test: usize, levels: &str) -> bool {
        let levels = checksum(levels.as_bytes());
        let known = self.content.no_images;
        known.is_some_and(|known| known.after <= test as u64 && known.levels == levels)
    }

    /// Writes that no test after `test` has images at these `levels` or, with `None`, that there
    /// may be some. The same on all ranks.
    pub(crate) fn note_no_images_after(
        &mut self,
        test: Option<usize>,
        levels: &str,
    ) -> Result<(), StoreError> {
        let none_after =
            |test| NoImages { after: test as u64, levels: checksum(levels.as_bytes()) };
        let is_known = match test {
            None => self.content.no_images.is_none(),
            Some(test) => self.has_no_images_after(test, levels),
        };
        if is_known {
            return Ok(());
        }
        self.content.no_images = test.map(none_after);
        self.keep()
    }

    /// The note of an earlier start about the beginning of a test, the same on all ranks.
    pub(crate) fn begun(&self, test: usize) -> Option<&str> {
        self.content.begun.get(&test).map(String::as_str)
    }

    /// Writes a note about the beginning of a test, the same on all ranks of the test.
    /// If the store refuses, the earlier note stays.
    pub(crate) fn note_begun(&mut self, test: usize, note: String) -> Result<(), StoreError> {
        self.content.notes += 1;
        self.content.begun.insert(test, note);
        self.keep()
    }

    /// Notes what this start has chosen, the same on all ranks; of an earlier start stay its rates,
    /// and its BLAS unless the user names another. Returns when all nodes have the note, before any
    /// has data of a test. Collective.
    /// If it fails, the earlier note stays.
    pub(crate) fn note_chosen(&mut self, world: &Comm, chosen: &Chosen) -> Result<(), JobError> {
        let mut chosen = chosen.clone();
        if let Some(kept) = &self.content.chosen {
            if !chosen.blas.is_asked_for {
                // This start is refused if the data of the run is of another library.
                chosen.blas = kept.blas.clone();
            }
            if !kept.rates.is_empty() {
                chosen.rates.clone_from(&kept.rates);
            }
        }
        chosen.blas.is_asked_for = false;
        if self.content.chosen.as_ref() != Some(&chosen) {
            if !self.is_new {
                // It replaces the note of an earlier start, on nodes that miss it, too.
                self.content.notes += 1;
            }
            self.content.chosen = Some(chosen);
            self.keep()?;
        }
        Ok(world.barrier()?)
    }

    /// Removes this node's segment if nothing is known of the run but that this start began it: a
    /// start that all ranks refuse leaves none. Whatever another start may need stays: results,
    /// notes about tests that have begun, and the starts of segments out of reach.
    pub(crate) fn remove_if_void(&self) -> Result<(), StoreError> {
        let Content { left, results, notes, .. } = &self.content;
        let is_void = self.is_new && left.is_empty() && results.is_empty() && *notes == 0;
        let Some(rank) = self.keeper.filter(|_| is_void) else { return Ok(()) };
        self.store.remove(&segment_name(&self.run, ROLE, self.number, rank)?)?;
        Ok(())
    }

    /// Writes a new segment, then removes the older ones.
    fn keep(&mut self) -> Result<(), StoreError> {
        let Some(rank) = self.keeper else { return Ok(()) };
        self.number += 1;
        keep(self.store, &self.run, ROLE, self.number, rank, &self.content)
    }
}

/// The newest of these contents, or an empty one.
fn latest(contents: &[Content]) -> Content {
    contents.iter().max_by_key(|content| content.age()).cloned().unwrap_or_default()
}

fn segment_name(
    run: &str,
    role: &str,
    number: u64,
    rank: usize,
) -> Result<SegmentName, StoreError> {
    SegmentName::new(run, &format!("{role}{number}"), rank as u32)
}

/// Writes segment `number` of this role, then removes the older ones.
pub(super) fn keep(
    store: &dyn Store,
    run: &str,
    role: &str,
    number: u64,
    rank: usize,
    content: &Content,
) -> Result<(), StoreError> {
    let name = segment_name(run, role, number, rank)?;
    let bytes = content.encode();
    let mut segment = store.create(&name, bytes.len())?;
    segment.as_mut_slice().copy_from_slice(&bytes);
    drop(segment);
    for info in store.list_once()?.into_iter().filter(|info| info.name.run() == run) {
        // In a folder that nodes share, other nodes' segments have the same number.
        if self::number(info.name.role(), role).is_some_and(|other| other < number) {
            store.remove(&info.name)?;
        }
    }
    Ok(())
}

/// The run that a segment is the ledger of, if it is one.
pub(super) fn life(store: &dyn Store, info: &SegmentInfo) -> Result<Option<StartId>, StoreError> {
    match number(info.name.role(), ROLE) {
        Some(_) => Ok(content(store, info)?.map(|content| content.id())),
        None => Ok(None),
    }
}

/// What the last start of the run has chosen, the same on all ranks; none if no start has left
/// anything, or the run begins from scratch. One process of each store `is_keeper`, and looks for
/// it. A start has to know it before its first call of the BLAS, when no test is opened yet.
/// Collective.
pub(crate) fn kept_choices(
    world: &Comm,
    store: &(dyn Store + Send + Sync),
    settings: &Settings,
    is_keeper: bool,
) -> Result<Option<Chosen>, JobError> {
    if !settings.is_on() || settings.resume == Resume::Never {
        return Ok(None);
    }
    if let Some(noted) = noted(world, store, &settings.run_id, is_keeper)? {
        return Ok(Some(noted));
    }
    // Where all memory is lost, the images of a level have it in their states. Those of a level
    // that fails now are found, and compared, when the test is opened.
    let states =
        settings.levels.0.iter().filter(|_| is_keeper).filter_map(|level| {
            folder::newest_state(&level.folder, &settings.run_id).ok().flatten()
        });
    let newest = states.max_by_key(|found| found.at);
    let newest = newest.and_then(|found| Some((found.at, Chosen::kept_in(&found.state)?)));
    let all = collect::all_gather_some_json(world, newest.as_ref())?.into_iter();
    let newest = all.map(|(_, found)| found).max_by(|a: &(_, Chosen), b| a.0.cmp(&b.0));
    Ok(newest.map(|(_, chosen)| chosen))
}

/// What earlier starts of `run` have chosen, by the newest ledger on any node, the same on all
/// ranks; none if none has noted it. One process of each node `is_keeper`, and looks for it.
/// Collective.
fn noted(
    world: &Comm,
    store: &dyn Store,
    run: &str,
    is_keeper: bool,
) -> Result<Option<Chosen>, JobError> {
    let found = if is_keeper { found(store, run, ROLE)? } else { Vec::new() };
    let contents = found.into_iter().filter_map(|(_, _, content)| content);
    let newest = newest(world, latest(&contents.collect::<Vec<_>>()))?;
    Ok(newest.chosen)
}

/// Gives all ranks the newest content that any rank has. Collective.
fn newest(world: &Comm, own: Content) -> Result<Content, CommError> {
    let [life, results, notes] = own.age();
    // Of several ranks with the newest one, the first.
    let mut newest = [[life, results, notes, u64::MAX - world.rank() as u64]];
    collect::all_reduce(world, &mut newest, Ord::max)?;
    let [_, _, _, rank] = newest[0];
    collect::broadcast_json(world, &own, (u64::MAX - rank) as usize)
}

/// The number of a segment of this kind, from its role.
fn number(role: &str, kind: &str) -> Option<u64> {
    role.strip_prefix(kind)?.parse().ok().filter(|number| *number < NUMBERS_MAX)
}

pub(super) type FoundNote = (SegmentName, u64, Option<Content>);

/// The segments of `run` of this role on this node. A segment whose writing a death has interrupted
/// has no content.
pub(super) fn found(
    store: &dyn Store,
    run: &str,
    role: &str,
) -> Result<Vec<FoundNote>, StoreError> {
    let mut found = Vec::new();
    for info in store.list_once()?.into_iter().filter(|info| info.name.run() == run) {
        let Some(number) = number(info.name.role(), role) else { continue };
        let content = content(store, &info)?;
        found.push((info.name, number, content));
    }
    Ok(found)
}

/// Whether this id in a mark names a ledger, and not a start.
pub(super) fn is_of_a_ledger(id: &StartId) -> bool {
    id.nonce == 0
}

/// The content of a segment, if it is complete.
fn content(store: &dyn Store, info: &SegmentInfo) -> Result<Option<Content>, StoreError> {
    let mut bytes = vec![0; info.bytes];
    let is_whole = store.peek(&info.name, &mut bytes)? == Some(info.bytes);
    Ok(is_whole.then(|| Content::decode(&bytes)).flatten())
}

impl Content {
    /// The name of this run's ledgers in marks of ended runs. No start has nonce 0.
    fn id(&self) -> StartId {
        StartId { number: self.life, nonce: 0 }
    }

    /// The age of a content: of two, the one with the larger first different number is newer.
    fn age(&self) -> [u64; 3] {
        [self.life, self.results.len() as u64, self.notes]
    }

    /// The bytes of a segment: a checksum of the rest, which is JSON and blanks up to whole words.
    fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("plain data");
        json.resize(json.len().next_multiple_of(8), b' ');
        [&checksum(&json).to_le_bytes()[..], &json].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (sum, json) = bytes.split_first_chunk()?;
        let is_whole = u64::from_le_bytes(*sum) == checksum(json);
        is_whole.then(|| serde_json::from_slice(json).ok())?
    }
}

/// The starts that any rank names, on all ranks. Collective.
pub(super) fn union(world: &Comm, own: &[StartId]) -> Result<Vec<StartId>, CommError> {
    let own = (!own.is_empty()).then(|| own.to_vec());
    let all = collect::all_gather_some_json(world, own.as_ref())?;
    let mut all: Vec<StartId> = all.into_iter().flat_map(|(_, starts)| starts).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

// A checkpoint has when a test began, too, as of the time when it was taken. But a start may be lost
// before it has taken its first checkpoint or, after it has resumed from one, before it has taken
// the next. So each start, when its clock begins or resumes, writes what it has found into the
// ledger of the run, on all nodes: no time is dropped, and the clocks of the current nodes measure
// the time at the next start.

/// What a start has noted; the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The checksum of the test's parameters: an earlier run of that name may have had another one.
    test: u64,
    pub origin: Origin,
    pub restarts: Vec<Restart>,
}

impl Begun {
    pub(crate) fn new(test: &TestSpec, origin: Origin, restarts: Vec<Restart>) -> Self {
        Self { test: test_checksum(test), origin, restarts }
    }

    /// Seconds of the run when the last start that noted something was running: a lower bound.
    pub(crate) fn seconds_min(&self) -> f64 {
        seconds(&self.restarts)
    }
}

/// Seconds of the run when the last of these restarts was complete.
fn seconds(restarts: &[Restart]) -> f64 {
    restarts.last().map_or(0.0, |restart| restart.start_seconds + restart.recover_seconds)
}

fn test_checksum(test: &TestSpec) -> u64 {
    checksum(&serde_json::to_vec(test).expect("plain data"))
}

/// The note in the ledger about the beginning of a test.
pub struct Beginning<'a> {
    ledger: Rc<RefCell<Ledger<'a>>>,
    number: usize,
}

impl<'a> Beginning<'a> {
    /// The note about test number `number` of the run with this ledger.
    pub(crate) fn new(ledger: Rc<RefCell<Ledger<'a>>>, number: usize) -> Self {
        Self { ledger, number }
    }

    /// What the latest start has noted about `test`. `None` if a checkpoint, whose `restarts` are
    /// these, knows of a later start.
    pub(super) fn read(&self, test: &TestSpec, restarts: &[Restart]) -> Option<Begun> {
        let ledger = self.ledger.borrow();
        let begun: Begun = serde_json::from_str(ledger.begun(self.number)?).ok()?;
        let is_latest = begun.seconds_min() >= seconds(restarts);
        (begun.test == test_checksum(test) && is_latest).then_some(begun)
    }

    /// Writes rank 0's note on each node. If the store refuses, the earlier note stays.
    pub(super) fn note(&self, begun: &Begun) -> Result<(), StoreError> {
        let note = serde_json::to_string(begun).expect("plain data");
        self.ledger.borrow_mut().note_begun(self.number, note)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chosen::RunBlas;
    use super::super::segments::found_test;
    use super::*;
    use skt_health::environment::library::CalledBlas;
    use skt_solver::comm::threads;
    use skt_store::store::Files;

    /// Opens the ledger on nodes with a folder each. Returns what `act` does on each of them.
    fn on_nodes<R: Send>(
        folders: &[tempfile::TempDir],
        is_afresh: bool,
        act: impl Fn(&Comm, &Files, &mut Ledger) -> R + Sync,
    ) -> Vec<R> {
        let ran = threads::run(folders.len(), |world| {
            let store = Files::in_folder(folders[world.rank()].path());
            let mut ledger = Ledger::open(&world, &store, "run", true, is_afresh).unwrap();
            Ok::<_, CommError>(act(&world, &store, &mut ledger))
        });
        ran.into_iter().map(Result::unwrap).collect()
    }

    /// What each rank finds, each with a separate folder; then a result is added.
    fn start(folders: &[tempfile::TempDir], is_afresh: bool, add: &str) -> Vec<Vec<String>> {
        on_nodes(folders, is_afresh, |world, store, ledger| {
            let found: Vec<String> = ledger.content.results.values().cloned().collect();
            assert_eq!(ledger.done(), found.len());
            world.barrier().unwrap();
            let new = Results::from([(found.len(), add.to_owned())]);
            ledger.add(world, new, &[]).unwrap().unwrap();
            assert_eq!(store.list().unwrap().len(), 1, "one segment a node");
            found
        })
    }

    fn folders(count: usize) -> Vec<tempfile::TempDir> {
        (0..count).map(|_| tempfile::tempdir().unwrap()).collect()
    }

    #[test]
    fn any_remaining_node_has_the_whole_ledger() {
        let mut nodes = folders(3);
        let none = Vec::<String>::new();
        assert_eq!(start(&nodes, false, "one"), [none.clone(), none.clone(), none]);
        // Two nodes are replaced.
        (nodes[0], nodes[2]) = (folders(1).remove(0), folders(1).remove(0));
        let one = vec!["one".to_owned()];
        assert_eq!(start(&nodes, false, "two"), [one.clone(), one.clone(), one]);
        (nodes[0], nodes[1]) = (folders(1).remove(0), folders(1).remove(0));
        let both = vec!["one".to_owned(), "two".to_owned()];
        assert_eq!(start(&nodes, false, "three")[0], both);
    }

    /// The note lives as long as the ledger's run, even if most nodes are lost. It holds for these
    /// levels only, and until images are seen.
    #[test]
    fn image_state_of_a_start_is_known_to_later_ones() {
        let mut nodes = folders(2);
        let known =
            |nodes: &[tempfile::TempDir], is_afresh, levels, note: Option<Option<usize>>| {
                on_nodes(nodes, is_afresh, |world, store, ledger| {
                    let known = [0, 1, 2].map(|test| ledger.has_no_images_after(test, levels));
                    world.barrier().unwrap();
                    if let Some(test) = note {
                        ledger.note_no_images_after(test, levels).unwrap();
                    }
                    assert_eq!(store.list().unwrap().len(), 1, "one segment a node");
                    known
                })
            };
        let (nothing, behind_1) = ([[false; 3]; 2], [[false, true, true]; 2]);
        assert_eq!(known(&nodes, false, "a,", Some(Some(1))), nothing);
        nodes[0] = folders(1).remove(0);
        assert_eq!(known(&nodes, false, "a", None), nothing, "of other levels");
        assert_eq!(known(&nodes, false, "a,", Some(Some(2))), behind_1);
        start(&nodes, false, "one");
        assert_eq!(known(&nodes, false, "a,", Some(None)), behind_1);
        assert_eq!(known(&nodes, false, "a,", Some(Some(1))), nothing, "images were seen");
        assert_eq!(known(&nodes, false, "a,", Some(Some(1))), behind_1);
        assert_eq!(known(&nodes, true, "a,", None), nothing);
        assert_eq!(known(&nodes, false, "a,", None), nothing, "the run was begun from scratch");
    }

    /// All ranks know the newest note of an unfinished test, even if most nodes are lost.
    #[test]
    fn when_a_test_began_is_known_until_it_is_done() {
        let mut nodes = folders(3);
        let noted = |nodes: &[tempfile::TempDir], is_afresh, note: &str| {
            let ran = on_nodes(nodes, is_afresh, |world, _, ledger| {
                let known = [0, 1].map(|test| ledger.begun(test).map(str::to_owned));
                world.barrier().unwrap();
                ledger.note_begun(1, note.to_owned()).unwrap();
                known
            });
            assert!(ran.iter().all(|known| *known == ran[0]));
            ran[0].clone()
        };
        assert_eq!(noted(&nodes, false, "first"), [None, None]);
        let away = std::mem::replace(&mut nodes[1], folders(1).remove(0));
        assert_eq!(noted(&nodes, false, "second"), [None, Some("first".to_owned())]);
        // One node has missed the second note, the other has nothing.
        (nodes[0], nodes[1]) = (folders(1).remove(0), away);
        assert_eq!(noted(&nodes, false, "third"), [None, Some("second".to_owned())]);
        assert_eq!(noted(&nodes, true, "new"), [None, None], "begun from scratch");
        assert_eq!(start(&nodes, false, "result")[0], Vec::<String>::new());
        assert_eq!(noted(&nodes, false, ""), [None, None], "it is done");
    }

    /// All ranks know what the last start that named a library has noted, and the rates that the
    /// first has measured, even if most nodes are lost.
    #[test]
    fn what_earlier_starts_have_chosen_is_known() {
        let mut nodes = folders(2);
        let chosen = |name: Option<&str>, rate: u32| {
            let files = name.map_or([].into(), |name| [("lib.so", name)].into());
            let named = name.map(str::to_owned);
            let called = CalledBlas { files, ..CalledBlas::default() };
            let blas = RunBlas { named, called, ..RunBlas::default() };
            Chosen { blas, rates: vec![rate; 2] }
        };
        let noted = |nodes: &[tempfile::TempDir], is_afresh, mut note: Chosen| {
            note.blas.is_asked_for = note.blas.named.is_some();
            let ran = on_nodes(nodes, is_afresh, |world, store, ledger| {
                let known = super::noted(world, store, "run", true).unwrap();
                world.barrier().unwrap();
                ledger.note_chosen(world, &note).unwrap();
                known
            });
            assert!(ran.iter().all(|known| *known == ran[0]));
            ran[0].clone()
        };
        assert_eq!(noted(&nodes, false, chosen(Some("one"), 15)), None);
        let away = std::mem::replace(&mut nodes[1], folders(1).remove(0));
        let one = Some(chosen(Some("one"), 15));
        assert_eq!(noted(&nodes, false, chosen(Some("two"), 25)), one);
        // One node has missed the second note, the other has nothing.
        (nodes[0], nodes[1]) = (away, folders(1).remove(0));
        assert_eq!(noted(&nodes, false, chosen(Some("last"), 35)), one);
        let last = Some(chosen(Some("last"), 15));
        assert_eq!(noted(&nodes, false, chosen(None, 45)), last);
        assert_eq!(noted(&nodes, false, chosen(Some("three"), 55)), last);
        assert_eq!(noted(&nodes, true, chosen(Some("four"), 65)), None, "begun from scratch");
        assert_eq!(noted(&nodes, false, chosen(None, 75)), Some(chosen(Some("four"), 65)));
        let none = threads::run(1, |world| {
            super::noted(&world, &Files::in_folder(folders(1)[0].path()), "run", true)
        });
        assert!(none.into_iter().all(|known| known.unwrap().is_none()), "no ledger");
    }

    /// Only an empty ledger that this start made goes with a refused start.
    #[test]
    fn refused_start_removes_its_empty_ledger() {
        let nodes = folders(2);
        let refused = |note: Option<&str>| {
            on_nodes(&nodes, false, |world, store, ledger| {
                world.barrier().unwrap();
                ledger.note_no_images_after(Some(0), "a").unwrap();
                if let Some(note) = note {
                    ledger.note_begun(0, note.to_owned()).unwrap();
                }
                ledger.remove_if_void().unwrap();
                store.list().unwrap().len()
            })
        };
        assert_eq!(refused(None), [0, 0], "this start made it");
        assert_eq!(refused(Some("begun")), [1, 1], "a test has begun");
        assert_eq!(refused(None), [1, 1], "an earlier start made it");
        for node in &nodes {
            let store = Files::in_folder(node.path());
            store
                .list()
                .unwrap()
                .iter()
                .for_each(|info| assert!(store.remove(&info.name).unwrap()));
        }
        assert_eq!(start(&nodes, false, "one"), [Vec::<String>::new(), Vec::new()]);
        assert_eq!(refused(None), [1, 1], "it has a result");
    }

    #[test]
    fn returning_node_does_not_restore_an_abandoned_run() {
        let mut nodes = folders(2);
        start(&nodes, false, "old");
        start(&nodes, false, "older still");
        let away = std::mem::replace(&mut nodes[1], folders(1).remove(0));
        assert_eq!(start(&nodes, true, "new")[0], Vec::<String>::new(), "begun from scratch");
        nodes[1] = away;
        assert_eq!(start(&nodes, false, ""), [vec!["new".to_owned()], vec!["new".to_owned()]]);
    }

    /// The run would skip the tests before the one of which the node has data.
    #[test]
    fn returning_node_has_no_later_test_of_an_abandoned_run() {
        let mut nodes = folders(2);
        start(&nodes, false, "old");
        let data = |node: &tempfile::TempDir, role: &str| {
            let name = SegmentName::new("run", role, 1).unwrap();
            drop(Files::in_folder(node.path()).create(&name, 8).unwrap());
        };
        let away = std::mem::replace(&mut nodes[1], folders(1).remove(0));
        // It has finished test 0. Data of test 1 is looked at when that test is opened.
        start(&nodes, true, "new");
        nodes[1] = away;
        for role in ["t1.a5", "t2.a5"] {
            data(&nodes[1], role);
        }
        data(&nodes[0], "t1.a6");
        let found = |is_afresh| {
            on_nodes(&nodes, is_afresh, |_, store, ledger| {
                assert_eq!(ledger.done(), 1);
                found_test(store, "run").unwrap()
            })
        };
        assert_eq!(found(false), [Some(1), Some(1)]);
        // What a node has of the run itself stays, whatever the number of the test.
        for role in ["t3.a7", "t4.a7"] {
            data(&nodes[1], role);
        }
        assert_eq!(found(false), [Some(1), Some(4)]);
    }

    #[test]
    fn highest_segment_number_does_not_overflow() {
        let nodes = folders(1);
        let store = Files::in_folder(nodes[0].path());
        let highest = SegmentName::new("run", &format!("{ROLE}{}", u64::MAX), 0).unwrap();
        drop(store.create(&highest, 8).unwrap());
        threads::run(1, |world| {
            let mut ledger = Ledger::open(&world, &store, "run", true, false).unwrap();
            ledger.add(&world, [(0, "one".to_owned())].into(), &[])?.unwrap();
            assert_eq!(Ledger::open(&world, &store, "run", true, false).unwrap().done(), 1);
            Ok::<_, CommError>(())
        })
        .remove(0)
        .unwrap();
    }

    fn full() -> Content {
        Content {
            life: 7,
            left: vec![StartId { number: 3, nonce: 4 }],
            results: Results::from([(0, "{\"x\":1}".to_owned())]),
            no_images: Some(NoImages { after: 2, levels: u64::MAX }),
            notes: 5,
            begun: Results::from([(6, String::new())]),
            chosen: Some(Chosen { rates: vec![64], ..Chosen::default() }),
        }
    }

    /// Segments outlive the program: a newer one must read and write the same bytes.
    #[test]
    fn bytes_of_a_segment_match_its_format() {
        let json = concat!(
            r#"{"life":7,"left":[{"number":3,"nonce":4}],"results":{"0":"{\"x\":1}"},"#,
            r#""no_images":{"after":2,"levels":18446744073709551615},"notes":5,"begun":{"6":""},"#,
            r#""chosen":{"blas":{"called":{"words":"","kernel":null,"files":{},"is_built_in":false}},"#,
            r#""rates":[64]}}"#
        );
        let padded = format!("{json:<width$}", width = json.len().next_multiple_of(8));
        let bytes = [&checksum(padded.as_bytes()).to_le_bytes()[..], padded.as_bytes()].concat();
        assert_eq!(String::from_utf8_lossy(&full().encode()[8..]), padded);
        assert_eq!((full().encode(), Content::decode(&bytes)), (bytes, Some(full())));
    }

    #[test]
    fn torn_segment_is_skipped() {
        let bytes = full().encode();
        for cut in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            let same = torn == bytes;
            assert!(same || Content::decode(&torn).is_none(), "{cut}");
            assert_eq!(Content::decode(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(Content::decode(&vec![0; 4096]), None, "never written");
    }
}
