//! Every reader of data that another program or user may have written, under mutated input: no
//! panic, no hang, no unbounded memory, messages that can be shown; and what is read and written
//! again is the same.
//!
//! `scripts/dev/soak-fuzz` runs each of these for half an hour; `fuzz::campaign` explains how to
//! repeat one.

mod fuzz;
mod report_common;

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuzz::{assert_tame, campaign};
use report_common::{other_run, record, record_with, small_run};
use skt_checkpoint::checkpoint::header::{HeaderLayout, Identity};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::record::{Record, StartId};
use skt_checkpoint::heartbeat::Heartbeat;
use skt_config::{Checked, ConfigError, Fact, Format, LaunchDraft, RunSpec, hpldat, parse, toml};
use skt_host::counters::oom_kills::OomKills;
use skt_host::process::Process;
use skt_hpl::report::JsonReport;
use skt_hpl::report::html::{self, NamedRun};
use skt_hpl::report::reader::RunReport;
use skt_hpl::report::top500::{self, Given};
use skt_launch::hosts::{self, Health, Host, OutOfUse, Pool, Replacement};
use skt_launch::line::IdleLines;
use skt_launch::links::addresses::{Address, Networks};
use skt_launch::links::{Link, LinkState, Partner};
use skt_launch::probe::{Answer, Purpose, program_checksum};
use skt_launch::program::{Ends, JobEnd, ProcessEnd, ProgramVerdict, RankEnd};
use skt_launch::report as account;
use skt_launch::state::{Failure, StateFolder, SupervisorState};
use skt_launch::survey::{self, Inquiry, Limits};
use skt_launch::watch::HeartbeatWatch;
use skt_model::path::{Changes, Machine, MeasuredTest, fit, measured, predict};
use skt_run::job::JobError;
use skt_run::protect::ledger::Ledger;
use skt_run::protect::{Settings, result};
use skt_run::record::Outcome;
use skt_solver::comm::threads;
use skt_store::segments::node_store::{NodeStore, StoreRoom};
use skt_store::store::{Files, SegmentInfo, Store as _, SysvLimits};
use skt_studies::sim::trace::Trace;

