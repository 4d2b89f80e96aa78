//! Tests of the supervisor's decisions without processes: tables of events, and what follows from
//! each. The language of their rows is in [`Play::play`].

mod drill;
mod world;

use super::*;
use crate::SharingLimits;
use crate::hosts::Host;
use crate::links::addresses::Networks;
use crate::links::verdict::partners;
use crate::links::{Link, LinkState};
use crate::program::{ProcessEnd, Program, RankEnd};
use crate::state::Status;
use crate::tests::{answer, with_bytes};
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
        let answer = Answer { store: with_bytes(run_bytes), ..answer() };
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
        Self::new(options, state).play("begin => FindJob\nno-job 0 => ask start ")
    }

    /// The next supervisor of the run.
    fn next(self, options: LaunchOptions) -> Self {
        Self::begun(options, self.decisions.state)
    }

    /// A supervisor that has just started the job.
    fn running(options: LaunchOptions, spares: &[&str]) -> Self {
        Self::begun(options, state(spares)).play("answers => -\nlaunches 0 n1 n2 n3")
    }

    /// A supervisor whose job has a checkpoint at column 512.
    fn computing(options: LaunchOptions, spares: &[&str]) -> Self {
        Self::running(options, spares).play(
            "beats generate:0 factor:0 factor:64 commit:512
             beats stamp:512 factor:512",
        )
    }

    /// A supervisor whose program, which uses the library, has completed checkpoint 5.
    fn for_program(spares: &[&str]) -> Self {
        Self::running(options_of_program(true), spares)
            .play("beats start:0 open:0 compute:0 checkpoint:4 compute:5")
    }

    /// Feeds an event and returns the actions that follow, one a line. Events and the state are
    /// written, unless the folder is full.
    fn on(&mut self, event: Event) -> Vec<String> {
        let mut lines = Vec::new();
        for action in self.decisions.on(self.now, event) {
            lines.push(shown(&action));
            match (action, self.is_full) {
                (Action::Report(..) | Action::Save, true) => {
                    lines.extend(self.on(Event::Unsaved(full_disk())));
                }
                (Action::Save, false) => lines.extend(self.on(Event::Saved)),
                (Action::Ask(inquiry), _) => self.asked = Some(inquiry),
                _ => {}
            }
        }
        lines
    }

    /// All nodes answer but for what `change` changes, and then try their links: no packet passes
    /// to or from the nodes `dead`.
    fn answers(&mut self, change: impl FnOnce(&mut Survey), dead: &[&str]) -> Vec<String> {
        let inquiry = self.asked.take().expect("nodes are asked");
        let bytes = if self.decisions.has_lived() { 4096 } else { 0 };
        let mut survey = survey(&inquiry.pool, bytes);
        change(&mut survey);
        try_links(&mut survey, &inquiry, |a, b| dead.contains(&a) || dead.contains(&b));
        self.on(Event::Answers(survey))
    }

    /// All nodes answer but for what `change` changes; then come these rows, of which the first
    /// one has no event.
    #[track_caller]
    fn answer(mut self, change: impl FnOnce(&mut Survey), follows: &str) -> Self {
        let lines = self.answers(change, &[]);
        expect("answers", &lines, follows);
        self
    }

    /// All nodes answer but those that have another health.
    fn answers_but(&mut self, silent: &[&str], health: &Health, dead: &[&str]) -> Vec<String> {
        let change = |survey: &mut Survey| {
            for name in silent {
                survey.answers.remove(*name);
                survey.health.insert((*name).to_owned(), health.clone());
            }
        };
        self.answers(change, dead)
    }

    fn ended(&mut self, how: &str, succeeded: bool) -> Vec<String> {
        self.on(Event::Ended { how: how.to_owned(), succeeded })
    }

    /// Plays rows `EVENT; EVENT => TEXT | !TEXT | ...`: some action that follows the last event has
    /// the first text, none the second. `end 75` is the last action, `once TEXT` is in one action, `-`: nothing follows.
    #[track_caller]
    fn play(mut self, rows: &str) -> Self {
        for row in rows.lines().map(str::trim) {
            let (events, follows) = row.split_once(" =>").unwrap_or((row, ""));
            let mut lines = Vec::new();
            for event in events.split("; ") {
                lines = self.event(event);
            }
            expect(row, &lines, follows);
        }
        self
    }

    #[track_caller]
    fn event(&mut self, event: &str) -> Vec<String> {
        let (what, rest) = event.split_once(' ').unwrap_or((event, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = || rest.parse::<f64>().expect("a number");
        match what {
            "begin" => self.on(Event::Begin),
            "no-job" => self.on(Event::NoJob { swept: number() as usize }),
            "found" => self.on(Event::Found { runs: rest == "running" }),
            "launched" => {
                let launcher = self.decisions.state.supervisor.clone();
                self.on(Event::Launched(launcher))
            }
            "unstarted" => self.on(Event::Unstarted(full_disk())),
            "unread" => self.on(Event::Unread(full_disk())),
            "unprinted" => self.on(Event::Unprinted(rest.to_owned())),
            "full" => {
                self.is_full = rest == "yes";
                Vec::new()
            }
            // All nodes answer but these; their links are well.
            "answers" => self.answers_but(&words, &Health::Ill("no answer".to_owned()), &[]),
            // All answer, and then no packet passes to or from these.
            "dead" => self.answers(|_| {}, &words),
            "untested" => self.answers(|_| {}, &ALL),
            // The launcher starts on these nodes after the pause.
            "launches" => {
                let (pause, on) = rest.split_once(' ').expect("nodes");
                let pause: f64 = pause.parse().expect("seconds");
                if pause > 0.0 {
                    self.now += pause - 0.01;
                    assert_eq!(self.on(Event::Tick { stops: 0 }), [""; 0], "{event}");
                    self.now += 0.01;
                }
                assert_eq!(self.on(Event::Tick { stops: 0 }), [format!("launch {on}")]);
                self.event("launched")
            }
            "after" => {
                self.now += number();
                self.on(Event::Tick { stops: 0 })
            }
            "stop" => self.on(Event::Tick { stops: number() as usize }),
            "unwatched" => {
                self.now += number();
                assert_eq!(self.on(Event::Unwatched { seconds: number() }), [""; 0]);
                self.on(Event::Tick { stops: 0 })
            }
            "spares" => self.on(Event::Spares(hosts(&words))),
            // A heartbeat now: phase, column and perhaps exit code.
            "beat" => {
                let exit = words.get(2).map(|code| code.parse().expect("a code"));
                self.on(beat(words[0], words[1].parse().expect("a column"), exit))
            }
            // Heartbeats `PHASE:COLUMN`, each a second after the previous one.
            "beats" => {
                let mut lines = Vec::new();
                for (phase, column) in words.iter().filter_map(|word| word.split_once(':')) {
                    self.now += 1.0;
                    lines.extend(self.on(beat(phase, column.parse().expect("a column"), None)));
                }
                lines
            }
            "wrong" => {
                let [checks, rows] = [1, 2].map(|at| words[at].parse().expect("a number"));
                self.on(corruption(words[0], checks, rows))
            }
            "declines" => self.on(declines(rest)),
            "line" => self.on(Event::Line(format!("{rest}\n"))),
            "report" => self.on(Event::Report(format!("{rest}\n").into())),
            "ended" => self.ended(rest, false),
            "succeeds" => self.ended("it ended", true),
            "fails" => self.ended("the launcher ended with code 1", false),
            // The job reports that it is done with this code, and its launcher ends.
            "done" => {
                self.event(&format!("beat done 1000 {rest}"));
                self.ended("the launcher ended", false)
            }
            // The launcher does not reach these nodes, and ends.
            "without" => {
                for node in words {
                    self.event(&format!("line   Remote daemon: [[47992,0],2] on node {node}"));
                }
                self.ended("the launcher ended with code 205", false)
            }
            // The launcher's processes on these nodes do not reach that on the head.
            "vain" => {
                let mut lines = Vec::new();
                for node in words {
                    let reason = "A process or daemon was unable to complete a TCP connection";
                    let pair = format!("  Local host:    {node}\n  Remote host:   head");
                    lines.extend(self.event(&format!("report {reason}")));
                    lines.extend(self.event(&format!("report {pair}")));
                }
                lines
            }
            // The launcher has reached no node, and ends.
            "reaches-none" => {
                self.event("line ORTE was unable to reliably start one or more daemons.");
                self.event("fails")
            }
            // A rank that runs the user's program reports its end.
            "rank" => {
                let rank: usize = words[0].parse().expect("a rank");
                let end = match (words[1], words[2].parse().expect("a number")) {
                    ("code", code) => ProcessEnd::Code(code),
                    (_, signal) => ProcessEnd::Signal(signal.into()),
                };
                let host = NODES[rank].to_owned();
                let end = RankEnd { token: String::new(), rank: Some(rank), host, end };
                self.on(Event::RankEnded(end))
            }
            "ranks-done" => {
                (0..3).flat_map(|it| self.event(&format!("rank {it} code 0"))).collect()
            }
            // The program opens a run of the checkpoint library.
            "opens" => {
                let open = Heartbeat { keeps: Some(keeps(rest)), ..heartbeat("open", 0) };
                self.on(Event::Heartbeat(open))
            }
            _ => panic!("no event: {event}"),
        }
    }
}

/// Checks what follows from the event of a row.
#[track_caller]
fn expect(row: &str, lines: &[String], follows: &str) {
    for want in follows.split('|').map(str::trim).filter(|want| !want.is_empty()) {
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        let is_met = match want {
            "-" => lines.is_empty(),
            _ if want.starts_with("once ") => {
                lines.iter().filter(|line| line.contains(&want[5..])).count() == 1
            }
            _ if want.starts_with("end ") => lines.last().is_some_and(|last| last == want),
            _ => want.strip_prefix('!').map_or_else(|| has(want), |text| !has(text)),
        };
        assert!(is_met, "'{want}' in `{row}`: {lines:#?}");
    }
}

/// Heartbeats overtake the report: its end is lost with the node that was to pass it on, and the
/// other nodes still have the result.
#[test]
fn incomplete_report_is_requested_again_before_data_is_removed() {
    let again =
        "the last 3 lines of the report did not come; the launcher | ask start | !ask clean";
    let whole = "ask clean | !did not come";
    // With "done" no node could report the lines again.
    let last = "warning: the last 3 lines | ask clean";
    for (phase, report_lines, follows) in [
        ("reported", Some(5), again),
        ("reported", None, whole),
        ("reported", Some(2), whole),
        ("reported", Some(0), whole),
        ("done", Some(5), last),
    ] {
        let mut play = Play::computing(options(), &["s1"]).play("report one\nreport two");
        let last = Heartbeat { report_lines, exit: Some(0), ..heartbeat(phase, 1000) };
        play.on(Event::Heartbeat(last));
        play.play(&format!("fails => {follows}"));
    }
}

#[test]
fn what_follows_the_end_of_a_job() {
    let (again, clean, stop) = ("failure: start 1 failed", "ask clean", "ask start | !failure");
    for (events, follows) in [
        ("succeeds", again),
        ("done 0", clean),
        ("done 1", clean),
        ("done 75", again),
        ("stop 1\nfails", stop),
        ("stop 1\ndone 75", stop),
        ("stop 1\ndone 0", clean),
        ("beat time-up 9\ndone 75", stop),
        // It was lost on its way out.
        ("beat time-up 9\nfails", again),
        ("done 2", "giving up: the job cannot run with these settings | end 2"),
        (
            "beat refused 9\ndone 2",
            "giving up: more is lost than the checkpoint can rebuild | end 2",
        ),
        ("beat changed 9\ndone 2", again),
        ("beat changed 9\nstop 1\ndone 2", stop),
        ("beat reported 9\ndone 2", clean),
    ] {
        Play::computing(options(), &["s1"]).play(&format!("{events} => {follows}"));
    }
}

#[test]
fn a_launcher_that_starts_nothing_is_not_asked_again() {
    let refusal = "line mpirun has detected an attempt to run as root.";
    let why = "giving up: the launcher refuses to run as root: give | !ask start | end 2";
    Play::running(options(), &["s1"]).play(&format!("{refusal}\nfails => {why}"));
    // A refusal does not end a run whose earlier start has computed.
    Play::computing(options(), &["s1"]).play(&format!(
        "fails; answers n2
         launches 0 n1 s1 n3 --resume require
         {refusal}
         fails => ask start"
    ));
}

#[test]
fn a_node_that_the_job_declines_is_replaced_while_spares_last() {
    let declined = "fails
                    answers n2; launches 0 n1 s1 n3 --resume require; declines ";
    Play::computing(options(), &["s1", "s2"]).play(&format!(
        "{declined}s1
         fails => start 2 failed in phase start at column 0: the job declines s1 | ask start
         answers => replaced: s1 lacks the BLAS x; s2 takes its place
         launches 0 n1 s2 n3 --resume require; declines s2
         fails => giving up: the job cannot run on s2, whose place no spare node can take | !ask start \
                  | data of earlier starts is kept | end 2"
    ));
    // A node with data is replaced if that can be rebuilt.
    let declined = format!("{declined}n3\nfails => ");
    let both = ["s1", "s2"];
    Play::computing(two_parities(), &both).play(&(declined.clone() + "ask start"));
    Play::computing(options(), &both).play(&(declined + "the job cannot run on n3 | end 2"));
    // Before the first start has any.
    Play::running(options(), &both).play("declines n3\nfails => ask start");
    // A user who wants the job to end gets no further start.
    Play::running(options(), &["s1"]).play("stop 1\ndeclines n3\nfails => !ask start | end 2");
}

#[test]
fn undisturbed_run_leaves_no_data() {
    Play::computing(options(), &["s1"]).play(
        "beat reported 1000 0; done 0 => ask clean n1 n2 n3 s1 +
         answers => ask forget n1 n2 n3 s1 +
         answers => finished: the job is done, after 0 failure(s) | Tidy | Account | end 0",
    );
}

fn has_no_data(survey: &mut Survey) {
    survey.answers.values_mut().for_each(|answer| answer.store.run_bytes = 0);
}

#[test]
fn what_nodes_keep_of_a_finished_run_decides_what_follows() {
    let asked = || Play::computing(options(), &[]).play("done 0");
    asked().answer(has_no_data, "finished: | !ask ");
    // The next command finds the state of a run at work then, and reads its files.
    asked().play("full yes").answer(has_no_data, "Save | !Tidy");
    let stay = |survey: &mut Survey| {
        survey.answers.get_mut("n2").unwrap().images_stay = Some("/scratch: read-only".into());
    };
    asked().answer(stay, "unclean: n2: images of the run stay there: /scratch: read-only");
}

#[test]
fn a_lost_node_is_replaced_in_place() {
    let play = Play::computing(options(), &["s1"]).play(
        "line   Peer host:  n2 => -
         after 0.1 => ask look n1 n2 n3 + s1, lost? n2
         answers n2 => kill: a connection broke, and n2 is lost: no answer: killing the launcher | Kill
         after 100 => -
         ended it was killed => start 1 failed in phase factor at column 512: a connection broke, and \
                n2 is lost: no answer; it was | Save | ask start n1 n2 n3 + s1, 1 may be silent, lost? n2 n2
         answers n2 => replaced: n2 no answer; s1 takes its place
         launches 0 n1 s1 n3 --resume require; beats start:0; unwatched 0.5
         beat factor 512 => computing: computing again at column 512, 1.50 s after detection",
    );
    let failure = &play.decisions.state.failures[0];
    assert!(failure.node_lost && failure.resumed_column == Some(512), "{failure:?}");
    let seconds = failure.timeline();
    assert_eq!((seconds.replacement_seconds, seconds.restart_seconds), (Some(0.0), Some(1.0)));
    assert_eq!((seconds.detection_seconds.round(), seconds.recovery_seconds), (100.0, Some(0.5)));
    // Suspicion of the start before is no reason to doubt a node of this start.
    play.play("after 10 => ask look n1 s1 n3 + | !lost?");
}

#[test]
fn losses_before_a_checkpoint_and_in_a_recovery() {
    Play::running(options(), &["s1"])
        .play("beats generate:0 factor:0 factor:256; fails; answers n1; launches 0 s1 n2 n3");
    Play::computing(two_parities(), &["s1", "s2"]).play(
        "fails; answers n2
         launches 0 n1 s1 n3 --resume require; beats recover-rebuild:0
         fails => failure: start 2 failed in phase recover-rebuild at column 0 | \
                  ask start n1 s1 n3 + s2, 1 may be silent
         answers n3 => replaced: n3 no answer; s2 takes its place
         launches 0 n1 s1 s2 --resume require",
    );
    for lost in ["answers n1 n3", "dead n1 n3"] {
        Play::computing(two_parities(), &["s1", "s2"]).play(&format!(
            "fails
             {lost} => once replaced: n1 | n3 | ; s1, s2 take their places
             launches 0 s1 n2 s2 --resume require"
        ));
    }
}

/// The job's pace is a second: nodes are probed after two, and after twice that time again.
#[test]
fn silent_job_with_healthy_nodes_is_killed_and_resumed() {
    Play::computing(options(), &["s1"]).play(
        "after 1.9 => -
         after 0.1 => ask look n1 n2 n3 + s1
         answers => -
         after 1.9 => -
         after 0.1 => ask look n1 n2 n3 + s1
         answers => -
         after 27 => kill: no sign of life for 31.0 s (limit 30.0 s) | Kill
         ended it was killed; answers => pause: 1 s before the next start
         launches 1 n1 n2 n3 --resume require",
    );
}

/// The supervisor and the job were stopped, or the supervisor was blocked in writing its output.
/// Short pauses count, or a slow supervisor would never find that a job hangs.
#[test]
fn unwatched_time_is_not_silence_of_the_job() {
    Play::computing(options(), &["s1"]).play(
        "unwatched 600 => -
         unwatched 9 => ask look
         unwatched 9 => ask look
         unwatched 9 => ask look
         unwatched 9 => kill: no sign of life for 36.0 s",
    );
}

/// The agent may fail to reach a node while the job computes.
#[test]
fn what_nodes_answer_counts_only_in_silence() {
    Play::computing(options(), &["s1"]).play(
        "after 3; answers => -
         beats factor:520; after 7.9 => -
         after 0.1 => ask look n1 n2 n3 + s1",
    );
    Play::computing(options(), &["s1"]).play(
        "after 3 => ask look
         beats factor:520; answers n3 => -
         after 8 => ask look
         beats factor:530; dead n2 => -",
    );
    Play::computing(options(), &["s1"])
        .play("after 3; answers n3 => kill: silence, and n3 is lost: no answer | Kill");
    Play::computing(options(), &["s1"]).play(
        "after 3
         fails => at column 512: the launcher ended with code 1 | ask start n1 n2 n3 + s1 | !Kill",
    );
}

#[test]
fn a_killed_launcher_is_started_again_after_pauses_that_double() {
    let mut play = Play::computing(options(), &[]);
    for (column, pause) in [(520, 1), (640, 2), (760, 4)] {
        play = play.play(&format!(
            "beats factor:{column}; fails => ask start n1 n2 n3 + , 1 may be silent
             answers => pause: {pause} s before the next start
             launches {pause} n1 n2 n3 --resume require"
        ));
    }
}

#[test]
fn without_a_spare_the_run_gives_up_until_the_node_is_back() {
    // Nothing was started: there is no data.
    Play::begun(options(), state(&[])).play(
        "answers n2 => giving up: n2 (no answer) cannot be used, and no spare node is left | \
                       hint: nothing was started; start the same command again | end 75",
    );
    let play = Play::computing(options(), &["s1"]).play(
        "fails
         answers n2 s1 => gave-up: giving up: n2 (no answer) cannot be used, and no spare node is left | \
                       hint: data that survived is kept; start the same command again to resume | end 75",
    );
    let state = &play.decisions.state;
    assert_eq!((state.status, state.exit), (Status::GaveUp, Some(75)));
    play.next(options()).play("answers\nlaunches 1 n1 n2 n3 --resume require");
}

/// A run that waits for lost nodes for 9,000 s, with a limit of 10 s for probes.
fn waiting() -> LaunchOptions {
    let settings = |settings: &mut LaunchSettings| {
        (settings.no_spare, settings.probe_limit_seconds) = (NoSpare::Wait, 10.0);
    };
    LaunchOptions { end_unix: Some(10_000.0), ..options_with(settings) }
}

#[test]
fn a_lost_node_without_a_spare_is_waited_for() {
    let why = "waiting: n2 (no answer) cannot be used, and no spare node is left: waiting for it";
    let play = Play::computing(waiting(), &["s1"]).play(&format!(
        "fails; answers n2 s1 => {why} | !gave-up
         after 9.9 => -
         after 0.1 => ask start n1 n2 n3
         answers n2 => -
         after 9.9 => -
         after 0.1 => ask start n1 n2 n3
         answers n2 => -"
    ));
    assert!(play.decisions.state.reason.is_some());
    let play = play.play(
        "after 10 => ask start n1 n2 n3
         answers => !waiting
         launches 1 n1 n2 n3 --resume require",
    );
    assert_eq!(play.decisions.state.reason, None);
    // A spare that the user adds to the file while the run waits, and one that is known.
    let lost = "fails\nanswers n2 => waiting: \n";
    Play::computing(waiting(), &[]).play(&format!(
        "{lost}spares n2 => !listed
         spares n2 t1 => listed: t1: listed as spare from now on
         spares n2 t1 => !listed
         after 10 => ask start n1 n2 n3 + t1
         answers n2 => replaced: n2 no answer; t1 takes its place
         launches 0 n1 t1 n3 --resume require"
    ));
    // A wait ends by request, and with the time.
    Play::computing(waiting(), &[]).play(&format!("{lost}stop 1 => stopped: | end 75"));
    let mut late = Play::computing(waiting(), &[]).play("fails");
    late.now = 9_990.0;
    late.play("answers n2 => no spare node is left, and the time ends | end 75");
}

/// Nodes share the ranks of a lost one; one rank needs `rank_bytes`.
fn sharing(rank_bytes: u64) -> LaunchOptions {
    let mut options = options_with(|settings| settings.no_spare = NoSpare::Spread);
    (options.sharing.rank_bytes, options.sharing.n) = (rank_bytes, Some(1000));
    options
}

/// Node n1 runs the rank of n2, too, and the job computes again.
const SHARES: &str = "fails
                      answers n2 => shared: n2 no answer; n1 runs its ranks, too | !gave-up
                      launches 0 n1 n3 with 2 1 rank(s) --resume require
                      beats factor:64 factor:128";

#[test]
fn ranks_of_a_lost_node_share_another_until_it_is_back() {
    let play = Play::computing(sharing(0), &[]).play(
        "fails; answers n2
         launches 0 n1 n3 with 2 1 rank(s) --resume require",
    );
    assert_eq!(play.decisions.hollow(), ["n2"]);
    // Its rank is not rebuilt when the next start fails: nothing moves that could be lost, too.
    let play = play.play(
        "fails; answers => !unshared
         launches 1 n1 n3 with 2 1 rank(s) --resume require
         beats factor:64 factor:128; fails => ask start n1 n3 + n2
         answers n2 => !shared
         launches 2 n1 n3 with 2 1 rank(s) --resume require
         beats factor:192 factor:256; fails; answers => unshared: n2 has the ranks of n2 to itself
         launches 4 n1 n2 n3 --resume require",
    );
    assert_eq!(play.decisions.hollow(), ["n2"]);
    // A node that is back replaces the next lost one.
    Play::computing(sharing(0), &[]).play(SHARES).play(
        "fails; answers n3 => replaced: n3 no answer; n2 takes its place | !shared
         launches 0 n1 n2 with 2 1 rank(s) --resume require",
    );
    // The supervisor is killed while nodes share.
    let mut play = Play::computing(sharing(0), &[]).play(SHARES);
    let text = serde_json::to_string(&play.decisions.state).unwrap();
    play.decisions.state = serde_json::from_str(&text).unwrap();
    play.next(sharing(0)).play(
        "answers n2 => !shared
         launches 0 n1 n3 with 2 1 rank(s) --resume require",
    );
}

/// What dies with a change of its memory under way is lost to abft as well as what moves.
#[test]
fn ranks_of_abft_return_if_one_more_may_be_lost() {
    for (parities, follows) in [(1, "!unshared"), (2, "unshared: n2 has the ranks of n2 to itself")]
    {
        let mut options = sharing(0);
        (options.parities, options.sharing.is_strict) = (parities, true);
        (options.sharing.most, options.sharing.groups) = (parities, vec![0, 1, 2]);
        let play = Play::computing(options, &[]).play(SHARES);
        play.play(&format!("fails\nanswers => {follows}"));
    }
}

#[test]
fn spares_are_used_before_nodes_share() {
    Play::computing(sharing(0), &["s1"]).play(
        "fails; answers n1 n2 => replaced: n1 no answer; s1 takes its place | \
                          shared: n2 no answer; s1 runs its ranks, too
         launches 0 s1 n3 with 2 1 rank(s) --resume require",
    );
    // A spare that has not answered yet is waited for.
    let mut play = Play::computing(sharing(0), &["s1"]).play("fails");
    let lines = play.answers_but(&["s1"], &Health::Unknown, &["n1"]);
    expect("s1 is silent", &lines, "ask start | !shared");
    // Before the first start nothing is shared.
    Play::begun(sharing(0), state(&[])).play("answers n2 => !shared | end 75");
}

#[test]
fn too_little_memory_for_one_more_rank_is_named() {
    let have = answer().available_bytes;
    let mut play = Play::computing(sharing(0), &[]);
    play.decisions.options = sharing(have);
    play.play(
        "fails
         answers n2 => n2 (no answer) cannot be used, and no spare node is left; no other node has room | \
             for 2 ranks: | are missing (N = 707 would fit); --no-spare wait | !shared | end 75",
    );
    // The first start warns of it.
    Play::begun(sharing(have), state(&[])).play(
        "answers => no node has room for one more rank: a loss stops the run; n1 | (N = 707 would fit)
         launches 0 n1 n2 n3; fails; answers => !no node has room",
    );
    let waits = options_with(|settings| settings.no_spare = NoSpare::Wait);
    let sharing_waits = LaunchOptions { sharing: sharing(have).sharing, ..waits };
    for (options, spares) in
        [(sharing(have / 2), &[][..]), (sharing(have), &["s1"]), (sharing_waits, &[])]
    {
        Play::begun(options, state(spares)).play("answers => !no node has room");
    }
}

#[test]
fn excluded_nodes_are_readmitted_on_request() {
    let play = Play::computing(options(), &["s1"]).play("fails\nanswers n2");
    let readmit = options_with(|settings| settings.readmit = true);
    Play::new(readmit, play.decisions.state.clone()).play(
        "begin => readmit: in again as spares: n2
         no-job 2 => ended: 2 process(es) that an earlier supervisor had started | \
                     ask start n1 s1 n3 + n2 | !may be silent",
    );
    // Without `readmit`, n2 stays out although it is well.
    let asked = play.next(options()).asked.expect("nodes are asked");
    assert_eq!((names(&asked.pool.active), asked.pool.spares), ("n1 s1 n3".into(), vec![]));
}

fn replace_suspects() -> LaunchOptions {
    options_with(|settings| settings.replace_suspects = true)
}

#[test]
fn node_that_computes_wrong_twice_is_replaced_on_request() {
    Play::computing(options(), &["s1"]).play(
        "wrong n2 1 3 => n2 rank 1 has computed wrong numbers: 3 row(s) in 1 check(s), first at column 320
         wrong n2 1 3 => -
         wrong n2 4 9 => wrong: n2 | !kill",
    );
    let play = Play::computing(replace_suspects(), &["s1"]).play(
        "wrong n2 1 3 => wrong: n2 | !kill
         wrong n2 2 4 => kill: n2 computes wrong, and a spare is to replace it | Kill
         fails",
    );
    let asked = play.asked.as_ref().expect("nodes are asked");
    assert_eq!(asked.lost, ["n2".to_owned()].into(), "whatever n2 answers, it needs a spare");
    // A report of the next start is added to those before.
    let play = play.play(
        "answers => replaced: n2 computes wrong: 2 check(s) have named it; s1 takes its place
         launches 0 n1 s1 n3 --resume require; wrong n1 1 1 => wrong: n1 rank 1
         fails; answers
         launches 1 n1 s1 n3 --resume require
         wrong n1 1 1 => warning: warning: n1 stays, though suspect: no spare node is left | !kill",
    );
    let blamed = &play.decisions.state.blamed;
    assert_eq!((blamed["n1"].checks, blamed["n2"].rows, blamed["n2"].checks), (2, 4, 2));
    // A node that is readmitted begins without reports.
    let next = play.next(options_with(|settings| settings.readmit = true));
    assert!(!next.decisions.state.blamed.contains_key("n2"));
    let losable = vec![true, false, true];
    Play::computing(LaunchOptions { losable, ..replace_suspects() }, &["s1"])
        .play("wrong n2 2 2 => of one process row than the parities can rebuild | !kill");
}

/// The job must print the number that it cannot correct before it ends.
#[test]
fn job_that_ends_its_run_is_not_killed_for_a_suspect() {
    let mut play = Play::computing(replace_suspects(), &["s1"]).play("wrong n2 1 3");
    let lines = play.on(Event::Heartbeat(corruption_beat("n2", 2, 4, true)));
    expect("the job ends", &lines, "wrong: n2 | !Kill");
    play.play(
        "ended with code 75
         answers => replaced: n2 computes wrong: 2 check(s) have named it; s1 takes",
    );
}

#[test]
fn suspect_stays_without_a_spare_or_a_request() {
    let suspect = || Play::computing(replace_suspects(), &["s1"]).play("wrong n2 2 2\nfails");
    suspect().play(
        "answers s1 => warning: warning: n2 stays, though suspect: no spare node is left
         launches 1 n1 n2 n3 --resume require",
    );
    let next = suspect().next(options());
    assert_eq!(next.asked.as_ref().expect("nodes are asked").lost, BTreeSet::new());
    next.play("answers\nlaunches 1 n1 n2 n3 --resume require");
}

#[test]
fn losses_beyond_the_code_end_or_restart_the_run() {
    Play::computing(options(), &["s1"]).play(
        "beat refused 0 2
         fails => giving up: more is lost than the checkpoint can rebuild, see the message above; | \
                  --start-over would begin from the seed | end 2",
    );
    let start_over = || options_with(|settings| settings.start_over = true);
    let play = Play::computing(start_over(), &["s1"]).play(
        "beat refused 0 2
         fails => over: more is lost than can be rebuilt: starting over from the seed | ask start n1 n2 n3 + s1
         answers; launches 0 n1 n2 n3 --resume never",
    );
    assert!(!play.decisions.state.is_refused && !play.decisions.state.has_checkpoint);
    // Where the flags of the run choose how it begins, nothing is added to them.
    Play::computing(LaunchOptions { says_resume: true, ..start_over() }, &[]).play(
        "beat refused 0; fails => failure: start 1 failed
         answers; launches 1 n1 n2 n3",
    );
}

/// The checkpoint that the run's flags name is that of the first start alone, whatever it came to.
#[test]
fn only_the_first_start_goes_back_to_a_named_checkpoint() {
    for (how, beats) in [("auto", ""), ("require", "commit:512 stamp:512")] {
        Play::running(LaunchOptions { checkpoint: Some(5), ..options() }, &[]).play(&format!(
            "beats generate:0 factor:0 {beats}; fails => failure: start 1 failed
             answers; launches 1 n1 n2 n3 --resume {how}"
        ));
    }
}

#[test]
fn job_that_met_an_earlier_process_is_started_again() {
    let mut play = Play::computing(options(), &[]);
    for (start, pause) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        play = play.play(&format!(
            "beat changed 0; done 2 => failure: start {start} failed in phase changed
             answers; launches {pause} n1 n2 n3 --resume require"
        ));
    }
}

