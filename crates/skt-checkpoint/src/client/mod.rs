//! Checkpoints for any code over MPI, in a few calls.
//!
//! 1. [`open`] on a communicator, with the sizes of the regions. It finds what an earlier start has
//!    left, rebuilds what is lost of it, and returns what comes next: to compute, or to report what
//!    an earlier start has computed.
//! 2. [`Saved::comm`] is the communicator to use from then on. Its ranks are those of the data: a
//!    process may have another rank than the launcher gave it.
//! 3. [`Saved::regions`] is the memory to compute in. It belongs to the library and outlives the
//!    process.
//! 4. [`Saved::state`] returns the state to continue from, if there is one.
//! 5. [`Saved::checkpoint`] between two steps, when [`Saved::is_due`] or as often as one likes.
//! 6. [`Saved::finish`] keeps the result. [`Ended::clear`] removes everything, once it is reported.
//!
//! All calls that are collective return [`CheckpointError::Comm`] when a rank died.
//! docs/extending.md has a whole program.

mod copies;
mod due;

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;
use skt_host::exit::Exit;

use crate::checkpoint::alike::{self, Setting};
use crate::checkpoint::decide::Refusal;
use crate::checkpoint::finish::FinishedRun;
use crate::checkpoint::hook::{Hook, NoHook};
use crate::checkpoint::level::LevelReport;
use crate::checkpoint::level::folder::{FolderOwner, ImageJob};
use crate::checkpoint::level::owners::Claimant;
use crate::checkpoint::level::settings::Levels;
pub use crate::checkpoint::protocol::{CheckpointError, Config, Result, Stats};
use crate::checkpoint::protocol::{Checkpointer, Opened, Polled};
pub use crate::checkpoint::recover::Recovered;
use crate::checkpoint::take_hold;
use crate::heartbeat::program::{ProgramHeartbeats, Supervised};
use crate::heartbeat::{self, DataLocation};
pub use copies::CopyProgress;
pub use due::Due;
use due::{Limits, MeasuredTimes};
use skt_comm::collect::{broadcast, reduce};
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, CommError};
use skt_host::clock::now_unix;
use skt_host::messages;
use skt_store::codec::CodecKind;
use skt_store::layout::{Active, CELL_BYTES, RegionShape};
use skt_store::segments::lock::RunLock;
use skt_store::segments::{Process as _, RunSegments, sweep};
pub use skt_store::store::StoreKind;
use skt_store::store::{Store, StoreError};

/// Rows that a large region is cut into, about: a part of them is encoded and copied at a time.
const ROWS: usize = 1024;
const ROW_BYTES_MAX: usize = 64 << 10;

type Segments<'a> = RunSegments<'a, Supervised>;

/// What a run asks of its checkpoints; the same on all ranks, as [`open`] verifies.
pub struct Options {
    store: Box<dyn Store + Send + Sync>,
    /// For a supervisor (`skt-hpl launch`), which removes what nodes still have of an ended run.
    store_kind: StoreKind,
    /// Mean time between failures of the whole job, from which [`Saved::due`] follows.
    pub mtbf_seconds: f64,
    /// The end of the job's time, in seconds since 1970; that of rank 0 counts.
    pub end_unix: Option<f64>,
    /// Levels of images, for losses that memory does not survive.
    pub levels: Levels,
    /// Everything else: the size of groups, the code, what to do with what is found. [`open`] sets
    /// host, node, clock, random number and levels, and the failure domain where none is named.
    pub config: Config,
    /// Called at each step of the protocol; for fault injection.
    pub hook: Arc<dyn Hook>,
}

impl Options {
    /// Method `self` with groups of up to 16 ranks that each survive the loss of one.
    ///
    /// A start continues what earlier starts with this `run_id` have left, if `application` is the
    /// same: it names all parameters without which a checkpoint would be useless. As a JSON object
    /// it lets the refusal name the one that differs.
    pub fn new(run_id: &str, application: &str) -> Self {
        let application = application.to_owned();
        let config = Config { application, ..Config::new(run_id, CodecKind::Xor) };
        let store_kind = StoreKind::SysV { huge_pages: false };
        let store = store_kind.open();
        let (levels, hook) = (Levels::default(), Arc::new(NoHook));
        Self { store, store_kind, mtbf_seconds: 86400.0, end_unix: None, levels, config, hook }
    }

