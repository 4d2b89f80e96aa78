//! The table of HPL's parameters and of ours that are next to them in TOML.
//!
//! Everything that reads, checks, writes or documents a configuration works from [`PARAMS`], so
//! that each parameter is described once.

use skt_host::choice::{
    Bcast, Fact, Form, GemmPrecision, Generator, MxpMatrix, Pin, Pmap, Swap, Transport,
};
use skt_host::layout::N_MAX;

use super::field::Field;
use super::spec::RunSpec;
use super::value::{DatLine, INT_MAX, Range, Row, Table, Written, settings};

/// The largest number of values in a list (`HPL_MAX_PARAM`).
pub(crate) const MAX_LIST: usize = 20;

pub(crate) const PROBLEM: &str = "Problem (a list replaces the file's list)";
pub(crate) const PANEL: &str = "Panel factorization";
pub(crate) const COMMUNICATION: &str = "Communication";
pub const IGNORED: &str = "Accepted as in HPL.dat, without effect";

const ANY_COUNT: Option<Range> = Some(Range::whole(0, INT_MAX));
const FROM_ONE: Option<Range> = Some(Range::whole(1, INT_MAX));
const FACT_CODES: &str = " (0=left, 1=Crout, 2=Right)";
const FORM_CODES: &str = " in ({codes}) form";
const GRIDS: &str = "# of process grids (P x Q)";

const fn line(line: usize, name: &'static str, note: &'static str) -> DatLine {
    DatLine { line, name, note, ..DatLine::NONE }
}

