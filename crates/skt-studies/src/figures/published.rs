use super::Content;
use crate::StudyError;
use crate::plot::{Axis, Body, Series};
use crate::published::machines::Processors;
use crate::published::runs::{Published, published};

const SOURCE: &str = "Dahu, Cornebize et al., HPL 2.2 with a rank on each core of 32 nodes \
                      (geometries: 30), NB 128, DEPTH 1, 2ring, binary exchange; theirs: simulated \
                      by them; ours: the walk over the critical path with their calibration.";

/// The rates over `x`: real, theirs and ours with equal processors.
fn lines(
    runs: impl Iterator<Item = Published>,
    x: impl Fn(&Published) -> f64,
) -> Result<Vec<Series>, StudyError> {
    let (mut real, mut theirs, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for of in runs {
        let at = x(&of);
        real.push((at, of.gflops));
        theirs.extend(of.theirs_gflops.map(|gflops| (at, gflops)));
        ours.push((at, of.on_dahu(Processors::Equal)?));
    }
    let all = [("real", real), ("theirs", theirs), ("ours", ours)];
    Ok(all.into_iter().map(|(name, points)| Series::line(name, points)).collect())
}

fn rate() -> Axis {
    Axis::linear("rate (Gflop/s)", "rate_gflops")
}

pub(super) fn sizes() -> Result<Content, StudyError> {
    let runs = published().filter(|of| of.date == "2018-10");
    let series = lines(runs, |of| of.run.n as f64)?;
    let x = Axis::linear("order of the matrix N (rows)", "n_rows");
    Ok((format!("October 2018. {SOURCE}"), Body::lines(x, rate(), series)))
}

pub(super) fn geometries() -> Result<Content, StudyError> {
    let runs = published().filter(|of| of.experiment == "geometry");
    let series = lines(runs, |of| of.run.p as f64)?;
    let x = Axis::log("process rows P of 960 ranks (processes)", "p_processes");
    Ok((format!("N = 250,000. {SOURCE}"), Body::lines(x, rate(), series)))
}