    /// Each group survives the loss of `parities` ranks, which are half of the group at most.
    pub fn with_parities(mut self, parities: usize) -> Self {
        let kind = if parities == 1 { CodecKind::Xor } else { CodecKind::ReedSolomon };
        (self.config.parities, self.config.code) = (parities, kind);
        self
    }

    /// Segments are kept in this store, not in System V segments.
    pub fn with_store(self, kind: StoreKind) -> Self {
        Self { store: kind.open(), store_kind: kind, ..self }
    }

    /// Besides those of [`Config`], which the checkpoints compare themselves.
    fn settings(&self) -> Vec<Setting> {
        // Without `..`: a new field does not compile until it is listed here.
        let Self { store: _, store_kind, mtbf_seconds, end_unix: _, levels, config: _, hook: _ } =
            self;
        vec![
            Setting::new("store", store_kind),
            Setting::new("levels", serde_json::to_string(levels).expect("plain data")),
            Setting::new("mtbf_seconds", mtbf_seconds),
        ]
    }

    fn keeps(&self) -> DataLocation {
        let (run_id, store) = (self.config.run_id.clone(), self.store_kind.to_string());
        DataLocation { run_id, store, images: self.levels.folders() }
    }
}

/// A region of a rank's memory that checkpoints save whole. It has one size on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    bytes: usize,
}

impl Region {
    /// A region of `count` values.
    pub fn of<T: Pod>(count: usize) -> Self {
        Self { bytes: count * size_of::<T>() }
    }

    /// The shape of the region in memory: rows of whole cells, of which the last row is padded.
    fn shape(self) -> RegionShape {
        let row_bytes = (self.bytes / ROWS).next_multiple_of(CELL_BYTES);
        let pitch_bytes = row_bytes.clamp(CELL_BYTES, ROW_BYTES_MAX);
        RegionShape { rows: self.bytes.div_ceil(pitch_bytes), pitch_bytes }
    }
}

/// What is next in a run that [`open`] has found.
pub enum Next<'a> {
    /// Compute, from [`Saved::state`] on.
    Compute(Saved<'a>),
    /// Report [`Ended::result`]: an earlier start has computed it.
    Report(Ended<'a>),
}

/// Finds what earlier starts of the run have left, and rebuilds what is lost of it. Collective over
/// `comm`, which has one process for each rank. [`CheckpointError::Refused`] on all processes, with
/// nothing changed, when the job cannot continue; other errors are of one process, whose job has to
/// be ended: see [`on_mpi`].
pub fn open<'a>(comm: &Comm, options: &'a Options, regions: &[Region]) -> Result<Next<'a>> {
    let mut heartbeats = ProgramHeartbeats::for_rank(comm.rank());
    heartbeats.open(|| options.keeps());
    find(comm, options, regions, &mut heartbeats).inspect_err(|error| heartbeats.refused(error))
}

fn find<'a>(
    comm: &Comm,
    options: &'a Options,
    regions: &[Region],
    heartbeats: &mut ProgramHeartbeats,
) -> Result<Next<'a>> {
    if let Some(difference) = alike::compare(comm, &options.settings())? {
        return Err(Refusal::Disagree(difference).into());
    }
    let Options { store, config, .. } = options;
    let mut memory = RunSegments::new(&**store, &config.run_id, 0, Supervised);
    let of_store = |source| CheckpointError::Memory {
        what: format!("looking at the store of rank {}", comm.rank()),
        source,
    };
    let mut config = config.clone().identified(&memory, &comm.host()).map_err(of_store)?;
    if comm.size() == 1 {
        config = config.for_one_rank();
    }
    let (lock, folders) = open_levels(comm, options, &mut memory, &mut config)?;
    let memory = memory.under(lock);
    let shapes: Vec<RegionShape> = regions.iter().map(|region| region.shape()).collect();
    let hook = heartbeats.add_waits(options.hook.clone(), comm.rank(), comm.size());
    match Checkpointer::open(comm, memory, config, &shapes, hook)? {
        Opened::Ready(opened) => {
            let (checkpointer, recovered) = opened.recover()?;
            let (regions, measured) = (regions.to_vec(), MeasuredTimes::default());
            let (under_way, copy_seconds) = (None, 0.0);
            heartbeats.compute_from(recovered.as_ref().map_or(0, |found| found.epoch));
            Ok(Next::Compute(Saved {
                heartbeats: mem::take(heartbeats),
                checkpointer,
                options,
                regions,
                recovered,
                measured,
                under_way,
                copy_seconds,
                folders,
            }))
        }
        Opened::Finished(run) => {
            Ok(Next::Report(Ended { run, options, heartbeats: mem::take(heartbeats), folders }))
        }
    }
}

