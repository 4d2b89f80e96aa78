//! A run between `skt_init` and `skt_finalize`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use mpi::ffi;
use nix::errno::Errno;
use nix::libc;
use skt_checkpoint::checkpoint::decide::Surface;
use skt_checkpoint::client::{self, CheckpointError, Due, Next, Region, Saved};
use skt_comm::mpi::FailureWatch;
use skt_comm::pages::system_page_bytes;
use skt_comm::{Comm, CommError, Transport as _, collect};
use skt_host::clock::now_unix;
use twox_hash::XxHash3_64;

use crate::code::{Call, Code, Result, Stop, lost};
use crate::control::Control;
use crate::mover::{Direction, PIECE_BYTES, SktMover};
use crate::options::{Options, TIMEOUT_SECONDS};
use crate::table::{SavedState, Table, memory_bytes, seconds_of};
use crate::{identity, raw};

/// The program's memory that is copied at a checkpoint ("yours").
#[derive(Clone, Copy)]
struct Yours {
    at: *mut u8,
    count: usize,
    size: usize,
    /// What copies it, if it is not memory of the host.
    callbacks: Option<SktMover>,
}

// SAFETY: an address and callbacks, which are used within calls of the library alone. These are
// made by one thread at a time, and the program keeps the memory alive until it takes it back.
unsafe impl Send for Yours {}

pub(crate) struct Session {
    run_id: &'static str,
    saved: Saved<'static>,
    control: Arc<Mutex<Control>>,
    /// The program's ranks, in the order of their data.
    comm: ffi::MPI_Comm,
    memory_bytes: usize,
    /// The regions that the memory has: those of the checkpoint that this start resumes from, until
    /// they are restored; then only those of the library's memory.
    table: Table,
    /// The regions of the checkpoint that this start resumes from.
    found: Table,
    /// The regions of the program's memory.
    yours: BTreeMap<i32, Yours>,
    /// Whether the memory has copies that are not restored yet.
    is_to_restore: bool,
    /// The refusal of a call that is not collective. The next collective call reports it on all
    /// ranks.
    refused: Option<Stop>,
    /// Seconds of the run before this start, and when this start began.
    before: (f64, Instant),
    /// The end of the job's time, in seconds since 1970; infinite without one.
    end_unix: f64,
    /// If a checkpoint is under way, the checksums of the regions of the library's memory, which
    /// must not change before it is complete.
    begun: Option<BTreeMap<i32, u64>>,
}

// SAFETY: a communicator is a handle; calls of MPI are made by one thread at a time.
unsafe impl Send for Session {}

pub(crate) enum InitOutcome {
    Run(Box<Session>),
    /// By an earlier start. Nothing of the run is left but the images that this text names.
    Ended(String),
}

/// Reported once to a program on one rank, by the message of `skt_init`.
const ALONE: &str = "one rank has no redundancy against lost memory: its checkpoints survive the \
                     death of the process; only images of a level survive the loss of the host";

/// Locks the control, also after a panic.
fn lock(control: &Mutex<Control>) -> std::sync::MutexGuard<'_, Control> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stop_of(error: CheckpointError) -> Stop {
    match &error {
        CheckpointError::Refused(refusal) => {
            Stop::new(Code::Refused, refusal.text(Surface::Library))
        }
        CheckpointError::Comm(CommError::Aborted { reason, .. }) => Stop::over(Code::Lost, reason),
        CheckpointError::Comm(why) => lost(why),
        CheckpointError::Memory { .. } | CheckpointError::Level { .. } => {
            Stop::over(Code::System, error.to_string())
        }
        CheckpointError::NoLevels(_) | CheckpointError::Code { .. } => {
            Stop::over(Code::Options, error.to_string())
        }
        CheckpointError::StateTooLarge { .. } => Stop::over(Code::Internal, error.to_string()),
    }
}

/// Reports the failure of a step within a call to the other ranks, as they may wait for this one.
fn or_notify<T>(
    control: &Mutex<Control>,
    outcome: std::result::Result<T, CheckpointError>,
) -> Result<T> {
    outcome.map_err(|error| {
        let control = lock(control);
        // A failure that another rank has reported has a separate code.
        if let CheckpointError::Comm(CommError::Aborted { reason, code: Some(code) }) = &error
            && let Some(code) = Code::from_number(*code)
        {
            return Stop::over(code, reason);
        }
        let stop = stop_of(error);
        // A failure that does not end the run is the same on all ranks.
        if stop.is_over {
            control.notify_failure(&stop);
        }
        stop
    })
}