settings! {
    /// A parameter of a run that takes numbers or names. The two title lines and the report's file
    /// are the other parameters.
    Param;
    /// The table of all parameters, in the order of a TOML configuration.
    PARAMS;
    type Typed = RunSpec;
    type Field = dyn Field;
    const HAS_CODES: bool = true;

    N {
        key: "n", heading: PROBLEM, metavar: "N,..", written: Written::Whole, is_list: true,
        range: Some(Range::whole(0, N_MAX)), help: "orders of the matrices",
        comment: "Order of the matrix.",
        dat: Some(DatLine { count: "# of problem sizes (N)", ..line(6, "Ns", "") }),
        field: Some(|spec| &mut spec.n),
    }
    Nb {
        key: "nb", heading: PROBLEM, metavar: "NB,..", written: Written::Whole, is_list: true,
        range: FROM_ONE, default: "192", help: "blocking factors",
        more: "; may be larger than N", comment: "Blocking factor, {legal}.",
        dat: Some(DatLine { count: "# of NBs", ..line(8, "NBs", "") }),
        field: Some(|spec| &mut spec.nb),
    }
    P {
        key: "p", heading: PROBLEM, metavar: "P,..", written: Written::Whole, is_list: true,
        range: FROM_ONE,
        help: "rows of the process grids, one for each --q. Without a grid, all ranks form the \
               one nearest to a square",
        comment: "Process grids: one Q for each P. P <= Q is usually best.",
        dat: Some(DatLine { count: GRIDS, ..line(11, "Ps", "") }),
    }
    Q {
        key: "q", heading: PROBLEM, metavar: "Q,..", written: Written::Whole, is_list: true,
        range: FROM_ONE, help: "columns of the process grids", comment: NO_COMMENT,
        dat: Some(DatLine { count: GRIDS, ..line(12, "Qs", "") }),
    }
    Pmap {
        key: "pmap", heading: PROBLEM, metavar: "MAP", choices: Pmap::CHOICES, default: "row",
        help: "lay ranks over the grid row by row, or column by column",
        comment: "Ranks are laid over the grid row by row, or by column.",
        dat: Some(DatLine {
            substitute: Some(0),
            ..line(9, "PMAP", " process mapping (0=Row-,1=Column-major)")
        }),
        field: Some(|spec| &mut spec.pmap),
    }
    Threshold {
        key: "threshold", heading: PROBLEM, metavar: "REAL", written: Written::Real,
        legal: "a finite number, e.g. 16.0", default: "16.0",
        help: "scaled residual below which a test passes; 0 or less skips the check",
        comment: "A test passes below this scaled residual; 0 or less skips the check.",
        dat: Some(line(13, "threshold", "")),
        field: Some(|spec| &mut spec.threshold),
    }
    Pfact {
        key: "pfact", heading: PANEL, metavar: "NAME,..", is_list: true, choices: Fact::CHOICES,
        default: "right", help: "variant of the factorization inside the recursion",
        comment: "Inside the recursion: {legal}.",
        dat: Some(DatLine {
            count: "# of panel fact",
            substitute: Some(2),
            ..line(15, "PFACTs", FACT_CODES)
        }),
        field: Some(|spec| &mut spec.pfact),
    }
    Nbmin {
        key: "nbmin", heading: PANEL, metavar: "COLS,..", written: Written::Whole, is_list: true,
        range: FROM_ONE, default: "4", help: "columns at which the recursion stops",
        comment: "The recursion stops at this many columns, {legal}.",
        dat: Some(DatLine {
            count: "# of recursive stopping criterium",
            ..line(17, "NBMINs", " (>= 1)")
        }),
        field: Some(|spec| &mut spec.nbmin),
    }
    Ndiv {
        key: "ndiv", heading: PANEL, metavar: "PARTS,..", written: Written::Whole, is_list: true,
        range: Some(Range::whole(2, INT_MAX)), default: "2",
        help: "parts into which the recursion divides a panel",
        comment: "Parts into which the recursion cuts a panel, {legal}.",
        dat: Some(DatLine { count: "# of panels in recursion", ..line(19, "NDIVs", "") }),
        field: Some(|spec| &mut spec.ndiv),
    }
    Rfact {
        key: "rfact", heading: PANEL, metavar: "NAME,..",
        is_list: true, choices: Fact::CHOICES, default: "crout",
        help: "variant of the recursive factorization",
        comment: "The recursion itself: {legal}.",
        dat: Some(DatLine {
            count: "# of recursive panel fact.",
            substitute: Some(2),
            ..line(21, "RFACTs", FACT_CODES)
        }),
        field: Some(|spec| &mut spec.rfact),
    }
    Bcast {
        key: "bcast", heading: COMMUNICATION, metavar: "NAME,..", is_list: true,
        choices: Bcast::CHOICES, default: "1ringM",
        help: "how a panel is broadcast along its process row; variants with M spare the owner of \
               the next panel",
        comment: "Panel broadcast: {legal}.",
        dat: Some(DatLine {
            count: "# of broadcast",
            substitute: Some(1),
            ..line(23, "BCASTs", " ({codes})")
        }),
        field: Some(|spec| &mut spec.bcast),
    }
    Depth {
        key: "depth", heading: COMMUNICATION, metavar: "D,..", written: Written::Whole,
        is_list: true, range: ANY_COUNT, default: "1",
        help: "look-ahead: panels factored ahead of the update",
        comment: "Look-ahead: panels factored ahead of the update, {legal}.",
        dat: Some(DatLine { count: "# of lookahead depth", ..line(25, "DEPTHs", " (>=0)") }),
        field: Some(|spec| &mut spec.depth),
    }
    Swap {
        key: "swap", heading: COMMUNICATION, metavar: "NAME", choices: Swap::CHOICES, default: "mix",
        help: "how rows are exchanged along a process column",
        more: "; mix also splits a wide trailing matrix: it exchanges the rows of one half while \
               it multiplies the other",
        comment: "Row exchange: binary-exchange, spread-roll, or mix, which takes\n\
                  # spread-roll above swap_threshold local columns.",
        dat: Some(DatLine {
            substitute: Some(1),
            ..line(26, "SWAP", " ({codes})")
        }),
        field: Some(|spec| &mut spec.swap),
    }
    SwapThreshold {
        key: "swap_threshold", heading: COMMUNICATION, metavar: "COLS", written: Written::Whole,
        range: ANY_COUNT, default: "64",
        help: "local columns above which mix takes spread-roll, if P > 2",
        more: "; mix splits only if each half has at least 16 times that many columns",
        comment: NO_COMMENT,
        dat: Some(DatLine { substitute: Some(0), ..line(27, "swapping threshold", "") }),
        field: Some(|spec| &mut spec.swap_threshold),
    }
    L1 {
        key: "l1", heading: IGNORED, metavar: "FORM", choices: Form::CHOICES, default: "transposed",
        help: "form of L1. Reported, without effect", comment: NO_COMMENT,
        dat: Some(DatLine { substitute: Some(0), ..line(28, "L1", FORM_CODES) }),
        field: Some(|spec| &mut spec.l1),
    }
    U {
        key: "u", heading: IGNORED, metavar: "FORM", choices: Form::CHOICES, default: "transposed",
        help: "form of U. Reported, without effect", comment: NO_COMMENT,
        dat: Some(DatLine {
            substitute: Some(0),
            // One more blank than L1, so that the notes are in one column.
            ..line(29, "U", "  in ({codes}) form")
        }),
        field: Some(|spec| &mut spec.u),
    }
    Equilibration {
        key: "equilibration", alias: "equil", heading: IGNORED, metavar: "YES|NO",
        written: Written::Flag, choices: &[&["no", "false"], &["yes", "true"]], default: "yes",
        help: "equilibration. Reported, without effect", comment: NO_COMMENT,
        dat: Some(DatLine { substitute: Some(1), ..line(30, "Equilibration", " (0=no,1=yes)") }),
        field: Some(|spec| &mut spec.equilibration),
    }
    Alignment {
        key: "alignment", alias: "align", heading: IGNORED, metavar: "DOUBLES",
        written: Written::Whole, range: FROM_ONE, default: "8",
        help: "alignment in doubles. Reported; ours is at least that of a cache line",
        comment: NO_COMMENT,
        dat: Some(DatLine {
            substitute: Some(4),
            ..line(31, "memory alignment", " in double (> 0)")
        }),
        field: Some(|spec| &mut spec.align_doubles),
    }
    Generator {
        key: "generator", heading: PROBLEM, metavar: "NAME",
        choices: Generator::CHOICES, default: "hpl",
        help: "random matrix: the reference's, bit for bit, or xoshiro256++",
        comment: "The random matrix: hpl (the reference's, bit for bit), xoshiro.",
        field: Some(|spec| &mut spec.generator),
    }
    Threads {
        key: "threads", heading: PROBLEM, metavar: "T",
        written: Written::Whole, range: Some(Range::whole(1, 4096)), default: "1",
        help: "threads per rank", comment: "Threads of each rank.",
        field: Some(|spec| &mut spec.threads),
    }
    Transport {
        key: "transport", heading: COMMUNICATION,
        metavar: "NAME", choices: Transport::CHOICES, default: "shared",
        help: "how ranks of a node exchange panels and rows: in each other's memory, or by \
               messages",
        more: ". shared: ranks of one node read from the owner's memory: panels along a process \
               row, rows and pivots along a process column. Ranks of different nodes, and all \
               with `abft`, send messages",
        comment: "Between ranks of a node: shared (they read panels and rows in each other's\n\
                  # memory), or messages.",
        field: Some(|spec| &mut spec.transport),
    }
    Pin {
        key: "pin", heading: PROBLEM, metavar: "HOW",
        choices: Pin::CHOICES, default: "auto",
        help: "pin each thread to a core that no other process is pinned to, or leave threads to \
               the system",
        more: "; none is also off. [Cores of their own](user-guide.md#run-on-a-cluster)",
        comment: "Threads: pinned to cores that no other process is pinned to (auto), or not \
                  (none).",
        field: Some(|spec| &mut spec.pin),
    }
    Blas {
        key: "blas", heading: PROBLEM, metavar: "LIBRARY",
        legal: "auto, built-in, the name of a library, or a file",
        default: "(the first that the loader finds, else built-in)",
        help: "BLAS to call: the fastest here (auto), the built-in one, or another by its name, \
               e.g. mkl_rt, or by its file",
        more: ". [The BLAS](user-guide.md#the-blas)",
        comment: "The BLAS: auto, built-in, the name of a library, or a file.",
        example: "mkl_rt",
        field: Some(|spec| &mut spec.blas),
    }
    Rates {
        key: "rates", heading: PROBLEM, metavar: "auto|LIST|FILE",
        legal: "auto, positive numbers, one for each process column, or a file", default: "(equal)",
        help: "relative rates of the process columns, which get block columns in proportion: \
               those of DGEMM at the first start (auto), a list, e.g. 1,2, or a file with a rate \
               for each rank on a line",
        more: ". [Nodes of unequal speed](user-guide.md#nodes-of-unequal-speed)",
        comment: "Relative rates of the process columns: auto (measured at the first start), a\n\
                  # list, or a file with a rate for each rank on a line.",
        example: "1,2",
        field: Some(|spec| &mut spec.rates),
    }
    Matrix {
        key: "matrix", heading: PROBLEM, metavar: "NAME", choices: MxpMatrix::CHOICES,
        default: "fasi-higham",
        help: "matrix of HPL-MxP: Fasi and Higham's, HPL's random one with a scaled diagonal, or, \
               for tests, with a dominant diagonal",
        more: ". For [`skt-hpl mxp`](mxp.md) alone",
        comment: "The matrix of HPL-MxP: {legal}.",
        example: "scaled",
        field: Some(|spec| &mut spec.mxp),
    }
    Gemm {
        key: "gemm", heading: PROBLEM, metavar: "NAME", choices: GemmPrecision::CHOICES,
        default: "fp32",
        help: "precision of the operands of the products in HPL-MxP: single; bf16, by a library \
               that multiplies it; or, to study convergence, rounded to bf16 and multiplied by \
               SGEMM",
        more: ". For [`skt-hpl mxp`](mxp.md#products-in-bf16) alone",
        comment: "Operands of the products in HPL-MxP: {legal}.",
        example: "bf16",
        field: Some(|spec| &mut spec.gemm),
    }
}

