//! Random drills of a client: ranks that are killed, that stand still for short or for long, and
//! options that one rank alone has. Each start ends with the right result or with a refusal that
//! explains why, within a limit; the last start of each drill ends with the right result, and
//! nothing is left.
//!
//! `SKT_C_SEED` is the seed, `SKT_C_DRILLS` the number of drills (`scripts/dev/soak-clients
//! --drills`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::build::{checkout, compile_c};
use crate::clients::dice::{Dice, seed};
use crate::clients::{Ended, LIMIT, RANKS, Run, number, process_of, signal_all};

/// The option `timeout_seconds` of the runs.
const TIMEOUT: Duration = Duration::from_secs(2);
const STEPS: u64 = 500;
/// Options as variables, with a value that is not the default.
const OPTIONS: [(&str, &str); 12] = [
    ("SKT_RUN_ID", "another"),
    ("SKT_APPLICATION", "other"),
    ("SKT_GROUP_SIZE", "8"),
    ("SKT_PARITIES", "2"),
    ("SKT_CODEC", "sum"),
    ("SKT_RESUME", "require"),
    ("SKT_STORE", "posix"),
    ("SKT_MTBF_SECONDS", "5"),
    ("SKT_TIMEOUT_SECONDS", "9"),
    ("SKT_ALLOW_SHARED_DOMAINS", "true"),
    ("SKT_LEVELS", "local:/tmp"),
    ("SKT_TIME_LIMIT", "2h"),
];

/// What happens to a start.
#[derive(Debug, Clone)]
enum Drill {
    /// These ranks are killed.
    Kill(Vec<usize>),
    /// All ranks stand still, and continue one after the other.
    StopAll(Duration),
    /// One rank stands still.
    StopOne(usize, Duration),
    /// All ranks stand still; one is killed before the others continue.
    StopAllAndKill(usize, Duration),
    /// One rank alone has an option.
    Differ(usize, (&'static str, &'static str)),
}

impl Drill {
    fn roll(dice: &mut Dice) -> Self {
        let rank = dice.roll(RANKS);
        // Shorter than half the limit, or longer than any rank waits.
        let stop = match dice.roll(2) {
            0 => TIMEOUT * (1 + dice.roll(20) as u32) / 50,
            _ => TIMEOUT * (25 + dice.roll(20) as u32) / 10,
        };
        match dice.roll(6) {
            0 => Self::Kill(vec![rank]),
            1 => Self::Kill((0..RANKS).collect()),
            2 => Self::StopAll(stop),
            3 => Self::StopOne(rank, stop),
            4 => Self::StopAllAndKill(rank, stop),
            _ => Self::Differ(rank, OPTIONS[dice.roll(OPTIONS.len())]),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Kill(ranks) if ranks.len() == 1 => "one killed",
            Self::Kill(_) => "all killed",
            Self::StopAll(stop) if *stop < TIMEOUT => "all stopped, short",
            Self::StopAll(_) => "all stopped, long",
            Self::StopOne(_, stop) if *stop < TIMEOUT => "one stopped, short",
            Self::StopOne(..) => "one stopped, long",
            Self::StopAllAndKill(..) => "all stopped, one killed",
            Self::Differ(..) => "options differ",
        }
    }

