//! Lists of nodes: host files of users, launchers and batch systems in one grammar, the variables
//! of batch systems, and Slurm's ranges. Spares may be added to their file while the run is on.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use super::{Host, HostsError, check_name, rank_count};
use skt_config::launch::RANKS_MAX;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::shown::{shown, shown_message};

/// How a batch system gives the nodes of its job.
#[derive(Debug, Clone, Copy)]
enum Form {
    File,
    Slurm,
    Flux,
    Unknown,
}

/// The variables of each system, in the order in which they are looked for: the one that is set in
/// each job, the one that gives its nodes, and the number of ranks of a node, where the list names
/// each node once. An empty name is of no variable. A job without its system's list is refused,
/// except where the system gives none to a job of one node: Grid Engine, HyperQueue.
const SYSTEMS: [(Form, &str, &str, &str); 20] = [
    // Flux and HyperQueue may run within a job of another system.
    (Form::Flux, "", "FLUX_URI", ""),
    (Form::File, "", "HQ_NODE_FILE", ""),
    (Form::Slurm, "SLURM_JOB_ID", "SLURM_JOB_NODELIST", ""),
    (Form::File, "PBS_JOBID", "PBS_NODEFILE", ""),
    (Form::File, "LSB_JOBID", "LSB_DJOB_HOSTFILE", ""),
    (Form::File, "", "PE_HOSTFILE", ""),
    (Form::File, "OAR_JOB_ID", "OAR_NODEFILE", ""),
    (Form::File, "COBALT_JOBID", "COBALT_NODEFILE", ""),
    (Form::File, "PJM_JOBID", "PJM_O_NODEINF", "PJM_PROC_BY_NODE"),
    (Form::File, "LOADL_STEP_ID", "LOADL_HOSTFILE", ""),
    // AWS Batch, Azure Batch, Google Batch, HTCondor, Volcano: set in jobs of several nodes.
    (Form::Unknown, "", "AWS_BATCH_JOB_NUM_NODES", ""),
    (Form::Unknown, "", "AZ_BATCH_HOST_LIST", ""),
    (Form::Unknown, "", "BATCH_HOSTS_FILE", ""),
    (Form::Unknown, "", "_CONDOR_NPROCS", ""),
    (Form::Unknown, "", "VC_WORKER_HOSTS", ""),
    // For the launchers of Open MPI 4 and 5, Intel MPI and MPICH, as where Kubernetes runs MPI.
    (Form::File, "", "OMPI_MCA_orte_default_hostfile", ""),
    (Form::File, "", "OMPI_MCA_prte_default_hostfile", ""),
    (Form::File, "", "PRTE_MCA_prte_default_hostfile", ""),
    (Form::File, "", "I_MPI_HYDRA_HOST_FILE", ""),
    (Form::File, "", "HYDRA_HOST_FILE", ""),
];
/// The number of components of a heterogeneous Slurm job. The other variables are of the first.
const SLURM_COMPONENTS: &str = "SLURM_HET_SIZE";
/// By this word Open MPI takes no host file.
const NO_FILE: &str = "none";

/// Nodes that are listed somewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedNodes {
    pub hosts: Vec<Host>,
    /// What to add nodes or slots to.
    pub file: String,
    pub is_slurm: bool,
    /// Whether there is no list, so that all ranks run on this machine.
    pub is_local: bool,
    /// What in the list has no effect here.
    pub warnings: Vec<String>,
}

impl ListedNodes {
    /// This machine alone.
    pub fn here(slots: usize) -> Self {
        let hosts = vec![Host { name: "localhost".into(), slots }];
        Self { hosts, is_local: true, file: "--np".to_owned(), ..Self::default() }
    }

