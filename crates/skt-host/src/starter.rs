//! The program that starts the ranks, and its arguments that give each thread of a rank a separate
//! core. All commands that are printed or started come from here.
//!
//! Open MPI binds each of one or two ranks to one core, however many threads it has. Its `--map-by
//! ...:PE=T` gives a rank T cores, but refuses a host that has fewer, as a container may. So ranks
//! with several threads are not bound: they divide the cores that they may use themselves
//! ([`crate::placement`]), including those that a control group leaves.

use std::process::Command;

/// How ranks are started that skt-hpl is to pin.
pub const UNBOUND: &str = "Open MPI: --bind-to none; srun: --cpu-bind=none; no taskset";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// `mpirun` of Open MPI.
    Openmpi,
    /// Hydra, of MPICH and its derivatives; by default it binds no rank.
    Mpich,
    /// `srun` of Slurm.
    Slurm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks<'a> {
    pub count: usize,
    /// The number of nodes, and of ranks on each; `None` for this machine only.
    pub nodes: Option<(usize, usize)>,
    /// The file that names the nodes, for launchers that take one.
    pub hostfile: &'a str,
    pub threads: usize,
    /// Cores of a node that are kept from the solver.
    pub helper_cores: usize,
}

/// What `program` prints for `--version`, if it starts.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Starter {
    /// Which launcher `program` is, by its output for `--version`.
    pub fn from_program(program: &str) -> Option<Self> {
        Self::from_version(&version(program)?)
    }

    /// The name of this launcher, with this program if it is not the usual one, if it takes no IPv6
    /// addresses as names of hosts.
    pub fn lacks_ipv6(self, program: Option<&str>) -> Option<&'static str> {
        match self {
            // Its daemons exchange names of other characters from version 5 on.
            Self::Openmpi => {
                let version = version(program.unwrap_or("mpirun"))?;
                let number = version.split("(Open MPI) ").nth(1)?.split('.').next()?;
                let is_old = number.parse::<u32>().is_ok_and(|number| number < 5);
                is_old.then_some("Open MPI before version 5")
            }
            Self::Mpich => Some("MPICH"),
            Self::Slurm => Some("Slurm"),
        }
    }

    fn from_version(text: &str) -> Option<Self> {
        match text {
            text if text.contains("Open MPI") || text.contains("OpenRTE") => Some(Self::Openmpi),
            text if text.to_ascii_lowercase().contains("hydra") => Some(Self::Mpich),
            // Its Hydra does not name itself.
            text if text.contains("Intel(R) MPI") => Some(Self::Mpich),
            _ => None,
        }
    }

    /// The arguments with which ranks share cores, and one that waits leaves its core to others.
    pub fn shared_cores(self) -> Vec<String> {
        match self {
            // Its host file has a slot for each rank, so it does not see that cores are shared.
            Self::Openmpi => words("--bind-to none --mca mpi_yield_when_idle 1"),
            Self::Slurm => words("--overcommit --cpu-bind=none"),
            Self::Mpich => Vec::new(),
        }
    }

    /// The arguments that give each rank cores for its threads; none if the launcher does so by
    /// default.
    pub fn cores(self, threads: usize, helper_cores: usize) -> Vec<String> {
        match self {
            Self::Openmpi if threads > 1 || helper_cores > 0 => words("--bind-to none"),
            // Helper cores belong to no rank: a step with cores for each rank would lack them.
            Self::Slurm if helper_cores > 0 => words("--cpu-bind=none"),
            Self::Slurm if threads > 1 => vec![format!("--cpus-per-task={threads}")],
            _ => Vec::new(),
        }
    }

    /// Whether a user's arguments already place the ranks: a launcher refuses a second placement.
    pub fn places_ranks(self, words: &[String]) -> bool {
        let flags: &[&str] = match self {
            Self::Openmpi => {
                &["bind-to", "bind-to-core", "bind-to-none", "cpu-set", "cpu-list", "rankfile"]
            }
            Self::Mpich => &["bind-to"],
            Self::Slurm => &["cpus-per-task", "cpu-bind"],
        };
        words.iter().any(|word| {
            let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
            let is_short = self == Self::Slurm && word.starts_with("-c");
            word.starts_with('-') && (flags.contains(&name) || is_short)
        })
    }

    /// The command line of the launcher, up to the program that it starts. `is_root` adds the
    /// argument without which Open MPI refuses root.
    pub fn command(self, is_root: bool, ranks: &Ranks) -> Vec<String> {
        let Ranks { count, nodes, hostfile, threads, helper_cores } = *ranks;
        let cores = self.cores(threads, helper_cores);
        let of_nodes = |text: &dyn Fn(usize, usize) -> String| {
            nodes.map_or(Vec::new(), |(nodes, each)| words(&text(nodes, each)))
        };
        let parts = match self {
            Self::Openmpi => [
                words(if is_root { "mpirun --allow-run-as-root" } else { "mpirun" }),
                of_nodes(&|_, each| format!("--hostfile {hostfile} --map-by ppr:{each}:node")),
                cores,
                words(&format!("-np {count}")),
            ],
            Self::Mpich => [
                words("mpirun"),
                of_nodes(&|_, each| format!("-f {hostfile} -ppn {each}")),
                cores,
                words(&format!("-np {count}")),
            ],
            Self::Slurm => [
                words("srun"),
                of_nodes(&|nodes, each| format!("--nodes={nodes} --ntasks-per-node={each}")),
                words(&format!("--ntasks={count}")),
                cores,
            ],
        };
        parts.concat()
    }

    /// Advice for a rank that has fewer cores than threads.
    pub fn advice(threads: usize) -> String {
        let of = |starter: Self| starter.cores(threads.max(2), 0).join(" ");
        format!(
            "start it without taskset, with cores for its threads (Open MPI: {}; Slurm: {}; MPICH: \
             no -bind-to)",
            of(Self::Openmpi),
            of(Self::Slurm)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Starter; 3] = [Starter::Openmpi, Starter::Mpich, Starter::Slurm];

    fn commands(is_root: bool, ranks: &Ranks) -> [String; 3] {
        ALL.map(|starter| starter.command(is_root, ranks).join(" "))
    }

    const HERE: Ranks =
        Ranks { count: 2, nodes: None, hostfile: "hosts", threads: 1, helper_cores: 0 };

    #[test]
    fn each_launcher_gets_its_arguments() {
        for (is_root, ranks, want) in [
            (false, HERE, ["mpirun -np 2", "mpirun -np 2", "srun --ntasks=2"]),
            (true, HERE, ["mpirun --allow-run-as-root -np 2", "mpirun -np 2", "srun --ntasks=2"]),
            // Threads get cores on each node.
            (
                false,
                Ranks { count: 1600, nodes: Some((200, 8)), threads: 16, ..HERE },
                [
                    "mpirun --hostfile hosts --map-by ppr:8:node --bind-to none -np 1600",
                    "mpirun -f hosts -ppn 8 -np 1600",
                    "srun --nodes=200 --ntasks-per-node=8 --ntasks=1600 --cpus-per-task=16",
                ],
            ),
            // Helper cores are cores of no rank.
            (
                false,
                Ranks { helper_cores: 1, threads: 2, ..HERE },
                ["mpirun --bind-to none -np 2", "mpirun -np 2", "srun --ntasks=2 --cpu-bind=none"],
            ),
        ] {
            assert_eq!(commands(is_root, &ranks), want);
        }
    }

    #[test]
    fn placement_flags_of_the_user_are_not_repeated() {
        for (starter, line, want) in [
            (Starter::Openmpi, "--report-bindings --bind-to core", true),
            (Starter::Openmpi, "-bind-to core", true),
            (Starter::Openmpi, "--cpu-set 0,1", true),
            (Starter::Openmpi, "--map-by ppr:1:node", false),
            (Starter::Slurm, "-c4", true),
            (Starter::Slurm, "--cpu-bind=cores", true),
            (Starter::Slurm, "--mpi=pmix", false),
        ] {
            assert_eq!(starter.places_ranks(&words(line)), want, "{line}");
        }
    }

    #[test]
    fn advice_names_the_flags_of_each_launcher() {
        let want = "start it without taskset, with cores for its threads (Open MPI: --bind-to none; \
                    Slurm: --cpus-per-task=4; MPICH: no -bind-to)";
        assert_eq!(Starter::advice(4), want);
    }

    #[test]
    fn launchers_are_known_by_their_versions() {
        let open = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/";
        assert_eq!(Starter::from_version(open), Some(Starter::Openmpi));
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(Starter::from_version(hydra), Some(Starter::Mpich));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929";
        assert_eq!(Starter::from_version(intel), Some(Starter::Mpich));
        assert_eq!(Starter::from_version("srun: 1"), None);
    }
}
