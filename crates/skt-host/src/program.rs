//! Files of programs: the one that starts this program elsewhere, and those that a shell finds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, io, path};

/// The variable with which a package's starter (crates/skt-starter) names itself.
const STARTER: &str = "SKT_HPL_STARTER";

/// The file that ranks and other hosts start. In a package that has a program for each MPI, this is
/// the one that chooses among them: only there is it known which one fits.
pub fn file() -> io::Result<PathBuf> {
    env::var_os(STARTER).map_or_else(env::current_exe, |file| Ok(file.into()))
}

/// The file of a program, as a shell finds it in these `folders` of `$PATH`. It may be missing
/// where `program` names a folder.
pub fn found_in_path(program: &Path, folders: impl AsRef<OsStr>) -> Option<PathBuf> {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return path::absolute(program).ok();
    }
    let files = env::split_paths(&folders).map(|folder| folder.join(program));
    let mut here = files.filter_map(|file| path::absolute(file).ok());
    here.find(|file| file.is_file())
}
