//! The pivot of one column: choice among the ranks of the process column and exchange of the two
//! rows, in one message exchange (HPL_pdmxswp). Each rank's own largest element comes from
//! `unblocked::best_of`.
//!
//! The candidate of a rank is its largest element, with the whole panel row that holds it. The rank
//! that has the current row, which the pivot row displaces, adds that row. Candidates are combined
//! by recursive doubling or, where all ranks share a node, by each rank reading all of them.
//! Afterwards all ranks know the pivot row (row j of L1 and U1), and the rank whose candidate won
//! knows the row that replaces it.

use super::{PanelWork, PfactError};
use crate::blas::kernels::Best;
use crate::comm::doubling;
use skt_comm::node::NodeMemory;
use skt_comm::{Comm, Result, Tag};

const TAG_PIVOT: Tag = 0x110;

/// Doubles before the rows of a candidate.
const HEAD: usize = 4;
const MAGNITUDE: usize = 0;
const GLOBAL_ROW: usize = 1;
const PROC_ROW: usize = 2;
const HAS_CURRENT: usize = 3;

/// Buffers for two candidates, each of `HEAD + 2 jb` doubles: head, pivot row, current row.
pub struct Candidates {
    mine: Vec<f64>,
    theirs: Vec<f64>,
    shared: Option<SharedCandidates>,
}

impl Candidates {
    /// Buffers for panels of up to `nb` columns. With `shared` no message is sent.
    pub fn new(nb: usize, shared: Option<SharedCandidates>) -> Self {
        let len = HEAD + 2 * nb;
        Self { mine: vec![0.0; len], theirs: vec![0.0; len], shared }
    }
}

/// The flag of the shared memory: how many candidates its rank has written.
const FLAG: usize = 0;

/// Candidates in memory that all ranks of the process column see.
///
/// Each rank has two slots, used for alternate columns. Two suffice: when a rank writes its
/// candidate for column j + 2, each rank has written its own for j + 1, so it has finished reading
/// those for j.
pub struct SharedCandidates {
    node: NodeMemory,
    nb: usize,
    count: u64,
    /// Columns for which this rank has read all candidates.
    seen: u64,
}

impl SharedCandidates {
    /// `node` has [`SharedCandidates::doubles`] in each rank's part, and one flag.
    pub(crate) fn new(node: NodeMemory, nb: usize) -> Self {
        Self { node, nb, count: 0, seen: 0 }
    }

    pub(crate) fn doubles(nb: usize) -> usize {
        2 * Self::slot_doubles(nb)
    }

    fn slot_doubles(nb: usize) -> usize {
        (HEAD + 2 * nb).next_multiple_of(8)
    }

    /// Combines the candidates of all ranks for one column of a panel `jb` wide into `mine`.
    fn combine(&mut self, col: &Comm, mine: &mut [f64], jb: usize) -> Result<()> {
        assert_eq!(self.seen, self.count, "no exchange follows one that failed");
        self.count += 1;
        let start = (self.count % 2) as usize * Self::slot_doubles(self.nb);
        let slot = start..start + mine.len();
        // SAFETY: only candidates use this memory, and `self` is borrowed mutably. All other ranks
        // have read what was here before (see the type), and read here again after the flag.
        unsafe { self.node.mine(slot.clone()) }.copy_from_slice(mine);
        self.node.raise(FLAG, self.count);
        for rank in (0..self.node.size()).filter(|&rank| rank != self.node.rank()) {
            self.node.wait(col, rank, FLAG, self.count)?;
            // SAFETY: `rank` does not write here again before this rank has written its candidate
            // for the next column.
            merge(mine, unsafe { self.node.part(rank, slot.clone()) }, jb);
        }
        self.seen = self.count;
        Ok(())
    }
}

/// Finds the pivot of column `j` and exchanges the rows. `best` is this rank's largest element
/// among its active rows, as a row of W. Returns the pivot or, on all ranks alike,
/// [`PfactError::Pivot`] if none is usable.
pub(super) fn choose_and_exchange(
    panel: &mut PanelWork,
    j: usize,
    best: Best,
) -> std::result::Result<f64, PfactError> {
    let pivot = if panel.col.size() == 1 {
        exchange_alone(panel, j, best)
    } else {
        exchange_among(panel, j, best)?
    };
    // A largest element of 0 or one that is not finite leaves nothing to divide by.
    if pivot != 0.0 && pivot.is_finite() {
        Ok(pivot)
    } else {
        Err(PfactError::Pivot { column: j, value: pivot })
    }
}