/// The hold of this process on the run, and the folders of images that it has taken for its job;
/// with levels, both before anything is looked for.
type Held = (Option<Arc<RunLock>>, Vec<FolderOwner>);

/// Takes hold of a run that has levels, and opens these. Collective.
fn open_levels(
    comm: &Comm,
    options: &Options,
    memory: &mut Segments,
    config: &mut Config,
) -> Result<Held> {
    if options.levels.0.is_empty() {
        return Ok((None, Vec::new()));
    }
    // A rank that still closes an earlier run of the process removes folders that it finds empty.
    comm.barrier()?;
    // No other job can guess this number, and all ranks have the same.
    let mut number = [RandomState::new().hash_one(0)];
    broadcast(comm, &mut number, 0)?;
    let (run, job) = (&options.config.run_id, Some(number[0]));
    let (index, hold) = take_hold(comm, memory, config, options.hook.as_ref())?;
    let lock = hold.downcast::<RunLock>().expect("the hold of a store");
    let claimant = Claimant {
        job: ImageJob {
            number: number[0],
            host: config.host.clone(),
            supervisor: Supervised.supervisor(),
            outlives_losses: config.may_lose.is_some(),
        },
        is_first_on_node: index == 0,
        ended: lock.folder_owner(),
        process: &Supervised,
    };
    let folders = options.levels.take_folders(comm, run, &claimant)??;
    lock.set_folder_owner(number[0]);
    // The threads of the application are not known: one is the cautious number.
    config.levels.extend(options.levels.open(run, 0, job, 1, true, options.mtbf_seconds));
    Ok((Some(lock), folders))
}

/// The regions of a rank, and their checkpoints.
pub struct Saved<'a> {
    checkpointer: Box<Checkpointer<'a>>,
    options: &'a Options,
    regions: Vec<Region>,
    recovered: Option<Recovered>,
    measured: MeasuredTimes,
    /// The seconds so far of the checkpoint that has begun, if one has.
    under_way: Option<f64>,
    /// The seconds of copies that the next checkpoint needed.
    copy_seconds: f64,
    heartbeats: ProgramHeartbeats,
    folders: Vec<FolderOwner>,
}

impl<'a> Saved<'a> {
    /// The rank whose data this process has.
    pub fn rank(&self) -> usize {
        self.checkpointer.rank()
    }

    /// Whether this is the only rank, so that no other has parities of its memory.
    pub fn is_alone(&self) -> bool {
        self.checkpointer.comm().size() == 1
    }

    /// A communicator for the application, with the ranks of the data. Collective.
    pub fn comm(&self) -> Result<Comm> {
        let all = self.checkpointer.comm().split(Some(0), self.rank() as u32)?;
        Ok(all.expect("a colour"))
    }

    /// What this start has recovered; `None` if the run begins.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// The state of the checkpoint that this start continues from; `None` if the run begins, with
    /// zero regions. Panics on a state of another size: `application` should have named the
    /// difference.
    pub fn state<S: Pod>(&self) -> Option<S> {
        let recovered = self.recovered.as_ref()?;
        Some(bytemuck::pod_read_unaligned(&recovered.state))
    }

    /// All regions as bytes, to be used at once.
    pub fn bytes(&mut self) -> Vec<&mut [u8]> {
        let padded = self.checkpointer.regions().into_iter().zip(&self.regions);
        padded.map(|(bytes, region)| &mut bytes[..region.bytes]).collect()
    }

    /// All `N` regions, each a whole number of values of one type, to be used at once.
    pub fn regions<T: Pod, const N: usize>(&mut self) -> [&mut [T]; N] {
        let bytes: [&mut [u8]; N] =
            self.bytes().try_into().unwrap_or_else(|all: Vec<_>| panic!("{} regions", all.len()));
        bytes.map(bytemuck::cast_slice_mut)
    }

    /// Whether it is time for a checkpoint: see [`Saved::due`].
    pub fn is_due(&mut self) -> Result<bool> {
        Ok(self.due()? != Due::No)
    }

