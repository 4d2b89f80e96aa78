//! Asks all nodes at once whether they can take part, by the same agent that the launcher uses, and
//! waits for a time that follows from the slowest answer so far. See [`super::probe`] for what a
//! node does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use skt_host::wait_clock::WaitClock;

use super::hosts::{Health, Host, Pool};
use super::line::{Arrival, IdleLines, Line};
use super::links::addresses::Networks;
use super::links::verdict::{Findings, partners};
use super::links::{Partner, connect};
use super::probe::{Answer, Purpose};
use super::program::Program;

/// How long the last nodes are waited for once the others have answered, counted from the start of
/// the survey: twice the time of the slowest answer so far, plus this duration. If opening a line
/// took longer than the slowest answer, that time counts instead: the line to a healthy node may
/// have broken, and an agent may take seconds for the handshake of a new one.
const PATIENCE: Duration = Duration::from_secs(1);
/// [`PATIENCE`] with nodes of a silent job, which is ended if one of them is lost.
const PATIENCE_OF_CHECK: Duration = Duration::from_secs(2);
/// [`PATIENCE`] where links are tried: there a node waits for its partners before it answers.
const PATIENCE_OF_LINKS: Duration = Duration::from_secs(9);
/// How long, after the slowest other node, those nodes are waited for that the launcher or an
/// earlier probe reports as lost.
const PATIENCE_WITH_SUSPECTS: Duration = Duration::from_millis(300);
/// A kept line on which no answer has come after this time is replaced by a new one: it may have
/// broken without any packet that reports this, while the node is healthy.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Lines in use at a time, without those that have waited for twice the mean time of an answer:
/// these hold up no other node.
const AT_ONCE: usize = 128;

#[derive(Debug, Clone, Default, PartialEq)]
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
    /// With `Some`, nodes share the ranks of lost ones if spares are too few. Before that this
    /// number of spares, from the first, are waited for.
    pub share_after: Option<usize>,
    /// Whether the nodes then try their links, see `Survey::nodes_to_link`.
    pub tries_links: bool,
}

#[derive(Debug, Default)]
pub struct Survey {
    pub answers: BTreeMap<String, Answer>,
    /// Whether a node can take part, unless it was not waited for.
    pub health: BTreeMap<String, Health>,
    /// What the nodes have found about their links; `None` if they have not tried any.
    pub(crate) links: Option<Findings>,
    /// Why the agent cannot be started on this machine: no node can be asked.
    pub(crate) agent_fault: Option<String>,
    /// The longest that a node took to answer, or had taken when its line was opened.
    pub(crate) slowest: Duration,
    /// Bytes of a rank's segments on the nodes that have some.
    pub(crate) held_bytes: u64,
}

impl Survey {
    pub fn health(&self, name: &str) -> Health {
        self.health.get(name).cloned().unwrap_or_default()
    }

    /// The nodes that try their links after this survey: before a start those that are well; while
    /// the job runs those in use, if all of them are well and no rank is stopped, because the agent
    /// may reach the nodes over another network than the ranks. None if they are fewer than two.
    pub(crate) fn nodes_to_link(&self, inquiry: &Inquiry) -> Vec<Host> {
        let Inquiry { pool, lost, .. } = inquiry;
        let is_check = inquiry.purpose == Purpose::Check;
        let spares = if is_check { &[][..] } else { &pool.spares[..] };
        let is_well =
            |host: &&Host| self.health(&host.name) == Health::Well && !lost.contains(&host.name);
        let well: Vec<Host> = pool.active.iter().chain(spares).filter(is_well).cloned().collect();
        let is_stopped = self.answers.values().any(|answer| answer.stopped > 0);
        let is_explained = is_check && (is_stopped || well.len() < pool.active.len());
        let tries_links = inquiry.tries_links && self.agent_fault.is_none() && !is_explained;
        if tries_links && well.len() > 1 { well } else { Vec::new() }
    }

    pub fn ended(&self) -> usize {
        self.answers.values().fold(0, |sum: usize, answer| sum.saturating_add(answer.ended))
    }

