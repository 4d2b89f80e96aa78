//! A rank's memory that outlives its process, and the words in it that record what is valid.
//!
//! ```text
//! words | A | x | two panels | U of the next panel's columns | U of the rest | log | W
//! ```
//!
//! W is the panel that is being factored, on ranks with data. Checksum ranks factor none, and store
//! the new sums of a group there.
//!
//! A word is 8 bytes, and is written at once: a death leaves the old value or the new one. At a cut
//! only the words and A matter: they come first.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, slice};

use super::super::local::LocalShape;
use super::super::pace::Pace;
use super::super::product::{CallListener, max_parts};
use super::super::{Params, SolveError, panel};
use crate::blas::view::SharedMat;
use crate::blas::{MatMut, MatRef};
use crate::grid::Cyclic;
use crate::swap::RowBuffers;
use crate::tuning::TUNING;
use skt_comm::PageBuf;
use skt_store::codec::checksum;

/// Areas begin on a page.
const PAGE_DOUBLES: usize = 512;

// Names of points at which lost memory is restored.
pub(super) const PUT_BACK: &str = "put back";
pub(super) const TAKE_BACK: &str = "take back";
pub(super) const REBUILD: &str = "rebuild";
pub(super) const LEFT_OVER: &str = "left over";
pub(super) const DECODE: &str = "decode";
pub(super) const LOOK: &str = "look";

/// A point at which a process may die: just before a change of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Name of the point at which the process is: what it does next.
    pub name: &'static str,
    /// The number of a panel, a cut or a start.
    pub number: u64,
    /// The part of the product or the rows of a rebuilding, if one of these is next.
    pub part: Option<usize>,
}

impl At {
    /// Whether the process restores there what is lost: that takes long, and eliminates no column.
    pub fn is_restoring(&self) -> bool {
        [PUT_BACK, TAKE_BACK, LOOK, REBUILD, LEFT_OVER, DECODE].contains(&self.name)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.name, self.number)?;
        self.part.map_or(Ok(()), |part| write!(f, " part {part}"))
    }
}

/// Fault injection and signals: asked before each change of the memory. All threads of a rank call
/// it at once, in the middle of a product, where
/// [`SolverEvents`](super::super::events::SolverEvents) has one caller, at the cuts.
pub trait MemoryHook: Sync {
    /// Called wherever the process may die. After an error the process must go no further.
    fn at(&self, at: At) -> Result<(), SolveError>;

    /// One more thread starts an in-place change: the process should not end before the matching
    /// [`MemoryHook::end_change`].
    fn begin_change(&self) {}

    fn end_change(&self) {}
}

pub struct GoOn;

impl MemoryHook for GoOn {
    fn at(&self, _: At) -> Result<(), SolveError> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryState {
    /// Nothing, or data that is being rebuilt for the cut before this panel.
    Hollow(usize),
    /// A at the cut before this panel; before panel 0 it need not have been generated.
    Rest(usize),
    /// A at the cut before this panel, and copies of all rows that its exchange is writing to.
    Logged(usize),
    /// Rows have been exchanged for this panel, and U is solved for. The words of the parts record
    /// which of them have their product.
    Exchanged(usize),
    Solved,
    /// A as the elimination has changed it without this process column, which the checksums have
    /// replaced: no cut of the system.
    Replaced(usize),
}

/// Bits of the parts of a state's word: kind, panel, then start.
const KIND_BITS: u32 = 3;
const PANEL_BITS: u32 = 33;

impl MemoryState {
    /// The word of this state, written in start `start`. The word of untouched memory is 0.
    fn word(self, start: u64) -> u64 {
        let (kind, k) = match self {
            Self::Hollow(k) => (0, k),
            Self::Rest(k) => (1, k),
            Self::Logged(k) => (2, k),
            Self::Exchanged(k) => (3, k),
            Self::Solved => (4, 0),
            Self::Replaced(column) => (5, column),
        };
        kind | (k as u64) << KIND_BITS | start << (KIND_BITS + PANEL_BITS)
    }