/// A run with the other value of every choice, and few tests, because they are listed for each
/// input.
fn short_run() -> RunSpec {
    let mut run = other_run();
    for list in [&mut run.n, &mut run.nb, &mut run.nbmin] {
        list.truncate(2);
    }
    run.bcast.truncate(2);
    RunSpec { pfact: vec![Fact::Left], rfact: vec![Fact::Right], ..run }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder with this extension.
fn files(folder: &str, end: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(end));
    paths.sort();
    assert!(!paths.is_empty(), "{folder}/*{end}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn texts<T: AsRef<[u8]>>(list: &[T]) -> Vec<Vec<u8>> {
    list.iter().map(|text| text.as_ref().to_vec()).collect()
}

/// A configuration with everything that belongs to it, or why it is refused.
fn checked(text: &[u8], format: Format, lenient: bool) -> Result<(Checked, Settings), ConfigError> {
    let checked = parse(text, "f", format, lenient)?;
    let settings = Settings::read(&checked.checkpoint, &checked.spec)?;
    Ok((checked, settings))
}

/// Checks that messages can be shown, and that an accepted run is read back from both forms.
fn check_configuration(text: &[u8], format: Format, lenient: bool) {
    let (checked, settings) = match checked(text, format, lenient) {
        Ok(both) => both,
        Err(error) => return assert_tame(&error.to_string()),
    };
    checked.warnings.iter().for_each(|warning| assert_tame(&warning.to_string()));
    let spec = &checked.spec;
    let written = toml::write(spec)
        + &toml::write_checkpoint(&checked.checkpoint)
        + &toml::write_launch(&checked.launch);
    let again = self::checked(written.as_bytes(), Format::Toml, false).expect(&written);
    assert_eq!((&again.0.spec, &again.1), (spec, &settings), "{written}");
    assert_eq!(printed(&again.0.launch), printed(&checked.launch), "{written}");
    match hpldat::write(spec) {
        Err(error) => assert_tame(&error.to_string()),
        Ok(written) => {
            let again = parse(written.as_bytes(), "f", Format::Dat, false).expect(&written).spec;
            if spec.mxp.is_none() && hpldat::flags_besides(spec).is_empty() {
                assert_eq!(again, *spec, "{written}");
            }
        }
    }
}

/// The content of a table `[launch]`, without places.
fn printed(launch: &LaunchDraft) -> Vec<(usize, Vec<&str>)> {
    launch
        .iter()
        .map(|(key, values)| {
            (*key as usize, values.iter().map(|value| value.text.as_str()).collect())
        })
        .collect()
}

#[test]
fn hpl_dat() {
    let mut corpus = files("hpl-configs", ".dat");
    corpus.extend([small_run(), short_run()].map(|run| hpldat::write(&run).unwrap().into_bytes()));
    let windows = String::from_utf8(corpus[0].clone()).unwrap().replace('\n', "\r\n");
    corpus.push(windows.into_bytes());
    let tokens = ["\n", " ", "\t", "8", "file", "+1", "1.5", "16.0", "Ns", "\r\n", "6 ", "7 "];
    campaign("hpl_dat", &corpus, &tokens, 1000, |input| {
        check_configuration(input, Format::Dat, false);
        check_configuration(input, Format::Dat, true);
    });
}

#[test]
fn toml_configuration() {
    let mut corpus = files("hpl-configs", ".toml");
    corpus.extend([small_run(), short_run()].map(|run| toml::write(&run).into_bytes()));
    corpus.extend(texts(&[
        "n = 100\nnb = 8\np = 1\nq = 2\n[launch]\nhosts = 'h'\nlauncher_arg = ['a b', '--c']\n\
         hang_after = 5\nreadmit = true\nnp = 4\nlauncher = 'mpich'\nprobe_limit = '1min'\n",
        "n = [100, 0x10, 1_000]\nnb = 8\np = 2\nq = 2\ntitle = ['a', \"b\\u0041\"]\n\
         output = \"o.txt\"\nthreshold = 1e1\n[checkpoint]\nmethod = \"double\"\nevery = \"20p\"\n\
         mtbf = 3600\nresume = \"require\"\nrun_id = \"a.b\"\ngroup_size = 8\nparities = 2\n\
         region = \"side\"\ncodec = \"reed-solomon\"\nmessage_bytes = 8192\n\
         overlap = \"on\"\ndomains = \"racks\"\nallow_shared_domains = true\nstore = \"file:/x\"\n",
    ]));
    let tokens = "[ ] { } = \" ' ''' \"\"\" , . # \\ true [[a]] [checkpoint] [launch] 0x 1_0 1979-05-27 \
                  \\u0007 \"1ring\" [1, a. inf {a=";
    let keys = ["\n", "title = ", "n = [", "launcher_template = ", "np = "];
    let tokens: Vec<&str> = tokens.split_whitespace().chain(keys).collect();
    campaign("toml_configuration", &corpus, &tokens, 1000, |input| {
        check_configuration(input, Format::Toml, false);
    });
}

#[test]
fn host_files() {
    let corpus = texts(&[
        "# nodes\nn1 slots=4 max_slots=8\nn2:2 # two\n\nn3\nn4\nn4\n",
        "n1\nn1\nn2\nn2\n",
        "a.b-c_d:16\nlogin max-slots=1 slots=2\n",
        "bob@n1 slots = 2 // two\nn2 4 all.q@n2 UNDEFINED\n",
    ]);
    let tokens = [
        "user=",
        "@",
        "//",
        "4 ",
        "slots=",
        "max_slots=",
        ":",
        "#",
        "\n",
        " ",
        "n1",
        "-o",
        "=",
        "n1 slots=",
    ];
    campaign("host_files", &corpus, &tokens, 5000, |input| {
        let text = String::from_utf8_lossy(input);
        let hosts = match hosts::parse(&text, "f") {
            Ok((hosts, warnings)) => {
                warnings.iter().for_each(|warning| assert_tame(warning));
                hosts
            }
            Err(error) => return assert_tame(&error.to_string()),
        };
        let again = hosts::parse(&hosts::openmpi_file(&hosts), "f");
        assert_eq!(again.map(|found| found.0).as_ref(), Ok(&hosts));
        let (spares, is_empty) = (hosts.clone(), hosts.is_empty());
        assert_eq!(Pool::new(hosts, spares).ranks() == 0, is_empty);
    });
}

#[test]
fn slurm_lists() {
    let corpus = texts(&[
        "n[1-3,07],login",
        "c[008-010]",
        "r[1-2]n[1-2]-ib",
        "n1,n2",
        "2(x3),1",
        "4",
        "1(x2),2(x3)",
    ]);
    let tokens = ["[", "]", ",", "-", "n[1-65537]", "[1-9]", "(x", ")", "[1-65536]", "0-", "000"];
    campaign("slurm_lists", &corpus, &tokens, 5000, |input| {
        let text = String::from_utf8_lossy(input);
        if let Err(error) = hosts::expand_slurm(&text) {
            assert_tame(&error.to_string());
        }
        let tasks = hosts::expand_tasks("SLURM_TASKS_PER_NODE", &text, 4).unwrap_or_default();
        let host = |slots| Host { name: "n".to_owned(), slots };
        Pool::new(tasks.into_iter().map(host).collect(), vec![]).ranks();
    });
}

/// Reports that the program has written: of runs in `docs/`, and one with everything.
fn reports() -> Vec<Vec<u8>> {
    let runs = fs::read_to_string(root().join("docs/measurements/2026-11-20-path.jsonl")).unwrap();
    let mut reports = texts(&runs.lines().collect::<Vec<_>>());
    // Each number is at the end of its range, so that no sum or product of them fits.
    let most = u64::MAX;
    let ends = serde_json::json!({
        "format": "skt-hpl report",
        "environment": { "hosts": [{ "ranks": most }, { "ranks": most }] },
        "tests": [{
            "status": "passed", "gflops": 1e308, "time_seconds": 5e-324,
            "parameters": {
                "n": most, "nb": most, "p": most, "q": most, "threads": most, "depth": most,
                "bcast": "1ring", "swap": "mix", "swap_threshold": most, "transport": "shared",
            },
            "memory_bytes": { "matrix": most, "copies": most },
        }],
    });
    reports.push(ends.to_string().into_bytes());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    for spec in [small_run(), short_run()] {
        let mut report = JsonReport::create(&path, &spec, facts()).unwrap();
        for test in spec.tests().into_iter().take(3) {
            report.test(&record(test), "a line\n").unwrap();
        }
        let skipped = Outcome::Skipped { reason: "why".into() };
        report.test(&record_with(spec.tests().remove(0), skipped), "a line\n").unwrap();
        report.finish("the end\n").unwrap();
        reports.push(fs::read(&path).unwrap());
    }
    reports
}

fn facts() -> skt_run::record::RunFacts {
    use skt_health::environment::{Environment, HostRanks};
    use skt_host::{host, memory};
    use skt_solver::blas::library;
    skt_run::record::RunFacts {
        command_line: vec!["skt-hpl".into(), "--json".into(), "a b.json".into()],
        configuration: Some(skt_config::ConfigText {
            file: "HPL.dat".into(),
            format: Format::Dat,
            text: "title\n".into(),
        }),
        environment: Environment {
            host: host::this_host(),
            memory: memory::this_process(),
            blas: library::loaded(),
            blas_choice: None,
            mpi_library: Some("Open MPI v4.1.4".into()),
            hosts: vec![HostRanks { host: "n1".into(), ranks: 1 }],
            pinning: "pinned, one to a core".into(),
            helper_cpus: vec![1],
            bf16: None,
        },
        dgemm_self_test: None,
        start_unix_seconds: 1_700_000_000,
    }
}

/// Pieces of JSON.
fn json() -> Vec<&'static str> {
    let tokens =
        r#"{ } [ ] : , " null true {} [] "\u001b[31m" - 1e999 "x": [[[[[[[[ "passed" {"a":"#;
    tokens.split(' ').collect()
}