impl Param {
    pub const OF_MXP: [Self; 2] = [Self::Matrix, Self::Gemm];

    pub fn is_of_mxp(self) -> bool {
        Self::OF_MXP.contains(&self)
    }
}

/// For a key that the comment above it describes, too.
pub(super) const NO_COMMENT: &str = "-";

/// All parameters: those of HPL.dat in its order, then ours.
pub(crate) fn in_dat_order() -> Vec<&'static Row<Param>> {
    let mut rows: Vec<_> = PARAMS.iter().collect();
    rows.sort_by_key(|row| row.dat.map_or(usize::MAX, |dat| dat.line));
    rows
}

impl Row<Param> {
    pub(super) fn texts(&self, spec: &mut RunSpec) -> Vec<String> {
        match (self.setting, self.field) {
            (Param::P, _) => spec.grids.iter().map(|(p, _)| p.to_string()).collect(),
            (Param::Q, _) => spec.grids.iter().map(|(_, q)| q.to_string()).collect(),
            (_, Some(field)) => field(spec).texts(),
            (_, None) => unreachable!("{} has a field", self.key),
        }
    }

    /// The texts of the default; none if it is in words.
    pub(super) fn default_texts(&self) -> Vec<String> {
        Vec::from_iter(self.has_default_value().then(|| self.default.to_owned()))
    }

