//! Whole jobs with checksums that die at any moment from their launch to their end. Ranks are
//! killed, and all others a short time later, before they can end what they do. The next start must
//! end well, or be refused for what the segments show to be lost: a second reader of their words
//! compares.
//!
//! The test takes a sample by default; `SKT_FT_SOAK=N` (scripts/dev/soak-checkpoint) kills N jobs,
//! and prints a line for each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skt_checkpoint::checkpoint::header::HeaderLayout;
use skt_run::protect::header_layout;
use skt_store::store::{Store, SysV};
use tempfile::TempDir;

use crate::dice::{Dice, seed};
use crate::mpi_job::{Ended, Job, MAX_JOBS, When, kill, rank_of};
use crate::soak::soak_jobs;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

/// What a job writes when each of its phases begins. The last one ends with its last process.
const PHASES: [&str; 8] = [
    "",
    "measuring DGEMM",
    "looking for data",
    "generating the matrix",
    "factoring",
    "back substitution",
    "checking the solution",
    "PASSED",
];
/// From its beginning on there is something to resume from.
const FACTORING: usize = 4;

/// Segments are there, and nothing to resume from: what the first job of each drill dies of, as
/// chance alone would seldom meet this refusal.
const IN_THE_MATRIX: Death = Death {
    phase: FACTORING - 1,
    after: Duration::ZERO,
    ranks: Vec::new(),
    others: Some(Duration::ZERO),
    loses: false,
};

/// P, Q, number of checksums, and order of the system.
type Shape = (usize, usize, usize, usize);

/// A job, and the file that its ranks write to, which outlives their launcher.
struct Victim {
    job: Job,
    written: PathBuf,
    shape: Shape,
    _folder: TempDir,
}

impl Victim {
    fn new(shape: Shape, name: &str) -> Self {
        let (p, q, checksums, n) = shape;
        let flags = format!(
            "--ft abft --n {n} --nb 96 --p {p} --q {q} --parities {checksums} --progress live"
        );
        let folder = TempDir::new().expect("a folder");
        let written = folder.path().join("written");
        let to_file = format!("exec \"$0\" \"$@\" >> {} 2>&1", written.display());
        let job = Job::new(Path::new(PROGRAM), p * (q + checksums), name, &flags)
            .signalled_to_end()
            .launched(&["sh", "-c", &to_file]);
        Self { job, written, shape, _folder: folder }
    }

