//! The clients in `examples/c` and `examples/fortran`, killed with signal 9 at random times, with
//! memory kept or lost: at last they print the bits of an undisturbed run, and nothing is left.
//!
//! `SKT_C_SEED` is the seed, `SKT_C_KILLS` the number of kills of each client.

#[path = "../../../../tests/dice/mod.rs"]
mod dice;
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
use skt_checkpoint::checkpoint::store::{SegmentName, Store as _, SysV};

use crate::build::{checkout, compile_c, compile_fortran};

pub const RANKS: usize = 4;
/// A job that says nothing for longer hangs.
const LIMIT: Duration = Duration::from_secs(180);
/// The longest time from a checkpoint of a job to the kill, in times between two checkpoints.
const PAUSE_CHECKPOINTS: u32 = 3;

/// A run of a client; its segments go with it.
pub struct Run {
    program: PathBuf,
    name: String,
    steps: u64,
}

/// How a start has ended.
struct Ended {
    ok: bool,
    out: String,
    err: String,
    /// The time between two checkpoints; zero without two.
    between: Duration,
}

impl Run {
    fn new(program: &Path, name: &str, steps: u64) -> Self {
        let name = format!("c-{}-{name}", std::process::id());
        Self { program: program.to_owned(), name, steps }
    }

    fn spawn(&self) -> Child {
        let mut command = mpirun(RANKS);
        command.arg(&self.program).arg(self.steps.to_string());
        command.env("SKT_RUN_ID", &self.name).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun")
    }

