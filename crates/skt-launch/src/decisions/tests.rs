//! Tests of the supervisor's decisions without processes: what follows from each failure of a
//! cluster, event by event.

mod drill;
mod world;

use super::*;
use crate::SharingLimits;
use crate::hosts::Host;
use crate::links::addresses::Networks;
use crate::links::verdict::partners;
use crate::links::{Link, LinkState};
use crate::probe::tests::answer;
use crate::program::{ProcessEnd, Program, RankEnd};
use crate::state::Status;
use skt_checkpoint::heartbeat::{CorruptionReport, DataLocation, Heartbeat, UnfitHost};
use skt_config::launch::NoSpare;
use skt_config::{LaunchDraft, LaunchSettings};

const ALL: [&str; 5] = ["n1", "n2", "n3", "s1", "s2"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn options() -> LaunchOptions {
    let settings = LaunchSettings::read(&LaunchDraft::new()).expect("the defaults are legal");
    let pool = Pool::new(hosts(&NODES), hosts(&["s1", "s2"]));
    LaunchOptions {
        settings,
        pool,
        ranks: 3,
        losable: vec![true; 3],
        parities: 1,
        is_protected: true,
        sharing: SharingLimits { most: 1, ..SharingLimits::default() },
        ..LaunchOptions::default()
    }
}

/// [`options`] with other settings.
fn options_with(change: impl FnOnce(&mut LaunchSettings)) -> LaunchOptions {
    let mut options = options();
    change(&mut options.settings);
    options
}

/// [`options`] where the checkpoint can rebuild two losses.
fn two_parities() -> LaunchOptions {
    LaunchOptions { parities: 2, ..options() }
}

/// [`options`] for the user's program, or for the benchmark.
fn options_of_program(is_of_program: bool) -> LaunchOptions {
    let program = || Program { file: "/bin/heat".into(), checksum: 7 };
    LaunchOptions { program_of_user: is_of_program.then(program), ..options() }
}

fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 }).collect()
}

fn state(spares: &[&str]) -> SupervisorState {
    let me = Process::from_pid(std::process::id() as i32).unwrap();
    let pool = Pool::new(hosts(&NODES), hosts(spares));
    SupervisorState::new("run", &["--n".into(), "1000".into()], 3, pool, me)
}

/// All nodes of a pool answer that they are well, and have segments of `run_bytes` bytes.
fn survey(pool: &Pool, run_bytes: u64) -> Survey {
    let mut survey = Survey::default();
    for host in pool.active.iter().chain(&pool.spares) {
        let answer = Answer { run_bytes, ..answer() };
        survey.answers.insert(host.name.clone(), answer);
        survey.health.insert(host.name.clone(), Health::Well);
    }
    survey
}

/// The nodes that are to try their links do so; no packet passes where `is_dead` of two nodes.
fn try_links(survey: &mut Survey, inquiry: &Inquiry, is_dead: impl Fn(&str, &str) -> bool) {
    let hosts = survey.nodes_to_link(inquiry);
    if hosts.is_empty() {
        return;
    }
    let link = |from: &str, to: &str| {
        let dead = LinkState::Dead("no answer".into());
        Link { to: to.to_owned(), found: if is_dead(from, to) { dead } else { LinkState::Alive } }
    };
    let partners = partners(&hosts, &survey.answers, &Networks::default());
    let of_node = partners.into_iter().map(|(from, partners)| {
        let links = partners.iter().map(|to| link(&from, &to.name)).collect();
        (from, links)
    });
    survey.links = Some(of_node.collect());
}

fn heartbeat(phase: &str, column: usize) -> Heartbeat {
    Heartbeat { column, n: 1000, elapsed_seconds: 0.0, ..Heartbeat::new(String::new(), 0, phase) }
}

fn beat(phase: &str, column: usize, exit: Option<u8>) -> Event {
    Event::Heartbeat(Heartbeat { exit, ..heartbeat(phase, column) })
}

/// A heartbeat that blames `host` for `rows` rows in `checks` checks.
fn corruption(host: &str, checks: u64, rows: u64) -> Event {
    Event::Heartbeat(corruption_beat(host, checks, rows, false))
}

fn corruption_beat(host: &str, checks: u64, rows: u64, ends_job: bool) -> Heartbeat {
    let (host, rank, first_column) = (host.to_owned(), 1, 320);
    let report = CorruptionReport { host, rank, checks, rows, first_column, ends_job };
    Heartbeat { corruption: vec![report], ..heartbeat("factor", 640) }
}

/// The job declines `host`, and ends.
fn declines(host: &str) -> Event {
    let unfit = UnfitHost { host: host.into(), why: "lacks the BLAS x".into() };
    Event::Heartbeat(Heartbeat { unfit: vec![unfit], exit: Some(2), ..heartbeat("done", 0) })
}

fn full_disk() -> SupervisorError {
    SupervisorError("state: full".to_owned())
}

fn keeps(run: &str) -> DataLocation {
    DataLocation { run_id: run.into(), store: "posix".into(), images: vec![] }
}