    /// Reads a host file, see [`parse`]; no node in it is an error, too.
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let found = Self::read_spares(path)?;
        if found.hosts.is_empty() {
            return Err(HostsError(format!("{}: no node in it", path.display())));
        }
        Ok(found)
    }

    /// Reads a host file that may list no node yet.
    pub fn read_spares(path: &Path) -> Result<Self, HostsError> {
        let file = path.display().to_string();
        // Comments may have any bytes; names are checked.
        let text = infile::read(path, LIST_BYTES_MAX);
        let text = text.map_err(|why| HostsError(format!("{file}: {why}")))?;
        let (hosts, warnings) = parse(&String::from_utf8_lossy(&text), &file)?;
        Ok(Self { hosts, file, warnings, ..Self::default() })
    }

    pub fn slots(&self) -> usize {
        self.hosts.iter().map(|host| host.slots).sum()
    }
}

/// The nodes that the environment lists, of which `env` gets a variable; `None` if it lists none. A
/// variable whose list is missing, or is not understood, is an error.
pub fn listed_in(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<ListedNodes>, HostsError> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let no_list = |variable: &str, why: &str| {
        HostsError(format!(
            "{variable} is set, as in a job with its own nodes, but {why}: give --hosts FILE with \
             lines `NAME slots=COUNT`"
        ))
    };
    for (form, job, list, per_node) in SYSTEMS {
        let Some(value) = env(list).filter(|value| value != NO_FILE) else {
            if env(job).is_some() {
                return Err(no_list(job, &format!("{list} is not")));
            }
            continue;
        };
        return Ok(Some(match form {
            Form::Flux => flux_nodes("flux")?,
            Form::Slurm => slurm_nodes(&value, &env)?,
            Form::Unknown => return Err(no_list(list, "its list of nodes is not understood here")),
            Form::File => {
                let of_variable = |HostsError(why)| HostsError(format!("{list}: {why}"));
                let mut found = ListedNodes::read(Path::new(&value)).map_err(of_variable)?;
                found.file = format!("a copy of {value} ({list}), and name it with --hosts");
                if let Some(text) = env(per_node)
                    && found.hosts.iter().all(|host| host.slots == 1)
                {
                    let slots = rank_count(&text);
                    let slots = slots.map_err(|why| HostsError(format!("{per_node}: {why}")))?;
                    found.hosts.iter_mut().for_each(|host| host.slots = slots);
                }
                found
            }
        }));
    }
    Ok(None)
}

