//! The machine: its memory, its limits, what on it may remove segments, and which processes run.

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::{Pod, Zeroable};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use super::{Result, SegmentName, StoreError};
use skt_comm::pages::{PAGE_BYTES, system_page_bytes};

/// Memory that is left free for everything else when segments are reserved.
const MARGIN_BYTES: u64 = 64 << 20;
/// Inode of the first IPC namespace (PROC_IPC_INIT_INO of the kernel).
const FIRST_IPC_NAMESPACE: u64 = 0xefff_ffff;
/// Users up to this id belong to the system; systemd does not remove their segments.
const SYSTEM_USER_MAX: u32 = 999;

/// The effective id of this user.
pub(super) fn user_id() -> u32 {
    // SAFETY: cannot fail, touches no memory.
    unsafe { libc::geteuid() }
}

/// Seconds since 1970, by the system's clock.
pub fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The process runs.
    Alive,
    /// The process has ended, or the machine was rebooted since.
    Dead,
    /// The process belongs to another PID namespace (a container) and cannot be seen.
    Unknown,
}

/// A process, distinguishable from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ProcessId {
    pid: u64,
    /// When the process started, in clock ticks after boot.
    start_ticks: u64,
    /// The inode of its PID namespace.
    pid_namespace: u64,
    /// The boot id, padded with zeros.
    boot_id: [u8; 64],
}

impl ProcessId {
    /// The calling process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self {
            pid: pid.into(),
            start_ticks: running_since(pid).unwrap_or(0),
            pid_namespace: namespace("pid"),
            boot_id: padded_boot_id(),
        }
    }

    /// The text that [`ProcessId::parse`] reads.
    pub fn text(&self) -> String {
        let end = self.boot_id.iter().position(|&b| b == 0).unwrap_or(self.boot_id.len());
        let boot_id = String::from_utf8_lossy(&self.boot_id[..end]);
        format!("{}.{}.{}.{boot_id}", self.pid, self.start_ticks, self.pid_namespace)
    }

    /// Reads the text of [`ProcessId::text`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(4, '.');
        let mut number = || fields.next()?.parse().ok();
        let (pid, start_ticks, pid_namespace) = (number()?, number()?, number()?);
        let mut boot_id = [0; 64];
        let text = fields.next()?.as_bytes();
        boot_id.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { pid, start_ticks, pid_namespace, boot_id })
    }

    /// Whether it was a process of this boot; false if the system has no boot id.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id[0] != 0 && self.boot_id == padded_boot_id()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Whether it still runs.
    pub fn liveness(&self) -> Liveness {
        if self.boot_id != padded_boot_id() {
            Liveness::Dead
        } else if self.pid_namespace != namespace("pid") {
            Liveness::Unknown
        } else if running_since(self.pid()) == Some(self.start_ticks) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }
}

/// Whether the process `pid` that did something at that time still runs. A process that clearly
/// started later is another one with the same number.
pub(super) fn liveness_at(pid: u32, unix_seconds: u64) -> Liveness {
    /// The largest difference of the clocks of the two times.
    const DOUBT_SECONDS: u64 = 5;
    let Some(ticks) = running_since(pid) else { return Liveness::Dead };
    match unix_start(ticks) {
        Some(start) if start > unix_seconds + DOUBT_SECONDS => Liveness::Dead,
        _ => Liveness::Alive,
    }
}

/// Seconds from 1970 to `ticks` clock ticks after boot.
fn unix_start(ticks: u64) -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    // SAFETY: cannot fail, touches no memory.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(boot.trim().parse::<u64>().ok()? + ticks / u64::try_from(ticks_a_second).ok()?)
}

/// The start of a process, in clock ticks after boot; `None` if it does not exist, or if all of its
/// threads have ended.
pub fn running_since(pid: u32) -> Option<u64> {
    stat(pid)?(22)
}

/// Reads the numbers in a process's stat by their position in proc(5), from 4 on, that is, after
/// its name (which may contain anything) and its state. `None` if there is no such process, or if
/// all of its threads have ended, which releases its memory and its locks. A process is a zombie
/// (state Z) as soon as its first thread has ended.
pub fn stat(pid: u32) -> Option<impl Fn(usize) -> Option<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> =
        stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
    let is_zombie = matches!(fields.first()?.as_str(), "Z" | "X");
    let field = move |place: usize| fields.get(place - 3)?.parse().ok();
    (!is_zombie || field(20)? > 1).then_some(field)
}

/// Whether a process that holds something is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The process runs, and has not been killed.
    Alive,
    /// The process was killed or has ended: what it still holds is released without further action.
    Ending,
    /// The process cannot be seen from here.
    Unknown,
}

