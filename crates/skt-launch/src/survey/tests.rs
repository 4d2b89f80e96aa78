//! Tests of surveys on shell scripts that answer as nodes do.

use std::fs;
use std::path::Path;

use super::*;
use crate::tests::{answer, with_bytes};

fn pool(active: &[&str], spares: &[&str]) -> Pool {
    let hosts = |names: &[&str]| {
        names.iter().map(|name| Host { name: (*name).to_owned(), slots: 2 }).collect()
    };
    Pool::new(hosts(active), hosts(spares))
}

fn sh(script: &str) -> Vec<String> {
    vec!["/bin/sh".into(), "-c".into(), script.to_owned()]
}

fn print_answer(answer: &Answer) -> String {
    format!("echo Welcome!; printf '%s' '{}'", answer.line())
}

/// A node that is well, and one that never answers.
fn well() -> Vec<String> {
    sh(&print_answer(&answer()))
}

fn silent() -> Vec<String> {
    sh("sleep 1000")
}

type Agent<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// Before a start: the loss of one node can be made up for.
fn before_start(pool: Pool) -> Inquiry {
    Inquiry { spare_losses: 1, pool, ..Inquiry::default() }
}

/// While the job runs.
fn check(pool: Pool) -> Inquiry {
    Inquiry { purpose: Purpose::Check, pool, ..Inquiry::default() }
}

/// A survey by new lines to all nodes.
fn survey(inquiry: &Inquiry, agent: Agent, each: Duration) -> Survey {
    changed_round(&mut IdleLines::default(), inquiry, agent, each, |round| round.run(&mut || false))
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
    changed_round(lines, &check(pool.clone()), agent, LONG, |mut round| {
        round.patience = patience;
        round.run(&mut || false)
    })
}

/// What is wrong with a node, or else its health.
fn health(found: &Survey, name: &str) -> String {
    match found.health(name) {
        Health::Ill(why) => why,
        other => format!("{other:?}"),
    }
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
    let with = |answer: Answer| sh(&print_answer(&answer));
    let reach = |name: &str| match name {
        "n1" => well(),
        "n2" => sh("echo no route >&2; exit 255"),
        "n3" => sh("exit 3"),
        "n4" => with(Answer { version: "0.0.1".into(), ..answer() }),
        "n6" => with(Answer { program: 1, ..answer() }),
        _ => with(Answer { no_store: Some("none".into()), ..answer() }),
    };
    let nodes = pool(&["n1", "n2", "n3", "n4", "n5", "n6"], &[]);
    let found = survey(&before_start(nodes), &reach, LONG);
    for (name, want) in [
        ("n1", "Well"),
        ("n2", "probe: exit status: 255; no route"),
        ("n3", "probe: exit status: 3; no answer at all: does skt-hpl run there?"),
        ("n4", "has version 0.0.1 of skt-hpl, not "),
        ("n5", "has no shared memory for us: none"),
        ("n6", "has another build of skt-hpl"),
        ("n7", "Unknown"),
    ] {
        let health = health(&found, name);
        assert!(health.starts_with(want), "{name}: {health}");
    }
    // A missing agent is no fault of the nodes.
    let reach = |_: &str| vec!["/nonexistent/ssh".to_owned()];
    let found = survey(&before_start(pool(&["n1", "n2"], &[])), &reach, LONG);
    assert_eq!(found.health("n1"), Health::Unknown);
    let why = found.agent_fault.unwrap();
    assert!(why.starts_with("cannot start /nonexistent/ssh, which runs commands"), "{why}");
    assert!(why.contains("No such file"), "{why}");
    // A spare needs memory for the segments that it rebuilds.
    let reach = |name: &str| match name {
        "n1" => with(Answer { store: with_bytes(1 << 30), available_bytes: 5, ..answer() }),
        _ => with(Answer { available_bytes: (1 << 30) - 1, ..answer() }),
    };
    let mut nodes = pool(&["n1", "s1"], &[]);
    nodes.active.iter_mut().for_each(|host| host.slots = 1);
    let found = survey(&before_start(nodes), &reach, LONG);
    assert_eq!(health(&found, "n1"), "Well");
    assert_eq!(health(&found, "s1"), "1073741823 B of 1073741824 B of memory are available");
}