    fn act(&self, run: &str, dice: &mut Dice) {
        // Those of a start that has just begun may not be there yet, or it may be over.
        let begun = Instant::now();
        let all: Vec<i32> = loop {
            let all: Vec<i32> = (0..RANKS).filter_map(|rank| process_of(run, rank)).collect();
            if all.len() == RANKS || begun.elapsed() > TIMEOUT {
                break all;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let of = |rank: usize| all.get(rank).copied().into_iter().collect::<Vec<i32>>();
        match self {
            Self::Kill(ranks) => {
                ranks.iter().for_each(|&rank| signal_all(&of(rank), Signal::SIGKILL));
            }
            Self::StopAll(stop) => {
                signal_all(&all, Signal::SIGSTOP);
                std::thread::sleep(*stop);
                // In any order, and not all at once.
                for _ in 0..2 * RANKS {
                    signal_all(&of(dice.roll(RANKS)), Signal::SIGCONT);
                    std::thread::sleep(Duration::from_millis(dice.roll(20) as u64));
                }
                signal_all(&all, Signal::SIGCONT);
            }
            Self::StopOne(rank, stop) => {
                signal_all(&of(*rank), Signal::SIGSTOP);
                std::thread::sleep(*stop);
                signal_all(&of(*rank), Signal::SIGCONT);
            }
            Self::StopAllAndKill(rank, stop) => {
                signal_all(&all, Signal::SIGSTOP);
                std::thread::sleep(*stop);
                signal_all(&of(*rank), Signal::SIGKILL);
                signal_all(&all, Signal::SIGCONT);
            }
            Self::Differ(..) => {}
        }
    }

    /// Whether a start that has failed has reported what was done to it.
    fn explains(&self, ended: &Ended) -> bool {
        match self {
            // The launcher reports it, and ends the others.
            Self::Kill(_) | Self::StopAllAndKill(..) => true,
            Self::StopAll(_) => false,
            Self::StopOne(_, stop) if *stop < TIMEOUT => false,
            Self::StopOne(..) => {
                ended.code == Some(75) && ended.err.contains("not all ranks have called")
            }
            Self::Differ(rank, (variable, value)) => {
                let name = variable.trim_start_matches("SKT_").to_lowercase();
                let message = format!("rank {} has {name} = ", (*rank).max(1));
                ended.code == Some(2)
                    && ended.err.contains(&message)
                    && ended.err.contains(&format!("{value:?} ({variable})"))
            }
        }
    }
}

#[derive(Default)]
struct Tally {
    drills: usize,
    undisturbed: usize,
    refused: usize,
    longest: Duration,
}

#[test]
fn random_drills_end_right_or_with_the_reason() {
    // One waits for its neighbours in its messages, the other in the calls of the library.
    let clients = [
        ("examples/c/heat.c", "heat-drills"),
        ("crates/skt-checkpoint-c/tests/c_sources/alone.c", "alone-drills"),
    ];
    let clients = clients.map(|(source, name)| {
        let flags = ["-D_XOPEN_SOURCE=500"];
        let program = compile_c(&checkout().join(source), name, "gcc", &flags);
        let undisturbed = Run::new(&program, name, STEPS).start(&[], 0, LIMIT);
        assert!(undisturbed.ok && undisturbed.out.starts_with("sum of "), "{}", undisturbed.err);
        (program, undisturbed)
    });
    let mut dice = Dice(seed("SKT_C_SEED"));
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for drill in 0..number("SKT_C_DRILLS", 4) {
        let (what, begun) = (Drill::roll(&mut dice), Instant::now());
        let (program, undisturbed) = &clients[drill % clients.len()];
        let tally = tallies.entry(what.kind()).or_default();
        println!("drill {drill}: {what:?}");
        let is_refused = one(program, drill, &what, undisturbed, &mut dice);
        tally.drills += 1;
        tally.refused += usize::from(is_refused);
        tally.undisturbed += usize::from(!is_refused);
        tally.longest = tally.longest.max(begun.elapsed());
    }
    for (kind, Tally { drills, undisturbed, refused, longest }) in tallies {
        println!(
            "{kind}: {drills}, of which {undisturbed} went on and {refused} were started again; the \
             longest took {:.1} s",
            longest.as_secs_f64()
        );
    }
}

/// A drill. Returns whether its first start has failed; then the next one has the right result.
fn one(program: &Path, number: usize, what: &Drill, want: &Ended, dice: &mut Dice) -> bool {
    let mut run = Run::new(program, &format!("drill-{number}"), STEPS);
    if dice.roll(3) == 0 {
        run = run.with_level("local");
    }
    run.variables.push(("SKT_TIMEOUT_SECONDS", TIMEOUT.as_secs().to_string()));
    if let Drill::Differ(rank, option) = what {
        run.odd = Some((*rank, *option));
    }
    // After a checkpoint, or at once: then ranks are in MPI_Init or in skt_init.
    let (after, pause) = (dice.roll(7), want.between * dice.roll(1000) as u32 / 500);
    let name = run.name.clone();
    let ended = run.start_and(after, || {
        std::thread::sleep(pause);
        what.act(&name, dice);
    });
    assert!(ended.out == want.out || ended.out.is_empty(), "{what:?}: {}{}", ended.out, ended.err);
    if ended.ok {
        assert_eq!(ended.out, want.out, "{what:?}: {}", ended.err);
        assert!(!matches!(what, Drill::Differ(..)), "{what:?} was not seen");
    } else {
        assert!(what.explains(&ended), "{what:?}: {:?}: {}", ended.code, ended.err);
        run.odd = None;
        let again = run.start(&[], 0, LIMIT);
        // The first one may have been killed when its result was printed.
        let is_right = again.out == want.out || (again.out.is_empty() && !ended.out.is_empty());
        assert!(again.ok && is_right, "{what:?}: {}{}", again.out, again.err);
    }
    assert_eq!(run.segments(), [], "{what:?}");
    !ended.ok
}
