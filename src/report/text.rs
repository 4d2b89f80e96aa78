//! The report in the format of the reference program.
//!
//! Without the lines that begin with `#`, which are our own, the report is the reference's, line by
//! line (HPL 2.3, `HPL_pdinfo`, `HPL_pdtest` and `main`): programs that read the output of `xhpl`
//! match its words and count its lines. Only the banner names this program.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use skt_config::{Bcast, Fact, Form, Generator, Output, Pmap, RunSpec, Swap, TestSpec};
use skt_host::{outfile, streams};
use skt_run::record::{Counts, Norms, Outcome, TestRecord};

use super::cformat::{c_exp, c_fixed};
use super::output::SafeText;
use super::reader::variant_name;
use super::{detailed, mxp, phases};
use skt_host::clock::ctime;

/// Relative machine precision with rounding to nearest, 2^-53.
const EPS: f64 = f64::EPSILON / 2.0;

const VALUES_A_LINE: usize = 8;

const HEAD: &str =
    "T/V                N    NB     P     Q               Time                 Gflops";

const EXPLANATION: &str = "
An explanation of the input/output parameters follows:
T/V    : Wall time / encoded variant.
N      : The order of the coefficient matrix A.
NB     : The partitioning blocking factor.
P      : The number of process rows.
Q      : The number of process columns.
Time   : Time in seconds to solve the linear system.
Gflops : Rate of execution for solving the linear system.

The following parameter values will be used:
";

/// Opens the output that HPL.dat names; an existing file is replaced, as in the reference.
pub fn open(output: &Output) -> Result<Box<dyn Write + Send>, String> {
    let closed = |stream| {
        Err(format!(
            "cannot write the report: {stream} is closed; open it, or name a file with --out"
        ))
    };
    // Without a buffer, a system call for each line would take longer than a small test.
    Ok(match output {
        Output::Stdout if streams::was_closed(libc::STDOUT_FILENO) => {
            return closed("standard output");
        }
        Output::Stderr if streams::was_closed(libc::STDERR_FILENO) => {
            return closed("standard error");
        }
        Output::Stdout => Box::new(SafeText(BufWriter::new(Counted(io::stdout())))),
        Output::Stderr => Box::new(SafeText(BufWriter::new(io::stderr()))),
        Output::File(path) => Box::new(SafeText(BufWriter::new(create(path)?))),
    })
}

static LINES_ON_STDOUT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn lines_on_stdout() -> u64 {
    LINES_ON_STDOUT.load(Ordering::Relaxed)
}

struct Counted(io::Stdout);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        let lines = bytes[..written].iter().filter(|byte| **byte == b'\n').count();
        LINES_ON_STDOUT.fetch_add(lines as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn create(path: &Path) -> Result<File, String> {
    outfile::create(path).map_err(|why| {
        format!("cannot create the report file '{}' of the configuration: {why}", path.display())
    })
}

#[derive(Debug, Default)]
pub struct TextOptions {
    /// The rate of the DGEMM self-test, to which tests are compared.
    pub dgemm_gflops_per_core: Option<f64>,
    pub blas: String,
    pub detailed_timing: bool,
    /// Our own lines for the header: the environment, warnings.
    pub notes: Vec<String>,
}

/// Each call ends with a flush, so that a run that is killed leaves what it has written.
#[derive(Debug)]
pub struct TextReport<'a, W: Write> {
    out: W,
    spec: &'a RunSpec,
    options: TextOptions,
    head_due: bool,
    counts: Counts,
    broken: usize,
}

impl<'a, W: Write> TextReport<'a, W> {
    pub fn new(out: W, spec: &'a RunSpec, mut options: TextOptions) -> Self {
        options.notes.splice(..0, own_notes(spec, options.detailed_timing));
        options.detailed_timing &= spec.mxp.is_none();
        TextReport { out, spec, options, head_due: true, counts: Counts::default(), broken: 0 }
    }