/// A description of this process, for [`presence`].
pub fn this_process() -> String {
    ProcessId::this().text()
}

/// The presence of the process that [`this_process`] has described.
pub fn presence(process: &str) -> Presence {
    let Some(process) = ProcessId::parse(process) else { return Presence::Unknown };
    match process.liveness() {
        Liveness::Unknown => Presence::Unknown,
        Liveness::Alive if is_at_work(process.pid()) => Presence::Alive,
        Liveness::Alive | Liveness::Dead => Presence::Ending,
    }
}

/// Whether process `pid` is ending: the system is releasing its memory, or is about to. Its first
/// thread may have ended already. False for a process that has ended, or cannot be seen.
pub fn is_ending(pid: u32) -> bool {
    stat(pid).is_some_and(|field| is_exiting(&field) || is_killed(pid))
}

/// Whether process `pid` runs and is not ending.
pub fn is_at_work(pid: u32) -> bool {
    // The stat is read last: a process that ends after the first look has none any more.
    !is_killed(pid) && stat(pid).is_some_and(|field| !is_exiting(&field))
}

/// Whether the process with this [`stat`] has begun to end.
fn is_exiting(field: &impl Fn(usize) -> Option<u64>) -> bool {
    /// PF_EXITING of the kernel, a bit in field 9 of a process's stat.
    const EXITING: u64 = 0x4;
    field(9).is_some_and(|flags| flags & EXITING != 0)
}

/// Whether a SIGKILL is pending for a process.
fn is_killed(pid: u32) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    { pending }.any(|mask| mask & KILL != 0)
}

/// The number of processes of this user that are ending on this machine: their memory will soon be
/// free.
pub fn ending_processes() -> usize {
    let is_own = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.uid() == user_id());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        is_own(&entry).then_some(pid)
    });
    pids.filter(|pid| is_ending(*pid)).count()
}

/// The id of the running kernel's boot, which no other boot of any machine has; empty if the system
/// has none.
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// The boot id, padded with zeros.
fn padded_boot_id() -> [u8; 64] {
    let mut id = [0; 64];
    for (to, from) in id.iter_mut().zip(boot_id().bytes()) {
        *to = from;
    }
    id
}

/// Identifies the running kernel until the next boot: the boot id or, if the system has none, the
/// name of the host.
pub(super) fn kernel() -> String {
    match boot_id().as_str() {
        "" => nix::unistd::gethostname()
            .map_or_else(|_| "unknown".into(), |name| name.to_string_lossy().into_owned()),
        id => id.to_owned(),
    }
}

/// The inode of this thread's namespace of that kind; 0 if it cannot be read.
pub(super) fn namespace(kind: &str) -> u64 {
    let link = fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap_or_default();
    inode_in(&link).unwrap_or(0)
}

/// The number 17 in `ipc:[17]`.
fn inode_in(link: &Path) -> Option<u64> {
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// A property of this machine that may cost a run its segments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// systemd removes the user's segments when the last session ends.
    #[error(
        "systemd-logind removes System V and POSIX segments of user {user} when the last session \
         of that user ends (RemoveIPC=yes in {source_file}): set RemoveIPC=no in \
         /etc/systemd/logind.conf, or `loginctl enable-linger {user}`"
    )]
    RemoveIpc {
        /// Id of the user.
        user: u32,
        /// The source of the setting.
        source_file: String,
    },
    /// The process has its own IPC namespace.
    #[error(
        "this process runs in an IPC namespace of its own (a container?): System V segments are \
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
    SmallFolder {
        /// The folder.
        folder: PathBuf,
        /// Bytes free.
        free_bytes: u64,
        /// Bytes that this host's ranks need together.
        wanted_bytes: u64,
    },
    /// The folder cannot be used.
    #[error("{}: {reason}", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// A limit of System V shared memory is too low.
    #[error("{limit} = {value}, {enough} is needed: sysctl -w {limit}={enough}")]
    LowLimit {
        /// The setting.
        limit: &'static str,
        /// The setting's value.
        value: u64,
        /// A sufficient value.
        enough: u64,
    },
    /// There is not enough memory.
    #[error(
        "{available_bytes} of {wanted_bytes} bytes of memory are available ({limit}): take a \
         smaller N or more nodes"
    )]
    LowMemory {
        /// Bytes that are available.
        available_bytes: u64,
        /// Bytes that this host's ranks need together.
        wanted_bytes: u64,
        /// The source of the bound.
        limit: String,
    },
}