#[test]
fn segments_missing_between_two_starts_are_reported() {
    let gone = |is_of_program: bool, beats: &str, bytes: [u64; 3], follows: &str| {
        let mut play = Play::running(options_of_program(is_of_program), &[]);
        play.decisions.state.keeps = Some(keeps("r"));
        let have = |survey: &mut Survey| {
            for (answer, bytes) in survey.answers.values_mut().zip(bytes) {
                answer.store.run_bytes = bytes;
            }
        };
        play.play(&format!("beats {beats}\nfails")).answer(have, follows);
    };
    let computed = "factor:64 commit:512 stamp:512 factor:512";
    let had = |place: &str| {
        format!(
            "gone: warning: an earlier start of this run had a checkpoint ({place}), and its \
             segments are gone from n[1-3]: a restart of the host, or a cleaner of segments \
             that no process is attached to (ipcrm in a Slurm epilog"
        )
    };
    gone(false, computed, [0; 3], &had("column 512"));
    gone(true, "open:0 compute:7", [0; 3], &had("checkpoint 7"));
    gone(false, computed, [0, 1, 0], "!gone: ");
    // There was no checkpoint.
    gone(false, "factor:64 commit:512", [0; 3], "!gone: ");
    gone(true, "open:0 compute:0", [0; 3], "!gone: ");
    // The nodes have no data yet.
    let mut play = Play::computing(options(), &[]);
    play.decisions.state.hollow.extend(NODES.map(str::to_owned));
    play.play("fails").answer(has_no_data, "!gone: ");
}

