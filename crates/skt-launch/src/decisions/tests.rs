//! Tests of the supervisor's decisions without processes: what follows from each failure of a
//! cluster, event by event, and what holds in every case.

use proptest::prelude::*;

use super::*;
use crate::hosts::Host;
use crate::launcher::Launcher;
use crate::links::addresses::Networks;
use crate::links::{Link, LinkState, plan};
use crate::probe::tests::answer;
use crate::program::{ProcessEnd, Program, RankEnd};
use crate::state::Status;
use skt_checkpoint::heartbeat::{CorruptionReport, DataLocation, Heartbeat};
use skt_config::{LaunchDraft, LaunchSettings};
use skt_host::starter::Starter;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

pub(super) fn options() -> LaunchOptions {
    let settings = LaunchSettings::read(&LaunchDraft::new()).expect("the defaults are legal");
    let pool = Pool::new(hosts(&NODES), hosts(&["s1", "s2"]));
    let starter = Launcher::Starter(Starter::Openmpi);
    let options = LaunchOptions::new(settings, starter, pool, 3, "skt-hpl".into());
    LaunchOptions { losable: vec![true; 3], ..options }
}

/// [`options`] with other settings.
fn options_with(change: impl FnOnce(&mut LaunchSettings)) -> LaunchOptions {
    let mut options = options();
    change(&mut options.settings);
    options
}

/// [`options`] for the user's program, or for the benchmark.
fn options_of_program(is_of_program: bool) -> LaunchOptions {
    let program = || Program { file: "/bin/heat".into(), checksum: 7 };
    LaunchOptions { program_of_user: is_of_program.then(program), ..options() }
}

pub(super) fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 }).collect()
}

fn state(spares: &[&str]) -> SupervisorState {
    let me = Process::from_pid(std::process::id() as i32).unwrap();
    SupervisorState::new(
        "run",
        &["--n".into(), "1000".into()],
        3,
        Pool::new(hosts(&NODES), hosts(spares)),
        me,
    )
}

/// Answers of the probed nodes: all except the `ill` ones are well, and have segments of
/// `run_bytes` bytes.
pub(super) fn survey(pool: &Pool, ill: &[&str], run_bytes: u64) -> Survey {
    let mut survey = Survey::default();
    for host in pool.active.iter().chain(&pool.spares) {
        let health = if ill.contains(&host.name.as_str()) {
            Health::Ill("no answer".to_owned())
        } else {
            let answer = crate::probe::Answer { run_bytes, ..answer() };
            survey.answers.insert(host.name.clone(), answer);
            Health::Well
        };
        survey.health.insert(host.name.clone(), health);
    }
    survey
}

/// The nodes that are to try their links do so; no packet passes where `is_dead` of two nodes.
pub(super) fn try_links(
    survey: &mut Survey,
    inquiry: &Inquiry,
    is_dead: impl Fn(&str, &str) -> bool,
) {
    let hosts = survey.nodes_to_link(inquiry);
    if hosts.is_empty() {
        return;
    }
    let link = |from: &str, to: &str| Link {
        to: to.to_owned(),
        found: if is_dead(from, to) {
            LinkState::Dead("no answer".into())
        } else {
            LinkState::Alive
        },
    };
    let partners = plan::partners(&hosts, &survey.answers, &Networks::default());
    let of_node = partners.into_iter().map(|(from, partners)| {
        let links = partners.iter().map(|to| link(&from, &to.name)).collect();
        (from, links)
    });
    survey.links = Some(of_node.collect());
}

pub(super) fn beat(phase: &str, column: usize, exit: Option<u8>) -> Event {
    let first = Heartbeat::new(String::new(), 0, phase);
    Event::Heartbeat(Heartbeat { column, n: 1000, elapsed_seconds: 0.0, exit, ..first })
}

fn full_disk() -> StateError {
    StateError::File { path: "state".into(), source: io::Error::other("full") }
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
        Action::Launch(Start { hosts, resume }) => match resume {
            None => format!("launch {}", names(hosts)),
            Some(resume) => format!("launch {} --resume {resume}", names(hosts)),
        },
        Action::End(Ok(exit)) => format!("end {}", exit.code()),
        Action::End(Err(error)) => format!("end: {error}"),
        Action::Save | Action::Tidy | Action::FindJob | Action::CloseLines => format!("{action:?}"),
        Action::Terminate | Action::Kill | Action::Account => format!("{action:?}"),
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

    /// Feeds an event and returns the actions that follow, each as a line. Events and the state are
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

    /// All nodes except the `ill` ones answer; all links are well.
    fn answers_but(&mut self, ill: &[&str]) -> Vec<String> {
        self.answers(
            |survey| {
                for name in ill {
                    survey.answers.remove(*name);
                    survey.health.insert((*name).to_owned(), Health::Ill("no answer".to_owned()));
                }
            },
            &[],
        )
    }

    /// All nodes answer, and then find that no packet passes to or from the nodes `dead`.
    fn links_dead(&mut self, dead: &[&str]) -> Vec<String> {
        self.answers(|_| {}, dead)
    }

    /// The spares `unknown` are not waited for; no packet passes to or from the nodes `dead`.
    fn answers_without_spares(&mut self, unknown: &[&str], dead: &[&str]) -> Vec<String> {
        self.answers(
            |survey| {
                for spare in unknown {
                    survey.answers.remove(*spare);
                    survey.health.insert((*spare).to_owned(), Health::Unknown);
                }
            },
            dead,
        )
    }

    /// All nodes answer but for what `change` changes, and then try their links.
    fn answers(&mut self, change: impl FnOnce(&mut Survey), dead: &[&str]) -> Vec<String> {
        let inquiry = self.asked.take().expect("nodes are asked");
        let mut survey = survey(&inquiry.pool, &[], 4096);
        change(&mut survey);
        try_links(&mut survey, &inquiry, |a, b| dead.contains(&a) || dead.contains(&b));
        self.on(Event::Answers(survey))
    }

    fn tick_after(&mut self, seconds: f64) -> Vec<String> {
        self.now += seconds;
        self.on(Event::Tick { stops: 0 })
    }

    fn stops(&mut self, stops: usize) -> Vec<String> {
        self.on(Event::Tick { stops })
    }

    fn ended(&mut self, how: &str) -> Vec<String> {
        self.on(Event::Ended { how: how.to_owned(), succeeded: false })
    }

    /// The launcher starts on these nodes after the pause, and the job computes.
    fn launches(&mut self, pause_seconds: f64, on: &str) {
        if pause_seconds > 0.0 {
            assert_eq!(self.tick_after(pause_seconds - 0.01), [""; 0], "not yet");
            self.now += 0.01;
        }
        assert_eq!(self.tick_after(0.0), [format!("launch {on}")]);
        let launcher = self.decisions.state.supervisor.clone();
        assert_eq!(self.on(Event::Launched(launcher)), ["Save"]);
    }

    /// Heartbeats, each a second after the previous one.
    fn beats(&mut self, phases: &[(&str, usize)]) {
        for (phase, column) in phases {
            self.now += 1.0;
            self.on(beat(phase, *column, None));
        }
    }

    /// A supervisor that has just started the job.
    fn running(options: LaunchOptions, spares: &[&str]) -> Self {
        let mut play = Play::new(options, state(spares));
        assert_eq!(play.on(Event::Begin), ["FindJob"]);
        let asked = format!("ask start n1 n2 n3 + {}", spares.join(" "));
        assert_eq!(play.on(Event::NoJob { swept: 0 }), ["Save".to_owned(), asked]);
        assert_eq!(play.answers_but(&[]), [""; 0]);
        play.launches(0.0, "n1 n2 n3");
        play
    }

    /// A supervisor whose job has a checkpoint at column 512.
    fn computing(options: LaunchOptions, spares: &[&str]) -> Self {
        let mut play = Play::running(options, spares);
        let past = [("generate", 0), ("factor", 0), ("factor", 64), ("commit", 512)];
        play.beats(&past);
        play.beats(&[("stamp", 512), ("factor", 512)]);
        play
    }
}

/// Heartbeats overtake the report: its end is lost with the node that was to pass it on, and the
/// other nodes still have the result.
#[test]
fn incomplete_report_is_requested_again_before_data_is_removed() {
    let reported = |phase: &str, report_lines| match beat(phase, 1000, Some(0)) {
        Event::Heartbeat(beat) => Event::Heartbeat(Heartbeat { report_lines, ..beat }),
        _ => unreachable!(),
    };
    let play = |phase: &str, written| {
        let mut play = Play::computing(options(), &["s1"]);
        play.on(Event::Report(b"one\ntwo\n".into()));
        play.on(reported(phase, written));
        play.ended("the launcher was killed by signal 9").join("|")
    };
    let cut = play("reported", Some(5));
    assert!(cut.contains("the last 3 lines of the report did not come; the launcher"), "{cut}");
    assert!(cut.contains("ask start n1 n2 n3") && !cut.contains("ask clean"), "{cut}");
    for written in [None, Some(2), Some(0)] {
        let whole = play("reported", written);
        assert!(whole.contains("ask clean") && !whole.contains("did not come"), "{whole}");
    }
    // No node could report the lines again.
    let done = play("done", Some(5));
    assert!(done.contains("warning: the last 3 lines") && done.contains("ask clean"), "{done}");
}

#[test]
fn a_launcher_that_starts_nothing_is_not_asked_again() {
    let refuses = || Event::Line("mpirun has detected an attempt to run as root.\n".into());
    let mut play = Play::running(options(), &["s1"]);
    play.on(refuses());
    let lines = play.ended("the launcher ended with code 1").join("|");
    assert!(lines.contains("giving up: the launcher refuses to run as root: give"), "{lines}");
    assert!(lines.ends_with("end 2") && !lines.contains("ask start"), "{lines}");
    // A refusal does not end a run whose earlier start has computed.
    let mut play = Play::computing(options(), &["s1"]);
    play.ended("killed");
    play.answers_but(&["n2"]);
    play.tick_after(0.0);
    let launcher = play.decisions.state.supervisor.clone();
    play.on(Event::Launched(launcher));
    play.on(refuses());
    let lines = play.ended("the launcher ended with code 1").join("|");
    assert!(lines.contains("ask start"), "{lines}");
}

#[test]
fn undisturbed_run_leaves_no_data() {
    let mut play = Play::computing(options(), &["s1"]);
    play.on(beat("reported", 1000, Some(0)));
    play.on(beat("done", 1000, Some(0)));
    assert_eq!(play.ended("the launcher ended with code 0"), ["ask clean n1 n2 n3 s1 + "]);
    assert_eq!(play.answers_but(&[]), ["ask forget n1 n2 n3 s1 + "]);
    let end = ["finished: the job is done, after 0 failure(s)", "Save", "Tidy", "Account", "end 0"];
    assert_eq!(play.answers_but(&[]), end);
}