    /// The comment of the values in HPL.dat; codes have the shortest names that HPL.dat's users
    /// know, which are the last.
    pub(super) fn dat_comment(&self, dat: &DatLine) -> String {
        let names = self.choices.iter().map(|names| names[names.len() - 1]);
        let codes: Vec<_> =
            names.enumerate().map(|(code, name)| format!("{code}={name}")).collect();
        dat.name.to_owned() + &dat.note.replace("{codes}", &codes.join(","))
    }

    /// Describes the legal values for HPL.dat, which has codes only.
    pub(super) fn legal_in_dat(&self) -> String {
        if self.choices.is_empty() {
            return self.legal();
        }
        let names = self.names();
        let coded = names.iter().enumerate().map(|(code, name)| format!("{code} ({name})"));
        coded.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_in_its_own_row() {
        for (row, info) in PARAMS.iter().enumerate() {
            assert_eq!(info.setting as usize, row, "{}", info.key);
            let of_grids = matches!(info.setting, Param::P | Param::Q);
            assert_eq!(info.field.is_none(), of_grids, "{}", info.key);
        }
    }

    #[test]
    fn no_name_is_taken_twice() {
        for info in PARAMS {
            let all = info.choices.iter().flat_map(|names| names.iter());
            let mut names: Vec<_> = all.map(|name| name.to_lowercase()).collect();
            names.sort();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", info.key);
        }
    }
}