#[test]
fn reports_for_people() {
    campaign("reports_for_people", &reports(), &json(), 500, |input| {
        let report = match RunReport::parse(&String::from_utf8_lossy(input)) {
            Ok(report) => report,
            Err(error) => return assert_tame(&error),
        };
        let run = |name: &str| NamedRun { name: name.into(), report: report.clone() };
        let runs = [run("a"), run("b")];
        html::page(&runs);
        let given = Given { rpeak_gflops: Some(1.0), power_kilowatts: None, power_level: None };
        let _ = top500::sheet(&runs, &given);
    });
}

/// Whether a walk takes little time, which grows with panels, columns of a panel and processes.
fn is_small(test: &MeasuredTest) -> bool {
    let run = &test.run;
    run.n.div_ceil(run.nb) <= 64 && run.nb <= 1 << 16 && run.p <= 8 && run.q <= 8
}

#[test]
fn reports_for_the_model() {
    campaign("reports_for_the_model", &reports(), &json(), 1000, |input| {
        let tests = match measured::parse(&String::from_utf8_lossy(input)) {
            Ok(tests) => tests,
            Err(error) => return assert_tame(&error),
        };
        let mut tests = measured::fastest(&tests);
        tests.retain(is_small);
        tests.truncate(8);
        for test in &tests {
            if let Err(error) = predict(&test.run, &Machine::ZEN4_CORE, &Changes::default()) {
                assert_tame(&error.to_string());
            }
        }
        if let Err(error) = fit::fit(&tests, &Machine::ZEN4_CORE) {
            assert_tame(&error.to_string());
        }
    });
}

