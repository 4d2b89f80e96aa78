//! Several runs on one machine: each pins its threads to cores that no other process is pinned to.
//!
//! Each test runs in its own namespaces, whose runs see only each other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use skt_host::affinity::{current_mask, set_mask};
use skt_host::placement::{HostCpus, cores_in};
use tempfile::TempDir;

use crate::mpirun::{mpirun, own_session};
use crate::skipped::{namespaces, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");
/// A run that lasts until it is killed, for a test.
const LONG: &str = "--n 6000 --nb 64 --p 1 --q 1 --ft none --progress off";
const SHORT: &str = "--n 200 --nb 20 --ft none --progress off";
/// Variables that would give a rank another number of threads.
const VARIABLES: [&str; 5] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
];

/// Two cores of this machine; `None` if it has one.
#[track_caller]
fn two_cores() -> Option<[usize; 2]> {
    let cores = cores_in(&HostCpus::online().unwrap().cpus, &current_mask().unwrap());
    let two = cores.first_chunk().copied();
    if two.is_none() {
        skipped("one core");
    }
    two
}

/// A shell in its own namespaces, on these cores. `None` if the system permits none.
#[track_caller]
fn shell_on(cores: &[usize], folder: &Path, script: &str) -> Option<Command> {
    let words =
        namespaces(&["--pid", "--time", "--mount", "--mount-proc", "--fork", "--kill-child"])?;
    let mut shell = Command::new(words[0]);
    // The variables of `mpirun` for tests, whose program the script starts as it likes.
    let of_launcher = mpirun(1);
    shell.envs(of_launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
    VARIABLES.iter().for_each(|name| {
        shell.env_remove(name);
    });
    own_session(&mut shell);
    shell
        .args(&words[1..])
        .args(["sh", "-c", script, PROGRAM])
        .current_dir(folder)
        .stdin(Stdio::null());
    let cores = cores.to_vec();
    // SAFETY: between fork and exec only a system call on memory of this closure is made.
    unsafe { shell.pre_exec(move || set_mask(&cores)) };
    Some(shell)
}

/// Runs that a script has started; dropping this kills them.
struct Runs {
    unshare: Child,
    folder: TempDir,
}

impl Runs {
    /// Starts a script whose `run K` starts the long run K after the words in `$launcher`.
    fn start(cores: &[usize], script: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        // Jobs that start at once get in each other's way if they share a session folder.
        let run = format!(
            "base=$OMPI_MCA_orte_tmpdir_base\n\
             run() {{ OMPI_MCA_orte_tmpdir_base=$base/$1 PRTE_MCA_prte_tmpdir_base=$base/$1\n\
             mkdir -p \"$base/$1\"\n\
             $launcher \"$0\" {LONG} $flags --json {}/$1.json > $1.out 2>&1; }}\n",
            folder.path().display()
        );
        let mut shell = shell_on(cores, folder.path(), &format!("{run}{script}\nwait"))?;
        Some(Self { unshare: shell.spawn().unwrap(), folder })
    }

    fn text(&self, run: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("{run}.out"))).unwrap_or_default()
    }

    /// The CPUs of the first thread of each run.
    fn masks(&self) -> Vec<String> {
        let marker = self.folder.path().display().to_string();
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mask = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            if !line.starts_with(&format!("{PROGRAM}\0")) || !line.contains(&marker) {
                return None;
            }
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(cpus.trim().to_owned())
        };
        pids.filter_map(mask).collect()
    }

    /// Waits for a state of the runs, which then have these masks.
    #[track_caller]
    fn wait(&mut self, is_reached: impl Fn(&[String], &Self) -> bool) -> Vec<String> {
        loop {
            let masks = self.masks();
            // Before, MPI binds a process to each CPU in turn for a moment (hwloc).
            let settled = (1..=3).filter(|run| self.text(*run).contains("# pinning  : ")).count();
            if settled >= masks.len() && is_reached(&masks, self) {
                return masks;
            }
            let ended = self.unshare.try_wait().unwrap();
            assert!(ended.is_none(), "{masks:?}: {}\n{}", self.text(1), self.text(2));
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // The child of `unshare` ends with it, and all processes of its namespace with that one.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

fn is_pinned(mask: &str) -> bool {
    mask.parse::<usize>().is_ok()
}

#[test]
fn runs_that_start_at_once_take_different_cores() {
    let Some(cores) = two_cores() else { return };
    let all: BTreeSet<String> = cores.iter().map(ToString::to_string).collect();
    for launcher in ["", "mpirun --bind-to none -np 1"] {
        let script = format!("launcher='{launcher}'; run 1 & run 2 &");
        for _ in 0..3 {
            let Some(mut runs) = Runs::start(&cores, &script) else { return };
            // If they take the same core, they end without this.
            runs.wait(|masks, _| {
                masks.len() == 2 && masks.iter().cloned().collect::<BTreeSet<_>>() == all
            });
        }
    }
}

#[test]
fn a_run_without_a_free_core_is_not_pinned_and_names_the_others() {
    let Some(cores) = two_cores() else { return };
    let Some(mut runs) = Runs::start(&cores, "run 1 & run 2 & run 3 &") else { return };
    let why = "not pinned: of 2 core(s) 0 are free for 1 rank(s) of 1 thread(s)";
    let last = |runs: &Runs| (1..=3).find(|run| runs.text(*run).contains(why));
    let masks = runs.wait(|masks, runs| {
        masks.len() == 3
            && masks.iter().filter(|mask| is_pinned(mask)).count() == 2
            && last(runs).is_some()
    });
    assert_eq!(masks.into_iter().collect::<BTreeSet<_>>().len(), 3);
    let text = runs.text(last(&runs).unwrap());
    let warning = text.lines().find(|line| line.starts_with("# warning  : on ")).expect(&text);
    // Commands are cut in the text, processes are counted.
    assert_eq!(warning.matches(" of user ").count(), 2, "{warning}");
    assert!(!text.contains("DGEMM is far below"), "the cause is known: {text}");
}

#[test]
fn the_pin_flag_leaves_threads_to_the_system() {
    let Some(cores) = two_cores() else { return };
    let Some(mut runs) = Runs::start(&cores, "flags='--pin none'; run 1 &") else { return };
    let head = "# pinning  : not pinned (--pin none)";
    let masks = runs.wait(|masks, runs| masks.len() == 1 && runs.text(1).contains(head));
    assert!(!is_pinned(&masks[0]), "{masks:?}");
}

#[test]
fn a_busy_core_is_left_alone_and_a_sleeper_is_not() {
    let Some([first, second]) = two_cores() else { return };
    let busy = format!(
        "taskset -c {first} sh -c ': > busy; while :; do :; done' &\n\
         until [ -e busy ]; do sleep 0.01; done; run 1 &"
    );
    let asleep = format!("taskset -c {first} sleep 1000 & sleep 0.1; run 1 &");
    for (script, core) in [(busy, second), (asleep, first)] {
        let Some(mut runs) = Runs::start(&[first, second], &script) else { return };
        let masks = runs.wait(|masks, _| masks.len() == 1 && is_pinned(&masks[0]));
        assert_eq!(masks, [core.to_string()], "{script}");
    }
}

#[test]
fn runs_bound_to_one_core_are_warned_of_each_other() {
    let Some([first, second]) = two_cores() else { return };
    let script = format!("launcher='taskset -c {first}'; run 1 & run 2 &");
    let Some(mut runs) = Runs::start(&[first, second], &script) else { return };
    let named = "# warning  : on ";
    let why = "a rank is bound to cores that are in use by process ";
    runs.wait(|_, runs| (1..=2).all(|run| runs.text(run).contains("# pinning  : ")));
    runs.wait(|_, runs| (1..=2).any(|run| runs.text(run).contains(named)));
    // The second one has seen the first.
    let found = (1..=2).filter(|run| runs.text(*run).contains(why)).count();
    assert!(found >= 1, "{}\n{}", runs.text(1), runs.text(2));
}

/// The output of short runs of a script, in which `stat` makes all CPUs look idle.
fn output_of(cores: &[usize], script: &str) -> Option<(TempDir, String)> {
    let folder = TempDir::new().unwrap();
    symlink(PROGRAM, folder.path().join("xhpl")).unwrap();
    let stat = "stat() { cat /proc/stat > stat && mount --bind stat /proc/stat; }\n";
    let Output { status, stdout, stderr } =
        shell_on(cores, folder.path(), &format!("{stat}{script}"))?.output().unwrap();
    let text = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(status.success(), "{script}: {text}");
    Some((folder, text))
}

#[test]
fn idle_cores_are_reported_with_the_remedy() {
    let Some([first, second]) = two_cores() else { return };
    let idle = "no rank uses some of the cores: 1 thread(s) of 1 rank(s), 2 cores";
    let busy = format!("taskset -c {second} sh -c 'while :; do :; done' & sleep 0.1;");
    let bound = format!("taskset -c {first} \"$0\" {SHORT}");
    for (script, remedy) in [
        (format!("\"$0\" {SHORT}"), "Remedy: mpirun -np 2, or --threads 2 "),
        (format!("\"$0\" {SHORT} --pin none"), "Remedy: mpirun -np 2, or --threads 2 "),
        (format!("mpirun --bind-to core -np 1 \"$0\" {SHORT}"), "Remedy: mpirun -np 2 (per host"),
        (
            format!("mpirun --bind-to core -np 1 sh -c '\"$0\" \"$@\"' \"$0\" {SHORT}"),
            "Remedy: mpirun -np 2 ",
        ),
        (format!("\"$0\" {SHORT} --threads 2"), ""),
        (format!("mpirun -np 2 \"$0\" {SHORT}"), ""),
        (bound, ""),
        (format!("SLURM_CPUS_ON_NODE=1 \"$0\" {SHORT}"), ""),
        (format!("{busy} \"$0\" {SHORT}"), ""),
    ] {
        let script = format!("stat || exit 1; {script}");
        let Some((_, text)) = output_of(&[first, second], &script) else { return };
        assert_eq!(text.contains(idle), !remedy.is_empty(), "{script}: {text}");
        assert!(text.contains(remedy), "{script}: {text}");
    }
}

#[test]
fn variables_of_a_blas_give_xhpl_its_threads() {
    let Some(cores) = two_cores() else { return };
    for name in VARIABLES {
        let script = format!("{name}=2 ./xhpl {SHORT} --json run.json");
        let Some((folder, text)) = output_of(&cores, &script) else { return };
        let json = fs::read(folder.path().join("run.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(report["parameters"]["threads"], serde_json::json!(2), "{name}: {text}");
        assert!(!text.contains("no rank uses"), "{name}: {text}");
    }
    let script = format!("OMP_NUM_THREADS=4 MKL_NUM_THREADS=many ./xhpl {SHORT} --threads 1");
    let Some((_, text)) = output_of(&cores, &script) else { return };
    // The remedy for an idle core names OMP_NUM_THREADS.
    assert!(!text.contains("MKL_NUM_THREADS"), "a flag makes them void: {text}");
    let script = format!("OMP_NUM_THREADS=2 MKL_NUM_THREADS=many ./xhpl {SHORT}");
    let Some((_, text)) = output_of(&cores, &script) else { return };
    assert!(text.contains("# warning: MKL_NUM_THREADS=\"many\" is ignored"), "{text}");
}