/// The next command finds the state of a run at work then, and reads its files.
#[test]
fn files_of_a_run_stay_if_its_end_cannot_be_saved() {
    let (mut play, pool) = asked_to_clean();
    play.is_full = true;
    let lines = play.on(Event::Answers(survey(&pool, &[], 0)));
    assert!(lines.contains(&"Save".to_owned()) && !lines.contains(&"Tidy".to_owned()), "{lines:?}");
}

#[test]
fn a_lost_node_is_replaced_in_place() {
    let mut play = Play::computing(options(), &["s1"]);
    assert_eq!(play.on(Event::Line("  Peer host:  n2\n".into())), [""; 0]);
    assert_eq!(play.tick_after(0.1), ["ask look n1 n2 n3 + s1, lost? n2"]);
    assert_eq!(
        play.answers_but(&["n2"]),
        ["kill: a connection broke, and n2 is lost: no answer: killing the launcher", "Kill"]
    );
    assert_eq!(play.tick_after(100.0), [""; 0], "once is enough");
    assert_eq!(
        play.ended("the launcher was killed by signal 9"),
        [
            "failure: start 1 failed in phase factor at column 512: a connection broke, and n2 is \
             lost: no answer; the launcher was killed by signal 9",
            "Save",
            "ask start n1 n2 n3 + s1, 1 may be silent, lost? n2 n2",
        ]
    );
    assert_eq!(play.answers_but(&["n2"]), ["replaced: n2 no answer; s1 takes its place"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.beats(&[("start", 0)]);
    play.now += 0.5;
    assert_eq!(
        play.on(beat("factor", 512, None)),
        ["computing: computing again at column 512, 1.50 s after detection"]
    );
    let failure = &play.decisions.state.failures[0];
    assert!(failure.node_lost && failure.resumed_column == Some(512), "{failure:?}");
    let seconds = failure.timeline();
    assert_eq!((seconds.replacement_seconds, seconds.restart_seconds), (Some(0.0), Some(1.0)));
    assert_eq!((seconds.detection_seconds.round(), seconds.recovery_seconds), (100.0, Some(0.5)));
    // Suspicion of the start before is no reason to doubt a node of this start.
    assert_eq!(play.tick_after(10.0), ["ask look n1 s1 n3 + "]);
}

#[test]
fn node_lost_before_the_first_checkpoint_loses_all_progress() {
    let mut play = Play::running(options(), &["s1"]);
    play.beats(&[("generate", 0), ("factor", 0), ("factor", 256)]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&["n1"]);
    play.launches(0.0, "s1 n2 n3");
}

#[test]
fn a_second_node_lost_in_recovery_is_replaced_too() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.beats(&[("recover-rebuild", 0)]);
    assert_eq!(
        play.ended("the launcher ended with code 1"),
        [
            "failure: start 2 failed in phase recover-rebuild at column 0: the launcher ended \
             with code 1",
            "Save",
            "ask start n1 s1 n3 + s2, 1 may be silent",
        ]
    );
    assert_eq!(play.answers_but(&["n3"]), ["replaced: n3 no answer; s2 takes its place"]);
    play.launches(0.0, "n1 s1 s2 --resume require");
}

#[test]
fn two_nodes_lost_at_once_are_replaced() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ended("the launcher ended with code 1");
    assert_eq!(play.answers_but(&["n1", "n3"]).len(), 2);
    play.launches(0.0, "s1 n2 s2 --resume require");
}

#[test]
fn silent_job_with_healthy_nodes_is_killed_and_resumed() {
    let mut play = Play::computing(options(), &["s1"]);
    // The job's pace is a second: nodes are probed after two.
    assert_eq!(play.tick_after(1.9), [""; 0]);
    assert_eq!(play.tick_after(0.1), ["ask look n1 n2 n3 + s1"]);
    assert_eq!(play.answers_but(&[]), [""; 0]);
    assert_eq!(play.tick_after(1.9), [""; 0], "twice the time until the next look");
    assert_eq!(play.tick_after(0.1), ["ask look n1 n2 n3 + s1"]);
    assert_eq!(play.answers_but(&[]), [""; 0]);
    assert_eq!(
        play.tick_after(27.0),
        ["kill: no sign of life for 31.0 s (limit 30.0 s): killing the launcher", "Kill"]
    );
    play.ended("the launcher was killed by signal 9");
    assert_eq!(play.answers_but(&[]), ["pause: 1 s before the next start"]);
    play.launches(1.0, "n1 n2 n3 --resume require");
}

/// The supervisor and the job were stopped, or the supervisor was blocked in writing its output.
#[test]
fn unwatched_time_is_not_silence_of_the_job() {
    let mut play = Play::computing(options(), &["s1"]);
    let mut unwatched = |seconds: f64| {
        play.now += seconds;
        let lines = play.on(Event::Unwatched { seconds });
        assert_eq!(lines, [""; 0]);
        play.tick_after(0.0).join("; ")
    };
    assert_eq!(unwatched(600.0), "");
    // Short pauses count, or a slow supervisor would never find that a job hangs.
    let probes = (0..3).map(|_| unwatched(9.0)).filter(|lines| lines.starts_with("ask look "));
    assert!(probes.count() > 0);
    assert!(unwatched(9.0).starts_with("kill: no sign of life for 36.0 s"));
}

#[test]
fn a_sign_of_life_ends_the_silence() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    play.answers_but(&[]);
    play.beats(&[("factor", 520)]);
    // By now the longest pause is four seconds.
    assert_eq!(play.tick_after(7.9), [""; 0]);
    assert_eq!(play.tick_after(0.1), ["ask look n1 n2 n3 + s1"]);
}

/// The agent may fail to reach a node while the job computes.
#[test]
fn heartbeat_during_a_probe_keeps_the_job_alive() {
    let mut play = Play::computing(options(), &["s1"]);
    assert_eq!(play.tick_after(3.0), ["ask look n1 n2 n3 + s1"]);
    play.beats(&[("factor", 520)]);
    assert_eq!(play.answers_but(&["n3"]), [""; 0]);
    assert_eq!(play.tick_after(8.0), ["ask look n1 n2 n3 + s1"]);
    play.beats(&[("factor", 530)]);
    assert_eq!(play.links_dead(&["n2"]), [""; 0]);
}

#[test]
fn node_found_lost_during_silence_is_the_reason() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    assert_eq!(
        play.answers_but(&["n3"]),
        ["kill: silence, and n3 is lost: no answer: killing the launcher", "Kill"]
    );
}

#[test]
fn launcher_that_ends_during_a_probe_is_not_killed() {
    let mut play = Play::computing(options(), &["s1"]);
    play.tick_after(3.0);
    let lines = play.ended("the launcher ended with code 1");
    assert!(lines[0].ends_with("at column 512: the launcher ended with code 1"), "{lines:?}");
    assert_eq!(lines[2], "ask start n1 n2 n3 + s1, 1 may be silent");
}

#[test]
fn a_killed_launcher_is_started_again_after_pauses_that_double() {
    let mut play = Play::computing(options(), &[]);
    for (column, pause) in [(520, 1.0), (640, 2.0), (760, 4.0)] {
        play.beats(&[("factor", column)]);
        let lines = play.ended("the launcher was killed by signal 9");
        assert_eq!(lines[1..], ["Save", "ask start n1 n2 n3 + , 1 may be silent"]);
        assert_eq!(play.answers_but(&[]), [format!("pause: {pause} s before the next start")]);
        play.launches(pause, "n1 n2 n3 --resume require");
    }
}

/// If a node refuses before the first start, the hint states that nothing was started, and does not
/// mention data.
#[test]
fn node_that_refuses_before_the_first_start_has_no_data() {
    let mut play = Play::new(options(), state(&[]));
    play.on(Event::Begin);
    play.on(Event::NoJob { swept: 0 });
    let lines = play.answers_but(&["n2"]);
    assert_eq!(
        lines[..2],
        [
            "gave-up: giving up: n2 (no answer) cannot be used, and no spare node is left",
            "hint: nothing was started; start the same command again when this is put right",
        ]
    );
    assert_eq!(lines.last().unwrap(), "end 75");
}

#[test]
fn without_a_spare_the_run_gives_up_until_the_node_is_back() {
    let mut play = Play::computing(options(), &["s1"]);
    play.ended("the launcher ended with code 1");
    assert_eq!(
        play.answers_but(&["n2", "s1"]),
        [
            "gave-up: giving up: n2 (no answer) cannot be used, and no spare node is left",
            "hint: data that survived is kept; start the same command again to resume",
            "Save",
            "Account",
            "end 75",
        ]
    );
    let state = play.decisions.state;
    assert_eq!((state.status, state.exit), (Status::GaveUp, Some(75)));
    let mut next = Play::new(options(), state);
    next.on(Event::Begin);
    next.on(Event::NoJob { swept: 0 });
    assert_eq!(next.answers_but(&[]), ["pause: 1 s before the next start"]);
    next.launches(1.0, "n1 n2 n3 --resume require");
}

#[test]
fn excluded_nodes_are_readmitted_on_request() {
    let mut play = Play::computing(options(), &["s1"]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&["n2"]);
    let mut next =
        Play::new(options_with(|settings| settings.readmit = true), play.decisions.state.clone());
    assert_eq!(next.on(Event::Begin), ["readmit: in again as spares: n2", "FindJob"]);
    let lines = next.on(Event::NoJob { swept: 2 });
    assert_eq!(lines[0], "ended: 2 process(es) that an earlier supervisor had started");
    assert_eq!(lines[2], "ask start n1 s1 n3 + n2", "s1 has no data yet");
    // Without `readmit`, n2 stays out although it is well.
    let mut next = Play::new(options(), play.decisions.state);
    next.on(Event::Begin);
    assert_eq!(next.on(Event::NoJob { swept: 0 })[1], "ask start n1 s1 n3 + ");
}

/// A heartbeat that blames `host` for `rows` rows in `checks` checks.
fn corruption(host: &str, checks: u64, rows: u64) -> Event {
    let Event::Heartbeat(beat) = beat("factor", 640, None) else { unreachable!("a heartbeat") };
    let host = host.to_owned();
    let report =
        CorruptionReport { host, rank: 1, checks, rows, first_column: 320, ends_job: false };
    Event::Heartbeat(Heartbeat { corruption: vec![report], ..beat })
}