    /// What is due, the same on all ranks: a checkpoint at once in each start, to measure what one
    /// takes, then at the interval that loses least, `sqrt(2 M d)` for checkpoints of d seconds and
    /// a mean time between failures of M (Young, 1974); the last one, with images on all levels,
    /// while there is time for it and for half as much again. Collective.
    pub fn due(&mut self) -> Result<Due> {
        // Clocks differ: that of rank 0 counts, and it decides.
        let end_unix = self.options.end_unix.unwrap_or(f64::INFINITY);
        let mut image_seconds = [self.checkpointer.seconds_of_images()];
        if !self.options.levels.0.is_empty() {
            reduce(self.checkpointer.comm(), &mut image_seconds, 0, f64::max)?;
        }
        let limits = Limits {
            mtbf_seconds: self.options.mtbf_seconds,
            seconds_left: end_unix - now_unix(),
            image_seconds: image_seconds[0],
        };
        let mut due = [self.measured.due(Instant::now(), &limits).number()];
        broadcast(self.checkpointer.comm(), &mut due, 0)?;
        let due = Due::from_number(due[0]);
        if due == Due::Last {
            self.checkpointer.make_images_due();
            self.heartbeats.phase(heartbeat::TIME_UP);
        } else {
            self.heartbeats.step();
        }
        Ok(due)
    }

    /// Saves all regions, and a small `state` that is the same on all ranks. Collective, at a point
    /// where no message of the application is under way. After [`CheckpointError::Comm`] the next
    /// start continues from this checkpoint or from the last one.
    pub fn checkpoint<S: Pod>(&mut self, state: &S) -> Result<Stats> {
        let (start, all) = (Instant::now(), vec![Active::ALL; self.regions.len()]);
        self.learn();
        self.heartbeats.begins();
        let stats = self.checkpointer.checkpoint(&all, bytemuck::bytes_of(state))?;
        self.heartbeats.complete(stats.epoch);
        let seconds = mem::take(&mut self.copy_seconds) + start.elapsed().as_secs_f64();
        self.measured.note_taken(Instant::now(), seconds);
        Ok(stats)
    }

    /// A start whose time is limited takes its first images at once, to measure what they take.
    fn learn(&mut self) {
        if self.options.end_unix.is_some() && !self.measured.has_taken() {
            self.checkpointer.make_images_due();
        }
    }

    /// Begins a checkpoint of what the regions have now, which [`Saved::complete`] ends; none has
    /// begun already. Collective, at a point where no message of the application is under way.
    ///
    /// # Safety
    /// From here until [`Saved::complete`] has returned, no process writes to the regions: this
    /// process reads them. All may be read.
    pub unsafe fn begin(&mut self) -> Result<()> {
        let start = Instant::now();
        self.learn();
        self.heartbeats.begins();
        self.checkpointer.begin(&vec![Active::ALL; self.regions.len()])?;
        for region in 0..self.regions.len() {
            // SAFETY: by this function's contract.
            unsafe { self.checkpointer.ready(region, Active::NOTHING) };
        }
        self.under_way = Some(mem::take(&mut self.copy_seconds) + start.elapsed().as_secs_f64());
        // The others learn that all is ready here, and need not wait for the next poll.
        self.poll().map(drop)
    }

    /// Whether a checkpoint has begun and is not complete.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Encodes a piece of the checkpoint that has begun, or progresses its messages. Never waits
    /// for other ranks. Returns whether nothing is left that this rank could do before
    /// [`Saved::complete`].
    pub fn poll(&mut self) -> Result<bool> {
        let start = Instant::now();
        let polled = self.checkpointer.poll()?;
        if let Some(seconds) = &mut self.under_way {
            *seconds += start.elapsed().as_secs_f64();
        }
        Ok(polled == Polled::Done)
    }

    /// Completes the checkpoint that has begun, with a small `state`, alike on all ranks.
    /// Collective.
    pub fn complete<S: Pod>(&mut self, state: &S) -> Result<Stats> {
        let start = Instant::now();
        let before_seconds = self.under_way.expect("a checkpoint that has begun");
        let stats = self.checkpointer.complete(bytemuck::bytes_of(state))?;
        self.heartbeats.complete(stats.epoch);
        self.under_way = None;
        let seconds = before_seconds + start.elapsed().as_secs_f64();
        self.measured.note_taken(Instant::now(), seconds);
        Ok(stats)
    }

    /// Returns when all ranks have called this. Collective.
    pub fn barrier(&self) -> Result<()> {
        Ok(self.checkpointer.comm().barrier()?)
    }

    /// What each level has done on this rank.
    pub fn levels(&self) -> Vec<LevelReport> {
        self.checkpointer.level_reports()
    }

    /// Waits for the images that are being written. Returns, level by level, whether those of the
    /// newest checkpoint are complete on all ranks. Collective.
    pub fn finish_images(&mut self) -> Result<Vec<bool>> {
        self.checkpointer.finish_images()
    }