    pub(crate) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the banner, the explanation, the parameters, and how results are checked.
    pub fn header(&mut self) -> io::Result<()> {
        let rule = "=".repeat(80);
        let banner = if self.spec.mxp.is_some() { mxp::banner() } else { banner() };
        writeln!(self.out, "{rule}\n{banner}\n{rule}")?;
        write!(self.out, "{EXPLANATION}\n{}", echo(self.spec))?;
        self.due_notes()?;
        writeln!(self.out)?;
        if self.spec.threshold > 0.0 {
            write!(self.out, "{}", check_text(self.spec))?;
        }
        self.out.flush()
    }

    pub fn test(&mut self, record: &TestRecord) -> io::Result<()> {
        self.counts.add(&record.outcome);
        if let Outcome::Skipped { reason } = &record.outcome {
            write!(self.out, "{}", skip_text(&record.spec))?;
            let TestSpec { n, nb, p, q, .. } = record.spec;
            let note = format!("skipped: N {n}, NB {nb}, P {p}, Q {q}: {reason}");
            self.options.notes.push(note);
            return self.due_notes();
        }
        self.head(record.spec.threshold)?;
        write!(self.out, "{}", wr_line(record))?;
        if self.options.detailed_timing {
            write!(self.out, "{}", detailed::text(record))?;
        }
        self.residual(record)?;
        let lines = phases::table(record, self.options.dgemm_gflops_per_core);
        for line in lines.into_iter().chain(phases::hint_line(record, &self.options.blas)) {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    pub(crate) fn note(&mut self, note: &str) -> io::Result<()> {
        write_note(&mut self.out, note)?;
        self.out.flush()
    }

    /// With the number of tests by result.
    pub fn summary(&mut self) -> io::Result<Counts> {
        let (double, single) = ("=".repeat(80), "-".repeat(80));
        let Counts { passed, failed, skipped } = self.counts;
        let out = &mut self.out;
        // Without checks, each detailed timing ends with this line.
        if self.spec.threshold > 0.0 || !self.options.detailed_timing {
            writeln!(out, "{double}")?;
        }
        writeln!(out, "\nFinished {:6} tests with the following results:", self.counts.total())?;
        if self.spec.threshold > 0.0 {
            writeln!(out, "         {passed:6} tests completed and passed residual checks,")?;
            writeln!(out, "         {failed:6} tests completed and failed residual checks,")?;
        } else {
            writeln!(out, "         {passed:6} tests completed without checking,")?;
        }
        writeln!(out, "         {skipped:6} tests skipped because of illegal input values.")?;
        if self.broken > 0 {
            writeln!(out, "#        {:6} tests stopped at a bad pivot.", self.broken)?;
        }
        writeln!(out, "{single}\n\nEnd of Tests.\n{double}")?;
        out.flush()?;
        Ok(self.counts)
    }

    fn due_notes(&mut self) -> io::Result<()> {
        for note in self.options.notes.drain(..) {
            write_note(&mut self.out, &note)?;
        }
        self.out.flush()
    }

    /// Writes the head of the table: before every test, or once if nothing is checked.
    fn head(&mut self, threshold: f64) -> io::Result<()> {
        if self.head_due {
            writeln!(self.out, "{}\n{HEAD}\n{}", "=".repeat(80), "-".repeat(80))?;
        }
        if threshold <= 0.0 {
            self.head_due = false;
        }
        Ok(())
    }

    fn residual(&mut self, record: &TestRecord) -> io::Result<()> {
        let checked = record.spec.threshold > 0.0;
        match &record.outcome {
            Outcome::Passed { scaled_residual, .. } => {
                write!(self.out, "{}", residual_text(*scaled_residual, "PASSED"))
            }
            Outcome::Failed { scaled_residual, norms } => {
                write!(self.out, "{}", residual_text(*scaled_residual, "FAILED"))?;
                write!(self.out, "{}", norms_text(norms))
            }
            Outcome::Broke { column, pivot } => {
                self.broken += 1;
                if checked {
                    write!(self.out, "{}", residual_text(f64::NAN, "FAILED"))?;
                }
                let text = match record.spec.mxp {
                    Some(matrix) => mxp::broke_text(&record.spec, matrix, *column, pivot),
                    None => broke_text(*column, pivot),
                };
                write_note(&mut self.out, &text)
            }
            Outcome::NotChecked | Outcome::Skipped { .. } => Ok(()),
        }
    }
}

/// The reference's banner, by bytes and by words, with this program in place of its date: programs
/// look for `HPLinpack` and a version in it. Only the wording is that of the reference's authors.
fn banner() -> String {
    format!(
        "HPLinpack 2.3  --  High-Performance Linpack benchmark  --   by skt-hpl {}\n\
         Wording of A. Petitet and R. Clint Whaley,  Innovative Computing Laboratory, UTK\n\
         Modified by Piotr Luszczek, Innovative Computing Laboratory, UTK\n\
         Modified by Julien Langou, University of Colorado Denver",
        env!("CARGO_PKG_VERSION")
    )
}

fn own_notes(spec: &RunSpec, is_detailed: bool) -> Vec<String> {
    let generator = match spec.generator {
        Generator::Hpl => "hpl (the reference's matrix, bit for bit)",
        Generator::Xoshiro => "xoshiro256++ (not the reference's matrix)",
    };
    let mut notes = match spec.mxp {
        Some(matrix) => mxp::notes(matrix, spec.gemm, is_detailed),
        None => vec![format!("generator: {generator}")],
    };
    notes.push(format!("threads  : {} a rank", spec.threads));
    if spec.checksums > 0 {
        let ranks: Vec<String> =
            spec.grids.iter().map(|(p, q)| (p * (q + spec.checksums)).to_string()).collect();
        notes.push(format!(
            "checksums: {} process column(s) in addition to Q; ranks in use: {}",
            spec.checksums,
            ranks.join(", ")
        ));
    }
    notes
}

/// Writes a note of our own. Each of its lines gets the mark, because line ends inside it would
/// otherwise make lines that look like the reference's.
fn write_note(out: &mut impl Write, note: &str) -> io::Result<()> {
    for line in note.lines() {
        writeln!(out, "{}", format!("# {line}").trim_end())?;
    }
    Ok(())
}

fn echo(spec: &RunSpec) -> String {
    let number = |value: &usize| format!("{value:8} ");
    let fact = |value: &Fact| fact_word(*value).to_string();
    let lists = [
        ("N", words(&spec.n, number)),
        ("NB", words(&spec.nb, number)),
        ("PMAP", format!(" {} process mapping", pmap_word(spec.pmap))),
        ("P", words(&spec.grids, |&(p, _)| number(&p))),
        ("Q", words(&spec.grids, |&(_, q)| number(&q))),
        ("PFACT", words(&spec.pfact, fact)),
        ("NBMIN", words(&spec.nbmin, number)),
        ("NDIV", words(&spec.ndiv, number)),
        ("RFACT", words(&spec.rfact, fact)),
        ("BCAST", words(&spec.bcast, |&value| bcast_word(value))),
        ("DEPTH", words(&spec.depth, number)),
        ("SWAP", swap_words(spec)),
        ("L1", form_words(spec.l1)),
        ("U", form_words(spec.u)),
        ("EQUIL", (if spec.equilibration { " yes" } else { " no" }).to_string()),
        ("ALIGN", format!(" {} double precision words", spec.align_doubles)),
    ];
    let is_used = |name: &str| spec.mxp.is_none() || !mxp::UNUSED.contains(&name);
    let used = lists.iter().filter(|(name, _)| is_used(name));
    let mut echo: String = used.map(|(name, values)| format!("{name:<7}:{values}\n")).collect();
    if let Some(matrix) = spec.mxp {
        echo += &format!("MATRIX : {matrix}\nGEMM   : {}\n", spec.gemm);
    }
    echo
}

fn words<T>(values: &[T], word: impl Fn(&T) -> String) -> String {
    values
        .chunks(VALUES_A_LINE)
        .map(|line| line.iter().map(&word).collect::<String>())
        .collect::<Vec<_>>()
        .join("\n        ")
}

fn pmap_word(pmap: Pmap) -> &'static str {
    match pmap {
        Pmap::RowMajor => "Row-major",
        Pmap::ColumnMajor => "Column-major",
    }
}

fn fact_word(fact: Fact) -> &'static str {
    match fact {
        Fact::Left => "    Left ",
        Fact::Crout => "   Crout ",
        Fact::Right => "   Right ",
    }
}

