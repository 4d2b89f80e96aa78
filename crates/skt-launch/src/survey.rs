//! Asks all nodes at once whether they can take part, by the same agent that the
//! launcher uses, with a time limit. See [`super::probe`] for what a node does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use skt_host::wait_clock::WaitClock;

use super::fault;
use super::hosts::{Health, Host, Pool};
use super::line::{Arrival, IdleLines, Line};
use super::links::addresses::Networks;
use super::links::from_here::LocalTries;
use super::links::verdict::{self, Findings, JudgedNodes};
use super::links::{Partner, plan};
use super::probe::{Answer, Purpose};
use super::program::Program;

/// How long the last nodes are waited for once the others have answered, counted from the start of
/// the survey: this number of times the time of the slowest answer so far, plus this duration. If
/// opening a line took longer than the slowest answer, that time counts instead: the line to a
/// healthy node may have broken, and an agent may take seconds for the handshake of a new one.
const PATIENCE: (u32, Duration) = (2, Duration::from_secs(1));
/// [`PATIENCE`] with nodes of a silent job, which is ended if one of them is lost.
const PATIENCE_OF_CHECK: (u32, Duration) = (2, Duration::from_secs(2));
/// How long, after the slowest other node, those nodes are waited for that the launcher or an
/// earlier probe reports as lost.
const PATIENCE_WITH_SUSPECTS: Duration = Duration::from_millis(300);
/// [`PATIENCE`] where links are tried: there a node waits for its partners before it answers.
const PATIENCE_OF_LINKS: (u32, Duration) = (2, Duration::from_secs(9));
/// A kept line on which no answer has come after this time is replaced by a new one: it may have
/// broken without any packet that reports this, while the node is healthy.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Lines in use at a time, without those that have waited for twice the mean time of an answer:
/// these hold up no other node.
const AT_ONCE: usize = 128;

/// Which nodes are asked, and what for.
#[derive(Debug, Clone, PartialEq)]
pub struct Inquiry {
    /// Why they are asked. A quick probe asks only the nodes in use, and ends when it has found one
    /// that is ill.
    pub purpose: Purpose,
    /// The nodes; those that are out are not asked.
    pub pool: Pool,
    /// The number of nodes in use whose loss the checkpoint can make up for. When no more than this
    /// number have not answered, they are waited for only a little longer, as every second of the
    /// outage counts.
    pub spare_losses: usize,
    /// Nodes that the launcher has reported as lost. This is only a hint: they are asked like the
    /// others, but waited for less long.
    pub suspects: Vec<String>,
    /// Nodes that are known to be lost, whatever they answer. The survey waits until spares can
    /// take their places, and counts none of them as such a spare. Their links are not tried.
    pub lost: BTreeSet<String>,
    /// Nodes that are to be left out on trial: those need spares, too.
    pub leaving: BTreeSet<String>,
    /// With `Some`, nodes share the ranks of lost ones if spares are too few. Before that this
    /// number of spares, from the first, are waited for.
    pub share_after: Option<usize>,
    /// Whether the nodes then try their links, see `Survey::nodes_to_link`.
    pub tries_links: bool,
}

