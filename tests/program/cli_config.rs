//! The built program: its subcommands that write text, and how it ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::built::{LAUNCHER_NAMES, PROGRAM, Program};

const TOML: &str = "n = 100\nnb = 8\np = 1\nq = 1\n";

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
        &["plan", "--machine", &name],
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
fn a_closed_standard_output_is_an_error() {
    let program = Program::new();
    for args in ["--n 100 --progress off", "init --out -"] {
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
    for args in ["--help", "run --help"] {
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
        "warning: HPL.dat cannot hold all of this run: add --generator xoshiro --threads 3\n"
    );
    assert_eq!(program.read("HPL.dat").lines().count(), 31);
    let two_ranks = TOML.replace("q = 1", "q = 2");
    program.write("c.toml", &format!("{two_ranks}[checkpoint]\nmethod = \"double\"\nevery = 60\n"));
    let (toml, error) = program.done("convert c.toml --to toml");
    assert_eq!(error, "");
    assert!(toml.contains("\nmethod = \"double\"\n") && toml.contains("\nevery = \"60\"\n"));
    let (_, error) = program.done("convert c.toml");
    let flags = "--ft double --checkpoint-every 60";
    assert_eq!(error, format!("warning: HPL.dat cannot hold all of this run: add {flags}\n"));
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
    let (_, printed) = init("--ranks 2 --memory-gib 64 --time 1s");
    assert!(printed.contains(": the largest that ends in 1 s; memory holds "), "{printed}");
    let (_, printed) = init("--ranks 2 --memory-gib 0.1 --time 1000d");
    assert!(
        printed.contains("): as large as the memory holds, by the model; DGEMM: "),
        "{printed}"
    );
    for (flags, want) in [
        ("--time 1us", "`1us` is no time: use 90 or 90s, 10min, 24h or 3d"),
        ("--time 0.001ms", "--time: 0.000 s are left, and N = 192, the smallest, takes "),
    ] {
        let error = program.refused(&format!("init --force --memory-gib 1 {flags}"));
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
    // A short run has no checkpoint due: the memory is left to the matrix. So little memory is
    // short work on a machine that gives a hundredth of a core, too.
    let (_, printed) = program.done("init --force --ranks 6 --memory-gib 0.1");
    assert!(printed.contains(" --ft none\n"), "{printed}");
    // A run of days, with twenty TiB, has checkpoints.
    let (_, printed) = program.done("init --force --ranks 16 --memory-gib 20000");
    assert!(printed.contains(" --ft self\n"), "{printed}");
    let dat = program.read("HPL.dat");

    let error = program.refused("init");
    assert!(error.starts_with("error: HPL.dat: exists already; --force"), "{error}");
    assert_eq!(program.read("HPL.dat"), dat);
    program.done("init --force --ranks 1");
    assert_ne!(program.read("HPL.dat"), dat);

    let (_, printed) = program.done("init --out HPL.toml --threads 2 --ranks 2 --ft self");
    let toml = program.read("HPL.toml");
    assert!(toml.starts_with("# Made by `skt-hpl init`; run it with\n#   "), "{toml}");
    assert!(toml.contains("\n[checkpoint]\n") && toml.contains("\nmethod = \"self\"\n"), "{toml}");
    assert!(toml.contains("\nthreads = 2\n") && toml.contains("\n# region = \"corner\"\n"));
    assert!(printed.contains("--config HPL.toml\n"), "{printed}");
    // What HPL.dat cannot hold is in the command.
    let (_, printed) =
        program.done("init --force --mxp --ranks 2 --threads 2 --out a.dat --ft none");
    assert!(printed.contains(" mxp --config a.dat --threads 2 --ft none\n"), "{printed}");
    let protected = "--ft abft --parities 2 --ranks 12 --memory-gib 64";
    let (_, printed) = program.done(&format!("init --force {protected}"));
    assert!(printed.contains(" --ft abft --parities 2\n"), "{printed}");
    let helped = "init --force --ranks 6 --memory-gib 16 --helper-cores 2 --ft self";
    let (_, printed) = program.done(helped);
    assert!(printed.contains(" --bind-to none -np 6 "), "{printed}");
    assert!(printed.contains(" --ft self --helper-cores 2\n"), "{printed}");
}

#[test]
fn a_dash_is_standard_output() {
    let program = Program::new();
    let text = program.printed("--n 100 --progress off --out -");
    assert!(text.contains("1 tests completed and passed residual checks"), "{text}");
    program.write("a.toml", TOML);
    let (dat, _) = program.done("convert a.toml -");
    assert_eq!(dat.lines().count(), 31);
    assert!(!program.path().join("-").exists());
}

#[test]
fn a_report_goes_to_a_device() {
    let program = Program::new();
    program.write("c.toml", TOML);
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
