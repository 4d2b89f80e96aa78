use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use skt_host::units;

use super::failed::Failed;
use crate::report::output;
use skt_checkpoint::checkpoint::level::folder::{
    Remover, job_at_work, remove_images_of, stored_images,
};
use skt_config::{Setting, ValueSource};
use skt_host::host::this_host;
use skt_host::launcher_rank;
use skt_run::protect::{is_mark, stored_checkpoints};
use skt_store::store::{Liveness, STORES, SegmentInfo, Store, StoreError, StoreKind, host};

mod runs;

const HOSTS: &str = "\
Segments are in the memory of the host where their rank ran, and this command sees those of the \
host that it runs on. For all hosts of a job, start it on each:
  mpirun --map-by ppr:1:node skt-hpl store list

`list` prints one line per run: the number of its segments here, their sum, and the age of the \
oldest. The state of the run is the first of these that applies:
  running     processes of the run are alive
  unknown     they are in another container and cannot be seen from here
  waiting     the run is interrupted: the same command continues from its segments
  incomplete  its processes died while they created segments: no run can use these
  ended       marks are left, by which nodes that were out of reach learn that the run has ended

`clean` removes segments that are ended or incomplete; with --run also the waiting ones of that \
run, which then cannot continue; with --force all, also those in use. With --images it removes \
images of the run that --run names, with --force those of all runs.

Checkpoints are shown by number and column, as 7(448); --resume 7 goes back to one.";

#[derive(Debug, Args)]
#[command(after_long_help = HOSTS)]
pub struct StoreArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: StoreAction,
}

/// What to do with segments and images.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// List what runs keep on this host, one line per run, and images
    #[command(after_long_help = HOSTS)]
    List(StoreFlags),
    /// Remove segments that no run can use, and images of a run
    #[command(after_long_help = HOSTS)]
    Clean {
        /// Remove data of this run only, also where the run could still continue from it
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Also remove segments that a run may need or is using
        #[arg(long)]
        force: bool,
        /// Where the segments and images are.
        #[command(flatten)]
        store: StoreFlags,
    },
}

/// Where segments are kept.
#[derive(Debug, Args)]
pub struct StoreFlags {
    /// Memory that outlives a process.
    #[arg(long, help = format!("Memory that outlives a process: {STORES}"), value_name = "STORE", default_value = "sysv")]
    pub store: String,
    /// Folder of a level, whose images are listed or removed, too; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub images: Vec<PathBuf>,
}

/// Carries out the subcommand, on each process of a job for its host.
pub fn execute(args: &StoreArgs) -> Result<(), Failed> {
    let mut out = Vec::new();
    if launcher_rank::size().is_some_and(|size| size > 1) {
        out.extend(format!("host {}:\n", this_host().name).into_bytes());
    }
    let done = match &args.action {
        StoreAction::List(from) => open(from).and_then(|store| {
            list(&*store, &mut out)?;
            list_images(&from.images, &mut out)
        }),
        StoreAction::Clean { run, force, store: from } => {
            let options = CleanOptions { run: run.clone(), force: *force };
            open(from).and_then(|store| {
                must_have(&options, &*store, &from.images)?;
                // Before the segments are removed: segments in use protect the images.
                clean_images(&from.images, &*store, &options, &mut out)?;
                let Cleaned { removed, removed_bytes, kept } = clean(&*store, &options, &mut out)?;
                let sum = units::bytes(removed_bytes);
                let segments = units::counted(removed, "segment");
                writeln!(out, "{segments} removed, {sum}; {kept} kept")?;
                Ok(())
            })
        }
    };
    // What was removed before an error is worth knowing.
    output::print(&String::from_utf8_lossy(&out))?;
    done
}

/// Refuses to remove data of a run that has none on this host, because the name may be misspelt. A
/// process of a job that cleans all hosts may have nothing to do.
fn must_have(options: &CleanOptions, store: &dyn Store, folders: &[PathBuf]) -> Result<(), Failed> {
    let Some(run) = &options.run else { return Ok(()) };
    let mut is_here = store.list_once()?.iter().any(|info| info.name.run() == run);
    for folder in folders {
        let images = stored_images(folder).map_err(images_failed)?;
        is_here = is_here || images.iter().any(|images| images.run == *run);
    }
    if is_here || launcher_rank::size().is_some_and(|size| size > 1) {
        Ok(())
    } else {
        Err(Failed::new(format!(
            "there is nothing of run `{run}` on this host: `skt-hpl store list`, with the --store \
             and --images of the run, shows what there is"
        )))
    }
}

fn open(arg: &StoreFlags) -> Result<Box<dyn Store + Send + Sync>, Failed> {
    match arg.store.parse::<StoreKind>() {
        Ok(kind) => Ok(kind.open()),
        Err(_) => {
            let (at, legal) =
                (Setting::Store.at(&ValueSource::Flag), Setting::Store.info().legal());
            Err(at.not_understood(&arg.store, "understood", &legal).into())
        }
    }
}

fn images_failed(why: std::io::Error) -> Failed {
    Failed::new(format!("images: {why}"))
}

#[derive(Debug, Clone, Default)]
pub struct CleanOptions {
    /// Of this run only, also where it could continue; `None` for segments of all runs.
    pub run: Option<String>,
    /// Also segments that a run may need or is using.
    pub force: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub removed: usize,
    pub removed_bytes: u64,
    pub kept: usize,
}

