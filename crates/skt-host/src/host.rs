//! The host: name, kernel, processors, memory.

use std::collections::BTreeSet;

use serde::Serialize;

use super::memory;
use crate::counters::Root;
use crate::counters::processor::{self, Processor, Vectors};
use crate::counters::topology::{self, Cpu};

/// The description of a host. A field is `None` where the system does not report it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostInfo {
    pub name: String,
    /// Kernel name and release, e.g. `Linux 6.1.0-18-amd64`.
    pub kernel: String,
    /// Processor architecture, e.g. `x86_64`.
    pub architecture: String,
    /// Processor model, e.g. `AMD EPYC 9654 96-Core Processor`.
    pub cpu_model: Option<String>,
    pub sockets: Option<usize>,
    pub cores: Option<usize>,
    /// Logical CPUs that are online (with SMT more than cores).
    pub cpus: Option<usize>,
    /// Whether the processor has AVX2; `None` where the flags are not x86's.
    pub has_avx2: Option<bool>,
    pub nominal_gigahertz: Option<f64>,
    pub memory_bytes: Option<u64>,
}

/// This host's name, if the system has one.
pub fn name() -> Option<String> {
    nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned())
}

pub fn this_host() -> HostInfo {
    let name = name().unwrap_or_else(|| "unknown".to_string());
    let (kernel, architecture) = match nix::sys::utsname::uname() {
        Ok(uname) => (
            format!("{} {}", uname.sysname().display(), uname.release().display()),
            uname.machine().to_string_lossy().into_owned(),
        ),
        Err(_) => ("unknown".to_string(), std::env::consts::ARCH.to_string()),
    };
    let root = Root::this_machine();
    let Processor { name: cpu_model, vectors, named_khz, .. } = processor::read(&root);
    let cpus = topology::online(&root).unwrap_or_default();
    let count = |of: fn(&Cpu) -> usize| {
        Some(cpus.iter().map(of).collect::<BTreeSet<_>>().len()).filter(|count| *count > 0)
    };
    let base_khz = root.number("sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    HostInfo {
        name,
        kernel,
        architecture,
        cpu_model,
        sockets: count(|cpu| cpu.package),
        cores: count(|cpu| cpu.core),
        cpus: count(|cpu| cpu.id),
        has_avx2: vectors.filter(|it| *it <= Vectors::Avx512).map(|it| it >= Vectors::Avx2),
        nominal_gigahertz: base_khz.or(named_khz).map(|khz| khz as f64 / 1e6),
        memory_bytes: memory::this_process().total_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_name_and_memory() {
        let host = this_host();
        assert!(!host.name.is_empty());
        assert!(host.kernel.starts_with("Linux "), "{}", host.kernel);
        assert!(host.memory_bytes.unwrap() > 1 << 20);
        assert!(host.cpus.unwrap() >= 1);
    }
}
