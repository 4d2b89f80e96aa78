//! `skt-hpl launch` on a cluster in a box, and how it ended.
#![allow(dead_code, unused_macros)] // Each test uses its part.

#[macro_use]
pub mod scenarios;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster_box::{ClusterBox, NETWORK, OPENMPI_ARGUMENTS, SHARED, with_cover};
use crate::dice::seed;
use crate::large_machine;
use crate::report_schema::Schema;
use crate::skipped::skipped;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{self, SigHandler, Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The longest time for anything here.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// The order of the matrix.
pub const N: &str = "2400";
/// The order of one whose run lasts for several losses, up to column 2000.
pub const LONG_N: &str = "3600";
/// The processors of a box, which sleep as much as they lack to be so slow: on any machine the
/// columns at which nodes are lost come well before the end, and boxes run side by side. The first
/// products are the self-test's.
const SLOW: [(&str, &str); 2] = [("GFLOPS", "1"), ("AFTER_GFLOP", "1")];

/// What starts the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// mpirun of Open MPI.
    Openmpi,
    /// mpirun of Open MPI, which reaches the nodes by real ssh.
    Ssh,
    /// mpiexec.hydra of MPICH, with a build of our program for it, which `SKT_HPL_MPICH` names.
    Mpich,
    /// srun of Slurm inside an allocation, with its daemons on the box and the build for Open MPI.
    Slurm,
}

/// The configuration of Slurm on the box: no accounts, no control groups; nodes that are up again
/// are used again. A node that does not answer is down after five seconds.
const SLURM_CONF: &str = "\
ClusterName=box
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/linear
ReturnToService=2
SlurmdTimeout=5
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
NodeName=n[1-16] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// The environment of salloc: its configuration, and settings that are flags of mpirun elsewhere.
pub const SLURM_ENVIRONMENT: [(&str, &str); 5] = [
    ("SLURM_CONF", "/mnt/slurm.conf"),
    ("OMPI_MCA_btl", "self,tcp"),
    ("OMPI_MCA_btl_tcp_if_include", NETWORK),
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
];

impl Kind {
    /// Our program, built for this MPI.
    fn program(self) -> Result<PathBuf, String> {
        match self {
            Kind::Openmpi | Kind::Ssh | Kind::Slurm => Ok(env!("CARGO_BIN_EXE_skt-hpl").into()),
            Kind::Mpich => std::env::var_os("SKT_HPL_MPICH").map(PathBuf::from).ok_or_else(|| {
                "SKT_HPL_MPICH names no skt-hpl for MPICH; scripts/dev/test-launchers makes one"
                    .to_owned()
            }),
        }
    }

    /// The programs that the launcher needs, with their Debian packages.
    fn tools(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Kind::Openmpi => &[("mpirun", "openmpi-bin")],
            Kind::Ssh => &[
                ("mpirun", "openmpi-bin"),
                ("ssh", "openssh-client"),
                ("ssh-keygen", "openssh-client"),
                ("/usr/sbin/sshd", "openssh-server"),
            ],
            Kind::Mpich => &[("mpiexec.hydra", "mpich")],
            Kind::Slurm => &[
                ("slurmctld", "slurmctld"),
                ("slurmd", "slurmd"),
                ("salloc", "slurm-client"),
                ("mpirun", "openmpi-bin"),
            ],
        }
    }

    /// Flags of `launch` on the box.
    fn flags(self) -> Vec<String> {
        let arguments: Vec<&str> = match self {
            Kind::Openmpi | Kind::Ssh => OPENMPI_ARGUMENTS.to_vec(),
            Kind::Slurm => vec![],
            Kind::Mpich => vec![
                "-iface",
                "br0",
                "-genv",
                "UCX_NET_DEVICES",
                "eth0",
                // With segments of 8 KiB, the ranks would switch for each segment.
                "-genv",
                "UCX_TCP_TX_SEG_SIZE",
                "256k",
                "-genv",
                "UCX_TCP_RX_SEG_SIZE",
                "256k",
                // With more ranks than processors, a waiting rank must let others work.
                "-genv",
                "MPIR_CVAR_POLLS_BEFORE_YIELD",
                "1",
            ],
        };
        let words = match self {
            Kind::Openmpi => "--hosts hosts --launcher openmpi --agent /mnt/bin/agent",
            Kind::Ssh => "--hosts hosts --launcher openmpi",
            Kind::Mpich => "--hosts hosts --launcher mpich --agent /mnt/bin/agent",
            // The allocation determines everything.
            Kind::Slurm => "--launcher-arg=--mpi=pmix",
        };
        let arguments = arguments.iter().map(|word| format!("--launcher-arg={word}"));
        words.split(' ').map(str::to_owned).chain(arguments).collect()
    }

    /// Flags of `launch` that give the ranks on a box [`SLOW`] processors.
    fn slow(self, cluster: &ClusterBox) -> String {
        let here = cluster.shared();
        let variables = || {
            let variables = large_machine::on_nodes(&here, SHARED, &SLOW).into_iter();
            variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        match self {
            Kind::Openmpi | Kind::Ssh => large_machine::launch_flags(&here, SHARED, &SLOW),
            Kind::Mpich => variables()
                .iter()
                .flat_map(|variable| std::iter::once("-genv").chain(variable.splitn(2, '=')))
                .map(|word| format!("--launcher-arg={word} "))
                .collect(),
            Kind::Slurm => format!("--launcher-arg=--export=ALL,{}", variables().join(",")),
        }
    }

    /// The names of the launcher's process on the head: the mpirun of Open MPI 5 becomes prterun.
    fn launcher(self) -> &'static [&'static str] {
        match self {
            Kind::Openmpi | Kind::Ssh => &["mpirun", "prterun"],
            Kind::Mpich => &["mpiexec.hydra"],
            Kind::Slurm => &["srun"],
        }
    }
}