/// This machine lacks processes or file descriptors: it asks fewer nodes at once.
#[test]
fn nodes_are_probed_later_if_no_more_lines_can_be_opened() {
    let inquiry = before_start(pool(&["n1", "n2", "n3", "n4"], &["s1"]));
    let calls = std::cell::Cell::new(0);
    let sometimes = |argv: &[String], is_kept| {
        calls.set(calls.get() + 1);
        match calls.get() % 3 {
            0 => Err(Errno::EMFILE.into()),
            _ => Line::open(argv, is_kept),
        }
    };
    let found = |open: &dyn Fn(&[String], bool) -> io::Result<Line>, each| {
        changed_round(&mut IdleLines::default(), &inquiry, &|_| well(), each, |round| {
            ProbeRound { open, ..round }.run(&mut || false)
        })
    };
    let all = found(&sometimes, LONG);
    assert!(all.agent_fault.is_none(), "{:?}", all.agent_fault);
    for host in &inquiry.pool.active {
        assert_eq!(all.health(&host.name), Health::Well, "{}", host.name);
    }
    // Where there is never room for one, that is reported.
    let none = found(&|_, _| Err(Errno::EMFILE.into()), Duration::ZERO);
    assert!(none.agent_fault.is_some());
}

/// Nodes that are late hold up no others, unless this machine has no room for more lines: then they
/// are silent.
#[test]
fn silent_nodes_wait_together() {
    let names: Vec<String> = (0..AT_ONCE + 2).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let inquiry = Inquiry { pool: pool(&names, &[]), ..Inquiry::default() };
    let reach = |name: &str| if name == "n0" { well() } else { silent() };
    for (room, at_least) in [(usize::MAX, 0), (AT_ONCE, 1)] {
        let (opened, begun) = (std::cell::Cell::new(0), Instant::now());
        let open = |argv: &[String], is_kept| {
            opened.set(opened.get() + 1);
            Line::open(argv, is_kept)
        };
        let mut is_over = || opened.get() == names.len() || begun.elapsed() > LONG / 10;
        let found = changed_round(&mut IdleLines::default(), &inquiry, &reach, LONG, |round| {
            ProbeRound { open: &open, room, ..round }.run(&mut is_over)
        });
        assert_eq!(opened.get(), names.len(), "all are asked");
        let is_ill = |name: &&&str| matches!(found.health(name), Health::Ill(_));
        assert!(names.iter().filter(is_ill).count() >= at_least);
    }
}

/// Most of thousands of nodes are not asked at once: those are not silent.
#[test]
fn a_node_that_was_not_asked_yet_is_not_silent() {
    let inquiry = before_start(pool(&["n1", "n2", "n3"], &[]));
    let reach = |_: &str| unreachable!("no node is asked");
    changed_round(&mut IdleLines::default(), &inquiry, &reach, LONG, |mut round| {
        round.begun = Instant::now() - Duration::from_secs(100);
        round.outcomes.insert("n1".to_owned(), Outcome::Answer(Box::new(answer()), false));
        round.try_silent();
        assert!(round.gone.is_none());
    });
}

#[test]
fn line_is_kept_unless_it_stops_answering() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, deaf) = (folder.path().join("kept"), folder.path().join("deaf"));
    let openings = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    let reach = |name: &str| match name {
        "n1" => sh(&answers_all(&kept)),
        // Only the first of its lines does not read a second question.
        _ if !deaf.exists() => {
            sh(&format!("touch {}; {}; sleep 1000", deaf.display(), print_answer(&answer())))
        }
        _ => sh(&answers_all(&deaf)),
    };
    let mut lines = IdleLines::default();
    let (soon, late) = (Duration::from_millis(100), LONG);
    for (names, purpose, renew_after) in [
        (&["n1", "n2"][..], Purpose::Start, late),
        (&["n2"], Purpose::Check, soon),
        (&["n1", "n2"], Purpose::Start, late),
        (&["n1"], Purpose::Check, late),
        (&["n2"], Purpose::Check, late),
    ] {
        let inquiry = Inquiry { purpose, pool: pool(names, &[]), ..Inquiry::default() };
        let found = changed_round(&mut lines, &inquiry, &reach, LONG, |mut round| {
            round.renew_after = renew_after;
            round.run(&mut || false)
        });
        let is_well = |name: &&str| found.health(name) == Health::Well;
        assert!(names.iter().all(is_well), "{names:?} {purpose}");
    }
    assert_eq!((openings(&kept), openings(&deaf)), (1, 1));
}

#[test]
fn spare_of_a_lost_node_that_answers_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let has_answered = folder.path().join("n2").display().to_string();
    let print = print_answer(&answer());
    let reach = |name: &str| match name {
        "s1" => sh("exit 3"),
        "s2" => {
            sh(&format!("until [ -e {has_answered} ]; do sleep 0.05; done; sleep 0.3; {print}"))
        }
        "n2" => sh(&format!("{print}; touch {has_answered}")),
        _ => well(),
    };
    let inquiry = before_start(pool(&["n1", "n2"], &["s1", "s2"]));
    let inquiry = Inquiry { lost: ["n2".to_owned()].into(), ..inquiry };
    let found = survey(&inquiry, &reach, LONG);
    assert_eq!((found.health("n2"), found.health("s2")), (Health::Well, Health::Well));
    assert!(found.slowest >= Duration::from_millis(300), "{:?}", found.slowest);
}

