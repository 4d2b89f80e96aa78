//! The machine: its host and processors, its memory, and the speed of its BLAS.

pub mod bf16;
pub mod kernel;
pub mod library;
pub mod preflight;
pub mod selftest;

use serde::Serialize;

use skt_host::host::HostInfo;
use skt_host::memory::MemoryInfo;
use skt_host::placement;
use skt_host::units;

use bf16::Bf16SelfTest;
use library::BlasChoice;
pub use selftest::DgemmSelfTest;
pub use skt_solver::blas::library::BlasInfo;

/// A host of the job, with its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostRanks {
    pub host: String,
    /// Ranks of the job on the host.
    pub ranks: usize,
}

/// The hosts and libraries of the job, as rank 0 sees them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Environment {
    /// The host of rank 0.
    pub host: HostInfo,
    /// The memory of the host of rank 0.
    pub memory: MemoryInfo,
    /// The BLAS that rank 0 calls.
    pub blas: BlasInfo,
    /// What `--blas auto` has chosen, if the job was to choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blas_choice: Option<BlasChoice>,
    /// The MPI library's text about its version, if the job runs on MPI.
    pub mpi_library: Option<String>,
    pub hosts: Vec<HostRanks>,
    /// The placement of the threads, in words.
    pub pinning: String,
    /// CPUs of the host of rank 0 that are kept from the solver, one of each helper core.
    pub helper_cpus: Vec<usize>,
    /// The library whose products of bf16 rank 0 calls, with its test, if the job needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16: Option<Bf16SelfTest>,
}

impl Environment {
    /// The lines for the header of the report.
    pub fn notes(&self) -> Vec<String> {
        let ranks: usize = self.hosts.iter().map(|host| host.ranks).sum();
        let mut notes = vec![
            format!(
                "ranks    : {ranks} on {} host(s), rank 0 on {}",
                self.hosts.len(),
                self.host.name
            ),
            format!("processor: {}", self.processor()),
            format!("memory   : {}", self.memory_words()),
            format!("kernel   : {}", self.host.kernel),
            format!("blas     : {}", self.blas_words()),
        ];
        let choice = self.blas_choice.iter().flat_map(BlasChoice::lines);
        notes.extend(choice.map(|line| format!("blas auto: {line}")));
        if let Some(bf16) = &self.bf16 {
            notes.push(format!("bf16     : {}, {}", bf16.name(), bf16.rate()));
        }
        if let Some(mpi) = &self.mpi_library {
            notes.push(format!("mpi      : {}", mpi.lines().next().unwrap_or_default()));
        }
        notes.push(format!("pinning  : {}", self.pinning));
        if !self.helper_cpus.is_empty() {
            notes.push(format!(
                "helpers  : cpu {} on the host of rank 0: kept from the solver, for encoding and \
                 writing images",
                placement::list(self.helper_cpus.iter().copied())
            ));
        }
        notes
    }

    fn processor(&self) -> String {
        let model = self.host.cpu_model.as_deref().unwrap_or(&self.host.architecture);
        let count = |count: Option<usize>, what: &str| {
            count.map_or_else(String::new, |count| format!(", {count} {what}"))
        };
        format!(
            "{model}{}{}{}",
            count(self.host.sockets, "socket(s)"),
            count(self.host.cores, "core(s)"),
            count(self.host.cpus, "cpu(s)")
        )
    }

    fn memory_words(&self) -> String {
        let words = |bytes: Option<u64>| bytes.map_or("unknown".to_string(), units::bytes);
        let limit = self.memory.cgroup.as_ref().map_or_else(String::new, |group| {
            format!(", control group leaves {}", units::bytes(group.left_bytes()))
        });
        format!(
            "{} installed, {} available{limit}",
            words(self.memory.total_bytes),
            words(self.memory.available_bytes)
        )
    }

