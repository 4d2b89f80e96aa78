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
    /// Whether the nodes then try their links, see [`Survey::nodes_to_link`].
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
    patience_of_probe: (u32, Duration),
    /// Nodes that are not asked yet, the next one last.
    waiting: Vec<String>,
    /// Lines in use at a time: fewer where this machine has no room for more.
    at_once: usize,
    /// Since when no line could be opened for want of room.
    lacking: Option<Instant>,
    under_way: Vec<Probe>,
    /// Nodes to which no line could be opened while the job runs, and why. They are lost if the
    /// agent can open a line to another node.
    failed_lines: Vec<(String, String)>,
    agents: BTreeMap<String, AgentState>,
    /// When the last node was asked: of many nodes, some wait until others have answered.
    begun: Instant,
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
            patience_of_probe: PATIENCE_OF_CHECK,
            waiting: names.rev().collect(),
            at_once: AT_ONCE,
            lacking: None,
            under_way: Vec::new(),
            failed_lines: Vec::new(),
            agents: BTreeMap::new(),
            begun: Instant::now(),
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
            while self.under_way.len() < self.at_once
                && let Some(name) = self.waiting.pop()
            {
                self.start(&name);
                if self.lacking.is_some() {
                    break;
                }
            }
            self.collect();
            self.judge_failed_lines();
            self.try_silent();
            if self.waiting.is_empty() && self.is_enough() {
                break;
            }
            if is_over() {
                return self.stop(false);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.stop(true)
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
                self.at_once = self.under_way.len().max(1);
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

    fn collect(&mut self) {
        let limit = self.limits.each;
        for mut probe in std::mem::take(&mut self.under_way) {
            let waited = probe.started.elapsed();
            let outcome = match probe.line.receive() {
                Arrival::Answer(_) if probe.is_control => {
                    self.note_agent(&probe.name, AgentState::Works);
                    continue;
                }
                Arrival::End(_) if probe.is_control => {
                    self.note_agent(&probe.name, AgentState::Fails);
                    continue;
                }
                Arrival::Nothing if probe.is_control && waited >= limit => {
                    self.note_agent(&probe.name, AgentState::Fails);
                    continue;
                }
                Arrival::Answer(answer) => {
                    if probe.is_new {
                        self.note_agent(&probe.name, AgentState::Works);
                    }
                    let opening = probe.line.opening().unwrap_or_default();
                    self.slowest = self.slowest.max(waited);
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
                Arrival::Nothing if waited >= limit => {
                    ProbeOutcome::Failed(format!("no answer in {:.1} s", limit.as_secs_f64()))
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
            let patience = if are_suspects { PATIENCE } else { self.patience_of_probe };
            let is_trying = self.agents.values().any(|state| *state == AgentState::Tried);
            let is_late = !self.is_patient(patience) && silent < pool.active.len() && !is_trying;
            let is_failed = |outcome: &ProbeOutcome| matches!(outcome, ProbeOutcome::Failed(_));
            return self.outcomes.values().any(is_failed) || silent == 0 || is_late;
        }
        if silent == 0 {
            return self.can_replace();
        }
        let is_patient = if are_suspects {
            self.begun.elapsed() < self.slowest + PATIENCE_WITH_SUSPECTS
        } else {
            self.is_patient(PATIENCE)
        };
        !is_patient && silent + ill <= inquiry.spare_losses && self.can_replace()
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
        if silent.is_empty() || !self.is_patient(PATIENCE_OF_LINKS) {
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
    fn is_patient(&self, (times, more): (u32, Duration)) -> bool {
        self.begun.elapsed() < self.slowest.max(self.slowest_opening) * times + more
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
        Survey { answers, health, links: None, agent_fault, slowest }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::probe::tests::answer;

    fn pool(active: &[&str], spares: &[&str]) -> Pool {
        let hosts = |names: &[&str]| {
            names.iter().map(|name| Host { name: (*name).to_owned(), slots: 2 }).collect()
        };
        Pool::new(hosts(active), hosts(spares))
    }

    fn sh(script: String) -> Vec<String> {
        vec!["/bin/sh".into(), "-c".into(), script]
    }

    fn print_answer(answer: &Answer) -> String {
        format!("echo Welcome!; printf '%s' '{}'", answer.line())
    }

    type Agent<'a> = &'a dyn Fn(&str) -> Vec<String>;

    /// Before a start: the loss of one node can be made up for.
    fn before_start(pool: Pool) -> Inquiry {
        Inquiry { spare_losses: 1, ..Inquiry::new(Purpose::Start, pool) }
    }

    /// A survey by new lines to all nodes.
    fn survey(pool: Pool, agent: Agent, each: Duration) -> Survey {
        survey_by(&mut IdleLines::default(), &before_start(pool), agent, each)
    }

    fn survey_by(lines: &mut IdleLines, inquiry: &Inquiry, agent: Agent, each: Duration) -> Survey {
        changed_round(lines, inquiry, agent, each, |round| round.run(&mut || false))
    }

    /// Makes a round of probes and lets `run` change and run it.
    fn changed_round<T>(
        lines: &mut IdleLines,
        inquiry: &Inquiry,
        agent: Agent,
        each: Duration,
        run: impl FnOnce(ProbeRound) -> T,
    ) -> T {
        let reach = |name: &str, _: Purpose, _: &[Partner]| agent(name);
        let (networks, none) = (Networks::default(), BTreeMap::new());
        let limits = Limits { each, rank_bytes: 0, program: None, networks: &networks };
        run(ProbeRound::new(lines, inquiry, &reach, limits, &none))
    }

    /// A quick probe that takes a silent node for ill this time after the others have answered.
    fn probe(lines: &mut IdleLines, pool: &Pool, agent: Agent, patience: Duration) -> Survey {
        let inquiry = Inquiry::new(Purpose::Check, pool.clone());
        changed_round(lines, &inquiry, agent, LONG, |mut round| {
            round.patience_of_probe = (0, patience);
            round.run(&mut || false)
        })
    }

    /// Longer than any command here takes that ends, however busy the machine is.
    const LONG: Duration = Duration::from_secs(600);

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
    fn answers_follow_greetings_and_faults_are_reported() {
        let reach = |name: &str| match name {
            "n1" => sh(print_answer(&answer())),
            "n2" => sh("echo no route >&2; exit 255".into()),
            "n3" => sh("exit 3".into()),
            "n4" => sh(print_answer(&Answer { version: "0.0.1".into(), ..answer() })),
            "n6" => sh(print_answer(&Answer { program: 1, ..answer() })),
            _ => sh(print_answer(&Answer { no_store: Some("none".into()), ..answer() })),
        };
        let found = survey(pool(&["n1", "n2", "n3", "n4", "n5", "n6"], &[]), &reach, LONG);
        let health = |name| match found.health(name) {
            Health::Ill(why) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(health("n1"), "Well");
        assert_eq!(health("n2"), "probe: exit status: 255; no route");
        assert_eq!(
            health("n3"),
            "probe: exit status: 3; no answer at all: does skt-hpl run \
             there?"
        );
        assert!(health("n4").starts_with("has version 0.0.1 of skt-hpl, not "));
        assert_eq!(health("n5"), "has no shared memory for us: none");
        assert!(health("n6").starts_with("has another build of skt-hpl"), "{}", health("n6"));
        assert_eq!(health("n7"), "Unknown");
    }

    #[test]
    fn a_missing_agent_is_no_fault_of_the_nodes() {
        let reach = |_: &str| vec!["/nonexistent/ssh".to_owned()];
        let found = survey(pool(&["n1", "n2"], &[]), &reach, LONG);
        assert_eq!(found.health("n1"), Health::Unknown);
        let (agent, error) = found.agent_fault.unwrap();
        assert_eq!((agent.as_str(), error.kind()), ("/nonexistent/ssh", io::ErrorKind::NotFound));
    }

    /// This machine lacks processes or file descriptors: it asks fewer nodes at once.
    #[test]
    fn nodes_are_probed_later_if_no_more_lines_can_be_opened() {
        let (inquiry, mut lines) =
            (before_start(pool(&["n1", "n2", "n3", "n4"], &["s1"])), IdleLines::default());
        let reach = |_: &str| sh(print_answer(&answer()));
        let calls = std::cell::Cell::new(0);
        let open = |argv: &[String], is_kept| {
            calls.set(calls.get() + 1);
            match calls.get() % 3 {
                0 => Err(Errno::EMFILE.into()),
                _ => Line::open(argv, is_kept),
            }
        };
        let found = changed_round(&mut lines, &inquiry, &reach, LONG, |round| {
            ProbeRound { open: &open, ..round }.run(&mut || false)
        });
        assert!(found.agent_fault.is_none(), "{:?}", found.agent_fault);
        for host in &inquiry.pool.active {
            assert_eq!(found.health(&host.name), Health::Well, "{}", host.name);
        }
        // Where there is never room for one, that is reported.
        let open = |_: &[String], _| Err(Errno::EMFILE.into());
        let found = changed_round(&mut lines, &inquiry, &reach, Duration::ZERO, |round| {
            ProbeRound { open: &open, ..round }.run(&mut || false)
        });
        assert!(found.agent_fault.is_some());
    }

    /// Most of thousands of nodes are not asked at once: those are not silent.
    #[test]
    fn a_node_that_was_not_asked_yet_is_not_silent() {
        let inquiry = before_start(pool(&["n1", "n2", "n3"], &[]));
        let reach = |_: &str| unreachable!("nobody is asked");
        changed_round(&mut IdleLines::default(), &inquiry, &reach, LONG, |mut round| {
            round.begun = Instant::now() - Duration::from_secs(100);
            round.outcomes.insert("n1".to_owned(), ProbeOutcome::Answer(Box::new(answer())));
            round.try_silent();
            assert!(round.from_here.is_none());
        });
    }

    #[test]
    fn line_is_kept_unless_it_stops_answering() {
        let folder = tempfile::tempdir().unwrap();
        let (well, deaf) = (folder.path().join("well"), folder.path().join("deaf"));
        let openings = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
        let reach = |name: &str| match name {
            "n1" => sh(answers_all(&well)),
            // Only the first of its lines does not read a second question.
            _ if !deaf.exists() => {
                sh(format!("touch {}; {}; sleep 1000", deaf.display(), print_answer(&answer())))
            }
            _ => sh(answers_all(&deaf)),
        };
        let mut lines = IdleLines::default();
        let mut all_are_well = |names: &[&str], purpose, renew_after| {
            let inquiry = Inquiry::new(purpose, pool(names, &[]));
            let found = changed_round(&mut lines, &inquiry, &reach, LONG, |mut round| {
                round.renew_after = renew_after;
                round.run(&mut || false)
            });
            for name in names {
                assert_eq!(found.health(name), Health::Well, "{name} {purpose}");
            }
        };
        let (soon, late) = (Duration::from_millis(100), LONG);
        for (names, purpose, renew_after) in [
            (&["n1", "n2"][..], Purpose::Start, late),
            (&["n2"], Purpose::Check, soon),
            (&["n1", "n2"], Purpose::Start, late),
            (&["n1"], Purpose::Check, late),
            (&["n2"], Purpose::Check, late),
        ] {
            all_are_well(names, purpose, renew_after);
        }
        assert_eq!((openings(&well), openings(&deaf)), (1, 1));
    }

    #[test]
    fn spare_of_a_lost_node_that_answers_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let has_answered = folder.path().join("n2").display().to_string();
        let reach = |name: &str| match name {
            "s1" => sh("exit 3".into()),
            "s2" => sh(format!(
                "until [ -e {has_answered} ]; do sleep 0.05; done; sleep 0.3; {}",
                print_answer(&answer())
            )),
            "n2" => sh(format!("{}; touch {has_answered}", print_answer(&answer()))),
            _ => sh(print_answer(&answer())),
        };
        let inquiry = Inquiry {
            lost: ["n2".to_owned()].into(),
            ..before_start(pool(&["n1", "n2"], &["s1", "s2"]))
        };
        let found = survey_by(&mut IdleLines::default(), &inquiry, &reach, LONG);
        assert_eq!(found.health("n2"), Health::Well, "it answers");
        assert_eq!(found.health("s2"), Health::Well);
        assert!(found.slowest >= Duration::from_millis(300), "{:?}", found.slowest);
    }

    /// Whether a survey continues without the silent nodes: `well` have answered, the slowest after
    /// 100 s (a kept line) and 200 s (a new one), and the silent ones were asked `waited_seconds`
    /// ago.
    fn is_enough(inquiry: &Inquiry, well: &[&str], waited_seconds: u64) -> bool {
        let reach = |_: &str| unreachable!("nobody is asked");
        changed_round(&mut IdleLines::default(), inquiry, &reach, LONG, |mut round| {
            round.begun = Instant::now() - Duration::from_secs(waited_seconds);
            round.slowest = Duration::from_secs(100);
            round.slowest_opening = Duration::from_secs(200);
            let answer =
                |name: &&str| ((*name).to_owned(), ProbeOutcome::Answer(Box::new(answer())));
            round.outcomes = well.iter().map(answer).collect();
            round.is_enough()
        })
    }

    #[test]
    fn silent_nodes_are_waited_for_as_the_parities_and_spares_demand() {
        let start = before_start(pool(&["n1", "n2", "n3"], &["s1", "s2"]));
        let suspect = Inquiry { suspects: vec!["n2".to_owned()], ..start.clone() };
        let both = Inquiry { spare_losses: 2, ..suspect.clone() };
        let all_but_one = &["n1", "n3", "s1"][..];
        let two_silent = &["n1", "s1", "s2"][..];
        for (inquiry, well, seconds, is_over, why) in [
            (&start, all_but_one, 380, false, "twice the slowest answer"),
            (&start, all_but_one, 420, true, "one spare is enough"),
            (&start, two_silent, 100_000, false, "one can be rebuilt"),
            (&start, &["n1", "n3"], 100_000, false, "no spare takes its place"),
            (&start, &["n1", "n2", "n3"], 0, true, "spares are not needed"),
            (&suspect, all_but_one, 80, false, "as long as the others took"),
            (&suspect, all_but_one, 120, true, "the 200 s of new lines do not count"),
            (&both, two_silent, 380, false, "n3 is no suspect"),
            (&both, two_silent, 420, true, "n3 has had its time"),
        ] {
            assert_eq!(is_enough(inquiry, well, seconds), is_over, "{why}");
        }
    }

    #[test]
    fn quick_probe_waits_for_silent_nodes_in_proportion() {
        let check = Inquiry::new(Purpose::Check, pool(&["n1", "n2", "n3"], &[]));
        for well in [&["n1"][..], &["n1", "n3"]] {
            assert!(!is_enough(&check, well, 380));
            assert!(is_enough(&check, well, 420));
        }
        assert!(!is_enough(&check, &[], 100_000), "nobody has answered");
    }

    #[test]
    fn a_kept_line_answers_where_a_new_one_to_a_suspect_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let openings = |name: &str| folder.path().join(name);
        let reach = |name: &str| {
            let opened = openings(name);
            let wait = if name == "n2" && opened.exists() { "sleep 1000" } else { "sleep 0.3" };
            sh(format!(
                "{wait}; echo opened >> {}; {}",
                opened.display(),
                match name {
                    "n2" => print_answer(&answer()),
                    _ => answers_all(&opened),
                }
            ))
        };
        let mut lines = IdleLines::default();
        let first = Inquiry::new(Purpose::Start, pool(&["n1", "n2"], &["s1"]));
        let found = survey_by(&mut lines, &first, &reach, LONG);
        assert_eq!(found.health("n2"), Health::Well);
        let again = Inquiry { spare_losses: 1, suspects: vec!["n2".to_owned()], ..first };
        let found = survey_by(&mut lines, &again, &reach, LONG);
        let broke = "after all others had answered, and a connection to it broke";
        assert!(matches!(found.health("n2"), Health::Ill(why) if why.ends_with(broke)));
        assert_eq!(found.health("s1"), Health::Well);
        // An answer on the line that was kept counts, too.
        assert!(found.slowest >= Duration::from_millis(300), "{:?}", found.slowest);
    }

    #[test]
    fn silence_is_no_fault_after_the_job_has_ended() {
        let reach = |name: &str| match name {
            "n2" => sh("sleep 1000".into()),
            _ => sh(print_answer(&answer())),
        };
        let check = Inquiry::new(Purpose::Check, pool(&["n1", "n2"], &[]));
        let mut lines = IdleLines::default();
        let found =
            changed_round(&mut lines, &check, &reach, LONG, |round| round.run(&mut || true));
        assert_eq!(found.health("n2"), Health::Unknown);
    }

    #[test]
    fn single_silent_nodes_are_lost_before_their_limit() {
        let reach = |name: &str| match name {
            "n2" | "n3" => sh("sleep 1000".into()),
            _ => sh(print_answer(&answer())),
        };
        let found = survey(pool(&["n1", "n2"], &["s1"]), &reach, LONG);
        let Health::Ill(why) = found.health("n2") else { panic!("it is silent") };
        assert!(why.contains("no answer in") && !why.contains("no answer in 600"), "{why}");
        let limit = Duration::from_secs(3);
        let found = survey(pool(&["n1", "n2", "n3"], &["s1", "s2"]), &reach, limit);
        assert_eq!(found.health("n2"), Health::Ill("no answer in 3.0 s".into()));
    }

    #[test]
    fn quick_probe_ends_at_the_first_ill_or_only_silent_node() {
        let reach = |name: &str| match name {
            "n2" => sh("sleep 0.2; echo no route >&2; exit 255".into()),
            "n3" | "s1" => sh("sleep 1000".into()),
            _ => sh(print_answer(&answer())),
        };
        let probe = |active: &[&str], patience| {
            let found = probe(&mut IdleLines::default(), &pool(active, &["s1"]), &reach, patience);
            assert_eq!(found.health("s1"), Health::Unknown, "spares are not asked");
            found
        };
        let found = probe(&["n1", "n2"], LONG);
        assert!(matches!(found.health("n2"), Health::Ill(why) if why.contains("no route")));
        let found = probe(&["n1", "n3"], Duration::from_millis(300));
        let Health::Ill(why) = found.health("n3") else { panic!("it is silent") };
        assert!(why.contains("no answer in") && !why.contains("no answer in 600"), "{why}");
        let found = probe(&["n1", "n3", "n2"], LONG);
        assert_eq!(found.health("n3"), Health::Unknown, "its time was not up");
        let found = probe(&["n1", "n4"], LONG);
        assert_eq!(found.health("n4"), Health::Well);
    }

    /// The agent's own fault here, such as a certificate that has expired, is no loss of a node.
    #[test]
    fn agent_that_reaches_no_node_is_no_evidence() {
        let folder = tempfile::tempdir().unwrap();
        let opened = folder.path().join("opened");
        let pool = pool(&["n1", "n2", "n3"], &["s1"]);
        let refuses = |_: &str| sh("echo no ticket >&2; exit 255".into());
        let found = probe(&mut IdleLines::default(), &pool, &refuses, LONG);
        for host in &pool.active {
            assert_eq!(found.health(&host.name), Health::Unknown, "{}", host.name);
        }
        // Two nodes answer by the lines that are kept; the line to the third breaks.
        let probe_again = |agent: &dyn Fn(&str) -> Vec<String>| {
            let mut lines = IdleLines::default();
            let before = |name: &str| match name {
                "n2" => sh(print_answer(&answer())),
                _ => sh(answers_all(&opened)),
            };
            probe(&mut lines, &pool, &before, LONG);
            probe(&mut lines, &pool, agent, LONG)
        };
        let found = probe_again(&refuses);
        assert_eq!(found.health("n2"), Health::Unknown);
        assert_eq!(found.health("n1"), Health::Well);
        // Another node is reached by a new line at the same time.
        let found = probe_again(&|name| match name {
            "n2" => sh("echo connection refused >&2; exit 255".into()),
            _ => sh(print_answer(&answer())),
        });
        assert!(matches!(found.health("n2"), Health::Ill(why) if why.contains("refused")));
    }

    #[test]
    fn spares_that_are_not_needed_are_not_waited_for() {
        let reach = |name: &str| match name {
            "s1" => sh("sleep 1000".into()),
            _ => sh(print_answer(&answer())),
        };
        let found = survey(pool(&["n1", "n2"], &["s1"]), &reach, LONG);
        assert_eq!(found.health("s1"), Health::Unknown);
    }

    #[test]
    fn spare_needs_memory_for_the_segments_it_rebuilds() {
        let reach = |name: &str| match name {
            "n1" => {
                sh(print_answer(&Answer { run_bytes: 1 << 30, available_bytes: 5, ..answer() }))
            }
            _ => sh(print_answer(&Answer { available_bytes: (1 << 30) - 1, ..answer() })),
        };
        let mut pool = pool(&["n1"], &[]);
        pool.active[0].slots = 1;
        pool.active.push(Host { name: "s1".into(), slots: 1 });
        let found = survey(pool, &reach, LONG);
        assert_eq!(found.health("n1"), Health::Well);
        let Health::Ill(why) = found.health("s1") else { panic!() };
        assert_eq!(why, "1073741823 B of 1073741824 B of memory are available");
    }

    /// The links are tried in the same survey, by the nodes that have answered well.
    #[test]
    fn well_nodes_try_their_links_once_they_have_answered() {
        let asked = std::cell::RefCell::new(Vec::new());
        let reach = |name: &str, purpose: Purpose, partners: &[Partner]| {
            let partners: Vec<String> = partners.iter().map(ToString::to_string).collect();
            asked.borrow_mut().push(format!("{name} {purpose} {}", partners.join(" ")));
            match name {
                "n2" => sh("exit 3".into()),
                _ => sh(print_answer(&answer())),
            }
        };
        let networks = Networks::default();
        let limits = Limits { each: LONG, rank_bytes: 0, program: None, networks: &networks };
        let links = |inquiry: &Inquiry| {
            asked.borrow_mut().clear();
            let found =
                super::survey(&mut IdleLines::default(), inquiry, &reach, limits, &mut || false);
            let mut tried = asked.borrow().clone();
            tried.retain(|line| line.contains(" links "));
            tried.sort();
            // The agent of each line is read from the same command.
            tried.dedup();
            (found.links.map(|links| links.len()), tried.join("; "))
        };
        let start =
            Inquiry { tries_links: true, ..before_start(pool(&["n1", "n2", "n3"], &["s1"])) };
        let all = "n1 links n3 s1; n3 links s1 n1; s1 links n1 n3".to_owned();
        assert_eq!(links(&start), (Some(3), all));
        let lost = Inquiry { lost: ["n3".to_owned()].into(), ..start.clone() };
        assert_eq!(links(&lost).1, "n1 links s1; s1 links n1");
        assert_eq!(links(&Inquiry { tries_links: false, ..start.clone() }), (None, String::new()));
        // While the job runs, the loss of n2 explains its silence.
        let check = Inquiry { purpose: Purpose::Check, ..start };
        assert_eq!(links(&check), (None, String::new()));
        let well = Inquiry { pool: pool(&["n1", "n3"], &["s1"]), ..check };
        assert_eq!(links(&well).1, "n1 links n3; n3 links n1", "spares are not asked");
    }
}