fn names(hosts: &[Host]) -> String {
    hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// Formats an action as a line.
fn shown(action: &Action) -> String {
    match action {
        Action::Message(text) => text.clone(),
        Action::Report(kind, text) => format!("{kind}: {text}"),
        Action::Print(text) => format!("print {}", String::from_utf8_lossy(text)),
        Action::Ask(Inquiry { purpose, pool, spare_losses, suspects, .. }) => {
            let losses = (*spare_losses > 0).then(|| format!(", {spare_losses} may be silent"));
            let lost = (!suspects.is_empty()).then(|| format!(", lost? {}", suspects.join(" ")));
            let (losses, lost) = (losses.unwrap_or_default(), lost.unwrap_or_default());
            format!("ask {purpose} {} + {}{losses}{lost}", names(&pool.active), names(&pool.spares))
        }
        Action::Launch(Start { hosts, resume, shares }) => {
            let resume = resume.map_or(String::new(), |resume| format!(" --resume {resume}"));
            let ranks: Vec<String> = hosts.iter().map(|host| host.slots.to_string()).collect();
            let ranks = shares.then(|| format!(" with {} rank(s)", ranks.join(" ")));
            format!("launch {}{}{resume}", names(hosts), ranks.unwrap_or_default())
        }
        Action::End(Ok(exit)) => format!("end {}", exit.code()),
        Action::End(Err(error)) => format!("end: {error}"),
        other => format!("{other:?}"),
    }
}

/// What follows from an event, an action a line. A test names the lines that it is about.
#[derive(Debug)]
struct Lines(Vec<String>);

impl Lines {
    /// Some line has this text.
    #[track_caller]
    fn has(&self, text: &str) -> &Self {
        assert!(self.0.iter().any(|line| line.contains(text)), "no '{text}' in {:#?}", self.0);
        self
    }

    /// No line has this text.
    #[track_caller]
    fn lacks(&self, text: &str) -> &Self {
        assert!(!self.0.iter().any(|line| line.contains(text)), "'{text}' in {:#?}", self.0);
        self
    }

    /// Lines of this kind come as often.
    #[track_caller]
    fn counts(&self, kind: &str, times: usize) -> &Self {
        let count = self.0.iter().filter(|line| line.starts_with(kind)).count();
        assert_eq!(count, times, "{kind}: {:#?}", self.0);
        self
    }

    /// The last action is the end with this exit code.
    #[track_caller]
    fn ends(&self, code: u8) -> &Self {
        assert_eq!(self.0.last(), Some(&format!("end {code}")), "{:#?}", self.0);
        self
    }

    /// Nothing follows.
    #[track_caller]
    fn none(&self) {
        assert_eq!(self.0, [""; 0]);
    }
}

/// The decisions and their time, with a state folder.
struct Play {
    decisions: Decisions,
    now: f64,
    is_full: bool,
    asked: Option<Inquiry>,
}

impl Play {
    fn new(options: LaunchOptions, state: SupervisorState) -> Self {
        let decisions = Decisions::new(options, state);
        Self { decisions, now: 1000.0, is_full: false, asked: None }
    }

    /// A supervisor that finds no job and has asked the nodes.
    fn begun(options: LaunchOptions, state: SupervisorState) -> Self {
        let mut play = Self::new(options, state);
        play.on(Event::Begin).has("FindJob");
        play.on(Event::NoJob { swept: 0 }).has("ask start ");
        play
    }

    /// The next supervisor of the run.
    fn next(self, options: LaunchOptions) -> Self {
        Self::begun(options, self.decisions.state)
    }

    /// Feeds an event and returns the actions that follow. Events and the state are written, unless
    /// the folder is full.
    fn on(&mut self, event: Event) -> Lines {
        let mut lines = Vec::new();
        for action in self.decisions.on(self.now, event) {
            lines.push(shown(&action));
            match (action, self.is_full) {
                (Action::Report(..) | Action::Save, true) => {
                    lines.extend(self.on(Event::Unsaved(full_disk())).0);
                }
                (Action::Save, false) => lines.extend(self.on(Event::Saved).0),
                (Action::Ask(inquiry), _) => self.asked = Some(inquiry),
                _ => {}
            }
        }
        Lines(lines)
    }

    /// All nodes except the `ill` ones answer; all links are well.
    fn answers_but(&mut self, ill: &[&str]) -> Lines {
        self.answers_as(ill, &Health::Ill("no answer".to_owned()), &[])
    }

    /// All nodes answer, and then find that no packet passes to or from the nodes `dead`.
    fn links_dead(&mut self, dead: &[&str]) -> Lines {
        self.answers(|_| {}, dead)
    }

    /// All nodes answer, and their links cannot be tested.
    fn links_untested(&mut self) -> Lines {
        self.links_dead(&ALL)
    }

    /// The nodes `silent` have this health and do not answer; no packet passes to or from `dead`.
    fn answers_as(&mut self, silent: &[&str], health: &Health, dead: &[&str]) -> Lines {
        let change = |survey: &mut Survey| {
            for name in silent {
                survey.answers.remove(*name);
                survey.health.insert((*name).to_owned(), health.clone());
            }
        };
        self.answers(change, dead)
    }

    /// All nodes answer but for what `change` changes, and then try their links.
    fn answers(&mut self, change: impl FnOnce(&mut Survey), dead: &[&str]) -> Lines {
        let inquiry = self.asked.take().expect("nodes are asked");
        let bytes = if self.decisions.has_lived() { 4096 } else { 0 };
        let mut survey = survey(&inquiry.pool, bytes);
        change(&mut survey);
        try_links(&mut survey, &inquiry, |a, b| dead.contains(&a) || dead.contains(&b));
        self.on(Event::Answers(survey))
    }

    fn tick_after(&mut self, seconds: f64) -> Lines {
        self.now += seconds;
        self.on(Event::Tick { stops: 0 })
    }

    fn stops(&mut self, stops: usize) -> Lines {
        self.on(Event::Tick { stops })
    }

    fn ended(&mut self, how: &str) -> Lines {
        self.on(Event::Ended { how: how.to_owned(), succeeded: false })
    }

    fn fails(&mut self) -> Lines {
        self.ended("the launcher ended with code 1")
    }

    /// The job reports that it is done with this exit code, and its launcher ends.
    fn is_done(&mut self, exit: u8) -> Lines {
        self.on(beat("done", 1000, Some(exit)));
        self.ended("the launcher ended")
    }

    /// The launcher starts on these nodes after the pause.
    #[track_caller]
    fn launches(&mut self, pause_seconds: f64, on: &str) {
        if pause_seconds > 0.0 {
            self.tick_after(pause_seconds - 0.01).none();
            self.now += 0.01;
        }
        assert_eq!(self.tick_after(0.0).0, [format!("launch {on}")]);
        self.is_launched();
    }

    /// The launcher runs now.
    fn is_launched(&mut self) -> Lines {
        let launcher = self.decisions.state.supervisor.clone();
        self.on(Event::Launched(launcher))
    }

    /// Heartbeats, each a second after the previous one.
    fn beats(&mut self, phases: &[(&str, usize)]) {
        for (phase, column) in phases {
            self.now += 1.0;
            self.on(beat(phase, *column, None));
        }
    }

    fn line(&mut self, line: &str) -> Lines {
        self.on(Event::Line(format!("{line}\n")))
    }

    /// The launcher does not reach these nodes, and ends.
    fn ends_without(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.line(&format!("  Remote daemon: [[47992,0],2] on node {node}"));
        }
        self.ended("the launcher ended with code 205");
    }

    /// Starts in vain: the launcher's process on this node does not reach that on the head.
    fn starts_in_vain(&mut self, node: &str) {
        let text = "A process or daemon was unable to complete a TCP connection\n";
        self.on(Event::Report(text.into()));
        let text = format!("  Local host:    {node}\n  Remote host:   head\n");
        self.on(Event::Report(text.into()));
    }

    /// The launcher has reached no node, and ends.
    fn reaches_none(&mut self) -> Lines {
        self.line("ORTE was unable to reliably start one or more daemons.");
        self.fails()
    }

    /// A supervisor that has just started the job.
    fn running(options: LaunchOptions, spares: &[&str]) -> Self {
        let mut play = Play::begun(options, state(spares));
        play.answers_but(&[]).none();
        play.launches(0.0, "n1 n2 n3");
        play
    }

    /// A supervisor whose job has a checkpoint at column 512.
    fn computing(options: LaunchOptions, spares: &[&str]) -> Self {
        let mut play = Play::running(options, spares);
        play.beats(&[("generate", 0), ("factor", 0), ("factor", 64), ("commit", 512)]);
        play.beats(&[("stamp", 512), ("factor", 512)]);
        play
    }

    /// Rank `rank` that runs the user's program reports its end.
    fn rank_ends(&mut self, rank: usize, end: ProcessEnd) {
        let host = NODES[rank].to_owned();
        let end = RankEnd { token: String::new(), rank: Some(rank), host, end };
        self.on(Event::RankEnded(end)).none();
    }

    /// The program opens a run of the checkpoint library.
    fn opens(&mut self, run: &str) {
        let open = Heartbeat { keeps: Some(keeps(run)), ..heartbeat("open", 0) };
        self.on(Event::Heartbeat(open));
    }

    /// A supervisor whose program, which uses the library, has completed checkpoint 5.
    fn for_program(spares: &[&str]) -> Self {
        let mut play = Play::running(options_of_program(true), spares);
        play.beats(&[("start", 0), ("open", 0), ("compute", 0)]);
        play.beats(&[("checkpoint", 4), ("compute", 5)]);
        play
    }
}

/// Heartbeats overtake the report: its end is lost with the node that was to pass it on, and the
/// other nodes still have the result.
#[test]
fn incomplete_report_is_requested_again_before_data_is_removed() {
    let play = |phase: &str, report_lines| {
        let mut play = Play::computing(options(), &["s1"]);
        play.on(Event::Report(b"one\ntwo\n".into()));
        let last = Heartbeat { report_lines, exit: Some(0), ..heartbeat(phase, 1000) };
        play.on(Event::Heartbeat(last));
        play.fails()
    };
    let cut = play("reported", Some(5));
    cut.has("the last 3 lines of the report did not come; the launcher");
    cut.has("ask start n1 n2 n3").lacks("ask clean");
    for written in [None, Some(2), Some(0)] {
        play("reported", written).has("ask clean").lacks("did not come");
    }
    // No node could report the lines again.
    play("done", Some(5)).has("warning: the last 3 lines").has("ask clean");
}

#[test]
fn a_launcher_that_starts_nothing_is_not_asked_again() {
    const REFUSAL: &str = "mpirun has detected an attempt to run as root.";
    let mut play = Play::running(options(), &["s1"]);
    play.line(REFUSAL);
    let lines = play.fails();
    lines.has("giving up: the launcher refuses to run as root: give").lacks("ask start").ends(2);
    // A refusal does not end a run whose earlier start has computed.
    let mut play = Play::computing(options(), &["s1"]);
    play.fails();
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.line(REFUSAL);
    play.fails().has("ask start");
}

#[test]
fn a_node_that_the_job_declines_is_replaced_while_spares_last() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.fails();
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.on(declines("s1"));
    let lines = play.fails();
    lines.has("start 2 failed in phase start at column 0: the job declines s1").has("ask start");
    play.answers_but(&[]).has("replaced: s1 lacks the BLAS x; s2 takes its place");
    play.launches(0.0, "n1 s2 n3 --resume require");
    play.on(declines("s2"));
    let lines = play.fails();
    lines.has("giving up: the job cannot run on s2, whose place no spare node can take").ends(2);
    lines.has("data of earlier starts is kept").lacks("ask start");
}

/// With too few parities its data would be lost.
#[test]
fn a_node_with_data_is_replaced_if_that_can_be_rebuilt() {
    let declined = |options: LaunchOptions| {
        let mut play = Play::computing(options, &["s1", "s2"]);
        play.fails();
        play.answers_but(&["n2"]);
        play.launches(0.0, "n1 s1 n3 --resume require");
        play.on(declines("n3"));
        play.fails()
    };
    declined(two_parities()).has("ask start");
    declined(options()).has("the job cannot run on n3").ends(2);
    // Before the first start has any.
    let mut play = Play::running(options(), &["s1", "s2"]);
    play.on(declines("n3"));
    play.fails().has("ask start");
    // A user who wants the job to end gets no further start.
    let mut play = Play::running(options(), &["s1"]);
    play.stops(1);
    play.on(declines("n3"));
    play.fails().lacks("ask start").ends(2);
}

#[test]
fn undisturbed_run_leaves_no_data() {
    let mut play = Play::computing(options(), &["s1"]);
    play.on(beat("reported", 1000, Some(0)));
    play.is_done(0).has("ask clean n1 n2 n3 s1 + ");
    play.answers_but(&[]).has("ask forget n1 n2 n3 s1 + ");
    let lines = play.answers_but(&[]);
    lines.has("finished: the job is done, after 0 failure(s)").has("Tidy").has("Account").ends(0);
}

/// A run that is over, and whose nodes are asked to remove its data.
fn asked_to_clean() -> Play {
    let mut play = Play::computing(options(), &[]);
    play.is_done(0);
    play
}

fn has_no_data(survey: &mut Survey) {
    survey.answers.values_mut().for_each(|answer| answer.run_bytes = 0);
}

/// The next command finds the state of a run at work then, and reads its files.
#[test]
fn files_of_a_run_stay_if_its_end_cannot_be_saved() {
    let mut play = asked_to_clean();
    play.is_full = true;
    play.answers(has_no_data, &[]).has("Save").lacks("Tidy");
}

#[test]
fn nodes_without_data_are_not_asked_to_remove_marks() {
    asked_to_clean().answers(has_no_data, &[]).has("finished: ").lacks("ask ");
}

#[test]
fn images_left_on_a_node_are_reported() {
    let mut play = asked_to_clean();
    let stay = |survey: &mut Survey| {
        survey.answers.get_mut("n2").unwrap().images_stay = Some("/scratch: read-only".into());
    };
    play.answers(stay, &[]).has("unclean: n2: images of the run stay there: /scratch: read-only");
}