/// All nodes answer, `n2` with this count of OOM kills, the others with 7.
#[test]
fn oom_kill_is_recognized_by_the_counts_of_its_node() {
    let counted = |of_n2: Option<u64>| {
        move |survey: &mut Survey| {
            for (name, answer) in &mut survey.answers {
                let machine = if name == "n2" { of_n2 } else { Some(7) };
                answer.oom_kills = OomKills { machine, group: None };
            }
        }
    };
    let text = "the kernel's OOM killer ended a process on n2 during the run (oom_kill 3 -> 4)";
    let mut play = Play::begun(options(), state(&[])).answer(counted(Some(3)), "-");
    let oom = format!("once oom: | oom: {text}");
    for (column, of_n2, follows) in [
        (200, Some(4), &*oom),
        (400, Some(4), "!oom: "),
        (600, Some(6), "once oom: "),
        (800, None, "!oom: "),
    ] {
        play = play.play(&format!(
            "after 10 => launch n1 n2 n3
             launched; beats factor:{column}
             ended with code 137"
        ));
        play = play.answer(counted(of_n2), follows);
    }
    let how = &play.decisions.state.failures[0].how;
    assert!(how.ends_with(&format!("code 137; {text}")), "{how}");
}

#[test]
fn a_run_is_stopped_in_order_and_resumed() {
    let play = Play::computing(options(), &[]).play(
        "stop 1 => stop: asked to stop: ending the job, its checkpoint stays | Terminate
         stop 1 => -
         ended with code 143 => ask start | !failure
         answers => stopped: stopped; start the same command again to resume | Save | end 75",
    );
    assert_eq!(play.decisions.state.failures, []);
    play.next(options()).play("answers\nlaunches 0 n1 n2 n3 --resume require");
    // While no job runs.
    for ill in ["", "n2"] {
        let play = Play::computing(options(), &["s1"]);
        play.play(&format!("fails\nanswers {ill}\nstop 1 => end 75"));
    }
}

