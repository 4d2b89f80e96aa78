//! The nodes of the job of a batch system, from what the system puts into the environment, and
//! those of a host file that the environment names for MPI launchers.

use std::path::Path;
use std::process::Command;

use super::{Host, HostFile, HostsError, RANKS_MAX, expand_slurm, expand_tasks};
use skt_terms::shown::{shown, shown_message};

/// What a job of a batch system has in its environment; an empty name is of no variable.
struct System {
    /// Set in each job.
    job: &'static str,
    /// Names the file of the job's nodes.
    list: &'static str,
    /// The number of ranks of a node, where the file names each node once.
    per_node: &'static str,
}

const fn system(job: &'static str, list: &'static str) -> System {
    System { job, list, per_node: "" }
}

/// Set within an instance of Flux.
const FLUX: &str = "FLUX_URI";
/// Set in tasks of HyperQueue with several nodes.
const HYPERQUEUE: &str = "HQ_NODE_FILE";
/// Names the file of an LSF job's nodes.
const LSF: &str = "LSB_DJOB_HOSTFILE";
/// Set where IBM's Cluster System Manager allocates the nodes of LSF jobs, besides a launch node.
const CSM: &str = "CSM_ALLOCATION_ID";
const SLURM: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"];
/// The number of components of a heterogeneous Slurm job. The other variables are of the first.
const SLURM_COMPONENTS: &str = "SLURM_HET_SIZE";
/// The batch systems with files of nodes. A job without its system's file is refused, except where
/// the system gives none to a job of one node.
const SYSTEMS: [System; 8] = [
    // HyperQueue, whose tasks of one node have none.
    system("", HYPERQUEUE),
    system("PBS_JOBID", "PBS_NODEFILE"),
    system("LSB_JOBID", LSF),
    // Grid Engine, whose jobs without a parallel environment have one node.
    system("", "PE_HOSTFILE"),
    system("OAR_JOB_ID", "OAR_NODEFILE"),
    system("COBALT_JOBID", "COBALT_NODEFILE"),
    System { job: "PJM_JOBID", list: "PJM_O_NODEINF", per_node: "PJM_PROC_BY_NODE" },
    system("LOADL_STEP_ID", "LOADL_HOSTFILE"),
];
/// The variables of batch systems, each in jobs of several nodes, whose lists are not understood:
/// AWS Batch, Azure Batch, Google Batch, HTCondor, Volcano.
const NOT_UNDERSTOOD: [&str; 5] = [
    "AWS_BATCH_JOB_NUM_NODES",
    "AZ_BATCH_HOST_LIST",
    "BATCH_HOSTS_FILE",
    "_CONDOR_NPROCS",
    "VC_WORKER_HOSTS",
];
/// Variables that name a host file for the launchers of Open MPI 4 and 5, Intel MPI and MPICH, as
/// where Kubernetes runs MPI (mpi-operator).
const OF_LAUNCHERS: [&str; 5] = [
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_prte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
];
/// By this word Open MPI takes no host file.
const NO_FILE: &str = "none";

/// The nodes that the environment lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedNodes {
    pub hosts: Vec<Host>,
    /// What to add nodes or slots to.
    pub file: String,
    /// Whether `srun` reaches them.
    pub is_slurm: bool,
    pub warnings: Vec<String>,
}

/// The nodes that the environment lists, of which `env` gets a variable; `None` if it lists none.
///
/// # Errors
/// A variable is set whose list is missing, or is not understood.
pub fn listed_in(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<ListedNodes>, HostsError> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    // Flux and HyperQueue may run within a job of another system.
    if env(FLUX).is_some() {
        return flux_nodes("flux").map(Some);
    }
    if env(HYPERQUEUE).is_none() && SLURM.iter().any(|name| env(name).is_some()) {
        return slurm_nodes(&env).map(Some);
    }
    for System { job, list, per_node } in SYSTEMS {
        if let Some(path) = env(list) {
            let found = read(list, &path)?;
            let hosts = with_ranks(found.hosts, per_node, env(per_node).as_deref())?;
            // What a batch system writes is meant.
            let warnings = launch_node(list, &hosts, &env).into_iter().collect();
            return Ok(Some(ListedNodes { warnings, hosts, ..found }));
        }
        if env(job).is_some() {
            return Err(no_list(job, &format!("{list} is not")));
        }
    }
    if let Some(name) = NOT_UNDERSTOOD.into_iter().find(|name| env(name).is_some()) {
        return Err(no_list(name, "its list of nodes is not understood here"));
    }
    let of_launcher = |name| env(name).filter(|path| path != NO_FILE).map(|path| (name, path));
    OF_LAUNCHERS.into_iter().find_map(of_launcher).map(|(name, path)| read(name, &path)).transpose()
}

fn no_list(variable: &str, why: &str) -> HostsError {
    HostsError(format!(
        "{variable} is set, as in a job with its own nodes, but {why}: give --hosts FILE with \
         lines `NAME slots=COUNT`"
    ))
}