/// The watch of a rank that waits within a checkpoint: it finds the failures of other ranks.
fn watch(control: &Arc<Mutex<Control>>) -> FailureWatch {
    let control = control.clone();
    Arc::new(move || {
        // The control is locked while this rank agrees on a call, and checks for failures itself.
        let control = match control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        match control.failed() {
            Ok(None) => Ok(()),
            Ok(Some(Stop { code, text, .. })) | Err(Stop { code, text, .. }) => {
                Err(CommError::Aborted { reason: text, code: Some(code as i32) })
            }
        }
    })
}

impl Session {
    /// With room for regions of `bytes` on the rank that has most. Collective.
    pub(crate) fn begin(
        comm: ffi::MPI_Comm,
        bytes: usize,
        options: Result<Options>,
    ) -> Result<InitOutcome> {
        // A rank whose options are not legal waits for the others, which may have the default.
        let seconds = options.as_ref().map_or(TIMEOUT_SECONDS, |options| options.timeout_seconds);
        let timeout = Duration::from_secs_f64(seconds);
        let control = Control::new(raw::duplicate(comm, timeout)?, seconds);
        let here = options.and_then(|options| options.on_host(&control.comm().host()));
        let here = here.and_then(|options| match memory_bytes(bytes) {
            Some(_) if bytes > 0 => Ok(options),
            _ => Err(Stop::new(Code::Argument, format!("skt_init: {bytes} bytes to protect"))),
        });
        let control = Arc::new(Mutex::new(control));
        let begun = Self::agree_and_open(comm, &control, bytes, here);
        if begun.as_ref().is_err_and(|stop| stop.is_over) {
            // Other ranks may still send to the control, so it lives as long as the process.
            std::mem::forget(control);
        }
        begun
    }

