//! Asking every node whether it can take part: by the very agent that the
//! launcher uses, all at once, with a time limit.
//!
//! The node's own `skt-hpl probe` answers, see [`super::line`]. It also ends what an
//! earlier start of this run has left there: two jobs must not share segments.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skt_terms::shown::shown_message;

use super::hosts::{Health, Host, Pool};
use super::line::{Heard, Line, Lines};
use super::process;
use crate::checkpoint::codec::checksum;
use crate::checkpoint::store::{Store, StoreError, StoreKind, SysvLimits, Trap, host};
use crate::protect;

/// What the answer starts with: shells may greet.
const MARK: &str = "@skt-hpl-probe@";
/// How long the last nodes are waited for, once the others have answered: so many
/// times what the slowest of the others took, and so much more. What it took when its
/// line was opened counts: the line to a node that is well may have broken, and an agent
/// may take seconds for the handshake of a new one.
const PATIENCE: (u32, Duration) = (2, Duration::from_secs(1));
/// The same for nodes of a silent job: whether it is to be ended depends on it.
const PATIENCE_OF_LOOK: (u32, Duration) = (2, Duration::from_secs(2));
/// The same for nodes of which the launcher, or a look, says that they are lost. What
/// the others take now is what counts.
const PATIENCE_WITH_SUSPECTS: Duration = Duration::from_millis(300);
/// A kept line that does not answer for so long is given up for a new one: it may
/// have broken in a way that no packet tells, and the node be well.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Probes under way at a time.
const AT_ONCE: usize = 128;
/// Segments that each rank has: its data, and its hold on the run.
const SEGMENTS_A_RANK: u64 = 2;
/// Further ones of a node: results of tests, while they are written anew.
const SEGMENTS_A_NODE: u64 = 2;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Number of the question, from 0 on each line.
    #[serde(default)]
    pub question: u64,
    /// What it calls itself.
    pub host: String,
    /// Version of our program there.
    pub version: String,
    /// Checksum of the program there.
    pub program: u64,
    /// Ranks of an earlier start that were still there, and are ended.
    pub ended: usize,
    /// Those that cannot be ended.
    pub immortal: usize,
    /// Bytes of segments of this run.
    pub run_bytes: u64,
    /// Bytes of memory that can still be had.
    pub available_bytes: u64,
    /// Bytes that the store has free, where it is a folder with a bound of its own.
    pub store_free_bytes: Option<u64>,
    /// Limits of a store of System V segments, and what others than this run have of
    /// them.
    #[serde(default)]
    pub sysv: Option<SysvLimits>,
    /// Why the store of segments cannot be used, if so.
    pub no_store: Option<String>,
    /// What may cost a run its segments.
    pub warnings: Vec<String>,
}

/// What a node is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The run, as in the heartbeat's token.
    pub run: String,
    /// Its name in the store.
    pub run_id: String,
    /// The store.
    pub store: String,
    /// What to do there.
    pub purpose: Purpose,
    /// Its number.
    pub number: u64,
}

/// Why nodes are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The job is to start: ranks of earlier starts are ended.
    Start,
    /// The job is silent: nothing is touched.
    Look,
    /// The run is over: its segments are removed, but not marks that it is.
    Clean,
    /// The same, and those are: nothing is left on any node.
    Forget,
}

/// Purposes by the words that stand for them between supervisor and node.
const PURPOSES: [(&str, Purpose); 4] = [
    ("start", Purpose::Start),
    ("look", Purpose::Look),
    ("clean", Purpose::Clean),
    ("forget", Purpose::Forget),
];

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, _) = PURPOSES.iter().find(|(_, purpose)| purpose == self).expect("all are");
        f.write_str(word)
    }
}

impl FromStr for Purpose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = PURPOSES.iter().find(|(word, _)| *word == text);
        let words = || PURPOSES.map(|(word, _)| word).join(", ");
        found.map(|(_, purpose)| *purpose).ok_or_else(|| format!("one of {}", words()))
    }
}

/// Where a process and its program are: another one once its file has been replaced
/// or its folder removed.
pub fn whereabouts() -> [Option<PathBuf>; 2] {
    ["/proc/self/exe", "/proc/self/cwd"].map(|link| fs::read_link(link).ok())
}

