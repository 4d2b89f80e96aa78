//! The table of parameters: names in each form, legal values, defaults.
//!
//! Everything that reads, checks, writes or documents a configuration works from [`PARAMS`], so
//! that each parameter is described once.

use std::fmt::Write as _;

use skt_terms::choice::{Bcast, Fact, Generator, Pin, Pmap, Swap, Transport};
use skt_terms::layout::N_MAX;

/// The largest value of a C `int`, which the reference and MPI count with.
const INT_MAX: i128 = i32::MAX as i128;

/// The largest number of values in a list (`HPL_MAX_PARAM`).
pub const MAX_LIST: usize = 20;

/// A parameter of a run that takes numbers or names. The two title lines and the report's file are
/// the other parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // each is described where it ends up, in `RunSpec`
pub enum Param {
    N,
    Nb,
    Pmap,
    P,
    Q,
    Threshold,
    Pfact,
    Nbmin,
    Ndiv,
    Rfact,
    Bcast,
    Depth,
    Swap,
    SwapThreshold,
    L1,
    U,
    Equilibration,
    Alignment,
    Generator,
    Threads,
    Transport,
    Pin,
}

/// What values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// A whole number in this range, ends included.
    Whole {
        /// Smallest legal value.
        min: i128,
        /// Largest legal value.
        max: i128,
    },
    /// A finite real number.
    Real,
    /// One of these choices. The index is the code in HPL.dat; the first name of a choice is the
    /// one that is written, the others are accepted, too.
    Choice(&'static [&'static [&'static str]]),
}

/// The description of a parameter.
#[derive(Debug, Clone, Copy)]
pub struct ParamInfo {
    /// The parameter.
    pub param: Param,
    /// The name in HPL.dat's comments; empty if HPL.dat cannot hold the parameter.
    pub dat_name: &'static str,
    /// The name of the count of its values in HPL.dat's comments.
    pub dat_count_name: &'static str,
    /// The key in TOML; the flag is `--` and the key with `-` for `_`.
    pub key: &'static str,
    /// Whether the parameter takes a list of values.
    pub is_list: bool,
    /// Legal values.
    pub kind: ValueKind,
    /// The value that the reference substitutes for an illegal one, without a message.
    pub reference_substitute: Option<usize>,
    /// The default, as it would be written in TOML; empty if there is none.
    pub default: &'static str,
}

const FACTS: ValueKind = ValueKind::Choice(Fact::NAMES);
const FORMS: ValueKind = ValueKind::Choice(&[&["transposed"], &["no-transposed"]]);
const ANY_COUNT: ValueKind = ValueKind::Whole { min: 0, max: INT_MAX };
const FROM_ONE: ValueKind = ValueKind::Whole { min: 1, max: INT_MAX };

const NONE: ParamInfo = ParamInfo {
    param: Param::N,
    dat_name: "",
    dat_count_name: "",
    key: "",
    is_list: false,
    kind: ValueKind::Real,
    reference_substitute: None,
    default: "",
};

/// All parameters: those of HPL.dat in its order, then ours.
pub const PARAMS: [ParamInfo; 22] = [
    ParamInfo {
        param: Param::N,
        dat_name: "Ns",
        dat_count_name: "# of problem sizes (N)",
        key: "n",
        is_list: true,
        kind: ValueKind::Whole { min: 0, max: N_MAX as i128 },
        ..NONE
    },
    ParamInfo {
        param: Param::Nb,
        dat_name: "NBs",
        dat_count_name: "# of NBs",
        key: "nb",
        is_list: true,
        kind: FROM_ONE,
        default: "192",
        ..NONE
    },
    ParamInfo {
        param: Param::Pmap,
        dat_name: "PMAP",
        key: "pmap",
        kind: ValueKind::Choice(Pmap::NAMES),
        reference_substitute: Some(0),
        default: "row",
        ..NONE
    },
    ParamInfo {
        param: Param::P,
        dat_name: "Ps",
        dat_count_name: "# of process grids (P x Q)",
        key: "p",
        is_list: true,
        kind: FROM_ONE,
        ..NONE
    },
    ParamInfo {
        param: Param::Q,
        dat_name: "Qs",
        dat_count_name: "# of process grids (P x Q)",
        key: "q",
        is_list: true,
        kind: FROM_ONE,
        ..NONE
    },
    ParamInfo {
        param: Param::Threshold,
        dat_name: "threshold",
        key: "threshold",
        kind: ValueKind::Real,
        default: "16.0",
        ..NONE
    },
    ParamInfo {
        param: Param::Pfact,
        dat_name: "PFACTs",
        dat_count_name: "# of panel fact",
        key: "pfact",
        is_list: true,
        kind: FACTS,
        reference_substitute: Some(2),
        default: "right",
    },
    ParamInfo {
        param: Param::Nbmin,
        dat_name: "NBMINs",
        dat_count_name: "# of recursive stopping criterium",
        key: "nbmin",
        is_list: true,
        kind: FROM_ONE,
        default: "4",
        ..NONE
    },
    ParamInfo {
        param: Param::Ndiv,
        dat_name: "NDIVs",
        dat_count_name: "# of panels in recursion",
        key: "ndiv",
        is_list: true,
        kind: ValueKind::Whole { min: 2, max: INT_MAX },
        default: "2",
        ..NONE
    },
    ParamInfo {
        param: Param::Rfact,
        dat_name: "RFACTs",
        dat_count_name: "# of recursive panel fact.",
        key: "rfact",
        is_list: true,
        kind: FACTS,
        reference_substitute: Some(2),
        default: "crout",
    },
    ParamInfo {
        param: Param::Bcast,
        dat_name: "BCASTs",
        dat_count_name: "# of broadcast",
        key: "bcast",
        is_list: true,
        kind: ValueKind::Choice(Bcast::NAMES),
        reference_substitute: Some(1),
        default: "1ringM",
    },
    ParamInfo {
        param: Param::Depth,
        dat_name: "DEPTHs",
        dat_count_name: "# of lookahead depth",
        key: "depth",
        is_list: true,
        kind: ANY_COUNT,
        default: "1",
        ..NONE
    },
    ParamInfo {
        param: Param::Swap,
        dat_name: "SWAP",
        key: "swap",
        kind: ValueKind::Choice(Swap::NAMES),
        reference_substitute: Some(1),
        default: "mix",
        ..NONE
    },
    ParamInfo {
        param: Param::SwapThreshold,
        dat_name: "swapping threshold",
        key: "swap_threshold",
        kind: ANY_COUNT,
        reference_substitute: Some(0),
        default: "64",
        ..NONE
    },
    ParamInfo {
        param: Param::L1,
        dat_name: "L1",
        key: "l1",
        kind: FORMS,
        reference_substitute: Some(0),
        default: "transposed",
        ..NONE
    },
    ParamInfo {
        param: Param::U,
        dat_name: "U",
        key: "u",
        kind: FORMS,
        reference_substitute: Some(0),
        default: "transposed",
        ..NONE
    },
    ParamInfo {
        param: Param::Equilibration,
        dat_name: "Equilibration",
        key: "equilibration",
        kind: ValueKind::Choice(&[&["no", "false"], &["yes", "true"]]),
        reference_substitute: Some(1),
        default: "yes",
        ..NONE
    },
    ParamInfo {
        param: Param::Alignment,
        dat_name: "memory alignment",
        key: "alignment",
        kind: FROM_ONE,
        reference_substitute: Some(4),
        default: "8",
        ..NONE
    },
    ParamInfo {
        param: Param::Generator,
        key: "generator",
        kind: ValueKind::Choice(Generator::NAMES),
        default: "hpl",
        ..NONE
    },
    ParamInfo {
        param: Param::Threads,
        key: "threads",
        kind: ValueKind::Whole { min: 1, max: 4096 },
        default: "1",
        ..NONE
    },
    ParamInfo {
        param: Param::Transport,
        key: "transport",
        kind: ValueKind::Choice(Transport::NAMES),
        default: "shared",
        ..NONE
    },
    ParamInfo {
        param: Param::Pin,
        key: "pin",
        kind: ValueKind::Choice(Pin::NAMES),
        default: "auto",
        ..NONE
    },
];

impl Param {
    /// This parameter's row of [`PARAMS`].
    pub fn info(self) -> &'static ParamInfo {
        &PARAMS[self as usize]
    }
}