impl Inquiry {
    /// Asks the nodes of `pool`, of which nothing is known.
    pub fn new(purpose: Purpose, pool: Pool) -> Self {
        Self {
            purpose,
            pool,
            spare_losses: 0,
            suspects: Vec::new(),
            lost: BTreeSet::new(),
            leaving: BTreeSet::new(),
            share_after: None,
            tries_links: false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Survey {
    pub answers: BTreeMap<String, Answer>,
    /// Whether a node can take part, unless it was not waited for.
    pub health: BTreeMap<String, Health>,
    /// What the nodes have found about their links; `None` if they have not tried any.
    pub links: Option<Findings>,
    /// The agent that cannot be started on this machine, and why: no node can be asked.
    pub agent_fault: Option<(String, io::Error)>,
    /// The longest that a node took to answer, or had taken when its line was opened.
    pub slowest: Duration,
    /// Bytes of a rank's segments on the nodes that have some.
    pub held_bytes: u64,
}

impl Survey {
    /// Whether a node can take part.
    pub fn health(&self, name: &str) -> Health {
        self.health.get(name).cloned().unwrap_or(Health::Unknown)
    }

    /// The nodes that try their links after this survey: before a start those that are well; while
    /// the job runs those in use, if all of them are well and no rank is stopped, because the agent
    /// may reach the nodes over another network than the ranks. None if they are fewer than two.
    pub(crate) fn nodes_to_link(&self, inquiry: &Inquiry) -> Vec<Host> {
        let Inquiry { purpose, pool, lost, .. } = inquiry;
        let spares = if *purpose == Purpose::Check { &[][..] } else { &pool.spares[..] };
        let is_well =
            |host: &&Host| self.health(&host.name) == Health::Well && !lost.contains(&host.name);
        let well: Vec<Host> = pool.active.iter().chain(spares).filter(is_well).cloned().collect();
        let is_stopped = self.answers.values().any(|answer| answer.stopped > 0);
        let is_explained =
            *purpose == Purpose::Check && (is_stopped || well.len() < pool.active.len());
        let tries_links = inquiry.tries_links && self.agent_fault.is_none() && !is_explained;
        if tries_links && well.len() > 1 { well } else { Vec::new() }
    }

    pub fn ended(&self) -> usize {
        self.answers.values().fold(0, |sum: usize, answer| sum.saturating_add(answer.ended))
    }

    /// Warnings, each with the nodes that have it.
    pub fn warnings(&self) -> BTreeMap<String, Vec<&str>> {
        let mut by_text: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, answer) in &self.answers {
            for warning in &answer.warnings {
                by_text.entry(warning.clone()).or_default().push(name);
            }
        }
        by_text
    }
}

/// What the nodes need, and how long their answers are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    pub each: Duration,
    /// Bytes that the segments of a rank take, by the configuration.
    pub rank_bytes: u64,
    /// The program that the ranks run, if it is not the benchmark.
    pub program: Option<&'a Program>,
    pub networks: &'a Networks,
}

/// The command line that reaches a node, with the first question on a new line.
pub type Reach<'a> = dyn Fn(&str, Purpose, &[Partner]) -> Vec<String> + 'a;

struct Probe {
    name: String,
    line: Line,
    started: Instant,
    /// Whether the line was opened for it.
    is_new: bool,
    /// Whether it only shows that the agent still works here.
    is_control: bool,
}

/// Whether an agent works on this machine, by the lines that were opened with it in this survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentState {
    /// A line is being opened to see that.
    Tried,
    Works,
    Fails,
}

/// Probes the nodes on the lines that are kept to them or on new ones, and then has them try their
/// links. If `is_over` becomes true before there are enough answers, nothing is concluded from
/// silence.
pub fn survey(
    lines: &mut IdleLines,
    inquiry: &Inquiry,
    reach: &Reach,
    limits: Limits,
    is_over: &mut dyn FnMut() -> bool,
) -> Survey {
    let none = BTreeMap::new();
    let mut survey = ProbeRound::new(lines, inquiry, reach, limits, &none).run(is_over);
    let hosts = survey.nodes_to_link(inquiry);
    if hosts.is_empty() {
        return survey;
    }
    let partners = plan::partners(&hosts, &survey.answers, limits.networks);
    let inquiry = Inquiry::new(Purpose::Links, Pool::new(hosts, Vec::new()));
    let tried = ProbeRound::new(lines, &inquiry, reach, limits, &partners).run(is_over);
    let links = tried.answers.into_iter().map(|(name, answer)| (name, answer.links));
    survey.links = Some(links.collect());
    survey.health.extend(tried.health);
    survey
}

/// Whether an agent cannot be started because this machine has no room for one more, which passes
/// as soon as others have ended.
fn lacks_room(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN | Errno::ENOMEM))
}

#[derive(Debug)]
enum ProbeOutcome {
    Answer(Box<Answer>),
    Failed(String),
    /// No time was left for it, or its agent is missing here.
    Unknown,
}

