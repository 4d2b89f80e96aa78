//! The validated description of a run, as given by an HPL.dat or a TOML file.

use std::path::PathBuf;

use super::rates::RateSource;
use serde::{Deserialize, Serialize};
pub use skt_host::choice::{
    Bcast, Fact, Form, GemmPrecision, Generator, MxpMatrix, Pin, Pmap, Refinement, Swap, Transport,
};
use skt_host::columns::ColumnMap;
use skt_solver::pfact::Variant;
use skt_solver::pgesv::Params;

/// Where the report goes (HPL.dat lines 3 and 4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// Standard output (device 6).
    #[default]
    Stdout,
    /// Standard error (device 7).
    Stderr,
    /// The named file (any other device).
    File(PathBuf),
}

impl Output {
    /// The file named `name`: the file names `stdout` and `stderr` become `./stdout` and
    /// `./stderr`, so that each form of configuration can hold them.
    pub(crate) fn file(name: &str) -> Result<Output, &'static str> {
        if name.is_empty() {
            return Err("the report goes to a file, but no file name is given");
        }
        if name.chars().any(char::is_control) {
            return Err("the file name has control characters");
        }
        Ok(match name {
            "stdout" | "stderr" => Output::File(PathBuf::from(format!("./{name}"))),
            _ => Output::File(PathBuf::from(name)),
        })
    }

    /// Standard output for `stdout`, standard error for `stderr`, or else a file.
    pub fn from_name(name: &str) -> Result<Output, &'static str> {
        match name {
            "stdout" => Ok(Output::Stdout),
            "stderr" => Ok(Output::Stderr),
            _ => Output::file(name),
        }
    }
}

/// A title line in the form that is kept: one line, no control characters, no blanks at its end.
pub(crate) fn clean_title(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim_start_matches('\u{feff}').trim_end().to_owned()
}

/// Everything a run needs, validated: each list has 1 to 20 values, each in its legal range. The
/// `Default` is empty, and filled from the rows of [`PARAMS`](crate::param::PARAMS).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
// The row of each in PARAMS describes it.
pub struct RunSpec {
    /// The two free lines at the top of HPL.dat.
    pub title: [String; 2],
    pub output: Output,
    pub n: Vec<usize>,
    pub nb: Vec<usize>,
    pub pmap: Pmap,
    /// Process grids, `(P, Q)`.
    pub grids: Vec<(usize, usize)>,
    pub threshold: f64,
    pub pfact: Vec<Fact>,
    pub nbmin: Vec<usize>,
    pub ndiv: Vec<usize>,
    pub rfact: Vec<Fact>,
    pub bcast: Vec<Bcast>,
    pub depth: Vec<usize>,
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    #[serde(rename = "l1_transposed")]
    pub l1: Form,
    #[serde(rename = "u_transposed")]
    pub u: Form,
    pub equilibration: bool,
    pub align_doubles: usize,
    pub generator: Generator,
    pub threads: usize,
    pub transport: Transport,
    pub pin: Pin,
    /// The rates of process columns, where they are not equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<RateSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blas: Option<String>,
    /// Process columns with checksums, in addition to the Q of the data (`--ft abft`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checksums: usize,
    /// The matrix of HPL-MxP; `None` for HPL.
    #[serde(rename = "matrix", default, skip_serializing_if = "Option::is_none")]
    pub mxp: Option<MxpMatrix>,
    /// The operands of the products of HPL-MxP; single precision for HPL, where it has no meaning.
    #[serde(default, skip_serializing_if = "is_fp32")]
    pub gemm: GemmPrecision,
}