impl Trap {
    /// Whether no segment outlives its processes, so that a run could never be resumed.
    pub fn voids_store(&self) -> bool {
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
    pub fn pages_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.page_bytes.get()).saturating_add(2)
    }

    /// The limits that are too low for `segments` more segments of `pages` together, the largest
    /// with `largest_bytes` of data.
    pub fn too_low(&self, segments: u64, pages: u64, largest_bytes: u64) -> Vec<Trap> {
        let largest = largest_bytes.saturating_add(2 * PAGE_BYTES as u64);
        let limits = [
            ("kernel.shmmax", self.shmmax_bytes, largest),
            ("kernel.shmall", self.shmall_pages, self.used_pages.saturating_add(pages)),
            ("kernel.shmmni", self.shmmni, self.segments.saturating_add(segments)),
        ];
        let low = limits.into_iter().filter(|(_, value, enough)| enough > value);
        low.map(|(limit, value, enough)| Trap::LowLimit { limit, value, enough }).collect()
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
        let machine = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map(|kib| (kib * 1024, "MemAvailable of /proc/meminfo".to_owned()));
        let groups = self.cgroup_memory();
        machine.into_iter().chain(groups).min().unwrap_or((u64::MAX, "no limit known".to_owned()))
    }

    /// The available memory under the limit of each control group around this process.
    fn cgroup_memory(&self) -> Vec<(u64, String)> {
        let mut bounds = Vec::new();
        for line in self.read("proc/self/cgroup").unwrap_or_default().lines() {
            // HIERARCHY:CONTROLLERS:PATH; no controllers means version 2.
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let (mount, limit, usage, cache) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "),
                list if list.split(',').any(|c| c == "memory") => (
                    "sys/fs/cgroup/memory",
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file ",
                ),
                _ => continue,
            };
            for folder in Path::new(path.trim_start_matches('/')).ancestors() {
                let at = |file: &str| format!("{}/{file}", Path::new(mount).join(folder).display());
                let Some(limit_bytes) = self.read_number(&at(limit)) else { continue };
                let stat = self.read(&at("memory.stat")).unwrap_or_default();
                let reclaimable = stat
                    .lines()
                    .find_map(|line| line.strip_prefix(cache)?.trim().parse().ok())
                    .unwrap_or(0);
                let used = self.read_number(&at(usage)).unwrap_or(0).saturating_sub(reclaimable);
                bounds.push((limit_bytes.saturating_sub(used), format!("/{}", at(limit))));
            }
        }
        bounds
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
    pub fn sysv_limits(&self) -> SysvLimits {
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
    pub fn common_traps(&self, wanted_bytes: u64) -> Vec<Trap> {
        let (available_bytes, limit) = self.available_memory();
        let memory = (wanted_bytes.saturating_add(MARGIN_BYTES) > available_bytes)
            .then_some(Trap::LowMemory { available_bytes, wanted_bytes, limit });
        memory.into_iter().chain(self.remove_ipc()).collect()
    }

    /// What threatens System V segments.
    pub fn sysv_traps(&self, wanted_bytes: u64, largest_bytes: u64) -> Vec<Trap> {
        let limits = self.sysv_limits();
        let low = limits.too_low(0, wanted_bytes.div_ceil(limits.page_bytes.get()), largest_bytes);
        let is_forced = self.read_number("proc/sys/kernel/shm_rmid_forced") == Some(1);
        let forced = is_forced.then_some(Trap::ForcedRemoval);
        low.into_iter().chain(self.own_ipc_namespace()).chain(forced).collect()
    }

    /// What threatens segments that are files in `folder`.
    pub fn folder_traps(&self, folder: &Path, wanted_bytes: u64) -> Vec<Trap> {
        let stat = match statfs(folder) {
            Ok(stat) => stat,
            Err(error) => {
                let reason = error.desc().to_owned();
                return vec![Trap::NoFolder { folder: folder.to_owned(), reason }];
            }
        };
        let free_bytes = stat.blocks_available() as u64 * stat.block_size() as u64;
        let folder = folder.to_owned();
        let mut traps = Vec::new();
        if stat.filesystem_type() == TMPFS_MAGIC && self.own_mount_namespace() {
            traps.push(Trap::PrivateFolder(folder.clone()));
        }
        // A file system without blocks has no bound: hugetlbfs mounted without a size.
        if stat.blocks() > 0 && free_bytes < wanted_bytes {
            traps.push(Trap::SmallFolder { folder, free_bytes, wanted_bytes });
        }
        traps
    }

    fn own_ipc_namespace(&self) -> Option<Trap> {
        let link = fs::read_link(self.root.join("proc/self/ns/ipc")).ok()?;
        (inode_in(&link)? != FIRST_IPC_NAMESPACE).then_some(Trap::OwnIpcNamespace)
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
    fn remove_ipc(&self) -> Option<Trap> {
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
        is_on.then_some(Trap::RemoveIpc { user: self.user, source_file })
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
