//! Tests of surveys on shell scripts that answer as nodes do.

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
    Inquiry { spare_losses: 1, pool, ..Inquiry::default() }
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
    let inquiry = Inquiry { purpose: Purpose::Check, pool: pool.clone(), ..Inquiry::default() };
    changed_round(lines, &inquiry, agent, LONG, |mut round| {
        round.patience = patience;
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
    let why = found.agent_fault.unwrap();
    assert!(why.starts_with("cannot start /nonexistent/ssh, which runs commands"), "{why}");
    assert!(why.contains("No such file"), "{why}");
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

/// Nodes that are late hold up no others, unless this machine has no room for more lines: then they
/// are silent.
#[test]
fn silent_nodes_wait_together() {
    let names: Vec<String> = (0..AT_ONCE + 2).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let inquiry = Inquiry { pool: pool(&names, &[]), ..Inquiry::default() };
    let reach = |name: &str| match name {
        "n0" => sh(print_answer(&answer())),
        _ => sh("sleep 1000".into()),
    };
    for (room, silent) in [(usize::MAX, 0), (AT_ONCE, 1)] {
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
        assert!(names.iter().filter(is_ill).count() >= silent);
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
        let inquiry = Inquiry { purpose, pool: pool(names, &[]), ..Inquiry::default() };
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
    let reach = |_: &str| unreachable!("no node is asked");
    changed_round(&mut IdleLines::default(), inquiry, &reach, LONG, |mut round| {
        round.begun = Instant::now() - Duration::from_secs(waited_seconds);
        round.slowest = Duration::from_secs(100);
        round.slowest_opening = Duration::from_secs(200);
        let answer = |name: &&str| ((*name).to_owned(), Outcome::Answer(Box::new(answer()), false));
        round.outcomes = well.iter().map(answer).collect();
        round.is_enough()
    })
}

#[test]
fn parities_and_spares_limit_the_wait_for_silent_nodes() {
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
    let check = Inquiry {
        purpose: Purpose::Check,
        pool: pool(&["n1", "n2", "n3"], &[]),
        ..Inquiry::default()
    };
    for well in [&["n1"][..], &["n1", "n3"]] {
        assert!(!is_enough(&check, well, 380));
        assert!(is_enough(&check, well, 420));
    }
    assert!(!is_enough(&check, &[], 100_000), "no node has answered");
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
    let first = Inquiry { pool: pool(&["n1", "n2"], &["s1"]), ..Inquiry::default() };
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
    let check =
        Inquiry { purpose: Purpose::Check, pool: pool(&["n1", "n2"], &[]), ..Inquiry::default() };
    let mut lines = IdleLines::default();
    let found = changed_round(&mut lines, &check, &reach, LONG, |round| round.run(&mut || true));
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
    let Health::Ill(why) = found.health("n2") else { panic!("it is silent") };
    assert!(why.starts_with("no answer in ") && !why.contains(','), "{why}");
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
        "n1" => sh(print_answer(&Answer { run_bytes: 1 << 30, available_bytes: 5, ..answer() })),
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
    let start = Inquiry { tries_links: true, ..before_start(pool(&["n1", "n2", "n3"], &["s1"])) };
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