#[test]
fn node_that_computes_wrong_twice_is_replaced_on_request() {
    let wanted = options_with(|settings| settings.replace_suspects = true);
    let message = |checks, rows| {
        format!(
            "wrong: n2 rank 1 has computed wrong numbers: {rows} row(s) in {checks} check(s), \
             first at column 320"
        )
    };
    let mut play = Play::computing(options(), &["s1"]);
    assert_eq!(play.on(corruption("n2", 1, 3)), [message(1, 3)]);
    assert_eq!(play.on(corruption("n2", 1, 3)), [""; 0], "nothing new");
    assert_eq!(play.on(corruption("n2", 4, 9)), [message(4, 9)], "nobody wants it to be replaced");

    let mut play = Play::computing(wanted.clone(), &["s1"]);
    assert_eq!(play.on(corruption("n2", 1, 3)), [message(1, 3)], "once may be chance");
    let why = "n2 computes wrong, and a spare is to replace it";
    let lines = play.on(corruption("n2", 2, 4));
    assert_eq!(lines, [message(2, 4), format!("kill: {why}: killing the launcher"), "Kill".into()]);
    play.ended("killed");
    let lines = play.answers_but(&[]);
    assert_eq!(
        lines[0],
        "replaced: n2 computes wrong: 2 check(s) have named it; s1 takes its place"
    );
    play.launches(0.0, "n1 s1 n3 --resume require");
    // A report of the next start is added to those before.
    assert!(play.on(corruption("n1", 1, 1))[0].starts_with("wrong: n1 rank 1 "));
    play.ended("the launcher ended with code 1");
    play.answers_but(&[]);
    play.launches(1.0, "n1 s1 n3 --resume require");
    let lines = play.on(corruption("n1", 1, 1));
    let stays = "warning: warning: n1 stays, though suspect: no spare node is left";
    assert_eq!(lines[1], stays);
    let blamed = &play.decisions.state.blamed;
    assert_eq!((blamed["n1"].checks, blamed["n2"].rows, blamed["n2"].checks), (2, 4, 2));
    // A node that is readmitted begins without reports.
    let mut next =
        Play::new(options_with(|settings| settings.readmit = true), play.decisions.state);
    next.on(Event::Begin);
    assert!(!next.decisions.state.blamed.contains_key("n2"));

    let mut play =
        Play::computing(LaunchOptions { losable: vec![true, false, true], ..wanted }, &["s1"]);
    let lines = play.on(corruption("n2", 2, 2));
    assert!(lines[1].ends_with("of one process row than the parities can rebuild"), "{lines:?}");
}

/// The job must print the number that it cannot correct before it ends.
#[test]
fn job_that_ends_its_run_is_not_killed_for_a_suspect() {
    let mut play =
        Play::computing(options_with(|settings| settings.replace_suspects = true), &["s1"]);
    play.on(corruption("n2", 1, 3));
    let Event::Heartbeat(mut last) = corruption("n2", 2, 4) else { unreachable!("a heartbeat") };
    last.corruption[0].ends_job = true;
    assert_eq!(play.on(Event::Heartbeat(last)).len(), 1, "it is said, and nothing is killed");
    play.ended("the launcher ended with code 75");
    let lines = play.answers_but(&[]);
    assert_eq!(
        lines[0],
        "replaced: n2 computes wrong: 2 check(s) have named it; s1 takes its place"
    );
}

/// The spare may not have answered yet: the survey has to know that it is needed.
#[test]
fn spare_of_a_suspect_is_waited_for() {
    let wanted = options_with(|settings| settings.replace_suspects = true);
    let mut play = Play::computing(wanted, &["s1"]);
    play.on(corruption("n2", 2, 2));
    play.ended("killed");
    let asked = play.asked.as_ref().expect("nodes are asked");
    assert_eq!(asked.lost, ["n2".to_owned()].into(), "whatever n2 answers, it needs a spare");
    // A later command that does not want that leaves the node where it is.
    let mut next = Play::new(options(), play.decisions.state);
    next.on(Event::Begin);
    next.on(Event::NoJob { swept: 0 });
    assert_eq!(next.asked.as_ref().expect("nodes are asked").lost, BTreeSet::new());
    next.answers_but(&[]);
    next.launches(1.0, "n1 n2 n3 --resume require");
}

#[test]
fn suspect_stays_if_its_spare_is_lost() {
    let mut play =
        Play::computing(options_with(|settings| settings.replace_suspects = true), &["s1"]);
    play.on(corruption("n2", 2, 2));
    play.ended("killed");
    let lines = play.answers_but(&["s1"]);
    assert_eq!(lines[0], "warning: warning: n2 stays, though suspect: no spare node is left");
    play.launches(1.0, "n1 n2 n3 --resume require");
}

#[test]
fn losses_beyond_the_code_end_or_restart_the_run() {
    let lost = |start_over| {
        let mut play =
            Play::computing(options_with(|settings| settings.start_over = start_over), &["s1"]);
        play.on(beat("refused", 0, Some(2)));
        (play.ended("the launcher ended with code 2"), play)
    };
    let (lines, _) = lost(false);
    let why = "gave-up: giving up: more is lost than the checkpoint can rebuild, see the message \
               above; --start-over would begin from the seed";
    assert_eq!(lines, [why, "Save", "Account", "end 2"]);
    let (lines, mut play) = lost(true);
    assert_eq!(lines[0], "over: more is lost than can be rebuilt: starting over from the seed");
    assert_eq!(lines[1], "ask start n1 n2 n3 + s1, 1 may be silent");
    assert_eq!(play.answers_but(&[]), [""; 0]);
    play.launches(0.0, "n1 n2 n3 --resume never");
    assert!(!play.decisions.state.is_refused && !play.decisions.state.has_checkpoint);
}

/// Where the flags of the run choose how it begins, nothing is added to them.
#[test]
fn run_with_a_resume_flag_is_not_started_over() {
    let start_over = options_with(|settings| settings.start_over = true);
    let mut play = Play::computing(LaunchOptions { says_resume: true, ..start_over }, &[]);
    play.on(beat("refused", 0, None));
    let lines = play.ended("the launcher ended with code 137");
    assert!(lines[0].starts_with("failure: start 1 failed"), "{lines:?}");
    play.answers_but(&[]);
    play.launches(1.0, "n1 n2 n3");
}

#[test]
fn job_that_met_an_earlier_process_is_started_again() {
    let mut play = Play::computing(options(), &[]);
    for (start, pause) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
        play.on(beat("changed", 0, None));
        play.on(beat("done", 0, Some(2)));
        let lines = play.ended("the launcher ended with code 2");
        let words = format!("failure: start {start} failed in phase changed");
        assert!(lines[0].starts_with(&words), "{lines:?}");
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3 --resume require");
    }
}

#[test]
fn segments_missing_between_two_starts_are_reported() {
    let gone = |is_of_program: bool, phases: &[(&str, usize)], bytes: [u64; 3]| {
        let mut play = Play::running(options_of_program(is_of_program), &[]);
        let keeps = DataLocation { run_id: "r".into(), store: "sysv".into(), images: Vec::new() };
        play.decisions.state.keeps = Some(keeps);
        play.beats(phases);
        play.ended("the launcher ended with code 137");
        let mut survey = survey(&play.asked.take().expect("nodes are asked").pool, &[], 0);
        for (answer, bytes) in survey.answers.values_mut().zip(bytes) {
            answer.run_bytes = bytes;
        }
        let mut lines = play.on(Event::Answers(survey));
        lines.retain(|line| line.starts_with("gone: "));
        lines.join("|")
    };
    let computed = [("factor", 64), ("commit", 512), ("stamp", 512), ("factor", 512)];
    let of_benchmark = gone(false, &computed, [0; 3]);
    let had = |place: &str| {
        format!(
            "gone: warning: an earlier start of this run had a checkpoint ({place}), and its \
             segments are gone from n1, n2, n3: a restart of the host, or a cleaner of segments \
             that no process is attached to (ipcrm in a Slurm epilog"
        )
    };
    assert!(of_benchmark.starts_with(&had("column 512")), "{of_benchmark}");
    let of_program = gone(true, &[("open", 0), ("compute", 7)], [0; 3]);
    assert!(of_program.starts_with(&had("checkpoint 7")), "{of_program}");
    assert_eq!(gone(false, &computed, [0, 1, 0]), "", "a node has some");
    let mut play = Play::computing(options(), &[]);
    play.decisions.state.hollow.extend(NODES.map(str::to_owned));
    play.ended("the launcher ended with code 137");
    let pool = play.asked.take().expect("nodes are asked").pool;
    let lines = play.on(Event::Answers(survey(&pool, &[], 0))).join("|");
    assert!(!lines.contains("gone: "), "nodes that have no data yet: {lines}");
    assert_eq!(gone(false, &computed[..2], [0; 3]), "", "there was no checkpoint");
    assert_eq!(gone(true, &[("open", 0), ("compute", 0)], [0; 3]), "", "there was none");
}

/// All nodes answer, `n2` with these counts of OOM kills, the others with 7 and none.
fn answers_with_oom_kills(play: &mut Play, of_n2: OomKills) -> Vec<String> {
    play.answers(
        |survey| {
            for (name, answer) in &mut survey.answers {
                let others = OomKills { machine: Some(7), group: None };
                answer.oom_kills = if name == "n2" { of_n2 } else { others };
            }
        },
        &[],
    )
}

#[test]
fn oom_kill_is_recognized_by_the_counts_of_its_node() {
    let open_mpi = "mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 \
                    (Killed).\n";
    let counted = |machine| OomKills { machine: Some(machine), group: None };
    for is_of_program in [false, true] {
        let mut play = Play::new(options_of_program(is_of_program), state(&[]));
        play.on(Event::Begin);
        play.on(Event::NoJob { swept: 0 });
        assert_eq!(answers_with_oom_kills(&mut play, counted(3)), [""; 0]);
        let mut column = 0;
        let mut killed = |now, after: &str| {
            play.now += 10.0;
            let launched = play.on(Event::Tick { stops: 0 });
            assert!(launched[0].starts_with("launch n1 n2 n3"), "{launched:?}");
            let launcher = play.decisions.state.supervisor.clone();
            play.on(Event::Launched(launcher));
            // Failures at one column would be given up.
            column += 200;
            play.beats(&[("factor", column), ("compute", column)]);
            let end = ProcessEnd::Signal(libc::SIGKILL);
            match (is_of_program, after) {
                (_, "quiet") => {}
                (true, _) => {
                    let (token, host) = (String::new(), "n2".to_owned());
                    play.on(Event::RankEnded(RankEnd { token, rank: Some(1), host, end }));
                }
                (false, _) => drop(play.on(Event::Line(open_mpi.to_owned()))),
            }
            play.ended("the launcher ended with code 137");
            let lines = answers_with_oom_kills(&mut play, now);
            let how = play.decisions.state.failures.last().unwrap().how.clone();
            (lines.into_iter().filter(|line| line.starts_with("oom: ")).collect::<Vec<_>>(), how)
        };
        let (lines, how) = killed(counted(4), "killed");
        let text = "the kernel's OOM killer ended a process on n2 meanwhile (oom_kill 3 -> 4)";
        assert_eq!(lines, [format!("oom: {text}")]);
        assert!(how.ends_with(&format!("code 137; {text}")), "{how}");
        let (lines, how) = killed(counted(4), "killed");
        let text = "no OOM kill on n2 meanwhile (oom_kill 4): the kernel has not sent the SIGKILL \
                    for want of memory";
        assert_eq!(lines, [format!("oom: {text}")]);
        assert!(how.ends_with(text), "{how}");
        // Without a kill, only what was counted is reported; without counts, nothing.
        assert_eq!(killed(counted(4), "quiet").0, [""; 0]);
        assert_eq!(killed(counted(6), "quiet").0.len(), 1);
        assert_eq!(killed(OomKills::default(), "killed").0, [""; 0]);
    }
}