impl ParamInfo {
    /// The parameter's flag, e.g. `--swap-threshold`.
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// Describes the legal values. `names` is true where names are accepted, and false for HPL.dat,
    /// which has codes only.
    pub fn legal(&self, names: bool) -> String {
        match self.kind {
            ValueKind::Real => "a finite number, e.g. 16.0".to_owned(),
            ValueKind::Whole { min, max: INT_MAX } => format!("{min} or more"),
            ValueKind::Whole { min, max } => format!("{min} to {max}"),
            ValueKind::Choice(choices) => {
                let mut text = String::new();
                for (code, choice) in choices.iter().enumerate() {
                    let comma = if code == 0 { "" } else { ", " };
                    let name = choice[0];
                    // Writing to a String cannot fail.
                    let _ = if names {
                        write!(text, "{comma}{name} ({code})")
                    } else {
                        write!(text, "{comma}{code} ({name})")
                    };
                }
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_in_its_own_row() {
        for (row, info) in PARAMS.iter().enumerate() {
            assert_eq!(info.param as usize, row, "{}", info.key);
        }
    }

    #[test]
    fn no_name_is_taken_twice() {
        for info in &PARAMS {
            let ValueKind::Choice(choices) = info.kind else { continue };
            let mut names: Vec<_> =
                choices.iter().flat_map(|c| c.iter()).map(|n| n.to_lowercase()).collect();
            names.sort();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", info.key);
        }
    }
}