/// The nodes in the file that a variable names.
fn read(variable: &str, path: &str) -> Result<ListedNodes, HostsError> {
    let of_variable = |HostsError(why)| HostsError(format!("{variable}: {why}"));
    let HostFile { hosts, warnings } = HostFile::read(Path::new(path)).map_err(of_variable)?;
    let file = format!("a copy of {path} ({variable}), and name it with --hosts");
    Ok(ListedNodes { hosts, file, is_slurm: false, warnings })
}

/// The hosts with the number of ranks that the variable `variable` gives to each.
fn with_ranks(
    mut hosts: Vec<Host>,
    variable: &str,
    ranks: Option<&str>,
) -> Result<Vec<Host>, HostsError> {
    let Some(text) = ranks.filter(|_| hosts.iter().all(|host| host.slots == 1)) else {
        return Ok(hosts);
    };
    let ranks = text.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    let ranks = ranks.ok_or_else(|| {
        let text = shown(text);
        HostsError(format!("{variable}: '{text}' is no number of ranks (1 to {RANKS_MAX})"))
    })?;
    hosts.iter_mut().for_each(|host| host.slots = ranks);
    Ok(hosts)
}

/// A warning if the first host of an LSF job looks like a launch node, which computes nothing: it
/// has one slot, and all others have more. The job's own list does not show it for certain.
fn launch_node(list: &str, hosts: &[Host], env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let [first, others @ ..] = hosts else { return None };
    let least = others.iter().map(|host| host.slots).min()?;
    if list != LSF || first.slots != 1 || least == 1 {
        return None;
    }
    let of_csm = env(CSM).map_or(String::new(), |_| format!(" ({CSM} is set, as at such sites)"));
    Some(format!(
        "{list}: its first host, {}, has 1 slot, the others have {least} or more: where LSF runs \
         job scripts on a launch node, this is that node, and computes nothing{of_csm}: then give \
         --hosts FILE without it",
        first.name
    ))
}

fn slurm_nodes(env: &dyn Fn(&str) -> Option<String>) -> Result<ListedNodes, HostsError> {
    let [job, variable] = SLURM;
    if let Some(components) = env(SLURM_COMPONENTS) {
        // srun takes the nodes of SLURM_HOSTFILE, or a node to ask by --nodelist, from one of them.
        return Err(HostsError(format!(
            "{SLURM_COMPONENTS}={}: `launch` does not start on several components of a Slurm job; \
             reach their nodes by ssh: `env -u SLURM_JOBID skt-hpl launch --hosts FILE ...`, with \
             lines `NAME slots=COUNT` for the nodes of all components",
            shown(&components)
        )));
    }
    let list = env(variable).ok_or_else(|| no_list(job, &format!("{variable} is not")))?;
    let names = expand_slurm(&list)?;
    let per_node = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
    let counts = match per_node.into_iter().find_map(|name| Some((name, env(name)?))) {
        Some((variable, text)) => expand_tasks(variable, &text, names.len())?,
        None => vec![1; names.len()],
    };
    let host = |(name, slots)| Host { name, slots };
    let hosts = names.into_iter().zip(counts).map(host).collect();
    let file = "the Slurm allocation".to_owned();
    Ok(ListedNodes { hosts, file, is_slurm: true, warnings: Vec::new() })
}

/// The nodes of this instance of Flux, in whose jobs no file lists them.
fn flux_nodes(program: &str) -> Result<ListedNodes, HostsError> {
    let bad = |why: String| {
        let why = shown_message(&why);
        HostsError(format!("{FLUX} is set, but `flux getattr hostlist` fails: {why}"))
    };
    let output = Command::new(program).args(["getattr", "hostlist"]).output();
    let output = output.map_err(|why| bad(why.to_string()))?;
    if !output.status.success() {
        return Err(bad(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    // The same form as Slurm's (Flux RFC 29).
    let names = expand_slurm(String::from_utf8_lossy(&output.stdout).trim())?;
    let hosts: Vec<Host> = names.into_iter().map(|name| Host { name, slots: 1 }).collect();
    if hosts.is_empty() {
        return Err(bad("it lists no node".to_owned()));
    }
    let file = "a list of the Flux job's nodes, and name it with --hosts".to_owned();
    Ok(ListedNodes { hosts, file, is_slurm: false, warnings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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
    fn the_launch_node_of_an_lsf_job_is_warned_of() {
        let lsf = ("LSB_DJOB_HOSTFILE", "FILE");
        let nodes = "batch5\nh01\nh01\nh02\nh02\n";
        let warned = listed(&[lsf], nodes).unwrap();
        let want = "batch5:1 h01:2 h02:2 LSB_DJOB_HOSTFILE: its first host, batch5, has 1 slot";
        assert!(warned.starts_with(want) && !warned.contains("CSM"), "{warned}");
        let warned = listed(&[lsf, ("CSM_ALLOCATION_ID", "42")], nodes).unwrap();
        assert!(warned.contains("(CSM_ALLOCATION_ID is set, as at such sites)"), "{warned}");
        for (variables, text, want) in [
            (&[lsf][..], "n1\nn2\nn3\nn3\n", "n1:1 n2:1 n3:2"),
            (&[lsf], "n1\n", "n1:1"),
            (&[("PBS_NODEFILE", "FILE")], "n1\nn2\nn2\n", "n1:1 n2:2"),
        ] {
            assert_eq!(listed(variables, text), Ok(want.to_owned()));
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
}