/// Whether a survey continues without the silent nodes: `well` have answered, the slowest after
/// 100 s (a kept line) and 200 s (a new one), and the silent ones were asked `waited_seconds` ago.
#[test]
fn parities_and_spares_limit_the_wait_for_silent_nodes() {
    let start = before_start(pool(&["n1", "n2", "n3"], &["s1", "s2"]));
    let suspect = Inquiry { suspects: vec!["n2".to_owned()], ..start.clone() };
    let both = Inquiry { spare_losses: 2, ..suspect.clone() };
    let check = check(pool(&["n1", "n2", "n3"], &[]));
    let all_but_one = &["n1", "n3", "s1"][..];
    let two_silent = &["n1", "s1", "s2"][..];
    for (inquiry, well, waited_seconds, is_over, why) in [
        (&start, all_but_one, 380, false, "twice the slowest answer"),
        (&start, all_but_one, 420, true, "one spare is enough"),
        (&start, two_silent, 100_000, false, "one can be rebuilt"),
        (&start, &["n1", "n3"], 100_000, false, "no spare takes its place"),
        (&start, &["n1", "n2", "n3"], 0, true, "spares are not needed"),
        (&suspect, all_but_one, 80, false, "as long as the others took"),
        (&suspect, all_but_one, 120, true, "the 200 s of new lines do not count"),
        (&both, two_silent, 380, false, "n3 is no suspect"),
        (&both, two_silent, 420, true, "n3 has had its time"),
        (&check, &["n1"], 380, false, "a quick probe is as patient"),
        (&check, &["n1"], 420, true, "two are lost"),
        (&check, &["n1", "n3"], 380, false, "a quick probe is as patient"),
        (&check, &["n1", "n3"], 420, true, "one is lost"),
        (&check, &[], 100_000, false, "no node has answered"),
    ] {
        let reach = |_: &str| unreachable!("no node is asked");
        changed_round(&mut IdleLines::default(), inquiry, &reach, LONG, |mut round| {
            round.begun = Instant::now() - Duration::from_secs(waited_seconds);
            round.slowest = Duration::from_secs(100);
            round.slowest_opening = Duration::from_secs(200);
            let answer = || Outcome::Answer(Box::new(answer()), false);
            round.outcomes = well.iter().map(|name| ((*name).to_owned(), answer())).collect();
            assert_eq!(round.is_enough(), is_over, "{why}");
        });
    }
}

#[test]
fn a_kept_line_answers_where_a_new_one_to_a_suspect_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let reach = |name: &str| {
        let opened = folder.path().join(name);
        let wait = if name == "n2" && opened.exists() { "sleep 1000" } else { "sleep 0.3" };
        let answers = if name == "n2" { print_answer(&answer()) } else { answers_all(&opened) };
        sh(&format!("{wait}; echo opened >> {}; {answers}", opened.display()))
    };
    let mut lines = IdleLines::default();
    let mut ask = |inquiry: &Inquiry| {
        changed_round(&mut lines, inquiry, &reach, LONG, |round| round.run(&mut || false))
    };
    let first = Inquiry { pool: pool(&["n1", "n2"], &["s1"]), ..Inquiry::default() };
    assert_eq!(ask(&first).health("n2"), Health::Well);
    let found = ask(&Inquiry { spare_losses: 1, suspects: vec!["n2".to_owned()], ..first });
    let broke = "after all others had answered, and a connection to it broke";
    assert!(health(&found, "n2").ends_with(broke));
    assert_eq!(found.health("s1"), Health::Well);
    // An answer on the line that was kept counts, too.
    assert!(found.slowest >= Duration::from_millis(300), "{:?}", found.slowest);
}

#[test]
fn silence_is_no_fault_after_the_job_has_ended() {
    let reach = |name: &str| if name == "n2" { silent() } else { well() };
    let check = check(pool(&["n1", "n2"], &[]));
    let mut lines = IdleLines::default();
    let found = changed_round(&mut lines, &check, &reach, LONG, |round| round.run(&mut || true));
    assert_eq!(found.health("n2"), Health::Unknown);
}