/// Answers, on the node.
pub fn answer(question: &Question) -> Answer {
    let (ended, immortal) = match question.purpose {
        Purpose::Look => (0, 0),
        Purpose::Start | Purpose::Clean | Purpose::Forget => process::sweep_ranks(&question.run),
    };
    let (available_bytes, _) = host::Host::this().available_memory();
    let mut answer = Answer {
        question: question.number,
        host: process::this_host(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program_checksum(),
        ended,
        immortal,
        run_bytes: 0,
        available_bytes,
        store_free_bytes: None,
        sysv: None,
        no_store: None,
        warnings: Vec::new(),
    };
    match question.store.parse::<StoreKind>() {
        Err(error) => answer.no_store = Some(error.to_string()),
        Ok(kind) => {
            let store = kind.open();
            let cleaned = match question.purpose {
                Purpose::Clean if immortal == 0 => remove_all(&*store, &question.run_id, false),
                Purpose::Forget if immortal == 0 => remove_all(&*store, &question.run_id, true),
                _ => Ok(()),
            };
            match cleaned.and_then(|()| protect::run_bytes(&*store, &question.run_id)) {
                Ok(bytes) => answer.run_bytes = bytes,
                Err(error) => answer.no_store = Some(error.to_string()),
            }
            if let StoreKind::SysV { .. } = kind {
                answer.sysv = Some(others_of_sysv(&*store, &question.run_id));
            }
            // What there is, is told where all is wanted.
            let too_much = store.traps(u64::MAX, 0);
            answer.store_free_bytes = too_much.iter().find_map(|trap| match trap {
                Trap::SmallFolder { free_bytes, .. } => Some(*free_bytes),
                _ => None,
            });
            answer.warnings = store.traps(0, 0).iter().map(ToString::to_string).collect();
        }
    }
    answer
}

/// The limits of System V segments, with what others than this run have of them.
fn others_of_sysv(store: &dyn Store, run_id: &str) -> SysvLimits {
    let mut limits = host::Host::this().sysv_limits();
    // What cannot be listed is told as a fault of the store.
    for info in store.list().unwrap_or_default().iter().filter(|info| info.name.run() == run_id) {
        let pages = SysvLimits::pages_of(info.bytes as u64);
        limits.used_pages = limits.used_pages.saturating_sub(pages);
        limits.segments = limits.segments.saturating_sub(1);
    }
    limits
}

/// Removes all segments of a run: its checkpoints, and the locks that killed
/// ranks have left. What a process is attached to is not ours to take.
fn remove_all(store: &dyn Store, run_id: &str, with_marks: bool) -> Result<(), StoreError> {
    let of_run = store.list()?.into_iter().filter(|info| info.name.run() == run_id);
    for info in of_run.filter(|info| with_marks || !protect::is_mark(info)) {
        store.remove_unused(&info.name)?;
    }
    Ok(())
}

/// Checksum of this program's file.
pub fn program_checksum() -> u64 {
    static SUM: OnceLock<u64> = OnceLock::new();
    *SUM.get_or_init(|| fs::read("/proc/self/exe").map_or(0, |bytes| checksum(&bytes)))
}

impl Answer {
    /// The answer as a line.
    pub fn line(&self) -> String {
        format!("{MARK}{}\n", serde_json::to_string(self).expect("text and numbers"))
    }

    /// The answer to question `number` in what a node has said.
    pub fn find(said: &str, number: u64) -> Option<Answer> {
        let answers = said.lines().filter_map(|line| {
            let (_, json) = line.split_once(MARK)?;
            serde_json::from_str::<Answer>(json).ok()
        });
        let mut answer = { answers }.find(|answer| answer.question == number)?;
        // They are shown, and another machine has written them.
        let said = [&mut answer.host, &mut answer.version];
        let texts = said.into_iter().chain(&mut answer.no_store).chain(&mut answer.warnings);
        texts.for_each(|text| *text = shown_message(text));
        Some(answer)
    }

    /// Whether it could remove what the run has left there.
    pub fn is_clean(&self) -> bool {
        self.immortal == 0 && self.no_store.is_none()
    }

    /// Why this node cannot take part with so many ranks, if so. `need_bytes`: what
    /// the segments of a rank take; `planned_bytes`: what they will, by the
    /// configuration.
    fn fault(&self, ranks: u64, need_bytes: u64, planned_bytes: u64) -> Option<String> {
        if self.version != env!("CARGO_PKG_VERSION") {
            let ours = env!("CARGO_PKG_VERSION");
            return Some(format!("has version {} of skt-hpl, not {ours}", self.version));
        }
        if self.program != program_checksum() {
            let why =
                "has another build of skt-hpl of the same version: copy this one's file there";
            return Some(why.to_owned());
        }
        if let Some(why) = &self.no_store {
            return Some(format!("has no shared memory for us: {why}"));
        }
        if self.immortal > 0 {
            return Some(format!("{} rank(s) of an earlier start cannot be ended", self.immortal));
        }
        if let Some(low) = self.low_limit(ranks, planned_bytes.max(need_bytes)) {
            return Some(format!("its limits of shared memory do not suffice: {low}"));
        }
        let of_store = self.store_free_bytes.map(|free| free.saturating_add(self.run_bytes));
        let need_bytes = need_bytes.saturating_mul(ranks);
        let planned_bytes = planned_bytes.saturating_mul(ranks).max(need_bytes);
        if let Some(have) = of_store.filter(|have| *have < planned_bytes) {
            return Some(format!(
                "its store has room for {have} bytes of the {planned_bytes} that its ranks' \
                 segments take"
            ));
        }
        let have = self.available_bytes.saturating_add(self.run_bytes);
        (have < need_bytes).then(|| format!("{have} of {need_bytes} bytes of memory are available"))
    }

    /// The limit of System V segments that `ranks` ranks of `bytes` each would meet.
    fn low_limit(&self, ranks: u64, bytes: u64) -> Option<Trap> {
        let limits = self.sysv.filter(|_| bytes > 0)?;
        let segments = ranks.saturating_mul(SEGMENTS_A_RANK).saturating_add(SEGMENTS_A_NODE);
        let pages = SysvLimits::pages_of(bytes).saturating_mul(ranks);
        limits.too_low(segments, pages, bytes).into_iter().next()
    }
}

/// What became of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The node's answer.
    Answer(Box<Answer>),
    /// It failed, and how.
    Failed(String),
    /// Nobody waited for it.
    Unknown,
}

