//! System V segments that no run can use: those whose creator died before writing the first page,
//! damaged ones, and planted ones.
//!
//! The kernel keeps no name, and of the mode only the nine permission bits. Two marks that it does
//! keep identify segments of this program. One is the mode, which is [`MARK`] until the first page
//! is written, then [`MODE`]: the right to execute has no meaning for a segment, which cannot be
//! attached without the right to read. The other is where the size ends within its last page: a
//! checksum of the key and the number of pages determines it.
//!
//! A segment without a name has both marks, belongs to this user, and has no page but the first:
//! even a segment of another program that looked like this by accident, its creator dead and no
//! process attached, would contain nothing.
//!
//! A damaged segment of this user still shows something that no other program's has: a part of its
//! first page or, if that cannot be read, the size. The size alone, with an empty first page, is
//! doubtful: one in 4096 segments of other programs has it, too.

use super::super::header::PAGE_BYTES;
use super::super::stub::{Flaw, Stub, StubLocation};
use super::super::{Result, StoreError};
use super::{SHM_DEST, inspect, location, read_header, within_reach};
use crate::codec::checksum;
use skt_comm::pages::{HUGE_PAGE_BYTES, pool_page_bytes, system_page_bytes};
use skt_host::process::{self, Liveness};

/// Mode of a segment before its first page is written.
pub(crate) const MARK: u32 = 0o611;
/// Mode of a segment once its first page is written.
pub(crate) const MODE: u32 = 0o600;
const TABLE: &str = "/proc/sysvipc/shm";

/// The most bytes that a segment for `bytes` takes, whatever its key.
pub(crate) fn max_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
}

/// The bytes to ask for at `key` for a segment of at least `bytes`.
pub(crate) fn marked_bytes(key: i32, bytes: usize) -> usize {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let marked = |pages| (pages - 1) * PAGE_BYTES + tail_bytes(key, pages);
    if marked(pages) >= bytes { marked(pages) } else { marked(pages + 1) }
}

/// Bytes of the last page of a segment of this program, 1 to [`PAGE_BYTES`].
fn tail_bytes(key: i32, pages: usize) -> usize {
    let sum = checksum(format!("skt-hpl stub {key} {pages}").as_bytes());
    1 + (sum % PAGE_BYTES as u64) as usize
}

/// A line of the kernel's table of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub key: i32,
    pub shmid: i32,
    mode: u32,
    bytes: usize,
    creator_pid: u32,
    attached: u64,
    user: u32,
    creator_user: u32,
    changed_unix_seconds: u64,
    /// Bytes in memory or swapped out.
    present_bytes: u64,
}

/// The table of all segments of the machine.
pub(crate) fn table() -> Result<Vec<Row>> {
    let table = std::fs::read_to_string(TABLE)
        .map_err(|error| StoreError::system(format!("reading {TABLE}"), error))?;
    let rows = table.lines().skip(1).map(|line| row(line).ok_or_else(|| unknown(line)));
    rows.collect()
}

/// The error for a line that cannot be read: it is not skipped, since a process may hold its
/// segment.
fn unknown(line: &str) -> StoreError {
    let why = std::io::Error::other(format!("`{line}` is no line that this program knows"));
    StoreError::system(format!("reading {TABLE} (use the store `posix`)"), why)
}

fn row(line: &str) -> Option<Row> {
    // key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Row {
        key: fields.first()?.parse().ok()?,
        shmid: fields.get(1)?.parse().ok()?,
        mode: u32::from_str_radix(fields.get(2)?, 8).ok()?,
        bytes: usize::try_from(number(3)?).ok()?,
        creator_pid: u32::try_from(number(4)?).ok()?,
        attached: number(6)?,
        user: u32::try_from(number(7)?).ok()?,
        creator_user: u32::try_from(number(9)?).ok()?,
        changed_unix_seconds: number(13)?,
        present_bytes: number(14)? + number(15)?,
    })
}

impl Row {
    /// Whether `user` has made and owns it, and it has not been removed.
    pub(crate) fn is_own(&self, user: u32) -> bool {
        (self.user, self.creator_user) == (user, user) && self.mode & SHM_DEST == 0
    }

    /// Whether it is a segment of `user` according to the table: its first page must be checked as
    /// well.
    pub(crate) fn is_segment_of(&self, user: u32) -> bool {
        self.is_own(user) && self.mode & 0o777 == MODE && self.bytes >= PAGE_BYTES
    }

    /// Whether its size ends as those of this program's segments do.
    fn has_our_size(&self) -> bool {
        let pages = self.bytes.div_ceil(PAGE_BYTES);
        self.key != libc::IPC_PRIVATE
            && self.bytes >= PAGE_BYTES
            && self.bytes == (pages - 1) * PAGE_BYTES + tail_bytes(self.key, pages)
    }

    /// Whether it has the marks of a segment of `user` without a name, according to the table: its
    /// first page must be checked as well.
    fn is_marked(&self, user: u32) -> bool {
        // One page: an ordinary one, a transparent huge page, or one of the pool.
        let huge = [HUGE_PAGE_BYTES, pool_page_bytes()].map(|bytes| bytes as u64);
        let holds_a_page =
            self.present_bytes <= system_page_bytes() as u64 || huge.contains(&self.present_bytes);
        self.is_own(user) && self.mode == MARK && self.has_our_size() && holds_a_page
    }