fn slurm_nodes(
    list: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ListedNodes, HostsError> {
    if let Some(components) = env(SLURM_COMPONENTS) {
        // srun takes the nodes of SLURM_HOSTFILE, or a node to ask by --nodelist, from one of them.
        return Err(HostsError(format!(
            "{SLURM_COMPONENTS}={}: `launch` does not start on several components of a Slurm job; \
             reach their nodes by ssh: `env -u SLURM_JOBID skt-hpl launch --hosts FILE ...`",
            shown(&components)
        )));
    }
    let names = expand_slurm(list)?;
    let per_node = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
    let counts = match per_node.into_iter().find_map(|name| Some((name, env(name)?))) {
        Some((variable, text)) => expand_tasks(variable, &text, names.len())?,
        None => vec![1; names.len()],
    };
    let host = |(name, slots)| Host { name, slots };
    let hosts = names.into_iter().zip(counts).map(host).collect();
    let file = "the Slurm allocation".to_owned();
    Ok(ListedNodes { hosts, file, is_slurm: true, ..ListedNodes::default() })
}

/// The nodes of this instance of Flux, in whose jobs no file lists them.
fn flux_nodes(program: &str) -> Result<ListedNodes, HostsError> {
    let bad = |why: String| {
        let why = shown_message(&why);
        HostsError(format!("FLUX_URI is set, but `flux getattr hostlist` fails: {why}"))
    };
    let output = Command::new(program).args(["getattr", "hostlist"]).output();
    let output = output.map_err(|why| bad(why.to_string()))?;
    if !output.status.success() {
        return Err(bad(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    // The same form as Slurm's (Flux RFC 29).
    let names = expand_slurm(String::from_utf8_lossy(&output.stdout).trim())?;
    if names.is_empty() {
        return Err(bad("it lists no node".to_owned()));
    }
    let hosts = names.into_iter().map(|name| Host { name, slots: 1 }).collect();
    let file = "a list of the Flux job's nodes, and name it with --hosts".to_owned();
    Ok(ListedNodes { hosts, file, ..ListedNodes::default() })
}

/// The keys of words `KEY=VALUE` that give the number of ranks, with `_` for `-`; and those that do
/// so where no other number is given, as in Open MPI.
const RANKS: &str = "slots cpu count";
const RANK_LIMITS: &str = "max_slots max_cpu max_count slots_max cpu_max count_max";
/// How a node is reached and by which user, and what its ranks use there: `launch` leaves that to
/// the configuration of the launchers.
const IGNORED: &str =
    "user username user_name port boards sockets cores cpu_set binding bindmap map ifname iface";

/// Reads a host file. A line is a name and optionally the number of ranks: `n1 slots=4` or `n1
/// cpu = 4` (Open MPI), `n1:4` (MPICH), `n1 4 all.q@n1 UNDEFINED` (Grid Engine), or the name
/// repeated for each rank (PBS, LSF). `#` and `//` start comments. More than [`RANKS_MAX`] ranks
/// are an error, too. Returns warnings of what has no effect here, too.
pub fn parse(text: &str, file: &str) -> Result<(Vec<Host>, Vec<String>), HostsError> {
    let (mut hosts, mut warnings) = (Vec::<Host>::new(), Vec::new());
    let (mut places, mut all) = (HashMap::new(), 0);
    // Programs of Windows mark text as UTF-8 so.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let bad = |what: String| HostsError(format!("{file}:{number}: {what}"));
        // Without comments, and without blanks around `=`.
        let line = line.split('#').next().unwrap_or("").split("//").next().unwrap_or("");
        let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
        let Some(Line { name, slots, ignored }) = read_line(&line).map_err(bad)? else { continue };
        all += slots;
        if all > RANKS_MAX {
            return Err(bad(format!("{all} ranks up to here, {RANKS_MAX} at most")));
        }
        if let (Some(word), true) = (ignored, warnings.is_empty()) {
            warnings.push(format!(
                "{file}:{number}: '{}' is ignored, and so are such words below: users, ports and \
                 the places of ranks are for the configuration of ssh (~/.ssh/config) and of the \
                 launcher",
                shown(word)
            ));
        }
        let place = *places.entry(name.to_owned()).or_insert(hosts.len());
        match hosts.get_mut(place) {
            Some(host) => host.slots += slots,
            None => hosts.push(Host { name: name.to_owned(), slots }),
        }
    }
    Ok((hosts, warnings))
}

struct Line<'a> {
    name: &'a str,
    slots: usize,
    /// The first word that has no effect here.
    ignored: Option<&'a str>,
}

fn read_line(line: &str) -> Result<Option<Line<'_>>, String> {
    let mut words = line.split_whitespace().peekable();
    let Some(first) = words.next() else { return Ok(None) };
    let mut ignored = first.find('@').filter(|at| *at > 0).map(|at| &first[..=at]);
    let (name, mut ranks) = name_and_count(&first[ignored.map_or(0, str::len)..]);
    let mut rank_limit = None;
    while let Some(word) = words.next() {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        let key = key.replace('-', "_");
        let is_of = |keys: &str| keys.split(' ').any(|known| known == key);
        let is_number = key.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if is_of(RANKS) && ranks.is_some() {
            return Err(format!("'{}' is a second number of ranks", shown(word)));
        } else if is_of(RANKS) {
            ranks = Some(value);
        } else if is_of(RANK_LIMITS) {
            rank_limit = Some(value);
        } else if is_of(IGNORED) {
            ignored.get_or_insert(word);
        } else if is_number && ranks.is_none() {
            ranks = Some(word);
            // Grid Engine: then come the queue and the processors there.
            if words.peek().is_some_and(|queue| queue.contains('@')) {
                break;
            }
        } else {
            let word = shown(word);
            return Err(format!("'{word}' is not understood; a line is `NAME slots=COUNT`"));
        }
    }
    check_name(name)?;
    let slots = ranks.or(rank_limit).map_or(Ok(1), rank_count)?;
    Ok(Some(Line { name, slots, ignored }))
}

/// The name and the number of ranks in `n1:4`, `[fe80::1]:4`, or either without a number.
fn name_and_count(word: &str) -> (&str, Option<&str>) {
    let is_address = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    if let Some((name, rest)) = word.strip_prefix('[').and_then(|word| word.split_once(']'))
        && is_address(name)
        && (rest.is_empty() || rest.starts_with(':'))
    {
        return (name, rest.strip_prefix(':'));
    }
    match word.split_once(':') {
        Some((name, count)) if !is_address(word) => (name, Some(count)),
        _ => (word, None),
    }
}

/// The largest number of nodes in a list: Slurm itself allows no more.
const NODES_MAX: usize = 65536;

/// Expands a Slurm list of nodes, e.g. `n[1-3,07],login`.
pub fn expand_slurm(list: &str) -> Result<Vec<String>, HostsError> {
    let bad = |what: &str| HostsError(format!("'{}' is no list of nodes: {what}", shown(list)));
    let mut names = Vec::new();
    let mut depth = 0;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        let (mut rest, mut count, mut ranges) = (part, 1, Vec::new());
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, behind) = after.split_once(']').ok_or_else(|| bad("a [ without ]"))?;
            let numbers = expand_ranges(inside).ok_or_else(|| bad("a bad range"))?;
            count *= numbers.len();
            if count > NODES_MAX {
                return Err(bad("more than 65536 nodes"));
            }
            ranges.push((before, numbers));
            rest = behind;
        }
        if names.len() + count > NODES_MAX {
            return Err(bad("more than 65536 nodes"));
        }
        // All names are about equally long; if the first is no host name, none is expanded.
        let first = ranges.iter().map(|(before, numbers)| format!("{before}{}", numbers[0]));
        check_name(&(first.collect::<String>() + rest)).map_err(|what| bad(&what))?;
        let mut all = vec![String::new()];
        for (before, numbers) in &ranges {
            let extend = |name: &String| {
                numbers.iter().map(|n| format!("{name}{before}{n}")).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(extend).collect();
        }
        for name in all {
            let name = name + rest;
            check_name(&name).map_err(|what| bad(&what))?;
            names.push(name);
        }
    }
    Ok(names)
}