#[test]
fn a_run_is_stopped_in_order_and_resumed() {
    let mut play = Play::computing(options(), &[]);
    let stop = ["stop: asked to stop: ending the job, its checkpoint stays", "Terminate"];
    assert_eq!(play.stops(1), stop);
    assert_eq!(play.stops(1), [""; 0]);
    assert_eq!(play.ended("the launcher ended with code 143").len(), 1, "ranks are ended");
    let end = ["Save", "Account", "end 75"];
    let stopped = play.answers_but(&[]);
    assert_eq!(stopped[0], "stopped: stopped; start the same command again to resume");
    assert_eq!(stopped[1..], end);
    assert_eq!(play.decisions.state.failures, []);
    let mut next = Play::new(options(), play.decisions.state);
    next.on(Event::Begin);
    next.on(Event::NoJob { swept: 0 });
    next.answers_but(&[]);
    next.launches(0.0, "n1 n2 n3 --resume require");
}

#[test]
fn a_launcher_that_does_not_end_when_asked_is_killed() {
    let killed = ["kill: the launcher does not end: killing the launcher", "Kill"];
    let mut patient = Play::computing(options(), &[]);
    patient.stops(1);
    // It may have been stopped with the supervisor.
    patient.now += 600.0;
    patient.on(Event::Unwatched { seconds: 600.0 });
    (521..=529).for_each(|column| patient.beats(&[("factor", column)]));
    assert_eq!(patient.stops(1), [""; 0]);
    patient.now += 1.0;
    assert_eq!(patient.stops(1), killed);
    // Two requests to stop kill the launcher at once.
    let mut hasty = Play::computing(options(), &[]);
    hasty.stops(1);
    assert_eq!(hasty.stops(2), killed);
    assert_eq!(hasty.ended("the launcher was killed by signal 9").len(), 1);
    assert_eq!(hasty.answers_but(&[]).last().unwrap(), "end 75");
}

#[test]
fn stop_request_is_handled_while_no_job_runs() {
    let stopped = |ill: &[&str]| {
        let mut play = Play::computing(options(), &["s1"]);
        play.ended("the launcher ended with code 1");
        play.answers_but(ill);
        play.stops(1)
    };
    for ill in [&[][..], &["n2"]] {
        assert_eq!(stopped(ill).last().unwrap(), "end 75", "{ill:?}");
    }
}

#[test]
fn a_job_that_cannot_start_is_given_up() {
    let mut play = Play::running(options(), &[]);
    for pause in [1.0, 2.0] {
        let lines = play.ended("the launcher ended with code 1");
        assert_eq!(lines[2], "CloseLines");
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3");
    }
    let why = "gave-up: giving up: the job gave no sign of life in 3 starts, with all nodes well";
    let lines = play.ended("the launcher ended with code 1");
    assert_eq!(lines[2..], [why, "Save", "Account", "end 2"]);
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
    assert_eq!(asked_again(killed).last().unwrap(), "end 2");
    assert_eq!(asked_again(given_up).last().unwrap(), "ask start n1 n2 n3 + , 1 may be silent");
}

#[test]
fn a_job_that_fails_too_often_is_given_up() {
    let mut play = Play::computing(options_with(|settings| settings.max_restarts = 2), &[]);
    for (column, pause) in [(600, 1.0), (700, 2.0)] {
        play.beats(&[("factor", column)]);
        play.ended("the launcher ended with code 1");
        play.answers_but(&[]);
        play.launches(pause, "n1 n2 n3 --resume require");
    }
    play.beats(&[("factor", 990)]);
    let lines = play.ended("the launcher ended with code 1");
    assert_eq!(lines[2], "gave-up: giving up: the job failed 3 times (--max-restarts 2)");
    assert_eq!(lines.last().unwrap(), "end 2");
}

#[test]
fn node_lost_after_the_complete_report_needs_no_restart() {
    let mut play = Play::computing(options(), &["s1"]);
    play.on(beat("reported", 1000, Some(0)));
    play.on(beat("clear", 1000, Some(0)));
    let lines = play.ended("the launcher ended with code 1");
    let message =
        "reported: the job was lost after its report was whole; its segments are removed now";
    assert_eq!(lines, [message, "ask clean n1 n2 n3 s1 + "]);
    let lines = play.answers_but(&["n2", "s1"]);
    assert!(lines[0].starts_with("unclean: n2, s1: not reached; segments left there"), "{lines:?}");
    assert_eq!(lines[1], "finished: the job is done, after 0 failure(s)");
    assert_eq!(lines.last().unwrap(), "end 0");
}

/// A run that is over, and the pool of nodes that are asked to remove its data.
fn asked_to_clean() -> (Play, Pool) {
    let mut play = Play::computing(options(), &[]);
    play.on(beat("done", 1000, Some(0)));
    play.ended("the launcher ended with code 0");
    let pool = play.asked.take().unwrap().pool;
    (play, pool)
}

#[test]
fn nodes_without_data_are_not_asked_to_remove_marks() {
    let (mut play, pool) = asked_to_clean();
    let lines = play.on(Event::Answers(survey(&pool, &[], 0)));
    assert_eq!(lines[0], "finished: the job is done, after 0 failure(s)");
}

#[test]
fn images_left_on_a_node_are_reported() {
    let (mut play, pool) = asked_to_clean();
    let mut survey = survey(&pool, &[], 0);
    survey.answers.get_mut("n2").unwrap().images_stay = Some("/scratch: read-only".into());
    let lines = play.on(Event::Answers(survey));
    assert_eq!(lines[0], "unclean: n2: images of the run stay there: /scratch: read-only");
    assert_eq!(lines[1], "finished: the job is done, after 0 failure(s)");
}

#[test]
fn launcher_that_outlives_its_job_is_killed() {
    let mut play = Play::computing(options(), &[]);
    play.on(beat("done", 1000, Some(0)));
    assert_eq!(play.tick_after(0.0), [""; 0]);
    assert_eq!(play.tick_after(10.0), [""; 0]);
    let why = "kill: the job is done, the launcher does not end: killing the launcher";
    assert_eq!(play.tick_after(0.1), [why, "Kill"]);
    assert_eq!(play.ended("the launcher was killed by signal 9"), ["ask clean n1 n2 n3 + "]);
}

#[test]
fn a_lost_state_folder_stops_no_job_that_runs() {
    let mut play = Play::computing(options(), &["s1"]);
    play.is_full = true;
    let lines = play.ended("the launcher ended with code 1");
    let warnings = lines.iter().filter(|line| line.contains("the job is watched on"));
    assert_eq!(warnings.count(), 1, "{lines:?}");
    assert_eq!(play.answers_but(&["n2"]).len(), 1, "told once");
    assert_eq!(play.tick_after(0.0), ["launch n1 s1 n3 --resume require"]);
    play.is_full = false;
    let launcher = play.decisions.state.supervisor.clone();
    let lines = play.on(Event::Launched(launcher));
    assert_eq!(lines, ["Save", "saved: the state is saved again"]);
}

#[test]
fn start_without_room_for_its_state_can_be_resumed() {
    let mut play = Play::computing(options(), &["s1"]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&[]);
    play.tick_after(1.0);
    let lines = play.on(Event::Unstarted(full_disk().into()));
    let why = "gave-up: giving up: cannot start the job again: state: full; make room there";
    assert_eq!(lines[0], why);
    assert_eq!(lines.last().unwrap(), "end 75");
    // The first start is refused.
    let mut play = Play::new(options(), state(&[]));
    play.on(Event::Begin);
    play.on(Event::NoJob { swept: 0 });
    play.answers_but(&[]);
    play.tick_after(0.0);
    assert_eq!(play.on(Event::Unstarted(full_disk().into())), ["end: state: full"]);
}

#[test]
fn a_state_folder_that_is_full_at_the_beginning_is_refused() {
    let mut play = Play::new(options(), state(&[]));
    play.is_full = true;
    play.on(Event::Begin);
    assert_eq!(play.on(Event::NoJob { swept: 0 }), ["Save", "end: state: full"]);
    // A supervisor that would continue a run is refused, too.
    let mut play = Play::new(options(), state(&[]));
    play.decisions.state.start = 3;
    play.is_full = true;
    play.on(Event::Begin);
    assert_eq!(play.on(Event::NoJob { swept: 0 }), ["Save", "end: state: full"]);
}

#[test]
fn job_that_refuses_its_input_is_given_up_at_once() {
    let mut play = Play::running(options(), &[]);
    play.on(beat("start", 0, Some(2)));
    let why = "gave-up: giving up: the job cannot run with these settings, see the message above; \
               data of earlier starts is kept";
    let lines = play.ended("the launcher ended with code 2");
    assert_eq!(lines, [why, "Save", "Tidy", "Save", "Account", "end 2"]);
    assert_eq!(play.decisions.state.status, Status::Finished, "other options may be given");
    let mut play = Play::computing(options(), &[]);
    play.on(beat("start", 0, Some(2)));
    assert_eq!(play.ended("").len(), 4);
    assert_eq!(play.decisions.state.status, Status::GaveUp);
}

#[test]
fn job_of_an_earlier_supervisor_is_adopted_or_has_ended() {
    let found = |runs| {
        let first = Play::computing(options(), &[]);
        let mut play = Play::new(options(), first.decisions.state);
        assert_eq!(play.on(Event::Begin), ["FindJob"]);
        (play.on(Event::Found { runs }), play)
    };
    let (lines, mut play) = found(true);
    assert_eq!(lines, ["found: start 1 of an earlier supervisor goes on"]);
    play.beats(&[("factor", 600)]);
    play.on(beat("done", 1000, Some(0)));
    assert_eq!(play.ended("the launcher ended unseen"), ["ask clean n1 n2 n3 + "]);
    let (lines, mut play) = found(false);
    assert_eq!(lines, ["found: start 1 of an earlier supervisor has ended"]);
    play.beats(&[("factor", 600)]);
    let lines = play.ended("the launcher ended unseen");
    assert!(lines[0].ends_with("factor at column 600: the launcher ended unseen"), "{lines:?}");
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
    assert_eq!(play.on(corruption("n2", 1, 3)), [""; 0]);
    assert_eq!(play.decisions.state.blamed["n2"].checks, 1);
    play.ended("the launcher ended unseen");
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.tick_after(40.0);
    let killed = &play.decisions.running.killed;
    assert_eq!(*killed, None, "nobody knows how long a start takes");
}