/// A machine is read, checked and written again.
#[test]
fn machines() {
    let corpus = texts(&[serde_json::to_string_pretty(&Machine::ZEN4_CORE).unwrap()]);
    campaign("machines", &corpus, &json(), 1250, |input| {
        match Machine::parse(&String::from_utf8_lossy(input)) {
            Ok(machine) => {
                let written = serde_json::to_string(&machine).unwrap();
                assert_eq!(Machine::parse(&written), Ok(machine));
            }
            Err(error) => assert_tame(&error),
        }
    });
}

#[test]
fn failure_traces() {
    let corpus = texts(&["# machine\n30 2\n10,1 # psu\n\n20;0\n", "0.5 0\n1e3 1\n"]);
    campaign("failure_traces", &corpus, &["\n", " ", ",", ";", "#", "1 0\n"], 5000, |input| {
        let text = String::from_utf8_lossy(input);
        for span in [None, Some(40.0)] {
            match Trace::parse(&text, span) {
                Ok(trace) => assert!(trace.system_mtbf_seconds() >= 0.0 && !trace.is_empty()),
                Err(error) => assert_tame(&error.to_string()),
            }
        }
    });
}

/// What shared memory keeps of a finished test.
#[test]
fn results() {
    let tests = small_run().tests();
    let bad = Outcome::Broke { column: 3, pivot: "0".into() };
    let corpus = [record(tests[0].clone()), record_with(tests[1].clone(), bad)];
    let corpus = corpus.map(|record| result::write_plain(&record));
    campaign("results", &corpus, &json(), 1250, |input| {
        if let Some(read) = result::try_read(input) {
            let again = result::read(&result::write_plain(&read));
            // Compared as text, because a residual may not be a number.
            let essence = |r: &skt_run::record::TestRecord| {
                format!("{:?} {:?} {:?}", r.spec, r.outcome, r.time_seconds)
            };
            assert_eq!(essence(&again), essence(&read));
        }
    });
}

/// The segment of a ledger in a file: the page of the store, then results.
#[test]
fn segments_with_results() {
    let folder = tempfile::tempdir().unwrap();
    let store = Files::in_folder(folder.path());
    let open = |is_keeper: bool| {
        let ran = threads::run(1, |world| {
            let mut ledger = Ledger::open(&world, &store, "run", is_keeper, false)?;
            if is_keeper {
                let number = ledger.done();
                let text = result::write_plain(&record(small_run().tests().remove(number % 2)));
                let text = String::from_utf8(text).expect("JSON");
                ledger.add(&world, [(number, text)].into(), &[])??;
            }
            let essence = |(test, read)| format!("{test} {read:?}");
            Ok::<_, JobError>(ledger.results().map(essence).collect::<Vec<_>>())
        });
        ran.into_iter().next().unwrap().unwrap()
    };
    let (mut corpus, mut segments, mut contents) = (vec![], vec![], vec![vec![]]);
    for _ in 0..3 {
        contents.push(open(true));
        let [segment] = &store.list().unwrap()[..] else { panic!("one segment") };
        corpus.push(fs::read(&segment.location).unwrap());
        segments.push(segment.clone());
    }
    let file = PathBuf::from(&segments[2].location);
    campaign("segments_with_results", &corpus, &["run", "results.a"], 1000, |input| {
        fs::write(&file, input).unwrap();
        for info in store.list().unwrap() {
            let is_known = |known: &SegmentInfo| {
                (&known.name, known.bytes, known.creator_pid, known.created_unix_seconds)
                    == (&info.name, info.bytes, info.creator_pid, info.created_unix_seconds)
            };
            // Without a whole header it counts as what a dead creator has left.
            let is_rest = !info.is_ready && info.name == segments[2].name;
            assert!(is_rest || segments.iter().any(is_known), "{info:?}");
        }
        let found = open(false);
        assert!(contents.contains(&found), "{found:?}");
    });
}

