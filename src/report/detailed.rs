//! The lines that the reference adds when it is built with `-DHPL_DETAILED_TIMING`
//! (`HPL_pdtest`) or `-DHPL_PROGRESS_REPORT` (`HPL_pdgesv0`), from our own timers.

use std::io::{self, Write};

use super::cformat::{c_exp, c_fixed};
use skt_run::progress::gflop_done;
use skt_run::record::TestRecord;

/// The detailed timing of a test. As in the reference, a line without time is left out.
pub(super) fn text(record: &TestRecord) -> String {
    let (phases, detailed) = (&record.phases.max, record.detailed.unwrap_or_default());
    let lines = [
        ("Max aggregated wall time rfact . . . ", phases.panel),
        ("+ Max aggregated wall time pfact . . ", detailed.pfact_seconds),
        ("+ Max aggregated wall time mxswp . . ", detailed.mxswp_seconds),
        ("Max aggregated wall time update  . . ", detailed.update_seconds),
        ("+ Max aggregated wall time laswp . . ", phases.swap),
        ("Max aggregated wall time up tr sv  . ", phases.back),
    ];
    let timed = lines.iter().filter(|(_, seconds)| *seconds > 0.0);
    let line = |(name, seconds): &(&str, f64)| format!("{name}: {}\n", c_fixed(*seconds, 18, 2));
    let end = if record.spec.threshold > 0.0 { String::new() } else { "=".repeat(80) + "\n" };
    format!("{}-\n{}{end}", "--VVV".repeat(15), timed.map(line).collect::<String>())
}

pub(crate) struct ColumnLines<W: Write>(pub W);

impl<W: Write> ColumnLines<W> {
    /// `done` of `n` columns are eliminated, `elapsed_seconds` after the first start.
    pub(crate) fn columns(
        &mut self,
        done: usize,
        n: usize,
        elapsed_seconds: f64,
    ) -> io::Result<()> {
        // The reference writes its line before it factors a panel, and so none at the end.
        if done < n {
            writeln!(self.0, "{}", column_line(done, n, elapsed_seconds))?;
        }
        self.0.flush()
    }
}

fn column_line(done: usize, n: usize, elapsed_seconds: f64) -> String {
    let percent = 100.0 * done as f64 / n as f64;
    let seconds = if elapsed_seconds > 0.0 { elapsed_seconds } else { 1e-6 };
    format!(
        "Column={done:09} Fraction={}% Gflops={}",
        c_fixed(percent, 4, 1),
        c_exp(gflop_done(done, n) / seconds, 9, 3)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the reference's format, `Column=%09d Fraction=%4.1f%% Gflops=%9.3e`, gives.
    #[test]
    fn lines_of_columns_are_the_references() {
        let mut lines = ColumnLines(Vec::new());
        for (done, seconds) in [(192, 0.5), (1920, 10.0), (3840, 0.0), (4000, 20.0)] {
            lines.columns(done, 4000, seconds).unwrap();
        }
        let text = String::from_utf8(lines.0).unwrap();
        assert_eq!(
            text,
            "Column=000000192 Fraction= 4.8% Gflops=1.171e+01\n\
             Column=000001920 Fraction=48.0% Gflops=3.667e+00\n\
             Column=000003840 Fraction=96.0% Gflops=4.266e+07\n"
        );
    }
}