#[test]
fn failed_residual_in_any_start_decides_the_exit() {
    let mut play = Play::computing(options(), &["s1"]);
    let line = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= 9.7e+04 ...... FAILED\n";
    assert_eq!(play.on(Event::Report(line.into())), [format!("print {line}")]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    assert_eq!(
        play.on(Event::Report(b"a\nb\n".into())),
        ["print # start 1 ended here; what follows is the report of start 2\na\nb\n"]
    );
    assert_eq!(play.on(Event::Report(b"c\n".into())), ["print c\n"]);
    play.on(beat("done", 1000, Some(0)));
    play.ended("the launcher ended with code 0");
    play.answers_but(&[]);
    assert_eq!(play.answers_but(&[]).last().unwrap(), "end 1");
}

#[test]
fn unprintable_report_is_reported_again_at_the_end() {
    let mut play = Play::computing(options(), &[]);
    let source = io::Error::other("closed");
    assert_eq!(
        play.on(Event::Unprinted { source, file: "attempt-1.out".into() }),
        ["unprinted: standard output: closed; the report stays in attempt-1.out"]
    );
    assert_eq!(play.on(Event::Report(b"a\n".into())), [""; 0]);
    play.on(beat("done", 1000, Some(0)));
    play.ended("the launcher ended with code 0");
    play.answers_but(&[]);
    let lines = play.answers_but(&[]);
    assert_eq!(lines[1..], ["Save", "end: standard output: closed"], "the report's file stays");
}

#[test]
fn job_whose_output_cannot_be_read_is_killed() {
    let mut play = Play::computing(options(), &[]);
    assert_eq!(play.on(Event::Unread(full_disk().into())), ["Kill", "end: state: full"]);
}

#[test]
fn a_missing_agent_ends_the_run() {
    let mut play = Play::new(options(), state(&[]));
    play.on(Event::Begin);
    play.on(Event::NoJob { swept: 0 });
    let fault = Some(("ssh".to_owned(), io::Error::other("no such file")));
    let lines = play.on(Event::Answers(Survey { agent_fault: fault, ..Survey::default() }));
    assert!(lines[0].starts_with("end: cannot start ssh, which runs"), "{lines:?}");
}

#[test]
fn a_node_that_is_not_listed_any_more_is_replaced() {
    let pool = Pool::new(hosts(&["n1", "n3"]), hosts(&["s1"]));
    let mut play = Play::new(LaunchOptions { pool, ..options() }, state(&["s1"]));
    play.on(Event::Begin);
    play.on(Event::NoJob { swept: 0 });
    let message = "replaced: n2 is not listed any more; s1 takes its place";
    assert_eq!(play.answers_but(&[]), [message]);
    play.launches(0.0, "n1 s1 n3");
}

#[test]
fn warnings_and_leftovers_are_reported_once() {
    let mut play = Play::new(options(), state(&[]));
    play.on(Event::Begin);
    play.on(Event::NoJob { swept: 0 });
    let mut warned = survey(&play.asked.take().unwrap().pool, &["n3"], 0);
    for (index, answer) in warned.answers.values_mut().enumerate() {
        (answer.ended, answer.warnings) = (1 + index, vec!["swap".to_owned()]);
    }
    let copy = || Survey { answers: warned.answers.clone(), ..Survey::default() };
    let reported =
        ["ended: 3 rank(s) of the last start were left", "warning: warning: n1, n2: swap"];
    assert_eq!(play.on(Event::Answers(copy())), reported);
    play.launches(0.0, "n1 n2 n3");
    assert!(play.decisions.has_printed("warning: n1.cluster: swap\n"));
    assert!(!play.decisions.has_printed("warning: n1: no swap, but quota\n"));
    assert!(!play.decisions.has_printed("error: n1: swap\n"));
    play.ended("the launcher ended with code 1");
    assert_eq!(play.on(Event::Answers(copy()))[..1], reported[..1]);
}

/// A cluster that a script of numbers drives, and checks that hold whatever happens.
struct World {
    decisions: Decisions,
    now: f64,
    stops: usize,
    is_full: bool,
    /// What the supervisor waits for.
    pending: Pending,
    launcher: LauncherState,
    is_terminated: bool,
    /// Whether the present start begins from the seed, so that it finds nothing that it could
    /// refuse.
    is_fresh: bool,
    /// Nodes that were reported lost, and have not answered since.
    lost: BTreeSet<String>,
    starts: usize,
    /// Starts from the seed because more was lost than could be rebuilt.
    overs: usize,
    earliest_start: f64,
    has_account: bool,
    end: Option<Result<Exit, SupervisorError>>,
}

#[derive(Debug)]
enum Pending {
    Nothing,
    Job,
    Answers(Inquiry),
    Start,
}

#[derive(Debug, PartialEq)]
enum LauncherState {
    None,
    Runs,
    Killed,
}

impl World {
    /// A supervisor begins; if `is_second`, an earlier one has started a launcher.
    fn new(options: LaunchOptions, is_second: bool) -> Self {
        let mut state = state(&["s1", "s2"]);
        if is_second {
            (state.start, state.launcher) = (1, Some(state.supervisor.clone()));
        }
        let starts = usize::from(is_second);
        let mut world = World {
            decisions: Decisions::new(options, state),
            now: 1000.0,
            stops: 0,
            is_full: false,
            pending: Pending::Nothing,
            launcher: LauncherState::None,
            is_terminated: false,
            is_fresh: false,
            lost: BTreeSet::new(),
            starts,
            overs: 0,
            earliest_start: 0.0,
            has_account: false,
            end: None,
        };
        world.feed(Event::Begin);
        world
    }

    fn feed(&mut self, event: Event) {
        let is_unread = matches!(event, Event::Unread(_));
        let actions = self.decisions.on(self.now, event);
        let is_end = |action: &Action| matches!(action, Action::End(_));
        let end = actions.iter().position(is_end);
        assert!(end.is_none_or(|end| end + 1 == actions.len()), "{actions:?}");
        for action in actions {
            if self.end.is_none() {
                self.check(action, is_unread);
            }
        }
    }

    /// Carries out an action, which must be allowed.
    fn check(&mut self, action: Action, is_unread: bool) {
        assert!(matches!(self.pending, Pending::Nothing), "{action:?} in {:?}", self.pending);
        if let Action::Report(kind, text) = &action {
            self.overs += usize::from(*kind == "over");
            if *kind == "pause" {
                let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
                self.earliest_start = self.now + seconds;
            }
        }
        match action {
            Action::Report(..) | Action::Save if self.is_full => {
                self.feed(Event::Unsaved(full_disk()));
            }
            Action::Save => self.feed(Event::Saved),
            Action::Report(..) | Action::Message(_) | Action::Print(_) => {}
            Action::Tidy => assert_eq!(self.launcher, LauncherState::None),
            Action::CloseLines => {}
            Action::FindJob => self.pending = Pending::Job,
            Action::Ask(inquiry) => {
                let is_right = match inquiry.purpose {
                    Purpose::Check => self.launcher == LauncherState::Runs,
                    _ => self.launcher == LauncherState::None,
                };
                assert!(is_right, "{:?} {inquiry:?}", self.launcher);
                self.pending = Pending::Answers(inquiry);
            }
            Action::Launch(start) => {
                assert_eq!(self.launcher, LauncherState::None, "two launchers");
                let is_lost = |host: &&Host| self.lost.contains(&host.name);
                assert_eq!(start.hosts.iter().find(is_lost), None, "a lost node");
                assert_eq!(start.hosts.len(), 3);
                assert!(self.now >= self.earliest_start, "no pause");
                assert_eq!(self.stops, 0, "the user wants it to stop");
                self.starts += 1;
                self.is_terminated = false;
                let most = 1 + self.decisions.options.settings.max_restarts + self.overs;
                assert!(self.starts <= most, "{} starts", self.starts);
                self.is_fresh = start.resume == Some("never");
                self.pending = Pending::Start;
            }
            Action::Terminate => {
                assert!(!self.is_terminated && self.launcher != LauncherState::None);
                self.is_terminated = true;
            }
            Action::Kill => {
                assert_ne!(self.launcher, LauncherState::None);
                assert!(is_unread || self.launcher != LauncherState::Killed, "killed twice");
                self.launcher = LauncherState::Killed;
            }
            Action::Account => {
                assert!(!self.has_account && self.launcher == LauncherState::None);
                self.has_account = true;
            }
            Action::End(end) => {
                let state = &self.decisions.state;
                assert!(end.is_err() || (state.status != Status::Running && self.has_account));
                assert!(end.is_err() || (state.exit.is_some() && state.launcher.is_none()));
                assert!(
                    self.launcher == LauncherState::None || self.launcher == LauncherState::Killed
                );
                self.end = Some(end);
            }
        }
    }

    /// Takes the step that two numbers choose.
    fn step(&mut self, what: u8, how: u8) {
        if what < 4 {
            self.is_full = !self.is_full;
        }
        self.now += f64::from(how) / 8.0;
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Job if self.decisions.state.launcher.is_some() => {
                self.launcher = LauncherState::Runs;
                self.feed(Event::Found { runs: how.is_multiple_of(2) });
            }
            Pending::Job => self.feed(Event::NoJob { swept: usize::from(how % 2) }),
            Pending::Answers(inquiry) if what == 5 && self.launcher == LauncherState::None => {
                self.pending = Pending::Answers(inquiry);
                self.tick(false);
            }
            Pending::Answers(inquiry) => self.answer(&inquiry, what, how),
            Pending::Start if what == 255 => self.feed(Event::Unstarted(full_disk().into())),
            Pending::Start => {
                self.launcher = LauncherState::Runs;
                let launcher = self.decisions.state.supervisor.clone();
                self.feed(Event::Launched(launcher));
            }
            Pending::Nothing if self.launcher == LauncherState::None => self.tick(what == 255),
            Pending::Nothing => self.job_does(what, how),
        }
    }

    fn answer(&mut self, inquiry: &Inquiry, what: u8, how: u8) {
        if self.launcher == LauncherState::Runs && how.is_multiple_of(4) {
            return self.launcher_ends();
        }
        let mut survey = Survey::default();
        let asked = inquiry.pool.active.iter().chain(&inquiry.pool.spares);
        for (index, host) in asked.enumerate() {
            let is_spare = index >= inquiry.pool.active.len();
            let health = match (what >> index) & 1 == 1 && how.is_multiple_of(3) {
                true if is_spare && how.is_multiple_of(2) => Health::Unknown,
                true => Health::Ill("no answer".to_owned()),
                false => Health::Well,
            };
            match health {
                Health::Well => {
                    self.lost.remove(&host.name);
                    survey.answers.insert(host.name.clone(), answer());
                }
                Health::Ill(_) => drop(self.lost.insert(host.name.clone())),
                Health::Unknown => {}
            }
            survey.health.insert(host.name.clone(), health);
        }
        let place = |name: &str| ALL.iter().position(|other| *other == name).unwrap_or(0);
        let is_dead = |_: &str, to: &str| (what >> place(to)) & 1 == 1 && how.is_multiple_of(5);
        try_links(&mut survey, inquiry, is_dead);
        self.feed(Event::Answers(survey));
    }

    fn job_does(&mut self, what: u8, how: u8) {
        const PHASES: [&str; 8] =
            ["start", "generate", "factor", "commit", "stamp", "clear", "changed", "reported"];
        let (column, phase) = (usize::from(how) * 4, PHASES[usize::from(how % 8)]);
        match what {
            0..80 => self.feed(beat(phase, column, None)),
            80..90 => {
                let (host, checks) = (format!("n{}", how % 4), u64::from(how / 4 % 4));
                self.feed(corruption(&host, checks, checks));
            }
            90..110 => self.feed(beat("factor", column, None)),
            110..112 => self.feed(beat("reported", column, Some(how % 3))),
            112..116 if !self.is_fresh => self.feed(beat("refused", column, Some(2))),
            116..118 => self.feed(Event::Line(format!("  Peer host:  n{}\n", how % 4))),
            118..120 => {
                let line = format!("  Remote daemon: [[1,0],2] on node n{}\n", how % 4);
                self.feed(Event::Line(line));
            }
            120..124 => self.feed(Event::Report(b"line\n".into())),
            124..126 => {
                let source = io::Error::other("closed");
                self.feed(Event::Unprinted { source, file: "out".into() });
            }
            126 if how > 128 => self.feed(beat("start", 0, Some(2))),
            126 => self.feed(Event::Unread(full_disk().into())),
            127..190 => self.launcher_ends(),
            _ => self.tick(what == 255),
        }
    }

    fn tick(&mut self, is_stop: bool) {
        self.stops += usize::from(is_stop);
        self.feed(Event::Tick { stops: self.stops });
    }

    fn launcher_ends(&mut self) {
        self.launcher = LauncherState::None;
        self.feed(Event::Ended { how: "the launcher ended".to_owned(), succeeded: false });
    }

    /// Lets everything succeed until the run ends.
    fn finish(&mut self) {
        self.is_full = false;
        for _ in 0..20 {
            if self.end.is_some() {
                return;
            }
            match self.launcher {
                LauncherState::None => self.step(4, 254),
                _ => {
                    self.pending = Pending::Nothing;
                    self.feed(beat("done", 1000, Some(0)));
                    self.launcher_ends();
                }
            }
            self.now += 60.0;
        }
        panic!("no end in {:?}", self.decisions);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 10_000, ..Default::default() })]

    /// Whatever happens, there are never two launchers at a time. None starts while nodes are
    /// probed, before a killed one has ended, on a node that was reported lost and has not answered
    /// since, before its pause is over, when the user wants to stop, or beyond `--max-restarts`.
    /// And there is one end, with an account.
    #[test]
    fn invariants_hold_under_random_events(
        script in proptest::collection::vec((any::<u8>(), any::<u8>()), 0..120),
        max_restarts in 0usize..6,
        start_over in any::<bool>(),
        says_resume in any::<bool>(),
        is_second in any::<bool>(),
        replace_suspects in any::<bool>(),
    ) {
        let set = |settings: &mut LaunchSettings| {
            (settings.max_restarts, settings.start_over) = (max_restarts, start_over);
            settings.replace_suspects = replace_suspects;
        };
        let options = LaunchOptions { says_resume, ..options_with(set) };
        let mut world = World::new(options, is_second);
        for (what, how) in script {
            if world.end.is_some() {
                break;
            }
            world.step(what, how);
        }
        world.finish();
    }
}