#[test]
fn a_lost_node_is_replaced_in_place() {
    let mut play = Play::computing(options(), &["s1"]);
    play.line("  Peer host:  n2").none();
    play.tick_after(0.1).has("ask look n1 n2 n3 + s1, lost? n2");
    let why = "a connection broke, and n2 is lost: no answer";
    play.answers_but(&["n2"]).has(&format!("kill: {why}: killing the launcher")).has("Kill");
    play.tick_after(100.0).none();
    let lines = play.ended("the launcher was killed by signal 9");
    lines.has(&format!("start 1 failed in phase factor at column 512: {why}; the launcher was"));
    lines.has("Save").has("ask start n1 n2 n3 + s1, 1 may be silent, lost? n2 n2");
    play.answers_but(&["n2"]).has("replaced: n2 no answer; s1 takes its place");
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.beats(&[("start", 0)]);
    play.now += 0.5;
    let lines = play.on(beat("factor", 512, None));
    lines.has("computing: computing again at column 512, 1.50 s after detection");
    let failure = &play.decisions.state.failures[0];
    assert!(failure.node_lost && failure.resumed_column == Some(512), "{failure:?}");
    let seconds = failure.timeline();
    assert_eq!((seconds.replacement_seconds, seconds.restart_seconds), (Some(0.0), Some(1.0)));
    assert_eq!((seconds.detection_seconds.round(), seconds.recovery_seconds), (100.0, Some(0.5)));
    // Suspicion of the start before is no reason to doubt a node of this start.
    play.tick_after(10.0).has("ask look n1 s1 n3 + ").lacks("lost?");
}

#[test]
fn node_lost_before_the_first_checkpoint_loses_all_progress() {
    let mut play = Play::running(options(), &["s1"]);
    play.beats(&[("generate", 0), ("factor", 0), ("factor", 256)]);
    play.fails();
    play.answers_but(&["n1"]);
    play.launches(0.0, "s1 n2 n3");
}

#[test]
fn a_second_node_lost_in_recovery_is_replaced_too() {
    let mut play = Play::computing(two_parities(), &["s1", "s2"]);
    play.fails();
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.beats(&[("recover-rebuild", 0)]);
    let lines = play.fails();
    lines.has("failure: start 2 failed in phase recover-rebuild at column 0");
    lines.has("ask start n1 s1 n3 + s2, 1 may be silent");
    play.answers_but(&["n3"]).has("replaced: n3 no answer; s2 takes its place");
    play.launches(0.0, "n1 s1 s2 --resume require");
}

#[test]
fn two_nodes_lost_at_once_are_replaced() {
    for are_silent in [true, false] {
        let mut play = Play::computing(two_parities(), &["s1", "s2"]);
        play.fails();
        let lost = ["n1", "n3"];
        let lines = if are_silent { play.answers_but(&lost) } else { play.links_dead(&lost) };
        lines.counts("replaced: n1", 1).has("n3").has("; s1, s2 take their places");
        play.launches(0.0, "s1 n2 s2 --resume require");
    }
}

#[test]
fn silent_job_with_healthy_nodes_is_killed_and_resumed() {
    let mut play = Play::computing(options(), &["s1"]);
    // The job's pace is a second: nodes are probed after two, and after twice that time again.
    for _ in 0..2 {
        play.tick_after(1.9).none();
        play.tick_after(0.1).has("ask look n1 n2 n3 + s1");
        play.answers_but(&[]).none();
    }
    play.tick_after(27.0).has("kill: no sign of life for 31.0 s (limit 30.0 s)").has("Kill");
    play.ended("the launcher was killed by signal 9");
    play.answers_but(&[]).has("pause: 1 s before the next start");
    play.launches(1.0, "n1 n2 n3 --resume require");
}

/// The supervisor and the job were stopped, or the supervisor was blocked in writing its output.
#[test]
fn unwatched_time_is_not_silence_of_the_job() {
    let mut play = Play::computing(options(), &["s1"]);
    let mut unwatched = |seconds: f64| {
        play.now += seconds;
        play.on(Event::Unwatched { seconds }).none();
        play.tick_after(0.0)
    };
    unwatched(600.0).none();
    // Short pauses count, or a slow supervisor would never find that a job hangs.
    let probes = (0..3).filter(|_| !unwatched(9.0).has("ask look ").0.is_empty());
    assert_eq!(probes.count(), 3);
    unwatched(9.0).has("kill: no sign of life for 36.0 s");
}

#[test]
fn a_sign_of_life_ends_the_silence() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    play.answers_but(&[]);
    play.beats(&[("factor", 520)]);
    // By now the longest pause is four seconds.
    play.tick_after(7.9).none();
    play.tick_after(0.1).has("ask look n1 n2 n3 + s1");
}

/// The agent may fail to reach a node while the job computes.
#[test]
fn heartbeat_during_a_probe_keeps_the_job_alive() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0).has("ask look ");
    play.beats(&[("factor", 520)]);
    play.answers_but(&["n3"]).none();
    play.tick_after(8.0).has("ask look ");
    play.beats(&[("factor", 530)]);
    play.links_dead(&["n2"]).none();
}

#[test]
fn node_found_lost_during_silence_is_the_reason() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    play.answers_but(&["n3"]).has("kill: silence, and n3 is lost: no answer").has("Kill");
}

#[test]
fn launcher_that_ends_during_a_probe_is_not_killed() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    let lines = play.fails();
    lines.has("at column 512: the launcher ended with code 1").has("ask start n1 n2 n3 + s1");
    lines.lacks("Kill");
}

#[test]
fn a_killed_launcher_is_started_again_after_pauses_that_double() {
    let mut play = Play::computing(options(), &[]);
    for (column, pause) in [(520, 1.0), (640, 2.0), (760, 4.0)] {
        play.beats(&[("factor", column)]);
        play.fails().has("ask start n1 n2 n3 + , 1 may be silent");
        play.answers_but(&[]).has(&format!("pause: {pause} s before the next start"));
        play.launches(pause, "n1 n2 n3 --resume require");
    }
}

/// The hint states that nothing was started, and does not mention data.
#[test]
fn node_that_refuses_before_the_first_start_has_no_data() {
    let lines = Play::begun(options(), state(&[])).answers_but(&["n2"]);
    lines.has("giving up: n2 (no answer) cannot be used, and no spare node is left");
    lines.has("hint: nothing was started; start the same command again").ends(75);
}

#[test]
fn without_a_spare_the_run_gives_up_until_the_node_is_back() {
    let mut play = Play::computing(options(), &["s1"]);
    play.fails();
    let lines = play.answers_but(&["n2", "s1"]);
    lines.has("gave-up: giving up: n2 (no answer) cannot be used, and no spare node is left");
    lines.has("hint: data that survived is kept; start the same command again to resume").ends(75);
    let state = &play.decisions.state;
    assert_eq!((state.status, state.exit), (Status::GaveUp, Some(75)));
    let mut next = play.next(options());
    next.answers_but(&[]);
    next.launches(1.0, "n1 n2 n3 --resume require");
}

fn waiting() -> LaunchOptions {
    let settings = |settings: &mut LaunchSettings| settings.no_spare = NoSpare::Wait;
    LaunchOptions { end_unix: Some(10_000.0), ..options_with(settings) }
}

/// A spare that the user adds to the file while the run waits, and one that is known.
#[test]
fn a_spare_that_is_added_to_the_file_takes_the_place() {
    let mut play = Play::computing(waiting(), &[]);
    play.fails();
    play.answers_but(&["n2"]).has("waiting: ");
    play.on(Event::Spares(hosts(&["n2"]))).lacks("listed");
    play.on(Event::Spares(hosts(&["n2", "t1"]))).has("listed: t1: listed as spare from now on");
    play.on(Event::Spares(hosts(&["n2", "t1"]))).lacks("listed");
    play.now += play.decisions.options.settings.probe_limit_seconds;
    play.on(Event::Tick { stops: 0 }).has("ask start n1 n2 n3 + t1");
    play.answers_but(&["n2"]).has("replaced: n2 no answer; t1 takes its place");
    play.launches(0.0, "n1 t1 n3 --resume require");
}

#[test]
fn a_lost_node_without_a_spare_is_waited_for() {
    let mut play = Play::computing(waiting(), &["s1"]);
    play.fails();
    let lines = play.answers_but(&["n2", "s1"]);
    lines.has("waiting: n2 (no answer) cannot be used, and no spare node is left: waiting for it");
    lines.lacks("gave-up");
    let limit = play.decisions.options.settings.probe_limit_seconds;
    for _ in 0..3 {
        play.tick_after(limit - 0.1).none();
        play.tick_after(0.1).has("ask start n1 n2 n3");
        // Printed once.
        play.answers_but(&["n2"]).none();
    }
    assert!(play.decisions.state.reason.is_some());
    play.tick_after(limit).has("ask start n1 n2 n3");
    play.answers_but(&[]).lacks("waiting");
    play.launches(1.0, "n1 n2 n3 --resume require");
    assert_eq!(play.decisions.state.reason, None);
}

#[test]
fn a_wait_for_a_node_ends_by_request_and_with_the_time() {
    let mut play = Play::computing(waiting(), &[]);
    play.fails();
    play.answers_but(&["n2"]).has("waiting: ");
    play.stops(1).has("stopped: ").ends(75);
    let mut play = Play::computing(waiting(), &[]);
    play.fails();
    play.now = 10_000.0 - play.decisions.options.settings.probe_limit_seconds;
    play.answers_but(&["n2"]).has("no spare node is left, and the time ends").ends(75);
}

/// Nodes share the ranks of a lost one; one rank needs `rank_bytes`.
fn sharing(rank_bytes: u64) -> LaunchOptions {
    let mut options = options_with(|settings| settings.no_spare = NoSpare::Spread);
    (options.sharing.rank_bytes, options.sharing.n) = (rank_bytes, Some(1000));
    options
}

