//! Where a job resumes, determined from the memories of its ranks: a pure function, which all ranks
//! compute from the same reports.
//!
//! ```text
//! e(r)   the last panel whose rows rank r has exchanged, and whose sums have passed it
//! kappa  the least e(r) of all ranks that have something left
//! K      kappa + 1: the cut that all go to
//! ```
//!
//! Sums pass during the product of a panel before which a group ends (`renewal`). A rank exchanges
//! rows for a panel only when exchange and sums of the panel before are done on all ranks. So e(r)
//! is kappa or kappa + 1, and a rank with kappa + 1 has not begun kappa + 2: it still has what it
//! needs to go back.

use std::fmt;

use bytemuck::Zeroable;

use super::memory::{Decoded, MemoryState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryReport {
    pub row: usize,
    pub col: usize,
    pub is_foreign: bool,
    /// The last start that the rank has joined, and the last one that it has followed.
    pub joined: u64,
    pub confirmed: u64,
    pub state: MemoryState,
    pub start: u64,
    /// Whether sums must still pass this rank before it may leave the panel of its last exchange.
    pub is_summing: bool,
    pub is_torn: bool,
    pub is_wrong: bool,
    /// The decodings in the rank's process row, as the rank knows them.
    pub decoded: Decoded,
}

/// A [`MemoryReport`] as it is sent, with the number of the start, of which only rank 0's counts.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, Zeroable)]
pub(super) struct ReportWords {
    pub row: u64,
    pub col: u64,
    pub is_foreign: u64,
    pub joined: u64,
    pub confirmed: u64,
    pub state: u64,
    pub is_torn: u64,
    pub start_id: u64,
    pub is_wrong: u64,
    pub is_summing: u64,
    pub decoded: u64,
}

impl MemoryReport {
    pub(crate) fn from_words(words: &ReportWords) -> Self {
        let (state, start) = MemoryState::from_word(words.state);
        let report = Self {
            row: words.row as usize,
            col: words.col as usize,
            is_foreign: words.is_foreign != 0,
            joined: words.joined,
            confirmed: words.confirmed,
            state,
            start,
            is_torn: words.is_torn != 0,
            is_wrong: words.is_wrong != 0,
            is_summing: words.is_summing != 0,
            decoded: Decoded::from_word(words.decoded),
        };
        debug_assert!(start <= report.confirmed >> 32 || report.is_foreign);
        report
    }

    /// The report of a rank that no process has: its memory is untouched.
    pub(crate) fn absent(row: usize, col: usize) -> Self {
        let place = ReportWords { row: row as u64, col: col as u64, ..Zeroable::zeroed() };
        Self::from_words(&place)
    }

    /// Whether the memory is of the newest start that any rank has followed. A rank that has joined
    /// that start took part in it.
    fn is_current(&self, newest: u64) -> bool {
        self.joined == newest || self.confirmed == newest
    }

    /// The last cut that the rank can go to (the least of all is K); `None` if its A is unusable.
    fn last_cut(&self) -> Option<usize> {
        match self.state {
            MemoryState::Rest(k) | MemoryState::Logged(k) => Some(k),
            MemoryState::Exchanged(k) => Some(k + usize::from(!self.is_summing)),
            MemoryState::Hollow(_) | MemoryState::Solved | MemoryState::Replaced(_) => None,
        }
    }

    fn is_lost(&self, newest: u64) -> bool {
        let is_hollow = matches!(self.state, MemoryState::Hollow(_));
        is_hollow || self.is_torn || !self.is_current(newest)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Stay,
    /// The rank computes the missing parts of the product before the cut.
    Finish,
    /// The rank takes back the parts of the product after the cut, and the row exchange.
    Undo,
    PutBack,
    Rebuild,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Begin,
    /// Go to the cut before panel `cut`, each rank by its action.
    GoTo {
        cut: usize,
        actions: Vec<Action>,
    },
    Solved {
        from: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbftRefusal {
    /// More ranks of a process row are lost than it has checksums.
    Lost {
        row: usize,
        ranks: Vec<usize>,
        /// The lost ranks whose process was killed within a change of its memory.
        torn: Vec<usize>,
        /// How many lost ranks could be rebuilt.
        most: usize,
    },
    /// The memory of a rank belongs to another system, or to other parameters.
    Foreign {
        /// The rank of the grid.
        rank: usize,
    },
    Wrong {
        /// The rank of the grid that reports it.
        rank: usize,
    },
    /// The run has continued without its checksums.
    Replaced {
        rank: usize,
        /// The process column that the checksums have replaced.
        column: usize,
    },
    /// Ranks outside of the process column that the checksums were to replace are lost, too.
    Scattered {
        column: usize,
        /// The ranks of the grid that are lost elsewhere.
        ranks: Vec<usize>,
    },
    /// A combination of states that no run leaves.
    Mixture {
        /// The states that were found.
        what: String,
    },
    /// No rank has anything of the elimination. This is no error where there is nothing to lose.
    Nothing,
}

fn list(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

impl AbftRefusal {
    /// The problem, without what to do about it.
    pub fn what(&self) -> String {
        match self {
            Self::Lost { row, ranks, torn, most } => {
                let ranks = list(ranks);
                let torn = if torn.is_empty() {
                    String::new()
                } else {
                    let torn = list(torn);
                    format!(" (torn, as killed within a change of their memory: {torn})")
                };
                format!(
                    "process row {row} has lost the memory of ranks {ranks}{torn}, and its checksums \
                     can rebuild {most}"
                )
            }
            Self::Foreign { rank } => {
                format!(
                    "the memory of rank {rank} is that of another system or of other parameters"
                )
            }
            Self::Wrong { rank } => format!(
                "an earlier start found wrong numbers in the matrix that it could not correct, \
                 according to the memory of rank {rank}; the message of that start has the rows \
                 and ranks"
            ),
            Self::Replaced { rank, column } => format!(
                "after a loss the run has gone on without process column {column} (--on-loss \
                 replace), whose place its checksums have taken: what rank {rank} has is no cut \
                 of the system, and nothing is left to rebuild from"
            ),
            Self::Scattered { column, ranks } => format!(
                "process column {column} is lost, and also the memory of ranks {}: no checksums \
                 can replace both. Nothing was changed",
                list(ranks)
            ),
            Self::Mixture { what } => format!("the memories do not belong together ({what})"),
            Self::Nothing => "no rank has anything of the elimination in its memory".to_owned(),
        }
    }
}

impl fmt::Display for AbftRefusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: ", self.what())?;
        f.write_str(match self {
            Self::Foreign { .. } => "continue with those of its run, or clear it",
            Self::Lost { .. } | Self::Nothing | Self::Wrong { .. } | Self::Replaced { .. } => {
                "to start over, clear the memory of all ranks (`skt-hpl store clean --run NAME`), or \
                 give --resume never"
            }
            Self::Scattered { .. } => {
                "the same command, on all ranks, rebuilds what can be rebuilt"
            }
            Self::Mixture { .. } => {
                "to start over, clear the memory of all ranks (`skt-hpl store clean --run NAME`), and \
                 report this as a defect"
            }
        })
    }
}

pub(super) fn newest_start(reports: &[MemoryReport]) -> u64 {
    reports.iter().map(|report| report.confirmed).max().unwrap_or(0)
}

pub(super) fn lost(reports: &[MemoryReport]) -> Vec<bool> {
    let newest = newest_start(reports);
    reports.iter().map(|report| report.is_lost(newest)).collect()
}

/// What has been decoded in each process row, according to its remaining ranks. Each rank that has
/// decoded something, or has contributed numbers to it, has noted that.
pub(super) fn decoded(reports: &[MemoryReport]) -> Vec<Decoded> {
    let rows = reports.iter().map(|report| report.row).max().map_or(0, |row| row + 1);
    let mut of_rows = vec![Decoded::default(); rows];
    for (report, _) in reports.iter().zip(lost(reports)).filter(|(_, lost)| !lost) {
        of_rows[report.row] = of_rows[report.row].and(report.decoded);
    }
    of_rows
}

/// Reports are in the order of the ranks; each process row has `checksums` checksums.
pub(super) fn decide(reports: &[MemoryReport], checksums: usize) -> Result<Decision, AbftRefusal> {
    if let Some(rank) = reports.iter().position(|report| report.is_foreign) {
        return Err(AbftRefusal::Foreign { rank });
    }
    let lost = lost(reports);
    if let Some(rank) = (0..reports.len()).find(|&rank| reports[rank].is_wrong && !lost[rank]) {
        return Err(AbftRefusal::Wrong { rank });
    }
    let left = || reports.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(report, _)| report);
    let is_solved =
        |(report, lost): (&MemoryReport, &bool)| !lost && report.state == MemoryState::Solved;
    if let Some(from) = reports.iter().zip(&lost).position(is_solved) {
        return Ok(Decision::Solved { from });
    }
    for (rank, (report, lost)) in reports.iter().zip(&lost).enumerate() {
        if let (MemoryState::Replaced(column), false) = (report.state, lost) {
            return Err(AbftRefusal::Replaced { rank, column });
        }
    }
    let cut = left().filter_map(MemoryReport::last_cut).min();
    // If some rank has not exchanged a row yet, no rank has exchanged more rows than those of panel
    // 0, and nothing is lost if the run restarts from scratch. It also begins where no rank has
    // ever had anything.
    let had_something = |report: &MemoryReport| !matches!(report.state, MemoryState::Hollow(0));
    if cut == Some(0) || (cut.is_none() && !reports.iter().any(had_something)) {
        return Ok(Decision::Begin);
    }
    refuse_losses(reports, &lost, checksums)?;
    let cut = cut.expect("a rank of each process row has something left");
    refuse_mixtures(&left().copied().collect::<Vec<_>>())?;
    let action = |(report, &lost): (&MemoryReport, &bool)| match report.state {
        _ if lost => Ok(Action::Rebuild),
        MemoryState::Rest(k) if k == cut => Ok(Action::Stay),
        MemoryState::Logged(k) if k == cut => Ok(Action::PutBack),
        MemoryState::Exchanged(k) if k + 1 == cut => Ok(Action::Finish),
        MemoryState::Exchanged(k) if k == cut => Ok(Action::Undo),
        state => Err(AbftRefusal::Mixture { what: format!("{state:?} and a rank at cut {cut}") }),
    };
    let actions = reports.iter().zip(&lost).map(action).collect::<Result<_, _>>()?;
    Ok(Decision::GoTo { cut, actions })
}

/// Refuses to continue without `column` where a rank of another process column must be rebuilt.
pub(super) fn refuse_elsewhere(
    reports: &[MemoryReport],
    decision: &Decision,
    column: usize,
) -> Result<(), AbftRefusal> {
    let Decision::GoTo { actions, .. } = decision else { return Ok(()) };
    let is_elsewhere =
        |&rank: &usize| actions[rank] == Action::Rebuild && reports[rank].col != column;
    let ranks: Vec<usize> = (0..reports.len()).filter(is_elsewhere).collect();
    if ranks.is_empty() { Ok(()) } else { Err(AbftRefusal::Scattered { column, ranks }) }
}

fn refuse_losses(reports: &[MemoryReport], lost: &[bool], most: usize) -> Result<(), AbftRefusal> {
    let rows = reports.iter().map(|report| report.row).max().map_or(0, |row| row + 1);
    for row in 0..rows {
        let is_here = |&rank: &usize| lost[rank] && reports[rank].row == row;
        let ranks: Vec<usize> = (0..reports.len()).filter(is_here).collect();
        if ranks.len() > most {
            let is_torn = |&rank: &usize| reports[rank].is_torn;
            let torn = ranks.iter().copied().filter(is_torn).collect();
            return Err(AbftRefusal::Lost { row, ranks, torn, most });
        }
    }
    Ok(())
}

/// Refuses to combine what was computed for a panel in one start with what was computed for it in
/// another: after a rebuilding, other bits may choose other pivots.
fn refuse_mixtures(left: &[MemoryReport]) -> Result<(), AbftRefusal> {
    let exchanged = |report: &MemoryReport| match report.state {
        MemoryState::Exchanged(k) => Some((k, report.start)),
        _ => None,
    };
    let all: Vec<(usize, u64)> = left.iter().filter_map(exchanged).collect();
    for &(k, start) in &all {
        if let Some((_, other)) = all.iter().find(|&&(other, at)| other == k && at != start) {
            let what = format!("panel {k} as of start {start} and as of start {other}");
            return Err(AbftRefusal::Mixture { what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(states: &[MemoryState]) -> Vec<MemoryReport> {
        let report = |(col, &state): (usize, &MemoryState)| MemoryReport {
            joined: 7,
            confirmed: 7,
            state,
            start: 7,
            ..MemoryReport::absent(0, col)
        };
        states.iter().enumerate().map(report).collect()
    }

    fn actions(states: &[MemoryState], checksums: usize) -> (usize, Vec<Action>) {
        match decide(&reports(states), checksums) {
            Ok(Decision::GoTo { cut, actions }) => (cut, actions),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_ranks_go_to_the_cut_after_the_last_common_exchange() {
        use Action::*;
        use MemoryState::*;
        let states = [Exchanged(4), Exchanged(3), Logged(4), Rest(4), Hollow(0)];
        assert_eq!(actions(&states, 1), (4, vec![Undo, Finish, PutBack, Stay, Rebuild]));
        let states = [Exchanged(4), Hollow(3), Exchanged(4), Hollow(0)];
        assert_eq!(actions(&states, 2), (5, vec![Finish, Rebuild, Finish, Rebuild]));
        let mut reports = reports(&[Exchanged(4), Exchanged(4), Exchanged(3)]);
        reports[0].is_summing = true;
        let actions = vec![Undo, Undo, Finish];
        assert_eq!(decide(&reports, 1), Ok(Decision::GoTo { cut: 4, actions }));
    }

    #[test]
    fn run_without_progress_starts_despite_any_loss() {
        use MemoryState::*;
        for states in [
            vec![Hollow(0), Hollow(0), Hollow(0)],
            vec![Hollow(0), Rest(0), Hollow(0)],
            vec![Exchanged(0), Logged(0), Hollow(0)],
        ] {
            assert_eq!(decide(&reports(&states), 1), Ok(Decision::Begin));
        }
    }

    #[test]
    fn x_is_taken_from_any_rank_that_has_it() {
        use MemoryState::*;
        let states = [Hollow(9), Rest(9), Solved, Hollow(0)];
        assert_eq!(decide(&reports(&states), 1), Ok(Decision::Solved { from: 2 }));
    }

    #[test]
    fn more_losses_than_checksums_are_refused() {
        use MemoryState::*;
        let refused = |states: &[MemoryState], ranks: &[usize]| {
            let refusal =
                AbftRefusal::Lost { row: 0, ranks: ranks.to_vec(), torn: Vec::new(), most: 1 };
            assert_eq!(decide(&reports(states), 1), Err(refusal));
        };
        refused(&[Hollow(0), Exchanged(0), Hollow(0)], &[0, 2]);
        // All ranks have lost what there was.
        refused(&[Hollow(3), Hollow(0), Hollow(0)], &[0, 1, 2]);
        let mut torn = reports(&[Exchanged(3), Exchanged(3), Exchanged(3)]);
        torn[0].is_torn = true;
        torn[1].is_torn = true;
        let refusal = AbftRefusal::Lost { row: 0, ranks: vec![0, 1], torn: vec![0, 1], most: 1 };
        assert_eq!(decide(&torn, 1), Err(refusal.clone()));
        let text = refusal.to_string();
        assert!(
            text.contains("process row 0")
                && text.contains("ranks 0, 1 (torn, as killed")
                && text.contains(": 0, 1)"),
            "{text}"
        );
    }

    #[test]
    fn rank_absent_in_a_followed_start_is_lost() {
        let mut all = reports(&[MemoryState::Rest(5), MemoryState::Rest(3), MemoryState::Rest(5)]);
        (all[1].joined, all[1].confirmed) = (6, 6);
        let actions = vec![Action::Stay, Action::Rebuild, Action::Stay];
        assert_eq!(decide(&all, 1), Ok(Decision::GoTo { cut: 5, actions }));
        // No rank has followed start 8: nothing has changed since start 7.
        let mut all = reports(&[MemoryState::Rest(5); 3]);
        all[1].joined = 8;
        assert!(matches!(decide(&all, 0), Ok(Decision::GoTo { cut: 5, .. })));
        // It joined start 7, which other ranks have followed.
        all[1] = MemoryReport { joined: 7, confirmed: 4, ..all[1] };
        assert!(matches!(decide(&all, 0), Ok(Decision::GoTo { cut: 5, .. })));
    }

    #[test]
    fn memory_continued_without_checksums_is_no_cut() {
        use MemoryState::*;
        let refused = |states: &[MemoryState], rank| {
            let refusal = AbftRefusal::Replaced { rank, column: 1 };
            assert_eq!(decide(&reports(states), 1), Err(refusal));
        };
        refused(&[Replaced(1), Hollow(0), Rest(4)], 0);
        refused(&[Rest(0), Hollow(0), Replaced(1)], 2);
        // x does not depend on the other states; stale memory is renewed.
        let solved = [Replaced(1), Hollow(0), Solved];
        assert_eq!(decide(&reports(&solved), 1), Ok(Decision::Solved { from: 2 }));
        let mut stale = reports(&[Rest(4), Replaced(1), Rest(4)]);
        (stale[1].joined, stale[1].confirmed) = (6, 6);
        assert!(matches!(decide(&stale, 1), Ok(Decision::GoTo { cut: 4, .. })));
    }

    #[test]
    fn ranks_continue_without_one_process_column() {
        use MemoryState::*;
        let mut two_rows = reports(&[Rest(4), Hollow(0), Rest(4), Rest(4), Hollow(3), Rest(4)]);
        two_rows
            .iter_mut()
            .skip(3)
            .for_each(|report| (report.row, report.col) = (1, report.col - 3));
        let refused = |reports: &[MemoryReport], column| {
            refuse_elsewhere(reports, &decide(reports, 1).unwrap(), column)
        };
        assert_eq!(refused(&two_rows, 1), Ok(()));
        assert_eq!(
            refused(&two_rows, 0),
            Err(AbftRefusal::Scattered { column: 0, ranks: vec![1, 4] })
        );
        two_rows.swap(3, 4);
        (two_rows[3].col, two_rows[4].col) = (0, 1);
        assert_eq!(
            refused(&two_rows, 1),
            Err(AbftRefusal::Scattered { column: 1, ranks: vec![3] })
        );
        // A system that begins is generated on all ranks.
        two_rows[0].state = Rest(0);
        two_rows.iter_mut().skip(2).for_each(|report| report.state = Rest(0));
        two_rows[3].state = Hollow(0);
        assert_eq!(refused(&two_rows, 1), Ok(()));
    }

    #[test]
    fn decoded_state_is_known_from_any_remaining_rank() {
        let [unchecked, unverified] = [(true, None), (false, Some((4, 4)))]
            .map(|(is_unchecked, unverified)| Decoded { is_unchecked, unverified, has_been: true });
        let mut all = reports(&[
            MemoryState::Rest(5),
            MemoryState::Rest(5),
            MemoryState::Hollow(5),
            MemoryState::Rest(5),
        ]);
        (all[0].decoded, all[2].decoded) = (unchecked, unverified);
        // The word of lost memory does not count.
        all[3].row = 1;
        assert_eq!(decoded(&all), [unchecked, Decoded::default()]);
        all[1].decoded = unverified;
        assert_eq!(decoded(&all), [unchecked.and(unverified), Decoded::default()]);
    }

    #[test]
    fn inconsistent_memories_are_refused() {
        let is_mixture = |reports: &[MemoryReport]| {
            let decided = decide(reports, 1);
            assert!(matches!(decided, Err(AbftRefusal::Mixture { .. })), "{decided:?}");
        };
        is_mixture(&reports(&[MemoryState::Rest(6), MemoryState::Rest(5)]));
        is_mixture(&reports(&[MemoryState::Exchanged(6), MemoryState::Exchanged(4)]));
        let mut two_histories = reports(&[MemoryState::Exchanged(5), MemoryState::Exchanged(5)]);
        two_histories[0].start = 3;
        is_mixture(&two_histories);
        let mut foreign = reports(&[MemoryState::Rest(5); 2]);
        foreign[1].is_foreign = true;
        assert_eq!(decide(&foreign, 1), Err(AbftRefusal::Foreign { rank: 1 }));
    }
}