/// The last of `lines` that contains `words`.
fn last_containing<'a>(lines: &'a [String], words: &str) -> &'a str {
    lines.iter().rfind(|line| line.contains(words)).unwrap_or_else(|| panic!("{lines:?}"))
}

#[test]
fn a_node_whose_link_is_dead_is_replaced_although_it_answers() {
    let mut play = Play::computing(options(), &["s1"]);
    play.on(Event::Line("  Remote daemon: [[47992,0],2] on node n3\n".into()));
    play.ended("the launcher ended with code 205");
    let replaced =
        "replaced: n3 its link is dead: 6 of 6 tries failed (no answer); s1 takes its place";
    assert_eq!(play.links_dead(&["n3"]), [replaced]);
    play.launches(0.0, "n1 n2 s1 --resume require");
}

#[test]
fn two_dead_links_are_replaced_at_once() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ended("the launcher ended with code 205");
    assert_eq!(play.links_dead(&["n1", "n3"]).len(), 2);
    play.launches(0.0, "s1 n2 s2 --resume require");
}

#[test]
fn silent_spares_are_probed_again_after_dead_links() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ended("the launcher ended with code 205");
    let lines = play.answers_without_spares(&["s1", "s2"], &["n1"]);
    assert_eq!(lines, ["ask start n1 n2 n3 + s1 s2, 2 may be silent"]);
    let asked = play.asked.as_ref().expect("nodes are asked again");
    assert_eq!(asked.lost, ["n1".to_owned()].into(), "whatever n1 answers, it needs a spare");
    assert_eq!(play.links_dead(&["n1"]).len(), 1);
    play.launches(0.0, "s1 n2 n3 --resume require");
}

#[test]
fn dead_link_is_found_during_silence_and_tried_once() {
    let mut play = Play::computing(options(), &["s1"]);
    assert!(play.tick_after(3.0)[0].starts_with("ask look "));
    let lines = play.links_dead(&["n2"]);
    assert!(lines[0].starts_with("kill: silence, and n2 is lost: its link is dead: "), "{lines:?}");
    play.ended("the launcher was killed by signal 9");
    assert_eq!(play.answers_but(&[]).len(), 1, "n2 is replaced");
    play.launches(0.0, "n1 s1 n3 --resume require");
}

#[test]
fn a_spare_whose_link_is_dead_takes_no_place() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.ended("the launcher ended with code 205");
    let lines = play.links_dead(&["n2", "s1"]);
    assert!(last_containing(&lines, "replaced: n2").ends_with("s2 takes its place"), "{lines:?}");
    assert_eq!(play.decisions.state.pool.out[0].host.name, "s1");
}

#[test]
fn first_start_with_too_few_spares_checks_the_link_test() {
    let begin = || {
        let mut play = Play::new(options(), state(&[]));
        play.on(Event::Begin);
        play.on(Event::NoJob { swept: 0 });
        let lines = play.links_dead(&["n2"]);
        assert!(
            last_containing(&lines, "warning: n2: its link is dead").ends_with("too few spares")
        );
        play.launches(0.0, "n1 n2 n3");
        play
    };
    // The start lives: the ranks have another way.
    let mut play = begin();
    play.beats(&[("start", 0), ("factor", 0)]);
    play.ended("the launcher ended with code 1");
    play.links_dead(&["n2"]);
    play.launches(1.0, "n1 n2 n3");
    // The start does not live.
    let mut play = begin();
    play.ended("the launcher ended with code 1");
    let lines = play.links_dead(&["n2"]);
    let why = last_containing(&lines, "giving up: n2 (its link is dead: ");
    assert!(why.contains("tries failed"), "{why}");
    assert_eq!(lines.last().unwrap(), "end 75");
}

#[test]
fn unexplained_failures_leave_nodes_out_in_turn() {
    let mut play = Play::running(options(), &["s1"]);
    let silent = "ORTE was unable to reliably start one or more daemons.\n";
    for trial in ["s1 n2 n3", "n1 s1 n3", "n1 n2 s1"] {
        play.on(Event::Line(silent.into()));
        play.ended("the launcher ended with code 1");
        assert_eq!(play.asked.as_ref().unwrap().pool.active, hosts(&NODES), "all are asked");
        let lines = play.answers_but(&[]);
        assert!(last_containing(&lines, "is left out on trial").contains("s1 takes its place"));
        play.launches(0.0, trial);
    }
    play.now += 1.0;
    let lines = play.on(beat("start", 0, None));
    assert_eq!(lines[0], "excluded: the job starts without n3, which stays out");
    assert_eq!(names(&play.decisions.state.pool.active), "n1 n2 s1");
    assert_eq!(play.decisions.state.pool.out[0].host.name, "n3");
}

/// A run that was stopped has no failure that shows which nodes were replaced.
#[test]
fn spare_without_data_is_known_after_a_stop() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.stops(1);
    play.ended("the launcher ended with code 143");
    play.answers_but(&[]);
    let mut next = Play::new(options(), play.decisions.state);
    next.on(Event::Begin);
    next.on(Event::NoJob { swept: 0 });
    next.answers_but(&["n2"]);
    next.launches(0.0, "n1 s1 n3 --resume require");
    let asked = next.ended("the launcher ended with code 1").pop();
    assert_eq!(asked.as_deref(), Some("ask start n1 s1 n3 + s2"), "none may be silent");
}

/// A spare that has taken a place has no data until a start has computed: it is one of the losses
/// that the checkpoint rebuilds, so that a node with data must not be left out as well.
#[test]
fn trials_leave_out_spares_without_data_before_nodes_with_data() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.ended("the launcher ended with code 1");
    play.answers_but(&["n2"]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    let mut fails = |trial: &str, pause_seconds: f64| {
        play.on(Event::Line("ORTE was unable to reliably start one or more daemons.\n".into()));
        let asked = play.ended("the launcher ended with code 1").pop();
        assert_eq!(asked.as_deref(), Some("ask start n1 s1 n3 + s2"), "none may be silent");
        let lines = play.answers_but(&[]);
        play.launches(pause_seconds, &format!("{trial} --resume require"));
        lines
    };
    let lines = fails("n1 s2 n3", 0.0);
    assert!(
        last_containing(&lines, "is left out on trial").starts_with("replaced: s1 "),
        "{lines:?}"
    );
    // That was in vain, and more cannot be left out: the nodes are tried as they are.
    assert_eq!(fails("n1 s1 n3", 1.0), ["pause: 1 s before the next start"]);
    play.now += 1.0;
    assert_eq!(play.on(beat("start", 0, None)), [""; 0], "no node stays out");
    play.beats(&[("factor", 512)]);
    // Its data is rebuilt.
    let asked = play.ended("the launcher ended with code 1").pop();
    assert_eq!(asked.as_deref(), Some("ask start n1 s1 n3 + s2, 1 may be silent"));
}

#[test]
fn a_spare_that_is_lost_in_a_trial_takes_no_place_in_the_next() {
    let mut play = Play::running(options(), &["s1", "s2"]);
    let mut fails = |ill: &[&str], trial: &str| {
        play.on(Event::Line("ORTE was unable to reliably start one or more daemons.\n".into()));
        play.ended("the launcher ended with code 1");
        play.answers_but(ill);
        play.launches(0.0, trial);
    };
    fails(&[], "s1 s2 n3");
    fails(&["s1"], "s2 n2 n3");
    fails(&[], "n1 s2 n3");
    let mut pool = play.decisions.state.pool.clone();
    let mut all: Vec<String> = pool.everyone().map(|host| host.name.clone()).collect();
    all.sort();
    assert_eq!(all, ["n1", "n2", "n3", "s1", "s2"], "each is there once");
    assert_eq!(pool.readmit(), ["s1", "n2"]);
}

