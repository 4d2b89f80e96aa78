//! The libraries whose numbers have been checked on this host.

use std::collections::BTreeSet;
use std::{env, fs};

use skt_solver::blas::{check, library};
use skt_store::codec::checksum;

use super::files::LibraryFiles;

/// How the variables begin by which users name kernels and parts of a library, or sizes of blocks.
const PREFIXES: [&str; 9] =
    ["OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "FLEXIBLAS", "AOCL_", "ARMPL_", "NVPL_", "BLAS_"];

/// The lines of `/proc/cpuinfo` by which libraries choose their kernel.
const OF_PROCESSOR: [&str; 14] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "Features",
    "cpu",
    "isa",
];

/// Names the check of the library that this process calls, of these files, by what it depends on:
/// the files, and the kernel that they choose for this processor.
pub(super) fn name(files: &LibraryFiles, depths: &[usize]) -> String {
    let is_named = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut variables: Vec<_> =
        env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_named)).collect();
    variables.sort();
    format!(
        "check {} of a BLAS: files {:?}, kernel {:?}, processor {}, depths {depths:?}, \
         variables {variables:?}",
        check::VERSION,
        files.sums(),
        library::loaded().kernel,
        processor(),
    )
}

/// A checksum of what libraries choose their kernel by.
pub(super) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_of_it = |line: &&str| {
        line.split_once(':').is_some_and(|(name, _)| OF_PROCESSOR.contains(&name.trim()))
    };
    let lines: BTreeSet<&str> = text.lines().filter(is_of_it).collect();
    format!("{:016x}", checksum(lines.into_iter().collect::<Vec<_>>().join("\n").as_bytes()))
}