    /// The state of a word, and the start in which it was written.
    pub(crate) fn from_word(word: u64) -> (Self, u64) {
        let k = (word >> KIND_BITS & ((1 << PANEL_BITS) - 1)) as usize;
        let state = match word & ((1 << KIND_BITS) - 1) {
            1 => Self::Rest(k),
            2 => Self::Logged(k),
            3 => Self::Exchanged(k),
            4 => Self::Solved,
            5 => Self::Replaced(k),
            _ => Self::Hollow(k),
        };
        (state, word >> (KIND_BITS + PANEL_BITS))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartState {
    Open,
    /// The product is being computed: the part is torn.
    Begun,
    Done,
    /// The product is being taken back: the part is torn.
    Undoing,
    /// This number of its columns, from the first on, have their product, and the others have none.
    Partly(usize),
}

impl PartState {
    fn word(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Begun => 1,
            Self::Done => 2,
            Self::Undoing => 3,
            Self::Partly(columns) => 4 | (columns as u64) << KIND_BITS,
        }
    }

    fn from_word(word: u64) -> Self {
        match word & ((1 << KIND_BITS) - 1) {
            0 => Self::Open,
            1 => Self::Begun,
            2 => Self::Done,
            4 => Self::Partly((word >> KIND_BITS) as usize),
            _ => Self::Undoing,
        }
    }

    /// How many of `columns`, from the first on, have their product; `None` if the part is torn.
    pub(crate) fn columns_done(self, columns: usize) -> Option<usize> {
        match self {
            Self::Open => Some(0),
            Self::Partly(done) => Some(done),
            Self::Done => Some(columns),
            Self::Begun | Self::Undoing => None,
        }
    }
}

/// Bits of a cut in the word of [`Decoded`].
const CUT_BITS: u32 = 31;

/// Whether data of a process row has been decoded, and whether that was checked. Written to the
/// memory of each rank of the process row before anything is decoded there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Decoded {
    /// Whether no check has agreed since the decoding. Until one has, no rows are corrected: a
    /// wrong number and the number decoded from it are in two process columns, and the checksums
    /// would locate them in a third one.
    pub is_unchecked: bool,
    /// The first and the last cut, if any, at which no checksum was left to check the other ranks
    /// with. No later check can see an error that they had there.
    pub unverified: Option<(usize, usize)>,
    /// Whether data has been decoded since the run began. An error of the other ranks that was too
    /// small to be noticed may grow afterwards, and the checksums may then locate a third process
    /// column.
    pub has_been: bool,
}

impl Decoded {
    pub(crate) fn word(self) -> u64 {
        let (first, last) = self.unverified.unwrap_or((0, 0));
        assert!(first <= last && last < 1 << CUT_BITS, "cuts {first} and {last}");
        let flags = u64::from(self.is_unchecked) | u64::from(self.has_been) << 63;
        flags | (first as u64) << 1 | (last as u64) << (1 + CUT_BITS)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let cut = |shift: u32| (word >> shift & ((1 << CUT_BITS) - 1)) as usize;
        // Nothing is decoded at cut 0, where the system is generated.
        let unverified = Some((cut(1), cut(1 + CUT_BITS))).filter(|&(first, _)| first > 0);
        Self { is_unchecked: word & 1 != 0, unverified, has_been: word >> 63 != 0 }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let both = self.unverified.into_iter().chain(other.unverified);
        Self {
            is_unchecked: self.is_unchecked || other.is_unchecked,
            unverified: both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            has_been: self.has_been || other.has_been,
        }
    }
}

/// Indices of the words. Two more for each part follow: its rows of A2, and its progress.
const FORM: usize = 0;
const JOINED: usize = 1;
const CONFIRMED: usize = 2;
const STATE: usize = 3;
/// The number of parts on the columns of the next panel, which come first, and of all parts.
const NEXT_PARTS: usize = 4;
const ALL_PARTS: usize = 5;
const WRONG: usize = 6;
/// The panel before which a group ends, if its new sums have passed this rank; else 0.
const SUMMED: usize = 7;
const DECODED: usize = 8;
const FIRST_PART: usize = 9;

/// The word at [`FORM`] of a system that these numbers describe; never 0. As it outlives the
/// process and the program, it must not depend on the compiler's release.
pub(super) fn form_of(numbers: impl Iterator<Item = u64>) -> u64 {
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    checksum(&bytes) | 1
}

/// The size in doubles of each area of a rank's memory, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    words: usize,
    a: usize,
    x: usize,
    panel: usize,
    u_next: usize,
    u_rest: usize,
    log: usize,
    w: usize,
}