    fn blas_words(&self) -> String {
        let (words, path) = (self.blas.words(), &self.blas.path);
        let path = path.as_ref().map_or_else(String::new, |path| format!(", {}", path.display()));
        format!("{words}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_host::memory;
    use std::path::PathBuf;

    fn environment() -> Environment {
        Environment {
            host: HostInfo {
                name: "n1".to_string(),
                kernel: "Linux 6.1.0".to_string(),
                architecture: "x86_64".to_string(),
                cpu_model: Some("AMD EPYC".to_string()),
                sockets: Some(1),
                cores: Some(2),
                cpus: Some(4),
                has_avx2: Some(true),
                nominal_gigahertz: Some(2.6),
                memory_bytes: Some(24 << 30),
            },
            memory: MemoryInfo {
                total_bytes: Some(24 << 30),
                available_bytes: Some(20 << 30),
                cgroup: Some(memory::CgroupLimit {
                    path: PathBuf::from("/sys/fs/cgroup/job"),
                    limit_bytes: 16 << 30,
                    used_bytes: 1 << 30,
                }),
            },
            blas: BlasInfo {
                library: "OpenBLAS".to_string(),
                path: Some(PathBuf::from("/lib/libopenblas.so.0")),
                version: Some("OpenBLAS 0.3.21".to_string()),
                kernel: Some("SkylakeX".to_string()),
            },
            blas_choice: None,
            mpi_library: Some("Open MPI v4.1.4\nmore".to_string()),
            hosts: vec![
                HostRanks { host: "n1".to_string(), ranks: 2 },
                HostRanks { host: "n2".to_string(), ranks: 2 },
            ],
            pinning: "pinned, one to a core".to_string(),
            helper_cpus: Vec::new(),
            bf16: None,
        }
    }

    #[test]
    fn notes_of_a_known_machine() {
        assert_eq!(
            environment().notes(),
            [
                "ranks    : 4 on 2 host(s), rank 0 on n1",
                "processor: AMD EPYC, 1 socket(s), 2 core(s), 4 cpu(s)",
                "memory   : 24.0 GiB installed, 20.0 GiB available, control group leaves 15.0 GiB",
                "kernel   : Linux 6.1.0",
                "blas     : OpenBLAS 0.3.21, kernel SkylakeX, /lib/libopenblas.so.0",
                "mpi      : Open MPI v4.1.4",
                "pinning  : pinned, one to a core",
            ]
        );
    }

    #[test]
    fn what_is_unknown_is_left_out_and_a_kernel_is_named_once() {
        let helped = Environment { helper_cpus: vec![3, 7], ..environment() }.notes();
        assert_eq!(helped.len(), environment().notes().len() + 1);
        let last = helped.last().unwrap();
        assert!(last.starts_with("helpers  : cpu 3,7 on the host of rank 0"), "{last}");
        // The version of Debian's OpenBLAS names the kernel, too; that of BLIS no name.
        let debian = "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Zen MAX_THREADS=64";
        for (library, version, kernel, want) in [
            ("BLIS", Some("0.9.0"), Some("SkylakeX"), "BLIS 0.9.0, kernel SkylakeX"),
            (
                "OpenBLAS",
                Some(debian),
                Some("Zen"),
                "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY MAX_THREADS=64, kernel Zen",
            ),
            ("unknown", None, None, "unknown"),
        ] {
            let [version, kernel] = [version, kernel].map(|text| text.map(str::to_owned));
            let blas = BlasInfo { library: library.to_owned(), path: None, version, kernel };
            assert_eq!(Environment { blas, ..environment() }.blas_words(), want);
        }
        let mut unknown = Environment { mpi_library: None, ..environment() };
        unknown.host =
            HostInfo { cpu_model: None, sockets: None, cores: None, cpus: None, ..unknown.host };
        unknown.memory = MemoryInfo { total_bytes: None, available_bytes: None, cgroup: None };
        let notes = unknown.notes();
        assert_eq!((notes[1].as_str(), notes.len()), ("processor: x86_64", 6));
        assert_eq!(notes[2], "memory   : unknown installed, unknown available");
    }
}