    /// Ends the run and keeps its result, that of rank 0, so that no later start computes it again.
    /// Collective. After [`CheckpointError::Comm`] the next start continues from the last
    /// checkpoint, or gets the result.
    pub fn finish<R: Pod>(self, result: &R) -> Result<Ended<'a>> {
        let run = self.checkpointer.finish(bytemuck::bytes_of(result))?;
        let Self { options, heartbeats, folders, .. } = self;
        Ok(Ended { run, options, heartbeats, folders })
    }
}

/// A run whose result is known. When this is dropped, the next start reports the result again.
#[must_use = "the segments of the run stay until they are cleared"]
pub struct Ended<'a> {
    run: FinishedRun<'a>,
    options: &'a Options,
    heartbeats: ProgramHeartbeats,
    /// The folders of images, which this process has until they are cleared.
    folders: Vec<FolderOwner>,
}

impl Ended<'_> {
    /// The result, the same on all ranks. Panics on a result of another size: `application` should
    /// have named the difference.
    pub fn result<R: Pod>(&self) -> R {
        bytemuck::pod_read_unaligned(self.run.result())
    }

    /// Removes all of the run, once its result is reported by each process that reports it.
    /// Collective. Returns the errors that kept images of levels from being removed, each on one of
    /// the processes on which the level's disk fails. The run has ended nevertheless: its memory is
    /// removed after its images, so a death before that leaves the result to the next start, and
    /// one after it leaves nothing but these images.
    pub fn clear(mut self) -> Result<Vec<CheckpointError>> {
        self.heartbeats.phase(heartbeat::REPORTED);
        let Options { store, config, levels, .. } = self.options;
        // No other start of the run begins before all of it is removed.
        let _hold = self.run.hold().cloned();
        let images_that_stay = self.run.clear()?;
        sweep(&**store, &config.run_id, 0).map_err(not_removed)?;
        drop(self.folders);
        levels.close(&config.run_id);
        Ok(images_that_stay)
    }
}

fn not_removed(error: StoreError) -> CheckpointError {
    let source = std::io::Error::other(error);
    CheckpointError::Memory { what: "removing what is left of the run".into(), source }
}

/// Runs an application on all ranks of an MPI job, and returns the exit code of this process.
///
/// An error ends the job on all ranks, as the others might wait for this one for ever: with 75 if a
/// rank is lost, so that the same command continues, and with 2 otherwise.
pub fn on_mpi(
    application: impl FnOnce(&Comm) -> std::result::Result<ExitCode, Box<dyn Error>>,
) -> ExitCode {
    let run = |world: &MpiWorld| {
        let comm = world.comm()?;
        Ok(application(&comm).unwrap_or_else(|error| fail(&comm, &*error)))
    };
    MpiWorld::init().and_then(|world| run(&world)).unwrap_or_else(|error: CommError| {
        messages::print(format_args!("error: {error}"));
        Exit::BadInput.into()
    })
}