impl Sizes {
    pub(crate) fn new(params: &Params, rows: Cyclic, myrow: usize, shape: LocalShape) -> Self {
        let panel = panel::largest::<f64>(params.n, params.nb, rows, myrow);
        let w = panel::largest_w(params.n, params.nb, rows, myrow);
        let nb = params.widest_panel();
        // With P = 1, U is only in A.
        let u = |cols: usize| if rows.procs > 1 { nb.saturating_mul(cols) } else { 0 };
        Self {
            words: FIRST_PART + 2 * max_parts(shape.rows),
            a: shape.doubles(),
            x: params.n,
            panel,
            u_next: u(nb),
            u_rest: u(shape.cols),
            log: nb.saturating_mul(2).saturating_mul(shape.cols),
            w: w.max(nb.saturating_mul(shape.rows)),
        }
    }

    fn areas(&self) -> [usize; 9] {
        let Self { words, a, x, panel, u_next, u_rest, log, w } = *self;
        [words, a, x, panel, panel, u_next, u_rest, log, w]
    }

    pub(crate) fn a_range(&self) -> Range<usize> {
        let start = self.words.next_multiple_of(PAGE_DOUBLES);
        start..start.saturating_add(self.a)
    }

    pub(crate) fn doubles(&self) -> usize {
        let page = |doubles: usize| doubles.div_ceil(PAGE_DOUBLES).saturating_mul(PAGE_DOUBLES);
        self.areas().into_iter().map(page).fold(0, usize::saturating_add)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct RelayMessages {
    /// Doubles of a message; a row of the sum, if that is more.
    pub doubles: usize,
    /// Messages of a rank, at least two. With more, it does not wait for late ranks.
    pub count: usize,
}

impl RelayMessages {
    pub const TUNED: Self =
        Self { doubles: TUNING.relay_message_doubles, count: TUNING.relay_messages };

    /// Doubles of a message where no rank has more than `cols` columns.
    pub fn longest(self, cols: usize) -> usize {
        self.doubles.max(cols)
    }

    /// Doubles of all messages where no rank has more than `cols` columns; at most `usize::MAX`.
    pub fn all(self, cols: usize) -> usize {
        self.longest(cols).saturating_mul(self.count)
    }
}

/// Doubles that a rank needs besides the memory that outlives its process: the messages of sums
/// and, where P > 1, the rows that it exchanges; at most `usize::MAX`.
pub fn work_doubles(params: &Params, rows: Cyclic, shape: LocalShape) -> usize {
    let nb = params.widest_panel();
    let exchange = if rows.procs > 1 { [nb, shape.cols] } else { [0; 2] };
    exchange
        .into_iter()
        .map(|cols| RowBuffers::rows_doubles(nb, cols))
        .chain([RelayMessages::TUNED.all(shape.cols)])
        .fold(0, usize::saturating_add)
}

/// The address and size of a rank's memory that outlives its process. No reference to all of it is
/// ever made: it would forbid others with a pointer to read it while the solver stands still
/// ([`keep_image`](super::super::events::SolverEvents::keep_image)). The solver accesses the words
/// as atomics, and each area by a separate reference while it uses it.
pub struct RankMemory<'m> {
    start: NonNull<f64>,
    doubles: usize,
    memory: PhantomData<&'m mut [f64]>,
}

impl<'m> RankMemory<'m> {
    /// Borrowed memory, which nothing else reads or writes.
    pub fn new(memory: &'m mut [f64]) -> Self {
        let doubles = memory.len();
        Self { start: NonNull::from(memory).cast(), doubles, memory: PhantomData }
    }

    /// The `doubles` doubles from `start` on.
    ///
    /// # Safety
    /// They exist for as long as `'m`. During that time others read them only while the solver is
    /// in `begins` or `keep_image` of [`SolverEvents`](super::super::events::SolverEvents), and
    /// never write.
    pub unsafe fn at(start: NonNull<f64>, doubles: usize) -> Self {
        Self { start, doubles, memory: PhantomData }
    }