/// The name, but HPL's for the long variants.
fn bcast_word(bcast: Bcast) -> String {
    let word = match bcast {
        Bcast::Long => "Blong",
        Bcast::LongM => "BlongM",
        ring => ring.name(),
    };
    format!("{word:>8} ")
}

fn swap_words(spec: &RunSpec) -> String {
    match spec.swap {
        Swap::BinaryExchange => " Binary-exchange".to_string(),
        Swap::SpreadRoll => " Spread-roll (long)".to_string(),
        Swap::Mix => format!(" Mix (threshold = {})", spec.swap_threshold),
    }
}

fn form_words(form: Form) -> String {
    format!(" {} form", form.name())
}

fn check_text(spec: &RunSpec) -> String {
    let generated = match spec.mxp {
        Some(_) => "generated in double precision",
        None => "randomly generated",
    };
    format!(
        "{}\n\n\
         - The matrix A is {generated} for each test.\n\
         - The following scaled residual check will be computed:\n      \
         ||Ax-b||_oo / ( eps * ( || x ||_oo * || A ||_oo + || b ||_oo ) * N )\n\
         - The relative machine precision (eps) is taken to be      {}\n\
         - Computational tests pass if scaled residuals are less than         {}\n\n",
        "-".repeat(80),
        c_exp(EPS, 21, 6),
        c_fixed(spec.threshold, 11, 1)
    )
}

