//! Wrong numbers in the matrix that the checksums notice but cannot correct.

use std::fmt;

/// Most suspects that a message lists by name, as a longer list would not fit into a line.
const MAX_NAMED: usize = 16;

/// Wrong numbers in the matrix that have not been corrected, which ends the run. A wrong number
/// stays in its process column, but spreads to lower rows there, and row exchanges move rows to
/// other process rows. So the process column is certain if the checksums locate it; the suspects
/// are those of its ranks that have wrong rows now.
#[derive(Debug, Clone, PartialEq)]
pub struct WrongNumbers {
    /// Columns eliminated when the wrong numbers were noticed.
    pub column: usize,
    /// The global row, from 0, with the largest deviation.
    pub row: usize,
    /// The deviation of that row, in units of rounding.
    pub units: f64,
    pub process_row: usize,
    /// Rows that are known to be wrong, in all process rows.
    pub rows: usize,
    /// The process column they come from, Q or more for checksums; `None` if not located.
    pub process_column: Option<usize>,
    /// Ranks of the grid that they may come from, in ascending order; if empty, any.
    pub suspects: Vec<usize>,
    /// The rank of the grid whose checksums have noticed the wrong numbers.
    pub noticed_by: usize,
    pub why: NotCorrected,
    /// Whether all ranks of the grid return this error; else only `noticed_by` does.
    pub is_known_to_all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCorrected {
    OneChecksum,
    OneIsLeft,
    /// Data was rebuilt, and no check has agreed since.
    Rebuilt,
    /// No single process column explains the wrong numbers.
    Scattered,
    /// Recomputed rows are wrong again. A wrong L, which leaves nonzeros below the diagonal of a
    /// panel, also has this effect until the panel's group ends.
    Again,
    /// The column was eliminated before a check.
    Eliminated,
    /// A rebuilding gives other numbers than a surviving rank has.
    Rebuilding,
}

impl NotCorrected {
    /// All reasons. Messages between ranks have the position of a reason in this list.
    pub(super) const ALL: [Self; 7] = [
        Self::OneChecksum,
        Self::OneIsLeft,
        Self::Rebuilt,
        Self::Scattered,
        Self::Again,
        Self::Eliminated,
        Self::Rebuilding,
    ];
}

impl fmt::Display for NotCorrected {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::OneChecksum => {
                "One parity notices a wrong number, but cannot locate or correct it"
            }
            Self::OneIsLeft => {
                "The parity that the lost ranks leave notices a wrong number, but cannot locate or \
                 correct it"
            }
            Self::Rebuilt => {
                "Between a rebuilding and the first check that agrees, no number can be corrected"
            }
            Self::Scattered => {
                "No single process column explains it, so it can be neither located nor corrected"
            }
            Self::Again => {
                "What was recomputed is wrong again: its panel had been factored, too late to \
                 correct it, or more numbers go wrong"
            }
            Self::Eliminated => {
                "Its column had been eliminated when it was noticed, too late to correct it"
            }
            Self::Rebuilding => "A rebuilding gives another number than a surviving rank has",
        })
    }
}

impl WrongNumbers {
    pub fn describe(&self, name: impl Fn(usize) -> String) -> String {
        let Self { column, row, units, process_row, rows, noticed_by, why, .. } = self;
        let more = match rows.saturating_sub(1) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "the checksums contradict row {row} of the matrix (process row {process_row}){more}, at \
             column {column} of the elimination, by {units:.3e} times the rounding error; {} \
             noticed. {}. {why}",
            name(*noticed_by),
            self.origin(&name)
        )
    }

    fn origin(&self, name: &impl Fn(usize) -> String) -> String {
        let who = match &self.suspects[..] {
            [] => return "Any rank may have given the wrong number".to_owned(),
            [rank] => name(*rank),
            ranks if ranks.len() > MAX_NAMED => format!("one of {} ranks", ranks.len()),
            ranks => {
                let ranks: Vec<String> = ranks.iter().map(|&rank| name(rank)).collect();
                format!("one of {}", ranks.join(", "))
            }
        };
        let of = match self.process_column {
            Some(column) => format!(" of process column {column}"),
            None => String::new(),
        };
        format!("The wrong number comes from {who}{of}, its memory or a link to it")
    }
}

impl fmt::Display for WrongNumbers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.describe(|rank| format!("rank {rank}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong() -> WrongNumbers {
        WrongNumbers {
            column: 640,
            row: 1500,
            units: 1.5e9,
            process_row: 1,
            rows: 3,
            process_column: Some(0),
            suspects: vec![4],
            noticed_by: 7,
            why: NotCorrected::Eliminated,
            is_known_to_all: true,
        }
    }

    #[test]
    fn suspect_is_distinguished_from_the_noticing_rank() {
        let host = |rank: usize| format!("rank {rank} (n{rank})");
        assert_eq!(
            wrong().describe(host),
            "the checksums contradict row 1500 of the matrix (process row 1) and 2 more, at column \
             640 of the elimination, by 1.500e9 times the rounding error; rank 7 (n7) noticed. The \
             wrong number comes from rank 4 (n4) of process column 0, its memory or a link to it. \
             Its column had been eliminated when it was noticed, too late to correct it"
        );
        let one = WrongNumbers {
            rows: 1,
            process_column: None,
            suspects: vec![4, 5, 7],
            why: NotCorrected::OneChecksum,
            ..wrong()
        };
        assert_eq!(
            one.to_string(),
            "the checksums contradict row 1500 of the matrix (process row 1), at column 640 of the \
             elimination, by 1.500e9 times the rounding error; rank 7 noticed. The wrong number \
             comes from one of rank 4, rank 5, rank 7, its memory or a link to it. One parity \
             notices a wrong number, but cannot locate or correct it"
        );
        let any = WrongNumbers { suspects: Vec::new(), process_column: None, ..one };
        assert!(any.to_string().contains("Any rank may have given the wrong number. One parity"));
        let many = WrongNumbers { suspects: (0..17).collect(), ..any };
        assert!(many.to_string().contains("comes from one of 17 ranks, its memory"));
    }

    #[test]
    fn each_reason_has_its_position() {
        for (at, why) in NotCorrected::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at);
        }
    }
}