#[test]
fn a_launcher_that_does_not_end_when_asked_is_killed() {
    let why = "kill: the launcher does not end: killing the launcher | Kill";
    // It may have been stopped with the supervisor.
    let mut patient = Play::computing(options(), &[]).play("stop 1");
    patient.now += 600.0;
    patient.on(Event::Unwatched { seconds: 600.0 });
    let beats: String = (521..=529).map(|column| format!(" factor:{column}")).collect();
    let mut patient = patient.play(&format!("beats{beats}\nstop 1 => -"));
    patient.now += 1.0;
    patient.play(&format!("stop 1 => {why}"));
    // Two requests to stop kill the launcher at once.
    Play::computing(options(), &[]).play(&format!(
        "stop 1; stop 2 => {why}
         ended it was killed => ask start | !failure
         answers => end 75"
    ));
}

#[test]
fn a_job_that_cannot_start_is_given_up() {
    let play = Play::running(options(), &[]).play(
        "fails => CloseLines
         answers; launches 1 n1 n2 n3
         fails => CloseLines
         answers; launches 2 n1 n2 n3
         fails => giving up: the job gave no sign of life in 3 starts, with all nodes well | end 2",
    );
    // A user who gives the command again has resolved the reason; a supervisor that is killed has
    // not.
    let asked_again = |state: SupervisorState, follows: &str| {
        let (command, pool) = (state.command.clone(), state.pool.clone());
        let me = state.supervisor.clone();
        let next = Play::new(options(), state.taken_over(&command, &pool, me));
        next.play(&format!("begin\nno-job 0 => {follows}"));
    };
    let given_up = play.decisions.state;
    asked_again(SupervisorState { status: Status::Running, ..given_up.clone() }, "end 2");
    asked_again(given_up, "ask start n1 n2 n3");
}