    pub(super) fn slice_mut(&mut self, range: Range<usize>) -> &mut [f64] {
        assert!(range.start <= range.end && range.end <= self.doubles, "within the memory");
        // SAFETY: within the memory, which is borrowed as long as `self`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.len()) }
    }
}

#[derive(Clone, Copy)]
struct Area {
    start: NonNull<f64>,
    len: usize,
}

pub(super) struct Places<'a> {
    words: &'a [AtomicU64],
    x: Area,
    panels: [Area; 2],
    u_next: Area,
    u_rest: Area,
    log: Area,
    w: Area,
    rows: usize,
    pub a: SharedMat<'a>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(memory: &'a mut RankMemory<'_>, sizes: &Sizes, shape: LocalShape) -> Self {
        assert_eq!(memory.doubles, sizes.doubles(), "the memory of a rank");
        let mut start = memory.start;
        let areas = sizes.areas().map(|len| {
            let area = Area { start, len };
            // SAFETY: each area ends within the memory, or at its end, as their sum shows.
            start = unsafe { start.add(len.next_multiple_of(PAGE_DOUBLES)) };
            area
        });
        let [words, a, x, even, odd, u_next, u_rest, log, w] = areas;
        // SAFETY: words have the size and alignment of doubles, are borrowed for as long, and are
        // accessed only as words.
        let words = unsafe { slice::from_raw_parts(words.start.as_ptr().cast(), words.len) };
        // SAFETY: the area of A, borrowed for as long; users of its blocks keep them apart.
        let a = unsafe {
            MatMut::row_major_at(a.start.as_ptr(), a.len, shape.rows, shape.cols, shape.lda)
        };
        let (panels, rows, a) = ([even, odd], shape.rows, a.share());
        Self { words, x, panels, u_next, u_rest, log, w, rows, a }
    }

    /// Safety: no thread writes to the area while the slice is in use.
    unsafe fn read(&self, area: Area) -> &[f64] {
        // SAFETY: an area of the memory that is borrowed for as long as `self`.
        unsafe { slice::from_raw_parts(area.start.as_ptr(), area.len) }
    }

    /// Safety: the buffer does not outlive `self`; nothing else writes to the area, and nothing
    /// reads there while the buffer is written to.
    unsafe fn buffer(&self, area: Area) -> PageBuf {
        // SAFETY: the caller's promise.
        unsafe { PageBuf::within(area.start, area.len) }
    }

    /// Buffers for two panels, that of panel `k` first.
    /// Safety: the conditions of [`Self::buffer`].
    pub(crate) unsafe fn panel_buffers(&self, k: usize) -> [PageBuf; 2] {
        // SAFETY: the caller's promise; they are two areas.
        [k, k + 1].map(|k| unsafe { self.buffer(self.panels[k % 2]) })
    }

    /// Safety: the conditions of [`Self::buffer`]; no sums are stored there.
    pub(crate) unsafe fn w_buffer(&self) -> PageBuf {
        // SAFETY: the caller's promise.
        unsafe { self.buffer(self.w) }
    }

    /// Buffers for U of the columns of the next panel, and for U of the rest.
    /// Safety: the conditions of [`Self::buffer`].
    pub(crate) unsafe fn u_buffers(&self) -> [PageBuf; 2] {
        // SAFETY: the caller's promise; they are two areas.
        [self.u_next, self.u_rest].map(|area| unsafe { self.buffer(area) })
    }

    /// The message of panel `k`.
    /// Safety: while it is in use, no panel is received into or factored in its buffer.
    pub(crate) unsafe fn panel(&self, k: usize) -> &[f64] {
        // SAFETY: the caller's promise.
        unsafe { self.read(self.panels[k % 2]) }
    }

    /// U of the columns of the next panel, or of the rest, where P > 1: `jb x cols`.
    /// Safety: while it is in use, no rows are exchanged.
    pub(crate) unsafe fn u(&self, is_next: bool, jb: usize, cols: usize) -> MatRef<'_> {
        let area = if is_next { self.u_next } else { self.u_rest };
        // SAFETY: the caller's promise.
        MatRef::row_major(unsafe { self.read(area) }, jb, cols, cols)
    }

    /// The log, as `rows` rows of `cols` columns.
    /// Safety: no other view of the log is in use.
    pub(crate) unsafe fn log(&self, rows: usize, cols: usize) -> MatMut<'_> {
        let Area { start, len } = self.log;
        // SAFETY: an area of the memory that is borrowed for as long as `self`.
        unsafe { MatMut::row_major_at(start.as_ptr(), len, rows, cols, cols) }
    }

    /// The new sums of a group of `cols` columns, row by row as in A.
    /// Safety: no other view of the sums is in use, and no panel is factored on this rank.
    pub(crate) unsafe fn sums(&self, cols: usize) -> MatMut<'_> {
        let Area { start, len } = self.w;
        // SAFETY: an area of the memory that is borrowed for as long as `self`.
        unsafe { MatMut::row_major_at(start.as_ptr(), len, self.rows, cols, cols) }
    }

    pub(crate) fn x_mut(&mut self) -> &mut [f64] {
        // SAFETY: no buffer and no other function returns this area; it is borrowed as long as
        // `self`.
        unsafe { slice::from_raw_parts_mut(self.x.start.as_ptr(), self.x.len) }
    }

    /// `hook` is asked before each write; until `start` is set, words have start 0.
    pub(crate) fn journal(&self, hook: &'a dyn MemoryHook) -> Journal<'a> {
        Journal { words: self.words, hook, start: 0 }
    }
}