    pub fn warnings(&self) -> BTreeMap<String, Vec<&str>> {
        let mut by_text: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, answer) in &self.answers {
            for warning in &answer.store.warnings {
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
    pub program: Option<&'a Program>,
    pub networks: &'a Networks,
}

/// The command line that reaches a node, with the first question on a new line.
pub type Reach<'a> = dyn Fn(&str, Purpose, &[Partner]) -> Vec<String> + 'a;

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
    let partners = partners(&hosts, &survey.answers, limits.networks);
    let pool = Pool::new(hosts, Vec::new());
    let inquiry = Inquiry { purpose: Purpose::Links, pool, ..Inquiry::default() };
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

struct Probe {
    name: String,
    line: Line,
    started: Instant,
    is_new: bool,
}

#[derive(Debug)]
enum Outcome {
    /// An answer, and whether it came on a new line, which shows that the agent works here.
    Answer(Box<Answer>, bool),
    /// While the job runs: the line could not be opened. That may be the agent's fault here, and is
    /// not to end a job: a ticket or a certificate has expired, or no name is found for a moment.
    Unopened(String),
    Failed(String),
    /// No time was left for it, or its agent is missing here.
    Unknown,
}

struct ProbeRound<'a> {
    outcomes: BTreeMap<String, Outcome>,
    agent_fault: Option<String>,
    held_bytes: u64,
    inquiry: &'a Inquiry,
    limits: Limits<'a>,
    lines: &'a mut IdleLines,
    reach: &'a Reach<'a>,
    /// The nodes that each node tries to reach, where links are tried.
    partners: &'a BTreeMap<String, Vec<Partner>>,
    open: &'a dyn Fn(&[String], bool) -> io::Result<Line>,
    renew_after: Duration,
    patience: Duration,
    /// Nodes that are not asked yet, the next one last.
    waiting: Vec<String>,
    /// The lines in use for which this machine has room, as far as that is known.
    room: usize,
    under_way: Vec<Probe>,
    /// Nodes that get a new line to see whether their agent works.
    controls: BTreeSet<String>,
    /// When the last node was asked: of many nodes, some wait until others have answered.
    begun: Instant,
    /// How many nodes have answered, and the sum of the times that they took.
    answered: (u32, Duration),
    slowest: Duration,
    /// The longest that a node that has answered took when its line was opened.
    slowest_opening: Duration,
    /// The silent nodes from which no packet comes back to this machine, once that is known.
    gone: Option<Receiver<Vec<String>>>,
}

impl<'a> ProbeRound<'a> {
    fn new(
        lines: &'a mut IdleLines,
        inquiry: &'a Inquiry,
        reach: &'a Reach<'a>,
        limits: Limits<'a>,
        partners: &'a BTreeMap<String, Vec<Partner>>,
    ) -> Self {
        let (patience, spares) = match inquiry.purpose {
            Purpose::Check => (PATIENCE_OF_CHECK, 0),
            Purpose::Links => (PATIENCE_OF_LINKS, 0),
            Purpose::Start | Purpose::Clean | Purpose::Forget => (PATIENCE, usize::MAX),
        };
        let Pool { active, spares: all, .. } = &inquiry.pool;
        let names = active.iter().chain(all.iter().take(spares)).map(|host| host.name.clone());
        Self {
            outcomes: BTreeMap::new(),
            agent_fault: None,
            held_bytes: 0,
            inquiry,
            limits,
            lines,
            reach,
            partners,
            open: &Line::open,
            renew_after: RENEW_AFTER,
            patience,
            waiting: names.rev().collect(),
            room: usize::MAX,
            under_way: Vec::new(),
            controls: BTreeSet::new(),
            begun: Instant::now(),
            answered: (0, Duration::ZERO),
            slowest: Duration::ZERO,
            slowest_opening: Duration::ZERO,
            gone: None,
        }
    }

    fn run(mut self, is_over: &mut dyn FnMut() -> bool) -> Survey {
        let mut clock = WaitClock::new(self.limits.each);
        while !self.waiting.is_empty() || !self.under_way.is_empty() {
            // The time that the supervisor, and with it perhaps the agents, stood still.
            let stood_still = clock.skip();
            self.begun += stood_still;
            self.under_way.iter_mut().for_each(|probe| probe.started += stood_still);
            self.start_waiting();
            let polled = Instant::now();
            // One deadline for all, and as long as the answers took for those that were asked last.
            let least = self.time_to_answer(self.patience).min(self.limits.each);
            let is_up = self.waiting.is_empty() && self.begun.elapsed() >= least;
            self.collect(is_up && clock.waited() >= self.limits.each);
            self.judge_unopened();
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
            due += 1;
            let (started, purpose) = (Instant::now(), self.inquiry.purpose);
            let kept = self.lines.take(&name).filter(|_| !self.controls.contains(&name));
            let ask = |mut line: Line| line.ask(purpose, self.partners_of(&name)).then_some(line);
            if let Some(line) = kept.and_then(ask) {
                self.begun = started;
                self.under_way.push(Probe { name, line, started, is_new: false });
            } else {
                self.open(name, started);
            }
        }
    }