/// Ends the job unless all ranks end by themselves.
fn fail(comm: &Comm, error: &(dyn Error + 'static)) -> ExitCode {
    let of_checkpoint = error.downcast_ref::<CheckpointError>();
    if let Some(CheckpointError::Refused(_)) = of_checkpoint {
        // All ranks have this error.
        if comm.rank() == 0 {
            messages::print(format_args!("error: {error}"));
        }
        return Exit::BadInput.into();
    }
    let is_lost =
        error.is::<CommError>() || matches!(of_checkpoint, Some(CheckpointError::Comm(_)));
    let exit = if is_lost { Exit::Interrupted } else { Exit::BadInput };
    messages::print(format_args!("error: rank {}: {error}", comm.rank()));
    comm.abort(&error.to_string(), exit.code().into());
    exit.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::decide::Resume;
    use crate::checkpoint::hook::{Step, Wait};
    use crate::checkpoint::level::ImagesEvery;
    use crate::checkpoint::level::folder::ImageFolder;
    use crate::checkpoint::level::testing::Observed;
    use crate::checkpoint::methods::Method;
    use skt_comm::threads;
    use skt_store::store::Files;

    const RANKS: usize = 4;
    const REGIONS: [usize; 2] = [1000, 3];

    fn options(folder: &Path) -> Options {
        let store = Box::new(Files::in_folder(folder));
        Options { store, ..Options::new("client", "a test").with_parities(2) }
    }

    fn value(rank: usize, step: u64, region: usize, at: usize) -> f64 {
        (rank * 1_000_000 + region * 10_000 + at) as f64 + step as f64 / 7.0
    }

    /// Computes from what is found to step `until`, with a checkpoint in each step; at step 6 the
    /// run ends. Returns the step that it has found and the result, where there are some.
    fn start(folder: &Path, until: u64) -> Vec<(Option<u64>, Option<[f64; 2]>)> {
        start_on(RANKS, folder, until)
    }

    fn start_on(ranks: usize, folder: &Path, until: u64) -> Vec<(Option<u64>, Option<[f64; 2]>)> {
        let started = threads::run(ranks, |world| {
            let options = options(folder);
            let regions = REGIONS.map(Region::of::<f64>);
            let mut saved = match open(&world, &options, &regions)? {
                Next::Compute(saved) => saved,
                Next::Report(ended) => {
                    let result = ended.result();
                    ended.clear()?;
                    return Ok((None, Some(result)));
                }
            };
            let comm = saved.comm()?;
            assert_eq!(comm.rank(), saved.rank());
            let found = saved.state::<u64>();
            for (region, values) in saved.regions::<f64, 2>().into_iter().enumerate() {
                assert_eq!(values.len(), REGIONS[region]);
                for (at, value_found) in values.iter().enumerate() {
                    let want = found.map_or(0.0, |step| value(comm.rank(), step, region, at));
                    assert_eq!(*value_found, want);
                }
            }
            for step in found.unwrap_or(0) + 1..=until {
                for (region, values) in saved.regions::<f64, 2>().into_iter().enumerate() {
                    for (at, here) in values.iter_mut().enumerate() {
                        *here = value(comm.rank(), step, region, at);
                    }
                }
                assert_eq!(saved.checkpoint(&step)?.epoch, step);
            }
            if until == 6 {
                // It is dropped before it is reported, as by a death.
                _ = saved.finish(&[0.5, until as f64])?;
            }
            Ok::<_, CheckpointError>((found, None))
        });
        started.into_iter().map(Result::unwrap).collect()
    }

    fn segments(folder: &Path) -> Vec<skt_store::store::SegmentInfo> {
        Files::in_folder(folder).list().unwrap()
    }

    #[test]
    fn run_survives_loss_of_half_its_ranks_and_returns_its_result() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(start(folder.path(), 2), [(None, None); RANKS]);
        for info in segments(folder.path()) {
            if [1, 3].contains(&info.name.rank()) {
                assert!(Files::in_folder(folder.path()).remove(&info.name).unwrap());
            }
        }
        assert_eq!(start(folder.path(), 4), [(Some(2), None); RANKS]);
        assert_eq!(start(folder.path(), 6), [(Some(4), None); RANKS]);
        assert_eq!(segments(folder.path()).len(), RANKS);
        assert_eq!(start(folder.path(), 6), [(None, Some([0.5, 6.0])); RANKS]);
        assert_eq!(segments(folder.path()), []);
    }

    /// The options ask for two parities, for which there is no other rank.
    #[test]
    fn one_rank_continues_from_its_own_memory() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(start_on(1, folder.path(), 2), [(None, None)]);
        assert_eq!(start_on(1, folder.path(), 4), [(Some(2), None)]);
        assert_eq!(start_on(1, folder.path(), 6), [(Some(4), None)]);
        assert_eq!(start_on(1, folder.path(), 6), [(None, Some([0.5, 6.0]))]);
        assert_eq!(segments(folder.path()), []);
    }

    #[test]
    fn other_parameters_are_refused_by_all() {
        let folder = tempfile::tempdir().unwrap();
        start(folder.path(), 1);
        let refused = threads::run(RANKS, |world| {
            let mut options = options(folder.path());
            options.config.application = "another test".into();
            let opened = open(&world, &options, &REGIONS.map(Region::of::<f64>));
            Ok::<_, CommError>(matches!(opened, Err(CheckpointError::Refused(_))))
        });
        assert!(refused.into_iter().all(|refused| refused == Ok(true)));
    }

    #[test]
    fn checkpoints_are_due_at_once_then_by_mtbf() {
        let folder = tempfile::tempdir().unwrap();
        let due = threads::run(RANKS, |world| {
            let mut due = Vec::new();
            for (run, mtbf_seconds) in [("rare", 1e12), ("often", 0.0)] {
                let mut options = options(folder.path());
                (options.config.run_id, options.mtbf_seconds) = (run.to_owned(), mtbf_seconds);
                let Next::Compute(mut saved) = open(&world, &options, &[Region::of::<u8>(1)])?
                else {
                    panic!("nothing is there")
                };
                due.push(saved.is_due()?);
                saved.checkpoint(&0u64)?;
                due.push(saved.is_due()?);
                saved.finish(&0u64)?.clear()?;
            }
            Ok::<_, CheckpointError>(due)
        });
        for due in due {
            assert_eq!(due.unwrap(), [true, false, true, true]);
        }
    }

    struct CountsWaits(Arc<AtomicUsize>);

    impl Hook for CountsWaits {
        fn at(&self, _: &Step) -> skt_comm::Result<()> {
            Ok(())
        }

        fn waits(&self, _: &Wait) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits for the image of a first checkpoint, in a second one or at the end.
    fn wait_for_an_image(folder: &Path, in_checkpoint: bool) {
        let waited = threads::run(2, |world| {
            let waits = Arc::new(AtomicUsize::new(0));
            let mut options = options(folder).with_parities(1);
            options.hook = Arc::new(CountsWaits(waits.clone()));
            let levels: Levels = format!("local:{}", folder.display()).parse().expect("legal");
            let mut level = levels.open("client", 0, None, 1, true, 1.0).remove(0);
            // A write takes until the rank's hook has reported that it waits.
            let on_write = move |_| {
                let deadline = Instant::now() + Duration::from_secs(60);
                while waits.load(Ordering::SeqCst) == 0 {
                    assert!(Instant::now() < deadline, "the rank does not wait");
                    std::thread::yield_now();
                }
            };
            let disk = ImageFolder::open(folder, "client", 0, None).expect("a disk");
            level.disk = Arc::new(Observed(Box::new(disk), Arc::new(on_write)));
            level.every = ImagesEvery::Seconds(0.0);
            options.config.levels = vec![level];
            let Next::Compute(mut saved) = open(&world, &options, &[Region::of::<u8>(100)])? else {
                panic!("nothing is there")
            };
            saved.checkpoint(&1u64)?;
            if in_checkpoint {
                saved.checkpoint(&2u64)?;
            } else {
                assert_eq!(saved.finish_images()?, [true]);
            }
            assert_eq!(saved.finish(&0u64)?.clear()?.len(), 0);
            Ok::<_, CheckpointError>(())
        });
        waited.into_iter().for_each(|rank| rank.unwrap());
    }

    /// Two jobs of one name on hosts that share a file system alone.
    #[test]
    fn a_job_whose_images_another_one_has_is_refused() {
        let images = tempfile::tempdir().unwrap();
        let levels: Levels = format!("global:{}", images.path().display()).parse().expect("legal");
        let opened = |expected: Option<&'static str>| {
            let memory = tempfile::tempdir().unwrap();
            let ran = threads::run(2, |world| {
                let mut options = options(memory.path()).with_parities(1);
                options.levels = levels.clone();
                let opened = open(&world, &options, &[Region::of::<u8>(100)]);
                match (opened, expected) {
                    (Err(CheckpointError::Refused(held)), Some(expected)) => {
                        assert!(held.to_string().contains(expected), "{held}");
                    }
                    (Ok(Next::Compute(saved)), None) => {
                        assert_eq!(saved.finish(&0u64)?.clear()?.len(), 0);
                    }
                    _ => panic!("{expected:?}"),
                }
                Ok::<_, CheckpointError>(())
            });
            ran.into_iter().for_each(|rank| rank.unwrap());
        };
        let job = ImageJob {
            number: 7,
            host: "elsewhere".into(),
            supervisor: None,
            outlives_losses: false,
        };
        let folder = || ImageFolder::open(images.path(), "client", 0, Some(7));
        let owner = FolderOwner::take(&folder, &job, &[], &Supervised).unwrap().unwrap();
        opened(Some("on host elsewhere"));
        drop(owner);
        opened(None);
        assert_eq!(std::fs::read_dir(images.path()).unwrap().count(), 0, "nothing is left");
    }

    /// A supervisor would take the silence for a hang. Heartbeats go to standard error, so a
    /// process of their own writes them.
    #[test]
    fn waits_for_images_are_reported_to_the_supervisor() {
        const TEST: &str = "client::tests::waits_for_images_are_reported_to_the_supervisor";
        const WAITED: &str = "the image is waited for";
        if std::env::var_os(heartbeat::ENV).is_some() {
            for in_checkpoint in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                wait_for_an_image(folder.path(), in_checkpoint);
                eprintln!("{WAITED}");
            }
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(heartbeat::ENV, "heartbeats.1.2");
        let output = child.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{message}");
        let parts: Vec<&str> = message.split(WAITED).collect();
        assert_eq!(parts.len(), 3, "{message}");
        for part in &parts[..2] {
            let heartbeats = part.lines().filter_map(|line| {
                heartbeat::find_marked::<serde_json::Value>(line, heartbeat::MARK)
                    .map(|(_, sign)| sign)
            });
            let mut waits = heartbeats.filter(|sign| sign["phase"] == heartbeat::WAIT);
            let wait = waits.next().unwrap_or_else(|| panic!("no sign of a wait: {part}"));
            assert_eq!(wait["token"], "heartbeats.1.2");
            assert!(wait["expected_seconds"].is_f64(), "{wait}");
        }
    }

    /// All ranks are refused, and the reason names what differs, whichever rank differs.
    #[test]
    fn options_that_differ_between_ranks_are_refused_by_name() {
        type Change = fn(&mut Options);
        let changes: [(&str, Change); 13] = [
            ("store posix", |options| options.store_kind = StoreKind::Posix),
            ("levels ", |options| options.levels = "local:/x".parse().expect("legal")),
            ("mtbf_seconds 5", |options| options.mtbf_seconds = 5.0),
            ("run another", |options| options.config.run_id = "another".to_owned()),
            ("application else", |options| options.config.application = "else".to_owned()),
            ("resume require", |options| options.config.resume = Resume::Require),
            ("allow_shared_domains true", |options| options.config.allow_shared_domains = true),
            ("code sum", |options| options.config.code = CodecKind::Sum),
            ("members of a group 3", |options| options.config.members = 3),
            ("parities 1", |options| options.config.parities = 1),
            ("method double", |options| options.config.method = Method::Double),
            ("message_bytes 64", |options| options.config.message_bytes = 64),
            ("bands 7", |options| options.config.bands = 7),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (want, change) in changes {
            for odd in [0, RANKS - 1] {
                let tried = threads::run(RANKS, |world| {
                    let mut options = options(folder.path());
                    if world.rank() == odd {
                        change(&mut options);
                    }
                    match open(&world, &options, &[Region::of::<u8>(1)]) {
                        Err(CheckpointError::Refused(refusal)) => Ok(refusal.to_string()),
                        Err(error) => Err(error),
                        Ok(_) => panic!("{want}: it is open"),
                    }
                });
                let (first, value) = (odd.max(1), want.rsplit(' ').next().expect("a word"));
                let name = want.strip_suffix(value).expect("it ends with it");
                for message in tried.into_iter().map(|rank| rank.expect("it is refused")) {
                    assert!(message.starts_with(&format!("rank {first} has {name}")), "{message}");
                    let at = if odd == 0 { "rank 0 has " } else { name };
                    assert!(message.contains(&format!("{at}{value}")), "{message}");
                }
            }
        }
        assert!(Files::in_folder(folder.path()).list().expect("a store").is_empty());
    }

    /// The question costs one broadcast.
    #[test]
    fn without_levels_rank_0_decides_what_is_due_first() {
        let folder = tempfile::tempdir().unwrap();
        let has_decided = AtomicBool::new(false);
        let due = threads::run(RANKS, |world| {
            let options = options(folder.path());
            let Next::Compute(mut saved) = open(&world, &options, &[Region::of::<u8>(1)])? else {
                panic!("nothing is there")
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            while world.rank() > 0 && !has_decided.load(Ordering::SeqCst) {
                assert!(Instant::now() < deadline, "rank 0 waits for the others");
                std::thread::yield_now();
            }
            let due = saved.due()?;
            has_decided.store(true, Ordering::SeqCst);
            saved.finish(&0u64)?.clear()?;
            Ok::<_, CheckpointError>(due)
        });
        assert!(due.into_iter().all(|due| due.unwrap() == Due::Now));
    }

    proptest! {
        /// The padding is at most a thousandth of the region, and less than a cell more.
        #[test]
        fn a_region_fits_into_its_rows(bytes in prop_oneof![0usize..10_000, 0usize..1 << 40]) {
            let RegionShape { rows, pitch_bytes } = Region { bytes }.shape();
            let padding = rows * pitch_bytes - bytes;
            prop_assert!(padding < CELL_BYTES.max(bytes / ROWS + CELL_BYTES));
            prop_assert_eq!(pitch_bytes % CELL_BYTES, 0);
        }
    }
}
