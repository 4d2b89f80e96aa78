//! What is refused: arguments, and what the error has and has not. Each ends with exit code 2,
//! prints nothing to standard output, and changes no file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::built::Program;

const TOML: &str = "n = 100\nnb = 8\np = 1\nq = 1\n";

/// The arguments, separated by one blank each, and what the error has. A text that ends with a new
/// line is all of the error; one that begins with `error: ` is at its beginning.
const REFUSALS: [(&str, &[&str]); 68] = [
    // Without a configuration it explains how to get one.
    ("", &["error: HPL.dat: not found in /", "skt-hpl init", "--config"]),
    ("run", &["error: HPL.dat: not found in /", "skt-hpl init", "--config"]),
    ("--nb 64", &["error: HPL.dat: not found in /", "skt-hpl init", "--config"]),
    ("mxp", &["error: HPL.dat: not found in /"]),
    ("--config other.dat --n 10", &["error: other.dat: cannot be read: No such file"]),
    ("--config large.dat", &["large.dat: cannot be read: it is larger than 1"]),
    // Values.
    ("--config hpl.toml --q 0", &["error: --q: value 0 is out of range; legal: 1 or more\n"]),
    ("--config hpl.toml --q -1", &["error: --q: value -1 is out of range; legal: 1 or more\n"]),
    (
        "--config hpl.toml --n 10,x",
        &["error: --n: `x` is not a whole number; legal: 0 to 4294967295\n"],
    ),
    (
        "--config hpl.toml --n 1,",
        &["error: --n: `` is not a whole number; legal: 0 to 4294967295\n"],
    ),
    (
        "--config hpl.toml --n 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
        &["error: --n: 21 values; legal: 1 to 20\n"],
    ),
    (
        "--config hpl.toml --pfact up",
        &[
            "error: --pfact: `up` is not one of the choices; legal: left (0), crout (1), right (2)\n",
        ],
    ),
    (
        "--config hpl.toml --swap 3",
        &[
            "error: --swap: value 3 is out of range; legal: binary-exchange (0), spread-roll (1), mix \
           (2)\n",
        ],
    ),
    (
        "--config hpl.toml --threads 0",
        &["error: --threads: value 0 is out of range; legal: 1 to 4096\n"],
    ),
    (
        "--config hpl.toml --p 1,2",
        &["error: --p has 2 values and hpl.toml:4: q has 1; they pair up, one Q for each P\n"],
    ),
    // Leniency is for HPL.dat: the reference has no flags.
    (
        "--config hpl.toml --lenient --pmap 2",
        &["error: --pmap: value 2 is out of range; legal: row (0), column (1)\n"],
    ),
    (
        "--config hpl.toml --out ",
        &["error: --out: the report goes to a file, but no file name is given\n"],
    ),
    // A flag overrides a bad value of the table.
    (
        "--config bad.toml --group-size 3 --parities 2",
        &["error: --group-size: value 3 is out of range; legal: 4 to 255\n"],
    ),
    // Flags of other programs.
    ("-P 2 -Q 2", &["error: unexpected argument '-P' found"]),
    ("launch --np 1 -- -N 9", &["error: unexpected argument '-N' found"]),
    // Files that cannot be written, before any work.
    ("--n 100 --json -", &["a file is needed"]),
    ("launch --json - -- --n 100", &["a file is needed"]),
    ("screen --good -", &["a file is needed"]),
    ("screen --bad -", &["a file is needed"]),
    ("launch -- --config dash.toml", &["launch.json: `-`"]),
    ("--n 100 --progress off --json nowhere/x", &["'nowhere/x': No such file or directory"]),
    ("screen --good no/good", &["no/good", "cannot be written"]),
    ("screen --json no/r.json", &["no/r.json", "cannot be written"]),
    ("tune --n 100 --out no/t.toml", &["no/t.toml", "cannot be written"]),
    // A list of hosts took work to write, and minutes of screening are lost with a file that is
    // written twice.
    ("--config hpl.toml --json ./hpl.toml", &["./hpl.toml: is the configuration"]),
    ("--config hpl.toml --out hpl.toml", &["hpl.toml: is the configuration"]),
    ("--config hpl.toml --out new --json ./new", &["./new: is the file of the text report"]),
    (
        "screen --hosts hosts --good hosts",
        &["is the file of --hosts, and a report would replace it"],
    ),
    (
        "screen --hosts hosts --json ./hosts",
        &["is the file of --hosts, and a report would replace it"],
    ),
    ("screen --good same --bad same", &["is the file of --bad, and a report would replace it"]),
    ("screen --json same --good same", &["is the file of --good, and a report would replace it"]),
    ("--n 10 --out no/x.out", &["no/x.out"]),
    // Runs.
    (
        "--n 10 --ft abft --p 1 --q 1 --depth 2",
        &["--depth: value 2 is out of range; legal: 0 or 1, with --ft abft"],
    ),
    ("--n 4000000 --progress off", &["N = 4000000 does not fit"]),
    ("--n 100 --resume require", &["--resume require: no test of this job is protected"]),
    // `init`.
    ("init --memory-fraction 1.5", &["'--memory <0..1>': legal is more than 0, at most 1"]),
    ("init --memory nan", &["'--memory <0..1>': legal is more than 0, at most 1"]),
    ("init --memory-gib 0", &["'--memory-gib <GIB>': legal is a number above 0"]),
    ("init --memory-gib 0.001", &["hold not even one block"]),
    ("init --ranks 0", &["0 is not in 1..=1048576"]),
    ("init --threads 0", &["0 is not in 1..=4096"]),
    (
        "init --helper-cores 100000",
        &["--helper-cores: value 100000 is out of range; legal: 0 to 4096"],
    ),
    (
        "init --helper-cores 1 --ft none --ranks 2",
        &["--helper-cores: there is nothing for helper cores to do"],
    ),
    // `doctor`.
    ("doctor --root .", &["no sys/devices/system/cpu/online there"]),
    ("doctor --hosts /nonexistent/hosts", &["/nonexistent/hosts: No such file"]),
    ("doctor --threads 0", &["--threads"]),
    ("doctor --no-such-flag", &["--no-such-flag"]),
    // HPL-MxP, and what it does not have.
    ("mxp hpl.toml --ft abft", &["error: --ft: abft has no checksums for the factorization"]),
    ("mxp abft.toml", &["error: abft.toml:6: checkpoint.method: abft has no checksums for"]),
    ("mxp hpl.toml --on-loss replace", &["error: --on-loss: a job that continues after a loss"]),
    ("mxp hpl.toml --threshold 8", &["error: --threshold: value 8.0: the rules of HPL-MxP fix"]),
    ("mxp hpl.toml --generator xoshiro", &["error: --generator: xoshiro makes no matrix of"]),
    ("mxp hpl.toml --matrix hilbert", &["error: --matrix: `hilbert` is not one of the choices"]),
    ("mxp hpl.toml --gemm fp16", &["error: --gemm: `fp16` is not one of the choices"]),
    ("launch --np 1 -- mxp --n 9 --gemm fp16", &["error: --gemm: `fp16` is not one of the"]),
    ("launch --np 1 -- mxp --n 9 --ft abft", &["error: --ft: abft has no checksums for"]),
    ("--n 9 --matrix scaled", &["error: unexpected argument '--matrix'"]),
    ("launch -- --n 9 --gemm bf16", &["error: unexpected argument '--gemm'"]),
    ("tune --n 9 --matrix scaled", &["were not provided:\n  --mxp\n"]),
    ("tune --n 9 --gemm bf16", &["were not provided:\n  --mxp\n"]),
    ("mxp hpl.toml --gem bf16", &["'--gemm'"]),
    ("tune mxp", &["error: unexpected argument 'mxp'"]),
    ("mxp hpl.toml --config hpl.toml", &["cannot be used with"]),
];