/// A box with our program in it and a host file of `nodes` nodes, with the others as spares; or
/// `None`, if there can be none: then the test is skipped.
pub fn cluster(kind: Kind, nodes: usize, spares: usize) -> Option<Alone> {
    let places = places(kind);
    match new_box(kind, nodes, spares) {
        Ok(cluster) => Some(Alone { cluster, kind, _places: places }),
        Err(why) => {
            skipped(why);
            None
        }
    }
}

/// What [`cluster`] gives for Open MPI.
pub fn openmpi_box(nodes: usize, spares: usize) -> Option<Alone> {
    cluster(Kind::Openmpi, nodes, spares)
}

/// What `skt-hpl status` prints.
pub fn status(cluster: &Alone) -> String {
    let output = cluster.on_head("bin/skt-hpl").arg("status").output().expect("nsenter");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two boxes run at a time for each processor, because their jobs wait more than they compute. A
/// box under ssh runs alone, because seconds are measured there.
fn places(kind: Kind) -> Vec<Flock<fs::File>> {
    let most = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let lock = |place: usize, how: FlockArg| {
        let path = format!("{}/cluster-box-{place}.lock", env!("CARGO_TARGET_TMPDIR"));
        Flock::lock(fs::File::create(path).expect("our folder"), how).map_err(|(_, why)| why)
    };
    if kind == Kind::Ssh {
        return (0..most)
            .map(|place| lock(place, FlockArg::LockExclusive).expect("a lock"))
            .collect();
    }
    loop {
        let free = (0..most).find_map(|place| lock(place, FlockArg::LockExclusiveNonblock).ok());
        if let Some(place) = free {
            return vec![place];
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn new_box(kind: Kind, nodes: usize, spares: usize) -> Result<ClusterBox, String> {
    for (tool, package) in kind.tools() {
        // It only matters whether the tool can be started, not what it does with -V.
        if std::process::Command::new(tool).arg("-V").output().is_err() {
            return Err(format!("no `{tool}` here (Debian: {package})"));
        }
    }
    let program = kind.program()?;
    let mut cluster = ClusterBox::new(nodes + spares)?;
    match kind {
        Kind::Slurm => start_slurm(&mut cluster)?,
        Kind::Ssh => cluster.start_sshd()?,
        Kind::Openmpi | Kind::Mpich => {}
    }
    cluster.install(&program, "skt-hpl");
    let list = |range: std::ops::RangeInclusive<usize>| {
        range.map(|index| format!("n{index} slots=1\n")).collect::<String>()
    };
    cluster.write("hosts", &list(1..=nodes));
    cluster.write("spares", &format!("# spares\n{}", list(nodes + 1..=nodes + spares)));
    Ok(cluster)
}

/// Starts Slurm's daemons on the head and the nodes.
fn start_slurm(cluster: &mut ClusterBox) -> Result<(), String> {
    if !cluster.is_roots() {
        return Err("Slurm's daemons need root".into());
    }
    let run = |mut command: std::process::Command, script: &str| {
        let out = command
            .args(["-ec", &with_cover(script)])
            .env("SLURM_CONF", "/mnt/slurm.conf")
            .output();
        let out = out.expect("nsenter");
        let printed = String::from_utf8_lossy(&out.stderr).into_owned();
        if out.status.success() { Ok(()) } else { Err(format!("{script}: {printed}")) }
    };
    cluster.write("slurm.conf", SLURM_CONF);
    for name in ["slurmctld", "slurmscriptd", "slurmd"] {
        cluster.owns(name);
    }
    let script = "cover /run 755; mkdir /run/slurmctld; slurmctld";
    run(cluster.on_head("/bin/sh"), script)?;
    for (index, node) in cluster.nodes_on().iter().enumerate() {
        // One processor for each, as the agent does it.
        let script =
            format!("cover /run 755; exec taskset -c $(({index} % $(nproc))) slurmd -N {node}");
        run(cluster.on_node(node, "/bin/sh"), &script)?;
    }
    // All nodes are idle before the first job comes.
    let nodes = cluster.nodes_on().len();
    let script = format!(
        "for i in $(seq 100); do [ $(sinfo -h -t idle -o %D) = {nodes} ] && exit; sleep 0.1; done; \
         sinfo >&2; tail /run/slurmctld.log >&2; exit 1"
    );
    run(cluster.on_head("/bin/sh"), &script)
}

/// A box with its share of this machine among the boxes of these tests.
pub struct Alone {
    cluster: ClusterBox,
    pub kind: Kind,
    _places: Vec<Flock<fs::File>>,
}

impl Alone {
    /// The launcher's processes on the head.
    pub fn launchers(&self) -> Vec<i32> {
        self.kind.launcher().iter().flat_map(|name| self.head_pids(name)).collect()
    }
}

impl std::ops::Deref for Alone {
    type Target = ClusterBox;
    fn deref(&self) -> &ClusterBox {
        &self.cluster
    }
}

impl std::ops::DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut ClusterBox {
        &mut self.cluster
    }
}

/// A supervisor on the head of a box.
pub struct Launch {
    pub child: Child,
    printed: Growing,
    report: Growing,
}

/// Text that comes through a pipe, line by line.
struct Growing {
    so_far: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Growing {
    /// With `is_reported` each line is shown at once, so that a test that waits in vain shows what
    /// it waited for.
    fn from_pipe(pipe: impl Read + Send + 'static, is_reported: bool) -> Self {
        let so_far = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&so_far);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned() + "\n";
                if is_reported {
                    eprint!("{line}");
                }
                *text.lock().expect("no panic") += &line;
            }
        });
        Self { so_far, reader }
    }

    fn so_far(&self) -> String {
        self.so_far.lock().expect("no panic").clone()
    }

    /// The whole text.
    fn end(self) -> String {
        self.reader.join().expect("reader");
        Arc::into_inner(self.so_far).expect("the reader's is gone").into_inner().expect("no panic")
    }
}

