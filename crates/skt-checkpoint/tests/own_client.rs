//! The program of docs/extending.md, word for word: it compiles with `skt-checkpoint` alone, all that
//! its package depends on, and survives the death of a rank and the loss of another one's memory.

#[path = "../../../tests/mpirun/mod.rs"]
mod mpirun;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mpirun::mpirun;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skt_store::store::{SegmentName, Store as _, SysV};

const PAGE: &str = include_str!("../../../docs/extending.md");
const RANKS: usize = 3;
/// A job without output for longer hangs.
const LIMIT: Duration = Duration::from_secs(600);

fn block(tag: &str) -> &'static str {
    let section = PAGE.split("\n## Your own application\n").nth(1).expect("the section");
    let block = section.split(&format!("\n```{tag}\n")).nth(1).expect("a block of this tag");
    block.split("```").next().expect("its end")
}

/// The library that cargo has built with this test.
fn built_library() -> PathBuf {
    let here = std::env::current_exe().expect("this test");
    let files = fs::read_dir(here.parent().expect("a folder")).unwrap().flatten();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libskt_checkpoint-") && name.ends_with(".rlib")
    };
    let all = files.map(|file| file.path()).filter(is_it);
    all.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).expect("a library")
}

/// Compiles the page's program next to a link to the checkout, where cargo finds what the page's
/// package depends on. Returns the path of the program.
fn build() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the checkout");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-client");
    let heat = work.join("heat");
    let source = heat.join("src/main.rs");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(heat.join("src")).unwrap();
    fs::write(heat.join("Cargo.toml"), block("toml")).unwrap();
    fs::write(&source, block("rust")).unwrap();
    // The versions of the workspace, which are on this machine.
    fs::copy(checkout.join("Cargo.lock"), heat.join("Cargo.lock")).unwrap();
    symlink(checkout, work.join("skt-hpl")).unwrap();
    let cargo = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut tree = Command::new(&cargo);
    tree.args(["tree", "--offline", "--prefix", "none", "--edges", "normal"]).current_dir(&heat);
    let packages = printed(&mut tree);
    assert!(packages.contains("\nskt-checkpoint "), "{packages}");
    for other in ["skt-hpl", "skt-model", "clap"] {
        assert!(!packages.contains(&format!("\n{other} ")), "it needs {other}");
    }
    let (library, program) = (built_library(), work.join("program"));
    let mut rustc = Command::new(cargo.with_file_name("rustc"));
    rustc.args(["--edition", "2024", "-D", "warnings", "-C", "linker=mpicc", "-o"]).arg(&program);
    rustc.arg(format!("-Ldependency={}", library.parent().expect("a folder").display()));
    printed(rustc.arg(format!("--extern=skt_checkpoint={}", library.display())).arg(source));
    program
}

/// What a command prints that has to succeed, without a warning.
fn printed(command: &mut Command) -> String {
    let output = command.env_remove("RUSTC_BOOTSTRAP").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A run; its segments go with it.
struct Run {
    program: PathBuf,
    name: String,
}

impl Run {
    fn new(program: &Path, name: &str) -> Self {
        let name = format!("own-{}-{name}", std::process::id());
        Self { program: program.to_owned(), name }
    }

    fn spawn(&self, steps: u64) -> Child {
        let mut command = mpirun(RANKS);
        command.args(["--bind-to", "none"]).arg(&self.program);
        command.args([&self.name, &steps.to_string()]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun")
    }

    /// Runs to the end; standard output and standard error.
    fn end(&self, steps: u64) -> (String, String) {
        let output = self.spawn(steps).wait_with_output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{out}\n{err}");
        (out, err)
    }

    /// Kills a rank of a run that would take for ever after its second checkpoint; the step of the
    /// last checkpoint that was reported.
    fn kill_after_checkpoints(&self) -> u64 {
        let mut job = self.spawn(u64::MAX);
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(job.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().try_for_each(|line| sender.send(line.unwrap())));
        let (mut reported, mut all, mut is_killed) = (Vec::new(), String::new(), false);
        loop {
            let line = match lines.recv_timeout(LIMIT) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // mpirun ends its ranks.
                    kill(Pid::from_raw(job.id() as i32), Signal::SIGTERM).unwrap();
                    panic!("{}: hangs: {all}", self.name);
                }
            };
            let step = line.strip_prefix("checkpoint at step ");
            reported.extend(step.map(|step| step.parse::<u64>().unwrap()));
            all += &(line + "\n");
            if reported.len() == 2 && !is_killed {
                kill(Pid::from_raw(self.process_of(1)), Signal::SIGKILL).unwrap();
                is_killed = true;
            }
        }
        let mut out = String::new();
        job.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(is_killed && !job.wait().unwrap().success() && out.is_empty(), "{out}\n{all}");
        *reported.last().unwrap()
    }

    fn process_of(&self, rank: usize) -> i32 {
        let ranks = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="].map(|name| format!("{name}{rank}"));
        let is_it = |pid: &i32| {
            let read = |what| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            let words = |bytes: &[u8]| -> Vec<String> {
                let words = bytes.split(|&byte| byte == 0);
                words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
            };
            let (line, environment) = (words(&read("cmdline")), words(&read("environ")));
            line[0] == self.program.to_str().unwrap()
                && line.contains(&self.name)
                && environment.iter().any(|entry| ranks.contains(entry))
        };
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(is_it).expect("a process of this rank")
    }

    fn segments(&self) -> Vec<SegmentName> {
        let names = SysV::new(false).list_once().unwrap().into_iter().map(|info| info.name);
        names.filter(|name| name.run() == self.name).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for name in self.segments() {
            // A test that fails cleans up as well as it can.
            let _ = SysV::new(false).remove(&name);
        }
    }
}

#[test]
fn the_program_of_the_page_compiles_alone_and_survives() {
    let program = build();
    let libraries = Command::new("ldd").arg(&program).output().expect("ldd, of the C library");
    let libraries = String::from_utf8(libraries.stdout).unwrap().to_lowercase();
    assert!(libraries.contains("libmpi") && !libraries.contains("blas"), "{libraries}");

    let disturbed = Run::new(&program, "disturbed");
    let reported = disturbed.kill_after_checkpoints();
    let lost: Vec<_> = disturbed.segments().into_iter().filter(|name| name.rank() == 2).collect();
    let lost = lost.iter().filter(|name| name.role().starts_with('t'));
    assert_eq!(lost.filter(|name| SysV::new(false).remove(name).unwrap()).count(), 1);
    // Another checkpoint may have been complete before it was reported.
    let steps = reported + 250;
    let (result, stderr) = disturbed.end(steps);
    let found = stderr.split("continues from step ").nth(1).and_then(|rest| rest.lines().next());
    let found: u64 = found.unwrap_or_else(|| panic!("it began again: {stderr}")).parse().unwrap();
    assert!((reported..steps).contains(&found), "{stderr}");
    assert_eq!(disturbed.segments(), []);

    let undisturbed = Run::new(&program, "undisturbed");
    assert_eq!(undisturbed.end(steps).0, result, "the sum has other bits");
    assert!(result.starts_with("sum of squares "), "{result}");
}
