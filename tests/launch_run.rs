//! `skt-hpl launch` on a cluster in a box: real mpirun, real power-offs.

mod cluster_box;

use std::fs;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cluster_box::{ClusterBox, NETWORK};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest time for anything here.
const PATIENCE: Duration = Duration::from_secs(90);
/// Order of the matrix.
const N: &str = "6000";

/// A box with our program in it and a host file of `nodes` nodes, the others
/// spares; or `None`, with the reason on standard error, where it cannot be.
fn cluster(nodes: usize, spares: usize) -> Option<ClusterBox> {
    if std::process::Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("skipped: no mpirun");
        return None;
    }
    let cluster = match ClusterBox::new(nodes + spares) {
        Ok(cluster) => cluster,
        Err(why) => {
            eprintln!("skipped: {why}");
            return None;
        }
    };
    cluster.install(std::path::Path::new(env!("CARGO_BIN_EXE_skt-hpl")), "skt-hpl");
    let list = |range: std::ops::RangeInclusive<usize>| {
        range.map(|index| format!("n{index} slots=1\n")).collect::<String>()
    };
    cluster.write("hosts", &list(1..=nodes));
    cluster.write("spares", &format!("# spares\n{}", list(nodes + 1..=nodes + spares)));
    Some(cluster)
}

/// A supervisor on the head of a box.
struct Launch {
    child: Child,
    said: std::thread::JoinHandle<String>,
    report: std::thread::JoinHandle<String>,
}

/// How it ended.
struct Ended {
    code: Option<i32>,
    said: String,
    report: String,
    account: Value,
}

fn launch(cluster: &ClusterBox, spares: bool, flags: &str, run: &str) -> Launch {
    let mut command = cluster.on_head("bin/skt-hpl");
    command.args("launch --hosts hosts --agent /mnt/bin/agent --json account.json".split(' '));
    if spares {
        command.args(["--spares", "spares"]);
    }
    let network = ["--mca", "oob_tcp_if_include", NETWORK, "--mca", "btl_tcp_if_include", NETWORK];
    let places = ["--mca", "btl", "self,tcp", "--mca", "pml", "ob1", "--bind-to", "none"];
    for word in network.iter().chain(&places) {
        command.arg(format!("--launcher-arg={word}"));
    }
    command.args(flags.split_whitespace()).arg("--").args(run.split_whitespace());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter");
    let read = |mut pipe: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let report = read(Box::new(child.stdout.take().expect("piped")));
    let said = read(Box::new(child.stderr.take().expect("piped")));
    Launch { child, said, report }
}

impl Launch {
    /// Waits for its end.
    fn end(mut self, cluster: &ClusterBox) -> Ended {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().expect("our child") {
                Some(status) => break status.code(),
                None if start.elapsed() > PATIENCE => {
                    let state = fs::read_to_string(cluster.shared().join("skt-hpl.launch/state.json"));
                    let _ = self.child.kill();
                    panic!("no end in {PATIENCE:?}: {state:?}\n{:?}", cluster.remains());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let account = fs::read(cluster.shared().join("account.json")).unwrap_or_default();
        let ended = Ended {
            code,
            said: self.said.join().expect("reader"),
            report: self.report.join().expect("reader"),
            account: serde_json::from_slice(&account).unwrap_or(Value::Null),
        };
        eprintln!("{}", ended.said);
        ended
    }
}

impl Ended {
    fn x(&self) -> &str {
        let line = self.report.lines().find(|line| line.contains("x fingerprint"));
        line.unwrap_or_else(|| panic!("no fingerprint of x:\n{}\n{}", self.report, self.said))
    }

    fn passed(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.said, self.report);
        assert!(self.report.contains("PASSED"), "{}", self.report);
        self
    }
}

#[test]
fn an_undisturbed_run_passes_and_leaves_nothing() {
    let Some(cluster) = cluster(4, 1) else { return };
    let ended = launch(&cluster, true, "", &format!("--n {N} --p 2 --q 2")).end(&cluster);
    eprintln!("{}", ended.report);
    ended.passed();
    assert_eq!(cluster.remains_after(Duration::from_secs(10)), Vec::<String>::new());
}