    /// Starts it, and kills the ranks of `victims` some time after it has told of its checkpoint
    /// number `after`, if that comes.
    fn start(&self, victims: &[usize], after: usize, pause: Duration) -> Ended {
        let mut job = self.spawn();
        let (sender, lines) = mpsc::channel();
        let said = BufReader::new(job.stderr.take().expect("piped"));
        std::thread::spawn(move || said.lines().try_for_each(|line| sender.send(line.unwrap())));
        let (mut told, mut err, mut at) = (0, String::new(), Vec::new());
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
            if line.starts_with("checkpoint at step ") {
                at.push(Instant::now());
                told += 1;
            }
            if told == after && line.starts_with("checkpoint at step ") {
                let victims: Vec<i32> =
                    victims.iter().filter_map(|&victim| self.process_of(victim)).collect();
                std::thread::sleep(pause);
                for victim in victims {
                    // It may have ended in the meantime.
                    let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
                }
            }
            err += &(line + "\n");
        }
        let mut out = String::new();
        job.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        let between = match at[..] {
            [first, .., last] => (last - first) / (at.len() as u32 - 1),
            _ => Duration::ZERO,
        };
        Ended { ok: job.wait().expect("our child").success(), out, err, between }
    }

    /// The process of a rank, by the launcher's order.
    fn process_of(&self, rank: usize) -> Option<i32> {
        let ranks = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="].map(|name| format!("{name}{rank}"));
        let run = format!("SKT_RUN_ID={}", self.name);
        let is_it = |pid: &i32| {
            let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let mut entries = text.split('\0');
            entries.clone().any(|entry| entry == run)
                && entries.any(|e| ranks.iter().any(|r| r == e))
        };
        let pids = fs::read_dir("/proc").expect("Linux").flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
    }

    fn segments(&self) -> Vec<SegmentName> {
        let names = SysV::new(false).look().expect("a store").into_iter().map(|info| info.name);
        names.filter(|name| name.run() == self.name).collect()
    }

    /// The memory of ranks, without what locks the run.
    fn memory(&self) -> Vec<SegmentName> {
        self.segments().into_iter().filter(|name| name.role().starts_with('t')).collect()
    }

    /// Removes the memory of a rank, as a node that loses its power does.
    fn lose(&self, rank: u32) {
        for name in self.memory().into_iter().filter(|name| name.rank() == rank) {
            SysV::new(false).remove(&name).expect("nobody has it open");
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

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// Kills a client again and again, then lets it end. Returns its result.
pub fn survives(program: &Path, name: &str, steps: u64) -> String {
    let mut dice = Dice(seed("SKT_C_SEED"));
    let undisturbed = Run::new(program, &format!("{name}-undisturbed"), steps).start(&[], 0, LIMIT);
    let longest_pause = undisturbed.between * PAUSE_CHECKPOINTS;
    assert!(
        undisturbed.ok && undisturbed.out.starts_with("sum of squares "),
        "{}",
        undisturbed.err
    );
    let run = Run::new(program, name, steps);
    let (mut kills, mut rebuilt) = (0, 0);
    // Whether an earlier start has left a checkpoint, and whether it has printed the result.
    let (mut is_open, mut is_printed) = (false, false);
    for kill in 0..=number("SKT_C_KILLS", 4) {
        let is_last = kill == number("SKT_C_KILLS", 4);
        let victims = if is_last { Vec::new() } else { victims(&mut dice) };
        let pause = longest_pause * dice.roll(1000) as u32 / 1000;
        let ended = run.start(&victims, 1 + dice.roll(3), pause);
        // A start whose result is printed may be killed before, within or after the end of the run:
        // the next one continues, has nothing to do, or begins anew.
        let continues = ended.err.contains("continues from step ");
        assert!(is_printed || continues == is_open, "{}", ended.err);
        let is_right = ended.out == undisturbed.out || ended.out.is_empty();
        assert!(is_right, "the result has other bits: {}{}", ended.out, ended.err);
        is_printed |= !ended.out.is_empty();
        assert!(!ended.ok || is_printed, "{}", ended.err);
        is_open = !ended.ok;
        if ended.ok {
            // It was faster than the kill: the next start begins anew.
            is_printed = false;
            continue;
        }
        assert!(!is_last, "{}", ended.err);
        kills += 1;
        // The memory of one rank, or none, is lost.
        let lost = dice.roll(RANKS + 1);
        if lost < RANKS {
            run.lose(lost as u32);
            rebuilt += 1;
        }
    }
    assert_eq!(run.segments(), []);
    println!("{name}: {kills} kills, {rebuilt} with the memory of a rank lost: the same bits");
    assert!(kills > 0, "each start was faster than its kill");
    undisturbed.out
}

/// All ranks, or one of them.
fn victims(dice: &mut Dice) -> Vec<usize> {
    match dice.roll(RANKS + 1) {
        RANKS => (0..RANKS).collect(),
        one => vec![one],
    }
}

fn heat() -> PathBuf {
    compile_c(&checkout().join("examples/c/heat.c"), "heat", "gcc", &[])
}

#[test]
fn a_plate_of_the_programs_own_memory_survives() {
    survives(&heat(), "heat", 1500);
}

#[test]
fn bodies_in_memory_of_the_library_survive() {
    let source = checkout().join("examples/fortran/nbody.f90");
    survives(&compile_fortran(&source, "nbody"), "nbody", 400);
}

/// With one parity, two lost ranks of a group of four are too many: all ranks say so, and what is
/// left stays.
#[test]
fn what_groups_do_not_survive_is_refused_with_the_reason() {
    let program = compile_c(&checkout().join("examples/c/heat.c"), "heat-lost", "gcc", &[]);
    let run = Run::new(&program, "lost", 100_000);
    assert!(!run.start(&[2], 2, Duration::ZERO).ok);
    run.lose(1);
    run.lose(3);
    let before = run.memory();
    assert_eq!(before.len(), RANKS - 2);
    let ended = run.start(&[], 0, LIMIT);
    assert!(!ended.ok && ended.out.is_empty(), "{}", ended.out);
    let reason = "the run cannot continue from what was found; nothing was changed: ";
    assert!(ended.err.contains(reason) && ended.err.contains("lost ranks [1, 3]"), "{}", ended.err);
    assert_eq!(run.memory(), before);
}