/// The header of a checkpoint: what is accepted was written like that.
#[test]
fn checkpoint_headers() {
    let layout = HeaderLayout::new("run \"7\"", 4, 64);
    let identity = |rank| Identity {
        run_id: "run \"7\"".into(),
        fingerprint: u64::MAX,
        parameters: [("ranks".to_owned(), "4".to_owned())].into(),
        rank,
        group: 1,
        members: vec![1, 3],
        bytes: 1 << 40,
    };
    let record = |sequence: u64| {
        let mut record = Record::for_new_segment();
        let first = StartId { number: 1, nonce: 0x1234_5678_9abc_def0 };
        record.join(first, &[]);
        record.confirm(first, Method::SelfCheckpoint, 0, &[]);
        for epoch in 1..=sequence {
            record.commit(epoch, vec![sequence as u8; 7 * sequence as usize]);
            if epoch < sequence || sequence.is_multiple_of(2) {
                record.stamp(epoch);
            }
        }
        record.join(StartId { number: 2, nonce: sequence }, &[first]);
        (0..sequence).for_each(|_| _ = record.advance());
        record
    };
    let mut corpus = Vec::new();
    for rank in [1, 3] {
        let mut header = vec![0; layout.bytes()];
        let bytes = layout.encode_identity(&identity(rank));
        header[..bytes.len()].copy_from_slice(&bytes);
        corpus.push(header.clone());
        for sequence in 1..6 {
            let bytes = layout.encode_record(&record(sequence));
            for copy in layout.order_of_copies(&header, sequence) {
                header[copy.start..][..bytes.len()].copy_from_slice(&bytes);
            }
            corpus.push(header.clone());
        }
    }
    campaign("checkpoint_headers", &corpus, &["SKTCKPT2"], 5000, |input| {
        if let Some(found) = layout.decode_identity(input) {
            assert!([1, 3].map(identity).contains(&found), "{found:?}");
        }
        if let Some(found) = layout.decode_record(input) {
            assert!((1..6).map(record).any(|written| written == found), "{found:?}");
        }
    });
}

fn beat() -> Heartbeat {
    let first = Heartbeat::new("t1".into(), 0, "factor");
    Heartbeat { column: 512, steps: 3, n: 4000, elapsed_seconds: 1.25, ..first }
}

/// Lines of rank 0 with heartbeats.
#[test]
fn heartbeats() {
    let done = Heartbeat { phase: "done".into(), exit: Some(0), column: 4000, ..beat() };
    let corpus = texts(&[format!("\r12% {}", beat().line()), done.line()]);
    let mut watch = HeartbeatWatch::new(5.0, false);
    let mut now_seconds = 0.0;
    campaign("heartbeats", &corpus, &json(), 5000, |input| {
        for line in String::from_utf8_lossy(input).lines() {
            let Some((_, beat)) = Heartbeat::find(line, "t1") else { continue };
            assert_eq!(Heartbeat::find(&beat.line(), "t1").unwrap().1, beat);
            now_seconds += 1.0;
            watch.beat(&beat, now_seconds);
            assert!(watch.limit_seconds() >= 5.0 && watch.probe_after_seconds() > 0.0);
        }
    });
}

fn state() -> SupervisorState {
    let host = |name: &str, slots| Host { name: name.into(), slots };
    let pool = Pool {
        active: vec![host("n1", 2), host("n2", 2)],
        spares: vec![host("s1", 1)],
        out: vec![OutOfUse { host: host("n0", 2), why: "no answer in 15.0 s".into() }],
        guests: [(2, 0), (3, 0)].into(),
    };
    let me = Process::from_pid(std::process::id() as i32).unwrap();
    let command = ["--n".to_owned(), "100".to_owned()];
    let mut state = SupervisorState::new("hpl-1", &command, 4, pool, me.clone());
    state.start = 2;
    state.launcher = Some(me);
    state.last_beat = Some((beat(), 1.5e9));
    state.failures = vec![Failure {
        start: 1,
        how: "a rank was killed".into(),
        replaced: vec![Replacement { lost: "n0".into(), why: "off".into(), by: "n2".into() }],
        phase: "factor".into(),
        column: 512,
        lived: true,
        node_lost: true,
        last_sign_unix: 10.0,
        detected_unix: 12.5,
        relaunched_unix: Some(13.0),
        alive_unix: Some(14.0),
        computing_unix: None,
        resumed_column: None,
    }];
    state
}