fn wr_line(record: &TestRecord) -> String {
    let spec = &record.spec;
    // The rate of a factorization that broke off has no meaning.
    let gflops = if record.outcome.ran_to_end() { record.gflops } else { f64::NAN };
    format!(
        "{:<8}{:12} {:5} {:5} {:5} {}    {}\n\
         HPL_pdgesv() start time {}\n\n\
         HPL_pdgesv() end time   {}\n\n",
        variant_name(spec),
        spec.n,
        spec.nb,
        spec.p,
        spec.q,
        c_fixed(record.time_seconds, 18, 2),
        c_exp(gflops, 19, 4),
        ctime(record.start_unix_seconds),
        ctime(record.end_unix_seconds)
    )
}

fn residual_text(scaled_residual: f64, verdict: &str) -> String {
    format!(
        "{}\n||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= {} ...... {verdict}\n",
        "-".repeat(80),
        c_exp(scaled_residual, 16, 8)
    )
}

fn norms_text(norms: &Norms) -> String {
    [
        ("||Ax-b||_oo ", norms.residual_oo),
        ("||A||_oo", norms.a_oo),
        ("||A||_1 ", norms.a_1),
        ("||x||_oo", norms.x_oo),
        ("||x||_1 ", norms.x_1),
        ("||b||_oo", norms.b_oo),
    ]
    .iter()
    .map(|(name, value)| {
        let dots = " .".repeat((46 - name.len()) / 2);
        format!("{name}{dots} = {}\n", c_fixed(*value, 18, 6))
    })
    .collect()
}

fn broke_text(column: usize, pivot: &str) -> String {
    let cause = if pivot == "0" {
        "the matrix is singular to working precision"
    } else {
        "a broken BLAS, a hardware fault or an overflow"
    };
    format!("the factorization stopped: the pivot of column {column} (from 0) is {pivot}; {cause}")
}

/// As `HPL_pdtest` reports that there is no memory, with the last row and column of the grid.
fn skip_text(spec: &TestSpec) -> String {
    let (row, column) = (spec.p - 1, spec.q - 1);
    let what = format!("[{row},{column}] Memory allocation failed for A, x and b. Skip.");
    reference_error(173, "HPL_pdtest", &what)
}

/// An error in the words of the reference (`HPL_pwarn`), which programs look for, with the line of
/// its source (HPL 2.3) that reports it.
pub(crate) fn reference_error(line: usize, function: &str, what: &str) -> String {
    format!(
        "HPL ERROR from process # 0, on line {line} of function {function}:\n>>> {what} <<<\n\n"
    )
}