fn is_fp32(gemm: &GemmPrecision) -> bool {
    *gemm == GemmPrecision::Fp32
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The parameters of one test, which is one line of the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
// The row of each in PARAMS describes it.
pub struct TestSpec {
    pub n: usize,
    pub nb: usize,
    pub p: usize,
    pub q: usize,
    #[serde(default)]
    pub pmap: Pmap,
    #[serde(default)]
    pub depth: usize,
    #[serde(default)]
    pub bcast: Bcast,
    #[serde(default)]
    pub rfact: Fact,
    #[serde(default)]
    pub pfact: Fact,
    #[serde(default)]
    pub nbmin: usize,
    #[serde(default)]
    pub ndiv: usize,
    #[serde(default)]
    pub swap: Swap,
    #[serde(default)]
    pub swap_threshold: usize,
    #[serde(default)]
    pub threshold: f64,
    #[serde(default)]
    pub generator: Generator,
    #[serde(default)]
    pub threads: usize,
    #[serde(default)]
    pub transport: Transport,
    /// Process columns with checksums, in addition to the Q of the data (`--ft abft`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checksums: usize,
    /// The matrix of HPL-MxP; `None` for HPL.
    #[serde(rename = "matrix", default, skip_serializing_if = "Option::is_none")]
    pub mxp: Option<MxpMatrix>,
    /// The operands of the products of HPL-MxP; single precision for HPL, where it has no meaning.
    #[serde(default, skip_serializing_if = "is_fp32")]
    pub gemm: GemmPrecision,
    /// The relative rates of the Q process columns; none if they are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<f64>,
}

impl TestSpec {
    pub fn columns(&self) -> ColumnMap {
        if self.rates.is_empty() {
            ColumnMap::cyclic(self.nb, self.q)
        } else {
            ColumnMap::with_rates(self.n, self.nb, &self.rates)
        }
    }

    /// HPL-MxP keeps and factors the matrix in single precision.
    pub fn element_bytes(&self) -> usize {
        if self.mxp.is_some() { size_of::<f32>() } else { size_of::<f64>() }
    }

    /// Number of ranks that the test runs on: P (Q + checksums).
    pub fn ranks(&self) -> usize {
        self.p * (self.q + self.checksums)
    }
}

impl From<&TestSpec> for Params {
    fn from(spec: &TestSpec) -> Self {
        Self {
            n: spec.n,
            nb: spec.nb,
            // The look-ahead is at most all panels.
            depth: spec.depth.min(spec.n.div_ceil(spec.nb)),
            bcast: spec.bcast,
            variant: Variant {
                pfact: spec.pfact,
                rfact: spec.rfact,
                nbmin: spec.nbmin,
                ndiv: spec.ndiv,
            },
            swap: spec.swap,
            swap_threshold: spec.swap_threshold,
            share: spec.transport == Transport::Shared,
        }
    }
}

impl RunSpec {
    /// Number of ranks of the largest grid, including its checksum columns.
    pub fn max_ranks(&self) -> usize {
        self.grids.iter().map(|(p, q)| p * (q + self.checksums)).max().unwrap_or(1)
    }

    /// Number of tests of the run; lists of 20 values make up to 20^9.
    pub fn test_count(&self) -> u64 {
        let lists = [
            self.grids.len(),
            self.n.len(),
            self.nb.len(),
            self.depth.len(),
            self.bcast.len(),
            self.rfact.len(),
            self.pfact.len(),
            self.nbmin.len(),
            self.ndiv.len(),
        ];
        lists.iter().map(|&len| len as u64).product()
    }

    /// All tests of the run, in the reference's order: grid, N, NB, DEPTH, BCAST, RFACT, PFACT,
    /// NBMIN, NDIV, with the last varying fastest.
    pub fn tests(&self) -> Vec<TestSpec> {
        let mut tests = vec![TestSpec {
            pmap: self.pmap,
            swap: self.swap,
            swap_threshold: self.swap_threshold,
            threshold: self.threshold,
            generator: self.generator,
            threads: self.threads,
            transport: self.transport,
            checksums: self.checksums,
            mxp: self.mxp,
            gemm: self.gemm,
            ..TestSpec::default()
        }];
        each(&mut tests, &self.grids, |test, grid| {
            (test.p, test.q) = grid;
            let rates = self.rates.as_ref().map(|rates| rates.column_rates(grid, self.pmap));
            test.rates = rates.unwrap_or_default();
        });
        each(&mut tests, &self.n, |test, n| test.n = n);
        each(&mut tests, &self.nb, |test, nb| test.nb = nb);
        each(&mut tests, &self.depth, |test, depth| test.depth = depth);
        each(&mut tests, &self.bcast, |test, bcast| test.bcast = bcast);
        each(&mut tests, &self.rfact, |test, rfact| test.rfact = rfact);
        each(&mut tests, &self.pfact, |test, pfact| test.pfact = pfact);
        each(&mut tests, &self.nbmin, |test, nbmin| test.nbmin = nbmin);
        each(&mut tests, &self.ndiv, |test, ndiv| test.ndiv = ndiv);
        tests
    }
}

/// Replaces each test by one for each value of a list.
fn each<T: Copy>(tests: &mut Vec<TestSpec>, list: &[T], set: impl Fn(&mut TestSpec, T)) {
    let set = &set;
    let with = |test: &TestSpec, value: T| {
        let mut test = test.clone();
        set(&mut test, value);
        test
    };
    let all = tests.iter().flat_map(|test| list.iter().map(move |value| with(test, *value)));
    *tests = all.collect();
}
