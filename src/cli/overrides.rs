//! The flags that override a configuration, one per parameter.

use clap::Args;

use super::flags::Names;
use skt_config::param::{Param, ValueKind};
use skt_config::value::Value;
use skt_config::{At, ConfigError, Draft, Output, ValueSource};

const PROBLEM: &str = "Problem (a list replaces the file's list)";
const PANEL: &str = "Panel factorization";
const TALK: &str = "Communication";
const MOOT: &str = "Accepted as in HPL.dat, without effect";

/// Flags that override a configuration. Values are kept as text, because the validator of
/// configurations checks names and HPL.dat codes alike.
#[derive(Debug, Clone, Default, Args)]
pub struct Overrides {
    #[arg(long, value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::N, "Orders of the matrices"))]
    pub(super) n: Vec<String>,
    #[arg(long, value_name = "NB,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::Nb, "Blocking factors"))]
    pub(super) nb: Vec<String>,
    #[arg(long, value_name = "P,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::P, "Rows of the process grids, one for each --q. Without a grid, all ranks form the one nearest to a square"))]
    pub(super) p: Vec<String>,
    #[arg(long, value_name = "Q,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::Q, "Columns of the process grids"))]
    pub(super) q: Vec<String>,
    #[arg(long, value_name = "MAP", value_parser = names(Param::Pmap))]
    #[arg(help_heading = PROBLEM, help = about(Param::Pmap, "Lay ranks over the grid row by row, or column by column"))]
    pub(super) pmap: Option<String>,
    #[arg(long, value_name = "REAL", allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::Threshold, "Scaled residual below which a test passes; 0 or less skips the check"))]
    pub(super) threshold: Option<String>,
    #[arg(long, value_name = "NAME", value_parser = names(Param::Generator))]
    #[arg(help_heading = PROBLEM, help = about(Param::Generator, "Random matrix: the reference's, bit for bit, or xoshiro256++"))]
    pub(super) generator: Option<String>,
    #[arg(long, value_name = "NAME", value_parser = names(Param::Transport))]
    #[arg(help_heading = TALK, help = about(Param::Transport, "How ranks of a node exchange panels and rows: in each other's memory, or by messages"))]
    pub(super) transport: Option<String>,
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    #[arg(help_heading = PROBLEM, help = about(Param::Threads, "Threads per rank"))]
    pub(super) threads: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = names(Param::Pin))]
    #[arg(help_heading = PROBLEM, help = about(Param::Pin, "Pin each thread to a core that no other process is pinned to, or leave threads to the system"))]
    pub(super) pin: Option<String>,

    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = names(Param::Pfact))]
    #[arg(help_heading = PANEL, help = about(Param::Pfact, "Variant of the factorization inside the recursion"))]
    pub(super) pfact: Vec<String>,
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = names(Param::Rfact))]
    #[arg(help_heading = PANEL, help = about(Param::Rfact, "Variant of the recursive factorization"))]
    pub(super) rfact: Vec<String>,
    #[arg(long, value_name = "COLS,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PANEL, help = about(Param::Nbmin, "Columns at which the recursion stops"))]
    pub(super) nbmin: Vec<String>,
    #[arg(long, value_name = "PARTS,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = PANEL, help = about(Param::Ndiv, "Parts into which the recursion divides a panel"))]
    pub(super) ndiv: Vec<String>,

    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = names(Param::Bcast))]
    #[arg(help_heading = TALK, help = about(Param::Bcast, "How a panel is broadcast along its process row; variants with M spare the owner of the next panel"))]
    pub(super) bcast: Vec<String>,
    #[arg(long, value_name = "D,..", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(help_heading = TALK, help = about(Param::Depth, "Look-ahead: panels factored ahead of the update"))]
    pub(super) depth: Vec<String>,
    #[arg(long, value_name = "NAME", value_parser = names(Param::Swap))]
    #[arg(help_heading = TALK, help = about(Param::Swap, "How rows are exchanged along a process column"))]
    pub(super) swap: Option<String>,
    #[arg(long, value_name = "COLS", allow_negative_numbers = true)]
    #[arg(help_heading = TALK, help = about(Param::SwapThreshold, "Local columns above which mix takes spread-roll, if P > 2"))]
    pub(super) swap_threshold: Option<String>,

    #[arg(long, value_name = "FORM", value_parser = names(Param::L1))]
    #[arg(help_heading = MOOT, help = about(Param::L1, "Form of L1. Reported, without effect"))]
    pub(super) l1: Option<String>,
    #[arg(long, value_name = "FORM", value_parser = names(Param::U))]
    #[arg(help_heading = MOOT, help = about(Param::U, "Form of U. Reported, without effect"))]
    pub(super) u: Option<String>,
    #[arg(long, visible_alias = "equil", value_name = "YES|NO", value_parser = names(Param::Equilibration))]
    #[arg(help_heading = MOOT, help = about(Param::Equilibration, "Equilibration. Reported, without effect"))]
    pub(super) equilibration: Option<String>,
    #[arg(long, visible_alias = "align", value_name = "DOUBLES", allow_negative_numbers = true)]
    #[arg(help_heading = MOOT, help = about(Param::Alignment, "Alignment in doubles. Reported; ours is at least that of a cache line"))]
    pub(super) alignment: Option<String>,
}