    /// What the program should know of a run that has begun; empty if its ranks protect each other.
    pub(crate) fn redundancy(&self) -> &'static str {
        if self.saved.is_alone() { ALONE } else { "" }
    }

    fn agree_and_open(
        comm: ffi::MPI_Comm,
        control: &Arc<Mutex<Control>>,
        bytes: usize,
        here: Result<Options>,
    ) -> Result<InitOutcome> {
        let job = {
            let control = lock(control);
            control.agree(Call::Init, here.as_ref().err(), false, &mut || Ok(()))?;
            let job = control.comm().split(Some(0), control.comm().rank() as u32);
            job.map_err(|why| lost(&why))?.expect("a colour")
        };
        let job = job.watched(watch(control));
        let options = here?;
        options.agree(&job).map_err(|why| lost(&why))??;
        let mut client = options.client;
        client.config.application = match options.application {
            Some(given) => given,
            None => identity::agree(&job, &client.config.run_id).map_err(|why| lost(&why))??,
        };
        Self::open(comm, job, control.clone(), bytes, client)
    }

    fn open(
        comm: ffi::MPI_Comm,
        job: Comm,
        control: Arc<Mutex<Control>>,
        bytes: usize,
        mut options: client::Options,
    ) -> Result<InitOutcome> {
        // The clock of rank 0 and its environment determine when the job's time ends.
        let mut end_unix = [options.end_unix.unwrap_or(f64::INFINITY)];
        let shared_end = collect::broadcast(&job, &mut end_unix, 0);
        or_notify(&control, shared_end.map_err(CheckpointError::from))?;
        let end_unix = end_unix[0];
        options.end_unix = end_unix.is_finite().then_some(end_unix);
        let mut most = [bytes as u64];
        let largest = collect::all_reduce(&job, &mut most, u64::max);
        or_notify(&control, largest.map_err(CheckpointError::from))?;
        let memory_bytes = memory_bytes(most[0] as usize).expect("each rank has checked its own");
        // The options of each run stay for the rest of the process.
        let options: &'static client::Options = Box::leak(Box::new(options));
        let next = client::open(&job, options, &[Region::of::<u8>(memory_bytes)]);
        let mut saved = match or_notify(&control, next)? {
            Next::Compute(saved) => saved,
            Next::Report(ended) => {
                let stay = or_notify(&control, ended.clear())?;
                identity::note_ended(&options.config.run_id);
                return Ok(InitOutcome::Ended(format_errors(&stay)));
            }
        };
        let table = match saved.recovered() {
            Some(_) => Table::read(&saved.regions::<u8, 1>()[0][..memory_bytes]),
            None => Ok(Table::default()),
        };
        lock(&control).agree(Call::Opened, table.as_ref().err(), false, &mut || Ok(()))?;
        let (table, comm) = (table?, raw::reorder(comm, saved.rank())?);
        let is_to_restore = table.entries().any(|entry| !entry.is_ours());
        let (found, yours, refused, begun) = (table.clone(), BTreeMap::new(), None, None);
        let before_seconds = saved.recovered().map_or(0.0, |found| seconds_of(&found.state));
        let before = (before_seconds, Instant::now());
        Ok(InitOutcome::Run(Box::new(Self {
            run_id: &options.config.run_id,
            saved,
            control,
            comm,
            memory_bytes,
            table,
            found,
            yours,
            is_to_restore,
            refused,
            before,
            end_unix,
            begun,
        })))
    }

    /// The program's ranks, in the order of their data.
    pub(crate) fn comm(&self) -> ffi::MPI_Comm {
        self.comm
    }

    /// The addresses of the library's memory for the regions.
    pub(crate) fn memory_addresses(&mut self) -> std::ops::Range<usize> {
        let memory = self.saved.bytes().remove(0).as_ptr_range();
        memory.start.addr()..memory.end.addr()
    }

    /// The number of the checkpoint that this start resumes from; 0 if the run begins.
    pub(crate) fn found(&self) -> u64 {
        self.saved.recovered().map_or(0, |recovered| recovered.epoch)
    }

    /// Items and bytes of an item of a region, as the checkpoint has it.
    pub(crate) fn saved_size(&self, id: i32) -> Option<(usize, usize)> {
        self.found.get(id).map(|entry| (entry.count as usize, entry.size as usize))
    }

    /// Memory of the library for a region, with the checkpoint's contents or zeros.
    pub(crate) fn alloc(&mut self, id: i32, count: usize, size: usize) -> Result<*mut u8> {
        let memory = self.place_ours(id, count, size);
        self.remember(memory)
    }

    fn place_ours(&mut self, id: i32, count: usize, size: usize) -> Result<*mut u8> {
        if self.yours.contains_key(&id) {
            return Err(Stop::new(Code::Order, format!("region {id} is protected already")));
        }
        let (entry, is_new) = match self.table.get(id) {
            Some(entry) => (*entry, false),
            // New memory is cleared, which would change what a checkpoint saves.
            None if self.begun.is_some() => return Err(under_way("skt_alloc")),
            None => {
                let mut table = self.table.clone();
                let entry = table.add_ours(id, count, size, self.memory_bytes)?;
                // The copies of the protected regions must fit in addition to the new one.
                self.layout(&table)?;
                self.table = table;
                (entry, true)
            }
        };
        if !entry.is_ours() || (entry.count, entry.size) != (count as u64, size as u64) {
            let whose = if entry.is_ours() { "skt_alloc" } else { "skt_protect" };
            let text = format!(
                "region {id} is {} x {} bytes of {whose} in this run, here it is {count} x {size} of \
                 skt_alloc",
                entry.count, entry.size
            );
            return Err(Stop::new(Code::Region, text));
        }
        let memory = &mut self.saved.bytes().remove(0)[entry.range()];
        if is_new {
            memory.fill(0);
        }
        Ok(memory.as_mut_ptr())
    }

    /// `at` is where the memory of the region is from now on, with what copies it, or why the
    /// program's arguments are not legal. After an error the region is no longer protected, as the
    /// program may have freed its old memory. All ranks are notified in the next collective call,
    /// so no checkpoint lacks the region unnoticed.
    pub(crate) fn protect(
        &mut self,
        id: i32,
        at: Result<(*mut u8, Option<SktMover>)>,
        count: usize,
        size: usize,
    ) -> Result<()> {
        let done =
            at.and_then(|(at, callbacks)| self.register(id, Yours { at, count, size, callbacks }));
        if done.is_err() {
            self.yours.remove(&id);
        }
        self.remember(done)
    }

    fn register(&mut self, id: i32, region: Yours) -> Result<()> {
        if self.table.get(id).is_some_and(|entry| entry.is_ours()) {
            return Err(Stop::new(Code::Order, format!("region {id} is memory of skt_alloc")));
        }
        let ours = self.saved.bytes().remove(0).as_ptr_range();
        let end = (region.at as usize).saturating_add(region.count * region.size);
        let is_host = region.callbacks.is_none();
        if is_host && (region.at as usize) < ours.end as usize && end > ours.start as usize {
            let text = format!("skt_protect: region {id} lies in memory of skt_alloc");
            return Err(Stop::new(Code::Argument, text));
        }
        self.yours.insert(id, region);
        self.layout(&self.table)?;
        if is_host && !is_mapped(region.at, region.count * region.size) {
            let text = format!(
                "skt_protect: the memory of region {id} is not accessible to the host: that of a \
                 device needs skt_protect_with"
            );
            return Err(Stop::new(Code::Argument, text));
        }
        Ok(())
    }

    pub(crate) fn unprotect(&mut self, id: i32) -> Result<()> {
        if self.yours.remove(&id).is_some() {
            return Ok(());
        }
        let is_ours = self.table.get(id).is_some_and(|entry| entry.is_ours());
        let why = if is_ours { "is of skt_alloc, and stays" } else { "is not protected" };
        Err(Stop::new(Code::Argument, format!("region {id} {why}")))
    }

    /// Keeps a failure for the next collective call, which reports it on all ranks.
    pub(crate) fn remember<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(stop) = &outcome {
            self.refused.get_or_insert_with(|| stop.clone());
        }
        outcome
    }

    /// The library's memory of `table`, and copies of all that the program protects.
    fn layout(&self, table: &Table) -> Result<Table> {
        let sizes = self.yours.iter().map(|(&id, yours)| (id, yours.count, yours.size));
        table.with_yours(sizes, self.memory_bytes)
    }

    /// Agrees on a call. Returns whether any rank has regions that only callbacks can copy.
    fn agree(&mut self, call: Call, wrong: Option<Stop>) -> Result<bool> {
        let wrong = self.refused.take().or(wrong);
        let has_devices = self.yours.values().any(|yours| yours.callbacks.is_some());
        let (saved, is_under_way) = (&mut self.saved, self.begun.is_some());
        // Ranks that still test a checkpoint may need this one's part of it.
        let mut while_waiting = || {
            if is_under_way { saved.poll().map(drop).map_err(stop_of) } else { Ok(()) }
        };
        lock(&self.control).agree(call, wrong.as_ref(), has_devices, &mut while_waiting)
    }

    /// Copies the regions that only callbacks can copy, in the call on which all ranks have agreed.
    /// Collective if any rank has such regions.
    fn copy_devices(&mut self, call: Call, table: &Table, direction: Direction) -> Result<()> {
        let (mut progress, memory) = (self.saved.copy_progress(), self.saved.bytes().remove(0));
        let control = &self.control;
        let mut yours = self.yours.iter();
        let copied = yours.try_for_each(|(&id, &Yours { at, callbacks, .. })| {
            let Some(callbacks) = callbacks else { return Ok(()) };
            let memory = &mut memory[table.get(id).expect("placed").range()];
            let mut pieces = memory.chunks_mut(PIECE_BYTES).enumerate();
            pieces.try_for_each(|(index, piece)| {
                progress.report();
                lock(control).failed()?.map_or(Ok(()), Err)?;
                callbacks.copy((id, at.cast()), direction, index * PIECE_BYTES, piece)
            })
        });
        match copied {
            Err(stop) if stop.is_over => Err(stop),
            copied => lock(control).conclude(call, copied.err().as_ref()),
        }
    }

    /// Copies the program's regions back from the checkpoint. Collective.
    pub(crate) fn restore(&mut self) -> Result<()> {
        let wrong = self.misfit();
        let with_devices = self.agree(Call::Restore, wrong)?;
        let memory = self.saved.bytes().remove(0);
        for (id, yours) in self.yours.iter().filter(|(_, yours)| yours.callbacks.is_none()) {
            let copy = &memory[self.table.get(*id).expect("it fits").range()];
            // SAFETY: the program has given this memory, of as many bytes, for the library to write
            // to in this call; `register` refuses memory of the library.
            unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), yours.at, copy.len()) };
        }
        if with_devices {
            let table = self.table.clone();
            self.copy_devices(Call::Restore, &table, Direction::FromHost)?;
        }
        self.table = self.table.with_yours(std::iter::empty(), self.memory_bytes)?;
        self.is_to_restore = false;
        Ok(())
    }

    fn misfit(&self) -> Option<Stop> {
        if self.found() == 0 {
            return Some(Stop::new(Code::Order, "skt_restore: there is no checkpoint (skt_found)"));
        }
        let missing = |text: String| Some(Stop::new(Code::Region, text));
        if let Some(id) = self.yours.keys().find(|&&id| self.found.get(id).is_none()) {
            return missing(format!("region {id} is not in the checkpoint"));
        }
        if !self.is_to_restore && !self.yours.is_empty() {
            return Some(Stop::new(Code::Order, "skt_restore: the regions are restored already"));
        }
        for (&id, yours) in &self.yours {
            let entry = self.found.get(id).expect("looked for above");
            let (there, here) = ((entry.count, entry.size), (yours.count, yours.size));
            if there != (here.0 as u64, here.1 as u64) {
                return missing(format!(
                    "region {id} is {} x {} bytes in the checkpoint, here it is {} x {}: protect \
                     as many as skt_saved returns, or run with the earlier size",
                    there.0, there.1, here.0, here.1
                ));
            }
        }
        let left =
            self.table.entries().find(|e| !e.is_ours() && !self.yours.contains_key(&e.id))?;
        missing(format!(
            "region {} of the checkpoint is not protected: call skt_protect or skt_protect_with \
             first",
            left.id
        ))
    }

    /// Saves all regions. Collective.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.copy(Call::Checkpoint)?;
        let done = self.saved.checkpoint(&self.state());
        or_notify(&self.control, done)?;
        self.wait_for_disks()
    }

    /// Waits at the end of a checkpoint until no rank waits for its disk any more. Collective.
    ///
    /// A rank may still wait until its disk has written the image of the checkpoint before. In the
    /// next call, whose time is limited, the others would give it up. Here the wait has no limit,
    /// and a rank that dies or fails is found. A rank that is here has written and stamped the
    /// checkpoint, and all ranks have its parities: a job that dies before, within or after this
    /// wait continues from the checkpoint, as it would without the wait.
    fn wait_for_disks(&self) -> Result<()> {
        if self.saved.levels().is_empty() {
            return Ok(());
        }
        or_notify(&self.control, self.saved.barrier())
    }

    /// Copies the program's regions, which are free again then, and begins to save. Collective.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<()> {
        self.copy(Call::Begin)?;
        self.begun = Some(self.sums_of_ours());
        // SAFETY: the library writes to its memory in `copy`, which refuses to while a checkpoint
        // is under way, and in `place_ours`, which refuses new regions then. The program has
        // pointers to regions of the library's memory and is not allowed to write there;
        // `end_checkpoint` checks whether it has.
        let done = unsafe { self.saved.begin() };
        or_notify(&self.control, done)
    }

    /// Returns whether this rank has nothing left to do before [`Session::end_checkpoint`].
    pub(crate) fn test_checkpoint(&mut self) -> Result<bool> {
        if self.begun.is_none() {
            return Err(not_under_way("skt_checkpoint_test"));
        }
        // A rank may test in a loop without any call that checks for failures.
        if let Some(stop) = lock(&self.control).failed()? {
            return Err(stop);
        }
        let polled = self.saved.poll();
        or_notify(&self.control, polled)
    }

    /// Completes the checkpoint that has begun. Collective.
    pub(crate) fn end_checkpoint(&mut self) -> Result<()> {
        let wrong = match self.begun.clone() {
            None => Some(not_under_way("skt_checkpoint_wait")),
            Some(begun) => self.changed_since(&begun),
        };
        self.agree(Call::Wait, wrong)?;
        let done = self.saved.complete(&self.state());
        self.begun = None;
        or_notify(&self.control, done)?;
        self.wait_for_disks()
    }

    fn sums_of_ours(&mut self) -> BTreeMap<i32, u64> {
        let memory = self.saved.bytes().remove(0);
        let ours = self.table.entries().filter(|entry| entry.is_ours());
        ours.map(|entry| (entry.id, XxHash3_64::oneshot(&memory[entry.range()]))).collect()
    }

    /// The error if a region of the library's memory has other checksums than before: its parities
    /// and its copy would have different contents. The last checkpoint is whole, but this job
    /// cannot continue from it, as other ranks of the job have begun to encode.
    fn changed_since(&mut self, begun: &BTreeMap<i32, u64>) -> Option<Stop> {
        let now = self.sums_of_ours();
        let (id, _) = now.iter().find(|(id, sum)| begun.get(id) != Some(sum))?;
        let text = format!(
            "region {id} of skt_alloc was written to between skt_checkpoint_begin and \
             skt_checkpoint_wait, so nothing is saved. End this job; the next start continues from \
             the checkpoint before"
        );
        Some(Stop::over(Code::Region, text))
    }

    /// Copies the program's regions and the table into the memory that is saved. Collective.
    fn copy(&mut self, call: Call) -> Result<()> {
        let table = self.layout(&self.table);
        let name = call.name();
        let wrong = match &table {
            _ if self.begun.is_some() => Some(under_way(name)),
            _ if self.is_to_restore => {
                let text = format!(
                    "{name}: the checkpoint that was found is not restored; call skt_restore first"
                );
                Some(Stop::new(Code::Order, text))
            }
            Err(stop) => Some(stop.clone()),
            Ok(table) if table.entries().next().is_none() => {
                Some(Stop::new(Code::Order, format!("{name}: nothing is protected")))
            }
            Ok(_) => None,
        };
        let with_devices = self.agree(call, wrong)?;
        let begun = Instant::now();
        let (table, memory) = (table?, self.saved.bytes().remove(0));
        table.write(memory);
        for (id, yours) in self.yours.iter().filter(|(_, yours)| yours.callbacks.is_none()) {
            let copy = &mut memory[table.get(*id).expect("placed").range()];
            // SAFETY: the program has given this memory, of as many bytes, for the library to read
            // in this call; `register` refuses memory of the library.
            unsafe { std::ptr::copy_nonoverlapping(yours.at, copy.as_mut_ptr(), copy.len()) };
        }
        if with_devices {
            self.copy_devices(call, &table, Direction::ToHost)?;
        }
        self.saved.note_copied(begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn state(&self) -> SavedState {
        let (before_seconds, since) = self.before;
        SavedState::new(before_seconds + since.elapsed().as_secs_f64())
    }

    /// Alike on all ranks: never while a checkpoint is under way. Collective.
    pub(crate) fn due(&mut self) -> Result<Due> {
        self.agree(Call::Due, None)?;
        if self.begun.is_some() {
            return Ok(Due::No);
        }
        let due = self.saved.due();
        or_notify(&self.control, due)
    }

    /// Seconds up to the end of the job's time, by the clock of this node; infinite without one.
    pub(crate) fn seconds_left(&self) -> f64 {
        self.end_unix - now_unix()
    }

    /// The newest checkpoint of which all ranks are known to have an image on a level; 0: none.
    pub(crate) fn image(&self, level: i32) -> Result<u64> {
        let levels = self.saved.levels();
        let Some(report) = usize::try_from(level).ok().and_then(|level| levels.get(level)) else {
            let text = format!("skt_image: level {level} of {} (from 0 on)", levels.len());
            return Err(Stop::new(Code::Argument, text));
        };
        let elsewhere = || report.is_over.then(|| "a write has failed on another rank".to_owned());
        match report.failure.clone().or_else(elsewhere) {
            None => Ok(report.complete_epoch),
            Some(why) => {
                let text = format!("{}: {why}. The run continues without this level", report.name);
                Err(Stop::new(Code::Level, text))
            }
        }
    }

    /// Waits for the images that are being written. Collective.
    pub(crate) fn wait_for_images(&mut self) -> Result<()> {
        let wrong = self.begun.is_some().then(|| under_way("skt_images_wait"));
        self.agree(Call::Images, wrong)?;
        let done = self.saved.finish_images();
        or_notify(&self.control, done).map(drop)
    }

    /// Agrees that all ranks end the run, with the same argument. Collective.
    pub(crate) fn agree_on_end(&mut self, is_done: bool) -> Result<()> {
        let call = if is_done { Call::Done } else { Call::Later };
        let wrong = self.begun.is_some().then(|| under_way(call.name()));
        self.agree(call, wrong).map(drop)
    }

    /// Ends the run. If it is done, removes all of it, and returns a text that names the images
    /// that a failing level keeps, if any. Otherwise the next start resumes from the run's last
    /// checkpoint, whose images are completed. Collective.
    pub(crate) fn end(self, is_done: bool) -> Result<String> {
        let state = self.state();
        let Self { mut saved, control, comm, run_id, .. } = self;
        let mut stay = Vec::new();
        if is_done {
            let ended = or_notify(&control, saved.finish(&state))?;
            stay = or_notify(&control, ended.clear())?;
            identity::note_ended(run_id);
        } else {
            // The memory may be lost when the allocation ends.
            or_notify(&control, saved.finish_images())?;
            drop(saved);
        }
        raw::free(comm);
        Ok(format_errors(&stay))
    }

    pub(crate) fn notify_failure(&self, stop: &Stop) {
        lock(&self.control).notify_failure(stop);
    }
}

/// Whether the first and the last page of this memory are mapped: those of a device are not. The
/// memory is not accessed.
fn is_mapped(memory: *const u8, bytes: usize) -> bool {
    let page_bytes = system_page_bytes();
    let is_page = |address: usize| {
        let (page, mut residency) = (address / page_bytes * page_bytes, 0u8);
        // SAFETY: fails for a page that is not mapped, and otherwise writes one byte.
        let code = unsafe { libc::mincore(page as *mut _, 1, (&raw mut residency).cast()) };
        code == 0 || Errno::last() != Errno::ENOMEM
    };
    is_page(memory.addr()) && is_page(memory.addr().saturating_add(bytes - 1))
}

/// The images of a run that has ended which could not be removed; empty if there are none.
fn format_errors(stay: &[CheckpointError]) -> String {
    let why: Vec<String> = stay.iter().map(CheckpointError::to_string).collect();
    if why.is_empty() {
        return String::new();
    }
    let stay = "the run has ended, but images of it may stay, from which a start would continue";
    format!("{stay}: {}", why.join("; "))
}

fn under_way(call: &str) -> Stop {
    let text = format!("{call}: a checkpoint is under way; call skt_checkpoint_wait first");
    Stop::new(Code::Order, text)
}

fn not_under_way(call: &str) -> Stop {
    let text = format!("{call}: no checkpoint is under way; call skt_checkpoint_begin first");
    Stop::new(Code::Order, text)
}

#[cfg(test)]
mod tests {
    use skt_checkpoint::checkpoint::decide::Refusal;

    use super::*;

    #[test]
    fn flags_of_skt_hpl_are_options_here() {
        let text = |text: &str| text.to_owned();
        let (level, failure, why) = (text("global:/x"), text("stat: EIO"), text("nothing else"));
        let refusals = [
            Refusal::Unrecoverable { epoch: 3, lost: vec![], incomplete: vec![], parities: 1 },
            Refusal::Unrecoverable { epoch: 3, lost: vec![], incomplete: vec![1], parities: 1 },
            Refusal::Damaged { epoch: 3, level: None, damage: vec![], lost: vec![], parities: 1 },
            Refusal::OtherShape { process: 1, rank: 0, differences: text("rows 2, not 3") },
            Refusal::LevelFails { level, failure, why },
            Refusal::NothingFound { bare: 0, images: 0 },
            Refusal::NothingFound { bare: 2, images: 1 },
            Refusal::OfNoUse { why: "x".to_owned() },
        ];
        for refusal in refusals {
            let text = stop_of(CheckpointError::Refused(refusal)).text;
            assert!(!text.contains("--"), "{text}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_not_mapped() {
        let here = [1u8; 10];
        assert!(is_mapped(here.as_ptr(), 10));
        assert!(!is_mapped(here.as_ptr(), 1 << 46));
        assert!(!is_mapped(std::ptr::without_provenance(64), 1));
        assert!(!is_mapped(here.as_ptr(), usize::MAX));
    }
}