/// P = 1: the pivot row becomes row j, and the current row moves to where the pivot row was.
fn exchange_alone(panel: &mut PanelWork, j: usize, best: Best) -> f64 {
    let current = panel.active(j);
    let pivot_row = if best.index == usize::MAX { current } else { best.index };
    panel.ipiv[j] = panel.global_row(pivot_row) as f64;
    for c in 0..panel.jb() {
        let column = panel.w.col_mut(c);
        column[j] = column[pivot_row];
        column[pivot_row] = column[current];
    }
    panel.w.as_ref().at(j, j)
}

fn exchange_among(panel: &mut PanelWork, j: usize, best: Best) -> Result<f64> {
    write_candidate(panel, j, best);
    combine(panel)?;
    Ok(accept(panel, j, best))
}

fn write_candidate(panel: &mut PanelWork, j: usize, best: Best) {
    let jb = panel.jb();
    let (current_row, has_rows) = (panel.current(j), best.index != usize::MAX);
    let global = if has_rows { panel.global_row(best.index) } else { usize::MAX };
    let w = panel.w.as_ref();
    let (head, rows) = panel.candidates.mine.split_at_mut(HEAD);
    let (pivot, current) = rows.split_at_mut(jb);
    // A rank without rows must lose even against a zero.
    head[MAGNITUDE] = if has_rows { best.magnitude } else { -1.0 };
    head[GLOBAL_ROW] = global as f64;
    head[PROC_ROW] = panel.place.myrow as f64;
    head[HAS_CURRENT] = f64::from(u8::from(current_row.is_some()));
    for c in 0..jb {
        if has_rows {
            pivot[c] = w.at(best.index, c);
        }
        if let Some(row) = current_row {
            current[c] = w.at(row, c);
        }
    }
}

/// Combines the candidates of all ranks, on all ranks. If their number is no power of two, some
/// ranks (the folded ones) only send their candidate, and in the end receive the winner. They merge
/// the winner like any other candidate, which keeps it: it has beaten, or is, their own.
fn combine(panel: &mut PanelWork) -> Result<()> {
    let (col, jb) = (panel.col, panel.jb());
    let len = HEAD + 2 * jb;
    let Candidates { mine, theirs, shared } = &mut *panel.candidates;
    if let Some(shared) = shared {
        return shared.combine(col, &mut mine[..len], jb);
    }
    for round in doubling::rounds(col.rank(), col.size()) {
        round.exchange(col, &mine[..len], &mut theirs[..len], TAG_PIVOT)?;
        if round.receives() {
            merge(mine, theirs, jb);
        }
    }
    Ok(())
}

/// Merges the other rank's candidate into this one's. The larger magnitude wins; at a tie the upper
/// row of the matrix wins; NaN counts as infinite.
fn merge(mine: &mut [f64], theirs: &[f64], jb: usize) {
    let key = |candidate: &[f64]| {
        let magnitude = candidate[MAGNITUDE];
        (if magnitude.is_nan() { f64::INFINITY } else { magnitude }, -candidate[GLOBAL_ROW])
    };
    if key(theirs) > key(mine) {
        mine[..HAS_CURRENT].copy_from_slice(&theirs[..HAS_CURRENT]);
        mine[HEAD..HEAD + jb].copy_from_slice(&theirs[HEAD..HEAD + jb]);
    }
    if theirs[HAS_CURRENT] != 0.0 {
        mine[HAS_CURRENT] = 1.0;
        mine[HEAD + jb..HEAD + 2 * jb].copy_from_slice(&theirs[HEAD + jb..HEAD + 2 * jb]);
    }
}

/// Puts the rows where the combined candidate places them. Returns the pivot.
fn accept(panel: &mut PanelWork, j: usize, best: Best) -> f64 {
    let jb = panel.jb();
    let candidates = &*panel.candidates;
    let (head, rows) = candidates.mine.split_at(HEAD);
    let (pivot, current) = (&rows[..jb], &rows[jb..2 * jb]);
    let is_from_here = head[PROC_ROW] == panel.place.myrow as f64;
    panel.ipiv[j] = head[GLOBAL_ROW];
    // The current row goes where the pivot row was.
    if is_from_here && best.index != usize::MAX {
        for (c, &value) in current.iter().enumerate() {
            panel.w.set(best.index, c, value);
        }
    }
    for (c, &value) in pivot.iter().enumerate() {
        panel.w.set(j, c, value);
    }
    if head[MAGNITUDE].is_nan() { f64::NAN } else { pivot[j] }
}