/// Spares that are not needed are not waited for.
#[test]
fn single_silent_nodes_are_lost_before_their_limit() {
    let reach = |name: &str| if ["n2", "n3"].contains(&name) { silent() } else { well() };
    let found = survey(&before_start(pool(&["n1", "n2"], &["s1"])), &reach, LONG);
    let why = health(&found, "n2");
    assert!(why.contains("no answer in") && !why.contains("no answer in 600"), "{why}");
    let all = before_start(pool(&["n1", "n2", "n3"], &["s1", "s2"]));
    let why = health(&survey(&all, &reach, Duration::from_secs(3)), "n2");
    assert!(why.starts_with("no answer in ") && !why.contains(','), "{why}");
    let found = survey(&before_start(pool(&["n1", "n4"], &["n3"])), &reach, LONG);
    assert_eq!(found.health("n3"), Health::Unknown);
}

#[test]
fn quick_probe_ends_at_the_first_ill_or_only_silent_node() {
    let reach = |name: &str| match name {
        "n2" => sh("sleep 0.2; echo no route >&2; exit 255"),
        "n3" | "s1" => silent(),
        _ => well(),
    };
    for (active, patience, name, want) in [
        (&["n1", "n2"][..], LONG, "n2", "probe: exit status: 255; no route"),
        (&["n1", "n3"], Duration::from_millis(300), "n3", "no answer in "),
        // Its time is not up.
        (&["n1", "n3", "n2"], LONG, "n3", "Unknown"),
        (&["n1", "n4"], LONG, "n4", "Well"),
    ] {
        let found = probe(&mut IdleLines::default(), &pool(active, &["s1"]), &reach, patience);
        assert_eq!(found.health("s1"), Health::Unknown, "spares are not asked");
        let health = health(&found, name);
        assert!(health.starts_with(want) && !health.contains("no answer in 600"), "{health}");
    }
}

/// The agent's own fault here, such as a certificate that has expired, is no loss of a node.
#[test]
fn agent_that_reaches_no_node_is_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let opened = folder.path().join("opened");
    let pool = pool(&["n1", "n2", "n3"], &["s1"]);
    let refuses = |_: &str| sh("echo no ticket >&2; exit 255");
    let found = probe(&mut IdleLines::default(), &pool, &refuses, LONG);
    for host in &pool.active {
        assert_eq!(found.health(&host.name), Health::Unknown, "{}", host.name);
    }
    // Two nodes answer by the lines that are kept; the line to the third breaks.
    let probe_again = |agent: Agent| {
        let mut lines = IdleLines::default();
        let before = |name: &str| if name == "n2" { well() } else { sh(&answers_all(&opened)) };
        probe(&mut lines, &pool, &before, LONG);
        probe(&mut lines, &pool, agent, LONG)
    };
    let found = probe_again(&refuses);
    assert_eq!((found.health("n2"), found.health("n1")), (Health::Unknown, Health::Well));
    // Another node is reached by a new line at the same time.
    let refused = "echo connection refused >&2; exit 255";
    let found = probe_again(&|name| if name == "n2" { sh(refused) } else { well() });
    assert!(health(&found, "n2").contains("refused"));
}

/// The links are tried in the same survey, by the nodes that have answered well.
#[test]
fn well_nodes_try_their_links_once_they_have_answered() {
    let asked = std::cell::RefCell::new(Vec::new());
    let reach = |name: &str, purpose: Purpose, partners: &[Partner]| {
        let partners: Vec<String> = partners.iter().map(ToString::to_string).collect();
        asked.borrow_mut().push(format!("{name} {purpose} {}", partners.join(" ")));
        if name == "n2" { sh("exit 3") } else { well() }
    };
    let networks = Networks::default();
    let limits = Limits { each: LONG, rank_bytes: 0, program: None, networks: &networks };
    let start = Inquiry { tries_links: true, ..before_start(pool(&["n1", "n2", "n3"], &["s1"])) };
    let check = Inquiry { purpose: Purpose::Check, ..start.clone() };
    for (inquiry, links, want) in [
        (start.clone(), Some(3), "n1 links n3 s1; n3 links s1 n1; s1 links n1 n3"),
        (
            Inquiry { lost: ["n3".to_owned()].into(), ..start.clone() },
            Some(2),
            "n1 links s1; s1 links n1",
        ),
        (Inquiry { tries_links: false, ..start }, None, ""),
        // While the job runs, the loss of n2 explains its silence, and spares are not asked.
        (check.clone(), None, ""),
        (
            Inquiry { pool: pool(&["n1", "n3"], &["s1"]), ..check },
            Some(2),
            "n1 links n3; n3 links n1",
        ),
    ] {
        asked.borrow_mut().clear();
        let mut lines = IdleLines::default();
        let found = super::survey(&mut lines, &inquiry, &reach, limits, &mut || false);
        let mut tried = asked.borrow().clone();
        tried.retain(|line| line.contains(" links ") && !line.ends_with(' '));
        tried.sort();
        // The agent of each line is read from the same command.
        tried.dedup();
        assert_eq!((found.links.map(|links| links.len()), &*tried.join("; ")), (links, want));
    }
}