/// Expands `1-3,07` to 1, 2, 3, 07; leading zeros are kept.
fn expand_ranges(inside: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in inside.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        // A sign would be taken for a digit of the width.
        let is_signed = from.starts_with('+') || to.starts_with('+');
        let (first, last): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        let is_long =
            from.len() > 20 || last.saturating_sub(first) >= (NODES_MAX - all.len()) as u64;
        if first > last || is_long || is_signed {
            return None;
        }
        all.extend((first..=last).map(|n| format!("{n:0width$}", width = from.len())));
    }
    Some(all)
}

/// Expands `$SLURM_TASKS_PER_NODE` or `$SLURM_JOB_CPUS_PER_NODE`, named `variable`, for `nodes`
/// nodes, e.g. `2(x3),1` to 2, 2, 2, 1.
pub fn expand_tasks(variable: &str, text: &str, nodes: usize) -> Result<Vec<usize>, HostsError> {
    expand_counts(text).filter(|all| all.len() == nodes).ok_or_else(|| {
        HostsError(format!(
            "{variable}='{}' does not give a number of ranks (1 to {RANKS_MAX}) for each of the \
             {nodes} nodes of SLURM_JOB_NODELIST; give --hosts FILE with lines `NAME slots=COUNT`",
            shown(text)
        ))
    })
}

