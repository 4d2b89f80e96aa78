//! The built program: its messages on bad input, and its subcommands that write text.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::built::{LAUNCHER_NAMES, PROGRAM, Program};
use crate::executables;

const TOML: &str = "n = 100\nnb = 8\np = 1\nq = 1\n";

#[test]
fn without_a_configuration_it_explains_how_to_get_one() {
    let program = Program::new();
    for args in ["", "run", "--nb 64"] {
        let error = program.refused(args);
        assert!(error.starts_with("error: HPL.dat: not found in /"), "{error}");
        assert!(error.contains("skt-hpl init") && error.contains("--config"), "{error}");
    }
}

#[test]
fn a_named_configuration_that_is_missing_or_no_file_is_an_error() {
    let program = Program::new();
    let error = program.refused("--config other.dat --n 10");
    assert!(error.starts_with("error: other.dat: cannot be read: No such file"), "{error}");
    for file in ["/dev/null", "/dev"] {
        let kind = if file == "/dev" { "it is a folder" } else { "it is a device" };
        for line in [
            "--config FILE",
            "--n 9 --nb 3 --rates FILE",
            "launch --dry-run --np 2 -- --n 99 --nb 9 --p 1 --q 2 --ft self --domains FILE",
            "convert FILE",
            "report FILE",
            "report run.json --power-csv FILE",
            "path --n 99 --machine FILE",
            "path --fit FILE",
            "launch --dry-run --hosts FILE -- --n 9 --nb 3",
            "launch --dry-run --hosts hosts --spares FILE -- --n 9 --nb 3",
        ] {
            program.write("hosts", "n1\n");
            program.write("run.json", r#"{"format": "skt-hpl report", "tests": []}"#);
            let error = program.refused(&line.replace("FILE", file));
            assert!(error.contains(file) && error.contains(kind), "{line}: {error}");
        }
    }
    program.write("large.dat", &" ".repeat((1 << 20) + 1));
    let error = program.refused("--config large.dat");
    assert!(error.contains("large.dat: cannot be read: it is larger than 1"), "{error}");
}

#[test]
fn a_bad_line_is_named() {
    let program = Program::new();
    program.done("init --ranks 1");
    let text = program.read("HPL.dat").replace("1ring", "x");
    let bad: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(i, l)| if i == 11 { "0 Qs".to_owned() } else { l.to_owned() })
        .collect();
    program.write("HPL.dat", &bad.join("\n"));
    let want = "error: HPL.dat:12: Qs: value 0 is out of range; legal: 1 or more\n";
    assert_eq!(program.refused(""), want);
    assert_eq!(program.refused("run"), want);
}