struct ProbeRound<'a> {
    outcomes: BTreeMap<String, ProbeOutcome>,
    agent_fault: Option<(String, io::Error)>,
    /// Bytes of a rank's segments on the nodes that have some.
    held_bytes: u64,
    inquiry: &'a Inquiry,
    pool: &'a Pool,
    limits: Limits<'a>,
    lines: &'a mut IdleLines,
    reach: &'a Reach<'a>,
    /// The nodes that each node tries to reach, where links are tried.
    partners: &'a BTreeMap<String, Vec<Partner>>,
    open: &'a dyn Fn(&[String], bool) -> io::Result<Line>,
    renew_after: Duration,
    patience: (u32, Duration),
    /// Nodes that are not asked yet, the next one last.
    waiting: Vec<String>,
    /// The lines in use for which this machine has room, as far as that is known.
    room: usize,
    /// Since when no line could be opened for want of room.
    lacking: Option<Instant>,
    under_way: Vec<Probe>,
    /// Nodes to which no line could be opened while the job runs, and why. They are lost if the
    /// agent can open a line to another node.
    failed_lines: Vec<(String, String)>,
    agents: BTreeMap<String, AgentState>,
    /// When the last node was asked: of many nodes, some wait until others have answered.
    begun: Instant,
    /// How many nodes have answered, and the sum of the times that they took.
    answered: (u32, Duration),
    /// The longest that a node took to answer.
    slowest: Duration,
    /// The longest that a node that has answered took when its line was opened.
    slowest_opening: Duration,
    /// Number of outcomes when links were last judged, and whether all silent nodes had dead links.
    judged: (usize, bool),
    /// Packets that are sent from here to the silent nodes.
    from_here: Option<LocalTries>,
}

impl<'a> ProbeRound<'a> {
    fn new(
        lines: &'a mut IdleLines,
        inquiry: &'a Inquiry,
        reach: &'a Reach<'a>,
        limits: Limits<'a>,
        partners: &'a BTreeMap<String, Vec<Partner>>,
    ) -> Self {
        let pool = &inquiry.pool;
        let spares = match inquiry.purpose {
            Purpose::Check => &[],
            Purpose::Start | Purpose::Links | Purpose::Clean | Purpose::Forget => &pool.spares[..],
        };
        let names = pool.active.iter().chain(spares).map(|host| host.name.clone());
        let patience = match inquiry.purpose {
            Purpose::Check => PATIENCE_OF_CHECK,
            Purpose::Links => PATIENCE_OF_LINKS,
            Purpose::Start | Purpose::Clean | Purpose::Forget => PATIENCE,
        };
        Self {
            outcomes: BTreeMap::new(),
            agent_fault: None,
            held_bytes: 0,
            inquiry,
            pool,
            limits,
            lines,
            reach,
            partners,
            open: &Line::open,
            renew_after: RENEW_AFTER,
            patience,
            waiting: names.rev().collect(),
            room: usize::MAX,
            lacking: None,
            under_way: Vec::new(),
            failed_lines: Vec::new(),
            agents: BTreeMap::new(),
            begun: Instant::now(),
            answered: (0, Duration::ZERO),
            slowest: Duration::ZERO,
            slowest_opening: Duration::ZERO,
            judged: (0, false),
            from_here: None,
        }
    }

    fn run(mut self, is_over: &mut dyn FnMut() -> bool) -> Survey {
        let mut clock = WaitClock::new(self.limits.each);
        while !self.waiting.is_empty() || !self.under_way.is_empty() {
            self.forgive(clock.skip());
            self.start_waiting();
            let polled = Instant::now();
            // One deadline for all, and as long as the answers took for those that were asked last.
            let least = self.time_to_answer(self.patience).min(self.limits.each);
            let is_up = self.waiting.is_empty() && self.begun.elapsed() >= least;
            self.collect(is_up && clock.waited() >= self.limits.each);
            self.judge_failed_lines();
            self.try_silent();
            if self.waiting.is_empty() && self.is_enough() {
                break;
            }
            if is_over() {
                return self.stop(false);
            }
            // With very many lines this takes a quarter of a core at most.
            std::thread::sleep((polled.elapsed() * 3).max(Duration::from_millis(2)));
        }
        self.stop(true)
    }

    /// Asks nodes as long as answers of less than [`AT_ONCE`] are due and there is room.
    fn start_waiting(&mut self) {
        let (answers, sum) = self.answered;
        let usual = sum.checked_div(answers).map_or(RENEW_AFTER, |mean| 2 * mean);
        let is_due = |probe: &&Probe| probe.started.elapsed() < usual;
        let mut due = self.under_way.iter().filter(is_due).count();
        while due < AT_ONCE
            && self.under_way.len() < self.room
            && let Some(name) = self.waiting.pop()
        {
            self.start(&name);
            if self.lacking.is_some() {
                self.room = self.under_way.len().max(1);
            }
            due += 1;
        }
    }