/// What all probes found, by the names of nodes.
#[derive(Debug, Default)]
pub struct Survey {
    outcomes: BTreeMap<String, Outcome>,
    /// Ranks of the nodes in use.
    slots: BTreeMap<String, usize>,
    /// Whether the nodes were asked for a sign of life alone.
    is_look: bool,
    /// What a rank's segments take, by the configuration.
    rank_bytes: u64,
    /// Why no node can be asked: what reaches them cannot be started here.
    agent_fault: Option<(String, io::Error)>,
}

impl Survey {
    /// What a node's probe found, for a node of `slots` ranks.
    pub fn health(&self, name: &str, slots: usize) -> Health {
        match self.outcomes.get(name) {
            None | Some(Outcome::Unknown) => Health::Unknown,
            Some(Outcome::Failed(why)) => Health::Ill(why.clone()),
            // That a node answers is all that a look asks.
            Some(Outcome::Answer(_)) if self.is_look => Health::Well,
            Some(Outcome::Answer(answer)) => {
                match answer.fault(slots as u64, self.bytes_per_rank(), self.rank_bytes) {
                    None => Health::Well,
                    Some(why) => Health::Ill(why),
                }
            }
        }
    }

    /// What a rank's segments take, as the survivors' do; 0 if there are none.
    fn bytes_per_rank(&self) -> u64 {
        let share = |(name, answer): (&str, &Answer)| {
            let slots = self.slots.get(name).copied().unwrap_or(1) as u64;
            answer.run_bytes / slots.max(1)
        };
        self.answers().map(share).max().unwrap_or(0)
    }

    /// The answers.
    pub fn answers(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.outcomes.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Answer(answer) => Some((name.as_str(), &**answer)),
            _ => None,
        })
    }

    /// The agent that cannot be started on this machine, and why.
    pub fn take_agent_fault(&mut self) -> Option<(String, io::Error)> {
        self.agent_fault.take()
    }

    /// Ranks of earlier starts that were ended.
    pub fn ended(&self) -> usize {
        self.answers().fold(0, |sum: usize, (_, answer)| sum.saturating_add(answer.ended))
    }

    /// Warnings, each with the nodes that have it.
    pub fn warnings(&self) -> BTreeMap<String, Vec<&str>> {
        let mut by_text: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, answer) in self.answers() {
            for warning in &answer.warnings {
                by_text.entry(warning.clone()).or_default().push(name);
            }
        }
        by_text
    }
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// What for. A look asks the nodes in use alone, and ends when it has found
    /// one that is ill.
    pub purpose: Purpose,
    /// For any node.
    pub each: Duration,
    /// Bytes that the segments of a rank take, by the configuration.
    pub rank_bytes: u64,
    /// Once all but so many nodes in use have answered, those get little more
    /// time: their loss can be borne, and every second counts.
    pub spare_losses: usize,
    /// Nodes that the launcher has said to be lost. A hint: they are asked all
    /// the same, but not waited for as long.
    pub suspects: &'a [String],
}

/// A probe under way.
struct Probe {
    name: String,
    line: Line,
    started: Instant,
    /// Whether the line was opened for it.
    is_new: bool,
}

