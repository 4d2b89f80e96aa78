//! The clients in `examples/c` and `examples/fortran`, killed with signal 9 at random times, with
//! memory kept, or lost on one rank, or on all at once with images on a level: at last they print
//! the bits of an undisturbed run, and nothing is left. What cannot be survived is refused with the
//! reason.
//!
//! `SKT_C_SEED` is the seed, `SKT_C_KILLS` the number of kills of each client without a level, with
//! a local and with a global one (`scripts/dev/soak-clients`).

#[path = "../../../../tests/dice/mod.rs"]
pub mod dice;
#[path = "../../../../tests/mpirun/mod.rs"]
pub mod mpirun;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dice::{Dice, seed};
use mpirun::mpirun;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skt_host::clock::now_unix;
use skt_store::store::{SegmentName, Store as _, SysV};

use crate::build::{checkout, compile_c, compile_fortran, under};

pub const RANKS: usize = 4;
/// A job without output for longer hangs.
pub const LIMIT: Duration = Duration::from_secs(180);
/// The longest time from a checkpoint of a job to the kill, in times between two checkpoints.
const PAUSE_CHECKPOINTS: u32 = 3;

/// A run of a client; its segments and images go with it.
pub struct Run {
    pub program: PathBuf,
    pub name: String,
    pub steps: u64,
    ranks: usize,
    /// Arguments after the steps, and one more of the second half of the ranks.
    pub more: Vec<String>,
    pub more_of_half: Option<String>,
    /// The folder that it is started in, if not that of the test.
    pub folder: Option<PathBuf>,
    level: Option<(tempfile::TempDir, &'static str)>,
    pub variables: Vec<(&'static str, String)>,
    /// A rank that alone has another variable, with its value.
    pub odd: Option<(usize, (&'static str, &'static str))>,
}

pub struct Ended {
    pub ok: bool,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    /// Checkpoints that it has reported.
    reported: usize,
    /// When it has reported that it stops, in seconds since 1970; 0 if it has not.
    stopped_unix: f64,
    /// The time between two checkpoints; zero without two.
    pub between: Duration,
}

impl Run {
    pub fn new(program: &Path, name: &str, steps: u64) -> Self {
        let name = format!("c-{}-{name}", std::process::id());
        Self {
            program: program.to_owned(),
            name,
            steps,
            ranks: RANKS,
            more: Vec::new(),
            more_of_half: None,
            folder: None,
            level: None,
            variables: Vec::new(),
            odd: None,
        }
    }

    /// With an image of each checkpoint.
    pub fn with_level(mut self, reach: &'static str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        self.level = Some((folder, reach));
        self
    }

    fn images(&self) -> usize {
        let folder = self.level.as_ref().map(|(folder, _)| folder.path());
        folder.map_or(0, |folder| fs::read_dir(folder).expect("our folder").count())
    }

    /// Ranks that are started alike: the number, a variable, and one more argument.
    fn parts(&self) -> Vec<(usize, String, Option<&String>)> {
        let usual = |ranks| (ranks, "A=".to_owned(), None);
        let mut parts = match (self.odd, &self.more_of_half) {
            (Some((odd, (variable, value))), _) => {
                let set = format!("{variable}={value}");
                vec![usual(odd), (1, set, None), usual(self.ranks - odd - 1)]
            }
            (None, Some(more)) => {
                let (ranks, variable, _) = usual(self.ranks / 2);
                vec![usual(self.ranks / 2), (ranks, variable, Some(more))]
            }
            (None, None) => vec![usual(self.ranks)],
        };
        parts.retain(|(ranks, ..)| *ranks > 0);
        parts
    }

    fn spawn(&self) -> Child {
        let parts = self.parts();
        let mut command = mpirun(parts[0].0);
        for (index, (ranks, variable, argument)) in parts.into_iter().enumerate() {
            if index > 0 {
                command.args([":", "-np", &ranks.to_string()]);
            }
            command.args(["env", &variable]).args(under()).arg(&self.program);
            command.arg(self.steps.to_string()).args(&self.more).args(argument);
        }
        command.current_dir(self.folder.as_deref().unwrap_or(Path::new(".")));
        command.env("SKT_RUN_ID", &self.name).stdin(Stdio::null());
        if let Some((folder, reach)) = &self.level {
            let level = format!("{reach}:{},every=1ms!,keep=1", folder.path().display());
            command.env("SKT_LEVELS", level);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun")
    }

    /// Kills `victims` some time after the run has reported its checkpoint number `after`.
    pub fn start(&self, victims: &[usize], after: usize, pause: Duration) -> Ended {
        let after = if victims.is_empty() { usize::MAX } else { after };
        self.start_and(after, || {
            let victims: Vec<i32> =
                victims.iter().filter_map(|&victim| process_of(&self.name, victim)).collect();
            std::thread::sleep(pause);
            signal_all(&victims, Signal::SIGKILL);
        })
    }

    /// Acts when the run has reported its checkpoint number `after`; at once if that is 0.
    pub fn start_and(&self, after: usize, act: impl FnOnce()) -> Ended {
        let (mut job, mut act) = (self.spawn(), Some(act));
        if let Some(act) = act.take_if(|_| after == 0) {
            act();
        }
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(job.stderr.take().expect("piped"));
        std::thread::spawn(move || stderr.lines().try_for_each(|line| sender.send(line.unwrap())));
        let (mut reported, mut err, mut at, mut stopped_unix) = (0, String::new(), Vec::new(), 0.0);
        loop {
            let line = match lines.recv_timeout(LIMIT) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // mpirun ends its ranks.
                    kill(Pid::from_raw(job.id() as i32), Signal::SIGTERM).expect("our child");
                    panic!("{}: hangs: {err}", self.name);
                }
            };
            if line.starts_with("stops at step ") {
                stopped_unix = now_unix();
            }
            if line.starts_with("checkpoint at step ") {
                at.push(Instant::now());
                reported += 1;
            }
            if reported == after
                && line.starts_with("checkpoint at step ")
                && let Some(act) = act.take()
            {
                act();
            }
            err += &(line + "\n");
        }
        let mut out = String::new();
        job.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        let between = match at[..] {
            [first, .., last] => (last - first) / (at.len() as u32 - 1),
            _ => Duration::ZERO,
        };
        let out = client_output(&out);
        let status = job.wait().expect("our child");
        Ended {
            ok: status.success(),
            code: status.code(),
            out,
            err,
            reported,
            stopped_unix,
            between,
        }
    }

    pub fn segments(&self) -> Vec<SegmentName> {
        let names =
            SysV::new(false).list_once().expect("a store").into_iter().map(|info| info.name);
        names.filter(|name| name.run() == self.name).collect()
    }

    fn memory(&self) -> Vec<SegmentName> {
        self.segments().into_iter().filter(|name| name.role().starts_with('t')).collect()
    }

    /// Removes the memory of a rank, as a node that loses its power does.
    pub fn lose(&self, rank: u32) {
        for name in self.memory().into_iter().filter(|name| name.rank() == rank) {
            SysV::new(false).remove(&name).expect("no process has it open");
        }
    }

    /// Removes all memory of the run, as a power cut does.
    pub fn lose_all(&self) {
        for name in self.segments() {
            SysV::new(false).remove(&name).expect("no process has it open");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for name in self.segments() {
            // A test that fails cleans up as well as it can.
            let _ = SysV::new(false).remove(&name);
        }
    }
}

/// The process of a rank of a run, by the launcher's order.
pub fn process_of(run: &str, rank: usize) -> Option<i32> {
    let ranks = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="].map(|name| format!("{name}{rank}"));
    let run = format!("SKT_RUN_ID={run}");
    let is_it = |pid: &i32| {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut entries = text.split('\0');
        entries.clone().any(|entry| entry == run) && entries.any(|e| ranks.iter().any(|r| r == e))
    };
    let pids = fs::read_dir("/proc").expect("Linux").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

/// Sends a signal to processes, which may have ended in the meantime.
pub fn signal_all(processes: &[i32], signal: Signal) {
    for &process in processes {
        let _ = kill(Pid::from_raw(process), signal);
    }
}

/// Without that of the launcher: Hydra reports a rank that was killed on standard output.
fn client_output(out: &str) -> String {
    let lines = out.lines().filter(|line| line.starts_with("sum of squares "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn output_of_hydra_is_not_a_result() {
    let bar = "=".repeat(83);
    let hydra = format!(
        "\n{bar}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n{bar}\n\
         YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    );
    assert_eq!(client_output(&hydra), "");
    assert_eq!(client_output(&format!("sum of squares 1.5\n{hydra}")), "sum of squares 1.5\n");
}

pub fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

enum Loss {
    Nothing,
    Memory(u32),
    AllMemory,
    /// More than a group of one parity survives.
    TooMuch([u32; 2]),
}

impl Loss {
    fn random(dice: &mut Dice, has_level: bool) -> Self {
        let first = dice.roll(RANKS) as u32;
        match dice.roll(6) {
            0 => Self::Nothing,
            1..=3 => Self::Memory(first),
            _ if has_level => Self::AllMemory,
            _ => Self::TooMuch([first, (first + 1 + dice.roll(RANKS - 1) as u32) % RANKS as u32]),
        }
    }
}

#[derive(Default)]
struct Known {
    /// Whether an earlier start has left a checkpoint in memory.
    in_memory: bool,
    /// Whether an earlier start has left a checkpoint of which all ranks have an image.
    in_images: bool,
    /// Whether memory may have gone before there were images.
    is_doubtful: bool,
    /// Whether an earlier start has printed the result.
    is_printed: bool,
}

impl Known {
    /// Whether a start that has found something is right, and one that has found nothing.
    fn may_continue(&self, continues: bool) -> bool {
        let must = self.in_memory || self.in_images;
        // A start whose result is printed may be killed before, within or after the end of the run:
        // the next one continues, has nothing to do, or restarts from scratch.
        self.is_printed || continues == must || (continues && self.is_doubtful)
    }
}

/// Kills a client without a level several times, then lets it end; then the same with a level.
/// Returns its result.
pub fn survives(program: &Path, name: &str, steps: u64) -> String {
    // Under valgrind steps take thirty times as long.
    let steps = if under().is_empty() { steps } else { steps / 3 };
    let undisturbed = Run::new(program, &format!("{name}-undisturbed"), steps).start(&[], 0, LIMIT);
    assert!(
        undisturbed.ok && undisturbed.out.starts_with("sum of squares "),
        "{}",
        undisturbed.err
    );
    let mut dice = Dice(seed("SKT_C_SEED"));
    survives_as(&Run::new(program, name, steps), &undisturbed, &mut dice);
    // By default one of the two: which differs from client to client.
    let is_soak = std::env::var_os("SKT_C_KILLS").is_some();
    let some = if is_soak { 1 } else { 2 };
    for reach in ["local", "global"].into_iter().skip(name.len() % some).step_by(some) {
        let run = Run::new(program, &format!("{name}-{reach}"), steps).with_level(reach);
        survives_as(&run, &undisturbed, &mut dice);
    }
    undisturbed.out
}

fn survives_as(run: &Run, undisturbed: &Ended, dice: &mut Dice) {
    let longest_pause = undisturbed.between * PAUSE_CHECKPOINTS;
    let (mut kills, mut rebuilt, mut cuts, mut from_images, mut refused) = (0, 0, 0, 0, 0);
    let mut known = Known::default();
    for kill in 0..=number("SKT_C_KILLS", 3) {
        let is_last = kill == number("SKT_C_KILLS", 3);
        let victims = if is_last { Vec::new() } else { victims(dice) };
        let pause = longest_pause * dice.roll(1000) as u32 / 1000;
        let ended = run.start(&victims, 1 + dice.roll(4), pause);
        let continues = ended.err.contains("continues from step ");
        assert!(known.may_continue(continues), "{}: {}", run.name, ended.err);
        from_images += usize::from(continues && !known.in_memory);
        let is_right = ended.out == undisturbed.out || ended.out.is_empty();
        assert!(is_right, "the result has other bits: {}{}", ended.out, ended.err);
        known.is_printed |= !ended.out.is_empty();
        assert!(!ended.ok || known.is_printed, "{}", ended.err);
        if ended.ok {
            // It was faster than the kill: the next start begins from scratch.
            known = Known::default();
            continue;
        }
        assert!(!is_last, "{}", ended.err);
        kills += 1;
        known.in_memory = true;
        // At the third checkpoint all ranks had completed their images of the first: that of each
        // checkpoint is waited for by the next, and reported at the one after it.
        let has_level = run.level.is_some();
        known.in_images |= has_level && ended.reported >= 3;
        known.is_doubtful |= has_level;
        match Loss::random(dice, has_level) {
            Loss::Nothing => {}
            Loss::Memory(rank) => {
                run.lose(rank);
                rebuilt += 1;
            }
            Loss::AllMemory => {
                run.lose_all();
                known.in_memory = false;
                cuts += 1;
            }
            Loss::TooMuch(ranks) => {
                if !known.is_printed {
                    is_refused(run, ranks);
                    refused += 1;
                }
                run.lose_all();
                known = Known::default();
            }
        }
    }
    assert_eq!(run.segments(), []);
    assert_eq!(run.images(), 0);
    println!(
        "{}: {kills} kills, {rebuilt} with the memory of a rank lost, {cuts} with all memory lost \
         ({from_images} starts from images): the same bits; {refused} with too much lost: refused",
        run.name
    );
    assert!(kills > 0, "each start was faster than its kill");
}

/// Loses the memory of two ranks, which are too many for a group of four with one parity: all ranks
/// report it, and what is left stays.
fn is_refused(run: &Run, ranks: [u32; 2]) {
    ranks.iter().for_each(|&rank| run.lose(rank));
    let before = run.memory();
    assert_eq!(before.len(), RANKS - 2);
    let ended = run.start(&[], 0, LIMIT);
    assert!(!ended.ok && ended.out.is_empty(), "{}", ended.out);
    let reason =
        "the run cannot begin, or continue from what was found, as asked; nothing was changed: ";
    let [first, second] = if ranks[0] < ranks[1] { ranks } else { [ranks[1], ranks[0]] };
    let lost = format!("lost ranks [{first}, {second}]");
    assert!(ended.err.contains(reason) && ended.err.contains(&lost), "{}", ended.err);
    assert_eq!(run.memory(), before);
}

/// All ranks, or one of them.
fn victims(dice: &mut Dice) -> Vec<usize> {
    match dice.roll(RANKS + 1) {
        RANKS => (0..RANKS).collect(),
        one => vec![one],
    }
}

pub fn client(name: &str, as_name: &str) -> PathBuf {
    compile_c(&checkout().join("examples/c").join(name), as_name, "gcc", &[])
}

#[test]
fn plate_in_program_memory_survives() {
    survives(&client("heat.c", "heat"), "heat", 1500);
}

/// The checkpoints of this client are begun and completed some iterations later.
#[test]
fn pressure_that_is_saved_while_it_changes_survives() {
    survives(&client("himeno.c", "himeno"), "himeno", 300);
}

#[test]
fn bodies_in_library_memory_survive() {
    let source = checkout().join("examples/fortran/nbody.f90");
    let Some(program) = compile_fortran(&source, "nbody") else { return };
    survives(&program, "nbody", 400);
}

#[test]
fn losses_beyond_parities_are_refused_with_the_reason() {
    let program = client("heat.c", "heat-lost");
    let run = Run::new(&program, "lost", 100_000);
    assert!(!run.start(&[2], 2, Duration::ZERO).ok);
    is_refused(&run, [1, 3]);
}

/// Rank 1 comes to `skt_init` when the others have given it up: 75 asks for a new start, in which
/// it is in time.
#[test]
fn client_that_times_out_on_a_rank_requests_a_new_start() {
    let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/late.c");
    let late = compile_c(&source, "late.so", "gcc", &["-shared", "-fPIC"]);
    let fortran = checkout().join("examples/fortran/nbody.f90");
    let in_c = [
        (client("heat.c", "heat-late"), "heat-late"),
        (client("himeno.c", "himeno-late"), "himeno-late"),
    ];
    let in_fortran = compile_fortran(&fortran, "nbody-late").map(|program| (program, "nbody-late"));
    for (program, name) in in_c.into_iter().chain(in_fortran) {
        let mut run = Run::new(&program, name, 10);
        let preload = ("LD_PRELOAD", mpirun::preloadable(&late));
        run.variables = vec![preload, ("SKT_TIMEOUT_SECONDS", "1".to_owned())];
        let ended = run.start(&[], 0, LIMIT);
        assert_eq!(ended.code, Some(75), "{name}: {}", ended.err);
        assert!(ended.err.contains("have called skt_init within 1 s"), "{name}: {}", ended.err);
        run.variables.clear();
        let ended = run.start(&[], 0, LIMIT);
        assert!(ended.ok && !ended.out.is_empty(), "{name}: {}", ended.err);
    }
}

/// What the library does with the program's memory, and the client with the library's, under the
/// sanitizers of the compiler, which end a program at the first fault.
#[test]
fn a_client_is_clean_under_the_sanitizers() {
    let source = checkout().join("examples/c/himeno.c");
    let plain = Run::new(&client("himeno.c", "himeno-plain"), "plain", 60).start(&[], 0, LIMIT);
    let flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    let mut run = Run::new(&compile_c(&source, "himeno-sane", "gcc", &flags), "sane", 60);
    run.variables = vec![
        // MPI keeps memory until the process ends.
        ("ASAN_OPTIONS", "detect_leaks=0".to_owned()),
        // No library may be loaded before that of the sanitizers.
        ("LD_PRELOAD", String::new()),
    ];
    // On a busy machine a run may be over, and its memory gone, before its rank is killed.
    let is_killed = || !run.start(&[1], 1, Duration::ZERO).ok && !run.memory().is_empty();
    assert!((0..20).any(|_| is_killed()), "all runs ended before their rank was killed");
    let ended = run.start(&[], 0, LIMIT);
    assert!(ended.ok && ended.err.contains("continues from step "), "{}", ended.err);
    assert!(!ended.err.contains("runtime error"), "{}", ended.err);
    assert_eq!(ended.out, plain.out);
}

/// A power cut: the ranks die at once and all memory goes. The next start continues from the
/// images.
#[test]
fn loss_of_all_memory_is_survived_with_a_level() {
    let program = client("heat.c", "heat-power");
    let steps = 1000;
    let undisturbed = Run::new(&program, "power-undisturbed", steps).start(&[], 0, LIMIT);
    for reach in ["local", "global"] {
        let run = Run::new(&program, &format!("power-{reach}"), steps).with_level(reach);
        let all: Vec<usize> = (0..RANKS).collect();
        assert!(!run.start(&all, 4, Duration::ZERO).ok);
        run.lose_all();
        let ended = run.start(&[], 0, LIMIT);
        assert!(ended.ok && ended.out == undisturbed.out, "{}", ended.err);
        let from = ended.err.lines().find_map(|line| line.strip_prefix("continues from step "));
        // The image of a checkpoint is complete on all ranks at the second one after it. How far
        // the ranks come before all are dead is the machine's affair.
        let from: u64 = from.expect("an image").parse().expect("a number");
        assert!((100..steps).contains(&from), "{from}");
        assert_eq!((run.segments(), run.images()), (Vec::new(), 0));
    }
}

/// No other rank has parities of its memory.
#[test]
fn one_rank_survives_its_death_and_with_a_level_lost_memory() {
    let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/alone.c");
    let program = compile_c(&source, "alone-on-one-rank", "gcc", &["-D_XOPEN_SOURCE=500"]);
    let on_one = |name: &str, steps| {
        let mut run = Run::new(&program, name, steps);
        run.ranks = 1;
        run
    };
    for has_level in [false, true] {
        // It is killed long before its last step.
        let mut run = on_one(&format!("one-rank-{has_level}"), 10_000_000);
        if has_level {
            run.level = Some((tempfile::tempdir().expect("a folder"), "local"));
        }
        let killed = run.start(&[0], 4, Duration::ZERO);
        assert!(!killed.ok, "{}", killed.err);
        if has_level {
            run.lose_all();
        }
        let last =
            killed.err.lines().rev().find_map(|line| line.strip_prefix("checkpoint at step "));
        run.steps = last.and_then(|step| step.parse::<u64>().ok()).expect(&killed.err) + 100;
        let ended = run.start(&[], 0, Duration::ZERO);
        assert!(ended.ok && ended.err.contains("continues from step "), "{}", ended.err);
        for start in [&killed, &ended] {
            assert_eq!(start.err.matches("one rank has no redundancy").count(), 1, "{}", start.err);
        }
        let undisturbed = on_one("one-rank-undisturbed", run.steps).start(&[], 0, Duration::ZERO);
        assert_eq!(ended.out, undisturbed.out);
        assert!(run.segments().is_empty() && run.images() == 0, "{}", ended.err);
    }
}

#[test]
fn a_start_with_too_little_time_leaves_an_image_to_the_next() {
    stops_in_four_seconds(|_, _| ());
}

/// On a busy machine a step may take many times as long as the longest before.
mod timing {
    use super::*;

    #[test]
    #[ignore = "timing: a step may take long on a busy machine"]
    fn the_last_checkpoint_is_whole_before_the_time_ends() {
        stops_in_four_seconds(|ended, end_unix| {
            // With one checkpoint the time was over before it had begun to compute.
            let is_in_time = ended.reported == 1 || ended.stopped_unix <= end_unix;
            assert!(is_in_time, "whole {} s late: {}", ended.stopped_unix - end_unix, ended.err);
        });
    }
}

/// A start has four seconds for what takes days, and its memory goes with its allocation. The next
/// one continues from where it has stopped.
fn stops_in_four_seconds(check: impl Fn(&Ended, f64)) {
    let program = client("heat.c", "heat-time");
    let mut run = Run::new(&program, "time", 1_000_000_000).with_level("local");
    // Slurm passes it in this way, in whole seconds.
    let end_unix = now_unix().floor() + 4.0;
    run.variables = vec![("SLURM_JOB_END_TIME", end_unix.to_string())];
    let stopped = run.start(&[], 0, LIMIT);
    let at = stopped.err.lines().find_map(|line| line.strip_prefix("stops at step "));
    let at = at.unwrap_or_else(|| panic!("{}", stopped.err)).split(':').next().unwrap();
    assert_eq!(stopped.code, Some(75), "{}", stopped.err);
    check(&stopped, end_unix);
    run.lose_all();

    run.variables.clear();
    run.steps = at.parse::<u64>().expect("a number") + 100;
    let ended = run.start(&[], 0, LIMIT);
    let continues = format!("continues from step {at}\n");
    assert!(ended.ok && ended.err.contains(&continues), "{}", ended.err);
    let undisturbed = Run::new(&program, "time-undisturbed", run.steps).start(&[], 0, LIMIT);
    assert_eq!(ended.out, undisturbed.out);
    assert_eq!((run.segments(), run.images()), (Vec::new(), 0));
}