    fn partners_of(&self, name: &str) -> &'a [Partner] {
        self.partners.get(name).map_or(&[][..], |partners| partners)
    }

    /// Opens a new line, for a probe that was started at `started`.
    fn open(&mut self, name: String, started: Instant) {
        let kept = self.under_way.iter().filter(|probe| probe.line.is_kept()).count();
        let argv = (self.reach)(&name, self.inquiry.purpose, self.partners_of(&name));
        match (self.open)(&argv, self.lines.has_room(kept)) {
            Ok(line) => {
                self.begun = self.begun.max(started);
                self.under_way.push(Probe { name, line, started, is_new: true });
            }
            Err(error) if lacks_room(&error) && self.begun.elapsed() < self.limits.each => {
                self.waiting.push(name);
                self.room = self.under_way.len().max(1);
            }
            Err(error) => {
                // It is no evidence about the node.
                self.outcomes.insert(name, Outcome::Unknown);
                self.agent_fault = Some(format!(
                    "cannot start {}, which runs commands on the nodes: {error}; is it installed, \
                     and in PATH? --agent names another",
                    argv[0]
                ));
            }
        }
    }

    /// Takes what has arrived. If the time `is_up`, nodes that have not answered fail. They also
    /// fail where others cannot be asked for want of room, once they are late.
    fn collect(&mut self, is_up: bool) {
        let (limit, purpose) = (self.limits.each, self.inquiry.purpose);
        let job_may_run = matches!(purpose, Purpose::Check | Purpose::Links);
        let lacks_room = !self.waiting.is_empty() && self.under_way.len() >= self.room;
        let is_known = self.slowest > Duration::ZERO;
        let late = if is_known { self.time_to_answer(self.patience).min(limit) } else { limit };
        // The same text for all nodes, which messages combine.
        let least = if is_up { self.begun.elapsed() } else { late };
        let silent = format!("no answer in {:.0} s", least.as_secs_f64());
        for mut probe in std::mem::take(&mut self.under_way) {
            let waited = probe.started.elapsed();
            let outcome = match probe.line.receive() {
                Arrival::Answer(answer) => {
                    let opening = probe.line.opening().unwrap_or_default();
                    self.slowest = self.slowest.max(waited);
                    self.answered = (self.answered.0 + 1, self.answered.1 + waited);
                    self.slowest_opening = self.slowest_opening.max(opening);
                    let host = self.inquiry.pool.active.iter().find(|host| host.name == probe.name);
                    let ranks = host.map_or(1, |host| host.slots as u64).max(1);
                    self.held_bytes = self.held_bytes.max(answer.store.run_bytes / ranks);
                    self.lines.keep(&probe.name, probe.line);
                    Outcome::Answer(answer, probe.is_new)
                }
                Arrival::End(why) if probe.is_new && job_may_run => Outcome::Unopened(why),
                Arrival::End(why) if probe.is_new => Outcome::Failed(why),
                Arrival::Nothing if is_up || (lacks_room && waited >= late) => {
                    Outcome::Failed(silent.clone())
                }
                Arrival::Nothing
                    if probe.is_new || waited < self.renew_after || purpose == Purpose::Links =>
                {
                    self.under_way.push(probe);
                    continue;
                }
                Arrival::Nothing | Arrival::End(_) => {
                    self.open(probe.name, probe.started);
                    continue;
                }
            };
            // That a new line to a control fails takes nothing from its answer.
            if matches!(outcome, Outcome::Answer(..)) || !self.has_answer(&probe.name) {
                self.outcomes.insert(probe.name, outcome);
            }
        }
    }

