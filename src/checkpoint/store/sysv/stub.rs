//! System V segments whose creator died before their first page said whose they
//! are.
//!
//! The kernel keeps no name, and of the mode nothing but the nine bits of the
//! permissions. Two marks that it does keep tell ours apart. The mode is [`MARK`]
//! until the first page is written, then 0600: the right to execute means nothing
//! for a segment, which cannot be attached without the right to read. And the
//! size ends, within its last page, where a checksum of key and pages says.
//!
//! A stub bears both marks, belongs to this user, and has no page but the first:
//! even a segment of another program that looked like this by accident, its
//! creator dead and nobody attached, would hold nothing.

use super::super::header::PAGE_BYTES;
use super::super::host::{self, Liveness};
use super::super::stub::{Place, Stub};
use super::super::{Result, StoreError};
use super::{HUGE_PAGE_BYTES, SHM_DEST, location};
use crate::checkpoint::codec::checksum;

/// Mode of a segment that does not say yet whose it is.
pub const MARK: u32 = 0o611;
const TABLE: &str = "/proc/sysvipc/shm";

/// What a segment for so many bytes takes at most, whatever its key.
pub fn most_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
}

/// Bytes that a segment at `key` asks for, at least `bytes`.
pub fn marked_bytes(key: i32, bytes: usize) -> usize {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let marked = |pages| (pages - 1) * PAGE_BYTES + tail_bytes(key, pages);
    if marked(pages) >= bytes { marked(pages) } else { marked(pages + 1) }
}

/// How far a segment of ours reaches into its last page, 1 to [`PAGE_BYTES`].
fn tail_bytes(key: i32, pages: usize) -> usize {
    let sum = checksum(format!("skt-hpl stub {key} {pages}").as_bytes());
    1 + (sum % PAGE_BYTES as u64) as usize
}

/// A line of the kernel's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: i32,
    pub shmid: i32,
    mode: u32,
    bytes: usize,
    creator_pid: u32,
    attached: u64,
    user: u32,
    creator_user: u32,
    changed_unix_seconds: u64,
    /// In memory or swapped out.
    present_bytes: u64,
}

/// All segments of the machine.
pub fn table() -> Result<Vec<Row>> {
    let table = std::fs::read_to_string(TABLE)
        .map_err(|error| StoreError::system(format!("reading {TABLE}"), error))?;
    Ok(table.lines().skip(1).filter_map(row).collect())
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
    /// Whether it bears the marks of a stub of `user`, as far as the table says:
    /// the first page is to be looked at as well.
    pub fn is_marked(&self, user: u32) -> bool {
        let pages = self.bytes.div_ceil(PAGE_BYTES);
        let holds_a_page =
            self.present_bytes <= PAGE_BYTES as u64 || self.present_bytes == HUGE_PAGE_BYTES as u64;
        self.mode & !SHM_DEST == MARK
            && self.mode & SHM_DEST == 0
            && (self.user, self.creator_user) == (user, user)
            && self.key != libc::IPC_PRIVATE
            && self.bytes >= PAGE_BYTES
            && self.bytes == (pages - 1) * PAGE_BYTES + tail_bytes(self.key, pages)
            && holds_a_page
    }

    /// As the stub that it has been found to be.
    pub fn stub(&self) -> Stub {
        Stub {
            location: location(self.shmid, self.key),
            bytes: self.bytes as u64,
            in_use: self.attached > 0,
            creator_pid: self.creator_pid,
            creator: match self.creator_pid {
                // Of another PID namespace.
                0 => Liveness::Unknown,
                pid => host::liveness_at(pid, self.changed_unix_seconds),
            },
            created_unix_seconds: self.changed_unix_seconds,
            place: Place::SysV(self.shmid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: i32, mode: &str, bytes: usize, present: usize) -> String {
        format!("{key} 32768 {mode} {bytes} 71 71 0 1000 100 1000 100 0 0 1700000000 {present} 0")
    }

    #[test]
    fn a_stub_is_told_from_all_that_looks_like_one() {
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
                assert!(marked >= bytes && pages * PAGE_BYTES <= most_bytes(bytes), "{bytes}");
                assert_eq!(marked, (pages - 1) * PAGE_BYTES + tail_bytes(key, pages));
            }
        }
    }

    #[test]
    fn sizes_of_other_programs_seldom_bear_the_mark() {
        let keys = 1..=20_000;
        let hits = keys.filter(|&key| tail_bytes(key, 256) == PAGE_BYTES).count();
        assert!(hits < 20, "whole pages: {hits} of 20000 keys");
    }
}