#[test]
fn a_bad_flag_is_named() {
    let program = Program::new();
    program.write("hpl.toml", TOML);
    let cases = [
        ("--q 0", "error: --q: value 0 is out of range; legal: 1 or more\n"),
        ("--q -1", "error: --q: value -1 is out of range; legal: 1 or more\n"),
        ("--n 10,x", "error: --n: `x` is not a whole number; legal: 0 to 4294967295\n"),
        ("--n 1,", "error: --n: `` is not a whole number; legal: 0 to 4294967295\n"),
        (
            "--pfact up",
            "error: --pfact: `up` is not one of the choices; legal: left (0), crout (1), right (2)\n",
        ),
        (
            "--swap 3",
            "error: --swap: value 3 is out of range; legal: \
                            binary-exchange (0), spread-roll (1), mix (2)\n",
        ),
        ("--threads 0", "error: --threads: value 0 is out of range; legal: 1 to 4096\n"),
        (
            "--p 1,2",
            "error: --p has 2 values and hpl.toml:4: q has 1; they pair up, one Q for each P\n",
        ),
        // Leniency is for HPL.dat: the reference has no flags.
        (
            "--lenient --pmap 2",
            "error: --pmap: value 2 is out of range; legal: row (0), column (1)\n",
        ),
    ];
    for (flags, want) in cases {
        assert_eq!(program.refused(&format!("--config hpl.toml {flags}")), want);
    }
    let error = program.refused_words(&["--config", "hpl.toml", "--out", ""]);
    assert_eq!(error, "error: --out: the report goes to a file, but no file name is given\n");
    // A flag overrides a bad value of the table.
    program.write("bad.toml", &format!("{TOML}[checkpoint]\nparities = 0\n"));
    let error = program.refused("--config bad.toml --group-size 3 --parities 2");
    assert_eq!(error, "error: --group-size: value 3 is out of range; legal: 4 to 255\n");
    // HPL.dat has blanks between the values of a list.
    for words in ["--nb 128 192", "run --p 1 --nb 128 192"] {
        let error = program.refused(words);
        assert!(error.contains("a list has commas: --nb 128,192\n"), "{error}");
    }
    let error = program.refused("--nb 128 nonsense");
    assert!(!error.contains("a list has commas"), "{error}");
    for (words, tip) in [
        ("HPL.dat", "a configuration is named by its flag: --config HPL.dat"),
        ("run ./a/other.dat", "a configuration is named by its flag: --config ./a/other.dat"),
        ("--n 100 hpl.toml", "a configuration is named by its flag: --config hpl.toml"),
        ("tune HPL.dat", "a configuration is named by its flag: --config HPL.dat"),
        ("launch HPL.dat", "a configuration is named by its flag: -- --config HPL.dat"),
        ("launch -- HPL.dat", "a configuration is named by its flag: --config HPL.dat"),
        ("-P 2 -Q 2", "'-P' is here: --p 2"),
        ("-NB 192", "'-NB' is here: --nb 192"),
        ("--NB 192", "'--NB' is here: --nb 192"),
        ("-n 1000 -b 64", "'-n' is here: --n 1000"),
        ("-b 64", "'-b' is here: --nb 64"),
        ("--dat HPL.dat", "'--dat' is here: --config HPL.dat"),
        ("-i HPL.dat", "'-i' is here: --config HPL.dat"),
        ("--grid 2x2", "'--grid' is here: --p P --q Q"),
        ("mxp --grid 2x2", "as a line of ours: skt-hpl mxp --p P --q Q"),
        ("--block-size 128", "'--block-size' is here: --nb 128"),
        ("--gpus 4", "'--gpus' is here: nothing: the solver runs on CPUs"),
        (
            "--ntasks 4",
            "'--ntasks' is here: `-np` of mpirun, before the program, or of `skt-hpl launch`",
        ),
        ("launch --np 1 -- -N 9", "'-N' is here: --n 9"),
    ] {
        let error = program.refused(words);
        assert!(error.contains(&format!("tip: {tip}\n")), "{words:?}: {error}");
    }
    let twenty_one = vec!["1"; 21].join(",");
    let error = program.refused(&format!("--config hpl.toml --n {twenty_one}"));
    assert_eq!(error, "error: --n: 21 values; legal: 1 to 20\n");
}

#[test]
fn under_a_launcher_one_rank_prints_and_all_exit_alike() {
    let program = Program::new();
    let names =
        ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK"];
    let start = Instant::now();
    let jobs = names.iter().flat_map(|name| {
        [("--bogus", 2), ("--help", 0), ("--version", 0)].map(|(arg, code)| {
            let ranks = ["0", "1"].map(|rank| {
                let mut command = program.command(arg);
                command.env(name, rank).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            });
            (name, arg, code, ranks)
        })
    });
    for (name, arg, code, ranks) in jobs.collect::<Vec<_>>() {
        let [first, other] = ranks.map(|child| child.wait_with_output().unwrap());
        assert_eq!(first.status.code(), Some(code));
        assert_eq!(other.status.code(), Some(code));
        assert!(first.stdout.len() + first.stderr.len() > 0, "{name} {arg}");
        assert_eq!(other.stdout.len() + other.stderr.len(), 0, "{name} {arg}");
    }
    // If a rank ended with an error at once, the launcher would kill rank 0, perhaps before its
    // message.
    assert!(start.elapsed() >= Duration::from_secs(1));
    let other = program.command("init").env("PMIX_RANK", "1").output().unwrap();
    assert_eq!(other.status.code(), Some(0));
    assert!(!program.path().join("HPL.dat").exists(), "rank 0 alone writes");
}

