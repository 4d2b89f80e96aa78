mod bosilca;
mod chen;
mod measured;
mod ours;
mod page;
mod path;
mod published;
mod tang;

use crate::StudyError;
use crate::bosilca::Platform;
use crate::plot::{Body, Figure};
use skt_model::ModelError;

pub(crate) use measured::measured;
pub(crate) use page::index_page;

type Content = (String, Body);

type Maker = fn() -> Result<Content, StudyError>;

/// All figures with their titles, in the order of the index page.
const CATALOGUE: &[(&str, &str, Maker)] = &[
    ("tang-04-efficiency", "HPL performance over the order of the matrix", tang::efficiency_fit),
    ("tang-05-top10", "Efficiency of the ten largest machines with less memory", tang::top10),
    ("tang-10-memory", "Memory left to the application", tang::memory),
    ("tang-11-failures", "Efficiency and loss under failures, 256K nodes", tang::failures),
    ("tang-12-reliability", "Probability to complete", tang::reliability),
    ("tang-14-volumes", "What a checkpoint saves while the matrix shrinks", tang::volumes),
    (
        "chen-encoding-processes",
        "Encoding one checkpoint, over the number of processes",
        chen::over_processes,
    ),
    (
        "chen-encoding-failures",
        "Encoding one checkpoint, over the failures survived",
        chen::over_failures,
    ),
    ("chen-segment", "Pipelined chain, over the size of a segment", chen::over_segment),
    ("chen-checkpoint-size", "Encoding one checkpoint, over its size", chen::over_size),
    ("bautista-hybrid", "A helper core against stopping to encode", chen::hybrid),
    ("bosilca-08a-current", "Waste on current platforms", || {
        bosilca::waste("fig. 8(a).", &[Platform::TITAN, Platform::K_COMPUTER])
    }),
    ("bosilca-08b-exascale-1000s", "Waste at exascale, C = 1000 s", || {
        bosilca::waste("fig. 8(b).", &exascale(1_000.0))
    }),
    ("bosilca-08c-exascale-100s", "Waste at exascale, C = 100 s", || {
        bosilca::waste("fig. 8(c).", &exascale(100.0))
    }),
    ("bosilca-09-exascale-nominal", "Waste at exascale, C = 64,000 s", || {
        let caption = "section 5: with the predicted I/O bandwidth no protocol progresses.";
        bosilca::waste(caption, &[Platform::EXASCALE_SLIM, Platform::EXASCALE_FAT])
    }),
    ("bosilca-10-parameters-titan", "Titan: what the parameters do, MTBF of 20 years", || {
        bosilca::parameters("10", &Platform::TITAN, 20.0)
    }),
    ("bosilca-11-parameters-k", "K-Computer: what the parameters do, MTBF of 500 years", || {
        bosilca::parameters("11", &Platform::K_COMPUTER, 500.0)
    }),
    (
        "bosilca-12-parameters-slim-1000s",
        "Exascale-Slim: what the parameters do, MTBF of 500 years",
        || bosilca::parameters("12", &exascale(1_000.0)[0], 500.0),
    ),
    (
        "bosilca-13-parameters-fat-1000s",
        "Exascale-Fat: what the parameters do, MTBF of 100 years",
        || bosilca::parameters("13", &exascale(1_000.0)[1], 100.0),
    ),
    (
        "bosilca-14-parameters-slim-100s",
        "Exascale-Slim: what the parameters do, MTBF of 100 years",
        || bosilca::parameters("14", &exascale(100.0)[0], 100.0),
    ),
    (
        "bosilca-15-parameters-fat-100s",
        "Exascale-Fat: what the parameters do, MTBF of 20 years",
        || bosilca::parameters("15", &exascale(100.0)[1], 20.0),
    ),
    (
        "self-memory-parities",
        "Memory left by the self-checkpoint with m parities",
        ours::memory_of_parities,
    ),
    (
        "self-scale-efficiency",
        "Efficiency of abort-and-restart over the number of nodes",
        ours::scale_efficiency,
    ),
    ("self-scale-probability", "Probability that data are lost", ours::scale_probability),
    ("self-spares", "Probability that the spares suffice", ours::spares),
    ("self-platforms", "Checkpoints in memory on the platforms of Bosilca et al.", ours::platforms),
    (
        "simulated-coordinated",
        "Coordinated checkpoints: two formulas and a simulation",
        ours::simulated_coordinated,
    ),
    (
        "simulated-hierarchical",
        "Hierarchical checkpoints: formula and simulation",
        ours::simulated_hierarchical,
    ),
    ("simulated-laws", "Laws of failure of one mean", ours::simulated_laws),
    (
        "simulated-loss",
        "Probability to keep the data: formula and simulation",
        ours::simulated_loss,
    ),
    ("path-weak-scaling", "Our solver on full memory, 16 GiB of matrix a rank", path::weak_scaling),
    ("path-strong-scaling", "Our solver on one matrix, N = 294,912", path::strong_scaling),
    (
        "published-sizes",
        "Dahu: real and predicted rates over the order of the matrix",
        published::sizes,
    ),
    (
        "published-geometries",
        "Dahu: real and predicted rates over the shape of the grid",
        published::geometries,
    ),
    ("path-parts", "The critical path without the matrix product", path::parts),
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CATALOGUE.iter().map(|(name, ..)| *name)
}

pub(crate) fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    CATALOGUE.iter().map(|(name, title, _)| (*name, *title))
}

pub(crate) fn make(name: &str) -> Result<Figure, StudyError> {
    match CATALOGUE.iter().find(|(known, ..)| *known == name) {
        Some((id, title, maker)) => {
            let (caption, body) = maker()?;
            Ok(Figure { id, title: (*title).into(), caption, body })
        }
        None => Err(StudyError::UnknownFigure {
            name: name.into(),
            known: names().collect::<Vec<_>>().join(", "),
        }),
    }
}

fn exascale(checkpoint_seconds: f64) -> [Platform; 2] {
    [Platform::EXASCALE_SLIM, Platform::EXASCALE_FAT]
        .map(|platform| platform.with_checkpoint_seconds(checkpoint_seconds))
}

/// `count` values from `low` to `high` in equal ratios.
fn log_steps(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> + Clone {
    (0..count).map(move |i| low * (high / low).powf(i as f64 / (count - 1) as f64))
}

/// `count` values from `low` to `high` in equal differences.
fn steps(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> + Clone {
    (0..count).map(move |i| low + (high - low) * i as f64 / (count - 1) as f64)
}

fn sample(
    xs: impl Iterator<Item = f64>,
    f: impl Fn(f64) -> Result<f64, ModelError>,
) -> Result<Vec<(f64, f64)>, ModelError> {
    xs.map(|x| Ok((x, f(x)?))).collect()
}
