//! `report --bundle`: one archive with what a submission asks for, which `report` reads again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::report_common::{record, small_run};
use crate::report_json::facts;
use flate2::read::GzDecoder;
use skt_hpl::report::JsonReport;
use tempfile::TempDir;

/// A folder with the JSON report of a run, `run.json`.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let spec = small_run();
    let mut report = JsonReport::create(&folder.path().join("run.json"), &spec, facts()).unwrap();
    report.test(&record(spec.tests().remove(0)), "T/V  N\nWR00\n").unwrap();
    report.finish("End of Tests.\n").unwrap();
    folder
}

fn report(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skt-hpl"));
    command.arg("report").args(args.split(' ')).current_dir(folder).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn done(folder: &Path, args: &str) -> Output {
    let output = report(folder, args);
    assert!(output.status.success(), "{args}: {}", stderr(&output));
    output
}

/// Asserts that an archive is refused, that nothing is written, and checks the message.
#[track_caller]
fn refused(folder: &Path, archive: &str, why: &str) {
    let before = names(folder);
    let output = report(folder, archive);
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(
        printed.starts_with(&format!("error: '{archive}'")) && printed.contains(why),
        "{printed}"
    );
    assert_eq!(names(folder), before);
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// Unpacks an archive with tar; its folder.
fn unpack(folder: &Path, archive: &str) -> PathBuf {
    let ended = Command::new("tar").args(["-xzf", archive]).current_dir(folder).output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", stderr(&ended));
    folder.join("skt-hpl-20231114T221320Z")
}

/// Packs the folder of an archive again with tar.
fn pack(folder: &Path, archive: &str) {
    let tar = format!("tar -czf {archive} ./skt-hpl-*");
    assert!(Command::new("sh").args(["-c", &tar]).current_dir(folder).status().unwrap().success());
}

fn sums_are_right(unpacked: &Path) -> bool {
    let check =
        Command::new("sha256sum").args(["--strict", "-c", "SHA256SUMS"]).output_in(unpacked);
    check.status.success()
}

trait OutputIn {
    fn output_in(&mut self, folder: &Path) -> Output;
}

impl OutputIn for Command {
    fn output_in(&mut self, folder: &Path) -> Output {
        self.current_dir(folder).output().unwrap()
    }
}

#[test]
fn an_archive_has_what_a_submission_asks_for() {
    let folder = folder();
    let at = folder.path();
    done(at, "run.json --bundle run.tar.gz");
    let unpacked = unpack(at, "run.tar.gz");
    let names: Vec<String> = names(&unpacked)
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let want = "HPL.dat HPL.out SHA256SUMS command-line.txt environment.txt report.html run.json";
    assert_eq!(names.join(" "), want);
    let text = |name: &str| fs::read_to_string(unpacked.join(name)).unwrap();
    assert_eq!(text("HPL.dat"), "title\nof \u{fffd}\n");
    assert_eq!(text("HPL.out"), "T/V  N\nWR00\nEnd of Tests.\n");
    assert_eq!(text("command-line.txt"), "skt-hpl --json 'a b.json'\n");
    assert_eq!(text("run.json"), fs::read_to_string(at.join("run.json")).unwrap());
    assert!(text("report.html").contains("<h2>run.json</h2>"));
    for fact in [
        "environment.mpi_library: Open MPI v4.1.4",
        "environment.blas.version: OpenBLAS 0.3.21",
        "environment.blas.kernel: SkylakeX",
        "environment.host.kernel: Linux 6.1.0",
        "environment.host.cpu_model: AMD EPYC",
        "environment.hosts.0.host: n1",
        "dgemm_self_test.gflops_per_core: 110.5",
    ] {
        assert!(text("environment.txt").lines().any(|line| line == fact), "{fact}");
    }
    assert_eq!(text("SHA256SUMS").lines().count(), names.len() - 1);
    assert!(sums_are_right(&unpacked));
    fs::write(unpacked.join("HPL.out"), "T/V  N\nWR01\nEnd of Tests.\n").unwrap();
    assert!(!sums_are_right(&unpacked), "this test could not fail");
}

#[test]
fn archives_are_reproducible_and_read_as_their_report() {
    let folder = folder();
    let at = folder.path();
    done(at, "run.json --bundle a.tar.gz");
    fs::rename(at.join("run.json"), at.join("other.json")).unwrap();
    done(at, "other.json --bundle b.tar.gz");
    // Of an archive, too, whatever its name is.
    fs::rename(at.join("a.tar.gz"), at.join("a.bundle")).unwrap();
    done(at, "a.bundle --bundle c.tar.gz");
    let bytes = |name: &str| fs::read(at.join(name)).unwrap();
    assert!(bytes("a.bundle") == bytes("b.tar.gz") && bytes("b.tar.gz") == bytes("c.tar.gz"));
    let mut tar = Vec::new();
    std::io::Read::read_to_end(&mut GzDecoder::new(&bytes("c.tar.gz")[..]), &mut tar).unwrap();
    assert!(tar.len() > 10_000);

    let page = |input: &str| {
        done(at, &format!("{input} --out page.html --force"));
        fs::read_to_string(at.join("page.html")).unwrap().replace(input, "NAME")
    };
    assert_eq!(page("b.tar.gz"), page("other.json"));
    let sheet =
        |input: &str| String::from_utf8(done(at, &format!("{input} --top500")).stdout).unwrap();
    assert_eq!(
        sheet("b.tar.gz").replace("b.tar.gz", ""),
        sheet("other.json").replace("other.json", "")
    );
    // Both at once.
    done(at, "b.tar.gz other.json --out both.html");
    let output = report(at, "b.tar.gz other.json --bundle d.tar.gz");
    assert!(stderr(&output).contains("--bundle packs one run, not 2"), "{}", stderr(&output));
    let output = report(at, "other.json --bundle b.tar.gz");
    assert!(stderr(&output).contains("b.tar.gz"), "it is there already: {}", stderr(&output));
}

#[test]
fn the_fields_of_a_submission_and_the_log_of_a_meter_go_along() {
    let folder = folder();
    let at = folder.path();
    // The test takes 5 s, and ends 5.25 s after the run's start.
    let log = "1700000000 150\n1700000050 150\n";
    fs::write(at.join("meter.log"), log).unwrap();
    let flags = "--top500 --rpeak-gflops 200 --power-csv meter.log --power-level 1";
    done(at, &format!("run.json --bundle run.tar.gz {flags}"));
    let unpacked = unpack(at, "run.tar.gz");
    let text = |name: &str| fs::read_to_string(unpacked.join(name)).unwrap();
    assert_eq!(text("power.csv"), log);
    let printed = done(at, &format!("run.json {flags}")).stdout;
    assert_eq!(text("top500.txt"), String::from_utf8(printed).unwrap());
    assert!(text("top500.txt").contains(" 0.150"), "150 W: {}", text("top500.txt"));
    assert!(sums_are_right(&unpacked));
}

#[test]
fn a_changed_archive_is_refused_by_the_name_of_the_file() {
    let folder = folder();
    let at = folder.path();
    done(at, "run.json --bundle run.tar.gz");
    let change = |what: &dyn Fn(&Path)| {
        let unpacked = unpack(at, "run.tar.gz");
        what(&unpacked);
        pack(at, "changed.tar.gz");
        fs::remove_dir_all(&unpacked).unwrap();
    };
    // Packed by another tar, it is what it was; so is one with a file and its sum more.
    change(&|_| {});
    done(at, "changed.tar.gz --out page.html");
    change(&|unpacked| {
        fs::write(unpacked.join("rack.jpg"), "a picture").unwrap();
        let sum = Command::new("sha256sum").arg("rack.jpg").output_in(unpacked).stdout;
        let sums = fs::read(unpacked.join("SHA256SUMS")).unwrap();
        fs::write(unpacked.join("SHA256SUMS"), [sums, sum].concat()).unwrap();
    });
    done(at, "changed.tar.gz --out page.html --force");
    for name in ["HPL.out", "HPL.dat", "run.json", "environment.txt"] {
        change(&|unpacked| {
            let mut bytes = fs::read(unpacked.join(name)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(unpacked.join(name), bytes).unwrap();
        });
        refused(at, "changed.tar.gz", &format!("{name} in the archive has changed"));
        change(&|unpacked| fs::remove_file(unpacked.join(name)).unwrap());
        refused(at, "changed.tar.gz", &format!("the archive lacks {name}"));
    }
    change(&|unpacked| fs::write(unpacked.join("more"), "").unwrap());
    refused(at, "changed.tar.gz", "more in the archive has no checksum");
    change(&|unpacked| fs::remove_file(unpacked.join("SHA256SUMS")).unwrap());
    refused(at, "changed.tar.gz", "the archive lacks SHA256SUMS");
    change(&|unpacked| fs::write(unpacked.join("SHA256SUMS"), "no sum\n").unwrap());
    refused(at, "changed.tar.gz", "line 1 of SHA256SUMS");
    change(&|unpacked| std::os::unix::fs::symlink("HPL.out", unpacked.join("link")).unwrap());
    refused(at, "changed.tar.gz", "/link', which is no plain file");
    let bytes = fs::read(at.join("run.tar.gz")).unwrap();
    fs::write(at.join("cut.tar.gz"), &bytes[..bytes.len() / 2]).unwrap();
    refused(at, "cut.tar.gz", "the archive is damaged");
}

/// Nothing of an archive is written, wherever its paths lead.
#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    let folder = folder();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("x"), "evil").unwrap();
    let absolute = folder.path().join("x");
    for (path, flags) in
        [("../x", "-P"), (absolute.to_str().unwrap(), "-P"), ("./../inner/../x", "-P")]
    {
        let mut tar = Command::new("tar");
        let made = tar.args([flags, "-czf", "evil.tar.gz", path]).output_in(&inner);
        assert!(made.status.success(), "{}", stderr(&made));
        fs::rename(folder.path().join("x"), folder.path().join("kept")).unwrap();
        refused(&inner, "evil.tar.gz", "the archive has '");
        assert!(!folder.path().join("x").exists());
        fs::rename(folder.path().join("kept"), folder.path().join("x")).unwrap();
    }
}

#[test]
fn a_report_of_an_older_version_cannot_be_packed() {
    let folder = folder();
    let at = folder.path();
    let text = fs::read_to_string(at.join("run.json")).unwrap();
    fs::write(at.join("run.json"), text.replace("\"text_report\"", "\"other\"")).unwrap();
    let output = report(at, "run.json --bundle run.tar.gz");
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.starts_with("error: 'run.json': it has no text_report"), "{printed}");
    assert!(!at.join("run.tar.gz").exists());
}

/// Adds to each text of a report what a terminal obeys: an escape sequence, a control sequence of
/// one character, and an order to display from right to left.
fn poison(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => text.push_str("\u{1b}]0;x\u{7}\u{9b}2J\r\u{202e}"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(poison),
        serde_json::Value::Object(members) => {
            let is_word = |key: &str| ["format", "status"].contains(&key);
            let texts = members.iter_mut().filter(|(key, _)| !is_word(key));
            texts.for_each(|(_, value)| poison(value));
        }
        _ => {}
    }
}

#[test]
fn no_escape_sequence_of_a_report_leaves() {
    let folder = folder();
    let at = folder.path();
    let file = at.join("run.json");
    let mut report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let start = report["start"].clone();
    poison(&mut report);
    // The folder of an archive is named by it.
    report["start"] = start;
    report["environment"]["blas"]["a\u{1b}[2Jb"] = "x".into();
    report["tests"][0]["memory_bytes"]["a\u{1b}[2Jb"] = 5.into();
    fs::write(&file, report.to_string()).unwrap();
    let name = "run\u{1b}[31m.json";
    fs::write(at.join(name), report.to_string()).unwrap();
    let is_safe = |what: &str, text: &[u8]| {
        let text = std::str::from_utf8(text).expect(what);
        let obeyed = |c: &char| skt_terms::shown::is_obeyed(*c) && !matches!(c, '\n' | '\t');
        assert_eq!(text.chars().find(obeyed), None, "{what}: {text:?}");
        assert!(!text.is_empty(), "{what}");
    };
    let sheet = done(at, &format!("{name} --top500")).stdout;
    is_safe("the fields of a submission", &sheet);
    assert!(
        String::from_utf8(sheet).unwrap().contains("\\u001b]0;x\\u0007\\u009b2J\\u000d\\u202e")
    );
    is_safe("the page on standard output", &done(at, "run.json --out -").stdout);
    is_safe("a message", &done(at, &format!("{name} --out page\u{1b}[31m.html")).stderr);
    is_safe("the page", &fs::read(at.join("page\u{1b}[31m.html")).unwrap());
    done(at, "run.json --bundle run.tar.gz --top500");
    let mut members: Vec<PathBuf> = names(&unpack(at, "run.tar.gz"));
    // What a run has read and written is packed as it is.
    members.retain(|path| !path.ends_with("run.json") && !path.ends_with("HPL.dat"));
    assert!(members.len() >= 6, "{members:?}");
    members.iter().for_each(|path| is_safe(&path.display().to_string(), &fs::read(path).unwrap()));
    report["format"] = "\u{1b}[31m".into();
    fs::write(&file, report.to_string()).unwrap();
    is_safe("a refusal", &self::report(at, "run.json").stderr);
}