    /// Does not count the time that the supervisor, and with it perhaps the agents, stood still.
    fn forgive(&mut self, stood_still: Duration) {
        self.begun += stood_still;
        self.under_way.iter_mut().for_each(|probe| probe.started += stood_still);
    }

    fn start(&mut self, name: &str) {
        let started = Instant::now();
        self.begun = started;
        let kept = self.lines.take(name);
        let ask =
            |mut line: Line| line.ask(self.inquiry.purpose, self.partners_of(name)).then_some(line);
        match kept.and_then(ask) {
            Some(line) => {
                self.push(name, line, started, false);
            }
            None => self.open(name, started),
        }
    }

    fn partners_of(&self, name: &str) -> &'a [Partner] {
        self.partners.get(name).map_or(&[][..], |partners| partners)
    }

    fn command(&self, name: &str) -> Vec<String> {
        (self.reach)(name, self.inquiry.purpose, self.partners_of(name))
    }

    fn push(&mut self, name: &str, line: Line, started: Instant, is_new: bool) {
        let (name, is_control) = (name.to_owned(), false);
        self.under_way.push(Probe { name, line, started, is_new, is_control });
    }

    fn agent(&self, name: &str) -> String {
        self.command(name).swap_remove(0)
    }

    /// Notes what a new line has shown about the agent of `name`. An agent that has worked once
    /// counts as working from then on.
    fn note_agent(&mut self, name: &str, state: AgentState) {
        let known = self.agents.entry(self.agent(name)).or_insert(state);
        if *known != AgentState::Works {
            *known = state;
        }
    }

    /// Whether a line that cannot be opened may be the fault of the agent here, and is not to end a
    /// job: a ticket or a certificate has expired, or no name is found for a moment.
    fn doubts_agent(&self) -> bool {
        matches!(self.inquiry.purpose, Purpose::Check | Purpose::Links)
    }

    /// Decides whether nodes to which no line could be opened are lost: they are if the agent can
    /// open a line to another node. Answers on kept lines do not test the agent, so one of the
    /// nodes that have answered gets a new line, too.
    fn judge_failed_lines(&mut self) {
        for (name, why) in std::mem::take(&mut self.failed_lines) {
            let agent = self.agent(&name);
            match self.agents.get(&agent) {
                Some(AgentState::Works) => {
                    self.outcomes.insert(name, ProbeOutcome::Failed(why));
                    continue;
                }
                Some(AgentState::Fails) => {
                    self.outcomes.insert(name, ProbeOutcome::Unknown);
                    continue;
                }
                Some(AgentState::Tried) => {}
                None => self.try_agent(&agent),
            }
            self.failed_lines.push((name, why));
        }
    }

    /// Opens a line to a node that has answered, or to a spare if no node is left that may answer,
    /// to see whether `agent` works.
    fn try_agent(&mut self, agent: &str) {
        let has_answered =
            |host: &&Host| matches!(self.outcomes.get(&host.name), Some(ProbeOutcome::Answer(_)));
        let is_of_agent = |host: &&Host| self.agent(&host.name) == agent;
        let may_answer = self.under_way.iter().any(|probe| self.agent(&probe.name) == agent);
        let spares = if may_answer { &[][..] } else { &self.pool.spares[..] };
        let mut hosts = self.pool.active.iter().filter(has_answered).chain(spares);
        let Some(host) = hosts.find(is_of_agent) else { return };
        let (name, started) = (host.name.clone(), Instant::now());
        match (self.open)(&self.command(&name), false) {
            Ok(line) => {
                self.note_agent(&name, AgentState::Tried);
                self.under_way.push(Probe { name, line, started, is_new: true, is_control: true });
            }
            Err(_) => self.note_agent(&name, AgentState::Fails),
        }
    }

    /// Opens a new line, for a probe that was started at `started`.
    fn open(&mut self, name: &str, started: Instant) {
        let kept = self.under_way.iter().filter(|probe| probe.line.is_kept()).count();
        let argv = self.command(name);
        match (self.open)(&argv, self.lines.has_room(kept)) {
            Ok(line) => {
                self.lacking = None;
                self.push(name, line, started, true);
            }
            Err(error) if lacks_room(&error) && self.lacks_room_since() < self.limits.each => {
                self.waiting.push(name.to_owned());
            }
            Err(error) => {
                // It is no evidence about the node.
                self.outcomes.insert(name.to_owned(), ProbeOutcome::Unknown);
                self.agent_fault = Some((argv[0].clone(), error));
            }
        }
    }

    fn lacks_room_since(&mut self) -> Duration {
        self.lacking.get_or_insert_with(Instant::now).elapsed()
    }

    /// Takes what has arrived. If the time `is_up`, nodes that have not answered fail. They also
    /// fail where others cannot be asked for want of room, once they are late.
    fn collect(&mut self, is_up: bool) {
        let limit = self.limits.each;
        let lacks_room = !self.waiting.is_empty() && self.under_way.len() >= self.room;
        let is_known = self.slowest > Duration::ZERO;
        let late = if is_known { self.time_to_answer(self.patience).min(limit) } else { limit };
        // The same text for all nodes, which messages combine.
        let least = if is_up { self.begun.elapsed() } else { late };
        let silent = format!("no answer in {:.0} s", least.as_secs_f64());
        for mut probe in std::mem::take(&mut self.under_way) {
            let waited = probe.started.elapsed();
            let outcome = match probe.line.receive() {
                Arrival::Nothing if probe.is_control && waited < limit => {
                    self.under_way.push(probe);
                    continue;
                }
                arrival if probe.is_control => {
                    let works = matches!(arrival, Arrival::Answer(_));
                    let state = if works { AgentState::Works } else { AgentState::Fails };
                    self.note_agent(&probe.name, state);
                    continue;
                }
                Arrival::Answer(answer) => {
                    if probe.is_new {
                        self.note_agent(&probe.name, AgentState::Works);
                    }
                    let opening = probe.line.opening().unwrap_or_default();
                    self.slowest = self.slowest.max(waited);
                    self.answered = (self.answered.0 + 1, self.answered.1 + waited);
                    self.slowest_opening = self.slowest_opening.max(opening);
                    let host = self.pool.active.iter().find(|host| host.name == probe.name);
                    let ranks = host.map_or(1, |host| host.slots as u64).max(1);
                    self.held_bytes = self.held_bytes.max(answer.run_bytes / ranks);
                    self.lines.keep(&probe.name, probe.line);
                    ProbeOutcome::Answer(answer)
                }
                Arrival::End(why) if probe.is_new && self.doubts_agent() => {
                    self.failed_lines.push((probe.name, why));
                    continue;
                }
                Arrival::End(why) if probe.is_new => ProbeOutcome::Failed(why),
                Arrival::Nothing if is_up || (lacks_room && waited >= late) => {
                    ProbeOutcome::Failed(silent.clone())
                }
                Arrival::Nothing
                    if probe.is_new
                        || waited < self.renew_after
                        || self.inquiry.purpose == Purpose::Links =>
                {
                    self.under_way.push(probe);
                    continue;
                }
                Arrival::Nothing | Arrival::End(_) => {
                    self.open(&probe.name, probe.started);
                    continue;
                }
            };
            self.outcomes.insert(probe.name, outcome);
        }
    }

    /// Whether a node can take part, as far as it has answered.
    fn health(&self, host: &Host) -> Health {
        match self.outcomes.get(&host.name) {
            None | Some(ProbeOutcome::Unknown) => Health::Unknown,
            Some(ProbeOutcome::Failed(why)) => Health::Ill(why.clone()),
            // A quick probe asks for a sign of life, and a try of links for what is known of other
            // nodes.
            Some(ProbeOutcome::Answer(_))
                if matches!(self.inquiry.purpose, Purpose::Check | Purpose::Links) =>
            {
                Health::Well
            }
            Some(ProbeOutcome::Answer(answer)) => {
                let (held_bytes, rank_bytes) = (self.held_bytes, self.limits.rank_bytes);
                let program_fault = || {
                    self.limits.program.and_then(|program| fault::program_fault(answer, program))
                };
                let fault = fault::node_fault(answer, host.slots as u64, held_bytes, rank_bytes);
                match fault.or_else(program_fault) {
                    None => Health::Well,
                    Some(why) => Health::Ill(why),
                }
            }
        }
    }

    /// Takes silent nodes in use for lost if no packet comes back from them, however long the agent
    /// would wait for them. Before the first start nothing is lost by waiting.
    fn try_silent(&mut self) {
        let is_probe = self.inquiry.purpose == Purpose::Check;
        if !is_probe && (self.inquiry.purpose != Purpose::Start || self.inquiry.spare_losses == 0) {
            return;
        }
        if let Some(from_here) = &self.from_here {
            let gone = from_here.gone().unwrap_or_default();
            for probe in std::mem::take(&mut self.under_way) {
                if gone.contains(&probe.name) {
                    let waited = probe.started.elapsed().as_secs_f64();
                    let why =
                        format!("no answer in {waited:.1} s, and no packet comes back from it");
                    self.outcomes.insert(probe.name, ProbeOutcome::Failed(why));
                } else {
                    self.under_way.push(probe);
                }
            }
        } else if self.begun.elapsed() > self.slowest + PATIENCE_WITH_SUSPECTS {
            let name = |host: &Host| host.name.clone();
            let active = &self.pool.active;
            // Of many nodes, some are not asked yet.
            let probes = self.under_way.iter().filter(|probe| !probe.is_control);
            let is_silent: BTreeSet<&str> = probes.map(|probe| probe.name.as_str()).collect();
            let silent = active.iter().filter(|host| is_silent.contains(host.name.as_str()));
            let silent: Vec<String> = silent.map(name).collect();
            let asked = active.iter().chain(&self.pool.spares);
            let well = asked.filter(|host| self.health(host) == Health::Well);
            let well: Vec<String> = well.take(silent.len() + 1).map(name).collect();
            // More tries than to silent ones: if they succeed, the others get less time.
            let answering: Vec<String> =
                well.iter().cycle().take(silent.len() + 1).cloned().collect();
            if !silent.is_empty() && !answering.is_empty() {
                self.from_here = Some(LocalTries::start(silent, answering));
            }
        }
    }

    /// Whether the answers so far suffice to continue.
    fn is_enough(&mut self) -> bool {
        if self.inquiry.purpose == Purpose::Links {
            return self.are_links_known();
        }
        let (pool, inquiry) = (self.pool, self.inquiry);
        let is_silent = |host: &&Host| !self.outcomes.contains_key(&host.name);
        let is_well = |host: &&Host| {
            self.health(host) == Health::Well
                && !inquiry.lost.contains(&host.name)
                && !inquiry.leaving.contains(&host.name)
        };
        let silent = pool.active.iter().filter(is_silent).count();
        let ill = pool.active.iter().filter(|host| !is_silent(host) && !is_well(host)).count();
        let is_suspect = |host: &Host| inquiry.suspects.contains(&host.name);
        let are_suspects = pool.active.iter().filter(is_silent).all(is_suspect);
        if inquiry.purpose == Purpose::Check {
            let patience = if are_suspects { PATIENCE } else { self.patience };
            let is_trying = self.agents.values().any(|state| *state == AgentState::Tried);
            let is_late = !self.is_patient(patience) && silent < pool.active.len() && !is_trying;
            let is_failed = |outcome: &ProbeOutcome| matches!(outcome, ProbeOutcome::Failed(_));
            return self.outcomes.values().any(is_failed) || silent == 0 || is_late;
        }
        // Nodes that are away may be back: they are given some time to answer.
        let has_answered = |host: &Host| self.outcomes.contains_key(&host.name);
        let awaits_away = inquiry.share_after.is_some_and(|spares| {
            !pool.spares.iter().skip(spares).all(has_answered) && self.is_patient(PATIENCE)
        });
        if awaits_away {
            return false;
        }
        let can_share = inquiry
            .share_after
            .is_some_and(|spares| pool.spares.iter().take(spares).all(has_answered));
        if silent == 0 {
            return can_share || self.can_replace();
        }
        let is_patient = if are_suspects {
            self.begun.elapsed() < self.slowest + PATIENCE_WITH_SUSPECTS
        } else {
            self.is_patient(PATIENCE)
        };
        !is_patient && silent + ill <= inquiry.spare_losses && (can_share || self.can_replace())
    }

    /// Whether spares that have answered can take the places of all nodes in use that are ill,
    /// silent or known to be lost.
    fn can_replace(&self) -> bool {
        let pool = self.pool;
        let in_use: BTreeSet<&str> = pool.active.iter().map(|host| host.name.as_str()).collect();
        let known: BTreeMap<&str, Health> = { pool.active.iter().chain(&pool.spares) }
            .map(|host| (host.name.as_str(), self.health(host)))
            .collect();
        let Inquiry { lost, leaving, .. } = self.inquiry;
        pool.can_replace(|name| match known.get(name) {
            _ if lost.contains(name) || leaving.contains(name) => Health::Ill("is lost".to_owned()),
            Some(Health::Unknown) | None if in_use.contains(name) => {
                Health::Ill("is silent".to_owned())
            }
            Some(health) => health.clone(),
            None => Health::Unknown,
        })
    }

    /// Whether nothing more is to be learned of links: all have answered, or the others have
    /// found that none of the silent ones can be reached.
    fn are_links_known(&mut self) -> bool {
        let silent: Vec<&str> = { &self.pool.active }
            .iter()
            .map(|host| host.name.as_str())
            .filter(|name| !self.outcomes.contains_key(*name))
            .collect();
        if silent.is_empty() || !self.is_patient(self.patience) {
            return true;
        }
        if self.judged.0 != self.outcomes.len() {
            let findings = { &self.outcomes }.iter().filter_map(|(name, outcome)| match outcome {
                ProbeOutcome::Answer(answer) => Some((name.clone(), answer.links.clone())),
                ProbeOutcome::Failed(_) | ProbeOutcome::Unknown => None,
            });
            let names = |hosts: &'a [Host]| hosts.iter().map(|host| host.name.as_str());
            let (in_use, spares) = (names(&self.pool.active), names(&self.pool.spares));
            let judged = JudgedNodes::new(in_use, spares, self.inquiry.suspects.iter());
            let dead = verdict::judge(&findings.collect(), &judged).dead;
            let are_dead = silent.iter().all(|name| dead.contains_key(*name));
            self.judged =
                (self.outcomes.len(), are_dead && 2 * silent.len() < self.pool.active.len());
        }
        self.judged.1
    }

    /// Whether nodes that are silent may still answer.
    fn is_patient(&self, patience: (u32, Duration)) -> bool {
        self.begun.elapsed() < self.time_to_answer(patience)
    }

    /// How long a healthy node takes at most, by those that have answered.
    fn time_to_answer(&self, (times, more): (u32, Duration)) -> Duration {
        self.slowest.max(self.slowest_opening) * times + more
    }

    /// Ends what is in progress. If `silence_counts`, nodes in use that did not answer are
    /// lost; others were not waited for.
    fn stop(mut self, silence_counts: bool) -> Survey {
        // A quick probe ends with the first node that fails, before the others' time is up.
        let is_failed = |outcome: &ProbeOutcome| matches!(outcome, ProbeOutcome::Failed(_));
        let is_probe = self.inquiry.purpose == Purpose::Check;
        let is_cut_short = is_probe && self.outcomes.values().any(is_failed);
        let is_probe = |probe: &Probe| !probe.is_control;
        for probe in std::mem::take(&mut self.under_way).into_iter().filter(is_probe) {
            let is_in_use = self.pool.active.iter().any(|host| host.name == probe.name);
            let outcome = if is_in_use && silence_counts && !is_cut_short {
                let waited = probe.started.elapsed().as_secs_f64();
                let is_suspect = self.inquiry.suspects.contains(&probe.name);
                let broke = if is_suspect { ", and a connection to it broke" } else { "" };
                ProbeOutcome::Failed(format!(
                    "no answer in {waited:.1} s, after all others had \
                         answered{broke}"
                ))
            } else {
                self.lines.keep(&probe.name, probe.line);
                ProbeOutcome::Unknown
            };
            self.outcomes.insert(probe.name, outcome);
        }
        let asked = self.pool.active.iter().chain(&self.pool.spares);
        let health = asked.map(|host| (host.name.clone(), self.health(host))).collect();
        let answers = self.outcomes.into_iter().filter_map(|(name, outcome)| match outcome {
            ProbeOutcome::Answer(answer) => Some((name, *answer)),
            ProbeOutcome::Failed(_) | ProbeOutcome::Unknown => None,
        });
        let slowest = self.slowest.max(self.slowest_opening);
        let (answers, agent_fault) = (answers.collect(), self.agent_fault);
        let held_bytes = self.held_bytes;
        Survey { answers, health, links: None, agent_fault, slowest, held_bytes }
    }
}

#[cfg(test)]
mod tests;
