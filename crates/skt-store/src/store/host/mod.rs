//! The machine: its memory, its limits, and what on it may remove segments.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use super::{Result, SegmentName, StoreError};
use skt_comm::pages::{PAGE_BYTES, system_page_bytes};
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum StoreHazard {
    /// systemd removes the user's segments when the last session ends.
    #[error(
        "systemd-logind removes System V and POSIX segments of user {user} when the last session \
         of that user ends (RemoveIPC=yes in {source_file}): set RemoveIPC=no in \
         /etc/systemd/logind.conf, or `loginctl enable-linger {user}`"
    )]
    RemoveIpc { user: u32, source_file: String },
    /// The process has its own IPC namespace.
    #[error(
        "this process runs in its own IPC namespace (a container?): System V segments are \
         gone with the container; run it with the host's (docker --ipc=host), or use file:FOLDER \
         on a volume"
    )]
    OwnIpcNamespace,
    /// The kernel removes a segment together with its last process.
    #[error(
        "kernel.shm_rmid_forced = 1: the kernel removes a System V segment as soon as no process \
         is attached to it, so that no checkpoint outlives its job. sysctl -w \
         kernel.shm_rmid_forced=0, or take another store (--store posix, or file:FOLDER), or run \
         without checkpoints (--ft none)"
    )]
    ForcedRemoval,
    /// The folder is different in each job step.
    #[error(
        "{} is another one than that of the system (private mount namespace, e.g. Slurm's \
         job_container/tmpfs): segments in it are gone with the job step", .0.display()
    )]
    PrivateFolder(PathBuf),
    /// The folder is too small.
    #[error(
        "{} has {free_bytes} of {wanted_bytes} bytes free: mount -o remount,size=... or the store \
         `sysv`", folder.display()
    )]
    SmallFolder { folder: PathBuf, free_bytes: u64, wanted_bytes: u64 },
    /// The folder cannot be used.
    #[error("{}: {reason}", folder.display())]
    NoFolder { folder: PathBuf, reason: String },
    /// A limit of System V shared memory is too low.
    #[error("{limit} = {value}, {enough} is needed: sysctl -w {limit}={enough}")]
    LowLimit { limit: &'static str, value: u64, enough: u64 },
    /// There is not enough memory.
    #[error(
        "{available_bytes} of {wanted_bytes} bytes of memory are available ({limit}): take a \
         smaller N or more nodes"
    )]
    LowMemory { available_bytes: u64, wanted_bytes: u64, limit: String },
}

impl StoreHazard {
    /// Whether no segment outlives its processes, so that a run could never be resumed.
    pub(crate) fn voids_store(&self) -> bool {
        matches!(self, Self::ForcedRemoval)
    }
}

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
    /// Bytes of a page. A report of an earlier program lacks them; that program assumed the
    /// default.
    #[serde(default = "smallest_page")]
    pub page_bytes: NonZeroU64,
    /// Segments that exist.
    pub segments: u64,
}

fn smallest_page() -> NonZeroU64 {
    NonZeroU64::new(PAGE_BYTES as u64).expect("a page has bytes")
}