#[test]
fn run_that_no_trial_helps_is_given_up() {
    let mut play = Play::running(options(), &["s1"]);
    for _ in 0..3 {
        play.now += 1000.0;
        assert!(
            last_containing(&play.tick_after(0.0), "kill: no sign of life for ")
                .starts_with("kill")
        );
        play.ended("the launcher was killed by signal 9");
        play.answers_but(&[]);
        assert!(play.tick_after(0.0)[0].starts_with("launch "));
        let launcher = play.decisions.state.supervisor.clone();
        play.on(Event::Launched(launcher));
    }
    play.now += 1000.0;
    play.tick_after(0.0);
    play.ended("the launcher was killed by signal 9");
    let lines = play.answers_but(&[]);
    assert!(
        last_containing(&lines, "giving up: no start gave a sign of life")
            .contains("left out in turn")
    );
    assert_eq!(lines.last().unwrap(), "end 2");
}

const ALL: [&str; 5] = ["n1", "n2", "n3", "s1", "s2"];

impl Play {
    /// All nodes answer, and their links cannot be tested.
    fn links_untested(&mut self) -> Vec<String> {
        self.links_dead(&ALL)
    }

    /// The launcher does not reach these nodes, and ends.
    fn ends_without(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.on(Event::Line(format!("  Remote daemon: [[47992,0],2] on node {node}\n")));
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
}

#[test]
fn suspicions_add_up_where_links_cannot_be_tested() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ends_without(&["n2"]);
    let lines = play.links_untested();
    let why = "is left out on trial: it is out of the launcher's reach";
    assert_eq!(lines, [format!("replaced: n2 {why}; s1 takes its place")]);
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.starts_in_vain("n3");
    assert!(play.tick_after(0.1)[0].starts_with("ask look "));
    let lines = play.links_untested();
    let killed = "a connection broke, and n3 is lost: out of the launcher's reach, although it \
                  answers the agent";
    assert_eq!(lines, [format!("kill: {killed}: killing the launcher"), "Kill".into()]);
    play.ended("the launcher was killed by signal 9");
    let lines = play.links_untested();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        last_containing(&lines, "replaced: n3"),
        format!("replaced: n3 {why}; s1 takes its place")
    );
    assert_eq!(
        last_containing(&lines, "replaced: n2"),
        format!("replaced: n2 {why}; s2 takes its place")
    );
    play.launches(0.0, "n1 s2 s1 --resume require");
    let lines = play.on(beat("start", 0, None));
    assert_eq!(lines[0], "excluded: the job starts without n2, n3, which stays out");
    play.beats(&[("factor", 512)]);
    // What was named before the job computed counts no more.
    play.ended("the launcher ended with code 1");
    assert_eq!(play.links_untested(), ["pause: 1 s before the next start"]);
}

#[test]
fn a_named_node_whose_link_is_alive_stays() {
    let mut play = Play::computing(options(), &["s1"]);
    play.ends_without(&["n2"]);
    assert_eq!(play.links_dead(&[]), ["pause: 1 s before the next start"]);
    play.launches(1.0, "n1 n2 n3 --resume require");
    // The test of links does not see what the launcher uses.
    play.starts_in_vain("n2");
    play.ended("the launcher ended with code 1");
    let lines = play.links_dead(&[]);
    assert!(lines[0].starts_with("replaced: n2 is left out on trial"), "{lines:?}");
    play.launches(0.0, "n1 s1 n3 --resume require");
}

#[test]
fn silent_spares_are_probed_again_for_trials() {
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1", "s2"]);
    play.ends_without(&["n2", "n3"]);
    let lines = play.answers_without_spares(&["s2"], &ALL);
    assert!(
        last_containing(&lines, "ask start n1 n2 n3 + s1 s2").contains("lost? n2 n3"),
        "{lines:?}"
    );
    assert_eq!(play.asked.as_ref().unwrap().leaving, ["n2".to_owned(), "n3".to_owned()].into());
    assert_eq!(play.links_untested().len(), 2);
    play.launches(0.0, "n1 s2 s1 --resume require");
}

#[test]
fn cut_off_nodes_beyond_the_spares_end_the_run_by_name() {
    // No spare at all: a link may be back soon, so that the same nodes are tried some times.
    let mut play = Play::computing(options(), &[]);
    play.ends_without(&["n2"]);
    for pause in [1.0, 2.0, 4.0] {
        play.links_untested();
        play.launches(pause, "n1 n2 n3 --resume require");
        play.starts_in_vain("n2");
        let lines = play.ended("the launcher ended with code 1");
        if pause == 4.0 {
            let why = last_containing(&lines, "giving up: n2: out of the launcher's reach");
            assert!(why.ends_with("answers the agent, and no spare node is left"), "{why}");
            assert_eq!(lines.last().unwrap(), "end 75");
        }
    }
    // A start that is slow is not killed for what an earlier one has named.
    let mut play = Play::computing(options(), &[]);
    play.ends_without(&["n2"]);
    play.links_untested();
    play.launches(1.0, "n1 n2 n3 --resume require");
    assert!(play.tick_after(15.0)[0].starts_with("ask look "));
    assert_eq!(play.links_untested(), [""; 0]);
    // Fewer spares than nodes that the launcher does not reach.
    let mut play = Play::computing(LaunchOptions { parities: 2, ..options() }, &["s1"]);
    play.ends_without(&["n2", "n3"]);
    play.links_untested();
    play.launches(0.0, "n1 n2 s1 --resume require");
    play.starts_in_vain("n2");
    play.ended("the launcher ended with code 1");
    play.links_untested();
    play.launches(0.0, "n1 s1 n3 --resume require");
    play.starts_in_vain("n3");
    play.ended("the launcher ended with code 1");
    let lines = play.links_untested();
    let why = last_containing(&lines, "giving up: n3, n2: out of the launcher's reach");
    assert!(why.ends_with("; spare nodes needed: 2, left: 1"), "{why}");
    assert_eq!(lines.last().unwrap(), "end 75");
}

#[test]
fn cut_off_nodes_beyond_the_parities_end_the_run_by_name() {
    let mut play = Play::computing(options(), &["s1", "s2"]);
    play.ends_without(&["n2", "n3"]);
    for (trial, named) in [("n1 n2 s1", "n2"), ("n1 s1 n3", "n3")] {
        play.links_untested();
        play.launches(0.0, &format!("{trial} --resume require"));
        play.starts_in_vain(named);
        play.ended("the launcher ended with code 1");
    }
    play.links_untested();
    // Images may have what the checkpoint lacks: the ranks decide.
    play.launches(0.0, "n1 s2 s1 --resume require");
    play.beats(&[("start", 0)]);
    play.on(beat("refused", 0, Some(2)));
    let lines = play.ended("the launcher ended with code 2");
    let why = last_containing(&lines, "giving up: more is lost than the checkpoint can rebuild");
    assert!(why.contains("n2 (is left out") && why.contains("n3 (is left out"), "{why}");
    assert_eq!(lines.last().unwrap(), "end 2");
    assert_eq!(names(&play.decisions.state.pool.active), "n1 n2 n3", "they may come back");
}

#[test]
fn stopped_rank_is_a_failure_and_suspended_job_is_none() {
    let probe = |stopped: usize| {
        let mut play = Play::computing(options(), &["s1"]);
        play.tick_after(2.0);
        let pool = play.asked.take().unwrap().pool;
        let mut survey = survey(&pool, &[], 4096);
        for (index, name) in NODES.iter().enumerate() {
            let answer = survey.answers.get_mut(*name).unwrap();
            (answer.ranks, answer.stopped) = (1, usize::from(index < stopped));
        }
        play.on(Event::Answers(survey)).join("; ")
    };
    assert!(
        probe(1).starts_with("kill: silence, and 1 of 3 ranks are stopped by a signal, one on n1")
    );
    assert_eq!(probe(3), "");
}

/// The nodes are asked repeatedly while it is suspended, and no silence adds up.
#[test]
fn a_job_that_is_suspended_for_long_is_not_hung() {
    let mut play = Play::computing(options(), &["s1"]);
    for stopped in (0..20).map(|probe| if probe < 19 { 3 } else { 0 }) {
        let asked = play.tick_after(9.0);
        assert!(asked[0].starts_with("ask look "), "{asked:?}");
        let pool = play.asked.take().unwrap().pool;
        let mut survey = survey(&pool, &[], 4096);
        for (index, name) in NODES.iter().enumerate() {
            let answer = survey.answers.get_mut(*name).unwrap();
            (answer.ranks, answer.stopped) = (1, usize::from(index < stopped));
        }
        let lines = play.on(Event::Answers(survey)).join("; ");
        assert!(!lines.contains("kill"), "{lines}");
    }
    // Once it continues, it may hang.
    assert!(play.tick_after(31.0)[0].starts_with("kill: no sign of life"));
}

impl Play {
    /// Rank `rank` that runs the user's program reports its end.
    fn rank_ends(&mut self, rank: usize, end: ProcessEnd) {
        let host = NODES[rank].to_owned();
        let end = RankEnd { token: String::new(), rank: Some(rank), host, end };
        assert_eq!(self.on(Event::RankEnded(end)), [""; 0]);
    }

    /// The program opens a run of the checkpoint library.
    fn opens(&mut self, run: &str) {
        let keeps = DataLocation { run_id: run.into(), store: "posix".into(), images: vec![] };
        let Event::Heartbeat(open) = beat("open", 0, None) else { unreachable!() };
        self.on(Event::Heartbeat(Heartbeat { keeps: Some(keeps), ..open }));
    }

    /// A supervisor whose program, which uses the library, has completed checkpoint 5.
    fn for_program(spares: &[&str]) -> Self {
        let mut play = Play::running(options_of_program(true), spares);
        play.beats(&[("start", 0), ("open", 0), ("compute", 0)]);
        play.beats(&[("checkpoint", 4), ("compute", 5)]);
        play
    }
}