impl Play {
    /// Node n1 runs the rank of n2, too, and the job computes again.
    fn sharing() -> Self {
        let mut play = Play::computing(sharing(0), &[]);
        play.fails();
        play.answers_but(&["n2"]);
        play.launches(0.0, "n1 n3 with 2 1 rank(s) --resume require");
        play.beats(&[("factor", 64), ("factor", 128)]);
        play
    }
}

#[test]
fn ranks_of_a_lost_node_share_another_until_it_is_back() {
    let mut play = Play::computing(sharing(0), &[]);
    play.fails();
    let lines = play.answers_but(&["n2"]);
    lines.has("shared: n2 no answer; n1 runs its ranks, too").lacks("gave-up");
    play.launches(0.0, "n1 n3 with 2 1 rank(s) --resume require");
    assert_eq!(play.decisions.hollow(), ["n2"]);
    // Its rank is not rebuilt when the next start fails: nothing moves that could be lost, too.
    play.fails();
    play.answers_but(&[]).lacks("unshared");
    play.launches(1.0, "n1 n3 with 2 1 rank(s) --resume require");
    play.beats(&[("factor", 64), ("factor", 128)]);
    play.fails().has("ask start n1 n3 + n2");
    play.answers_but(&["n2"]).lacks("shared");
    play.launches(2.0, "n1 n3 with 2 1 rank(s) --resume require");
    play.beats(&[("factor", 192), ("factor", 256)]);
    play.fails();
    play.answers_but(&[]).has("unshared: n2 has the ranks of n2 to itself");
    play.launches(4.0, "n1 n2 n3 --resume require");
    assert_eq!(play.decisions.hollow(), ["n2"]);
}

/// What dies with a change of its memory under way is lost to abft as well as what moves.
#[test]
fn ranks_of_abft_return_if_one_more_may_be_lost() {
    let returns = |parities| {
        let mut options = sharing(0);
        (options.parities, options.sharing.is_strict) = (parities, true);
        (options.sharing.most, options.sharing.groups) = (parities, vec![0, 1, 2]);
        let mut play = Play::computing(options, &[]);
        play.fails();
        play.answers_but(&["n2"]);
        play.launches(0.0, "n1 n3 with 2 1 rank(s) --resume require");
        play.beats(&[("factor", 64), ("factor", 128)]);
        play.fails();
        play.answers_but(&[])
    };
    returns(1).lacks("unshared");
    returns(2).has("unshared: n2 has the ranks of n2 to itself");
}

#[test]
fn a_node_that_is_back_replaces_the_next_lost_one() {
    let mut play = Play::sharing();
    play.fails();
    let lines = play.answers_but(&["n3"]);
    lines.has("replaced: n3 no answer; n2 takes its place").lacks("shared");
    play.launches(0.0, "n1 n2 with 2 1 rank(s) --resume require");
}

/// The supervisor is killed while nodes share.
#[test]
fn the_next_supervisor_finds_the_ranks_where_they_are() {
    let mut play = Play::sharing();
    let text = serde_json::to_string(&play.decisions.state).unwrap();
    play.decisions.state = serde_json::from_str(&text).unwrap();
    let mut play = play.next(sharing(0));
    play.answers_but(&["n2"]).lacks("shared");
    play.launches(0.0, "n1 n3 with 2 1 rank(s) --resume require");
}

#[test]
fn spares_are_used_before_nodes_share() {
    let mut play = Play::computing(sharing(0), &["s1"]);
    play.fails();
    let lines = play.answers_but(&["n1", "n2"]);
    lines.has("replaced: n1 no answer; s1 takes its place");
    lines.has("shared: n2 no answer; s1 runs its ranks, too");
    play.launches(0.0, "s1 n3 with 2 1 rank(s) --resume require");
    // A spare that has not answered yet is waited for.
    let mut play = Play::computing(sharing(0), &["s1"]);
    play.fails();
    play.answers_as(&["s1"], &Health::Unknown, &["n1"]).has("ask start ").lacks("shared");
}

#[test]
fn too_little_memory_for_one_more_rank_is_named() {
    let have = answer().available_bytes;
    let mut play = Play::computing(sharing(0), &[]);
    play.decisions.options = sharing(have);
    play.fails();
    let lines = play.answers_but(&["n2"]);
    lines.has("n2 (no answer) cannot be used, and no spare node is left; no other node has room");
    lines.has("for 2 ranks: ").has(" are missing (N = 707 would fit); --no-spare wait");
    lines.lacks("shared").ends(75);
}

#[test]
fn nodes_without_room_are_warned_of_at_the_first_start() {
    let have = answer().available_bytes;
    let warning = "warning: warning: no node has room for one more rank: a loss stops the run; n1 ";
    let mut play = Play::begun(sharing(have), state(&[]));
    play.answers_but(&[]).has(warning).has(" are missing (N = 707 would fit)");
    play.launches(0.0, "n1 n2 n3");
    play.fails();
    play.answers_but(&[]).lacks("no node has room");
    let waits = options_with(|settings| settings.no_spare = NoSpare::Wait);
    let sharing_waits = LaunchOptions { sharing: sharing(have).sharing, ..waits };
    for (options, spares) in
        [(sharing(have / 2), &[][..]), (sharing(have), &["s1"]), (sharing_waits, &[])]
    {
        Play::begun(options, state(spares)).answers_but(&[]).lacks("no node has room");
    }
}

#[test]
fn nodes_do_not_share_before_the_first_start() {
    let mut play = Play::begun(sharing(0), state(&[]));
    play.answers_but(&["n2"]).lacks("shared").ends(75);
}

#[test]
fn excluded_nodes_are_readmitted_on_request() {
    let mut play = Play::computing(options(), &["s1"]);
    play.fails();
    play.answers_but(&["n2"]);
    let readmit = options_with(|settings| settings.readmit = true);
    let mut next = Play::new(readmit, play.decisions.state.clone());
    next.on(Event::Begin).has("readmit: in again as spares: n2");
    let lines = next.on(Event::NoJob { swept: 2 });
    lines.has("ended: 2 process(es) that an earlier supervisor had started");
    lines.has("ask start n1 s1 n3 + n2").lacks("may be silent");
    // Without `readmit`, n2 stays out although it is well.
    let asked = play.next(options()).asked.expect("nodes are asked");
    assert_eq!((names(&asked.pool.active), asked.pool.spares), ("n1 s1 n3".into(), vec![]));
}

fn replace_suspects() -> LaunchOptions {
    options_with(|settings| settings.replace_suspects = true)
}

#[test]
fn node_that_computes_wrong_twice_is_replaced_on_request() {
    let mut play = Play::computing(options(), &["s1"]);
    let lines = play.on(corruption("n2", 1, 3));
    lines.has("n2 rank 1 has computed wrong numbers: 3 row(s) in 1 check(s), first at column 320");
    play.on(corruption("n2", 1, 3)).none();
    play.on(corruption("n2", 4, 9)).has("wrong: n2").lacks("kill");

    let mut play = Play::computing(replace_suspects(), &["s1"]);
    play.on(corruption("n2", 1, 3)).has("wrong: n2").lacks("kill");
    let lines = play.on(corruption("n2", 2, 4));
    lines.has("kill: n2 computes wrong, and a spare is to replace it").has("Kill");
    play.fails();
    let asked = play.asked.as_ref().expect("nodes are asked");
    assert_eq!(asked.lost, ["n2".to_owned()].into(), "whatever n2 answers, it needs a spare");
    let lines = play.answers_but(&[]);
    lines.has("replaced: n2 computes wrong: 2 check(s) have named it; s1 takes its place");
    play.launches(0.0, "n1 s1 n3 --resume require");
    // A report of the next start is added to those before.
    play.on(corruption("n1", 1, 1)).has("wrong: n1 rank 1 ");
    play.fails();
    play.answers_but(&[]);
    play.launches(1.0, "n1 s1 n3 --resume require");
    let lines = play.on(corruption("n1", 1, 1));
    lines.has("warning: warning: n1 stays, though suspect: no spare node is left").lacks("kill");
    let blamed = &play.decisions.state.blamed;
    assert_eq!((blamed["n1"].checks, blamed["n2"].rows, blamed["n2"].checks), (2, 4, 2));
    // A node that is readmitted begins without reports.
    let next = play.next(options_with(|settings| settings.readmit = true));
    assert!(!next.decisions.state.blamed.contains_key("n2"));

    let losable = vec![true, false, true];
    let mut play = Play::computing(LaunchOptions { losable, ..replace_suspects() }, &["s1"]);
    let lines = play.on(corruption("n2", 2, 2));
    lines.has("of one process row than the parities can rebuild").lacks("kill");
}

/// The job must print the number that it cannot correct before it ends.
#[test]
fn job_that_ends_its_run_is_not_killed_for_a_suspect() {
    let mut play = Play::computing(replace_suspects(), &["s1"]);
    play.on(corruption("n2", 1, 3));
    play.on(Event::Heartbeat(corruption_beat("n2", 2, 4, true))).has("wrong: n2").lacks("Kill");
    play.ended("the launcher ended with code 75");
    play.answers_but(&[]).has("replaced: n2 computes wrong: 2 check(s) have named it; s1 takes");
}

#[test]
fn suspect_stays_without_a_spare_or_a_request() {
    let suspect = || {
        let mut play = Play::computing(replace_suspects(), &["s1"]);
        play.on(corruption("n2", 2, 2));
        play.fails();
        play
    };
    let mut play = suspect();
    let lines = play.answers_but(&["s1"]);
    lines.has("warning: warning: n2 stays, though suspect: no spare node is left");
    play.launches(1.0, "n1 n2 n3 --resume require");
    let mut next = suspect().next(options());
    assert_eq!(next.asked.as_ref().expect("nodes are asked").lost, BTreeSet::new());
    next.answers_but(&[]);
    next.launches(1.0, "n1 n2 n3 --resume require");
}