impl SysvLimits {
    /// The most pages that a segment with `bytes` of data takes, including its first page and the
    /// mark of a new segment.
    pub(crate) fn pages_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.page_bytes.get()).saturating_add(2)
    }

    /// The limits that are too low for `segments` more segments of `pages` together, the largest
    /// with `largest_bytes` of data.
    pub(crate) fn too_low(
        &self,
        segments: u64,
        pages: u64,
        largest_bytes: u64,
    ) -> Vec<StoreHazard> {
        let largest = largest_bytes.saturating_add(2 * PAGE_BYTES as u64);
        let limits = [
            ("kernel.shmmax", self.shmmax_bytes, largest),
            ("kernel.shmall", self.shmall_pages, self.used_pages.saturating_add(pages)),
            ("kernel.shmmni", self.shmmni, self.segments.saturating_add(segments)),
        ];
        let low = limits.into_iter().filter(|(_, value, enough)| enough > value);
        low.map(|(limit, value, enough)| StoreHazard::LowLimit { limit, value, enough }).collect()
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

    /// What threatens the segments of any store on this machine.
    pub(crate) fn common_hazards(&self, wanted_bytes: u64) -> Vec<StoreHazard> {
        let (available_bytes, limit) = self.available_memory();
        let memory = (wanted_bytes.saturating_add(MARGIN_BYTES) > available_bytes)
            .then_some(StoreHazard::LowMemory { available_bytes, wanted_bytes, limit });
        memory.into_iter().chain(self.remove_ipc()).collect()
    }

    /// What threatens System V segments.
    pub(crate) fn sysv_hazards(&self, wanted_bytes: u64, largest_bytes: u64) -> Vec<StoreHazard> {
        let limits = self.sysv_limits();
        let low = limits.too_low(0, wanted_bytes.div_ceil(limits.page_bytes.get()), largest_bytes);
        let is_forced = self.read_number("proc/sys/kernel/shm_rmid_forced") == Some(1);
        let forced = is_forced.then_some(StoreHazard::ForcedRemoval);
        low.into_iter().chain(self.own_ipc_namespace()).chain(forced).collect()
    }

    /// What threatens segments that are files in `folder`.
    pub(crate) fn folder_hazards(&self, folder: &Path, wanted_bytes: u64) -> Vec<StoreHazard> {
        let stat = match statfs(folder) {
            Ok(stat) => stat,
            Err(error) => {
                let reason = error.desc().to_owned();
                return vec![StoreHazard::NoFolder { folder: folder.to_owned(), reason }];
            }
        };
        let free_bytes = stat.blocks_available() as u64 * stat.block_size() as u64;
        let folder = folder.to_owned();
        let mut hazards = Vec::new();
        if stat.filesystem_type() == TMPFS_MAGIC && self.own_mount_namespace() {
            hazards.push(StoreHazard::PrivateFolder(folder.clone()));
        }
        // A file system without blocks has no bound: hugetlbfs mounted without a size.
        if stat.blocks() > 0 && free_bytes < wanted_bytes {
            hazards.push(StoreHazard::SmallFolder { folder, free_bytes, wanted_bytes });
        }
        hazards
    }

    fn own_ipc_namespace(&self) -> Option<StoreHazard> {
        let link = fs::read_link(self.root.join("proc/self/ns/ipc")).ok()?;
        (inode_in(&link)? != FIRST_IPC_NAMESPACE).then_some(StoreHazard::OwnIpcNamespace)
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
        let (source_file, is_on) = self.logind_setting("RemoveIPC");
        is_on.then_some(StoreHazard::RemoveIpc { user: self.user, source_file })
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

    /// A setting of logind.conf that is on by default: the last file that sets it (drop-ins come
    /// after the main file), and its value.
    fn logind_setting(&self, key: &str) -> (String, bool) {
        let roots = ["usr/lib/systemd", "run/systemd", "etc/systemd"];
        let main = roots.iter().rev().map(|r| format!("{r}/logind.conf"));
        let mut files: Vec<String> = main.filter(|f| self.root.join(f).exists()).take(1).collect();
        let mut drop_ins = std::collections::BTreeMap::new();
        for root in roots {
            let folder = format!("{root}/logind.conf.d");
            let Ok(dir) = fs::read_dir(self.root.join(&folder)) else { continue };
            for entry in dir.flatten() {
                if let Some(name) = entry.file_name().to_str().filter(|n| n.ends_with(".conf")) {
                    // A file of the same name in a later folder replaces it.
                    drop_ins.insert(name.to_owned(), format!("{folder}/{name}"));
                }
            }
        }
        files.extend(drop_ins.into_values());
        let mut setting = ("systemd's default".to_owned(), true);
        for file in files {
            for line in self.read(&file).unwrap_or_default().lines() {
                let Some((name, value)) = line.split_once('=') else { continue };
                if name.trim() == key {
                    let is_off = ["no", "false", "off", "0", "n", "f"]
                        .contains(&value.trim().to_ascii_lowercase().as_str());
                    setting = (format!("/{file}"), !is_off);
                }
            }
        }
        setting
    }
}

#[cfg(test)]
mod tests;
