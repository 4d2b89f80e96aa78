//! A cluster on one machine: each node is a set of Linux namespaces.
//!
//! ```text
//! the test ── head: own pid, net, ipc, uts, mount namespaces, a bridge, a shared folder
//!               ├── n1: the same again, its own /dev/shm and /tmp, one veth on the bridge,
//!               │       and a disk at /mnt/disk, which outlives a power-off
//!               ├── n2 ...
//! ```
//!
//! Killing a node's first process is a power-off: its processes, its System V segments and its
//! /dev/shm are gone. The head's first process ends when the pipe from the test closes, however the
//! test ends, and takes everything with it: the nodes' processes live in its pid namespace, and all
//! files in its memory. Nothing has a name outside, so nothing can be left over.
//!
//! Nodes see this machine's files. Private folders of each node (/tmp, /dev/shm), and
//! those that the box puts in place of others (/mnt, and for some daemons /run and the home), hide
//! what is in them, except for the checkout and the target folder, wherever these are.
//!
//! The box needs root, or a user namespace in which this user is root, and `unshare`, `nsenter`
//! (util-linux) and `ip` (iproute2).
#![allow(dead_code)] // Each test uses its part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::executables;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The network of the nodes: node i is .10+i, the head is .1.
pub const NETWORK: &str = "10.77.0.0/24";
/// Open MPI's flags on the box: the network, and that there are more ranks than processors, so that
/// a waiting rank must let others work.
pub const OPENMPI_ARGUMENTS: [&str; 17] = [
    "--mca",
    "oob_tcp_if_include",
    NETWORK,
    "--mca",
    "btl_tcp_if_include",
    NETWORK,
    "--mca",
    "btl",
    "self,tcp",
    "--mca",
    "pml",
    "ob1",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
];
/// The folder that head and nodes share.
pub const SHARED: &str = "/mnt";
/// The folder for files of tests; an example has none.
const FILES_OF_TESTS: Option<&str> = option_env!("CARGO_TARGET_TMPDIR");
/// Marks the head's command line, for [`leftovers`].
const MARK: &str = "skt-hpl-cluster-box";