/// The words of a rank's memory. The hook is asked before each is written.
pub(super) struct Journal<'a> {
    words: &'a [AtomicU64],
    pub hook: &'a dyn MemoryHook,
    pub start: u64,
}

impl Journal<'_> {
    fn read(&self, place: usize) -> u64 {
        self.words[place].load(Ordering::Acquire)
    }

    fn write(&self, place: usize, word: u64) {
        self.words[place].store(word, Ordering::Release);
    }

    pub(crate) fn before(&self, name: &'static str, number: usize) -> Result<(), SolveError> {
        self.hook.at(At { name, number: number as u64, part: None })
    }

    pub(crate) fn before_part(&self, name: &'static str, part: usize) -> Result<(), SolveError> {
        self.hook.at(At { name, number: 0, part: Some(part) })
    }

    /// The form of the system in this memory; 0 in new memory.
    pub(crate) fn form(&self) -> u64 {
        self.read(FORM)
    }

    pub(crate) fn set_form(&self, form: u64) -> Result<(), SolveError> {
        self.before("form", 0)?;
        self.write(FORM, form);
        Ok(())
    }

    /// The last start that this memory has joined, and the last one that it has followed.
    pub(crate) fn starts(&self) -> (u64, u64) {
        (self.read(JOINED), self.read(CONFIRMED))
    }

    pub(crate) fn join(&self, start_key: u64) -> Result<(), SolveError> {
        self.before("join", start_key as usize)?;
        self.write(JOINED, start_key);
        Ok(())
    }

    pub(crate) fn confirm(&self, start_key: u64) -> Result<(), SolveError> {
        self.before("confirm", start_key as usize)?;
        self.write(CONFIRMED, start_key);
        Ok(())
    }

    pub(crate) fn state_word(&self) -> u64 {
        self.read(STATE)
    }

    pub(crate) fn set(&self, state: MemoryState) -> Result<(), SolveError> {
        let (name, k) = match state {
            MemoryState::Hollow(k) => ("hollow", k),
            MemoryState::Rest(k) => ("rest", k),
            MemoryState::Logged(k) => ("logged", k),
            MemoryState::Exchanged(k) => ("exchanged", k),
            MemoryState::Solved => ("solved", 0),
            MemoryState::Replaced(column) => ("replaced", column),
        };
        self.before(name, k)?;
        self.write(STATE, state.word(self.start));
        Ok(())
    }

    /// The panel before which a group ends, if its new sums have all passed this rank and have not
    /// replaced the old ones yet.
    pub(crate) fn summed(&self) -> Option<usize> {
        Some(self.read(SUMMED) as usize).filter(|&end| end > 0)
    }

    pub(crate) fn set_summed(&self, end: Option<usize>) -> Result<(), SolveError> {
        self.before(if end.is_some() { "summed" } else { "not summed" }, end.unwrap_or(0))?;
        self.write(SUMMED, end.unwrap_or(0) as u64);
        Ok(())
    }

    /// Lists a step's parts, rows of A2, on the next panel's columns and on the rest; all are open.
    pub(crate) fn list_parts(
        &self,
        next: impl Iterator<Item = Range<usize>>,
        rest: impl Iterator<Item = Range<usize>>,
    ) -> Result<(), SolveError> {
        self.before("parts", 0)?;
        let mut count = 0;
        let mut list = |rows: Range<usize>| {
            let place = FIRST_PART + 2 * count;
            assert!(place + 1 < self.words.len(), "room for all parts");
            self.write(place, (rows.start as u64) << 32 | rows.end as u64);
            self.write(place + 1, PartState::Open.word());
            count += 1;
            count
        };
        let next_count = next.map(&mut list).last().unwrap_or(0);
        let all_count = rest.map(&mut list).last().unwrap_or(next_count);
        self.write(NEXT_PARTS, next_count as u64);
        self.write(ALL_PARTS, all_count as u64);
        Ok(())
    }

    pub(crate) fn parts(&self, is_next: bool) -> Range<usize> {
        let (next, all) = (self.read(NEXT_PARTS) as usize, self.read(ALL_PARTS) as usize);
        if is_next { 0..next } else { next..all }
    }

    pub(crate) fn part(&self, part: usize) -> (Range<usize>, PartState) {
        let (rows, word) = (self.read(FIRST_PART + 2 * part), self.read(FIRST_PART + 2 * part + 1));
        ((rows >> 32) as usize..(rows & 0xffff_ffff) as usize, PartState::from_word(word))
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.read(WRONG) != 0
    }

    pub(crate) fn set_wrong(&self, is_wrong: bool) -> Result<(), SolveError> {
        self.before("wrong", 0)?;
        self.write(WRONG, u64::from(is_wrong));
        Ok(())
    }

    pub(crate) fn decoded(&self) -> Decoded {
        Decoded::from_word(self.read(DECODED))
    }

    /// Writes the value of [`Self::decoded`], unless it is unchanged.
    pub(crate) fn set_decoded(&self, decoded: Decoded) -> Result<(), SolveError> {
        if self.decoded() == decoded {
            return Ok(());
        }
        self.before("decoded", usize::from(decoded.is_unchecked))?;
        self.write(DECODED, decoded.word());
        Ok(())
    }

    pub(crate) fn set_part(&self, part: usize, is: PartState) -> Result<(), SolveError> {
        let name = match is {
            PartState::Open => "undone",
            PartState::Begun => "begin",
            PartState::Done => "done",
            PartState::Undoing => "undo",
            PartState::Partly(_) => "partly",
        };
        self.before_part(name, part)?;
        self.write(FIRST_PART + 2 * part + 1, is.word());
        Ok(())
    }

    /// Whether the memory is torn: a part was being changed in place.
    pub(crate) fn is_torn(&self) -> bool {
        let is_torn = |part| matches!(self.part(part).1, PartState::Begun | PartState::Undoing);
        matches!(MemoryState::from_word(self.state_word()).0, MemoryState::Exchanged(_))
            && (0..self.parts(false).end).any(is_torn)
    }
}