/// How a supervisor ended.
pub struct Ended {
    pub code: Option<i32>,
    pub printed: String,
    pub report: String,
    /// The account of the supervisor, without late ends.
    pub account: Value,
    /// How many starts met a process of an earlier start, killed and not yet freed by the system.
    pub late_ends: usize,
}

pub fn launch(cluster: &Alone, spares: bool, flags: &str, run: &str) -> Launch {
    let mut command = match cluster.kind {
        Kind::Openmpi | Kind::Ssh | Kind::Mpich => cluster.on_head("bin/skt-hpl"),
        Kind::Slurm => {
            let mut command = cluster.on_head("salloc");
            let nodes = cluster.nodes_on().len();
            command.args(["--no-kill", &format!("--nodes={nodes}"), "bin/skt-hpl"]);
            command.envs(SLURM_ENVIRONMENT);
            command
        }
    };
    command.args(["launch", "--json", "account.json"]).args(cluster.kind.flags());
    if !flags.contains("LD_PRELOAD") {
        command.args(cluster.kind.slow(cluster).split_whitespace());
    }
    if spares && cluster.kind != Kind::Slurm {
        command.args(["--spares", "spares"]);
    }
    command.args(flags.split_whitespace()).arg("--").args(run.split_whitespace());
    // `SKT_TEST_OVERLAP` sets the overlap if a test does not.
    if let Ok(how) = std::env::var("SKT_TEST_OVERLAP")
        && !run.contains("--ft none")
    {
        command.args(["--overlap", &how]);
    }
    // The tests may run under nohup, and a signal that is ignored at the start stays ignored.
    // SAFETY: one system call, which is allowed between fork and exec, and no handler.
    unsafe {
        command.pre_exec(|| Ok(signal::signal(Signal::SIGHUP, SigHandler::SigDfl).map(drop)?))
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter");
    let report = Growing::from_pipe(child.stdout.take().expect("piped"), false);
    let printed = Growing::from_pipe(child.stderr.take().expect("piped"), true);
    Launch { child, printed, report }
}

impl Launch {
    /// The report up to now.
    pub fn report(&self) -> String {
        self.report.so_far()
    }

    /// Waits until the supervisor has written `words`.
    pub fn wait_for_words(&self, words: &str) {
        wait_for(words, || self.printed.so_far().contains(words));
    }

    /// Waits until the second start of the job, or a later one, is in this phase.
    pub fn wait_for_phase(&self, cluster: &Alone, phase: &str) {
        let is_there = |start| beats(cluster, start).iter().any(|beat| beat["phase"] == phase);
        wait_for(phase, || (2..9).any(is_there));
    }

    /// Waits for the supervisor's end.
    pub fn end(mut self, cluster: &Alone) -> Ended {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().expect("our child") {
                Some(status) => break status.code(),
                None if start.elapsed() > PATIENCE => {
                    let state =
                        fs::read_to_string(cluster.shared().join("skt-hpl.launch/state.json"));
                    let _ = self.child.kill();
                    panic!("no end in {PATIENCE:?}: {state:?}\n{:?}", cluster.remains());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        if code == Some(0) && large_machine::is_asked_for(&cluster.shared()) {
            large_machine::assert_planted(&cluster.shared());
        }
        let account = fs::read(cluster.shared().join("account.json")).unwrap_or_default();
        let account = serde_json::from_slice(&account).unwrap_or(Value::Null);
        if !account.is_null() {
            Schema::new(include_str!("../../docs/launch.schema.json")).check(&account);
        }
        let (account, late_ends) = without_late_ends(account);
        Ended { code, printed: self.printed.end(), report: self.report.end(), account, late_ends }
    }
}

/// The account of a supervisor without the failures of starts that met a process of an earlier
/// start, killed and not yet freed by the system, and their number. A busy machine may add such
/// starts; what came after one counts for the failure before it.
fn without_late_ends(mut account: Value) -> (Value, usize) {
    const LATE_END: &str = "processes of an earlier start, which end, still held what they had";
    let Some(failures) = account["failures"].as_array_mut() else { return (account, 0) };
    let mut kept: Vec<Value> = Vec::new();
    let mut late_ends = 0;
    for failure in failures.drain(..) {
        match kept.last_mut() {
            Some(before) if failure["phase"] == "changed" && failure["how"] == LATE_END => {
                for key in ["relaunched_unix", "alive_unix", "computing_unix", "resumed_column"] {
                    before[key] = failure[key].clone();
                }
                late_ends += 1;
            }
            _ => kept.push(failure),
        }
    }
    *failures = kept;
    (account, late_ends)
}

impl Ended {
    pub fn x(&self) -> &str {
        let line = self.report.lines().find(|line| line.starts_with("# x: "));
        line.unwrap_or_else(|| panic!("no fingerprint of x:\n{}\n{}", self.report, self.printed))
    }

    pub fn passed(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.printed, self.report);
        assert!(self.report.contains("PASSED"), "{}", self.report);
        self
    }
}

/// Sends a signal to each of some processes. At least one of them must get it: the first one's
/// reaction may end the others.
pub fn signal(pids: &[i32], signal: Signal) {
    let mut sent = 0;
    for pid in pids {
        match kill(Pid::from_raw(*pid), signal) {
            Ok(()) => sent += 1,
            Err(Errno::ESRCH) => {}
            Err(error) => panic!("{signal} to {pid}: {error}"),
        }
    }
    assert!(sent > 0, "none of {pids:?} is there to get {signal}");
}

/// Waits until a condition holds.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} does not come to be");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The supervisor's state.
pub fn state(cluster: &Alone) -> Value {
    let text = fs::read(cluster.shared().join("skt-hpl.launch/state.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

/// The heartbeats of the job in its start number `start`, as it writes them.
pub fn beats(cluster: &Alone, start: usize) -> Vec<Value> {
    let name = format!("skt-hpl.launch/start-{start}.err");
    let text = fs::read_to_string(cluster.shared().join(name)).unwrap_or_default();
    let json = |line: &str| serde_json::from_str(line.split_once("@skt-hpl-beat@")?.1).ok();
    text.lines().filter_map(json).collect()
}

/// Waits until start number `start` of the job has eliminated `column` columns.
pub fn wait_for_column(cluster: &Alone, start: usize, column: u64) {
    // A supervisor is not there yet when its command has just been given, and its launcher is
    // there without it when it was killed.
    const GONE: Duration = Duration::from_secs(20);
    let (mut looked, mut ran) = (Instant::now(), Instant::now());
    wait_for("progress", || {
        // Looked at first: what ends after that has written its heartbeats by then.
        if looked.elapsed() > Duration::from_secs(1) {
            looked = Instant::now();
            let runs = !cluster.head_pids("skt-hpl").is_empty() || !cluster.launchers().is_empty();
            ran = if runs { looked } else { ran };
        }
        let beats = beats(cluster, start);
        let is_there = beats
            .iter()
            .any(|beat| beat["phase"] == "factor" && beat["column"].as_u64() >= Some(column));
        let gone = ran.elapsed();
        assert!(is_there || gone < GONE, "the job ended before column {column} of start {start}");
        is_there
    });
}

/// Removes the marks that nodes keep if another node was out of reach at the end of a run.
fn remove_marks(cluster: &Alone) {
    for node in cluster.nodes_on() {
        let store = |action: &str| {
            let out = cluster.on_node(&node, "bin/skt-hpl").args(["store", action]).output();
            String::from_utf8(out.expect("started").stdout).expect("text")
        };
        // The process that made the marks may not have ended yet.
        wait_for("the end of all ranks", || cluster.pids(&node, "skt-hpl").is_empty());
        let listed = store("list");
        let is_other = |line: &&str| line.split_whitespace().nth(1) != Some("ended");
        assert_eq!(listed.lines().skip(1).find(is_other), None, "{node}");
        store("clean");
    }
}

/// Asserts that nothing is left on the box except what the test put there.
pub fn assert_clean(cluster: &Alone) {
    remove_marks(cluster);
    assert_eq!(cluster.remains_after(PATIENCE), Vec::<String>::new());
    let mut left: Vec<String> = fs::read_dir(cluster.shared().join("skt-hpl.launch"))
        .expect("state")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["events.jsonl", "lock", "state.json"]);
}

/// Flags of most runs here: four ranks in one group, with frequent checkpoints.
pub fn run() -> String {
    run_of(N)
}

/// As above, of this order.
pub fn run_of(n: &str) -> String {
    format!("--n {n} --nb 64 --p 1 --q 4 --checkpoint-every 6p! --progress off")
}

/// The x of a run of this order without a supervisor's help and without checkpoints, which all runs
/// must have. It is kept in a file, because each test may be a separate process.
pub fn undisturbed_x(cluster: &Alone, n: &str) -> String {
    let program = cluster.kind.program().expect("installed");
    let built = fs::metadata(program).and_then(|meta| meta.modified()).expect("our program");
    let built = built.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("x-{:?}-{n}-{built}", cluster.kind));
    if let Ok(x) = fs::read_to_string(&file) {
        return x;
    }
    // The nodes of the test's own host file may be off by now, and fewer than four may be on.
    let on = cluster.nodes_on();
    let slots = 4_usize.div_ceil(on.len().min(4));
    let hosts: String = on.iter().take(4).map(|node| format!("{node} slots={slots}\n")).collect();
    cluster.write("hosts", &hosts);
    let flags = "--state reference";
    let ended = launch(cluster, false, flags, &format!("{} --ft none", run_of(n))).end(cluster);
    let x = ended.passed().x().to_owned();
    fs::write(&file, &x).expect("our folder");
    x
}

impl Ended {
    /// Asserts that the run has passed, and that its x is that of the undisturbed run, bit for bit.
    pub fn passed_with_the_same_x(&self, cluster: &Alone) -> &Self {
        let x = self.passed().x().to_owned();
        assert_clean(cluster);
        let result = self.report.lines().rfind(|line| line.starts_with("WR")).expect("a result");
        let n = result.split_whitespace().nth(1).expect("its order");
        assert_eq!(x, undisturbed_x(cluster, n));
        self
    }

    /// Asserts that the supervisor has printed `words`.
    pub fn prints(&self, words: &str) -> &Self {
        assert!(self.printed.contains(words), "no '{words}' in: {}", self.printed);
        self
    }

    /// Asserts that the job resumed after failure `index` from a checkpoint beyond `column`.
    pub fn resumed_beyond(&self, index: usize, column: u64) {
        let resumed = self.failure(index)["resumed_column"].as_u64();
        assert!(resumed > Some(column), "{}", self.account);
    }

    pub fn failure(&self, index: usize) -> &Value {
        let failure = &self.account["failures"][index];
        assert!(failure.is_object(), "failure {index} of {}", self.account);
        failure
    }

    pub fn failures(&self) -> usize {
        self.account["failures"].as_array().expect("an account").len()
    }

    /// Asserts that node `lost` was replaced by `by` after failure `index`.
    pub fn replaced(&self, index: usize, lost: &str, by: &str) {
        assert_eq!(self.spare_for(index, lost), by);
    }

    /// The node that took the place of `lost` after failure `index`.
    pub fn spare_for(&self, index: usize, lost: &str) -> &str {
        let replaced = self.failure(index)["replaced"].as_array().expect("a list");
        let change = replaced.iter().find(|change| change["lost"] == lost);
        let change = change.unwrap_or_else(|| panic!("{lost} was not replaced: {replaced:?}"));
        change["by"].as_str().expect("a name")
    }

    /// Prints and returns the seconds from `since` until the job computed again.
    pub fn print(&self, what: &str, index: usize, since: f64) -> f64 {
        let seconds = self.failure(index)["computing_unix"].as_f64().expect("a time") - since;
        eprintln!("{what}: computing again after {seconds:.2} s");
        seconds
    }
}

/// Waits until rank 0, on n1, has died at a step as configured, then powers `node` off: all
/// other ranks are still in that step.
pub fn power_off_at(cluster: &mut Alone, start: usize, step: &str, node: &str) {
    wait_for(step, || {
        let is_there = beats(cluster, start).iter().any(|beat| beat["phase"] == step);
        is_there && cluster.pids("n1", "skt-hpl").is_empty()
    });
    cluster.power_off(node);
}

/// Flags of `launch` that give its ranks a slow BLAS: the columns at which nodes are lost come on
/// any machine some seconds after the start, and before the end.
pub fn slow_ranks(cluster: &Alone) -> String {
    large_machine::launch_flags(&cluster.shared(), SHARED, &[("GFLOPS", "2")])
}

/// Plays a case for each of `SKT_HPL_ROUNDS` seeds (else `rounds`) from `SKT_HPL_SEED` on, none
/// begun after `SKT_HPL_SECONDS` (else `seconds`). `play` gets the seed and the name of its case,
/// and panics where the case fails.
pub fn soak(name: &str, rounds: u64, seconds: u64, mut play: impl FnMut(u64)) {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let first = seed("SKT_HPL_SEED");
    let (rounds, seconds) = (number("SKT_HPL_ROUNDS", rounds), number("SKT_HPL_SECONDS", seconds));
    let (begun, mut failed, mut done) = (unix(), Vec::new(), 0);
    for seed in first..first + rounds {
        if unix() - begun > seconds as f64 {
            break;
        }
        done += 1;
        let case = std::panic::AssertUnwindSafe(|| play(seed));
        if std::panic::catch_unwind(case).is_err() {
            eprintln!("{name} {seed} FAILED");
            failed.push(seed);
        }
    }
    let passed = done - failed.len();
    eprintln!("{name} {passed} of {done} passed from seed {first}; failed: {failed:?}");
    assert!(failed.is_empty(), "{failed:?}");
}

pub fn unix() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}