    fn ranks(&self) -> usize {
        let (p, q, checksums, _) = self.shape;
        p * (q + checksums)
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.written).unwrap_or_default()).into_owned()
    }

    /// Adds to what the launcher has written what the ranks have, and forgets that.
    fn ended(&self, ended: Ended) -> Ended {
        let text = self.written() + &ended.text;
        // The ranks of a job that was killed in its first instant have written nothing.
        let _ = std::fs::remove_file(&self.written);
        Ended { text, ..ended }
    }

    fn start(&self, resume: &str) -> Ended {
        self.ended(self.job.start(&["--resume", resume]))
    }

    /// Starts the job undisturbed. Returns its x, and how long each phase took.
    fn time(&self) -> (String, Vec<Duration>) {
        let mut begun = vec![None; PHASES.len()];
        let ended = self.ended(self.job.start_and(When::FromLaunch(Duration::ZERO), |_| {
            let written = self.written();
            for (begun, phase) in begun.iter_mut().zip(PHASES) {
                let has_begun = begun.is_none() && written.contains(phase);
                *begun = if has_begun { Some(Instant::now()) } else { *begun };
            }
            false
        }));
        assert!(ended.ok, "{}", ended.text);
        let (mut next, mut took) = (Instant::now(), Vec::new());
        for begun in begun.into_iter().rev() {
            // A phase whose beginning was missed was short.
            let begun = begun.unwrap_or(next);
            took.insert(0, next - begun);
            next = begun;
        }
        (ended.x().expect("a solution"), took)
    }

    /// Starts the job, and kills it as drawn. Returns whether it was killed.
    fn start_and_kill(&self, death: &Death) -> (Ended, bool) {
        let (mut begun, mut killed): (Option<Instant>, Option<Instant>) = (None, None);
        let ended = self.job.start_and(When::FromLaunch(Duration::ZERO), |launcher| {
            if begun.is_none() && self.written().contains(PHASES[death.phase]) {
                begun = Some(Instant::now());
            }
            if begun.is_none_or(|begun| begun.elapsed() < death.after) {
                return false;
            }
            let Some(at) = killed else {
                for pid in self.job.processes() {
                    if rank_of(pid).is_some_and(|rank| death.ranks.contains(&rank)) {
                        kill(pid);
                    }
                }
                killed = Some(Instant::now());
                return death.others.is_none();
            };
            let is_time = death.others.is_some_and(|others| at.elapsed() >= others);
            if is_time {
                // The launcher could start no more ranks then.
                kill(launcher);
                self.job.processes().into_iter().for_each(kill);
            }
            is_time
        });
        (self.ended(ended), killed.is_some())
    }

    /// The memory of each rank, read from the segments without the program's reader of its words.
    fn memories(&self) -> Vec<Option<Memory>> {
        let header = header_layout(self.job.run(), 0, self.ranks());
        let read = |rank| {
            let name = self.job.segments(Some(rank)).pop()?;
            let mut bytes = vec![0; header.bytes().next_multiple_of(PAGE) + (2 << 20)];
            let read = SysV::new(false).peek(&name, &mut bytes).expect("a segment")?;
            bytes.truncate(read);
            Memory::read(&header, &bytes)
        };
        (0..self.ranks()).map(read).collect()
    }

    /// Why the refusal that a start has printed is true; an error if it is not. `first` is what the
    /// start wrote that was killed.
    fn confirm(&self, first: &str, text: &str) -> Result<String, String> {
        let error = text.lines().find_map(|line| line.split_once("error: "));
        let line = error.map_or("", |(_, error)| error);
        let (p, q, checksums, _) = self.shape;
        let (width, memories) = (q + checksums, self.memories());
        let newest = memories.iter().flatten().map(|memory| memory.confirmed).max();
        let is_lost = |rank: usize| {
            memories[rank].as_ref().is_none_or(|memory| memory.is_lost(newest.unwrap_or(0)))
        };
        let lost: Vec<Vec<usize>> = (0..p)
            .map(|row| (row * width..(row + 1) * width).filter(|&rank| is_lost(rank)).collect())
            .collect();
        let found = format!("lost {lost:?}, torn {:?}", {
            let is_torn = |rank: &usize| memories[*rank].as_ref().is_some_and(|it| it.is_torn);
            (0..memories.len()).filter(is_torn).collect::<Vec<_>>()
        });
        let is_true = if let Some((_, what)) = line.split_once("has lost the memory of ranks ") {
            let named: Vec<usize> = what
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .map_while(|word| word.parse().ok())
                .collect();
            named.len() > checksums && lost.contains(&named)
        } else if line.contains("cannot be restored") {
            lost.iter()
                .any(|row| row.iter().filter(|&&rank| memories[rank].is_none()).count() > checksums)
        } else if line.contains("no checkpoint of this run") {
            let bare = memories.iter().flatten().filter(|memory| memory.committed == 0).count();
            let why = [format!("what is here ({bare} segment"), "are gone: ".to_owned()];
            let had_one = PHASES[FACTORING..].iter().any(|phase| first.contains(phase));
            (!had_one || first.contains("PASSED"))
                && bare == memories.iter().flatten().count()
                && line.contains(&why[usize::from(bare == 0)])
        } else {
            false
        };
        let why = format!("{} [{found}]", line.trim());
        if is_true { Ok(why) } else { Err(format!("{why}\n{text}")) }
    }
}

const PAGE: usize = 4096;

/// What a segment shows.
struct Memory {
    committed: u64,
    is_hollow: bool,
    is_torn: bool,
    joined: u64,
    confirmed: u64,
}

impl Memory {
    /// Reads the beginning of a segment: header, a page with the seconds of the run, words.
    fn read(header: &HeaderLayout, bytes: &[u8]) -> Option<Self> {
        header.decode_identity(bytes)?;
        let committed = header.decode_record(bytes)?.committed();
        let words = bytes.get(header.bytes().next_multiple_of(PAGE) + PAGE..)?;
        let word = |place: usize| {
            let word = words.get(8 * place..8 * place + 8).expect("enough was read");
            u64::from_le_bytes(word.try_into().expect("8 bytes"))
        };
        const EXCHANGED: u64 = 3;
        let (kind, parts) = (word(3) & 7, word(5) as usize);
        let is_changed = |part: usize| matches!(word(9 + 2 * part + 1) & 7, 1 | 3);
        Some(Self {
            committed,
            is_hollow: kind == 0,
            is_torn: kind == EXCHANGED && (0..parts).any(is_changed),
            joined: word(1),
            confirmed: word(2),
        })
    }

    fn is_lost(&self, newest: u64) -> bool {
        self.is_hollow || self.is_torn || (self.joined != newest && self.confirmed != newest)
    }
}

/// How a job dies.
#[derive(Debug)]
struct Death {
    phase: usize,
    /// The time from the beginning of the phase on.
    after: Duration,
    /// The ranks that die first.
    ranks: Vec<usize>,
    /// The time from then on until the launcher and all others are killed; `None`: the launcher
    /// ends them.
    others: Option<Duration>,
    /// Whether the memory of the first rank is lost.
    loses: bool,
}