impl Overrides {
    /// The flags as a draft that overrides a file's draft. `out` names the report's file.
    ///
    /// # Errors
    /// `out` cannot be the name of a file.
    pub fn draft(&self, out: Option<&str>) -> Result<Draft, ConfigError> {
        let mut draft = Draft::default();
        if let Some(name) = out {
            let at = At::named("--out", &ValueSource::Flag);
            let named = if name == "-" { Ok(Output::Stdout) } else { Output::from_name(name) };
            let output =
                named.map_err(|what| ConfigError::BadText { at, what: what.to_owned() })?;
            draft.output = Some(output);
        }
        for (param, texts) in self.given() {
            draft.values.insert(param, texts.iter().map(Value::flag).collect());
        }
        Ok(draft)
    }

    /// The parameters that were given, with their values.
    fn given(&self) -> impl Iterator<Item = (Param, &[String])> {
        let all: [(Param, &[String]); 22] = [
            (Param::N, &self.n),
            (Param::Nb, &self.nb),
            (Param::Pmap, self.pmap.as_slice()),
            (Param::P, &self.p),
            (Param::Q, &self.q),
            (Param::Threshold, self.threshold.as_slice()),
            (Param::Pfact, &self.pfact),
            (Param::Nbmin, &self.nbmin),
            (Param::Ndiv, &self.ndiv),
            (Param::Rfact, &self.rfact),
            (Param::Bcast, &self.bcast),
            (Param::Depth, &self.depth),
            (Param::Swap, self.swap.as_slice()),
            (Param::SwapThreshold, self.swap_threshold.as_slice()),
            (Param::L1, self.l1.as_slice()),
            (Param::U, self.u.as_slice()),
            (Param::Equilibration, self.equilibration.as_slice()),
            (Param::Alignment, self.alignment.as_slice()),
            (Param::Generator, self.generator.as_slice()),
            (Param::Threads, self.threads.as_slice()),
            (Param::Transport, self.transport.as_slice()),
            (Param::Pin, self.pin.as_slice()),
        ];
        all.into_iter().filter(|(_, texts)| !texts.is_empty())
    }
}

/// The help of a flag: what it is, what is legal, and its default.
fn about(param: Param, what: &str) -> String {
    let info = param.info();
    let mut notes = Vec::new();
    if !matches!(info.kind, ValueKind::Choice(_)) {
        notes.push(info.legal(true));
    }
    if !info.default.is_empty() {
        notes.push(format!("default {}", info.default));
    }
    format!("{what} [{}]", notes.join("; "))
}

/// The names of a choice, for help and completions.
fn names(param: Param) -> Names {
    match param.info().kind {
        ValueKind::Choice(choices) => Names(choices.iter().map(|names| names[0]).collect()),
        _ => unreachable!("{param:?} is no choice"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use skt_config::param::PARAMS;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        overrides: Overrides,
    }

    #[test]
    fn each_parameter_has_its_flag_and_the_flag_sets_it() {
        for info in &PARAMS {
            let only = Only::parse_from(["x", &info.flag(), "7"]);
            let draft = only.overrides.draft(None).unwrap();
            let params: Vec<_> = draft.values.keys().copied().collect();
            assert_eq!(params, [info.param], "{}", info.key);
        }
    }

    #[test]
    fn lists_are_cut_at_commas_where_hpldat_has_lists() {
        for info in &PARAMS {
            let only = Only::parse_from(["x", &info.flag(), "1,2"]);
            let draft = only.overrides.draft(None).unwrap();
            let want = if info.is_list { 2 } else { 1 };
            assert_eq!(draft.values[&info.param].len(), want, "{}", info.key);
        }
    }

    #[test]
    fn moot_flags_say_so() {
        let help = Only::command().render_long_help().to_string();
        assert!(help.contains(MOOT), "{help}");
    }
}