/// `cover FOLDER MODE`, for all scripts here: an empty folder in place of FOLDER, in which the
/// folders `@VISIBLE@` stay visible. A folder that is open can be mounted although its name is
/// hidden.
const COVER: &str = r#"
cover() {
    covered=$1 mode=$2
    set -- @VISIBLE@
    number=3
    for seen; do
        [ "$seen" != "$covered" ] || { echo "$seen is a folder that nodes have of their own" >&2; exit 1; }
        eval "exec $number< \"\$seen\""
        number=$((number + 1))
    done
    mount -t tmpfs -o "mode=$mode" box "$covered"
    number=3
    for seen; do
        case $seen in
        "$covered"/*)
            [ -d "$seen" ] || {
                mkdir -p "$seen"
                mount --no-canonicalize --rbind "/proc/self/fd/$number" "$seen"
            }
            ;;
        esac
        eval "exec $number<&-"
        number=$((number + 1))
    done
}
"#;

const HEAD_SCRIPT: &str = r#"set -e
cover /mnt 1777
cover /tmp 1777
cover /dev/shm 1777
hostname head
mkdir -p /mnt/nodes /mnt/cut /mnt/silent /mnt/bin /mnt/disks /mnt/disk
cat > /mnt/etc-hosts
mount --bind /mnt/etc-hosts /etc/hosts
ip link set lo up
ip link add br0 address 02:00:0a:4d:00:01 type bridge
ip addr add 10.77.0.1/24 dev br0
ip link set br0 up
echo ready
"#;

const NODE_SCRIPT: &str = r#"set -e
cover /tmp 1777
cover /dev/shm 1777
hostname "$1"
mkdir -p "/mnt/disks/$1"
mount --bind "/mnt/disks/$1" /mnt/disk
ip link set lo up
echo ready
while :; do sleep 100000; done
"#;

/// The `ssh` of a cluster: runs a command on a node, without our environment. A host that is off
/// does not answer ARP, so there is no route after three seconds. A host whose link is cut keeps
/// the caller waiting.
const AGENT_SCRIPT: &str = r#"#!/bin/sh
host=$1
shift
if [ -e "/mnt/cut/$host" ]; then sleep 120; echo "$host: connection timed out" >&2; exit 255; fi
if ! pid=$(cat "/mnt/nodes/$host" 2>/dev/null) || ! kill -0 "$pid" 2>/dev/null; then
    sleep 3
    echo "$host: no route to host" >&2
    exit 255
fi
# Nodes share the processors of this machine: each gets one for itself, as far
# as they go, since a rank believes that it has its node alone. A spare gets the
# one of the node whose line in the host file it has taken.
place=$(cat /mnt/*.launch/hosts 2>/dev/null | grep -nE "^$host([ :]|\$)" | head -n 1 | cut -d : -f 1)
far_end() {
    taskset -c $(( ${place:-${host#n}} % $(nproc) )) \
        nsenter -t "$pid" -m -u -i -n -p -- /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt \
        XDG_CACHE_HOME='@CACHE@' HWLOC_PLUGINS_PATH=/nowhere HWLOC_COMPONENTS=-linuxio \
        /bin/sh -c "cd /mnt; $*"
}
# What is on its way while the link is cut comes when it is healed.
link() {
    while IFS= read -r line || [ -n "$line" ]; do
        while [ -e "/mnt/cut/$host" ]; do sleep 0.1; done
        printf '%s\n' "$line"
    done
}
exec 4>&1
code=$( { { far_end "$@" 3>&- 4>&-; echo $? >&3; } | link >&4 3>&-; } 3>&1 )
# A connection to a host that vanished without a word just stays.
while [ -e "/mnt/silent/$host" ]; do sleep 1; done
exit $code
"#;

/// The ssh settings of the box's user, who can reach all nodes.
const SSH_ON_HEAD: &str = r#"
mkdir /mnt/ssh
ssh-keygen -q -t ed25519 -N '' -f /mnt/ssh/user
home=$(getent passwd "$(id -u)" | cut -d : -f 6)
cover "$home" 700
mkdir -m 700 "$home/.ssh"
printf 'IdentityFile /mnt/ssh/user
UserKnownHostsFile /mnt/ssh/known_hosts
' > "$home/.ssh/config"
"#;

/// Arguments: the node, its address, and a processor for everything that comes by ssh, as the agent
/// gives it.
const SSHD_ON_NODE: &str = r#"
cover /run 755
mkdir /run/sshd
home=$(getent passwd "$(id -u)" | cut -d : -f 6)
cover "$home" 700
ssh-keygen -q -t ed25519 -N '' -f "/mnt/ssh/$1"
cat > "/mnt/ssh/$1.conf" <<END
ListenAddress $2
HostKey /mnt/ssh/$1
PidFile none
AuthorizedKeysFile /mnt/ssh/user.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
END
exec taskset -c $(( $3 % $(nproc) )) /usr/sbin/sshd -f "/mnt/ssh/$1.conf" -E /run/sshd.log
"#;

/// A cluster of nodes n1, n2, ... and a head.
pub struct ClusterBox {
    /// `unshare`, whose child is the head's first process; its standard input keeps the box alive.
    outer: Child,
    head: i32,
    in_user_namespace: bool,
    nodes: BTreeMap<String, Node>,
    /// Names of daemons that belong to the box.
    daemons: Vec<String>,
}

struct Node {
    /// `nsenter`, whose grandchild is the node's first process.
    starter: Child,
    init: i32,
}

impl ClusterBox {
    /// A box with nodes n1 to n`nodes`, or why there can be none on this machine.
    pub fn new(nodes: usize) -> Result<Self, String> {
        for (tool, package) in
            [("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")]
        {
            if Command::new(tool).arg("-V").output().is_err() {
                return Err(format!("no `{tool}` here (Debian: {package})"));
            }
        }
        let in_user_namespace = std::os::unix::fs::MetadataExt::uid(
            &fs::metadata("/proc/self").map_err(|why| format!("no /proc: {why}"))?,
        ) != 0;
        let mut unshare = Command::new("unshare");
        if in_user_namespace {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(NAMESPACES).args(["/bin/sh", "-c"]);
        // A child waits for the rest of standard input, so that the shell stays and reaps orphans.
        let script = HEAD_SCRIPT.replace("cat >", "sed /^$/q >");
        unshare.arg(with_cover(&format!("{script}cat > /dev/null; exit 0")));
        unshare.arg(MARK);
        let mut outer = unshare
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cannot start unshare: {why}"))?;
        let mut hosts = String::from("127.0.0.1 localhost\n10.77.0.1 head\n");
        for index in 1..=nodes.max(16) {
            let _ = writeln!(hosts, "10.77.0.{} n{index}", 10 + index);
        }
        hosts.push('\n');
        let stdin = outer.stdin.as_mut().expect("piped");
        let _ = std::io::Write::write_all(stdin, hosts.as_bytes());
        if !prints_ready(&mut outer) {
            let _ = outer.kill();
            let printed = outer.wait_with_output().map(|out| out.stderr).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed).trim().to_owned();
            return Err(format!("namespaces are not allowed here: {printed}"));
        }
        let head = only_child(outer.id() as i32).ok_or("the head has no first process")?;
        let mut cluster =
            Self { outer, head, in_user_namespace, nodes: BTreeMap::new(), daemons: Vec::new() };
        // Nodes of the same name in other boxes have checked the same libraries.
        let folder = FILES_OF_TESTS.unwrap_or(SHARED);
        cluster.write("bin/agent", &AGENT_SCRIPT.replace("@CACHE@", &format!("{folder}/cache")));
        for index in 1..=nodes {
            cluster.power_on(&format!("n{index}"))?;
        }
        Ok(cluster)
    }

    /// The shared folder, as seen from outside.
    pub fn shared(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{SHARED}", self.head))
    }

    /// Writes a file of the shared folder; files in bin/ are executable.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.shared().join(name);
        if name.starts_with("bin/") {
            executables::write_script(&path, text);
        } else {
            fs::write(&path, text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }

    /// Copies a program into the shared bin/ under `name`.
    pub fn install(&self, program: &Path, name: &str) {
        executables::copy_program(program, &self.shared().join("bin").join(name));
    }

    /// A command on the head, in the shared folder.
    pub fn on_head(&self, program: &str) -> Command {
        let mut command = self.enter(self.head);
        command.arg(program).env("HOME", SHARED).env_remove("TMPDIR");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    /// A command on a node, in the shared folder. It is out of band, so it also works when the
    /// node's link is cut.
    pub fn on_node(&self, node: &str, program: &str) -> Command {
        let mut command = self.enter(self.nodes[node].init);
        command.arg(program);
        command
    }

    fn enter(&self, pid: i32) -> Command {
        let mut command = Command::new("nsenter");
        // The threads that OpenBLAS starts when it is loaded spin for 20 ms, and no rank uses them.
        command.env("OPENBLAS_NUM_THREADS", "1");
        command.arg("-t").arg(pid.to_string());
        if self.in_user_namespace {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["-m", "-u", "-i", "-n", "-p", &format!("--wd={}", self.shared().display())]);
        command.arg("--");
        command
    }

    fn sh_on_head(&self, script: &str) -> Result<(), String> {
        let out = self.on_head("/bin/sh").args(["-ec", &with_cover(script)]).output();
        let out = out.map_err(|why| format!("cannot start nsenter: {why}"))?;
        if out.status.success() {
            return Ok(());
        }
        Err(format!("{script}: {}", String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// Starts an sshd on each node, so that `ssh NODE` works from the head, as its user. Keys and
    /// settings are the box's own; home folders are empty.
    pub fn start_sshd(&mut self) -> Result<(), String> {
        if !self.is_roots() {
            return Err("sshd needs root".into());
        }
        self.owns("sshd");
        self.sh_on_head(SSH_ON_HEAD)?;
        for (index, node) in self.nodes_on().iter().enumerate() {
            let address = format!("10.77.0.{}", 10 + node[1..].parse::<usize>().expect("n1, n2"));
            let mut sh = self.on_node(node, "/bin/sh");
            let processor = index.to_string();
            let script = with_cover(SSHD_ON_NODE);
            let out = sh.args(["-ec", &script, "sh", node, &address, &processor]).output();
            let out = out.map_err(|why| format!("cannot start nsenter: {why}"))?;
            if !out.status.success() {
                let printed = String::from_utf8_lossy(&out.stderr);
                return Err(format!("sshd on {node}: {}", printed.trim()));
            }
            self.sh_on_head(&format!(
                "echo \"{node} $(cut -d' ' -f1,2 /mnt/ssh/{node}.pub)\" >> /mnt/ssh/known_hosts
                 ssh -o BatchMode=yes {node} true"
            ))?;
        }
        Ok(())
    }

    /// Whether this user is root outside of the box, too.
    pub fn is_roots(&self) -> bool {
        !self.in_user_namespace
    }

    /// Declares daemons of this name the box's own, so that they do not count as left over.
    pub fn owns(&mut self, comm: &str) {
        self.daemons.push(comm.to_owned());
    }

    /// Switches a node on, with fresh memory.
    pub fn power_on(&mut self, node: &str) -> Result<(), String> {
        let index: u8 = node[1..].parse().map_err(|_| format!("'{node}' is no n1, n2, ..."))?;
        assert!(!self.nodes.contains_key(node), "{node} is on");
        let mut starter = self.enter(self.head);
        let script = with_cover(NODE_SCRIPT);
        starter.arg("unshare").args(NAMESPACES).args(["/bin/sh", "-c", &script, MARK, node]);
        let mut starter = starter
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cannot start nsenter: {why}"))?;
        if !prints_ready(&mut starter) {
            let printed = starter.wait_with_output().map(|out| out.stderr).unwrap_or_default();
            return Err(format!("{node}: {}", String::from_utf8_lossy(&printed).trim()));
        }
        let unshare = only_child(starter.id() as i32).ok_or("no unshare")?;
        let init = only_child(unshare).ok_or("the node has no first process")?;
        let seen_from_head = pid_one_namespace_up(init)?;
        self.nodes.insert(node.to_owned(), Node { starter, init });
        // Fixed addresses: a node that comes back must not leave stale entries.
        self.sh_on_head(&format!(
            "ip link del v{index} 2>/dev/null || true
             ip link add v{index} type veth peer name eth0 netns {seen_from_head}
             ip link set v{index} master br0
             nsenter -t {seen_from_head} -n /bin/sh -ec '
                ip link set eth0 address 02:00:0a:4d:00:{:02x}
                ip addr add 10.77.0.{}/24 dev eth0
                ip link set eth0 up'
             ip link set v{index} up
             rm -f /mnt/cut/{node} /mnt/silent/{node}
             echo {seen_from_head} > /mnt/nodes/{node}",
            16 + index,
            10 + index
        ))
    }

    /// Powers a node off; its peers get a last packet.
    pub fn power_off(&mut self, node: &str) {
        let mut gone = self.nodes.remove(node).unwrap_or_else(|| panic!("{node} is off"));
        let _ = kill(Pid::from_raw(gone.init), Signal::SIGKILL);
        let _ = fs::remove_file(self.shared().join("nodes").join(node));
        let _ = gone.starter.wait();
    }

    /// Powers several nodes off at once.
    pub fn power_cut(&mut self, nodes: &[impl AsRef<str>]) {
        for node in nodes.iter().filter_map(|node| self.nodes.get(node.as_ref())) {
            let _ = kill(Pid::from_raw(node.init), Signal::SIGKILL);
        }
        nodes.iter().for_each(|node| self.power_off(node.as_ref()));
    }

    /// The disk of a node, as seen from outside.
    pub fn disk(&self, node: &str) -> PathBuf {
        self.shared().join("disks").join(node)
    }

    /// Gives a node that is off an empty disk.
    pub fn lose_disk(&self, node: &str) {
        assert!(!self.is_on(node), "{node} is on");
        // A node that was never on has no disk yet.
        let _ = fs::remove_dir_all(self.disk(node));
    }

    /// Powers a node off after cutting its link, so that no packet leaves it any more.
    pub fn power_off_silently(&mut self, node: &str) {
        self.link(node, "down");
        self.write(&format!("silent/{node}"), "");
        self.power_off(node);
    }

    /// Cuts a node's link.
    pub fn cut(&self, node: &str) {
        self.link(node, "down");
        self.write(&format!("cut/{node}"), "");
    }

    /// Heals a node's link. Both sides resolve each other's addresses again: a request that was
    /// sent into the cut link would fail up to three seconds later, whatever waits for its answer
    /// then.
    pub fn heal(&self, node: &str) {
        let _ = fs::remove_file(self.shared().join("cut").join(node));
        self.link(node, "up");
        let flush = self.on_node(node, "ip").args(["neigh", "flush", "dev", "eth0"]).output();
        assert!(flush.expect("ip").status.success());
        self.sh_on_head("ip neigh flush dev br0").expect("ip");
    }

    /// Cuts a node's link while agents that do not use the network still reach it, as on machines
    /// with separate networks for the agent and for the job.
    pub fn cut_network_of_the_job(&self, node: &str) {
        self.link(node, "down");
    }

    /// Has the node refuse to send what tests of links send, as a packet filter does.
    pub fn block_link_tests(&self, node: &str) {
        let rule = ["rule", "add", "ipproto", "tcp", "dport", "61743", "unreachable"];
        let added = self.on_node(node, "ip").args(rule).output().expect("ip");
        assert!(added.status.success(), "{added:?}");
    }

    fn link(&self, node: &str, state: &str) {
        self.sh_on_head(&format!("ip link set v{} {state}", &node[1..])).expect("its veth");
    }

    /// Whether the node is on.
    pub fn is_on(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Names of the nodes that are on.
    pub fn nodes_on(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Processes on a node with this name (as in /proc/PID/comm), with their ids outside of the
    /// box.
    pub fn pids(&self, node: &str, comm: &str) -> Vec<i32> {
        let pids = pids_in(self.nodes[node].init);
        pids.into_iter().filter(|pid| read(*pid, "comm").trim_end() == comm).collect()
    }

    /// Processes on the head with this name.
    pub fn head_pids(&self, comm: &str) -> Vec<i32> {
        let pids = pids_in(self.head);
        pids.into_iter().filter(|pid| read(*pid, "comm").trim_end() == comm).collect()
    }

    /// Describes what is left on head and nodes that was not there after they came up: processes,
    /// System V segments, files in /dev/shm and /tmp.
    pub fn remains(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut look = |name: &str, init: i32, own: &[&str]| {
            for pid in pids_in(init) {
                let comm = read(pid, "comm").trim_end().to_owned();
                if pid != init && !own.contains(&comm.as_str()) && !self.daemons.contains(&comm) {
                    let line = read(pid, "cmdline").replace('\0', " ");
                    let state = read(pid, "stat");
                    let state = state.rsplit(") ").next().unwrap_or("").chars().next();
                    all.push(format!("{name}: process {pid} {comm} ({state:?}): {line}"));
                }
            }
            for folder in ["/dev/shm", "/tmp"] {
                let entries = fs::read_dir(format!("/proc/{init}/root{folder}"));
                for entry in entries.into_iter().flatten().flatten() {
                    let file = Path::new(folder).join(entry.file_name());
                    if !visible().iter().any(|seen| seen.starts_with(&file)) {
                        all.push(format!("{name}: file {}", file.display()));
                    }
                }
            }
            let mut ipcs = self.enter(init);
            let out = ipcs.args(["cat", "/proc/sysvipc/shm"]).output().expect("cat");
            let table = String::from_utf8_lossy(&out.stdout).into_owned();
            all.extend(table.lines().skip(1).map(|line| format!("{name}: segment {line}")));
        };
        // The head's own processes: the `cat` that waits, and the starters of nodes.
        look("head", self.head, &["cat", "unshare"]);
        for (name, node) in &self.nodes {
            look(name, node.init, &["sleep"]);
        }
        all
    }

    /// Describes what is left on head and nodes, after up to `patience` for daemons to end.
    pub fn remains_after(&self, patience: Duration) -> Vec<String> {
        let start = Instant::now();
        loop {
            let remains = self.remains();
            if remains.is_empty() || start.elapsed() > patience {
                return remains;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Bytes of System V segments on a node.
    pub fn segment_bytes(&self, node: &str) -> u64 {
        let out = self.on_node(node, "cat").arg("/proc/sysvipc/shm").output().expect("cat");
        let table = String::from_utf8_lossy(&out.stdout).into_owned();
        let size = |line: &str| line.split_whitespace().nth(3)?.parse::<u64>().ok();
        table.lines().skip(1).filter_map(size).sum()
    }
}

impl Drop for ClusterBox {
    fn drop(&mut self) {
        // The first process of the head takes everything with it; the kernel does not let it be
        // reaped before the others are gone.
        let _ = kill(Pid::from_raw(self.head), Signal::SIGKILL);
        drop(self.outer.stdin.take());
        let _ = self.outer.wait();
        for node in self.nodes.values_mut() {
            let _ = node.starter.wait();
        }
    }
}

const NAMESPACES: [&str; 8] = [
    "--net",
    "--pid",
    "--ipc",
    "--uts",
    "--mount",
    "--fork",
    "--mount-proc",
    "--propagation=private",
];

/// The checkout and the target folder, by the names that this process knows and by those without
/// links: a folder comes before those in it.
fn visible() -> BTreeSet<PathBuf> {
    let files_of_tests = FILES_OF_TESTS.map(Path::new);
    let this_program = std::env::current_exe().unwrap_or_default();
    let folders = [
        Some(Path::new(env!("CARGO_MANIFEST_DIR"))),
        files_of_tests.and_then(Path::parent),
        this_program.ancestors().nth(2),
    ];
    let names = folders.into_iter().flatten();
    names.flat_map(|name| [Some(name.to_owned()), name.canonicalize().ok()]).flatten().collect()
}

/// A script that can use [`COVER`].
pub fn with_cover(script: &str) -> String {
    let quoted =
        |path: &PathBuf| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let visible: Vec<String> = visible().iter().map(quoted).collect();
    COVER.replace("@VISIBLE@", &visible.join(" ")) + script
}

/// Reads the line `ready`; false if it does not come.
fn prints_ready(child: &mut Child) -> bool {
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).is_ok() && line.trim() == "ready"
}

fn read(pid: i32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn only_child(parent: i32) -> Option<i32> {
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = read(pid, "stat");
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    all_pids().find(|pid| parent_of(*pid) == Some(parent))
}

/// Processes in the pid namespace of `init`.
fn pids_in(init: i32) -> Vec<i32> {
    let space = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let here = space(init);
    assert!(here.is_some(), "process {init} is gone");
    all_pids().filter(|pid| space(*pid) == here).collect()
}

/// The id of a namespace's first process, one namespace further out.
fn pid_one_namespace_up(init: i32) -> Result<i32, String> {
    let status = read(init, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<&str> = line.unwrap_or("").split_whitespace().collect();
    let up = numbers.len().checked_sub(2).and_then(|index| numbers[index].parse().ok());
    up.ok_or_else(|| format!("no NSpid of process {init}"))
}

/// Processes of boxes on this machine whose test is gone.
pub fn leftovers() -> Vec<i32> {
    let is_ours = |pid: &i32| read(*pid, "cmdline").split('\0').any(|word| word == MARK);
    let is_orphan = |pid: &i32| {
        let stat = read(*pid, "stat");
        let parent =
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(1)
    };
    all_pids().filter(is_ours).filter(is_orphan).collect()
}