#[test]
fn losses_beyond_the_code_end_or_restart_the_run() {
    let lost = |start_over| {
        let options = options_with(|settings| settings.start_over = start_over);
        let mut play = Play::computing(options, &["s1"]);
        play.on(beat("refused", 0, Some(2)));
        (play.fails(), play)
    };
    let (lines, _) = lost(false);
    lines.has("giving up: more is lost than the checkpoint can rebuild, see the message above;");
    lines.has("--start-over would begin from the seed").ends(2);
    let (lines, mut play) = lost(true);
    lines.has("over: more is lost than can be rebuilt: starting over from the seed");
    lines.has("ask start n1 n2 n3 + s1");
    play.answers_but(&[]);
    play.launches(0.0, "n1 n2 n3 --resume never");
    assert!(!play.decisions.state.is_refused && !play.decisions.state.has_checkpoint);
}

/// Where the flags of the run choose how it begins, nothing is added to them.
#[test]
fn run_with_a_resume_flag_is_not_started_over() {
    let start_over = options_with(|settings| settings.start_over = true);
    let mut play = Play::computing(LaunchOptions { says_resume: true, ..start_over }, &[]);
    play.on(beat("refused", 0, None));
    play.fails().has("failure: start 1 failed");
    play.answers_but(&[]);
    play.launches(1.0, "n1 n2 n3");
}

/// The checkpoint that the run's flags name is that of the first start alone, whatever it came to.
#[test]
fn only_the_first_start_goes_back_to_a_named_checkpoint() {
    for (how, beats) in [("auto", &[][..]), ("require", &[("commit", 512), ("stamp", 512)])] {
        let mut play = Play::running(LaunchOptions { checkpoint: Some(5), ..options() }, &[]);
        play.beats(&[("generate", 0), ("factor", 0)]);
        play.beats(beats);
        play.fails().has("failure: start 1 failed");
        play.answers_but(&[]);
        play.launches(1.0, &format!("n1 n2 n3 --resume {how}"));
    }
}

#[test]
fn job_that_met_an_earlier_process_is_started_again() {
    let mut play = Play::computing(options(), &[]);
    for (start, pause) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
        play.on(beat("changed", 0, None));
        play.is_done(2).has(&format!("failure: start {start} failed in phase changed"));
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3 --resume require");
    }
}

#[test]
fn segments_missing_between_two_starts_are_reported() {
    let gone = |is_of_program: bool, phases: &[(&str, usize)], bytes: [u64; 3]| {
        let mut play = Play::running(options_of_program(is_of_program), &[]);
        play.decisions.state.keeps = Some(keeps("r"));
        play.beats(phases);
        play.fails();
        let have = |survey: &mut Survey| {
            for (answer, bytes) in survey.answers.values_mut().zip(bytes) {
                answer.run_bytes = bytes;
            }
        };
        play.answers(have, &[])
    };
    let computed = [("factor", 64), ("commit", 512), ("stamp", 512), ("factor", 512)];
    let had = |place: &str| {
        format!(
            "gone: warning: an earlier start of this run had a checkpoint ({place}), and its \
             segments are gone from n[1-3]: a restart of the host, or a cleaner of segments \
             that no process is attached to (ipcrm in a Slurm epilog"
        )
    };
    gone(false, &computed, [0; 3]).has(&had("column 512"));
    gone(true, &[("open", 0), ("compute", 7)], [0; 3]).has(&had("checkpoint 7"));
    gone(false, &computed, [0, 1, 0]).lacks("gone: ");
    // There was no checkpoint.
    gone(false, &computed[..2], [0; 3]).lacks("gone: ");
    gone(true, &[("open", 0), ("compute", 0)], [0; 3]).lacks("gone: ");
}

#[test]
fn nodes_without_data_yet_miss_no_segments() {
    let mut play = Play::computing(options(), &[]);
    play.decisions.state.hollow.extend(NODES.map(str::to_owned));
    play.fails();
    play.answers(has_no_data, &[]).lacks("gone: ");
}

/// All nodes answer, `n2` with these counts of OOM kills, the others with 7 and none.
fn answers_with_oom_kills(play: &mut Play, of_n2: OomKills) -> Lines {
    let count = |survey: &mut Survey| {
        for (name, answer) in &mut survey.answers {
            let others = OomKills { machine: Some(7), group: None };
            answer.oom_kills = if name == "n2" { of_n2 } else { others };
        }
    };
    play.answers(count, &[])
}

#[test]
fn oom_kill_is_recognized_by_the_counts_of_its_node() {
    let counted = |machine| OomKills { machine: Some(machine), group: None };
    for is_of_program in [false, true] {
        let mut play = Play::begun(options_of_program(is_of_program), state(&[]));
        answers_with_oom_kills(&mut play, counted(3)).none();
        let mut column = 0;
        let mut fails = |now, is_killed| {
            play.tick_after(10.0).has("launch n1 n2 n3");
            play.is_launched();
            // Failures at one column would be given up.
            column += 200;
            play.beats(&[("factor", column), ("compute", column)]);
            if is_killed && is_of_program {
                play.rank_ends(1, ProcessEnd::Signal(libc::SIGKILL));
            }
            play.ended("the launcher ended with code 137");
            let lines = answers_with_oom_kills(&mut play, now);
            (lines, play.decisions.state.failures.last().unwrap().how.clone())
        };
        let text = "the kernel's OOM killer ended a process on n2 during the run (oom_kill 3 -> 4)";
        let (lines, how) = fails(counted(4), true);
        lines.has(&format!("oom: {text}")).counts("oom: ", 1);
        assert!(how.ends_with(&format!("code 137; {text}")), "{how}");
        // Only what was counted is reported; without counts, nothing.
        fails(counted(4), true).0.counts("oom: ", 0);
        fails(counted(6), false).0.counts("oom: ", 1);
        fails(OomKills::default(), true).0.counts("oom: ", 0);
    }
}

#[test]
fn a_run_is_stopped_in_order_and_resumed() {
    let mut play = Play::computing(options(), &[]);
    let lines = play.stops(1);
    lines.has("stop: asked to stop: ending the job, its checkpoint stays").has("Terminate");
    play.stops(1).none();
    // Ranks that are left are ended.
    play.ended("the launcher ended with code 143").has("ask start").lacks("failure");
    let lines = play.answers_but(&[]);
    lines.has("stopped: stopped; start the same command again to resume").has("Save").ends(75);
    assert_eq!(play.decisions.state.failures, []);
    let mut next = play.next(options());
    next.answers_but(&[]);
    next.launches(0.0, "n1 n2 n3 --resume require");
}

#[test]
fn a_launcher_that_does_not_end_when_asked_is_killed() {
    let why = "kill: the launcher does not end: killing the launcher";
    let mut patient = Play::computing(options(), &[]);
    patient.stops(1);
    // It may have been stopped with the supervisor.
    patient.now += 600.0;
    patient.on(Event::Unwatched { seconds: 600.0 });
    (521..=529).for_each(|column| patient.beats(&[("factor", column)]));
    patient.stops(1).none();
    patient.now += 1.0;
    patient.stops(1).has(why).has("Kill");
    // Two requests to stop kill the launcher at once.
    let mut hasty = Play::computing(options(), &[]);
    hasty.stops(1);
    hasty.stops(2).has(why).has("Kill");
    hasty.ended("the launcher was killed by signal 9").has("ask start").lacks("failure");
    hasty.answers_but(&[]).ends(75);
}

#[test]
fn stop_request_is_handled_while_no_job_runs() {
    for ill in [&[][..], &["n2"]] {
        let mut play = Play::computing(options(), &["s1"]);
        play.fails();
        play.answers_but(ill);
        play.stops(1).ends(75);
    }
}

#[test]
fn a_job_that_cannot_start_is_given_up() {
    let mut play = Play::running(options(), &[]);
    for pause in [1.0, 2.0] {
        play.fails().has("CloseLines");
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3");
    }
    let lines = play.fails();
    lines.has("giving up: the job gave no sign of life in 3 starts, with all nodes well").ends(2);
    // A user who gives the command again has resolved the reason; a supervisor that is killed has
    // not.
    let asked_again = |state: SupervisorState| {
        let (command, pool) = (state.command.clone(), state.pool.clone());
        let me = state.supervisor.clone();
        let mut next = Play::new(options(), state.taken_over(&command, &pool, me));
        next.on(Event::Begin);
        next.on(Event::NoJob { swept: 0 })
    };
    let given_up = play.decisions.state;
    let mut killed = given_up.clone();
    killed.status = Status::Running;
    asked_again(killed).ends(2);
    asked_again(given_up).has("ask start n1 n2 n3");
}

#[test]
fn a_job_that_fails_too_often_is_given_up() {
    let mut play = Play::computing(options_with(|settings| settings.max_restarts = 2), &[]);
    for (column, pause) in [(600, 1.0), (700, 2.0)] {
        play.beats(&[("factor", column)]);
        play.fails();
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3 --resume require");
    }
    play.beats(&[("factor", 990)]);
    play.fails().has("giving up: the job failed 3 times (--max-restarts 2)").ends(2);
}

#[test]
fn node_lost_after_the_complete_report_needs_no_restart() {
    let mut play = Play::computing(options(), &["s1"]);
    play.on(beat("reported", 1000, Some(0)));
    play.on(beat("clear", 1000, Some(0)));
    let lines = play.fails();
    lines.has("the job was lost after its report was whole; its segments are removed now");
    lines.has("ask clean n1 n2 n3 s1 + ");
    let lines = play.answers_but(&["n2", "s1"]);
    lines.has("unclean: n2, s1: not reached; what the run has left");
    lines.has("finished: the job is done, after 0 failure(s)").ends(0);
}