/// The `state.json` of a supervisor.
#[test]
fn states() {
    let folder = tempfile::tempdir().unwrap();
    let folder = StateFolder::new(folder.path());
    let file = folder.file("state.json");
    folder.save(&mut state()).unwrap();
    let corpus = texts(&[fs::read(&file).unwrap(), serde_json::to_vec(&state()).unwrap()]);
    campaign("states", &corpus, &json(), 750, |input| {
        fs::write(&file, input).unwrap();
        let Ok(state) = folder.load() else { return };
        let mut state = state.expect("a file is there");
        account::status_line(&state, 2e9);
        account::timelines(&state);
        account::account(&state);
        state.pool.ranks();
        folder.save(&mut state).unwrap();
        assert_eq!(folder.load().unwrap(), Some(state));
    });
}

/// Records of the ends of ranks, among what a program writes to standard error.
#[test]
fn ends_of_ranks() {
    let of = |end| RankEnd { token: "t1".into(), rank: Some(3), host: "n1".into(), end };
    let ends = [
        ProcessEnd::Code(3),
        ProcessEnd::Signal(9),
        ProcessEnd::Unstarted("no \"such\" file".into()),
    ];
    let corpus: Vec<Vec<u8>> =
        ends.into_iter().map(|end| format!("50 %{}", of(end).line()).into_bytes()).collect();
    campaign("ends_of_ranks", &corpus, &json(), 500, |input| {
        for line in String::from_utf8_lossy(input).lines() {
            let Some((_, end)) = RankEnd::find(line, "t1") else { continue };
            assert_eq!(RankEnd::find(&end.line(), "t1").unwrap().1, end);
            let mut ends = Ends::default();
            ends.note(end);
            for is_reported in [false, true] {
                match ends.verdict(&JobEnd { ranks: 2, is_reported, ..JobEnd::default() }) {
                    ProgramVerdict::Reported(Some(0), words) => panic!("a success: {words}"),
                    ProgramVerdict::Lost(Some(words))
                    | ProgramVerdict::Reported(_, words)
                    | ProgramVerdict::Refused(_, words) => assert_tame(&words),
                    ProgramVerdict::Done | ProgramVerdict::Lost(None) => {}
                }
            }
        }
    });
}

/// Answers of nodes, or of their shells.
#[test]
fn answers_of_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let answer = Answer {
        host: "n1".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        program: program_checksum(),
        ended: 1,
        ranks: 2,
        stopped: 1,
        available_bytes: 1 << 30,
        oom_kills: OomKills { machine: Some(3), group: Some(1) },
        store: NodeStore {
            run_bytes: 4096,
            room: Some(StoreRoom::default()),
            sysv: Some(SysvLimits {
                shmmax_bytes: 1 << 30,
                shmall_pages: 1 << 20,
                shmmni: 4096,
                used_pages: 7,
                page_bytes: NonZeroU64::new(4096).unwrap(),
                segments: 2,
            }),
            void: None,
            warnings: vec!["RemoveIPC=yes".into()],
        },
        addresses: vec![Address { interface: "ib0".into(), ip: "10.77.0.11".parse().unwrap() }],
        links: vec![Link { to: "n2".into(), found: LinkState::Dead("no route".into()) }],
        ..Answer::default()
    };
    let ill = Answer { version: "0".into(), no_store: Some("why".into()), ..answer.clone() };
    let corpus = texts(&[answer.line(), format!("Welcome!\n{}", ill.line()), "no shell\n".into()]);
    let pool = Pool::new(vec![Host { name: "n1".into(), slots: 2 }], vec![]);
    // The script writes to both streams, because without an answer the error counts.
    let script = format!("cat {0}; cat {0} >&2", file.display());
    let reach =
        |_: &str, _: Purpose, _: &[Partner]| ["sh", "-c", &script].map(str::to_owned).to_vec();
    let each = Duration::from_secs(30);
    let (inquiry, networks) = (Inquiry { pool, ..Inquiry::default() }, Networks::default());
    campaign("answers_of_nodes", &corpus, &json(), 150, |input| {
        fs::write(&file, &input[..input.len().min(30_000)]).unwrap();
        let limits = Limits { each, rank_bytes: 9, program: None, networks: &networks };
        let survey =
            survey::survey(&mut IdleLines::default(), &inquiry, &reach, limits, &mut || false);
        survey.ended();
        survey.warnings().keys().for_each(|warning| assert_tame(warning));
        if let Health::Ill(why) = survey.health("n1") {
            assert_tame(&why);
        }
    });
}