    /// Describes the segment and its user.
    pub(crate) fn holder(&self) -> String {
        let Self { key, shmid, user, creator_user, .. } = *self;
        let maker = if creator_user == user { "" } else { ", made by another" };
        format!("segment {shmid} (key {key:#010x}) of user {user}{maker}")
    }

    /// Why it is no segment, if it is found where one would be.
    fn flaw(&self) -> Option<Flaw> {
        let (user, mode) = (process::user_id(), self.mode & 0o777);
        let is_removed = self.mode & SHM_DEST != 0;
        if is_removed || self.user != user || self.key == libc::IPC_PRIVATE {
            return None;
        }
        // A segment whose first page is whole is a segment, even if it is incomplete; one that
        // cannot be inspected now may be anything.
        if self.bytes < PAGE_BYTES || !matches!(inspect(self.shmid), Ok(None)) {
            return None;
        }
        let header = within_reach(read_header(self.shmid)).ok()?;
        let is_recognizable = header.as_ref().is_some_and(|header| header.is_recognizable());
        if self.creator_user != user {
            let why = format!("made by user {} and given to this one", self.creator_user);
            return is_recognizable.then_some(Flaw::Planted(why));
        }
        if self.is_marked(user) {
            return Some(Flaw::Unnamed);
        }
        let is_unreadable = header.is_none() && mode & 0o400 == 0 && self.has_our_size();
        if mode != MODE && (is_recognizable || is_unreadable) {
            return Some(Flaw::Damaged(format!("its mode is {mode:03o}, not 600")));
        }
        if is_recognizable {
            return Some(Flaw::Damaged("its first page is damaged".into()));
        }
        let why = "its first page is gone, only its size looks like ours";
        (header.is_some() && mode == MODE && self.has_our_size())
            .then(|| Flaw::Doubtful(why.into()))
    }

    pub(crate) fn stub(&self) -> Option<Stub> {
        Some(Stub {
            flaw: self.flaw()?,
            location: location(self.shmid, self.key),
            bytes: self.bytes as u64,
            in_use: self.attached > 0,
            creator_pid: self.creator_pid,
            creator: match self.creator_pid {
                // A process of another PID namespace.
                0 => Liveness::Unknown,
                pid => process::liveness_at(pid, self.changed_unix_seconds),
            },
            created_unix_seconds: self.changed_unix_seconds,
            place: StubLocation::SysV(self.shmid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: i32, mode: &str, bytes: usize, present: usize) -> String {
        format!("{key} 32768 {mode} {bytes} 71 71 0 1000 100 1000 100 0 0 1700000000 {present} 0")
    }

    #[test]
    fn stub_is_distinguished_from_similar_segments() {
        let bytes = marked_bytes(-77, 1 << 20);
        let marked = |line: &str, user| row(line).unwrap().is_marked(user);
        assert!(marked(&line(-77, "611", bytes, 0), 1000));
        assert!(marked(&line(-77, "611", bytes, 4096), 1000), "its first page, torn");
        for (what, line) in [
            ("another mode", line(-77, "600", bytes, 0)),
            ("removed", line(-77, "1611", bytes, 0)),
            ("locked into memory, which we never do", line(-77, "2611", bytes, 0)),
            ("another size", line(-77, "611", bytes + 1, 0)),
            ("another size", line(-77, "611", bytes - 1, 0)),
            ("another key", line(-78, "611", bytes, 0)),
            ("no key", line(0, "611", marked_bytes(0, 1 << 20), 0)),
            ("data", line(-77, "611", bytes, 8192)),
        ] {
            assert!(!marked(&line, 1000), "{what}: {line}");
        }
        assert!(!marked(&line(-77, "611", bytes, 0), 1001), "another user's");
        let passed_on = line(-77, "611", bytes, 0).replace("1000 100 1000", "1000 100 1001");
        assert!(!marked(&passed_on, 1000), "made by another user");
        assert_eq!(row("1 2 611"), None);
    }

    #[test]
    fn a_mark_costs_a_page_at_most() {
        for key in [-5, 1, i32::MAX] {
            for bytes in (4104..60_000).step_by(8).chain([1 << 30, (1 << 30) + 8]) {
                let marked = marked_bytes(key, bytes);
                let pages = marked.div_ceil(PAGE_BYTES);
                assert!(marked >= bytes && pages * PAGE_BYTES <= max_bytes(bytes), "{bytes}");
                assert_eq!(marked, (pages - 1) * PAGE_BYTES + tail_bytes(key, pages));
            }
        }
    }

    #[test]
    fn sizes_of_other_programs_rarely_have_the_mark() {
        let keys = 1..=20_000;
        let hits = keys.filter(|&key| tail_bytes(key, 256) == PAGE_BYTES).count();
        assert!(hits < 20, "whole pages: {hits} of 20000 keys");
    }
}
