//! The validated description of a run: what an HPL.dat or a TOML file says.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
pub use skt_terms::choice::{Bcast, Fact, Generator, Pmap, Swap, Transport};

/// Where the report goes (HPL.dat lines 3 and 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// Device 6.
    Stdout,
    /// Device 7.
    Stderr,
    /// Any other device: the named file.
    File(PathBuf),
}

impl Output {
    /// What a file of this name is called for good: `stdout` and `stderr` as
    /// file names become `./stdout` and `./stderr`, so that each form of
    /// configuration can say them.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn file(name: &str) -> Result<Output, &'static str> {
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

    /// `stdout`, `stderr`, or else a file's name.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn from_name(name: &str) -> Result<Output, &'static str> {
        match name {
            "stdout" => Ok(Output::Stdout),
            "stderr" => Ok(Output::Stderr),
            _ => Output::file(name),
        }
    }
}

/// A title line as we keep it: one line, no control characters, no blanks at
/// its end.
pub fn clean_title(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim_start_matches('\u{feff}').trim_end().to_owned()
}

/// Everything a run needs, validated: each list has 1 to 20 values, each in its
/// legal range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The two free lines at the top of HPL.dat.
    pub title: [String; 2],
    /// Where the report goes.
    pub output: Output,
    /// Orders of the matrices.
    pub n: Vec<usize>,
    /// Blocking factors.
    pub nb: Vec<usize>,
    /// Mapping of ranks to the grid.
    pub pmap: Pmap,
    /// Process grids, `(P, Q)`.
    pub grids: Vec<(usize, usize)>,
    /// Residual threshold; at or below 0 the check is skipped.
    pub threshold: f64,
    /// Panel factorizations.
    pub pfact: Vec<Fact>,
    /// Recursion stops at this many columns.
    pub nbmin: Vec<usize>,
    /// Panels in the recursion.
    pub ndiv: Vec<usize>,
    /// Recursive panel factorizations.
    pub rfact: Vec<Fact>,
    /// Panel broadcasts.
    pub bcast: Vec<Bcast>,
    /// Look-ahead depths.
    pub depth: Vec<usize>,
    /// Row exchange.
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    /// L1 in transposed form (accepted, without effect).
    pub l1_transposed: bool,
    /// U in transposed form (accepted, without effect).
    pub u_transposed: bool,
    /// Equilibration (accepted, without effect).
    pub equilibration: bool,
    /// Alignment in doubles (accepted; ours is at least that of a cache line).
    pub align_doubles: usize,
    /// Which random matrix.
    pub generator: Generator,
    /// Threads a rank.
    pub threads: usize,
    /// Between ranks of a node.
    pub transport: Transport,
    /// Process columns that hold checksums, beside the Q of the data (`--ft abft`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checksums: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The parameters of one test: one line in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestSpec {
    /// Order of the matrix.
    pub n: usize,
    /// Blocking factor.
    pub nb: usize,
    /// Process rows.
    pub p: usize,
    /// Process columns.
    pub q: usize,
    /// Mapping of ranks to the grid.
    pub pmap: Pmap,
    /// Look-ahead depth.
    pub depth: usize,
    /// Panel broadcast.
    pub bcast: Bcast,
    /// Recursive panel factorization.
    pub rfact: Fact,
    /// Panel factorization.
    pub pfact: Fact,
    /// Recursion stops at this many columns.
    pub nbmin: usize,
    /// Panels in the recursion.
    pub ndiv: usize,
    /// Row exchange.
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    /// Residual threshold; at or below 0 the check is skipped.
    pub threshold: f64,
    /// Which random matrix.
    pub generator: Generator,
    /// Threads a rank.
    pub threads: usize,
    /// Between ranks of a node.
    pub transport: Transport,
    /// Process columns that hold checksums, beside the Q of the data (`--ft abft`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checksums: usize,
}

impl TestSpec {
    /// Ranks that the test runs on: P (Q + checksums).
    pub fn ranks(&self) -> usize {
        self.p * (self.q + self.checksums)
    }
}

impl RunSpec {
    /// Ranks of the largest grid, its checksum columns included.
    pub fn most_ranks(&self) -> usize {
        self.grids.iter().map(|(p, q)| p * (q + self.checksums)).max().unwrap_or(1)
    }

    /// How many tests the run has; lists of 20 values make up to 20^9.
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

    /// All tests of the run in the reference's order: grid, N, NB, DEPTH,
    /// BCAST, RFACT, PFACT, NBMIN, NDIV, the last running fastest.
    pub fn tests(&self) -> Vec<TestSpec> {
        let mut tests = Vec::new();
        for &(p, q) in &self.grids {
            for &n in &self.n {
                for &nb in &self.nb {
                    self.push_variants(&mut tests, (p, q), n, nb);
                }
            }
        }
        tests
    }

    fn push_variants(
        &self,
        tests: &mut Vec<TestSpec>,
        (p, q): (usize, usize),
        n: usize,
        nb: usize,
    ) {
        for &depth in &self.depth {
            for &bcast in &self.bcast {
                for &rfact in &self.rfact {
                    for &pfact in &self.pfact {
                        for &nbmin in &self.nbmin {
                            for &ndiv in &self.ndiv {
                                tests.push(TestSpec {
                                    n,
                                    nb,
                                    p,
                                    q,
                                    pmap: self.pmap,
                                    depth,
                                    bcast,
                                    rfact,
                                    pfact,
                                    nbmin,
                                    ndiv,
                                    swap: self.swap,
                                    swap_threshold: self.swap_threshold,
                                    threshold: self.threshold,
                                    generator: self.generator,
                                    threads: self.threads,
                                    transport: self.transport,
                                    checksums: self.checksums,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
}
