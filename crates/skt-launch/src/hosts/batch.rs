//! The nodes of the job of a batch system, from what the system puts into the environment, and
//! those of a host file that the environment names for MPI launchers.

use std::path::Path;
use std::process::Command;

use super::{Host, HostFile, HostsError, expand_slurm, expand_tasks, rank_count};
use skt_terms::shown::{shown, shown_message};

/// How a batch system gives the nodes of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A variable names a host file.
    File,
    /// A variable lists ranges of names.
    Slurm,
    /// A command prints them.
    Flux,
    /// In a form that is not understood.
    Unknown,
    /// A variable names a host file for the launchers of Open MPI 4 and 5, Intel MPI and MPICH, as
    /// where Kubernetes runs MPI (mpi-operator).
    OfLauncher,
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
    (Form::File, "LSB_JOBID", LSF, ""),
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
    (Form::OfLauncher, "", "OMPI_MCA_orte_default_hostfile", ""),
    (Form::OfLauncher, "", "OMPI_MCA_prte_default_hostfile", ""),
    (Form::OfLauncher, "", "PRTE_MCA_prte_default_hostfile", ""),
    (Form::OfLauncher, "", "I_MPI_HYDRA_HOST_FILE", ""),
    (Form::OfLauncher, "", "HYDRA_HOST_FILE", ""),
];
/// Names the file of an LSF job's nodes.
const LSF: &str = "LSB_DJOB_HOSTFILE";
/// The number of components of a heterogeneous Slurm job. The other variables are of the first.
const SLURM_COMPONENTS: &str = "SLURM_HET_SIZE";
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
    /// Whether there is no list, so that all ranks run on this machine.
    pub is_local: bool,
    pub warnings: Vec<String>,
}

impl ListedNodes {
    fn new(hosts: Vec<Host>, file: &str) -> Self {
        let (is_slurm, is_local, warnings) = (false, false, Vec::new());
        Self { hosts, file: file.to_owned(), is_slurm, is_local, warnings }
    }

    /// This machine alone.
    pub fn here(slots: usize) -> Self {
        let hosts = vec![Host { name: "localhost".into(), slots }];
        Self { is_local: true, ..Self::new(hosts, "--np") }
    }

    /// The nodes of a host file.
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let HostFile { hosts, warnings } = HostFile::read(path)?;
        Ok(Self { warnings, ..Self::new(hosts, &path.display().to_string()) })
    }

    pub fn slots(&self) -> usize {
        self.hosts.iter().map(|host| host.slots).sum()
    }
}

/// The nodes that the environment lists, of which `env` gets a variable; `None` if it lists none. A
/// variable whose list is missing, or is not understood, is an error.
pub fn listed_in(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<ListedNodes>, HostsError> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    for (form, job, list, per_node) in SYSTEMS {
        let Some(value) = env(list) else {
            if env(job).is_some() {
                return Err(no_list(job, &format!("{list} is not")));
            }
            continue;
        };
        return match form {
            Form::Flux => flux_nodes("flux"),
            Form::Slurm => slurm_nodes(&value, &env),
            Form::Unknown => Err(no_list(list, "its list of nodes is not understood here")),
            Form::OfLauncher if value == NO_FILE => continue,
            Form::OfLauncher => read(list, &value),
            Form::File => {
                let mut found = read(list, &value)?;
                if let Some(text) = env(per_node)
                    && found.hosts.iter().all(|host| host.slots == 1)
                {
                    let slots = rank_count(&text);
                    let slots = slots.map_err(|why| HostsError(format!("{per_node}: {why}")))?;
                    found.hosts.iter_mut().for_each(|host| host.slots = slots);
                }
                // What a batch system writes is meant.
                found.warnings = launch_node(list, &found.hosts).into_iter().collect();
                Ok(found)
            }
        }
        .map(Some);
    }
    Ok(None)
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
    let found = ListedNodes::read(Path::new(path)).map_err(of_variable)?;
    let file = format!("a copy of {path} ({variable}), and name it with --hosts");
    Ok(ListedNodes { file, ..found })
}

/// A warning if the first host of an LSF job looks like a launch node, which computes nothing: it
/// has one slot, and all others have more. The job's own list does not show it for certain.
fn launch_node(list: &str, hosts: &[Host]) -> Option<String> {
    let [first, others @ ..] = hosts else { return None };
    let least = others.iter().map(|host| host.slots).min()?;
    (list == LSF && first.slots == 1 && least > 1).then(|| {
        format!(
            "{list}: its first host, {}, has 1 slot, the others have {least} or more: where LSF \
             runs job scripts on a launch node, this is that node, and computes nothing: then give \
             --hosts FILE without it",
            first.name
        )
    })
}

fn slurm_nodes(
    list: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ListedNodes, HostsError> {
    if let Some(components) = env(SLURM_COMPONENTS) {
        // srun takes the nodes of SLURM_HOSTFILE, or a node to ask by --nodelist, from one of them.
        return Err(HostsError(format!(
            "{SLURM_COMPONENTS}={}: `launch` does not start on several components of a Slurm job; \
             reach their nodes by ssh: `env -u SLURM_JOBID skt-hpl launch --hosts FILE ...`, with \
             lines `NAME slots=COUNT` for the nodes of all components",
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
    Ok(ListedNodes { is_slurm: true, ..ListedNodes::new(hosts, "the Slurm allocation") })
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
    let hosts: Vec<Host> = names.into_iter().map(|name| Host { name, slots: 1 }).collect();
    if hosts.is_empty() {
        return Err(bad("it lists no node".to_owned()));
    }
    Ok(ListedNodes::new(hosts, "a list of the Flux job's nodes, and name it with --hosts"))
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
        assert!(warned.starts_with(want), "{warned}");
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