/// Records which parts of a product on some columns have been computed. Before a BLAS call its
/// first part is marked begun; afterwards all its parts are marked done, or done on the columns so
/// far, the first one last: the memory is torn until all are marked.
pub(super) struct Recorded<'j> {
    pub journal: &'j Journal<'j>,
    pub pace: &'j Pace,
    pub is_next: bool,
}

impl Recorded<'_> {
    fn numbers(&self, rows: &Range<usize>) -> Range<usize> {
        let mut parts = self.journal.parts(self.is_next);
        let of = |part: usize| self.journal.part(part).0;
        let first = parts.find(|&part| of(part).start == rows.start).expect("a part begins there");
        let last = (first..parts.end).find(|&part| of(part).end == rows.end);
        first..last.expect("a part ends there") + 1
    }
}

impl CallListener for Recorded<'_> {
    fn begin(&self, rows: &Range<usize>) -> Result<(), SolveError> {
        let first = self.numbers(rows).start;
        self.journal.hook.begin_change();
        self.journal.set_part(first, PartState::Begun)?;
        self.journal.before_part("product", first)
    }

    fn end(&self, rows: &Range<usize>, columns: Option<usize>) -> Result<(), SolveError> {
        let is = columns.map_or(PartState::Done, PartState::Partly);
        let mut parts = self.numbers(rows).rev();
        parts.try_for_each(|part| self.journal.set_part(part, is))?;
        self.journal.hook.end_change();
        Ok(())
    }

    fn pace(&self) -> Option<&Pace> {
        Some(self.pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is that of another implementation of XXH3.
    #[test]
    fn system_word_is_the_same_for_every_compiler() {
        assert_eq!(form_of([1, 2, 1 << 63].into_iter()), 0xe64e_0e44_ba78_4d1b);
        assert_eq!(form_of([].into_iter()), 0x2d06_8005_38d3_94c3);
    }

    /// While an image is written, the solver's views of the memory stay valid, which Miri checks.
    #[test]
    fn others_may_read_all_of_it_while_the_solver_stands_still() {
        let (rows, cols) = (3, 4);
        let shape = LocalShape { rows, cols, lda: 8, max_rows: rows, numbers: PhantomData };
        let [panel, u, log] = [6, 8, 2 * cols];
        let a = shape.doubles();
        let sizes = Sizes { words: 12, a, x: 5, panel, u_next: u, u_rest: u, log, w: panel };
        let mut memory = vec![0.0; sizes.doubles()];
        let (start, doubles) = (NonNull::from(&mut memory[..]).cast::<f64>(), memory.len());
        // SAFETY: the memory exists, and is read only while nothing writes.
        let mut own = unsafe { RankMemory::at(start, doubles) };
        let mut places = Places::new(&mut own, &sizes, shape);
        let journal = places.journal(&GoOn);
        // SAFETY: the areas do not overlap, and each view ends before the next one of its area.
        let (mut panels, mut log) = unsafe { (places.panel_buffers(0), places.log(2, cols)) };
        for round in 1..4_u32 {
            let value = f64::from(round);
            journal.set_form(round.into()).unwrap();
            // SAFETY: no other view of A.
            unsafe { places.a.block(1..2, 0..cols) }.row_mut(0).fill(value);
            panels[1].fill(value);
            log.row_mut(1).fill(value);
            // SAFETY: nothing writes while this slice is in use.
            let image = unsafe { slice::from_raw_parts(start.as_ptr(), doubles) };
            assert_eq!(image[FORM].to_bits(), u64::from(round));
            let count = image.iter().filter(|&&double| double == value).count();
            assert_eq!(count, cols + panel + cols);
        }
        drop((panels, journal));
        places.x_mut().fill(7.0);
        assert_eq!(own.slice_mut(sizes.a_range())[8], 3.0);
        assert_eq!(memory.iter().filter(|&&double| double == 7.0).count(), 5);
    }

    #[test]
    fn states_survive_encoding_as_words() {
        let states = [0, 1, 7, u32::MAX as usize];
        let states = states.into_iter().flat_map(|k| {
            let solved = [MemoryState::Solved, MemoryState::Replaced(k)];
            [
                MemoryState::Hollow(k),
                MemoryState::Rest(k),
                MemoryState::Logged(k),
                MemoryState::Exchanged(k),
            ]
            .into_iter()
            .chain(solved)
        });
        for state in states {
            for start in [0, 1, (1 << 28) - 1] {
                assert_eq!(MemoryState::from_word(state.word(start)), (state, start));
            }
        }
        assert_eq!(MemoryState::from_word(0), (MemoryState::Hollow(0), 0));
    }

    #[test]
    fn parts_survive_encoding_as_words() {
        let partly = [1, 1152, 1 << 40].map(PartState::Partly);
        let parts = [PartState::Open, PartState::Begun, PartState::Done, PartState::Undoing]
            .into_iter()
            .chain(partly);
        parts.for_each(|part| assert_eq!(PartState::from_word(part.word()), part));
        assert_eq!(PartState::from_word(0), PartState::Open);
    }

    #[test]
    fn decoded_state_survives_encoding_as_a_word() {
        let last = (1 << 31) - 1;
        for (is_unchecked, has_been) in [(false, false), (true, false), (false, true), (true, true)]
        {
            for unverified in
                [None, Some((1, 1)), Some((3, 7)), Some((1, last)), Some((last, last))]
            {
                let decoded = Decoded { is_unchecked, unverified, has_been };
                assert_eq!(Decoded::from_word(decoded.word()), decoded);
                assert_eq!(decoded.and(Decoded::default()), decoded);
            }
        }
        assert_eq!(Decoded::from_word(0), Decoded::default());
        let [a, b] = [(3, 7), (2, 5)].map(Some);
        let of = |unverified| Decoded { unverified, ..Decoded::default() };
        assert_eq!(of(a).and(of(b)), of(Some((2, 7))));
    }
}