#[test]
fn launcher_that_outlives_its_job_is_killed() {
    let mut play = Play::computing(options(), &[]);
    play.on(beat("done", 1000, Some(0)));
    play.tick_after(0.0).none();
    play.tick_after(10.0).none();
    play.tick_after(0.1).has("kill: the job is done, the launcher does not end").has("Kill");
    play.ended("the launcher was killed by signal 9").has("ask clean n1 n2 n3 + ");
}

#[test]
fn a_lost_state_folder_stops_no_job_that_runs() {
    let mut play = Play::computing(options(), &["s1"]);
    play.is_full = true;
    play.fails().counts("warning: state: full: the job is watched on", 1);
    play.answers_but(&["n2"]).lacks("the job is watched on");
    play.tick_after(0.0).has("launch n1 s1 n3 --resume require");
    play.is_full = false;
    play.is_launched().has("saved: the state is saved again");
}

#[test]
fn start_without_room_for_its_state_can_be_resumed() {
    let mut play = Play::computing(options(), &["s1"]);
    play.fails();
    play.answers_but(&[]);
    play.tick_after(1.0);
    let lines = play.on(Event::Unstarted(full_disk()));
    lines.has("giving up: cannot start the job again: state: full").ends(75);
    // The first start is refused.
    let mut play = Play::begun(options(), state(&[]));
    play.answers_but(&[]);
    play.tick_after(0.0);
    play.on(Event::Unstarted(full_disk())).has("end: state: full");
}

#[test]
fn a_state_folder_that_is_full_at_the_beginning_is_refused() {
    // A supervisor that would continue a run is refused, too.
    for start in [0, 3] {
        let mut play = Play::new(options(), state(&[]));
        play.decisions.state.start = start;
        play.is_full = true;
        play.on(Event::Begin);
        play.on(Event::NoJob { swept: 0 }).has("end: state: full").lacks("ask");
    }
}

#[test]
fn job_that_refuses_its_input_is_given_up_at_once() {
    let mut play = Play::running(options(), &[]);
    play.on(beat("start", 0, Some(2)));
    let lines = play.fails();
    lines.has("giving up: the job cannot run with these settings, see the message above; data of");
    lines.has("Tidy").ends(2);
    assert_eq!(play.decisions.state.status, Status::Finished, "other options may be given");
    let mut play = Play::computing(options(), &[]);
    play.on(beat("start", 0, Some(2)));
    play.fails().lacks("Tidy").ends(2);
    assert_eq!(play.decisions.state.status, Status::GaveUp);
}

#[test]
fn job_of_an_earlier_supervisor_is_adopted_or_has_ended() {
    let found = |runs| {
        let mut play = Play::new(options(), Play::computing(options(), &[]).decisions.state);
        play.on(Event::Begin).has("FindJob");
        let lines = play.on(Event::Found { runs });
        play.beats(&[("factor", 600)]);
        (lines, play)
    };
    let (lines, mut play) = found(true);
    lines.has("found: start 1 of an earlier supervisor continues");
    play.is_done(0).has("ask clean n1 n2 n3 + ");
    let (lines, mut play) = found(false);
    lines.has("found: start 1 of an earlier supervisor has ended");
    let lines = play.ended("the launcher ended unseen");
    lines.has("factor at column 600: the launcher ended unseen");
}

/// The next supervisor reads within milliseconds what the job has written in hours.
#[test]
fn heartbeats_of_an_earlier_supervisor_count_once() {
    let mut first = Play::computing(options(), &["s1"]);
    first.on(corruption("n2", 1, 3));
    let mut play = Play::new(options(), first.decisions.state);
    play.on(Event::Begin);
    play.on(Event::Found { runs: true });
    for phase in ["start", "open", "factor"] {
        play.now += 0.001;
        play.on(beat(phase, 0, None));
    }
    play.on(corruption("n2", 1, 3)).none();
    assert_eq!(play.decisions.state.blamed["n2"].checks, 1);
    play.ended("the launcher ended unseen");
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    // How long a start takes was not seen.
    play.tick_after(40.0).lacks("kill");
}

#[test]
fn failed_residual_in_any_start_decides_the_exit() {
    let mut play = Play::computing(options(), &["s1"]);
    let line = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= 9.7e+04 ...... FAILED\n";
    play.on(Event::Report(line.into())).has(&format!("print {line}"));
    play.fails();
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    let border = "print # start 1 ended here; what follows is the report of start 2\na\nb\n";
    play.on(Event::Report(b"a\nb\n".into())).has(border);
    play.on(Event::Report(b"c\n".into())).has("print c\n").lacks("#");
    play.is_done(0);
    play.answers_but(&[]);
    play.answers_but(&[]).ends(1);
}

#[test]
fn unprintable_report_is_reported_again_at_the_end() {
    let mut play = Play::computing(options(), &[]);
    let why = "standard output: closed; the report stays in start-1.out";
    let lines = play.on(Event::Unprinted(why.to_owned()));
    lines.has("unprinted: standard output: closed; the report stays in start-1.out");
    play.on(Event::Report(b"a\n".into())).none();
    play.is_done(0);
    play.answers_but(&[]);
    // The report's file stays.
    play.answers_but(&[]).has("Save").has("end: standard output: closed").lacks("Tidy");
}

#[test]
fn job_whose_output_cannot_be_read_is_killed() {
    let mut play = Play::computing(options(), &[]);
    play.on(Event::Unread(full_disk())).has("Kill").has("end: state: full");
}

#[test]
fn a_missing_agent_ends_the_run() {
    let mut play = Play::begun(options(), state(&[]));
    let fault = Some("cannot start ssh, which runs commands".to_owned());
    let lines = play.on(Event::Answers(Survey { agent_fault: fault, ..Survey::default() }));
    lines.has("end: cannot start ssh, which runs");
}

#[test]
fn a_node_that_is_not_listed_any_more_is_replaced() {
    let pool = Pool::new(hosts(&["n1", "n3"]), hosts(&["s1"]));
    let mut play = Play::begun(LaunchOptions { pool, ..options() }, state(&["s1"]));
    play.answers_but(&[]).has("replaced: n2 is not listed any more; s1 takes its place");
    play.launches(0.0, "n1 s1 n3");
}

#[test]
fn warnings_and_leftovers_are_reported_once() {
    let mut play = Play::begun(options(), state(&[]));
    let warn = |survey: &mut Survey| {
        for (index, answer) in survey.answers.values_mut().take(2).enumerate() {
            (answer.ended, answer.warnings) = (1 + index, vec!["swap".to_owned()]);
        }
    };
    let (left, swap) =
        ("ended: 3 rank(s) of the last start were left", "warning: warning: n1, n2: swap");
    play.answers(warn, &[]).has(left).has(swap);
    play.launches(0.0, "n1 n2 n3");
    assert!(play.decisions.has_printed("warning: n1.cluster: swap\n"));
    assert!(!play.decisions.has_printed("warning: n1: no swap, but quota\n"));
    assert!(!play.decisions.has_printed("error: n1: swap\n"));
    play.fails();
    play.answers(warn, &[]).has(left).lacks("swap");
}

#[test]
fn a_node_whose_link_is_dead_is_replaced_although_it_answers() {
    let mut play = Play::computing(options(), &["s1"]);
    play.ends_without(&["n3"]);
    let why = "its link is dead: 6 of 6 tries failed (no answer)";
    play.links_dead(&["n3"]).has(&format!("replaced: n3 {why}; s1 takes its place"));
    play.launches(0.0, "n1 n2 s1 --resume require");
    // The nodes in use are well.
    play.tick_after(15.0).has("ask look ");
    play.answers_but(&[]).lacks("kill");
}

#[test]
fn silent_spares_are_probed_again_after_dead_links() {
    let mut play = Play::computing(two_parities(), &["s1", "s2"]);
    play.fails();
    let lines = play.answers_as(&["s1", "s2"], &Health::Unknown, &["n1"]);
    lines.has("ask start n1 n2 n3 + s1 s2, 2 may be silent");
    let asked = play.asked.as_ref().expect("nodes are asked again");
    assert_eq!(asked.lost, ["n1".to_owned()].into(), "whatever n1 answers, it needs a spare");
    play.links_dead(&["n1"]).counts("replaced: ", 1);
    play.launches(0.0, "s1 n2 n3 --resume require");
}

#[test]
fn dead_link_is_found_during_silence_and_tried_once() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0).has("ask look ");
    play.links_dead(&["n2"]).has("kill: silence, and n2 is lost: its link is dead: ");
    play.ended("the launcher was killed by signal 9");
    play.answers_but(&[]).has("replaced: n2");
    play.launches(0.0, "n1 s1 n3 --resume require");
}

#[test]
fn a_spare_whose_link_is_dead_takes_no_place() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.fails();
    play.links_dead(&["n2", "s1"]).has("replaced: n2").has("s2 takes its place");
    assert_eq!(play.decisions.state.pool.out[0].host.name, "s1");
}

#[test]
fn first_start_with_too_few_spares_checks_the_link_test() {
    let begin = || {
        let mut play = Play::begun(options(), state(&[]));
        let lines = play.links_dead(&["n2"]);
        lines.has("warning: n2: its link is dead").has("it is used despite that: too few spares");
        play.launches(0.0, "n1 n2 n3");
        play
    };
    // The start lives: the ranks have another way.
    let mut play = begin();
    play.beats(&[("start", 0), ("factor", 0)]);
    play.fails();
    play.links_dead(&["n2"]);
    play.launches(1.0, "n1 n2 n3");
    // The start does not live.
    let mut play = begin();
    play.fails();
    play.links_dead(&["n2"]).has("giving up: n2 (its link is dead: ").has("tries failed").ends(75);
}

