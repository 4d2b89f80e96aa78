//! The agent that a launcher's own arguments or the environment name for it. What reaches nodes for
//! the launcher reaches them for probes, too.

use std::path::Path;

use skt_host::program;
use skt_host::starter::Starter;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAgent {
    pub command: String,
    pub source: String,
}

/// What names the agent of a launcher, and what names further arguments of the agent, which come
/// before the node: arguments of the launcher without hyphens, and variables. Those of Open MPI 5
/// come before those of version 4, and those of MPICH before those of Intel MPI.
fn names(starter: Starter) -> [[&'static str; 2]; 2] {
    const OPENMPI: [[&str; 2]; 2] = [
        [
            "plm_ssh_agent plm_rsh_agent",
            "PRTE_MCA_plm_ssh_agent PRTE_MCA_plm_rsh_agent \
             OMPI_MCA_plm_ssh_agent OMPI_MCA_plm_rsh_agent",
        ],
        [
            "plm_ssh_args plm_rsh_args",
            "PRTE_MCA_plm_ssh_args PRTE_MCA_plm_rsh_args \
             OMPI_MCA_plm_ssh_args OMPI_MCA_plm_rsh_args",
        ],
    ];
    const MPICH: [&str; 2] = [
        "launcher-exec bootstrap-exec",
        "HYDRA_LAUNCHER_EXEC HYDRA_BOOTSTRAP_EXEC I_MPI_HYDRA_BOOTSTRAP_EXEC",
    ];
    match starter {
        Starter::Openmpi => OPENMPI,
        Starter::Mpich => [MPICH, [""; 2]],
        Starter::Slurm => [[""; 2]; 2],
    }
}

/// What one of the names has as its value, with that name.
fn found(
    [known, variables]: [&str; 2],
    arguments: &[String],
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let is_known =
        |word: &String| known.split_whitespace().any(|known| known == word.trim_start_matches('-'));
    let at = arguments.iter().position(is_known);
    let argument = at.and_then(|at| Some((arguments[at].clone(), arguments.get(at + 1)?.clone())));
    let mut variables = variables.split_whitespace();
    let variable = || variables.find_map(|name| Some((name.to_owned(), env(name)?)));
    argument.or_else(variable).filter(|(_, value)| !value.trim().is_empty())
}

/// The agent that a launcher's arguments name, or else its environment, of which `env` gets a
/// variable. Of alternatives, which colons separate (Open MPI), it is the first that is in `PATH`.
/// ssh is kept from asking for a password, and from leaving its connection to others.
pub fn named(
    starter: Starter,
    arguments: &[String],
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<NamedAgent> {
    let [agent, further] = names(starter).map(|names| found(names, arguments, env));
    // Hydra's other launchers start their own program.
    let chosen = ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"];
    let chosen = chosen.into_iter().find_map(env).filter(|_| starter == Starter::Mpich);
    let is_used = chosen.is_none_or(|name| ["ssh", "rsh"].contains(&name.as_str()));
    let agent = agent.filter(|_| is_used);
    let source = agent.as_ref().or(further.as_ref()).map(|(name, _)| name.clone())?;
    let text = agent.map_or_else(|| "ssh".to_owned(), |(_, text)| text);
    let path = env("PATH").unwrap_or_default();
    let program = |command: &str| command.split_whitespace().next().unwrap_or_default().to_owned();
    let is_found = |command: &&str| {
        let found = program::found_in_path(Path::new(&program(command)), &path);
        found.is_some_and(|file| file.is_file())
    };
    let all = || text.split(':').map(str::trim).filter(|command| !command.is_empty());
    let mut command = all().find(is_found).or_else(|| all().next())?.to_owned();
    let program = program(&command);
    if Path::new(&program).file_name().is_some_and(|name| name == "ssh") {
        command.insert_str(program.len(), " -x -o BatchMode=yes -o ControlMaster=no");
    }
    if let Some((_, further)) = further {
        command = format!("{command} {}", further.trim());
    }
    Some(NamedAgent { command, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(starter: Starter, arguments: &str, variables: &[(&str, &str)]) -> Option<String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let env = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            let path = (name == "PATH").then_some("/bin");
            found.map(|(_, value)| *value).or(path).map(str::to_owned)
        };
        named(starter, &arguments, &env).map(|agent| format!("{}: {}", agent.source, agent.command))
    }

    #[test]
    fn the_agent_of_the_launcher_is_taken() {
        use Starter::{Mpich, Openmpi, Slurm};
        let of_4 = ("OMPI_MCA_plm_rsh_agent", "/opt/kubexec.sh");
        let of_5 = ("PRTE_MCA_plm_ssh_agent", "qrsh -inherit");
        for (starter, arguments, variables, want) in [
            (Openmpi, "", &[of_4][..], Some("OMPI_MCA_plm_rsh_agent: /opt/kubexec.sh")),
            (Openmpi, "", &[of_4, of_5], Some("PRTE_MCA_plm_ssh_agent: qrsh -inherit")),
            (Openmpi, "--mca plm_rsh_agent oarsh", &[of_4], Some("plm_rsh_agent: oarsh")),
            // The default of Open MPI, with another first program.
            (
                Openmpi,
                "",
                &[("OMPI_MCA_plm_rsh_agent", "/no/ssh : sh -x : rsh")],
                Some("OMPI_MCA_plm_rsh_agent: sh -x"),
            ),
            (Openmpi, "", &[("OMPI_MCA_plm_rsh_agent", " ")], None),
            (Openmpi, "", &[("HYDRA_LAUNCHER_EXEC", "pjrsh")], None),
            (Mpich, "", &[("HYDRA_LAUNCHER_EXEC", "pjrsh")], Some("HYDRA_LAUNCHER_EXEC: pjrsh")),
            (Mpich, "-launcher-exec oarsh", &[], Some("-launcher-exec: oarsh")),
            (Mpich, "", &[("HYDRA_LAUNCHER_EXEC", "srun"), ("HYDRA_LAUNCHER", "slurm")], None),
            (Slurm, "", &[of_4, of_5], None),
            (
                Openmpi,
                "",
                &[("OMPI_MCA_plm_rsh_agent", "/usr/bin/ssh -q"), ("PRTE_MCA_plm_ssh_args", "-p 2")],
                Some(
                    "OMPI_MCA_plm_rsh_agent: /usr/bin/ssh -x -o BatchMode=yes -o ControlMaster=no \
                     -q -p 2",
                ),
            ),
            (
                Openmpi,
                "--mca plm_rsh_args -p2222",
                &[],
                Some("plm_rsh_args: ssh -x -o BatchMode=yes -o ControlMaster=no -p2222"),
            ),
        ] {
            let found = agent(starter, arguments, variables);
            assert_eq!(found.as_deref(), want, "{starter:?} {arguments} {variables:?}");
        }
    }
}
