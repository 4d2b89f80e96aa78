//! The files of a library by their contents, and the check that it has passed on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::{Deserialize, Serialize};
use skt_solver::blas::{check, library};
use skt_store::codec::checksum;

use super::{ChosenBlas, remembered};

/// Checksums of the files of a library, by their names; none if it is the built-in one. Equal
/// if the contents are, whatever the names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LibraryFiles(BTreeMap<String, String>);

impl PartialEq for LibraryFiles {
    fn eq(&self, other: &Self) -> bool {
        self.sums() == other.sums()
    }
}

impl Eq for LibraryFiles {}

impl<const N: usize> From<[(&str, &str); N]> for LibraryFiles {
    fn from(files: [(&str, &str); N]) -> Self {
        Self(files.map(|(name, sum)| (name.to_owned(), sum.to_owned())).into())
    }
}

impl LibraryFiles {
    /// The files of the library that this process calls, of those that are `mapped`.
    pub(super) fn called_in(mapped: impl IntoIterator<Item = PathBuf>) -> Result<Self, String> {
        let files = library::files(mapped);
        files.iter().map(|file| contents(file)).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sums(&self) -> Vec<&String> {
        let mut sums: Vec<&String> = self.0.values().collect();
        sums.sort();
        sums
    }

    /// The name of a file that the `other` library does not have.
    pub fn first_not_in(&self, other: &Self) -> Option<&String> {
        let is_new = |(_, sum): &(&String, &String)| !other.0.values().any(|it| it == *sum);
        self.0.iter().find(is_new).map(|(name, _)| name)
    }
}

#[derive(Debug, Clone, Default, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CalledBlas {
    /// The library with its version and kernel, in words.
    pub words: String,
    pub kernel: Option<String>,
    /// The files; none if it is the built-in one, or may not be called.
    pub files: LibraryFiles,
    pub is_built_in: bool,
}

/// Equal if library and kernel are, whatever the names of the files.
impl PartialEq for CalledBlas {
    fn eq(&self, other: &Self) -> bool {
        let words = |blas: &Self| blas.files.is_empty().then(|| blas.words.clone());
        (&self.files, &self.kernel, words(self)) == (&other.files, &other.kernel, words(other))
    }
}

impl CalledBlas {
    /// The BLAS of this process, which has `chosen` it.
    pub fn here(chosen: &ChosenBlas) -> Self {
        if chosen.failure.is_none() {
            library::load_parts();
        }
        let blas = library::loaded();
        let mut files = chosen.files.clone();
        // The program changes with each build, and the library in it has a version.
        if blas.path.is_some() && files.is_empty() {
            files = LibraryFiles::called_in(library::mapped_files()).unwrap_or_default();
        }
        let (words, is_built_in) = (blas.words(), library::is_built_in());
        Self { words, kernel: blas.kernel, files, is_built_in }
    }

    /// The library in words, with the name and the checksum of a file.
    pub fn shown(&self) -> String {
        let file = self.files.0.iter().next();
        file.map_or(self.words.clone(), |(name, sum)| format!("{} ({name}, {sum})", self.words))
    }
}

/// The name of a file and the checksum of its contents, which is computed once for each host.
pub(super) fn contents(file: &Path) -> Result<(String, String), String> {
    let failed = |why: std::io::Error| format!("reading {}: {why}", file.display());
    let state = fs::metadata(file).map_err(failed)?;
    let times = [state.mtime(), state.mtime_nsec(), state.ctime(), state.ctime_nsec()];
    let identity = (state.dev(), state.ino(), state.len(), times);
    let key = format!("checksum of {} {identity:?}", file.display());
    let sum = match remembered::value(&key) {
        Some(sum) => sum,
        None => {
            let sum = format!("{:016x}", checksum(&fs::read(file).map_err(failed)?));
            remembered::keep(&key, &sum);
            sum
        }
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, sum))
}

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
pub(super) fn check_name(files: &LibraryFiles, depths: &[usize]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_under_another_name_is_the_same_library() {
        let here = LibraryFiles::from([("libx.so", "77"), ("libx_core.so", "5")]);
        let copied = LibraryFiles::from([("libz.so", "5"), ("liby.so", "77")]);
        assert_eq!(here, copied);
        let other = LibraryFiles::from([("libx.so", "78"), ("libx_core.so", "5")]);
        assert_ne!(here, other);
        assert_eq!(here.first_not_in(&other).map(String::as_str), Some("libx.so"));
        assert_ne!(here, LibraryFiles::default());
        let called = |words: &str, kernel: &str, files: &LibraryFiles| {
            let (words, kernel) = (words.to_owned(), Some(kernel.to_owned()));
            CalledBlas { words, kernel, files: files.clone(), is_built_in: false }
        };
        assert_eq!(called("libx.so", "Zen", &here), called("libz.so", "Zen", &copied));
        assert_ne!(called("libx.so", "Zen", &here), called("libx.so", "Zen", &other));
        assert_ne!(called("libx.so", "Zen", &here), called("libx.so", "Haswell", &here));
        let none = LibraryFiles::default();
        assert_ne!(called("X 1", "Zen", &none), called("X 2", "Zen", &none));
    }
}
