//! Where the library of MPI is, and whether it can be loaded.
//!
//! The library has to belong to the installation that starts the job, so the launcher's own is
//! taken before the system's, but not before one that LD_LIBRARY_PATH names.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use super::mpi::Mpi;

/// The folder of the launcher: of this process's parent, if that is one, else of `mpirun` in PATH.
pub fn launchers_bin() -> Option<PathBuf> {
    let parent = fs::read_link(format!("/proc/{}/exe", std::os::unix::process::parent_id())).ok();
    let of_parent = parent.filter(|file| {
        let name = file.file_name().and_then(OsStr::to_str);
        name.and_then(Mpi::from_launcher).is_some()
    });
    if let Some(file) = of_parent {
        return file.parent().map(Path::to_owned);
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).find(|folder| folder.join("mpirun").is_file())
}

/// A library in the lib folder that belongs to a bin folder.
pub(crate) fn sibling_library(bin: &Path, library: &str) -> Option<PathBuf> {
    let root = bin.parent()?;
    let multiarch = if cfg!(target_arch = "aarch64") {
        "lib/aarch64-linux-gnu"
    } else {
        "lib/x86_64-linux-gnu"
    };
    let folders = ["lib", "lib64", "lib/release", multiarch];
    folders.map(|lib| root.join(lib).join(library)).into_iter().find(|file| file.exists())
}

/// Finds a library of this interface that can be loaded, and returns the LD_LIBRARY_PATH with which
/// a program finds it, if the current one does not suffice.
pub fn find(mpi: Mpi, bin: Option<&Path>, programs: &Path) -> Result<Option<OsString>, String> {
    let library = mpi.library;
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let is_named = env::split_paths(&named).any(|folder| folder.join(library).exists());
    if let Some(file) = bin.filter(|_| !is_named).and_then(|bin| sibling_library(bin, library)) {
        // The user's folders have no MPI library, but their other libraries come first: this folder
        // may be the system's.
        return load(&file).map(|()| file.parent().map(|folder| list(&named, folder.as_os_str())));
    }
    let Err(why) = load(Path::new(library)) else { return Ok(None) };
    // Debian's MPICH has another file name; this file leads to it.
    let bridge = programs.join("debian").join(library);
    match load(&bridge) {
        // The bridge is first: a folder that the user names may have an unloadable library.
        Ok(()) => Ok(bridge.parent().map(|folder| list(folder.as_os_str(), &named))),
        Err(_) => Err(why),
    }
}

/// The folders of one list before those of another.
fn list(first: &OsStr, then: &OsStr) -> OsString {
    let mut list = first.to_owned();
    if !first.is_empty() && !then.is_empty() {
        list.push(":");
    }
    list.push(then);
    list
}

/// Loads a library, as a program that needs it would; it stays.
fn load(file: &Path) -> Result<(), String> {
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|why| why.to_string())?;
    // SAFETY: the name is NUL-terminated; a library's constructors run, as in the program.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: after a failed dlopen, dlerror returns a text of this thread until its next call.
    let why = unsafe { CStr::from_ptr(libc::dlerror()) };
    Err(why.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_found_next_to_its_launcher() {
        let root = env::temp_dir().join(format!("skt-starter-{}", std::process::id()));
        fs::create_dir_all(root.join("lib64")).unwrap();
        assert_eq!(sibling_library(&root.join("bin"), "libmpi.so.12"), None);
        let file = root.join("lib64/libmpi.so.12");
        fs::write(&file, "").unwrap();
        assert_eq!(sibling_library(&root.join("bin"), "libmpi.so.12"), Some(file.clone()));
        let why = load(&file).unwrap_err();
        assert!(why.contains("libmpi.so.12"), "{why}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_empty_list_does_not_mean_the_current_folder() {
        let joined = |first: &str, then: &str| list(OsStr::new(first), OsStr::new(then));
        assert_eq!(joined("/opt/mpi/lib", ""), "/opt/mpi/lib");
        assert_eq!(joined("", "/opt/mpi/lib"), "/opt/mpi/lib");
        assert_eq!(joined("/opt/mpi/lib", "/a:/b"), "/opt/mpi/lib:/a:/b");
    }

    #[test]
    fn load_failure_names_its_reason() {
        assert_eq!(load(Path::new("libc.so.6")), Ok(()));
        let why = load(Path::new("libno-such-library.so.1")).unwrap_err();
        assert!(why.contains("libno-such-library.so.1"), "{why}");
    }
}
