//! The machine: its memory, its limits, and what on it may remove segments.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use super::{Result, SegmentName, StoreError};
use skt_comm::pages::system_page_bytes;
use skt_host::clock;
use skt_host::memory::{meminfo_bytes, tightest_under};
use skt_host::process::{inode_in, user_id};

/// Memory that is left free for everything else when segments are reserved.
const MARGIN_BYTES: u64 = 64 << 20;
/// Inode of the first IPC namespace (PROC_IPC_INIT_INO of the kernel).
const FIRST_IPC_NAMESPACE: u64 = 0xefff_ffff;
/// Users up to this id belong to the system; systemd does not remove their segments.
const SYSTEM_USER_MAX: u32 = 999;

/// Seconds since 1970, by the system's clock.
pub fn now_unix_seconds() -> u64 {
    u64::try_from(clock::now_unix_seconds()).unwrap_or(0)
}

/// A property of this machine that may cost a run its segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHazard {
    /// What it is, and what to do.
    pub words: String,
    /// Whether no segment outlives its processes, so that a run could never be resumed.
    pub voids_store: bool,
}

impl StoreHazard {
    fn warning(words: impl Into<String>) -> Self {
        Self { words: words.into(), voids_store: false }
    }
}

const OWN_IPC_NAMESPACE: &str = "this process runs in its own IPC namespace (a container?): System V \
    segments are gone with the container; run it with the host's (docker --ipc=host)";
const FORCED_REMOVAL: &str = "kernel.shm_rmid_forced = 1: the kernel removes a System V segment as \
    soon as no process is attached to it, so that no checkpoint outlives its job: sysctl -w \
    kernel.shm_rmid_forced=0, or another store (--store posix, or file:FOLDER)";

/// Limits of System V shared memory, and how much of them is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvLimits {
    /// Bytes of the largest possible segment.
    pub shmmax_bytes: u64,
    /// The most pages of all segments together.
    pub shmall_pages: u64,
    /// The most segments.
    pub shmmni: u64,
    /// Pages in use.
    pub used_pages: u64,
    /// Bytes of a page.
    pub page_bytes: NonZeroU64,
    /// Segments that exist.
    pub segments: u64,
}

impl SysvLimits {
    /// The most pages that a segment with `bytes` of data takes, including its first page and the
    /// mark of a new segment.
    pub(crate) fn pages_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.page_bytes.get()).saturating_add(2)
    }

    /// The first limit that is too low for `segments` more segments of `pages` together, the
    /// largest of `largest_bytes`: its name, its value, and one that is enough.
    pub(crate) fn too_low(
        &self,
        segments: u64,
        pages: u64,
        largest_bytes: u64,
    ) -> Option<(&'static str, u64, u64)> {
        let limits = [
            ("kernel.shmmax", self.shmmax_bytes, largest_bytes),
            ("kernel.shmall", self.shmall_pages, self.used_pages.saturating_add(pages)),
            ("kernel.shmmni", self.shmmni, self.segments.saturating_add(segments)),
        ];
        limits.into_iter().find(|(_, value, enough)| enough > value)
    }
}

/// A machine, as its /proc, /sys and /etc describe it.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    user: u32,
}

impl Host {
    /// This machine, for this user.
    pub fn this() -> Self {
        Self { root: PathBuf::from("/"), user: user_id() }
    }

    /// A machine whose files are under `root`, for tests.
    pub fn under(root: &Path, user: u32) -> Self {
        Self { root: root.to_owned(), user }
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn read_number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// Bytes of memory that are still available, and the source of that bound; unbounded if nothing
    /// can be read.
    pub fn available_memory(&self) -> (u64, String) {
        let meminfo = self.read("proc/meminfo").unwrap_or_default();
        let machine = meminfo_bytes(&meminfo, "MemAvailable")
            .map(|bytes| (bytes, "MemAvailable of /proc/meminfo".to_owned()));
        let group = tightest_under(&self.root).map(|(limit, file)| {
            let file = file.strip_prefix(&self.root).unwrap_or(&file);
            (limit.left_bytes(), format!("/{}", file.display()))
        });
        machine.into_iter().chain(group).min().unwrap_or((u64::MAX, "no limit known".to_owned()))
    }

    /// Refuses unless the next `next_bytes` can be taken and some memory stays free.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`], with `left_bytes` as the bytes wanted.
    pub(super) fn check_memory(
        &self,
        name: &SegmentName,
        next_bytes: u64,
        left_bytes: u64,
    ) -> Result<()> {
        let (available_bytes, limit) = self.available_memory();
        if next_bytes.saturating_add(MARGIN_BYTES) <= available_bytes {
            return Ok(());
        }
        let name = name.clone();
        Err(StoreError::NoMemory { name, wanted_bytes: left_bytes, available_bytes, limit })
    }

    /// The limits of System V shared memory; unbounded where they cannot be read.
    pub(crate) fn sysv_limits(&self) -> SysvLimits {
        let limit =
            |name: &str| self.read_number(&format!("proc/sys/kernel/{name}")).unwrap_or(u64::MAX);
        let table = self.read("proc/sysvipc/shm").unwrap_or_default();
        // Columns: key shmid perms size ...
        let sizes: Vec<u64> = table
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(3)?.parse().ok())
            .collect();
        let page_bytes = NonZeroU64::new(system_page_bytes() as u64).expect("pages have bytes");
        SysvLimits {
            shmmax_bytes: limit("shmmax"),
            shmall_pages: limit("shmall"),
            shmmni: limit("shmmni"),
            used_pages: sizes.iter().map(|size| size.div_ceil(page_bytes.get())).sum(),
            page_bytes,
            segments: sizes.len() as u64,
        }
    }