#[test]
fn a_job_that_fails_too_often_is_given_up() {
    Play::computing(options_with(|settings| settings.max_restarts = 2), &[]).play(
        "beats factor:600; fails; answers; launches 1 n1 n2 n3 --resume require; beats factor:700
         fails; answers
         launches 2 n1 n2 n3 --resume require; beats factor:990
         fails => giving up: the job failed 3 times (--max-restarts 2) | end 2",
    );
}

#[test]
fn node_lost_after_the_complete_report_needs_no_restart() {
    Play::computing(options(), &["s1"]).play(
        "beat reported 1000 0; beat clear 1000 0
         fails => the job was lost after its report was whole; its segments are removed now | \
                  ask clean n1 n2 n3 s1 +
         answers n2 s1 => unclean: n2, s1: not reached; what the run has left there stays | \
                          finished: the job is done, after 0 failure(s) | end 0",
    );
}

#[test]
fn launcher_that_outlives_its_job_is_killed() {
    Play::computing(options(), &[]).play(
        "beat done 1000 0; after 0 => -
         after 10 => -
         after 0.1 => kill: the job is done, the launcher does not end | Kill
         ended it was killed => ask clean n1 n2 n3 +",
    );
}

#[test]
fn a_lost_state_folder_stops_no_job_that_runs() {
    Play::computing(options(), &["s1"]).play(
        "full yes; fails => once warning: state: full: the job is watched on
         answers n2 => !the job is watched on
         after 0 => launch n1 s1 n3 --resume require
         full no; launched => saved: the state is saved again",
    );
    Play::computing(options(), &["s1"]).play(
        "fails; answers
         after 1; unstarted => giving up: cannot start the job again: state: full | end 75",
    );
    // The first start is refused.
    Play::begun(options(), state(&[])).play("answers\nafter 0\nunstarted => end: state: full");
    // A supervisor that would continue a run is refused, too.
    for start in [0, 3] {
        let mut play = Play::new(options(), state(&[]));
        play.decisions.state.start = start;
        play.play("full yes\nbegin\nno-job 0 => end: state: full | !ask");
    }
}

