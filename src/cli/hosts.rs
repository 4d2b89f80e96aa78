use std::fmt::Display;
use std::path::Path;

use skt_host::messages;
use skt_host::shown::shown;
use skt_host::starter::Starter;
use skt_launch::agent::{self, NamedAgent};
use skt_launch::hosts::{Host, HostsError, ListedNodes};

pub(super) fn read(path: &Path) -> Result<Vec<Host>, HostsError> {
    ListedNodes::read(path).map(warned)
}

/// Reads a host file that may list no node yet, and prints what in it has no effect.
pub(super) fn read_spares(path: &Path) -> Result<Vec<Host>, HostsError> {
    ListedNodes::read_spares(path).map(warned)
}

fn warned(listed: ListedNodes) -> Vec<Host> {
    warn(&listed.warnings);
    listed.hosts
}

pub(super) fn warn(warnings: &[impl Display]) {
    for warning in warnings {
        messages::print(format_args!("warning: {warning}"));
    }
}

/// That its `arguments` or the environment name; `None` for the launcher's usual one.
pub(super) fn agent_of_launcher(
    starter: Starter,
    arguments: &[String],
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let NamedAgent { command, source } = agent::named(starter, arguments, env)?;
    messages::print(format_args!(
        "nodes are reached by `{}`, which {source} names; --agent names another",
        shown(&command)
    ));
    Some(command)
}

/// Checks that the launcher, with this program if it is not the usual one, takes the names of all
/// hosts. Some would reach a host by its IPv6 address and then fail.
pub(super) fn check_names<'a>(
    mut hosts: impl Iterator<Item = &'a Host>,
    starter: Starter,
    program: Option<&str>,
) -> Result<(), String> {
    let Some(Host { name, .. }) = hosts.find(|host| host.name.contains(':')) else { return Ok(()) };
    starter.lacks_ipv6(program).map_or(Ok(()), |launcher| {
        Err(format!(
            "node {name}: {launcher} takes no IPv6 addresses; give the node a name in DNS or \
             /etc/hosts"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn ipv6_addresses_are_refused_where_the_launcher_takes_none() {
        let folder = tempfile::tempdir().unwrap();
        let mpirun = folder.path().join("mpirun");
        let refused = |starter, version: &str, name: &str| {
            fs::write(&mpirun, format!("#!/bin/sh\necho 'mpirun (Open MPI) {version}'\n")).unwrap();
            fs::set_permissions(&mpirun, fs::Permissions::from_mode(0o755)).unwrap();
            let hosts = ["n1", name].map(|name| Host { name: name.to_owned(), slots: 1 });
            check_names(hosts.iter(), starter, mpirun.to_str()).err()
        };
        let why = refused(Starter::Openmpi, "4.1.4", "fd00::5").unwrap();
        let want = "node fd00::5: Open MPI before version 5 takes no IPv6 addresses; give the node";
        assert!(why.starts_with(want), "{why}");
        assert_eq!(refused(Starter::Openmpi, "5.0.7", "fd00::5"), None);
        assert_eq!(refused(Starter::Openmpi, "4.1.4", "10.0.0.5"), None);
        assert!(refused(Starter::Mpich, "", "fd00::5").unwrap().contains(": MPICH takes no IPv6"));
        assert!(refused(Starter::Slurm, "", "::1").unwrap().contains(": Slurm takes no IPv6"));
    }
}
