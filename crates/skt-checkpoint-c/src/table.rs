//! The table of regions at the beginning of a rank's protected memory, and where each region lies.
//!
//! ```text
//! table | copies of the program's memory ("yours") ->   ...   <- the library's own ("ours") |
//! ```
//!
//! Regions of the library's own memory are placed from the end downwards, and keep their place from
//! the call that returns them to the end of the run. Copies of the program's memory are written
//! from scratch at each checkpoint, from the table upwards. So neither kind moves the other: in any
//! order of calls, also in a start that has not restored its copies yet, all regions fit whose
//! sizes do.

use std::collections::BTreeMap;

use bytemuck::{Pod, Zeroable};

use crate::code::{Code, Result, Stop};

pub(crate) const MAX_REGIONS: usize = 256;
/// Regions begin on multiples of this, in bytes: a cache line.
const ALIGN: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"skt-tab2");
const TABLE_BYTES: usize =
    (size_of::<Head>() + MAX_REGIONS * size_of::<Entry>()).next_multiple_of(ALIGN);

const OURS: u32 = 1;
const YOURS: u32 = 2;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    magic: u64,
    entries: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Entry {
    /// The number by which the program knows it.
    pub id: i32,
    kind: u32,
    offset: u64,
    pub count: u64,
    pub size: u64,
}

impl Entry {
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let begin = self.offset as usize;
        begin..begin + (self.count * self.size) as usize
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.kind == OURS
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table(BTreeMap<i32, Entry>);

/// With room for the table and for the gaps between regions. `None` if no machine has as much.
pub(crate) fn memory_bytes(bytes: usize) -> Option<usize> {
    let most = 1usize << 46;
    (bytes <= most).then(|| TABLE_BYTES + MAX_REGIONS * ALIGN + bytes.next_multiple_of(ALIGN))
}

impl Table {
    pub(crate) fn get(&self, id: i32) -> Option<&Entry> {
        self.0.get(&id)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    fn end_of_yours(&self) -> usize {
        let ends = self.0.values().filter(|e| !e.is_ours()).map(|entry| entry.range().end);
        ends.max().unwrap_or(TABLE_BYTES).next_multiple_of(ALIGN)
    }

    fn begin_of_ours(&self, memory_bytes: usize) -> usize {
        let begins = self.0.values().filter(|e| e.is_ours()).map(|entry| entry.range().start);
        begins.min().unwrap_or(memory_bytes)
    }

    /// Adds a region of the library's memory before all others of its kind.
    pub(crate) fn add_ours(
        &mut self,
        id: i32,
        count: usize,
        size: usize,
        memory_bytes: usize,
    ) -> Result<Entry> {
        let end = self.begin_of_ours(memory_bytes);
        let begin = count.checked_mul(size).and_then(|bytes| end.checked_sub(bytes));
        // Rounded down to a whole cache line.
        let begin = begin.map_or(0, |begin| begin / ALIGN * ALIGN);
        if begin < self.end_of_yours() {
            return Err(no_room(id, count, size, memory_bytes));
        }
        let entry = entry(id, OURS, begin, count, size);
        self.insert(entry)?;
        Ok(entry)
    }

    /// Copies of these regions (number, items, bytes of an item) replace all that were there.
    pub(crate) fn with_yours(
        &self,
        yours: impl Iterator<Item = (i32, usize, usize)>,
        memory_bytes: usize,
    ) -> Result<Self> {
        let mut table =
            Self(self.0.iter().filter(|(_, e)| e.is_ours()).map(|(&i, &e)| (i, e)).collect());
        let (mut begin, most) = (TABLE_BYTES, table.begin_of_ours(memory_bytes));
        for (id, count, size) in yours {
            let end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(begin));
            let Some(end) = end.filter(|&end| end <= most) else {
                return Err(no_room(id, count, size, memory_bytes));
            };
            table.insert(entry(id, YOURS, begin, count, size))?;
            begin = end.next_multiple_of(ALIGN);
        }
        Ok(table)
    }

    fn insert(&mut self, entry: Entry) -> Result<()> {
        if self.0.len() == MAX_REGIONS {
            return Err(Stop::new(Code::Space, format!("more than {MAX_REGIONS} regions")));
        }
        self.0.insert(entry.id, entry);
        Ok(())
    }

    pub(crate) fn write(&self, memory: &mut [u8]) {
        let head = Head { magic: MAGIC, entries: self.0.len() as u64 };
        let (at_head, rest) = memory.split_at_mut(size_of::<Head>());
        at_head.copy_from_slice(bytemuck::bytes_of(&head));
        for (entry, at) in self.0.values().zip(rest.chunks_exact_mut(size_of::<Entry>())) {
            at.copy_from_slice(bytemuck::bytes_of(entry));
        }
    }