    /// What threatens System V segments.
    pub(crate) fn sysv_hazards(&self) -> Vec<StoreHazard> {
        let link = fs::read_link(self.root.join("proc/self/ns/ipc")).unwrap_or_default();
        let is_own = inode_in(&link).is_some_and(|inode| inode != FIRST_IPC_NAMESPACE);
        let is_forced = self.read_number("proc/sys/kernel/shm_rmid_forced") == Some(1);
        let own = is_own.then(|| StoreHazard::warning(OWN_IPC_NAMESPACE));
        let forced = StoreHazard { words: FORCED_REMOVAL.to_owned(), voids_store: true };
        let forced = is_forced.then_some(forced);
        self.remove_ipc().into_iter().chain(own).chain(forced).collect()
    }

    /// What threatens segments that are files in `folder`.
    pub(crate) fn folder_hazards(&self, folder: &Path) -> Vec<StoreHazard> {
        let at = folder.display();
        let hazard = match statfs(folder) {
            Err(error) => Some(format!("{at}: {}", error.desc())),
            Ok(stat) if stat.filesystem_type() == TMPFS_MAGIC && self.own_mount_namespace() => {
                Some(format!(
                    "{at} is another one than that of the system (private mount namespace, e.g. \
                     Slurm's job_container/tmpfs): segments in it are gone with the job step"
                ))
            }
            Ok(_) => None,
        };
        self.remove_ipc().into_iter().chain(hazard.map(StoreHazard::warning)).collect()
    }

    /// Whether init sees other mounts than this process; `false` if that cannot be read (it takes
    /// the rights of root).
    fn own_mount_namespace(&self) -> bool {
        let link =
            |process: &str| fs::read_link(self.root.join("proc").join(process).join("ns/mnt"));
        matches!((link("self"), link("1")), (Ok(own), Ok(first)) if own != first)
    }

    /// systemd's RemoveIPC, which is on unless set otherwise and does not apply to users of the
    /// system.
    fn remove_ipc(&self) -> Option<StoreHazard> {
        let is_systemd = self.root.join("run/systemd/system").is_dir();
        if !is_systemd || self.user <= SYSTEM_USER_MAX {
            return None;
        }
        let lingers = fs::read_dir(self.root.join("var/lib/systemd/linger"))
            .is_ok_and(|dir| dir.flatten().any(|entry| self.is_own_name(&entry.file_name())));
        if lingers {
            return None;
        }
        // The last file that sets it counts.
        let folder = "etc/systemd/logind.conf.d";
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut files: Vec<String> = entries
            .filter_map(|it| Some(format!("{folder}/{}", it.file_name().to_str()?)))
            .collect();
        files.sort();
        files.insert(0, "etc/systemd/logind.conf".to_owned());
        let texts = files.iter().filter_map(|file| self.read(file)).collect::<Vec<_>>().join("\n");
        let mut settings = texts.lines().filter_map(|line| line.split_once('='));
        let last = settings.rfind(|(name, _)| name.trim() == "RemoveIPC");
        let is_off = last.is_some_and(|(_, value)| {
            ["no", "false", "off", "0"].contains(&value.trim().to_ascii_lowercase().as_str())
        });
        let user = self.user;
        let words = format!(
            "systemd-logind removes System V and POSIX segments of user {user} when the last \
             session of that user ends: set RemoveIPC=no in /etc/systemd/logind.conf, or `loginctl \
             enable-linger {user}`"
        );
        (!is_off).then(|| StoreHazard::warning(words))
    }

    fn is_own_name(&self, name: &std::ffi::OsStr) -> bool {
        let passwd = self.read("etc/passwd").unwrap_or_default();
        passwd.lines().any(|line| {
            // NAME:PASSWORD:UID:...
            let fields: Vec<&str> = line.split(':').collect();
            fields.first().copied() == name.to_str()
                && fields.get(2).and_then(|id| id.parse().ok()) == Some(self.user)
        })
    }
}

#[cfg(test)]
mod tests;
