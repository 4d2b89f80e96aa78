//! The libraries among which `--blas auto` chooses.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use skt_solver::blas::load::{NAMES, file_names};

use super::BUILT_IN;

/// Variables that name the folder where a vendor's libraries are installed.
const ROOTS: [&str; 5] = ["MKLROOT", "AOCL_ROOT", "ARMPL_DIR", "NVPL_ROOT", "OPENBLAS_ROOT"];
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/intel64"];

/// The values of `--blas` to try here, in the order in which one is taken by default. The loader
/// may not find all of those that are names, and several may be one library.
pub(super) fn here() -> Vec<String> {
    let in_roots = in_roots(|name| env::var_os(name), Path::exists);
    let names = NAMES.into_iter().chain([BUILT_IN]).map(str::to_owned);
    names.chain(in_roots).collect()
}

/// The files in the folders that variables name.
fn in_roots(
    variable: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let roots = ROOTS.iter().filter_map(|name| variable(name)).map(PathBuf::from);
    let folders = roots.flat_map(|root| FOLDERS.map(|folder| root.join(folder)));
    let exists = &exists;
    let first = |folder: &Path, name: &str| {
        file_names(name).map(|file| folder.join(file)).find(|file| exists(file))
    };
    let files = |folder: PathBuf| NAMES.into_iter().filter_map(move |name| first(&folder, name));
    // A path that is no text can be named with --blas.
    folders.flat_map(files).filter_map(|file| file.into_os_string().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_of_each_name_is_found_in_each_folder() {
        let there = ["lib/libblis-mt.so.4", "lib/libblis-mt.so", "lib64/libmkl_rt.so.2", "lib/x"];
        let there = there.map(|file| Path::new("/opt/aocl").join(file));
        let exists = |file: &Path| there.iter().any(|it| it == file);
        let variable = |name: &str| (name == "AOCL_ROOT").then(|| "/opt/aocl".into());
        let want = ["/opt/aocl/lib/libblis-mt.so", "/opt/aocl/lib64/libmkl_rt.so.2"];
        assert_eq!(in_roots(variable, exists), want);
        assert_eq!(in_roots(|_| None, exists), [""; 0]);
    }
}
