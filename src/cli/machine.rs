use std::collections::BTreeSet;
use std::fs;

use skt_config::ConfigError;
use skt_host::affinity::current_mask;
use skt_host::memory;

/// Number of physical cores that this process may run on, at most what its CPU quota allows. Two
/// hardware threads of a core count as one, because they share its floating-point units.
pub(crate) fn cores() -> Result<usize, ConfigError> {
    Ok(core_names()?.len().min(max_cores()).max(1))
}

/// The physical cores that this process may run on, each by its hardware threads.
pub(crate) fn core_names() -> Result<BTreeSet<String>, ConfigError> {
    let allowed = current_mask().map_err(|why| {
        ConfigError::Other(format!("the CPUs of this process are not known ({why}); give --ranks"))
    })?;
    let siblings = |cpu: &usize| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(file).map_or(cpu.to_string(), |list| list.trim().to_owned())
    };
    Ok(allowed.iter().map(siblings).collect())
}

/// The most cores for which this process has processor time.
pub(crate) fn max_cores() -> usize {
    std::thread::available_parallelism().map_or(usize::MAX, |n| n.get())
}

/// For this process: what the system has available, or what its memory cgroup leaves, if less.
pub(crate) fn available_bytes() -> Result<u64, ConfigError> {
    let memory = memory::this_process();
    let system = memory.available_bytes.ok_or_else(|| {
        let what = "/proc/meminfo does not report how much memory is available; give --memory-gib";
        ConfigError::Other(what.to_owned())
    })?;
    Ok(memory.cgroup.map_or(system, |group| group.left_bytes().min(system)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_core_and_memory() {
        assert!(cores().unwrap() >= 1);
        assert!(available_bytes().unwrap() > 0);
    }
}