/// Probes all nodes of the pool that are not out, on the lines that are kept to
/// them or on new ones, for which `reach` gives the command line of a node. When it
/// `is_over` before there are answers enough, nothing is concluded from silence.
pub fn survey(
    lines: &mut Lines,
    pool: &Pool,
    reach: &dyn Fn(&str) -> Vec<String>,
    limits: Limits,
    is_over: &mut dyn FnMut() -> bool,
) -> Survey {
    let mut asking = Asking {
        survey: Survey {
            slots: pool.active.iter().map(|host| (host.name.clone(), host.slots)).collect(),
            is_look: limits.purpose == Purpose::Look,
            rank_bytes: limits.rank_bytes,
            ..Survey::default()
        },
        lines,
        reach,
        under_way: Vec::new(),
        begun: Instant::now(),
        slowest: Duration::ZERO,
        slowest_opening: Duration::ZERO,
    };
    let spares = match limits.purpose {
        Purpose::Look => &[],
        Purpose::Start | Purpose::Clean | Purpose::Forget => &pool.spares[..],
    };
    let mut waiting: Vec<&Host> = pool.active.iter().chain(spares).collect();
    waiting.reverse();
    while !waiting.is_empty() || !asking.under_way.is_empty() {
        while asking.under_way.len() < AT_ONCE
            && let Some(host) = waiting.pop()
        {
            asking.start(&host.name, limits.purpose);
        }
        asking.collect(limits.each);
        if waiting.is_empty() && asking.is_enough(pool, &limits) {
            break;
        }
        if is_over() {
            return asking.stop(&Pool::new(Vec::new(), Vec::new()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    asking.stop(pool)
}

struct Asking<'a> {
    survey: Survey,
    lines: &'a mut Lines,
    reach: &'a dyn Fn(&str) -> Vec<String>,
    under_way: Vec<Probe>,
    begun: Instant,
    /// The longest that a node took to answer.
    slowest: Duration,
    /// The longest that one of these took when its line was opened.
    slowest_opening: Duration,
}

impl Asking<'_> {
    fn start(&mut self, name: &str, purpose: Purpose) {
        let started = Instant::now();
        let kept = self.lines.take(name);
        match kept.and_then(|mut line| line.ask(purpose).then_some(line)) {
            Some(line) => {
                self.under_way.push(Probe { name: name.to_owned(), line, started, is_new: false });
            }
            None => self.open(name, started),
        }
    }

    /// Opens a new line, for a probe that was started at that time.
    fn open(&mut self, name: &str, started: Instant) {
        let kept = self.under_way.iter().filter(|probe| probe.line.is_kept()).count();
        let argv = (self.reach)(name);
        match Line::open(&argv, self.lines.has_room(kept)) {
            Ok(line) => {
                self.under_way.push(Probe { name: name.to_owned(), line, started, is_new: true });
            }
            Err(error) => {
                // It says nothing of the node.
                self.survey.outcomes.insert(name.to_owned(), Outcome::Unknown);
                self.survey.agent_fault = Some((argv[0].clone(), error));
            }
        }
    }

    fn collect(&mut self, limit: Duration) {
        for mut probe in std::mem::take(&mut self.under_way) {
            let waited = probe.started.elapsed();
            let outcome = match probe.line.hear() {
                Heard::Answer(answer) => {
                    let opening = probe.line.opening().unwrap_or_default();
                    self.slowest = self.slowest.max(waited);
                    self.slowest_opening = self.slowest_opening.max(opening);
                    self.lines.keep(&probe.name, probe.line);
                    Outcome::Answer(answer)
                }
                Heard::End(why) if probe.is_new => Outcome::Failed(why),
                Heard::Nothing if waited >= limit => {
                    Outcome::Failed(format!("no answer in {:.1} s", limit.as_secs_f64()))
                }
                Heard::Nothing if probe.is_new || waited < RENEW_AFTER => {
                    self.under_way.push(probe);
                    continue;
                }
                Heard::Nothing | Heard::End(_) => {
                    self.open(&probe.name, probe.started);
                    continue;
                }
            };
            self.survey.outcomes.insert(probe.name, outcome);
        }
    }

    /// Whether the answers so far suffice to go on.
    fn is_enough(&self, pool: &Pool, limits: &Limits) -> bool {
        let is_silent = |host: &&Host| !self.survey.outcomes.contains_key(&host.name);
        // A look needs no memory for more.
        let slots = |host: &Host| if limits.purpose == Purpose::Look { 0 } else { host.slots };
        let is_well = |host: &&Host| self.survey.health(&host.name, slots(host)) == Health::Well;
        let silent = pool.active.iter().filter(is_silent).count();
        let ill = pool.active.iter().filter(|host| !is_silent(host) && !is_well(host)).count();
        let is_suspect = |host: &Host| limits.suspects.contains(&host.name);
        let are_suspects = pool.active.iter().filter(is_silent).all(is_suspect);
        if limits.purpose == Purpose::Look {
            let is_patient = match are_suspects {
                true => self.is_patient(PATIENCE),
                false => self.is_patient(PATIENCE_OF_LOOK),
            };
            return ill > 0 || silent == 0 || (!is_patient && silent < pool.active.len());
        }
        let spares = pool.spares.iter().filter(is_well).count();
        if silent == 0 {
            return spares >= ill;
        }
        let is_patient = match are_suspects {
            true => self.is_patient_with_suspects(),
            false => self.is_patient(PATIENCE),
        };
        !is_patient && silent + ill <= limits.spare_losses && spares >= silent + ill
    }

    /// Whether those that are silent may still answer.
    fn is_patient(&self, (times, more): (u32, Duration)) -> bool {
        self.begun.elapsed() < self.slowest.max(self.slowest_opening) * times + more
    }

    fn is_patient_with_suspects(&self) -> bool {
        self.begun.elapsed() < self.slowest + PATIENCE_WITH_SUSPECTS
    }

    /// Ends what is under way: nodes in use that did not answer are lost, others were
    /// not waited for.
    fn stop(mut self, pool: &Pool) -> Survey {
        // A look ends with the first that is ill: the others' time was not up.
        let is_ill = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
        let is_cut_short = self.survey.is_look && self.survey.outcomes.values().any(is_ill);
        for probe in std::mem::take(&mut self.under_way) {
            let is_in_use = pool.active.iter().any(|host| host.name == probe.name);
            let outcome = match is_in_use && !is_cut_short {
                true => {
                    let waited = probe.started.elapsed().as_secs_f64();
                    Outcome::Failed(format!("no answer in {waited:.1} s, when all others had"))
                }
                false => {
                    self.lines.keep(&probe.name, probe.line);
                    Outcome::Unknown
                }
            };
            self.survey.outcomes.insert(probe.name, outcome);
        }
        self.survey
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::answer as answer_of;
    use super::*;
    use crate::checkpoint::store::SegmentName;

    fn pool(active: &[&str], spares: &[&str]) -> Pool {
        let hosts = |names: &[&str]| {
            names.iter().map(|name| Host { name: (*name).to_owned(), slots: 2 }).collect()
        };
        Pool::new(hosts(active), hosts(spares))
    }

    /// What a node that is well answers to the first question.
    pub(in crate::supervisor) fn answer() -> Answer {
        Answer {
            question: 0,
            host: "n1".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            program: program_checksum(),
            ended: 0,
            immortal: 0,
            run_bytes: 0,
            available_bytes: 1 << 30,
            store_free_bytes: None,
            sysv: None,
            no_store: None,
            warnings: vec![],
        }
    }

    fn sh(script: String) -> Vec<String> {
        vec!["/bin/sh".into(), "-c".into(), script]
    }

    fn says(answer: &Answer) -> String {
        format!("echo Welcome!; printf '%s' '{}'", answer.line())
    }

    /// By new lines to all.
    fn survey(pool: &Pool, reach: &dyn Fn(&str) -> Vec<String>, limits: Limits) -> Survey {
        super::survey(&mut Lines::default(), pool, reach, limits, &mut || false)
    }

    const LIMITS: Limits = Limits {
        purpose: Purpose::Start,
        each: Duration::from_secs(3),
        rank_bytes: 0,
        spare_losses: 1,
        suspects: &[],
    };

    #[test]
    fn answers_are_heard_behind_greetings_and_faults_are_told() {
        let reach = |name: &str| match name {
            "n1" => sh(says(&answer())),
            "n2" => sh("echo no route >&2; exit 255".into()),
            "n3" => sh("exit 3".into()),
            "n4" => sh(says(&Answer { version: "0.0.1".into(), ..answer() })),
            "n6" => sh(says(&Answer { program: 1, ..answer() })),
            _ => sh(says(&Answer { no_store: Some("none".into()), ..answer() })),
        };
        let found = survey(&pool(&["n1", "n2", "n3", "n4", "n5", "n6"], &[]), &reach, LIMITS);
        let health = |name| match found.health(name, 2) {
            Health::Ill(why) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(health("n1"), "Well");
        assert_eq!(health("n2"), "probe: exit status: 255; no route");
        assert_eq!(health("n3"), "probe: exit status: 3; not a word: does skt-hpl run there?");
        assert!(health("n4").starts_with("has version 0.0.1 of skt-hpl, not "));
        assert_eq!(health("n5"), "has no shared memory for us: none");
        assert!(health("n6").starts_with("has another build of skt-hpl"), "{}", health("n6"));
        assert_eq!(health("n7"), "Unknown");
    }

    #[test]
    fn a_missing_agent_is_no_fault_of_the_nodes() {
        let reach = |_: &str| vec!["/nonexistent/ssh".to_owned()];
        let mut found = survey(&pool(&["n1", "n2"], &[]), &reach, LIMITS);
        assert_eq!(found.health("n1", 2), Health::Unknown);
        let (agent, error) = found.take_agent_fault().unwrap();
        assert_eq!((agent.as_str(), error.kind()), ("/nonexistent/ssh", io::ErrorKind::NotFound));
    }

    #[test]
    fn a_store_needs_room_for_what_the_ranks_will_hold() {
        let reach = |name: &str| match name {
            "n1" => sh(says(&Answer { store_free_bytes: Some(199), ..answer() })),
            "n2" => sh(says(&Answer { store_free_bytes: Some(200), ..answer() })),
            "n3" => sh(says(&Answer { store_free_bytes: Some(0), run_bytes: 200, ..answer() })),
            _ => sh(says(&answer())),
        };
        let limits = Limits { rank_bytes: 100, ..LIMITS };
        let found = survey(&pool(&["n1", "n2", "n3", "n4"], &[]), &reach, limits);
        let Health::Ill(why) = found.health("n1", 2) else { panic!("{found:?}") };
        assert!(why.starts_with("its store has room for 199 bytes of the 200 "), "{why}");
        for name in ["n2", "n3", "n4"] {
            assert_eq!(found.health(name, 2), Health::Well, "{name}");
        }
    }

    #[test]
    fn limits_of_system_v_memory_are_known_before_a_rank_meets_them() {
        let limits = SysvLimits {
            shmmax_bytes: 100 * 4096,
            shmall_pages: 1000,
            shmmni: 4096,
            used_pages: 0,
            segments: 0,
        };
        let others = [
            ("n1", limits),
            ("n2", SysvLimits { shmmax_bytes: 99 * 4096, ..limits }),
            ("n3", SysvLimits { used_pages: 801, ..limits }),
            ("n4", SysvLimits { used_pages: 800, ..limits }),
            ("n5", SysvLimits { segments: 4096 - 5, ..limits }),
        ];
        let reach = |name: &str| {
            let (_, limits) = others.iter().find(|(other, _)| *other == name).unwrap();
            sh(says(&Answer { sysv: Some(*limits), ..answer() }))
        };
        let limits = Limits { rank_bytes: 98 * 4096, ..LIMITS };
        let found = survey(&pool(&others.map(|(name, _)| name), &[]), &reach, limits);
        let health = |name| match found.health(name, 2) {
            Health::Ill(why) => why.rsplit(": ").nth(1).unwrap().to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(health("n1"), "Well");
        assert_eq!(health("n2"), "kernel.shmmax = 405504, 409600 is needed");
        assert_eq!(health("n3"), "kernel.shmall = 1000, 1001 is needed");
        assert_eq!(health("n4"), "Well");
        assert_eq!(health("n5"), "kernel.shmmni = 4096, 4097 is needed");
    }

    #[test]
    fn what_a_run_has_of_system_v_memory_is_not_held_against_it() {
        let store = StoreKind::SysV { huge_pages: false }.open();
        let run = format!("probe-{}", std::process::id());
        let name = SegmentName::new(&run, "state", 0).unwrap();
        drop(store.create(&name, 1 << 20).unwrap());
        // Segments of other tests come and go beside.
        let is_left_out = (0..1000).any(|_| {
            let all = host::Host::this().sysv_limits();
            let others = others_of_sysv(&*store, &run);
            let pages = all.used_pages.checked_sub(others.used_pages);
            pages >= Some(257) && all.segments.checked_sub(others.segments) == Some(1)
        });
        store.remove(&name).unwrap();
        assert!(is_left_out);
    }

    /// A far end that notes each opening in a file, and answers all questions.
    fn answers_all(openings: &Path) -> String {
        let line = answer().line();
        let line = line.trim_end().replace("\"question\":0", "\"question\":'$number'");
        format!(
            "echo opened >> {}; number=0; echo '{line}'; \
             while read number purpose; do echo '{line}'; done",
            openings.display()
        )
    }

    #[test]
    fn a_line_is_kept_for_the_next_questions_unless_it_goes_deaf() {
        let folder = tempfile::tempdir().unwrap();
        let (well, deaf) = (folder.path().join("well"), folder.path().join("deaf"));
        let openings = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
        let reach = |name: &str| match name {
            "n1" => sh(answers_all(&well)),
            // Only the first of its lines does not hear a second question.
            _ if !deaf.exists() => {
                sh(format!("touch {}; {}; sleep 1000", deaf.display(), says(&answer())))
            }
            _ => sh(answers_all(&deaf)),
        };
        let (mut lines, pool) = (Lines::default(), pool(&["n1", "n2"], &[]));
        for purpose in [Purpose::Start, Purpose::Look, Purpose::Start, Purpose::Look] {
            let limits = Limits { purpose, each: Duration::from_secs(30), ..LIMITS };
            let found = super::survey(&mut lines, &pool, &reach, limits, &mut || false);
            for name in ["n1", "n2"] {
                assert_eq!(found.health(name, 2), Health::Well, "{name} {purpose}");
            }
        }
        assert_eq!((openings(&well), openings(&deaf)), (1, 1));
    }

    #[test]
    fn a_suspect_does_not_cost_the_time_of_a_handshake_where_lines_are_kept() {
        const HANDSHAKE_SECONDS: f64 = 3.0;
        let folder = tempfile::tempdir().unwrap();
        let openings = |name: &str| folder.path().join(name);
        let reach = |name: &str| {
            let opened = openings(name);
            let is_lost = name == "n2" && opened.exists();
            let wait = if is_lost { 1000.0 } else { HANDSHAKE_SECONDS };
            sh(format!(
                "echo opened >> {}; sleep {wait}; {}",
                opened.display(),
                match name {
                    "n2" => says(&answer()),
                    _ => answers_all(&opened),
                }
            ))
        };
        let (mut lines, pool) = (Lines::default(), pool(&["n1", "n2"], &["s1"]));
        let limits = Limits { each: Duration::from_secs(30), spare_losses: 0, ..LIMITS };
        let found = super::survey(&mut lines, &pool, &reach, limits, &mut || false);
        assert_eq!(found.health("n2", 2), Health::Well);
        // The spare may not have been waited for.
        std::thread::sleep(Duration::from_secs(1));
        let suspects = ["n2".to_owned()];
        let limits = Limits { spare_losses: 1, suspects: &suspects, ..limits };
        let start = Instant::now();
        let found = super::survey(&mut lines, &pool, &reach, limits, &mut || false);
        assert!(matches!(found.health("n2", 2), Health::Ill(why) if why.contains("no answer")));
        assert_eq!(found.health("s1", 2), Health::Well);
        let took = start.elapsed().as_secs_f64();
        assert!((0.3..HANDSHAKE_SECONDS).contains(&took), "{took}");
    }

    #[test]
    fn silence_says_nothing_when_the_job_has_ended_meanwhile() {
        let reach = |name: &str| match name {
            "n2" => sh("sleep 1000".into()),
            _ => sh(says(&answer())),
        };
        let limits = Limits { purpose: Purpose::Look, each: Duration::from_secs(30), ..LIMITS };
        let (start, mut lines) = (Instant::now(), Lines::default());
        let mut is_over = || start.elapsed() > Duration::from_millis(500);
        let pool = pool(&["n1", "n2"], &[]);
        let found = super::survey(&mut lines, &pool, &reach, limits, &mut is_over);
        assert_eq!(found.health("n2", 0), Health::Unknown);
        assert!(start.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn a_node_tells_what_its_store_has_free() {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file:{}", folder.path().display());
        let purpose = Purpose::Look;
        let question = Question { run: "r".into(), run_id: "r".into(), store, purpose, number: 0 };
        let free = answer_of(&question).store_free_bytes;
        assert!(free.is_some_and(|bytes| bytes > 0 && bytes < u64::MAX), "{free:?}");
        let sysv = Question { store: "sysv".into(), ..question };
        assert_eq!(answer_of(&sysv).store_free_bytes, None);
    }

    #[test]
    fn one_silent_node_costs_a_second_and_two_the_whole_limit() {
        let reach = |name: &str| match name {
            "n2" | "n3" => sh("sleep 1000".into()),
            _ => sh(says(&answer())),
        };
        // A busy machine answers late, and the patience grows with that.
        let patient = Limits { each: Duration::from_secs(30), ..LIMITS };
        let start = Instant::now();
        let found = survey(&pool(&["n1", "n2"], &["s1"]), &reach, patient);
        assert!(matches!(found.health("n2", 2), Health::Ill(why) if why.contains("no answer")));
        let took = start.elapsed().as_secs_f64();
        assert!((1.0..25.0).contains(&took), "{took}");
        let suspects = ["n2".to_owned()];
        let start = Instant::now();
        survey(&pool(&["n1", "n2"], &["s1"]), &reach, Limits { suspects: &suspects, ..patient });
        let with_hint = start.elapsed().as_secs_f64();
        assert!((0.3..25.0).contains(&with_hint), "{with_hint}");
        let start = Instant::now();
        survey(&pool(&["n1", "n2", "n3"], &["s1", "s2"]), &reach, LIMITS);
        assert!(start.elapsed() >= LIMITS.each);
    }

    #[test]
    fn a_look_ends_with_the_first_that_is_ill_or_when_one_alone_is_silent() {
        let reach = |name: &str| match name {
            "n2" => sh("sleep 0.2; echo no route >&2; exit 255".into()),
            "n3" | "s1" => sh("sleep 1000".into()),
            _ => sh(says(&answer())),
        };
        let limits = Limits { purpose: Purpose::Look, each: Duration::from_secs(20), ..LIMITS };
        let look = |active: &[&str]| {
            let start = Instant::now();
            let found = survey(&pool(active, &["s1"]), &reach, limits);
            assert_eq!(found.health("s1", 0), Health::Unknown, "spares are not asked");
            (found, start.elapsed().as_secs_f64())
        };
        let (found, took) = look(&["n1", "n2"]);
        assert!(matches!(found.health("n2", 0), Health::Ill(why) if why.contains("no route")));
        assert!(took < 2.0, "{took}");
        let (found, took) = look(&["n1", "n3"]);
        assert!(matches!(found.health("n3", 0), Health::Ill(why) if why.contains("no answer")));
        assert!((2.0..5.0).contains(&took), "{took}");
        let (found, _) = look(&["n3", "n2"]);
        assert_eq!(found.health("n3", 0), Health::Unknown, "its time was not up");
        let (found, _) = look(&["n1", "n4"]);
        assert_eq!(found.health("n4", 0), Health::Well);
    }

    #[test]
    fn a_slow_agent_is_waited_for_but_not_ten_times_over() {
        let reach = |name: &str| match name {
            "n2" => sh("sleep 1000".into()),
            _ => sh(format!("sleep 1.5; {}", says(&answer()))),
        };
        let limits = Limits { purpose: Purpose::Look, each: Duration::from_secs(30), ..LIMITS };
        let start = Instant::now();
        let found = survey(&pool(&["n1", "n2"], &[]), &reach, limits);
        assert!(matches!(found.health("n2", 0), Health::Ill(why) if why.contains("no answer")));
        let took = start.elapsed().as_secs_f64();
        assert!((5.0..9.0).contains(&took), "{took}");
        let suspects = ["n2".to_owned()];
        let limits = Limits { purpose: Purpose::Start, suspects: &suspects, ..limits };
        let start = Instant::now();
        survey(&pool(&["n1", "n2"], &["s1"]), &reach, limits);
        let took = start.elapsed().as_secs_f64();
        assert!((1.8..4.0).contains(&took), "{took}");
    }

    #[test]
    fn spares_that_are_not_needed_are_not_waited_for() {
        let reach = |name: &str| match name {
            "s1" => sh("sleep 1000".into()),
            _ => sh(says(&answer())),
        };
        let patient = Limits { each: Duration::from_secs(30), ..LIMITS };
        let start = Instant::now();
        let found = survey(&pool(&["n1", "n2"], &["s1"]), &reach, patient);
        assert!(start.elapsed() < Duration::from_secs(15));
        assert_eq!(found.health("s1", 2), Health::Unknown);
    }

    #[test]
    fn a_spare_needs_the_memory_that_survivors_segments_take() {
        let reach = |name: &str| match name {
            "n1" => sh(says(&Answer { run_bytes: 1 << 30, available_bytes: 5, ..answer() })),
            _ => sh(says(&Answer { available_bytes: (1 << 30) - 1, ..answer() })),
        };
        let mut pool = pool(&["n1"], &["s1"]);
        pool.active[0].slots = 1;
        // Make the survey wait for the spare.
        pool.active.push(Host { name: "s1".into(), slots: 1 });
        let found = survey(&pool, &reach, LIMITS);
        assert_eq!(found.health("n1", 1), Health::Well);
        let Health::Ill(why) = found.health("s1", 1) else { panic!() };
        assert_eq!(why, "1073741823 of 1073741824 bytes of memory are available");
    }
}