/// A run that was stopped has no failure that shows which nodes were replaced.
#[test]
fn spare_without_data_is_known_after_a_stop() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.stops(1);
    play.ended("the launcher ended with code 143");
    play.answers_but(&[]);
    let mut next = play.next(options());
    next.answers_but(&["n2"]);
    next.launches(0.0, "n1 s1 n3 --resume require");
    next.fails().has("ask start n1 s1 n3 + s2").lacks("may be silent");
    // Its data is rebuilt once the job computes.
    next.answers_but(&[]);
    next.launches(1.0, "n1 s1 n3 --resume require");
    next.beats(&[("start", 0), ("factor", 512)]);
    next.fails().has("ask start n1 s1 n3 + s2, 1 may be silent");
}

/// A start in vain shows that one of its nodes is at fault, not which one.
#[test]
fn starts_that_reach_no_node_are_given_up_with_what_finds_it() {
    let mut play = Play::running(options(), &["s1"]);
    for pause in [1.0, 2.0] {
        play.tick_after(1000.0).has("kill: no sign of life for ");
        play.ended("the launcher was killed by signal 9");
        play.answers_but(&[]).lacks("replaced");
        play.launches(pause, "n1 n2 n3");
    }
    let lines = play.reaches_none();
    lines.has("giving up: the job gave no sign of life in 3 starts, with all nodes well: `skt-hpl screen --hosts FILE` finds the node at fault").ends(2);
}

const CUT_OFF: &str = "out of the launcher's reach, although it answers the agent";

impl Play {
    /// A computing job of which two starts do not reach these nodes, whatever tests of links find.
    fn unreached_twice(options: LaunchOptions, spares: &[&str], nodes: &[&str]) -> (Self, Lines) {
        let mut play = Play::computing(options, spares);
        play.ends_without(nodes);
        // A link may be back soon.
        play.links_dead(&[]).lacks("replaced").lacks("shared").lacks("waiting");
        play.launches(1.0, "n1 n2 n3 --resume require");
        nodes.iter().for_each(|node| play.starts_in_vain(node));
        play.fails();
        let lines = play.links_untested();
        (play, lines)
    }
}

#[test]
fn node_that_two_starts_do_not_reach_is_replaced() {
    let (mut play, lines) = Play::unreached_twice(options(), &["s1"], &["n2"]);
    lines.has(&format!("replaced: n2 {CUT_OFF}; s1 takes its place"));
    play.launches(0.0, "n1 s1 n3 --resume require");
    // Without a spare the run ends by its name, and the same command tries it again.
    let (play, lines) = Play::unreached_twice(options(), &[], &["n2"]);
    lines.has(&format!("n2 ({CUT_OFF}) cannot be used, and no spare node is left")).ends(75);
    let mut next = play.next(options());
    next.links_untested();
    next.launches(2.0, "n1 n2 n3 --resume require");
    // A program of which ranks fail with any code.
    let mut play = Play::for_program(&["s1"]);
    play.line("  Remote daemon: [[47992,0],2] on node n2");
    play.rank_ends(0, ProcessEnd::Code(1));
    play.fails();
    play.links_untested().lacks("giving up");
    play.launches(1.0, "n1 n2 n3");
    play.reaches_none();
    play.links_untested().has("replaced: n2 out of");
}

#[test]
fn ranks_of_an_unreached_node_share_until_it_is_readmitted() {
    let (mut play, lines) = Play::unreached_twice(sharing(0), &[], &["n2"]);
    lines.has(&format!("shared: n2 {CUT_OFF}; n1 runs its ranks, too"));
    play.launches(0.0, "n1 n3 with 2 1 rank(s) --resume require");
    play.beats(&[("factor", 64), ("factor", 128)]);
    // That it answers shows nothing.
    play.fails();
    play.links_untested().lacks("unshared");
    play.launches(1.0, "n1 n3 with 2 1 rank(s) --resume require");
    // n1 runs two ranks of a group, which survives the loss of one.
    for pause in [2.0, 4.0] {
        play.starts_in_vain("n1");
        play.fails();
        if pause == 2.0 {
            play.links_untested();
            play.launches(pause, "n1 n3 with 2 1 rank(s) --resume require");
        }
    }
    play.links_untested().has("giving up: n1: out of").has("and up to 2 would be lost").ends(75);
}

#[test]
fn an_unreached_node_is_waited_for_and_tried_again() {
    let (mut play, lines) = Play::unreached_twice(waiting(), &[], &["n2"]);
    lines.has(&format!("waiting: n2 ({CUT_OFF}) cannot be used")).lacks("pause");
    for pause in [2.0, 4.0, 8.0, 16.0] {
        play.tick_after(play.decisions.options.settings.probe_limit_seconds).has("ask start ");
        play.links_untested().lacks("waiting");
        play.launches(pause, "n1 n2 n3 --resume require");
        play.starts_in_vain("n2");
        play.fails();
        play.links_untested().lacks("pause");
    }
}

/// More nodes with data are never left out than the checkpoint can rebuild.
#[test]
fn unreached_nodes_beyond_the_parities_are_kept() {
    let spares = ["s1", "s2"];
    let why = "n2, n3: out of the launcher's reach";
    for (options, end) in [(options(), true), (sharing(0), true), (waiting(), false)] {
        let (play, lines) = Play::unreached_twice(options, &spares, &["n2", "n3"]);
        lines.has(why).has("rebuild 1 rank of a group, and up to 2 would be lost");
        lines.lacks("replaced").lacks("shared").has(if end { "giving up: " } else { "waiting: " });
        assert_eq!(play.decisions.state.pool, Pool::new(hosts(&NODES), hosts(&spares)));
    }
    let (mut play, lines) = Play::unreached_twice(two_parities(), &spares, &["n2", "n3"]);
    lines.has(&format!("replaced: n2, n3 ({CUT_OFF}); s1, s2 take their places"));
    play.launches(0.0, "n1 s1 s2 --resume require");
    // A node that does not answer counts as well, and one without data.
    let mut play = Play::computing(options(), &spares);
    play.fails();
    play.answers_but(&["n1"]);
    play.launches(0.0, "s1 n2 n3 --resume require");
    for pause in [1.0, 2.0] {
        play.starts_in_vain("n2");
        play.fails();
        if pause == 1.0 {
            play.links_untested();
            play.launches(pause, "s1 n2 n3 --resume require");
        }
    }
    play.links_untested().has("giving up: n2: out of").ends(75);
    // A node that has lost its memory while no job ran is one of the losses.
    let mut play = Play::computing(options(), &spares);
    play.ends_without(&["n2"]);
    let empty = |survey: &mut Survey| survey.answers.get_mut("n1").unwrap().run_bytes = 0;
    play.answers(empty, &ALL);
    play.launches(1.0, "n1 n2 n3 --resume require");
    play.reaches_none();
    play.links_untested().has("giving up: n2: out of").ends(75);
    // That node itself has nothing to lose.
    let mut play = Play::computing(options(), &spares);
    play.fails();
    play.answers_but(&["n1"]);
    play.launches(0.0, "s1 n2 n3 --resume require");
    play.starts_in_vain("s1");
    play.fails();
    play.links_untested();
    play.launches(1.0, "s1 n2 n3 --resume require");
    play.starts_in_vain("s1");
    play.fails();
    play.links_untested().has("replaced: s1 out of").has("s2 takes its place");
}

#[test]
fn suspicions_add_up_where_links_cannot_be_tested() {
    let mut play = Play::computing(two_parities(), &["s1", "s2"]);
    play.ends_without(&["n2"]);
    play.links_untested();
    play.launches(1.0, "n1 n2 n3 --resume require");
    play.starts_in_vain("n3");
    play.tick_after(0.1).has("ask look ");
    let lines = play.links_untested();
    lines.has("kill: a connection broke, and n3 is lost: out of the launcher's reach, although it");
    play.ended("the launcher was killed by signal 9");
    play.links_untested().lacks("replaced");
    play.launches(2.0, "n1 n2 n3 --resume require");
    play.starts_in_vain("n2");
    play.fails();
    // A spare that was not waited for is needed now.
    let lost = &play.asked.as_ref().unwrap().lost;
    assert_eq!(*lost, ["n2".to_owned()].into());
    play.links_untested().has("replaced: n2 out of").counts("replaced", 1);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.starts_in_vain("n3");
    play.fails();
    play.links_untested().has("replaced: n3 out of").counts("replaced", 1);
    play.launches(0.0, "n1 s1 s2 --resume require");
    play.on(beat("start", 0, None));
    play.beats(&[("factor", 512)]);
    // What was named before the job computed counts no more.
    play.fails();
    play.links_untested().has("pause: 1 s before the next start").lacks("replaced");
}

/// A start that is slow is not killed for what an earlier one has named.
#[test]
fn a_slow_start_is_not_killed_for_a_node_named_before() {
    let mut play = Play::computing(options(), &[]);
    play.ends_without(&["n2"]);
    play.links_untested();
    play.launches(1.0, "n1 n2 n3 --resume require");
    play.tick_after(15.0).has("ask look ");
    play.links_untested().none();
}

/// The probe of a silent job finds that a signal has stopped the ranks on this number of nodes.
fn finds_stopped(play: &mut Play, stopped: usize) -> Lines {
    let stop = |survey: &mut Survey| {
        for (index, name) in NODES.iter().enumerate() {
            let answer = survey.answers.get_mut(*name).unwrap();
            (answer.ranks, answer.stopped) = (1, usize::from(index < stopped));
        }
    };
    play.answers(stop, &[])
}