#[test]
fn help_teaches_groups_examples_and_exit_codes() {
    let program = Program::new();
    let (help, _) = program.done("--help");
    for want in [
        "Examples:",
        "Exit codes:",
        "Input and output:",
        "Panel factorization:",
        "without effect:",
        "skt-hpl init",
        "default 192",
    ] {
        assert!(help.contains(want), "{want} is not in:\n{help}");
    }
}

#[test]
fn one_dash_leads_to_the_flag_of_two() {
    let program = Program::new();
    for (args, flag) in [
        ("-n 1000", "--n"),
        ("-n=1000", "--n"),
        ("-nb 64", "--nb"),
        ("run -ft none", "--ft"),
        ("init -ranks 2", "--ranks"),
    ] {
        let error = program.refused(args);
        let value = args.split([' ', '=']).next_back().unwrap();
        assert!(error.contains(&format!(" is here: {flag} {value}\n")), "{args:?}: {error}");
        assert!(!error.contains("-- -"), "{args:?}: {error}");
    }
    assert!(!program.refused("-j").contains("'--j"), "no such flag");
}

#[test]
fn errors_show_no_control_bytes_and_no_endless_lines() {
    let program = Program::new();
    let wild = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m";
    let long = "x".repeat(100_000);
    let name = format!("{wild}.dat");
    let key = format!("{TOML}\"{wild}{}\" = 1\n", long.repeat(5));
    program.write("key.toml", &key);
    for args in [
        &["--config", &name][..],
        &["--config", &long],
        &["--bcast", wild],
        &["--ft", wild],
        &["--out", "-", wild],
        &[&format!("--{wild}")],
        &["convert", &long],
        &["--progress", &long],
        &["--config", "key.toml"],
        &["path", "--machine", &name],
        &["report", &name],
        &["store", "list", "--store", wild],
        &["launch", "--hosts", &name],
    ] {
        let error = program.refused_words(args);
        let control = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!error.contains(control), "{args:.60?}: {error:?}");
        assert!(error.len() < 5000, "{args:.60?}: {} bytes", error.len());
    }
}