    /// Decides whether nodes to which no line could be opened are lost: they are if the agent has
    /// opened a line to another node. Answers on kept lines do not test the agent, so one of the
    /// nodes that have answered gets a new line, too, or a spare if no node is left that may.
    fn judge_unopened(&mut self) {
        let is_unopened = |(_, it): &(&String, &Outcome)| matches!(it, Outcome::Unopened(_));
        let unopened: Vec<String> =
            self.outcomes.iter().filter(is_unopened).map(|(name, _)| name.clone()).collect();
        let agent = |name: &str| (self.reach)(name, self.inquiry.purpose, &[]).swap_remove(0);
        for name in unopened {
            let own = agent(&name);
            let is_same = |other: &&String| agent(other) == own;
            let is_opened = |(other, it): (&String, &Outcome)| {
                matches!(it, Outcome::Answer(_, true)) && is_same(&other)
            };
            let pending = self.under_way.iter().map(|probe| &probe.name).chain(&self.waiting);
            let is_pending = { pending }.any(|other| is_same(&other));
            let Pool { active, spares, .. } = &self.inquiry.pool;
            let answered = active.iter().filter(|host| self.has_answer(&host.name));
            let spares = spares.iter().filter(|_| !is_pending);
            let mut others = answered.chain(spares).map(|host| &host.name);
            let control =
                others.find(is_same).filter(|_| !self.controls.iter().any(|it| is_same(&it)));
            if self.outcomes.iter().any(is_opened) {
                if let Some(Outcome::Unopened(why)) = self.outcomes.remove(&name) {
                    self.outcomes.insert(name, Outcome::Failed(why));
                }
            } else if let Some(control) = control.cloned() {
                self.controls.insert(control.clone());
                self.waiting.push(control);
            } else if !is_pending {
                self.outcomes.insert(name, Outcome::Unknown);
            }
        }
    }

    fn has_answer(&self, name: &str) -> bool {
        matches!(self.outcomes.get(name), Some(Outcome::Answer(..)))
    }

    fn health(&self, host: &Host) -> Health {
        let answer = match self.outcomes.get(&host.name) {
            None | Some(Outcome::Unknown | Outcome::Unopened(_)) => return Health::Unknown,
            Some(Outcome::Failed(why)) => return Health::Ill(why.clone()),
            Some(Outcome::Answer(answer, _)) => answer,
        };
        // A quick probe asks for a sign of life, and a try of links for what is known of other
        // nodes.
        if matches!(self.inquiry.purpose, Purpose::Check | Purpose::Links) {
            return Health::Well;
        }
        let Limits { rank_bytes, program, .. } = self.limits;
        let fault = answer.fault(host.slots as u64, self.held_bytes, rank_bytes, program);
        fault.map_or(Health::Well, Health::Ill)
    }

    /// Takes silent nodes in use for lost if no packet comes back from them, however long the agent
    /// would wait for them. Before the first start nothing is lost by waiting.
    fn try_silent(&mut self) {
        let (purpose, spare_losses) = (self.inquiry.purpose, self.inquiry.spare_losses);
        let job_may_run = matches!(purpose, Purpose::Check | Purpose::Links);
        if !(job_may_run || purpose == Purpose::Start && spare_losses > 0) {
            return;
        }
        if let Some(gone) = &self.gone {
            let gone = gone.try_recv().unwrap_or_default();
            for Probe { name, started, .. } in
                self.under_way.extract_if(.., |probe| gone.contains(&probe.name))
            {
                let waited = started.elapsed().as_secs_f64();
                let why = format!("no answer in {waited:.1} s, and no packet comes back from it");
                self.outcomes.insert(name, Outcome::Failed(why));
            }
        } else if self.begun.elapsed() > self.slowest + PATIENCE_WITH_SUSPECTS {
            let Pool { active, spares, .. } = &self.inquiry.pool;
            // Of many nodes, some are not asked yet; a control has answered.
            let is_asked = |host: &&Host| {
                let is_under_way = self.under_way.iter().any(|probe| probe.name == host.name);
                is_under_way && !self.has_answer(&host.name)
            };
            let names = |host: &Host| host.name.clone();
            let silent: Vec<String> = active.iter().filter(is_asked).map(names).collect();
            let all = active.iter().chain(spares);
            let well = all.filter(|host| self.health(host) == Health::Well).map(names);
            let well: Vec<String> = well.take(silent.len() + 1).collect();
            if !silent.is_empty() && !well.is_empty() {
                self.gone = Some(connect::find_gone(silent, &well));
            }
        }
    }