/// Arguments that name a file.
const WITH_A_FILE: [&str; 9] = [
    "--config FILE",
    "--n 9 --nb 3 --rates FILE",
    "launch --dry-run --np 2 -- --n 99 --nb 9 --p 1 --q 2 --ft self --domains FILE",
    "convert FILE",
    "report FILE",
    "report run.json --power-csv FILE",
    "plan --nodes 1 --machine FILE",
    "launch --dry-run --hosts FILE -- --n 9 --nb 3",
    "launch --dry-run --hosts hosts --spares FILE -- --n 9 --nb 3",
];

/// What errors of these arguments do not have.
const ABSENT: [(&str, &[&str]); 5] = [
    // One rank is not advised to turn off checkpoints.
    ("--n 4000000", &["checkpoints"]),
    // The file is named as the user did.
    ("--n 100 --progress off --json", &[".tmp"]),
    // There is no progress.
    ("screen --good no/", &["round", "trial"]),
    ("screen --json no/", &["round", "trial"]),
    ("tune --n 100 --out no/", &["round", "trial"]),
];

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("our folder").map(|entry| entry.expect("an entry"));
    let of = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("UTF-8"), fs::read(entry.path()).expect("a file"))
    };
    entries.map(of).collect()
}

#[test]
fn refusals_name_what_is_wrong_and_change_no_file() {
    let program = Program::new();
    program.write("hpl.toml", TOML);
    program.write("bad.toml", &format!("{TOML}[checkpoint]\nparities = 0\n"));
    program.write("abft.toml", &format!("{TOML}[checkpoint]\nmethod = \"abft\"\n"));
    program.write("dash.toml", &format!("{TOML}[launch]\njson = '-'\n"));
    program.write("large.dat", &" ".repeat((1 << 20) + 1));
    program.write("hosts", "here slots=4  # the first rack\n");
    program.write("run.json", r#"{"format": "skt-hpl report", "tests": []}"#);
    let before = files(program.path());
    for (line, wants) in REFUSALS {
        let words: Vec<&str> = if line.is_empty() { Vec::new() } else { line.split(' ').collect() };
        let error = program.refused_words(&words);
        for want in wants {
            let is_there = if !want.starts_with("error: ") {
                error.contains(want)
            } else if want.ends_with('\n') {
                error == *want
            } else {
                error.starts_with(want)
            };
            assert!(is_there, "{line}: {error}");
        }
        for (_, absent) in ABSENT.iter().filter(|(start, _)| line.starts_with(start)) {
            assert!(!absent.iter().any(|text| error.contains(text)), "{line}: {error}");
        }
        assert!(files(program.path()) == before, "{line} has changed a file");
    }
    for (file, kind) in [("/dev/null", "it is a device"), ("/dev", "it is a folder")] {
        for line in WITH_A_FILE {
            let error = program.refused(&line.replace("FILE", file));
            assert!(error.contains(file) && error.contains(kind), "{line}: {error}");
        }
    }
}
