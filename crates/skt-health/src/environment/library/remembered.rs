//! What this host has found out before, in the user's cache folder: the checksums of files, and the
//! libraries that have passed their check.
//!
//! A file holds one value, after its whole key. Nothing depends on the folder: what is not
//! remembered is found out again.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use skt_host::process::user_id;
use skt_host::{host, outfile, waits};
use skt_store::codec::checksum;

const MAX_BYTES: u64 = 1 << 16;
/// Between two looks for what another process finds out.
const PAUSE: Duration = Duration::from_millis(5);

/// The value for `key`, if this host has found it out before.
pub(super) fn value(key: &str) -> Option<String> {
    value_in(&folder()?, key)
}

/// Keeps the value for `key`, if that is possible.
pub(super) fn keep(key: &str, value: &str) {
    let _ = folder().map(|folder| keep_in(&folder, key, value));
}

/// The value for `key`, which one process of this host finds out while the others wait; not for
/// longer than their patience.
pub(super) fn once<E>(
    key: &str,
    patience: impl FnOnce() -> Duration,
    find: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    if let Some(value) = value(key) {
        return Ok(value);
    }
    let _first = match claim(key) {
        Err(why) if why.kind() == ErrorKind::AddrInUse => {
            let (start, patience) = (Instant::now(), patience());
            while claim(key).is_err() && start.elapsed() < patience {
                waits::print_due();
                thread::sleep(PAUSE);
            }
            // Without a folder all that have waited find it out at once, not in turn.
            if let Some(value) = value(key) {
                return Ok(value);
            }
            None
        }
        claimed => claimed.ok(),
    };
    let found = find()?;
    keep(key, &found);
    Ok(found)
}

/// Claims `key` for this process among those of the user on this host, until it is dropped or the
/// process ends. The name is in no folder.
fn claim(key: &str) -> io::Result<UnixListener> {
    let name = format!("skt-hpl {} {}", user_id(), name(key));
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn folder() -> Option<PathBuf> {
    let of = |variable: &str| env::var_os(variable).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(of("HOME")?.join(".cache")))?;
    // A home may be that of several hosts.
    let host = host::name().filter(|name| !name.contains('/'))?;
    Some(cache.join("skt-hpl").join(host))
}

fn name(key: &str) -> String {
    format!("{:016x}", checksum(key.as_bytes()))
}

/// The contents of a file, up to the value.
fn head(key: &str) -> String {
    format!("{key}\n= ")
}

fn value_in(folder: &Path, key: &str) -> Option<String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(folder.join(name(key))).ok()?;
    let state = file.metadata().ok()?;
    if !state.is_file() || state.uid() != user_id() || state.mode() & 0o022 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text.strip_prefix(&head(key))?.strip_suffix('\n')?.to_owned())
}

fn keep_in(folder: &Path, key: &str, value: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    outfile::replace(&folder.join(name(key)), 0o600, false, |out| {
        writeln!(out, "{}{value}", head(key))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::{fs, process};

    use super::*;

    #[test]
    fn a_value_has_its_whole_key_in_a_file_of_this_user() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("new/folder");
        assert_eq!(value_in(&here, "a"), None);
        keep_in(&here, "a", "1").unwrap();
        keep_in(&here, "a", "2").unwrap();
        assert_eq!(value_in(&here, "a").as_deref(), Some("2"));
        assert_eq!(fs::read_dir(&here).unwrap().count(), 1);
        let (a, b) = (here.join(name("a")), here.join(name("b")));
        fs::copy(&a, &b).unwrap();
        assert_eq!(value_in(&here, "b"), None, "another key");
        fs::remove_file(&b).unwrap();
        keep_in(&here, "b", "3").unwrap();
        fs::set_permissions(&b, PermissionsExt::from_mode(0o622)).unwrap();
        assert_eq!(value_in(&here, "b"), None, "others may write to it");
        fs::rename(&a, here.join("elsewhere")).unwrap();
        symlink(here.join("elsewhere"), &a).unwrap();
        assert_eq!(value_in(&here, "a"), None, "a link");
        keep_in(&here, "a", "4").unwrap();
        assert_eq!(value_in(&here, "a").as_deref(), Some("4"));
        // A folder that is none.
        assert!(keep_in(&a, "c", "5").is_err());
        assert_eq!(value_in(&a, "c"), None);
    }

    #[test]
    fn one_process_at_a_time_has_a_claim() {
        let key = format!("a test of {}", process::id());
        let first = claim(&key).unwrap();
        assert_eq!(claim(&key).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(claim(&key).is_ok());
    }
}
