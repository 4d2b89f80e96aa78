//! The host: name, kernel, processors, memory.

use std::collections::BTreeSet;

use serde::Serialize;

use super::memory;
use crate::counters::Root;
use crate::counters::processor::{field, gigahertz_in_name};

/// The description of a host. A field is `None` where the system does not report it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostInfo {
    /// Host name.
    pub name: String,
    /// Kernel name and release, e.g. `Linux 6.1.0-18-amd64`.
    pub kernel: String,
    /// Processor architecture, e.g. `x86_64`.
    pub architecture: String,
    /// Processor model, e.g. `AMD EPYC 9654 96-Core Processor`.
    pub cpu_model: Option<String>,
    /// Sockets.
    pub sockets: Option<usize>,
    /// Physical cores that are online.
    pub cores: Option<usize>,
    /// Logical CPUs that are online (with SMT more than cores).
    pub cpus: Option<usize>,
    /// Whether the processor has AVX2; `None` where the flags are not x86's.
    pub has_avx2: Option<bool>,
    /// Nominal (not boosted) frequency.
    pub nominal_gigahertz: Option<f64>,
    /// Installed memory.
    pub memory_bytes: Option<u64>,
}

/// This host's name, if the system has one.
pub fn name() -> Option<String> {
    nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned())
}

/// Asks the system about this host.
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
    let cpu = parse_cpuinfo(&root.text("proc/cpuinfo").unwrap_or_default());
    let base_khz = root.number("sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    HostInfo {
        name,
        kernel,
        architecture,
        cpu_model: cpu.model,
        sockets: cpu.sockets,
        cores: cpu.cores,
        cpus: cpu.cpus,
        has_avx2: cpu.has_avx2,
        nominal_gigahertz: base_khz.map(|khz| khz as f64 / 1e6).or(cpu.gigahertz),
        memory_bytes: memory::this_process().total_bytes,
    }
}

/// The content of `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq)]
struct Cpu {
    model: Option<String>,
    sockets: Option<usize>,
    cores: Option<usize>,
    cpus: Option<usize>,
    has_avx2: Option<bool>,
    /// The nominal frequency in the model's name (`@ 2.60GHz`), else the current one of the first
    /// CPU.
    gigahertz: Option<f64>,
}

fn parse_cpuinfo(text: &str) -> Cpu {
    let mut sockets = BTreeSet::new();
    let mut cores = BTreeSet::new();
    let mut cpus = 0;
    for block in text.split("\n\n") {
        if field(block, "processor").is_none() {
            continue;
        }
        cpus += 1;
        // Virtual machines and other architectures may have neither.
        if let Some(socket) = field(block, "physical id") {
            sockets.insert(socket);
            if let Some(core) = field(block, "core id") {
                cores.insert((socket, core));
            }
        }
    }
    let model = field(text, "model name").map(str::to_string);
    let megahertz = field(text, "cpu MHz").and_then(|value| value.parse::<f64>().ok());
    let count = |found: usize| (found > 0).then_some(found);
    Cpu {
        gigahertz: model
            .as_deref()
            .and_then(gigahertz_in_name)
            .or(megahertz.map(|value| value / 1e3)),
        model,
        sockets: count(sockets.len()),
        cores: count(cores.len()),
        cpus: count(cpus),
        has_avx2: field(text, "flags").map(|flags| flags.split(' ').any(|flag| flag == "avx2")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_SOCKETS_WITH_SMT: &str = "\
processor\t: 0
model name\t: Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz
cpu MHz\t\t: 1000.000
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse2 avx avx2 avx512f

processor\t: 1
model name\t: Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz
physical id\t: 1
core id\t\t: 0
flags\t\t: fpu sse2 avx avx2 avx512f

processor\t: 2
physical id\t: 0
core id\t\t: 0

processor\t: 3
physical id\t: 1
core id\t\t: 0
";

    #[test]
    fn sockets_cores_and_cpus_are_distinguished() {
        assert_eq!(
            parse_cpuinfo(TWO_SOCKETS_WITH_SMT),
            Cpu {
                model: Some("Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz".to_string()),
                sockets: Some(2),
                cores: Some(2),
                cpus: Some(4),
                has_avx2: Some(true),
                gigahertz: Some(2.6),
            }
        );
    }

    #[test]
    fn unreported_facts_are_none() {
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n\nprocessor\t: 1\n";
        assert_eq!(parse_cpuinfo(arm), Cpu { cpus: Some(2), ..Cpu::default() });
        assert_eq!(parse_cpuinfo(""), Cpu::default());
        let old = "processor : 0\nflags : fpu avx sse2\ncpu MHz : 2596.134\n";
        assert_eq!(parse_cpuinfo(old).has_avx2, Some(false));
        assert_eq!(parse_cpuinfo(old).gigahertz, Some(2.596134));
    }

    #[test]
    fn this_host_has_a_name_and_memory() {
        let host = this_host();
        assert!(!host.name.is_empty());
        assert!(host.kernel.starts_with("Linux "), "{}", host.kernel);
        assert!(host.memory_bytes.unwrap() > 1 << 20);
        assert!(host.cpus.unwrap() >= 1);
    }
}