    fn is_enough(&self) -> bool {
        let Inquiry { pool, suspects, lost, share_after, spare_losses, purpose, .. } = self.inquiry;
        let has_answered = |host: &&Host| {
            let outcome = self.outcomes.get(&host.name);
            outcome.is_some_and(|outcome| !matches!(outcome, Outcome::Unopened(_)))
        };
        let silent: Vec<&Host> = pool.active.iter().filter(|it| !has_answered(it)).collect();
        let are_suspects = silent.iter().all(|host| suspects.contains(&host.name));
        match purpose {
            Purpose::Links => return silent.is_empty() || !self.is_patient(self.patience),
            Purpose::Check => {
                let patience = if are_suspects { PATIENCE } else { self.patience };
                let is_trying = self.outcomes.values().any(|it| matches!(it, Outcome::Unopened(_)));
                let is_late = !self.is_patient(patience) && silent.len() < pool.active.len();
                return self.has_failed() || silent.is_empty() || (is_late && !is_trying);
            }
            Purpose::Start | Purpose::Clean | Purpose::Forget => {}
        }
        // Without `share_after` as many as are needed are waited for.
        let first = share_after.unwrap_or(usize::MAX);
        let [spares, away] = [0..first, first..usize::MAX].map(|part| {
            pool.spares.iter().skip(part.start).take(part.len()).all(|it| has_answered(&it))
        });
        // Nodes that are away may be back: they are given some time to answer.
        if share_after.is_some() && !away && self.is_patient(PATIENCE) {
            return false;
        }
        let can_go_on = || (share_after.is_some() && spares) || self.can_replace();
        if silent.is_empty() {
            return can_go_on();
        }
        let is_patient = if are_suspects {
            self.begun.elapsed() < self.slowest + PATIENCE_WITH_SUSPECTS
        } else {
            self.is_patient(PATIENCE)
        };
        let is_well =
            |host: &&Host| self.health(host) == Health::Well && !lost.contains(&host.name);
        let missing = pool.active.len() - pool.active.iter().filter(is_well).count();
        !is_patient && missing <= *spare_losses && can_go_on()
    }

    fn has_failed(&self) -> bool {
        self.outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Whether spares that have answered can take the places of all nodes in use that are ill,
    /// silent or known to be lost.
    fn can_replace(&self) -> bool {
        let Inquiry { pool, lost, .. } = self.inquiry;
        let known: BTreeMap<&str, Health> = pool
            .active
            .iter()
            .chain(&pool.spares)
            .map(|host| (host.name.as_str(), self.health(host)))
            .collect();
        pool.can_replace(|name| match &known[name] {
            _ if lost.contains(name) => Health::Ill("is lost".to_owned()),
            Health::Unknown if pool.active.iter().any(|host| host.name == name) => {
                Health::Ill("is silent".to_owned())
            }
            health => health.clone(),
        })
    }

    /// Whether nodes that are silent may still answer.
    fn is_patient(&self, patience: Duration) -> bool {
        self.begun.elapsed() < self.time_to_answer(patience)
    }

    /// How long a healthy node takes at most, by those that have answered.
    fn time_to_answer(&self, patience: Duration) -> Duration {
        self.slowest.max(self.slowest_opening) * 2 + patience
    }

    /// Ends what is in progress. If `silence_counts`, nodes in use that did not answer are
    /// lost; others were not waited for.
    fn stop(mut self, silence_counts: bool) -> Survey {
        let Inquiry { purpose, pool, suspects, .. } = self.inquiry;
        // A quick probe ends with the first node that fails, before the others' time is up.
        let silence_counts = silence_counts && !(*purpose == Purpose::Check && self.has_failed());
        for Probe { name, line, started, .. } in std::mem::take(&mut self.under_way) {
            let outcome = if silence_counts && pool.active.iter().any(|host| host.name == name) {
                let waited = started.elapsed().as_secs_f64();
                let is_suspect = suspects.contains(&name);
                let broke = if is_suspect { ", and a connection to it broke" } else { "" };
                let after = "after all others had answered";
                Outcome::Failed(format!("no answer in {waited:.1} s, {after}{broke}"))
            } else {
                self.lines.keep(&name, line);
                Outcome::Unknown
            };
            if !self.has_answer(&name) {
                self.outcomes.insert(name, outcome);
            }
        }
        let asked = pool.active.iter().chain(&pool.spares);
        let health = asked.map(|host| (host.name.clone(), self.health(host))).collect();
        let slowest = self.slowest.max(self.slowest_opening);
        let (agent_fault, held_bytes) = (self.agent_fault, self.held_bytes);
        let answers = self.outcomes.into_iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Answer(answer, _) => Some((name, *answer)),
            Outcome::Failed(_) | Outcome::Unopened(_) | Outcome::Unknown => None,
        });
        let answers = answers.collect();
        Survey { answers, health, links: None, agent_fault, slowest, held_bytes }
    }
}

#[cfg(test)]
mod tests;