#[test]
fn job_that_refuses_its_input_is_given_up_at_once() {
    let refuses = "beat start 0 2\nfails => giving up: the job cannot run with these settings, see the \
                   message above; data of | end 2";
    let play = Play::running(options(), &[]).play(&format!("{refuses} | Tidy"));
    assert_eq!(play.decisions.state.status, Status::Finished, "other options may be given");
    let play = Play::computing(options(), &[]).play(&format!("{refuses} | !Tidy"));
    assert_eq!(play.decisions.state.status, Status::GaveUp);
}

#[test]
fn job_of_an_earlier_supervisor_is_adopted_or_has_ended() {
    let second = |first: Play| Play::new(options(), first.decisions.state);
    second(Play::computing(options(), &[])).play(
        "begin => FindJob
         found running => found: start 1 of an earlier supervisor continues
         beats factor:600; done 0 => ask clean n1 n2 n3 +",
    );
    second(Play::computing(options(), &[])).play(
        "begin; found ended => found: start 1 of an earlier supervisor has ended
         beats factor:600; ended unseen => factor at column 600: unseen",
    );
    // It reads within milliseconds what the job has written in hours.
    let mut play = second(Play::computing(options(), &["s1"]).play("wrong n2 1 3"))
        .play("begin\nfound running");
    for phase in ["start", "open", "factor"] {
        play.now += 0.001;
        play.on(beat(phase, 0, None));
    }
    let play = play.play("wrong n2 1 3 => -");
    assert_eq!(play.decisions.state.blamed["n2"].checks, 1);
    // How long a start takes was not seen.
    play.play("ended unseen; answers n2; launches 0 n1 s1 n3 --resume require; after 40 => !kill");
}

#[test]
fn failed_residual_in_any_start_decides_the_exit() {
    let mut play = Play::computing(options(), &["s1"]);
    let line = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= 9.7e+04 ...... FAILED\n";
    assert_eq!(play.on(Event::Report(line.into())), [format!("print {line}")]);
    let mut play = play.play("fails\nanswers n2\nlaunches 0 n1 s1 n3 --resume require");
    let border = "print # start 1 ended here; what follows is the report of start 2\na\nb\n";
    assert_eq!(play.on(Event::Report(b"a\nb\n".into())), [border]);
    play.play("report c => print c | !#\ndone 0\nanswers\nanswers => end 1");
}

/// The report's file stays.
#[test]
fn unprintable_report_is_reported_again_at_the_end() {
    Play::computing(options(), &[]).play(
        "unprinted standard output: closed => unprinted: standard output: closed
         report a => -
         done 0; answers; answers => Save | end: standard output: closed | !Tidy",
    );
    // Without what the job writes it cannot be watched.
    Play::computing(options(), &[]).play("unread => Kill | end: state: full");
}

#[test]
fn what_a_first_probe_may_find() {
    let mut play = Play::begun(options(), state(&[]));
    let fault = Some("cannot start ssh, which runs commands".to_owned());
    let lines = play.on(Event::Answers(Survey { agent_fault: fault, ..Survey::default() }));
    expect("no agent", &lines, "end: cannot start ssh, which runs");
    let pool = Pool::new(hosts(&["n1", "n3"]), hosts(&["s1"]));
    Play::begun(LaunchOptions { pool, ..options() }, state(&["s1"])).play(
        "answers => replaced: n2 is not listed any more; s1 takes its place
         launches 0 n1 s1 n3",
    );
    // Warnings and leftovers are reported once.
    let warn = |survey: &mut Survey| {
        for (index, answer) in survey.answers.values_mut().take(2).enumerate() {
            (answer.ended, answer.store.warnings) = (1 + index, vec!["swap".to_owned()]);
        }
    };
    let left = "ended: 3 rank(s) of the last start were left | ";
    let play = Play::begun(options(), state(&[]))
        .answer(warn, &format!("{left}warning: warning: n1, n2: swap"))
        .play("launches 0 n1 n2 n3");
    assert!(play.decisions.has_printed("warning: n1.cluster: swap\n"));
    assert!(!play.decisions.has_printed("warning: n1: no swap, but quota\n"));
    assert!(!play.decisions.has_printed("error: n1: swap\n"));
    play.play("fails").answer(warn, &format!("{left}!swap"));
}

#[test]
fn a_node_whose_link_is_dead_is_replaced_although_it_answers() {
    Play::computing(options(), &["s1"]).play(
        "without n3
         dead n3 => replaced: n3 its link is dead: 6 of 6 tries failed (no answer); s1 takes its place
         launches 0 n1 n2 s1 --resume require; after 15 => ask look
         answers => !kill",
    );
    // It is found during silence, and tried once.
    Play::computing(options(), &["s1"]).play(
        "after 3 => ask look
         dead n2 => kill: silence, and n2 is lost: its link is dead:
         ended it was killed; answers => replaced: n2
         launches 0 n1 s1 n3 --resume require",
    );
    // A spare whose link is dead takes no place.
    let play = Play::computing(options(), &["s1", "s2"])
        .play("fails\ndead n2 s1 => replaced: n2 | s2 takes its place");
    assert_eq!(play.decisions.state.pool.out[0].host.name, "s1");
    // Silent spares are probed again.
    let mut play = Play::computing(two_parities(), &["s1", "s2"]).play("fails");
    let lines = play.answers_but(&["s1", "s2"], &Health::Unknown, &["n1"]);
    expect("the spares are silent", &lines, "ask start n1 n2 n3 + s1 s2, 2 may be silent");
    let asked = play.asked.as_ref().expect("nodes are asked again");
    assert_eq!(asked.lost, ["n1".to_owned()].into(), "whatever n1 answers, it needs a spare");
    play.play("dead n1 => once replaced: \nlaunches 0 s1 n2 n3 --resume require");
}