#[test]
fn a_program_is_done_when_all_its_ranks_are() {
    let mut play = Play::for_program(&["s1"]);
    (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
    assert_eq!(play.ended("the launcher ended with code 1"), ["ask clean n1 n2 n3 s1 + "]);
    // A launcher that returns 0 shows nothing about a program.
    let mut play = Play::for_program(&["s1"]);
    let lines = play.on(Event::Ended { how: "it ended".into(), succeeded: true }).join("|");
    assert!(lines.contains("failure: start 1 failed in phase compute at checkpoint 5"), "{lines}");
    assert!(lines.ends_with("ask start n1 n2 n3 + s1, 1 may be silent"), "{lines}");
}

#[test]
fn program_that_refuses_its_input_is_not_restarted() {
    let mut play = Play::running(options_of_program(true), &["s1"]);
    play.beats(&[("start", 0)]);
    play.rank_ends(0, ProcessEnd::Code(3));
    let lines = play.ended("the launcher ended with code 3").join("|");
    assert!(lines.contains("rank 0 on n1 ended with code 3; the launcher ended with"), "{lines}");
    assert!(lines.ends_with("ask start n1 n2 n3 + s1, 1 may be silent"), "{lines}");
    let lines = play.answers_but(&[]).join("|");
    assert!(lines.contains("giving up: rank 0 on n1 ended with code 3, and all nodes"), "{lines}");
    assert!(lines.ends_with("end 3"), "{lines}");
    assert_eq!(play.decisions.state.exit, Some(3));
}

#[test]
fn launcher_that_keeps_the_other_ranks_is_ended() {
    for (end, last) in [(ProcessEnd::Code(3), "end 3"), (ProcessEnd::Signal(9), "next start")] {
        let mut play = Play::for_program(&["s1"]);
        play.rank_ends(0, end);
        assert_eq!(play.tick_after(0.5), [""; 0]);
        let killed = play.tick_after(10.5);
        assert!(killed[0].starts_with("kill: a rank has ended, the launcher does"), "{killed:?}");
        assert_eq!((&killed[1..], play.tick_after(30.0)), (&["Kill".to_owned()][..], vec![]));
        play.ended("the launcher was killed by signal 9");
        let lines = play.answers_but(&[]).join("|");
        assert!(lines.ends_with(last), "{lines}");
    }
}

#[test]
fn a_lost_node_explains_any_code_of_a_program() {
    let mut play = Play::for_program(&["s1"]);
    play.rank_ends(0, ProcessEnd::Code(14));
    play.ended("the launcher ended with code 14");
    assert_eq!(play.answers_but(&["n2"]), ["replaced: n2 no answer; s1 takes its place"]);
    play.launches(0.0, "n1 s1 n3");
    // Reports of that start count no more.
    let lines = play.ended("the launcher ended with code 1").join("|");
    assert!(lines.contains("ask start") && !lines.contains("code 14"), "{lines}");
    assert_eq!(play.answers_but(&[]), ["pause: 1 s before the next start"]);
}

#[test]
fn program_with_a_killed_rank_or_restart_code_is_restarted() {
    for end in [ProcessEnd::Signal(9), ProcessEnd::Code(75)] {
        let mut play = Play::for_program(&["s1"]);
        play.rank_ends(1, end);
        play.rank_ends(2, ProcessEnd::Code(3));
        play.ended("the launcher ended with code 137");
        assert_eq!(play.answers_but(&[]), ["pause: 1 s before the next start"]);
        play.launches(1.0, "n1 n2 n3");
        let failure = &play.decisions.state.failures[0];
        assert!(failure.how.starts_with("rank 1 on n2 "), "{failure:?}");
        play.beats(&[("start", 0), ("open", 0)]);
        play.now += 0.5;
        let computes = "computing: computing again at checkpoint 5, 3.50 s after detection";
        assert_eq!(play.on(beat("compute", 5, None)), [computes]);
    }
}

#[test]
fn program_without_checkpoints_between_failures_is_given_up() {
    let mut play = Play::for_program(&[]);
    for (start, pause_seconds) in [(1, 1.0), (2, 2.0), (3, 4.0)] {
        play.rank_ends(1, ProcessEnd::Signal(11));
        let lines = play.ended("the launcher ended with code 139").join("|");
        if start == 3 {
            let why = "giving up: the job failed 3 times at checkpoint 5, with all nodes well";
            assert!(lines.contains(why) && lines.ends_with("end 2"), "{lines}");
            return;
        }
        play.answers_but(&[]);
        play.launches(pause_seconds, "n1 n2 n3");
        play.beats(&[("start", 0), ("open", 0), ("compute", 5)]);
    }
}

#[test]
fn program_that_fails_after_its_report_ends_with_its_code() {
    let killed = Some(ProcessEnd::Signal(11));
    for (end, stops, code, how) in [
        (killed.clone(), 0, 139, "rank 0 on n1 was killed by signal 11"),
        (killed, 1, 139, "rank 0 on n1 was killed by signal 11"),
        (Some(ProcessEnd::Code(3)), 0, 3, "rank 0 on n1 ended with code 3"),
        (Some(ProcessEnd::Code(75)), 0, 75, "rank 0 on n1 ended with code 75"),
        (
            None,
            0,
            2,
            "1 of 3 ranks have not told how they ended: a node is lost, or the launcher has ended them",
        ),
        (
            None,
            1,
            75,
            "1 of 3 ranks have not told how they ended: a node is lost, or the launcher has ended them",
        ),
    ] {
        let mut play = Play::for_program(&["s1"]);
        play.beats(&[("reported", 9)]);
        play.on(Event::Tick { stops });
        (1..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
        end.into_iter().for_each(|end| play.rank_ends(0, end));
        let lines = play.ended("the launcher ended with code 1").join("|");
        assert!(lines.contains("failure: start 1 failed in phase reported at"), "{lines}");
        assert!(lines.ends_with("ask clean n1 n2 n3 s1 + "), "{lines}");
        assert_eq!(play.answers_but(&[]), ["ask forget n1 n2 n3 s1 + "]);
        let lines = play.answers_but(&[]).join("|");
        let last = format!("Account|finished: exit code {code}: {how}, after the program had said");
        assert!(lines.contains(&last) && !lines.contains("is done"), "{lines}");
        assert!(lines.ends_with(&format!("|end {code}")), "{lines}");
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
        play.ended("the launcher ended with code 137");
        play.answers_but(&[]);
        play.launches(1.0, "n1 n2 n3");
        // What was reported before the loss is computed again.
        play.opens(runs[0]);
        play.beats(&[("compute", 0), ("reported", 9)]);
        play.rank_ends(1, ProcessEnd::Signal(9));
        play.ended("the launcher ended with code 137").join("|")
    };
    for runs in [&["plate", "rod"][..], &["plate", "plate", "rod"]] {
        let lines = reports(runs);
        assert!(lines.ends_with("ask start n1 n2 n3 + s1, 1 may be silent"), "{lines}");
    }
    let lines = reports(&["plate"]);
    assert!(lines.ends_with("ask clean n1 n2 n3 s1 + "), "{lines}");
    // Two runs of one name, one after the other.
    let mut play = Play::for_program(&["s1"]);
    play.beats(&[("reported", 9), ("open", 0), ("compute", 0), ("reported", 9)]);
    play.rank_ends(1, ProcessEnd::Signal(9));
    let lines = play.ended("the launcher ended with code 137").join("|");
    assert!(lines.ends_with("ask start n1 n2 n3 + s1, 1 may be silent"), "{lines}");
}

#[test]
fn a_program_that_ends_with_0_without_a_report_leaves_its_data() {
    let mut play = Play::for_program(&["s1"]);
    play.opens("plate");
    play.beats(&[("compute", 0), ("checkpoint", 4), ("compute", 5)]);
    (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
    let lines = play.ended("the launcher ended with code 0").join("|");
    assert!(lines.contains("the data of run plate stays on its nodes"), "{lines}");
    assert!(!lines.contains("ask clean") && lines.ends_with("end 0"), "{lines}");
}

#[test]
fn program_out_of_time_is_left_to_the_next_command() {
    let mut play = Play::for_program(&["s1"]);
    play.beats(&[("time-up", 5)]);
    play.rank_ends(0, ProcessEnd::Code(75));
    assert_eq!(play.ended("it ended"), ["ask start n1 n2 n3 + s1, 1 may be silent"]);
    let lines = play.answers_but(&[]).join("|");
    assert!(lines.contains("stopped: stopped; start the same command again"), "{lines}");
    assert!(lines.ends_with("end 75"), "{lines}");
}

#[test]
fn program_that_exits_0_on_a_stop_request_keeps_its_data() {
    let keeps = DataLocation { run_id: "plate".into(), store: "posix".into(), images: vec![] };
    let stopped = |keeps: Option<&DataLocation>, last: &str, is_stop: bool| {
        let mut play = Play::for_program(&["s1"]);
        play.decisions.state.keeps = keeps.cloned();
        play.beats(&[(last, 5)]);
        if is_stop {
            play.stops(1);
        } else {
            play.decisions.state.is_time_up = true;
        }
        (0..3).for_each(|rank| play.rank_ends(rank, ProcessEnd::Code(0)));
        play.ended("the launcher ended with code 0").join("|")
    };
    for is_stop in [false, true] {
        let lines = stopped(Some(&keeps), "compute", is_stop);
        assert_eq!(lines, "ask start n1 n2 n3 + s1, 1 may be silent");
        for lines in [stopped(Some(&keeps), "reported", is_stop), stopped(None, "compute", is_stop)]
        {
            assert_eq!(lines, "ask clean n1 n2 n3 s1 + ");
        }
    }
}

#[test]
fn program_out_of_time_between_starts_is_not_restarted() {
    let mut play = Play::for_program(&["s1"]);
    play.rank_ends(1, ProcessEnd::Signal(9));
    play.ended("the launcher ended with code 137");
    assert_eq!(play.answers_but(&[]), ["pause: 1 s before the next start"]);
    play.decisions.state.is_time_up = true;
    let lines = play.tick_after(0.1).join("|");
    assert!(lines.contains("start the same command again") && lines.ends_with("end 75"), "{lines}");
    // The next command has its own time limit.
    let mut next = Play::new(options_of_program(true), play.decisions.state);
    next.on(Event::Begin);
    next.on(Event::NoJob { swept: 0 });
    assert!(!next.decisions.state.is_time_up);
}

#[test]
fn program_without_heartbeats_is_never_considered_hung() {
    let mut play = Play::running(options_of_program(true), &["s1"]);
    play.beats(&[("start", 0)]);
    let mut probes = 0;
    for _ in 0..1000 {
        let lines = play.tick_after(1000.0);
        assert!(lines.iter().all(|line| line.starts_with("ask look ")), "{lines:?}");
        probes += lines.len();
        if !lines.is_empty() {
            assert_eq!(play.answers_but(&[]), [""; 0]);
        }
    }
    assert!(probes > 5, "its nodes are looked at: {probes}");
    // The loss of a node is still detected.
    while play.tick_after(1000.0).is_empty() {}
    let lines = play.answers_but(&["n3"]).join("|");
    assert!(lines.contains("silence, and n3 is lost"), "{lines}");
}

#[test]
fn data_location_of_a_program_is_the_reported_one() {
    let mut play = Play::running(options_of_program(true), &[]);
    assert_eq!(play.decisions.state.keeps, None);
    let keeps = DataLocation { run_id: "plate".into(), store: "posix".into(), images: vec![] };
    play.opens("plate");
    play.beats(&[("compute", 0)]);
    assert_eq!(
        (&play.decisions.state.run_id[..], &play.decisions.state.keeps),
        ("plate", &Some(keeps))
    );
}