/// Writes one line per run that has segments here.
pub fn list(store: &(dyn Store + Send + Sync), out: &mut dyn Write) -> Result<(), Failed> {
    let segments = store.list()?;
    if segments.is_empty() {
        writeln!(out, "no segments")?;
        return Ok(());
    }
    let checkpoints = stored_checkpoints(store)?;
    Ok(runs::write(&segments, &checkpoints, host::now_unix_seconds(), out)?)
}

fn list_images(folders: &[PathBuf], out: &mut dyn Write) -> Result<(), Failed> {
    for folder in folders {
        let all = stored_images(folder).map_err(images_failed)?;
        if all.is_empty() {
            writeln!(out, "no images in {}", folder.display())?;
        } else {
            runs::write_images(&all, folder, host::now_unix_seconds(), out)?;
        }
    }
    Ok(())
}

/// Removes the images of the named run or, with `force`, of all runs.
fn clean_images(
    folders: &[PathBuf],
    store: &dyn Store,
    options: &CleanOptions,
    out: &mut dyn Write,
) -> Result<(), Failed> {
    let in_use: BTreeSet<String> = (store.list()?.iter())
        .filter(|segment| segment.in_use)
        .map(|segment| segment.name.run().to_owned())
        .collect();
    for folder in folders {
        let found = stored_images(folder).map_err(images_failed)?;
        let runs: BTreeSet<String> = found.into_iter().map(|images| images.run).collect();
        let is_named = |run: &String| options.run.as_ref().is_none_or(|named| named == run);
        for run in runs.into_iter().filter(is_named) {
            let at_work = || job_at_work(folder, &run).map_err(images_failed);
            let why = if options.force {
                None
            } else if options.run.is_none() {
                Some(format!("it can continue from them (--run {run} or --force"))
            } else if in_use.contains(&run) {
                Some("a process of it is at work here (--force".to_owned())
            } else {
                at_work()?.map(|job| format!("{job} is at work on them (--force"))
            };
            let at = folder.display();
            if let Some(why) = why {
                writeln!(
                    out,
                    "kept the images of run {run} in {at}: {why} removes them nevertheless)"
                )?;
                continue;
            }
            let removed = remove_images_of(folder, &run, Remover::User, |_| true);
            let (images, bytes) = removed.map_err(images_failed)?;
            let sum = units::bytes(bytes);
            writeln!(out, "removed {images} image(s) of run {run} in {at}, {sum}")?;
        }
    }
    Ok(())
}

fn state(segment: &SegmentInfo) -> &'static str {
    match (segment.in_use, segment.creator, segment.is_ready) {
        (true, ..) => "in use",
        (false, Liveness::Alive, _) => "live",
        (false, Liveness::Unknown, _) => "unknown",
        (false, Liveness::Dead, false) => "incomplete",
        (false, Liveness::Dead, true) if is_mark(segment) => "ended",
        (false, Liveness::Dead, true) => "waiting",
    }
}

/// Why a segment is kept, with the flags that remove it nevertheless.
fn reason_to_keep(segment: &SegmentInfo, options: &CleanOptions) -> Option<String> {
    let run = segment.name.run();
    match state(segment) {
        _ if options.force => None,
        "in use" | "live" => Some("its processes are running (--force".to_owned()),
        "unknown" => Some("its processes are in another container (--force".to_owned()),
        "waiting" if options.run.is_none() => {
            Some(format!("it can continue from them (--run {run} or --force"))
        }
        _ => None,
    }
}

/// Those of this program that there is no reason to keep; writes what was done by run.
pub fn clean(
    store: &dyn Store,
    options: &CleanOptions,
    out: &mut dyn Write,
) -> Result<Cleaned, Failed> {
    let mut done = Cleaned::default();
    let mut segments = store.list()?;
    segments.retain(|segment| options.run.as_ref().is_none_or(|run| run == segment.name.run()));
    for of_run in segments.chunk_by(|a, b| a.name.run() == b.name.run()) {
        let run = of_run[0].name.run();
        // Number and bytes of those removed, and of those kept for each reason.
        let mut outcomes: BTreeMap<Option<String>, (usize, u64)> = BTreeMap::new();
        let all = of_run.iter().try_for_each(|segment| {
            let (why, name) = (reason_to_keep(segment, options), &segment.name);
            let is_changed = why.is_none()
                && !if options.force {
                    store.remove(name)?
                } else {
                    // One that a process has begun to use since it was listed is kept.
                    store.remove_unused(name)?
                };
            if !is_changed {
                let sum = outcomes.entry(why).or_default();
                *sum = (sum.0 + 1, sum.1 + segment.bytes as u64);
            }
            Ok::<_, StoreError>(())
        });
        // What was removed before an error is reported, too.
        for (why, (count, bytes)) in outcomes {
            let (segments, sum) = (units::counted(count, "segment"), units::bytes(bytes));
            if let Some(why) = why {
                done.kept += count;
                writeln!(
                    out,
                    "kept {segments} of run {run}, {sum}: {why} removes them nevertheless)"
                )?;
            } else {
                done.removed += count;
                done.removed_bytes += bytes;
                writeln!(out, "removed {segments} of run {run}, {sum}")?;
            }
        }
        all?;
    }
    Ok(done)
}

/// Formats an age as `3d04h`, `4h05m`, `5m06s` or `6s`.
fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    if days > 0 {
        format!("{days}d{:02}h", hours % 24)
    } else if hours > 0 {
        format!("{hours}h{:02}m", minutes % 60)
    } else if minutes > 0 {
        format!("{minutes}m{:02}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_read_well() {
        let ages = [(6, "6s"), (306, "5m06s"), (14_700, "4h05m"), (273_600, "3d04h")];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
    }
}
