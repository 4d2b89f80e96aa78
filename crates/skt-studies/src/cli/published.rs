use std::fmt::Write as _;

use super::output;
use super::progress_bar::ProgressBar;
use crate::StudyError;
use crate::published::gates::{
    Predicted, error, gates, predict_cofc, predict_dahu, predict_stellar,
};
use crate::published::runs::{Published, published};

pub(super) fn execute() -> Result<(), StudyError> {
    let count = published().filter(|of| of.machine == "dahu").count();
    let bar = ProgressBar::new("runs", count);
    let all = predict_dahu(|done| bar.show(done))?;
    bar.end();
    let cofc = growth("Cluster of 40 cores a node, EDR InfiniBand, Intel's HPL", &predict_cofc()?);
    let stellar = "Stellar, 96 cores a node, HPL 2.3, rates of two digits";
    output::print(&(table(&all) + &cofc + &growth(stellar, &predict_stellar()?)))
}

/// The runs of a cluster, of which the first is the calibration.
fn growth(head: &str, runs: &[(Published, f64)]) -> String {
    let mut text = format!(
        "\n{head}; the first line is the calibration\n\n\
         nodes        N   NB    P x Q      real  predicted\n",
    );
    for (of, gflops) in runs {
        let off = 100.0 * error(*gflops, of.gflops);
        let (nodes, run, real) = (of.nodes, &of.run, of.gflops);
        writeln!(
            text,
            "{nodes:5}  {:7}  {:3}  {:3}x{:<3}  {real:8.0}  {gflops:8.0} ({off:+.1})",
            run.n, run.nb, run.p, run.q
        )
        .expect("a string takes all");
    }
    text
}

fn table(all: &[Predicted]) -> String {
    let mut text = String::from(
        "Dahu: 32 nodes x 2 Xeon Gold 6130, a rank of HPL 2.2 on each core; geometries on 30 \
         nodes.\n\
         real: median of the runs; theirs: simulation of the owners; equal, slowest: our model \
         with\n\
         the median and with the slowest processor; in brackets the error in %\n\n\
         experiment  date          N   NB    P x Q  D  broadcast  rows             \
         runs   real  theirs          equal           slowest\n",
    );
    for Predicted { of, equal_gflops, slowest_gflops } in all {
        let run = &of.run;
        let with_error =
            |gflops: f64| format!("{gflops:.0} ({:+.1})", 100.0 * error(gflops, of.gflops));
        let theirs = of.theirs_gflops.map_or_else(|| "-".into(), with_error);
        writeln!(
            text,
            "{:10}  {}  {:6}  {:3}  {:3}x{:<3}  {}  {:9}  {:15}  {:4}  {:5.0}  {theirs:14}  {:14}  \
             {}",
            of.experiment,
            of.date,
            run.n,
            run.nb,
            run.p,
            run.q,
            run.depth,
            run.bcast.name(),
            run.swap.name(),
            of.runs,
            of.gflops,
            with_error(*equal_gflops),
            with_error(*slowest_gflops)
        )
        .expect("a string takes all");
    }
    text += "\nGates, set before the first prediction:\n";
    for gate in gates(all) {
        let verdict = if gate.passed { "passed" } else { "missed" };
        writeln!(text, "  {verdict}  {}: {:.3}, limit {}", gate.condition, gate.value, gate.limit)
            .expect("a string takes all");
    }
    text
}