#[test]
fn one_rank_is_not_advised_to_turn_off_checkpoints() {
    let program = Program::new();
    let error = program.refused("--n 4000000 --progress off");
    assert!(error.contains("N = 4000000 does not fit"), "{error}");
    assert!(!error.contains("checkpoints"), "{error}");
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let program = Program::new();
    for args in ["--n 100 --progress off", "init --out -", "man"] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-", PROGRAM]);
        command.args(args.split(' '));
        for name in LAUNCHER_NAMES {
            command.env_remove(name);
        }
        let output = command.current_dir(program.path()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains("error: ") && error.contains("standard output"), "{error}");
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let program = Program::new();
    for args in ["--help", "man", "completions bash"] {
        let mut child =
            program.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn convert_goes_both_ways_and_reports_what_is_lost() {
    let program = Program::new();
    program.write("a.toml", &format!("{TOML}generator = \"xoshiro\"\nthreads = 3\n"));
    let (_, error) = program.done("convert a.toml HPL.dat");
    assert_eq!(
        error,
        "warning: generator: HPL.dat cannot express `xoshiro`; add --generator xoshiro\n\
         warning: threads: HPL.dat cannot express 3 threads; add --threads 3\n"
    );
    assert_eq!(program.read("HPL.dat").lines().count(), 31);
    let two_ranks = TOML.replace("q = 1", "q = 2");
    program.write("c.toml", &format!("{two_ranks}[checkpoint]\nmethod = \"double\"\nevery = 60\n"));
    let (toml, error) = program.done("convert c.toml --to toml");
    assert_eq!(error, "");
    assert!(toml.contains("\nmethod = \"double\"\n") && toml.contains("\nevery = \"60\"\n"));
    let (_, error) = program.done("convert c.toml");
    let flags = "--ft double --checkpoint-every 60";
    assert_eq!(
        error,
        format!(
            "warning: checkpoint: HPL.dat cannot hold settings of checkpoints; \
         add {flags}\n"
        )
    );
    program.write("c.toml", &format!("{TOML}[checkpoint]\nparities = 0\n"));
    let error = program.refused("convert c.toml");
    let want = "c.toml:6: checkpoint.parities: value 0 is out of range; legal: 1 to 127";
    assert_eq!(error, format!("error: {want}\n"));
    let (toml, error) = program.done("convert HPL.dat");
    assert_eq!(error, "");
    assert!(toml.contains("\nn = [100]\n") && toml.contains("\nthreads = 1\n"), "{toml}");
    program.write("b.toml", &toml);
    let (dat, _) = program.done("convert b.toml --to dat");
    assert_eq!(dat, program.read("HPL.dat"));
    // A name without a known form gets the other form.
    for (from, to, toml) in
        [("HPL.dat", "y", true), ("b.toml", "z", false), ("b.toml", "z.TOML", true)]
    {
        program.done(&format!("convert {from} {to}"));
        assert_eq!(program.read(to).contains("\nn = [100]\n"), toml, "{from} to {to}");
    }

    let error = program.refused("convert a.toml HPL.dat");
    assert_eq!(
        error.lines().last().unwrap(),
        "error: HPL.dat: exists already; --force overwrites it"
    );
    program.done("convert --force b.toml HPL.dat");
    program.write("bad.toml", &TOML.replace("nb", "bn"));
    let error = program.refused("convert bad.toml");
    assert_eq!(error, "error: bad.toml:2: bn: no such key; did you mean `nb`?\n");
}

#[test]
fn convert_is_lenient_with_the_flag() {
    let program = Program::new();
    program.write("a.toml", TOML);
    program.done("convert a.toml HPL.dat");
    let dat = program.read("HPL.dat").replace("\n1            BCASTs", "\n9            BCASTs");
    program.write("HPL.dat", &dat);
    assert!(program.refused("convert HPL.dat").starts_with("error: HPL.dat:23: BCASTs: "));
    let (toml, error) = program.done("convert --lenient HPL.dat");
    assert!(error.starts_with("warning: HPL.dat:23: BCASTs: `9` is not legal"), "{error}");
    assert!(toml.contains("bcast = [\"1ringM\"]"), "{toml}");
}

#[test]
fn init_takes_the_n_that_fits_memory_and_time() {
    let program = Program::new();
    let init = |flags: &str| program.done(&format!("init --force --ft none {flags}"));
    let n = || -> f64 {
        let dat = program.read("HPL.dat");
        dat.lines().nth(5).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let (_, printed) = init("--ranks 4 --memory-gib 1000 --time 1h --gflops 100");
    let seconds = |n: f64| n * n * (2.0 / 3.0 * n + 1.5) / 100e9;
    assert!(seconds(n()) <= 3600.0 && seconds(n() + 192.0) > 3600.0, "{}", n());
    assert!(printed.contains(", 59 min 57 s) on 4 ranks"), "{printed}");
    assert!(
        printed.contains("the time (1 h 00 min) decides; the memory would hold N = "),
        "{printed}"
    );
    assert!(printed.contains("at 100 Gflop/s, as given"), "{printed}");
    let (_, printed) = init("--ranks 2 --memory-gib 0.1 --time 1000d");
    assert!(printed.contains("the memory decides: it holds no N that takes 1000 d"), "{printed}");
    assert!(printed.contains("by the model, with DGEMM at "), "{printed}");
    // A run of 100 s at N = 9600 that the model knows nothing about: 1000 times as long is N =
    // 96000, but for the smaller share of what is no product.
    let phases =
        serde_json::json!({"panel": 1, "swap": 0, "bcast": 0, "update": 99, "back": 0, "other": 0});
    let report = serde_json::json!({"format": "skt-hpl report", "tests": [{
        "status": "passed", "time_seconds": 100.0, "protection": null, "by_messages": [],
        "phases_seconds": {"mean": phases, "max": phases},
        "parameters": {"n": 9600, "nb": 192, "p": 2, "q": 2, "depth": 1, "bcast": "1ringM",
            "swap": "mix", "swap_threshold": 64, "threads": 1}}]});
    program.write("run.json", &report.to_string());
    let of_run = "--ranks 4 --memory-gib 1000 --report run.json";
    let (_, printed) = init(&format!("{of_run} --time 100s"));
    assert_eq!(n(), 9600.0, "{printed}");
    assert!(
        printed.contains("scaled to the 1 min 40 s that N = 9600 took in run.json"),
        "{printed}"
    );
    init(&format!("{of_run} --time 100000s"));
    assert!((93_000.0..120_000.0).contains(&n()), "{}", n());
    for (flags, want) in [
        ("--time 1ms --gflops 1", "--time: 0.001 s are too short: N = 192, the small"),
        ("--time 1,5h", "`1,5h` is no time: use 90 or 90s, 10min, 24h or 3d"),
        ("--time 1h --gflops 1,5", "legal is a number above 0"),
        ("--gflops 100", "--time <TIME>"),
        ("--time 1h --report run.json --ranks 2", "no completed test without"),
    ] {
        let error = program.refused(&format!("init --force {flags}"));
        assert!(error.contains(want), "{flags:?}: {error}");
    }
}

#[test]
fn init_writes_what_fits_and_keeps_what_is_there() {
    let program = Program::new();
    let plain = "init --ranks 6 --memory-gib 8";
    let (_, printed) = program.done(&format!("{plain} --ft none"));
    let (start, rest) = printed.split_once("-np 6 ").expect("a command to run");
    assert!(start.contains("mpirun "), "{printed}");
    let program_named = match PROGRAM {
        path if path.contains(' ') => format!("'{path}'"),
        path => path.to_owned(),
    };
    assert!(rest.starts_with(&format!("{program_named} --ft none\n")), "{printed}");
    assert!(printed.contains("\n* --ft none    N = "), "{printed}");
    let of_model = "times are those of the timed part, by the model, with DGEMM at ";
    assert!(printed.contains(of_model), "{printed}");
    let dat = program.read("HPL.dat");
    let value = |line: usize| dat.lines().nth(line - 1).unwrap().split(' ').next().unwrap();
    assert_eq!((value(11), value(12)), ("2", "3"));
    let (n, nb): (u64, u64) = (value(6).parse().unwrap(), value(8).parse().unwrap());
    let budget = 8 << 30;
    assert_eq!(n % nb, 0);
    assert!(8 * n * n < budget * 8 / 10 && 8 * n * n > budget * 6 / 10, "{n}");

    // A group of 6 keeps 5/12 of the memory.
    let (dat_guarded, printed) = program.done(&format!("{plain} --ft self --out -"));
    let guarded: u64 =
        dat_guarded.lines().nth(5).unwrap().split(' ').next().unwrap().parse().unwrap();
    let kept = (guarded * guarded) as f64 / (n * n) as f64;
    assert!((0.38..0.44).contains(&kept), "{guarded} of {n}: {printed}");
    // A short run has no checkpoint due: the memory is left to the matrix, and the user is
    // notified. So little memory is short work on a machine that gives a hundredth of a core, too.
    let short = "init --force --ranks 6 --memory-gib 0.1";
    let (_, printed) = program.done(short);
    assert!(
        printed.contains("without checkpoints; run it with\n") && printed.contains(" --ft none\n")
    );
    assert!(printed.contains("as with none: the run ends before a checkpoint is due"), "{printed}");
    let (_, printed) = program.done(&format!("{plain} --force --ft self"));
    assert!(printed.contains("with self checkpoints"), "{printed}");
    let (own, without) = printed.split_once("  --ft none    ").unwrap();
    assert!(own.contains("--ft self\n"), "{printed}");
    assert!(without.starts_with(&format!("N = {n} (")), "{n}: {printed}");
    // A run of days, with twenty TiB, has checkpoints.
    let (_, printed) = program.done("init --force --ranks 16 --memory-gib 20000");
    assert!(
        printed.contains("with self checkpoints") && printed.contains("\n* --ft self "),
        "{printed}"
    );
    assert!(printed.contains("continues from its last checkpoint"), "{printed}");
    let (_, printed) = program.done(&format!("{plain} --force --ft self"));
    let (own, without) = printed.split_once("  --ft none    ").unwrap();
    let rate = |text: &str| -> f64 {
        let (_, rate) = text.split_once(" GiB, about ").unwrap();
        rate.split_once(" Gflop/s, ").unwrap().0.parse().unwrap()
    };
    assert!(rate(own) > 0.0 && rate(without) >= rate(own), "{printed}");
    let dat = program.read("HPL.dat");

    let error = program.refused("init");
    assert!(error.starts_with("error: HPL.dat: exists already; --force"), "{error}");
    assert_eq!(program.read("HPL.dat"), dat);
    program.done("init --force --ranks 1");
    assert_ne!(program.read("HPL.dat"), dat);

    let (_, printed) = program.done("init --format toml --threads 2 --ranks 2 --ft self");
    let toml = program.read("HPL.toml");
    assert!(toml.contains("\n[checkpoint]\n") && toml.contains("\nmethod = \"self\"\n"), "{toml}");
    assert!(toml.contains("\ngroup_size = 2\n") && toml.contains("\n# region = \"corner\"\n"));
    assert!(printed.contains("--config HPL.toml"), "{printed}");
    assert!(program.read("HPL.toml").contains("\nthreads = 2\n"));
    let (toml, _) = program.done("init --format toml --out -");
    assert!(toml.starts_with("# Made by `skt-hpl init`"), "{toml}");
    // More cores than any machine that runs this test.
    let (_, printed) = program.done("init --force --ranks 16 --threads 4096");
    assert!(printed.contains("warning: 16 ranks of 4096 thread(s) need 65536 cores"), "{printed}");
}

#[test]
fn a_dash_is_standard_output_or_refused() {
    let program = Program::new();
    let text = program.printed("--n 100 --progress off --out -");
    assert!(text.contains("1 tests completed and passed residual checks"), "{text}");
    program.write("a.toml", TOML);
    let (dat, _) = program.done("convert a.toml -");
    assert_eq!(dat.lines().count(), 31);
    let next_to_a_report = [
        "--n 100 --json -",
        "launch --json - -- --n 100",
        "screen --good -",
        "screen --bad -",
        "path --n 1000 --save-machine -",
    ];
    for args in next_to_a_report {
        let error = program.refused(args);
        assert!(error.contains("a file is needed"), "{args:?}: {error}");
    }
    program.write("b.toml", &format!("{TOML}[launch]\njson = '-'\n"));
    let error = program.refused("launch -- --config b.toml");
    assert!(error.contains("launch.json: `-`"), "{error}");
    assert!(!program.path().join("-").exists());
}

#[test]
fn an_unwritable_json_report_is_named_as_the_user_did() {
    let program = Program::new();
    let error = program.refused("--n 100 --progress off --json nowhere/x");
    assert!(error.contains("'nowhere/x': No such file or directory"), "{error}");
    assert!(!error.contains(".tmp"), "{error}");
}

#[test]
fn plan_explains_how_it_counts_ranks() {
    let program = Program::new();
    for flag in ["--ranks", "--ranks=8", "--ranks-per-node", "--np"] {
        let error = program.refused(&format!("plan {flag}"));
        assert!(
            error.contains("tip: the ranks of a node are its --cores-per-node over"),
            "{error}"
        );
    }
    let error = program.refused("plan --wild");
    assert!(!error.contains("ranks"), "{error}");
}

/// The result of `init --tune` with a script as `mpirun`.
fn init_tunes_with(mpirun: &str, flags: &str) -> (Program, Output) {
    let program = Program::new();
    let path = program.path().join("mpirun");
    executables::write_script(&path, &format!("#!/bin/sh\n{mpirun}\n"));
    let before = std::env::var("PATH").unwrap();
    let programs = format!("{}:{before}", program.path().display());
    let line = format!("init --tune --ranks 2 --memory-fraction 0.01 {flags}");
    let output = program.command(&line).env("PATH", programs).output().unwrap();
    (program, output)
}

#[test]
fn init_starts_tune_on_the_file_that_it_has_written() {
    let record = "[ \"$1\" = --version ] || { cp HPL.* seen; echo \"$@\" >words; }";
    let (program, output) = init_tunes_with(record, "--ft none");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let words = program.read("words");
    let command = format!("-np 2 {} tune ", PROGRAM);
    let (_, flags) = words.split_once(&command).expect(&words);
    assert_eq!(flags, "--budget 60s --force --out HPL.dat --ft none\n");
    assert_eq!(program.read("seen"), program.read("HPL.dat"));

    let (program, _) = init_tunes_with(record, "--format toml --threads 2");
    let words = program.read("words");
    assert!(words.ends_with(" --force --out HPL.toml --config HPL.toml\n"), "{words}");

    let (program, _) = init_tunes_with(record, "--mxp --ft none");
    let words = program.read("words");
    let flags = " tune --mxp --budget 60s --force --out HPL.dat --ft none\n";
    assert!(words.ends_with(flags), "{words}");
}

#[test]
fn init_reports_failed_tuning_and_keeps_the_file() {
    let (program, output) = init_tunes_with("exit 3", "");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("error: --tune: the file is written and not tuned"), "{printed}");
    let command = printed.lines().last().unwrap();
    assert!(command.ends_with(" tune --budget 60s --force --out HPL.dat --ft none"), "{printed}");
    assert!(program.read("HPL.dat").contains("NBs"));
}

#[test]
fn init_names_bad_flags() {
    let program = Program::new();
    let cases = [
        (
            "--memory-fraction 1.5",
            "--memory-fraction: value 1.5 is out of range; legal: more than 0, at most 1",
        ),
        (
            "--memory-fraction nan",
            "--memory-fraction: value NaN is out of range; legal: more than 0, at most 1",
        ),
        (
            "--memory-gib 0",
            "--memory-gib: value 0 is out of range; legal: more than 0, at most 1e9",
        ),
        ("--ranks 0", "--ranks: value 0 is out of range; legal: 1 to 1048576"),
        ("--threads 0", "--threads: value 0 is out of range; legal: 1 to 4096"),
        (
            "--tune --memory-gib 8",
            "--tune: measures this machine, and --memory-gib plans for another: run `skt-hpl tune` \
             there",
        ),
        ("--tune --out -", "--tune: takes a file: standard output cannot be tuned"),
        (
            "--out a.toml --format dat",
            "--out: a.toml would be read as another form: TOML ends in .toml, HPL.dat does not",
        ),
    ];
    for (flags, want) in cases {
        let error = program.refused(&format!("init {flags}"));
        assert_eq!(error, format!("error: {want}\n"));
    }
    let error = program.refused("init --memory-gib 0.001");
    assert!(error.contains("hold not even one block"), "{error}");
    assert!(fs::read_dir(program.path()).unwrap().next().is_none(), "nothing is written");
}

#[test]
fn reports_replace_neither_the_configuration_nor_each_other() {
    let program = Program::new();
    fs::write(program.path().join("c.toml"), TOML).unwrap();
    for (flags, what) in [
        ("--json ./c.toml", "./c.toml: is the configuration"),
        ("--out c.toml", "c.toml: is the configuration"),
        ("--out new --json ./new", "./new: is the file of the text report"),
    ] {
        let error = program.refused(&format!("--config c.toml {flags}"));
        assert!(error.contains(what), "{error}");
        assert_eq!(program.read("c.toml"), TOML);
        assert!(!program.path().join("new").exists());
    }
    program.done("--config c.toml --out /dev/null");
}

#[test]
fn nothing_is_left_of_a_file_that_does_not_fit() {
    let program = Program::new();
    let words = "trap '' XFSZ; ulimit -f 0; exec \"$0\" init -o new.dat";
    let mut shell = Command::new("sh");
    shell.args(["-c", words, PROGRAM]).current_dir(program.path());
    let ended = shell.output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{error}");
    assert!(error.contains("new.dat: cannot be written"), "{error}");
    assert!(!program.path().join("new.dat").exists());
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_work() {
    let program = Program::new();
    for args in ["screen --good no/good", "screen --json no/r.json", "tune --n 100 --out no/t.toml"]
    {
        let error = program.refused(args);
        assert!(error.contains(args.rsplit(' ').next().unwrap()), "{error}");
        assert!(error.contains("cannot be written"), "{error}");
        // No progress.
        assert!(!error.contains("round") && !error.contains("trial"), "{error}");
    }
}

/// A list of hosts took work to write, and minutes of screening are lost with a file that is
/// written twice.
#[test]
fn what_screen_writes_replaces_neither_its_list_nor_itself() {
    let program = Program::new();
    let list = "here slots=4  # the first rack\n";
    program.write("hosts", list);
    for (args, what) in [
        ("--hosts hosts --good hosts", "the file of --hosts"),
        ("--hosts hosts --json ./hosts", "the file of --hosts"),
        ("--good same --bad same", "the file of --bad"),
        ("--json same --good same", "the file of --good"),
    ] {
        let error = program.refused(&format!("screen {args}"));
        let want = format!("is {what}, and a report would replace it");
        assert!(error.contains(&want), "{args:?}: {error}");
    }
    assert_eq!(fs::read_to_string(program.path().join("hosts")).unwrap(), list);
    assert!(!program.path().join("same").exists());
}

#[test]
fn what_is_required_to_resume_must_be_protected() {
    let error = {
        let output = Program::new().run("--n 100 --resume require");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error.contains("--resume require: no test of this job is protected"), "{error}");
}

#[test]
fn man_pages_and_completions_know_the_flags() {
    let program = Program::new();
    let (page, _) = program.done("man");
    assert!(page.contains("\\-\\-swap\\-threshold"), "{page}");
    program.done("man --out pages");
    for name in ["skt-hpl.1", "skt-hpl-run.1", "skt-hpl-init.1", "skt-hpl-convert.1"] {
        assert!(program.read(&format!("pages/{name}")).contains(".TH"), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let (text, _) = program.done(&format!("completions {shell}"));
        // In bash's, `cmd` is the label of what is completed.
        for (_, rest) in
            text.match_indices("cmd=\"").map(|(at, mark)| text[at..].split_at(mark.len()))
        {
            let label = rest.split('"').next().unwrap();
            assert!(label.is_empty() || text.contains(&format!(" {label})\n")), "{shell}: {label}");
        }
        assert!(text.contains("swap-threshold") && text.contains("2ringM"), "{shell}");
        assert!(text.contains("parities") && text.contains("init"), "{shell}");
        assert!(!text.contains("probe\"") && !text.contains("supervisor's question"), "{shell}");
    }
}