fn expand_counts(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        let count = rank_count(count).ok()?;
        if times > NODES_MAX - all.len() {
            return None;
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Some(all)
}

/// The shortest time between two checks of the file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The file that `--spares` names, if it names one.
#[derive(Debug)]
pub(crate) struct SparesFile {
    path: Option<PathBuf>,
    polled: Instant,
    /// What the file looked like when it was last read: the time of its last change, and its bytes.
    read: Option<(SystemTime, u64)>,
}

impl SparesFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, polled: Instant::now(), read: None }
    }

    /// The nodes that the file lists, if it has changed since the last call, or why it cannot be
    /// read as it is now. A file that is gone lists what it did.
    pub(crate) fn poll(&mut self) -> Option<Result<Vec<Host>, HostsError>> {
        let path = self.path.as_ref()?;
        if self.polled.elapsed() < POLL_INTERVAL {
            return None;
        }
        self.polled = Instant::now();
        let look = |file: Metadata| Some((file.modified().ok()?, file.len()));
        let found = fs::metadata(path).ok().and_then(look)?;
        if self.read.replace(found) == Some(found) {
            return None;
        }
        Some(ListedNodes::read_spares(path).map(|listed| listed.hosts))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Nodes as `NAME=SLOTS`.
    fn shown_hosts(hosts: &[Host]) -> String {
        let all: Vec<_> = hosts.iter().map(|it| format!("{}={}", it.name, it.slots)).collect();
        all.join(" ")
    }

    #[test]
    fn host_files_of_all_launchers_are_understood() {
        for (text, want) in [
            ("# nodes\nn1 slots=4 max_slots=8\nn2:2 # two\n\nn3\nn4\nn4\n", "n1=4 n2=2 n3=1 n4=2"),
            // Open MPI 4.1.4 takes each of these, with this number of ranks.
            ("n1 slots = 2\nn2 slots= 2 max_slots =4\nn3\tcpu=2\n", "n1=2 n2=2 n3=2"),
            ("n1 count=2 // two\nn2 max-slots=3\nn3 cpu_max=3", "n1=2 n2=3 n3=3"),
            ("// nodes\nn1\n  n2  ", "n1=1 n2=1"),
            // Grid Engine.
            (
                "n1 16 all.q@n1 UNDEFINED\nn2 8 all.q@n2 <NULL>\nn1 4 short.q@n1 0,0:0,1\n",
                "n1=20 n2=8",
            ),
            ("n1 2\n", "n1=2"),
            (
                "fe80::1 slots=4\n[fe80::2]:2\n[fe80::3]\n::1\n",
                "fe80::1=4 fe80::2=2 fe80::3=1 ::1=1",
            ),
            (
                "fe80::1:2\n10.0.0.1:3\n[fe80::2]:2\nfe80::2 slots=1\n",
                "fe80::1:2=1 10.0.0.1=3 fe80::2=3",
            ),
        ] {
            let (hosts, warnings) = parse(text, "h").unwrap();
            assert_eq!((shown_hosts(&hosts), warnings), (want.to_owned(), vec![]));
            assert_eq!(parse(&super::super::openmpi_file(&hosts), "h").unwrap().0, hosts);
        }
        let text = "n0\nbob@n1 slots = 2\nn2 slots=2 username = bob\nn3 port=3\n";
        let (hosts, warnings) = parse(text, "h").unwrap();
        assert_eq!(shown_hosts(&hosts), "n0=1 n1=2 n2=2 n3=1");
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let want = "h:2: 'bob@' is ignored, and so are such words below: users, ports";
        assert!(warning.starts_with(want), "{warning}");
    }

    #[test]
    fn a_file_may_have_other_bytes_around_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        fs::write(&path, b"\xef\xbb\xbfn1 slots=2 # \xe9t\xe9\r\n").unwrap();
        assert_eq!(shown_hosts(&ListedNodes::read(&path).unwrap().hosts), "n1=2");
        fs::write(&path, b"n\xe9 slots=2\n").unwrap();
        assert!(ListedNodes::read(&path).unwrap_err().0.contains("is no host name"));
    }

    #[test]
    fn bad_host_files_are_refused_with_their_line() {
        for (text, message) in [
            ("n1\nn2 slots=0", "h:2: '0' is no number of ranks (1 to 16777216)"),
            ("n1 cpus=4", "h:1: 'cpus=4' is not understood; a line is `NAME slots=COUNT`"),
            ("-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("n1;reboot", "h:1: 'n1;reboot' is no host name"),
            ("^n1", "h:1: '^n1' is no host name"),
            ("+n0", "h:1: '+n0' is no host name"),
            ("@n1", "h:1: '@n1' is no host name"),
            ("bob@-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("/*", "h:1: '/*' is no host name"),
            ("n1 2 4", "h:1: '4' is not understood; a line is `NAME slots=COUNT`"),
            ("n1 2 slots=2", "h:1: 'slots=2' is a second number of ranks"),
            ("n1 slots", "h:1: 'slots' is not understood; a line is `NAME slots=COUNT`"),
            ("n1 slots =", "h:1: '' is no number of ranks (1 to 16777216)"),
            ("rank 0=n1 slot=0-3", "h:1: '0=n1' is not understood; a line is `NAME slots=COUNT`"),
            ("n[1-4],m slots=2", "h:1: 'n[1-4],m' is no host name"),
            ("[n1]:2", "h:1: '[n1]' is no host name"),
            ("[::1]x", "h:1: '[' is no host name"),
            ("n1:x", "h:1: 'x' is no number of ranks (1 to 16777216)"),
            ("n1:4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1 slots=4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1:4:8", "h:1: '4:8' is no number of ranks (1 to 16777216)"),
            ("n1 slots=99999999999", "h:1: '99999999999' is no number of ranks (1 to 16777216)"),
            ("n1:16777216\nn2:16777216\n", "h:2: 33554432 ranks up to here, 16777216 at most"),
            (
                "n1 slots=18446744073709551615\nn1",
                "h:1: '18446744073709551615' is no number of ranks (1 to 16777216)",
            ),
        ] {
            assert_eq!(parse(text, "h").unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn control_characters_of_errors_are_escaped() {
        for text in ["n1 \x1b[31m", "\x1b[31m", "n1:\x1b[31m"] {
            let error = parse(text, "h").unwrap_err().to_string();
            assert!(error.contains("\\u{1b}[31m"), "{error}");
        }
        assert!(parse(&"n".repeat(256), "h").unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn a_file_is_read_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spares");
        let mut file = SparesFile::new(Some(path.clone()));
        let mut poll = || {
            file.polled -= POLL_INTERVAL;
            let hosts = file.poll()?.map_err(|why| why.to_string());
            Some(hosts.map(|hosts| hosts.into_iter().map(|host| host.name).collect::<Vec<_>>()))
        };
        assert_eq!(poll(), None, "no file");
        fs::write(&path, "").unwrap();
        assert_eq!(poll(), Some(Ok(vec![])));
        assert_eq!(poll(), None, "the same");
        fs::write(&path, "n1\nn2 slots=").unwrap();
        assert!(poll().unwrap().unwrap_err().contains(":2: '' is no number of ranks"));
        fs::write(&path, "n1\nn2 slots=2\n").unwrap();
        assert_eq!(poll(), Some(Ok(vec!["n1".to_owned(), "n2".to_owned()])));
        fs::remove_file(&path).unwrap();
        assert_eq!(poll(), None);
    }

    /// The nodes with their ranks, or the error, where these variables are set. `FILE` stands for a
    /// file with this text.
    fn listed(variables: &[(&str, &str)], text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes");
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let env = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.replace("FILE", file))
        };
        let listed = listed_in(&env).map_err(|why| why.to_string().replace(file, "FILE"))?;
        let nodes = |listed: ListedNodes| {
            let nodes = listed.hosts.iter().map(|host| format!("{}:{}", host.name, host.slots));
            nodes.chain(listed.warnings).collect::<Vec<_>>().join(" ")
        };
        Ok(listed.map_or("none".to_owned(), nodes))
    }

    #[test]
    fn jobs_of_each_batch_system_list_their_nodes() {
        for (variables, text, want) in [
            (&[("PBS_NODEFILE", "FILE")][..], "n1\nn1\nn2\nn2\n", "n1:2 n2:2"),
            (&[("LSB_JOBID", "7"), ("LSB_DJOB_HOSTFILE", "FILE")], "n1\nn1\nn2\n", "n1:2 n2:1"),
            (
                &[("JOB_ID", "7"), ("PE_HOSTFILE", "FILE")],
                "n1.a 16 all.q@n1.a UNDEFINED\nn2.a 16 all.q@n2.a <NULL>\n",
                "n1.a:16 n2.a:16",
            ),
            (&[("OAR_NODEFILE", "FILE")], "n1\nn1\nn2\nn2\n", "n1:2 n2:2"),
            (&[("COBALT_NODEFILE", "FILE")], "n1\nn2\n", "n1:1 n2:1"),
            (&[("PJM_O_NODEINF", "FILE")], "10.0.0.1\n10.0.0.2\n", "10.0.0.1:1 10.0.0.2:1"),
            (&[("PJM_O_NODEINF", "FILE"), ("PJM_PROC_BY_NODE", "8")], "n1\nn2\n", "n1:8 n2:8"),
            (&[("LOADL_HOSTFILE", "FILE")], "n1\nn1\n", "n1:2"),
            (&[("HQ_NODE_FILE", "FILE"), ("SLURM_JOB_NODELIST", "n[1-9]")], "n1\n", "n1:1"),
            (
                &[("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "2(x2)")],
                "",
                "n1:2 n2:2",
            ),
            (
                &[("OMPI_MCA_orte_default_hostfile", "FILE")],
                "a-0.b.ns.svc slots=2\n",
                "a-0.b.ns.svc:2",
            ),
            (&[("PRTE_MCA_prte_default_hostfile", "FILE")], "n1 slots=2\n", "n1:2"),
            (&[("I_MPI_HYDRA_HOST_FILE", "FILE")], "n1:2\nn2:2\n", "n1:2 n2:2"),
            (&[("HYDRA_HOST_FILE", "FILE")], "n1:2\n", "n1:2"),
            // The batch system has chosen the nodes, not the file for all users.
            (
                &[("PBS_NODEFILE", "FILE"), ("OMPI_MCA_orte_default_hostfile", "/no/file")],
                "n1\n",
                "n1:1",
            ),
            (&[("OMPI_MCA_orte_default_hostfile", "none"), ("PBS_NODEFILE", "")], "", "none"),
            (&[("JOB_ID", "7"), ("SGE_ROOT", "/sge")], "", "none"),
            (&[], "", "none"),
        ] {
            assert_eq!(listed(variables, text), Ok(want.to_owned()), "{variables:?}");
        }
    }

    #[test]
    fn flux_is_asked_for_the_nodes_of_its_instance() {
        let folder = tempfile::tempdir().unwrap();
        let flux = folder.path().join("flux");
        let listed = |script: &str| {
            let text = format!("#!/bin/sh\n[ \"$*\" = 'getattr hostlist' ] || exit 3\n{script}\n");
            fs::write(&flux, text).unwrap();
            fs::set_permissions(&flux, fs::Permissions::from_mode(0o755)).unwrap();
            let names = |listed: ListedNodes| listed.hosts.into_iter().map(|host| host.name);
            let listed = flux_nodes(flux.to_str().unwrap());
            listed.map(|listed| names(listed).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(listed("echo 'n[1-2,07]'"), Ok("n1 n2 n07".to_owned()));
        for (script, want) in [
            ("echo no broker >&2; exit 1", "`flux getattr hostlist` fails: no broker"),
            ("echo", "`flux getattr hostlist` fails: it lists no node"),
            ("echo 'n[1'", "is no list of nodes: a [ without ]"),
        ] {
            let why = listed(script).expect_err(want).to_string();
            assert!(why.ends_with(want), "{why}");
        }
    }

    #[test]
    fn lists_that_are_not_understood_are_refused_by_name() {
        for (variables, text, want) in [
            (&[("LSB_DJOB_HOSTFILE", "FILE")][..], "n1 -x\n", "LSB_DJOB_HOSTFILE: FILE:1: '-x' is"),
            (&[("PE_HOSTFILE", "/no/file")], "", "PE_HOSTFILE: /no/file: No such file"),
            (&[("OAR_NODEFILE", "FILE")], "", "OAR_NODEFILE: FILE: no node in it"),
            (
                &[("PJM_O_NODEINF", "FILE"), ("PJM_PROC_BY_NODE", "x")],
                "n1\n",
                "PJM_PROC_BY_NODE: 'x' is no number of ranks (1 to ",
            ),
            (
                &[("OMPI_MCA_orte_default_hostfile", "/no/file")],
                "",
                "OMPI_MCA_orte_default_hostfile: ",
            ),
            (&[("COBALT_JOBID", "7")], "", "COBALT_JOBID is set, as in a job with its own nodes"),
            (&[("SLURM_JOB_ID", "7")], "", "SLURM_JOB_ID is set"),
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n1"), ("SLURM_HET_SIZE", "2")],
                "",
                "SLURM_HET_SIZE=2: `launch` does not start on several components",
            ),
            (&[("AWS_BATCH_JOB_NUM_NODES", "2")], "", "AWS_BATCH_JOB_NUM_NODES is set"),
        ] {
            let why = listed(variables, text).expect_err(want);
            assert!(why.starts_with(want), "{why}");
        }
    }

    #[test]
    fn lists_without_bound_are_refused() {
        assert_eq!(expand_slurm("n[1-65536]").unwrap().len(), 65536);
        let zeros = "0".repeat(70_000);
        let long = "x".repeat(70_000);
        for list in [
            "n[1-65537]",
            "n[1-65536],m",
            "n[1-65536][1-65536]",
            "n[1-40000,1-40000]",
            &format!("n[{zeros}1-2]"),
            &format!("{long}[1-65536]"),
            &format!("n[1-65536]{long}"),
            &format!("n[1-65536]{}", "[1]".repeat(20_000)),
        ] {
            let error = expand_slurm(list).unwrap_err().to_string();
            assert!(error.len() < 300, "{error}");
        }
        assert_eq!(expand_counts("1(x65537)"), None);
        assert_eq!(expand_counts("1(x65536),1"), None);
        assert_eq!(expand_counts("18446744073709551615"), None);
        assert_eq!(expand_counts("128(x65536)").unwrap().len(), 65536);
    }

    #[test]
    fn slurm_lists_are_expanded() {
        let all = |list: &str| expand_slurm(list).unwrap().join(" ");
        assert_eq!(all("n[1-3,07],login"), "n1 n2 n3 n07 login");
        assert_eq!(all("c[008-010]"), "c008 c009 c010");
        assert_eq!(all("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        for bad in ["n[1-3", "n[3-1]", "n[a]", "n[1-999999999]", "n;", "n[+1-3]", "n[1-+3]"] {
            assert!(expand_slurm(bad).is_err(), "{bad}");
        }
        let tasks = |text: &str| expand_tasks("SLURM_TASKS_PER_NODE", text, 4);
        assert_eq!(tasks("2(x3),1"), Ok(vec![2, 2, 2, 1]));
        for bad in ["x", "2", "2(x4),1", "2(x3),0", "2(x3,1", ""] {
            let why = tasks(bad).expect_err(bad).to_string();
            assert!(why.starts_with(&format!("SLURM_TASKS_PER_NODE='{bad}'")), "{why}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn ranges_have_all_names_in_order(
            names in proptest::collection::vec("[ab]?0{0,2}[0-9]{1,2}(\\.x1)?", 1..30),
        ) {
            let names_as_text: Vec<&str> = names.iter().map(String::as_str).collect();
            let text = skt_host::host_names::ranges(&names_as_text, usize::MAX).0.replace(' ', "");
            proptest::prop_assert_eq!(expand_slurm(&text).unwrap(), names, "{}", text);
        }
    }
}