impl Death {
    fn draw(dice: &mut Dice, took: &[Duration], ranks: usize) -> Self {
        let upto = |dice: &mut Dice, most: Duration| {
            Duration::from_micros(dice.roll(1 + most.as_micros() as usize) as u64)
        };
        // A phase that is short may print nothing, and is then part of the one before.
        let seen: Vec<usize> = (0..PHASES.len()).filter(|&it| !took[it].is_zero()).collect();
        let longest = seen.iter().copied().max_by_key(|&phase| took[phase]).expect("a launch");
        let phase = if dice.roll(2) == 0 { longest } else { seen[dice.roll(seen.len())] };
        let after = upto(dice, took[phase]);
        let first = dice.roll(ranks);
        let second = (first + 1 + dice.roll(ranks - 1)) % ranks;
        Self {
            phase,
            after,
            ranks: [first, second].into_iter().take(1 + dice.roll(2)).collect(),
            others: (dice.roll(4) > 0).then(|| upto(dice, took[longest] / 20)),
            loses: dice.roll(3) == 0,
        }
    }
}

#[test]
fn whole_jobs_die_at_any_moment() {
    let jobs = soak_jobs().unwrap_or(3);
    let seed = seed("SKT_FT_SEED");
    let mut dice = Dice(seed);
    let shapes: [Shape; 2] = [(1, 3, 2, 3000), (2, 2, 1, 500)];
    let mut undisturbed = shapes.map(|shape| {
        let (x, took) = Victim::new(shape, "drill-undisturbed").time();
        println!("{shape:?}: {took:?}");
        (x, took)
    });
    let (mut number, mut killed, mut refused, mut untrue) = (0, 0, 0, Vec::new());
    while killed < jobs && number < 2 * jobs + MAX_JOBS {
        let which = usize::from(number % 8 == 7);
        let (x, took) = &mut undisturbed[which];
        let victim = Victim::new(shapes[which], &format!("drill{number}"));
        let death = match number {
            0 => IN_THE_MATRIX,
            _ => Death::draw(&mut dice, took, victim.ranks()),
        };
        number += 1;
        let (first, is_killed) = victim.start_and_kill(&death);
        if first.ok || !is_killed {
            // Starts are faster than the one that was timed.
            took[death.phase] /= 2;
            assert!(first.ok, "seed {seed}, {death:?}: {}", first.text);
            victim.job.assert_no_more_is_left_than_locks_of_the_dead();
            continue;
        }
        killed += 1;
        let lost = if death.loses { victim.job.lose(death.ranks[0]) } else { 0 };
        let begun = Instant::now();
        let mut ended = victim.start("require");
        let seconds = begun.elapsed().as_secs_f64();
        let end = if ended.ok {
            let line = ended.text.lines().find(|line| line.starts_with("# restart: column"));
            line.unwrap_or("# no column was eliminated before").to_owned()
        } else {
            refused += 1;
            let why = match (ended.code, victim.confirm(&first.text, &ended.text)) {
                (Some(2), Ok(why)) => why,
                (code, Ok(why) | Err(why)) => {
                    untrue.push(format!("{death:?}: {code:?} {why}"));
                    format!("UNTRUE: {code:?} {why}")
                }
            };
            // Nothing was lost where there was nothing.
            let nothing = ended.text.contains("no checkpoint of this run");
            ended = victim.start(if nothing { "auto" } else { "never" });
            why
        };
        println!(
            "{number}: {} + {:.3} s, ranks {:?}, {}{} -> {seconds:.1} s: {end}",
            ["launch", PHASES[death.phase]][usize::from(death.phase > 0)],
            death.after.as_secs_f64(),
            death.ranks,
            death.others.map_or("others by the launcher".to_owned(), |others| format!(
                "all {:.0} ms later",
                1e3 * others.as_secs_f64()
            )),
            ["", ", memory lost"][lost.min(1)],
        );
        assert!(ended.ok && ended.text.contains("PASSED"), "{seed}, {death:?}: {}", ended.text);
        if !ended.text.contains("# restart: column") {
            assert_eq!(ended.x().as_ref(), Some(&*x), "{seed}, {death:?}: {}", ended.text);
        }
        victim.job.assert_nothing_is_left();
    }
    println!("{number} jobs: {killed} killed, {refused} refused, {} untrue", untrue.len());
    assert!(untrue.is_empty(), "seed {seed}: {untrue:#?}");
    assert_eq!(killed, jobs, "the moments missed the jobs");
}