#[test]
fn first_start_with_too_few_spares_checks_the_link_test() {
    let begin = "dead n2 => warning: n2: its link is dead | it is used despite that: too few spares
                 launches 0 n1 n2 n3
                 ";
    // The start lives: the ranks have another way.
    Play::begun(options(), state(&[])).play(&format!(
        "{begin}beats start:0 factor:0
         fails; dead n2
         launches 1 n1 n2 n3"
    ));
    // The start does not live.
    Play::begun(options(), state(&[])).play(&format!(
        "{begin}fails
         dead n2 => giving up: n2 (its link is dead: | tries failed | end 75"
    ));
}

/// A run that was stopped has no failure that shows which nodes were replaced.
#[test]
fn spare_without_data_is_known_after_a_stop() {
    let play = Play::computing(options(), &["s1", "s2"]);
    // Its data is rebuilt once the job computes.
    play.play("stop 1\nended with code 143\nanswers").next(options()).play(
        "answers n2; launches 0 n1 s1 n3 --resume require
         fails => ask start n1 s1 n3 + s2 | !may be silent
         answers; launches 1 n1 s1 n3 --resume require
         beats start:0 factor:512; fails => ask start n1 s1 n3 + s2, 1 may be silent",
    );
}

/// A start in vain shows that one of its nodes is at fault, not which one.
#[test]
fn starts_that_reach_no_node_are_given_up_with_what_finds_it() {
    let mut play = Play::running(options(), &["s1"]);
    for pause in [1, 2] {
        play = play.play(&format!(
            "after 1000 => kill: no sign of life for
             ended it was killed; answers => !replaced
             launches {pause} n1 n2 n3"
        ));
    }
    play.play(
        "reaches-none => giving up: the job gave no sign of life in 3 starts, with all nodes well: | \
                         `skt-hpl screen --hosts FILE` finds the node at fault | end 2",
    );
}

/// A computing job of which two starts do not reach these nodes, whatever tests of links find, and
/// what follows. A link may be back soon.
fn unreached_twice(options: LaunchOptions, spares: &[&str], nodes: &str, follows: &str) -> Play {
    Play::computing(options, spares).play(&format!(
        "without {nodes}; dead => !replaced | !shared | !waiting
         launches 1 n1 n2 n3 --resume require; vain {nodes}; fails; untested => {follows}"
    ))
}

#[test]
fn node_that_two_starts_do_not_reach_is_replaced() {
    let follows = format!("replaced: n2 {CUT_OFF}; s1 takes its place");
    unreached_twice(options(), &["s1"], "n2", &follows)
        .play("launches 0 n1 s1 n3 --resume require");
    // Without a spare the run ends by its name, and the same command tries it again.
    let follows = format!("n2 ({CUT_OFF}) cannot be used, and no spare node is left | end 75");
    unreached_twice(options(), &[], "n2", &follows)
        .next(options())
        .play("untested\nlaunches 2 n1 n2 n3 --resume require");
    // A program of which ranks fail with any code.
    Play::for_program(&["s1"]).play(
        "line   Remote daemon: [[47992,0],2] on node n2; rank 0 code 1; fails
         untested => !giving up
         launches 1 n1 n2 n3; reaches-none; untested => replaced: n2 out of",
    );
}

#[test]
fn ranks_of_an_unreached_node_share_until_it_is_readmitted() {
    // That it answers shows nothing. n1 runs two ranks of a group, which survives the loss of one.
    let follows = format!("shared: n2 {CUT_OFF}; n1 runs its ranks, too");
    unreached_twice(sharing(0), &[], "n2", &follows).play(
        "launches 0 n1 n3 with 2 1 rank(s) --resume require; beats factor:64 factor:128; fails
         untested => !unshared
         launches 1 n1 n3 with 2 1 rank(s) --resume require
         vain n1; fails; untested; launches 2 n1 n3 with 2 1 rank(s) --resume require
         vain n1; fails; untested => giving up: n1: out of | and up to 2 would be lost | end 75",
    );
}

#[test]
fn an_unreached_node_is_waited_for_and_tried_again() {
    let follows = format!("waiting: n2 ({CUT_OFF}) cannot be used | !pause");
    let mut play = unreached_twice(waiting(), &[], "n2", &follows);
    for pause in [2, 4, 8, 16] {
        play = play.play(&format!(
            "after 10 => ask start
             untested => !waiting
             launches {pause} n1 n2 n3 --resume require; vain n2; fails; untested => !pause"
        ));
    }
}

/// More nodes with data are never left out than the checkpoint can rebuild.
#[test]
fn unreached_nodes_beyond_the_parities_are_kept() {
    let spares = ["s1", "s2"];
    let why = "n2, n3: out of the launcher's reach | rebuild 1 rank of a group, and up to 2 would be \
               lost | !replaced | !shared | ";
    for (options, end) in
        [(options(), "giving up: "), (sharing(0), "giving up: "), (waiting(), "waiting: ")]
    {
        let play = unreached_twice(options, &spares, "n2 n3", &format!("{why}{end}"));
        assert_eq!(play.decisions.state.pool, Pool::new(hosts(&NODES), hosts(&spares)));
    }
    let follows = format!("replaced: n2, n3 ({CUT_OFF}); s1, s2 take their places");
    unreached_twice(two_parities(), &spares, "n2 n3", &follows)
        .play("launches 0 n1 s1 s2 --resume require");
    // A node that does not answer counts as well, and one without data.
    let twice = |node: &str| {
        format!(
            "fails; answers n1
             launches 0 s1 n2 n3 --resume require; vain {node}; fails; untested
             launches 1 s1 n2 n3 --resume require; vain {node}; fails; untested => "
        )
    };
    Play::computing(options(), &spares).play(&(twice("n2") + "giving up: n2: out of | end 75"));
    // A node that has lost its memory while no job ran is one of the losses.
    let mut play = Play::computing(options(), &spares).play("without n2");
    let empty = |survey: &mut Survey| survey.answers.get_mut("n1").unwrap().store.run_bytes = 0;
    play.answers(empty, &ALL);
    play.play(
        "launches 1 n1 n2 n3 --resume require; reaches-none
         untested => giving up: n2: out of | end 75",
    );
    // That node itself has nothing to lose.
    Play::computing(options(), &spares)
        .play(&(twice("s1") + "replaced: s1 out of | s2 takes its place"));
}

#[test]
fn suspicions_add_up_where_links_cannot_be_tested() {
    let play = Play::computing(two_parities(), &["s1", "s2"]).play(
        "without n2; untested; launches 1 n1 n2 n3 --resume require; vain n3; after 0.1 => ask look
         untested => kill: a connection broke, and n3 is lost: out of the launcher's reach, although it
         ended it was killed; untested => !replaced
         launches 2 n1 n2 n3 --resume require; vain n2
         fails",
    );
    // A spare that was not waited for is needed now.
    let lost = &play.asked.as_ref().unwrap().lost;
    assert_eq!(*lost, ["n2".to_owned()].into());
    // What was named before the job computed counts no more.
    play.play(
        "untested => replaced: n2 out of | once replaced
         launches 0 n1 s1 n3 --resume require; vain n3; fails
         untested => replaced: n3 out of | once replaced
         launches 0 n1 s1 s2 --resume require; beat start 0; beats factor:512; fails
         untested => pause: 1 s before the next start | !replaced",
    );
    // A start that is slow is not killed for what an earlier one has named.
    Play::computing(options(), &[]).play(
        "without n2; untested; launches 1 n1 n2 n3 --resume require; after 15 => ask look
         untested => -",
    );
}

/// The nodes are asked repeatedly while a job is suspended, and no silence adds up.
#[test]
fn stopped_rank_is_a_failure_and_suspended_job_is_none() {
    // A signal has stopped the ranks on this number of nodes.
    let with_stopped = |stopped: usize| {
        move |survey: &mut Survey| {
            for (index, name) in NODES.iter().enumerate() {
                let answer = survey.answers.get_mut(*name).unwrap();
                (answer.ranks, answer.stopped) = (1, usize::from(index < stopped));
            }
        }
    };
    let mut play = Play::computing(options(), &["s1"]);
    for stopped in (0..20).map(|probe| if probe < 19 { 3 } else { 0 }) {
        play = play.play("after 9 => ask look").answer(with_stopped(stopped), "-");
    }
    // Once it continues, it may hang.
    play.play("after 31 => kill: no sign of life");
    Play::computing(options(), &["s1"]).play("after 2").answer(
        with_stopped(1),
        "kill: silence, and 1 of 3 ranks are stopped by a signal, one on n1",
    );
}

#[test]
fn what_follows_the_end_of_a_program() {
    for (rows, what) in [
        ("ranks-done\nfails => ask clean n1 n2 n3 s1 +", "it is done when all its ranks are"),
        (
            "succeeds => failure: start 1 failed in phase compute at checkpoint 5 | ask start",
            "a launcher that returns 0 shows nothing",
        ),
        (
            "rank 0 code 14; ended with code 14
             answers n2 => replaced: n2 no answer; s1 takes its place
             launches 0 n1 s1 n3; fails => ask start | !code 14
             answers => pause: 1 s before the next start",
            "a lost node explains any code, and reports of that start count no more",
        ),
        (
            "opens plate; beats compute:0 checkpoint:4 compute:5; ranks-done
             fails => the data of run plate stays on its nodes | !ask clean | end 0",
            "code 0 without a report leaves the data",
        ),
        (
            "beats time-up:5; rank 0 code 75; fails => ask start n1 n2 n3 + s1 | !failure
             answers => stopped: stopped; start the same command again | end 75",
            "out of time it is left to the next command",
        ),
        (
            "beats reported:9 open:0 compute:0 reported:9; rank 1 signal 9
             fails => ask start n1 n2 n3 + s1",
            "two runs of one name, one after the other",
        ),
    ] {
        println!("{what}");
        Play::for_program(&["s1"]).play(rows);
    }
    // One that refuses its input is not started again.
    let play = Play::running(options_of_program(true), &["s1"]).play(
        "beats start:0; rank 0 code 3
         fails => rank 0 on n1 ended with code 3; the launcher ended with | ask start
         answers => giving up: rank 0 on n1 ended with code 3, and all nodes are well | end 3",
    );
    assert_eq!(play.decisions.state.exit, Some(3));
}

#[test]
fn launcher_that_keeps_the_other_ranks_is_ended() {
    for (end, follows) in [("code 3", "end 3"), ("signal 9", "pause: 1 s before the next start")] {
        Play::for_program(&["s1"]).play(&format!(
            "rank 0 {end}; after 0.5 => -
             after 10.5 => kill: a rank has ended, the launcher does | Kill
             after 30 => -
             ended it was killed; answers => {follows}"
        ));
    }
}

#[test]
fn program_with_a_killed_rank_or_restart_code_is_restarted() {
    for end in ["signal 9", "code 75"] {
        Play::for_program(&["s1"]).play(&format!(
            "rank 1 {end}; rank 2 code 3; ended with code 137 => rank 1 on n2
             answers; launches 1 n1 n2 n3
             beats start:0 open:0; unwatched 0.5
             beat compute 5 => computing: computing again at checkpoint 5, 3.50 s after detection"
        ));
    }
    // Without checkpoints between failures it is given up.
    let again = |pause: usize| {
        format!(
            "rank 1 signal 11; fails; answers; launches {pause} n1 n2 n3
             beats start:0 open:0 compute:5"
        )
    };
    Play::for_program(&[]).play(&again(1)).play(&again(2)).play(
        "rank 1 signal 11
         fails => giving up: the job failed 3 times at checkpoint 5, with all nodes well | end 2",
    );
}

#[test]
fn program_that_fails_after_its_report_ends_with_its_code() {
    let unknown = "1 of 3 ranks have not reported how they ended: a node is lost, or the launcher has \
                   ended them";
    for (end, stops, code, how) in [
        ("rank 0 signal 11", 0, 139, "rank 0 on n1 was killed by signal 11"),
        ("rank 0 signal 11", 1, 139, "rank 0 on n1 was killed by signal 11"),
        ("rank 0 code 3", 0, 3, "rank 0 on n1 ended with code 3"),
        ("rank 0 code 75", 0, 75, "rank 0 on n1 ended with code 75"),
        ("stop 0", 0, 2, unknown),
        ("stop 1", 1, 75, unknown),
    ] {
        Play::for_program(&["s1"]).play(&format!(
            "beats reported:9; stop {stops}; rank 1 code 0; rank 2 code 0
             {end}
             fails => failure: start 1 failed in phase reported at | ask clean n1 n2 n3 s1 +
             answers => ask forget n1 n2 n3 s1 +
             answers => finished: exit code {code}: {how}, after the program had reported | !is done | end {code}"
        ));
    }
}

#[test]
fn program_with_several_runs_is_done_after_the_last() {
    for (runs, follows) in [
        (&["plate", "rod"][..], "ask start n1 n2 n3 + s1"),
        (&["plate", "plate", "rod"], "ask start n1 n2 n3 + s1"),
        (&["plate"], "ask clean n1 n2 n3 s1 + "),
    ] {
        let mut play = Play::for_program(&["s1"]);
        for run in runs {
            play = play.play(&format!("opens {run}\nbeats compute:0 checkpoint:4 compute:5"));
        }
        // What was reported before the loss is computed again.
        play.play(&format!(
            "rank 2 signal 9; fails; answers; launches 1 n1 n2 n3; opens {}
             beats compute:0 reported:9; rank 1 signal 9; fails => {follows}",
            runs[0]
        ));
    }
}

#[test]
fn program_that_exits_0_on_a_stop_request_keeps_its_data() {
    for (is_stop, run, last, follows) in [
        (true, Some("plate"), "compute", "ask start n1 n2 n3 + s1 | !ask clean"),
        (true, Some("plate"), "reported", "ask clean n1 n2 n3 s1 + "),
        (true, None, "compute", "ask clean n1 n2 n3 s1 + "),
        (false, Some("plate"), "compute", "ask start n1 n2 n3 + s1 | !ask clean"),
        (false, Some("plate"), "reported", "ask clean n1 n2 n3 s1 + "),
        (false, None, "compute", "ask clean n1 n2 n3 s1 + "),
    ] {
        let mut play = Play::for_program(&["s1"]);
        play.decisions.state.keeps = run.map(keeps);
        let mut play = play.play(&format!("beats {last}:5\nstop {}", u8::from(is_stop)));
        play.decisions.state.is_time_up = !is_stop;
        play.play(&format!("ranks-done\nended with code 0 => {follows}"));
    }
}

#[test]
fn program_out_of_time_between_starts_is_not_restarted() {
    let mut play = Play::for_program(&["s1"]).play("rank 1 signal 9\nfails\nanswers");
    play.decisions.state.is_time_up = true;
    let play = play.play("after 0.1 => start the same command again | end 75");
    // The next command has its own time limit.
    assert!(!play.next(options_of_program(true)).decisions.state.is_time_up);
}

#[test]
fn program_without_heartbeats_is_never_considered_hung() {
    let mut play = Play::running(options_of_program(true), &["s1"]).play("beats start:0");
    let mut probes = 0;
    for _ in 0..1000 {
        let lines = play.event("after 1000");
        expect("silence", &lines, "!kill");
        if !lines.is_empty() {
            probes += 1;
            play = play.play("answers => -");
        }
    }
    assert!(probes > 5, "its nodes are probed: {probes}");
    // The loss of a node is still detected.
    while play.event("after 1000").is_empty() {}
    play.play("answers n3 => silence, and n3 is lost");
}

#[test]
fn data_location_of_a_program_is_the_reported_one() {
    let play = Play::running(options_of_program(true), &[]);
    assert_eq!(play.decisions.state.keeps, None);
    let play = play.play("opens plate\nbeats compute:0");
    let state = &play.decisions.state;
    assert_eq!((&state.run_id[..], &state.keeps), ("plate", &Some(keeps("plate"))));
}

fn failed(column: usize) -> Failure {
    Failure { lived: true, column, ..Failure::default() }
}

#[test]
fn three_failures_in_one_place_end_the_run() {
    let why = |past: &[Failure], near| ending::why_give_up(past, "column", near, 50);
    let held = Failure { phase: CHANGED.to_owned(), ..failed(0) };
    let lost = Failure { node_lost: true, ..failed(512) };
    let [a, b] = [512, 520].map(failed);
    let same = [a.clone(), b.clone(), a.clone()];
    let text = "the job failed 3 times at column 512, with all nodes well";
    assert_eq!(why(&same, 16).as_deref(), Some(text));
    let hidden = [a.clone(), held.clone(), a.clone(), held.clone(), a.clone()];
    assert_eq!(why(&hidden, 16).as_deref(), Some(text), "data in use hides nothing");
    for (past, near, what) in [
        (same[..2].to_vec(), 16, "two are an accident"),
        (same.to_vec(), 4, "not the same place"),
        (vec![a.clone(), lost.clone(), a.clone(), a], 16, "a node explains one"),
        (vec![lost; 20], 16, "the spares bound it"),
        (vec![held.clone(); 20], 16, "data in use is retried"),
    ] {
        assert_eq!(why(&past, near), None, "{what}");
    }
    assert!(why(&vec![held; 51], 16).unwrap().contains("--max-restarts 50"));
}

#[test]
fn the_pause_doubles_until_a_node_explains_the_failure() {
    for (past, pause) in [
        (vec![], 0.0),
        (vec![failed(1)], 1.0),
        (vec![failed(1); 2], 2.0),
        (vec![failed(1); 3], 4.0),
        (vec![failed(1); 500], 60.0),
        (vec![failed(1), Failure { node_lost: true, ..failed(2) }], 0.0),
    ] {
        assert_eq!(ending::backoff_seconds(&past), pause);
    }
}