    pub(crate) fn read(memory: &[u8]) -> Result<Self> {
        let bad = |what: &str| Stop::over(Code::Internal, format!("the table of regions {what}"));
        let (head, rest) = memory.split_at(size_of::<Head>());
        let head: Head = bytemuck::pod_read_unaligned(head);
        if head.magic != MAGIC || head.entries > MAX_REGIONS as u64 {
            return Err(bad("is not there, or of another version"));
        }
        let entries = rest.chunks_exact(size_of::<Entry>()).take(head.entries as usize);
        let entries: Vec<Entry> = entries.map(bytemuck::pod_read_unaligned).collect();
        let is_inside = |entry: &&Entry| {
            let bytes = entry.count.checked_mul(entry.size);
            let end = bytes.and_then(|bytes| bytes.checked_add(entry.offset));
            end.is_some_and(|end| end <= memory.len() as u64)
        };
        if entries.iter().all(|entry| is_inside(&entry)) {
            Ok(Self(entries.into_iter().map(|entry| (entry.id, entry)).collect()))
        } else {
            Err(bad("names a place outside of the memory"))
        }
    }
}

fn entry(id: i32, kind: u32, begin: usize, count: usize, size: usize) -> Entry {
    Entry { id, kind, offset: begin as u64, count: count as u64, size: size as u64 }
}

fn no_room(id: i32, count: usize, size: usize, memory_bytes: usize) -> Stop {
    let capacity = memory_bytes - TABLE_BYTES - MAX_REGIONS * ALIGN;
    let text = format!(
        "region {id} of {count} x {size} bytes does not fit: skt_init was given {capacity} bytes \
         for all regions of the largest rank; reserve more"
    );
    Stop::new(Code::Space, text)
}

/// Of the state that a checkpoint saves besides the regions.
const VERSION: u64 = 2;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SavedState {
    version: u64,
    /// Seconds of the run so far, over all starts; they decide when images of a level are due.
    seconds: f64,
}

impl SavedState {
    pub(crate) fn new(seconds: f64) -> Self {
        Self { version: VERSION, seconds }
    }
}

/// The seconds in a state, as the levels read them.
pub(crate) fn seconds_of(state: &[u8]) -> f64 {
    match bytemuck::try_pod_read_unaligned::<SavedState>(state) {
        Ok(SavedState { version: VERSION, seconds }) => seconds,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: usize) -> usize {
        memory_bytes(bytes).expect("small")
    }

    #[test]
    fn size_given_to_skt_init_suffices_for_all_regions() {
        // The worst case: each region wastes nearly a whole line.
        let table = Table::default();
        let all = (0..MAX_REGIONS as i32).map(|id| (id, 1, 1));
        assert!(table.with_yours(all, memory(MAX_REGIONS)).is_ok());
        let one = table.with_yours([(0, 1001, 8)].into_iter(), memory(8008)).expect("room");
        assert_eq!(one.get(0).expect("placed").range().len(), 8008);
        let many = (0..MAX_REGIONS as i32 + 1).map(|id| (id, 1, 1));
        assert_eq!(table.with_yours(many, memory(9999)).expect_err("too many").code, Code::Space);
    }

    #[test]
    fn oversized_regions_are_refused_also_on_overflow() {
        let table = Table::default();
        let room = memory(64);
        for (count, size) in [(20_000, 1), (usize::MAX, 2), (usize::MAX, 1)] {
            let stop =
                table.with_yours([(3, count, size)].into_iter(), room).expect_err("too large");
            assert_eq!((stop.code, stop.is_over), (Code::Space, false));
            assert!(stop.text.contains("given 64 bytes"), "{}", stop.text);
        }
        assert_eq!(memory_bytes(usize::MAX), None);
    }

    fn no_two_share_a_byte(table: &Table, room: usize) {
        let mut ranges: Vec<_> = table.entries().map(Entry::range).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
        let is_right = |range: &std::ops::Range<usize>| {
            range.start.is_multiple_of(ALIGN) && range.start >= TABLE_BYTES && range.end <= room
        };
        assert!(ranges.iter().all(is_right), "{ranges:?}");
    }

    #[test]
    fn library_regions_stay_in_place_when_copies_change() {
        let room = memory(4000);
        let mut table = Table::default();
        let first = table.add_ours(7, 100, 8, room).expect("room");
        let one = table.with_yours([(1, 10, 8), (2, 3, 1)].into_iter(), room).expect("room");
        let two = one.with_yours([(2, 50, 8), (9, 1, 1)].into_iter(), room).expect("room");
        for table in [&one, &two] {
            assert_eq!(table.get(7), Some(&first));
            no_two_share_a_byte(table, room);
        }
        assert_eq!(two.get(1), None, "a copy that is protected no more is gone");
    }

    /// Regions in any order of calls, in a start that has found copies that are not restored yet:
    /// regions of the size given to `skt_init` fit, and nothing found is overwritten.
    #[test]
    fn memory_requested_before_restoring_copies_leaves_them_room() {
        let room = memory(8000);
        let mut table = Table::default();
        table.add_ours(1, 100, 8, room).expect("room");
        let found = table.with_yours([(2, 450, 8), (3, 7, 1)].into_iter(), room).expect("room");
        let mut restarted = found.clone();
        restarted.add_ours(4, 440, 8, room).expect("the rest");
        no_two_share_a_byte(&restarted, room);
        assert!(found.entries().all(|entry| restarted.get(entry.id) == Some(entry)));
        let yours = [(2, 450, 8), (3, 7, 1)].into_iter();
        no_two_share_a_byte(&restarted.with_yours(yours, room).expect("room"), room);
        // What would reach into the copies is refused.
        let many = found.clone().add_ours(4, 4000, 8, room).expect_err("more than there is");
        assert_eq!(many.code, Code::Space);
    }

    #[test]
    fn table_survives_a_round_trip_and_garbage_is_refused() {
        let room = memory(100);
        let mut bytes = vec![0u8; room];
        assert_eq!(Table::read(&bytes).expect_err("zeros").code, Code::Internal);
        let mut table = Table::default();
        table.add_ours(-3, 5, 8, room).expect("room");
        table.write(&mut bytes);
        assert_eq!(Table::read(&bytes).expect("a table"), table);
        bytes[size_of::<Head>() + 20] = 0xff;
        assert_eq!(Table::read(&bytes).expect_err("a count too large").code, Code::Internal);
    }
}