/// The nodes are asked repeatedly while a job is suspended, and no silence adds up.
#[test]
fn stopped_rank_is_a_failure_and_suspended_job_is_none() {
    let mut play = Play::computing(options(), &["s1"]);
    for stopped in (0..20).map(|probe| if probe < 19 { 3 } else { 0 }) {
        play.tick_after(9.0).has("ask look ");
        finds_stopped(&mut play, stopped).none();
    }
    // Once it continues, it may hang.
    play.tick_after(31.0).has("kill: no sign of life");
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(2.0);
    let lines = finds_stopped(&mut play, 1);
    lines.has("kill: silence, and 1 of 3 ranks are stopped by a signal, one on n1");
}

#[test]
fn a_program_is_done_when_all_its_ranks_are() {
    let mut play = Play::for_program(&["s1"]);
    (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
    play.fails().has("ask clean n1 n2 n3 s1 + ");
    // A launcher that returns 0 shows nothing about a program.
    let mut play = Play::for_program(&["s1"]);
    let lines = play.on(Event::Ended { how: "it ended".into(), succeeded: true });
    lines.has("failure: start 1 failed in phase compute at checkpoint 5").has("ask start");
}

#[test]
fn program_that_refuses_its_input_is_not_restarted() {
    let mut play = Play::running(options_of_program(true), &["s1"]);
    play.beats(&[("start", 0)]);
    play.rank_ends(0, ProcessEnd::Code(3));
    play.fails().has("rank 0 on n1 ended with code 3; the launcher ended with").has("ask start");
    let lines = play.answers_but(&[]);
    lines.has("giving up: rank 0 on n1 ended with code 3, and all nodes are well").ends(3);
    assert_eq!(play.decisions.state.exit, Some(3));
}

#[test]
fn launcher_that_keeps_the_other_ranks_is_ended() {
    for (end, code) in [(ProcessEnd::Code(3), Some(3)), (ProcessEnd::Signal(9), None)] {
        let mut play = Play::for_program(&["s1"]);
        play.rank_ends(0, end);
        play.tick_after(0.5).none();
        play.tick_after(10.5).has("kill: a rank has ended, the launcher does").has("Kill");
        play.tick_after(30.0).none();
        play.ended("the launcher was killed by signal 9");
        let lines = play.answers_but(&[]);
        match code {
            Some(code) => lines.ends(code),
            None => lines.has("pause: 1 s before the next start"),
        };
    }
}

#[test]
fn a_lost_node_explains_any_code_of_a_program() {
    let mut play = Play::for_program(&["s1"]);
    play.rank_ends(0, ProcessEnd::Code(14));
    play.ended("the launcher ended with code 14");
    play.answers_but(&["n2"]).has("replaced: n2 no answer; s1 takes its place");
    play.launches(0.0, "n1 s1 n3");
    // Reports of that start count no more.
    play.fails().has("ask start").lacks("code 14");
    play.answers_but(&[]).has("pause: 1 s before the next start");
}

#[test]
fn program_with_a_killed_rank_or_restart_code_is_restarted() {
    for end in [ProcessEnd::Signal(9), ProcessEnd::Code(75)] {
        let mut play = Play::for_program(&["s1"]);
        play.rank_ends(1, end);
        play.rank_ends(2, ProcessEnd::Code(3));
        play.ended("the launcher ended with code 137").has("rank 1 on n2 ");
        play.answers_but(&[]);
        play.launches(1.0, "n1 n2 n3");
        play.beats(&[("start", 0), ("open", 0)]);
        play.now += 0.5;
        let lines = play.on(beat("compute", 5, None));
        lines.has("computing: computing again at checkpoint 5, 3.50 s after detection");
    }
}

#[test]
fn program_without_checkpoints_between_failures_is_given_up() {
    let mut play = Play::for_program(&[]);
    for pause_seconds in [1.0, 2.0] {
        play.rank_ends(1, ProcessEnd::Signal(11));
        play.fails();
        play.answers_but(&[]);
        play.launches(pause_seconds, "n1 n2 n3");
        play.beats(&[("start", 0), ("open", 0), ("compute", 5)]);
    }
    play.rank_ends(1, ProcessEnd::Signal(11));
    let lines = play.fails();
    lines.has("giving up: the job failed 3 times at checkpoint 5, with all nodes well").ends(2);
}

#[test]
fn program_that_fails_after_its_report_ends_with_its_code() {
    let killed = || Some(ProcessEnd::Signal(11));
    let unknown = "1 of 3 ranks have not reported how they ended: a node is lost, or the launcher has ended them";
    for (end, stops, code, how) in [
        (killed(), 0, 139, "rank 0 on n1 was killed by signal 11"),
        (killed(), 1, 139, "rank 0 on n1 was killed by signal 11"),
        (Some(ProcessEnd::Code(3)), 0, 3, "rank 0 on n1 ended with code 3"),
        (Some(ProcessEnd::Code(75)), 0, 75, "rank 0 on n1 ended with code 75"),
        (None, 0, 2, unknown),
        (None, 1, 75, unknown),
    ] {
        let mut play = Play::for_program(&["s1"]);
        play.beats(&[("reported", 9)]);
        play.stops(stops);
        (1..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
        end.into_iter().for_each(|end| play.rank_ends(0, end));
        let lines = play.fails();
        lines.has("failure: start 1 failed in phase reported at").has("ask clean n1 n2 n3 s1 + ");
        play.answers_but(&[]).has("ask forget n1 n2 n3 s1 + ");
        let lines = play.answers_but(&[]);
        let last = format!("finished: exit code {code}: {how}, after the program had reported");
        lines.has(&last).lacks("is done").ends(code);
    }
}

#[test]
fn program_with_several_runs_is_done_after_the_last() {
    let reports = |runs: &[&str]| {
        let mut play = Play::for_program(&["s1"]);
        for run in runs {
            play.opens(run);
            play.beats(&[("compute", 0), ("checkpoint", 4), ("compute", 5)]);
        }
        play.rank_ends(2, ProcessEnd::Signal(9));
        play.fails();
        play.answers_but(&[]);
        play.launches(1.0, "n1 n2 n3");
        // What was reported before the loss is computed again.
        play.opens(runs[0]);
        play.beats(&[("compute", 0), ("reported", 9)]);
        play.rank_ends(1, ProcessEnd::Signal(9));
        play.fails()
    };
    reports(&["plate", "rod"]).has("ask start n1 n2 n3 + s1");
    reports(&["plate", "plate", "rod"]).has("ask start n1 n2 n3 + s1");
    reports(&["plate"]).has("ask clean n1 n2 n3 s1 + ");
    // Two runs of one name, one after the other.
    let mut play = Play::for_program(&["s1"]);
    play.beats(&[("reported", 9), ("open", 0), ("compute", 0), ("reported", 9)]);
    play.rank_ends(1, ProcessEnd::Signal(9));
    play.fails().has("ask start n1 n2 n3 + s1");
}

#[test]
fn a_program_that_ends_with_0_without_a_report_leaves_its_data() {
    let mut play = Play::for_program(&["s1"]);
    play.opens("plate");
    play.beats(&[("compute", 0), ("checkpoint", 4), ("compute", 5)]);
    (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
    play.fails().has("the data of run plate stays on its nodes").lacks("ask clean").ends(0);
}

#[test]
fn program_out_of_time_is_left_to_the_next_command() {
    let mut play = Play::for_program(&["s1"]);
    play.beats(&[("time-up", 5)]);
    play.rank_ends(0, ProcessEnd::Code(75));
    play.fails().has("ask start n1 n2 n3 + s1").lacks("failure");
    play.answers_but(&[]).has("stopped: stopped; start the same command again").ends(75);
}

#[test]
fn program_that_exits_0_on_a_stop_request_keeps_its_data() {
    for is_stop in [false, true] {
        let stopped = |run: Option<&str>, last: &str| {
            let mut play = Play::for_program(&["s1"]);
            play.decisions.state.keeps = run.map(keeps);
            play.beats(&[(last, 5)]);
            if is_stop {
                play.stops(1);
            } else {
                play.decisions.state.is_time_up = true;
            }
            (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
            play.ended("the launcher ended with code 0")
        };
        stopped(Some("plate"), "compute").has("ask start n1 n2 n3 + s1").lacks("ask clean");
        stopped(Some("plate"), "reported").has("ask clean n1 n2 n3 s1 + ");
        stopped(None, "compute").has("ask clean n1 n2 n3 s1 + ");
    }
}

#[test]
fn program_out_of_time_between_starts_is_not_restarted() {
    let mut play = Play::for_program(&["s1"]);
    play.rank_ends(1, ProcessEnd::Signal(9));
    play.fails();
    play.answers_but(&[]);
    play.decisions.state.is_time_up = true;
    play.tick_after(0.1).has("start the same command again").ends(75);
    // The next command has its own time limit.
    assert!(!play.next(options_of_program(true)).decisions.state.is_time_up);
}

#[test]
fn program_without_heartbeats_is_never_considered_hung() {
    let mut play = Play::running(options_of_program(true), &["s1"]);
    play.beats(&[("start", 0)]);
    let mut probes = 0;
    for _ in 0..1000 {
        if !play.tick_after(1000.0).lacks("kill").0.is_empty() {
            probes += 1;
            play.answers_but(&[]).none();
        }
    }
    assert!(probes > 5, "its nodes are probed: {probes}");
    // The loss of a node is still detected.
    while play.tick_after(1000.0).0.is_empty() {}
    play.answers_but(&["n3"]).has("silence, and n3 is lost");
}

#[test]
fn data_location_of_a_program_is_the_reported_one() {
    let mut play = Play::running(options_of_program(true), &[]);
    assert_eq!(play.decisions.state.keeps, None);
    play.opens("plate");
    play.beats(&[("compute", 0)]);
    let state = &play.decisions.state;
    assert_eq!((&state.run_id[..], &state.keeps), ("plate", &Some(keeps("plate"))));
}
