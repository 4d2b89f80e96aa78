//! The papers' figures and ours, each computed on demand.

mod bosilca;
mod chen;
mod ours;
mod page;
mod path;
mod tang;

use super::ModelError;
use super::plot::Figure;

pub use page::index_page;

/// A function that makes a figure.
type Maker = fn() -> Result<Figure, ModelError>;

/// All figures, in the order of the index page.
const CATALOGUE: &[(&str, Maker)] = &[
    ("tang-04-efficiency", tang::efficiency_fit),
    ("tang-05-top10", tang::top10),
    ("tang-10-memory", tang::memory),
    ("tang-11-failures", tang::failures),
    ("tang-12-reliability", tang::reliability),
    ("tang-14-volumes", tang::volumes),
    ("chen-encoding-processes", chen::over_processes),
    ("chen-encoding-failures", chen::over_failures),
    ("chen-segment", chen::over_segment),
    ("chen-checkpoint-size", chen::over_size),
    ("bautista-hybrid", chen::hybrid),
    ("bosilca-08a-current", bosilca::current),
    ("bosilca-08b-exascale-1000s", bosilca::exascale_1000),
    ("bosilca-08c-exascale-100s", bosilca::exascale_100),
    ("bosilca-09-exascale-nominal", bosilca::exascale_nominal),
    ("bosilca-10-parameters-titan", bosilca::parameters_titan),
    ("bosilca-11-parameters-k", bosilca::parameters_k),
    ("bosilca-12-parameters-slim-1000s", bosilca::parameters_slim_1000),
    ("bosilca-13-parameters-fat-1000s", bosilca::parameters_fat_1000),
    ("bosilca-14-parameters-slim-100s", bosilca::parameters_slim_100),
    ("bosilca-15-parameters-fat-100s", bosilca::parameters_fat_100),
    ("self-memory-parities", ours::memory_of_parities),
    ("self-scale-efficiency", ours::scale_efficiency),
    ("self-scale-probability", ours::scale_probability),
    ("self-spares", ours::spares),
    ("self-platforms", ours::platforms),
    ("simulated-coordinated", ours::simulated_coordinated),
    ("simulated-hierarchical", ours::simulated_hierarchical),
    ("simulated-laws", ours::simulated_laws),
    ("simulated-loss", ours::simulated_loss),
    ("path-weak-scaling", path::weak_scaling),
    ("path-strong-scaling", path::strong_scaling),
    ("path-parts", path::parts),
];

/// Names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    CATALOGUE.iter().map(|(name, _)| *name)
}

/// Makes the figure of this name.
///
/// # Errors
/// [`ModelError::UnknownFigure`], which lists the known names.
pub fn make(name: &str) -> Result<Figure, ModelError> {
    match CATALOGUE.iter().find(|(known, _)| *known == name) {
        Some((_, maker)) => maker(),
        None => Err(ModelError::UnknownFigure {
            name: name.into(),
            known: names().collect::<Vec<_>>().join(", "),
        }),
    }
}

/// `count` values from `low` to `high` in equal ratios.
fn log_steps(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> + Clone {
    (0..count).map(move |i| low * (high / low).powf(i as f64 / (count - 1) as f64))
}

/// `count` values from `low` to `high` in equal differences.
fn steps(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> + Clone {
    (0..count).map(move |i| low + (high - low) * i as f64 / (count - 1) as f64)
}

/// Evaluates `f` at every x, stopping at the first error.
fn sample(
    xs: impl Iterator<Item = f64>,
    f: impl Fn(f64) -> Result<f64, ModelError>,
) -> Result<Vec<(f64, f64)>, ModelError> {
    xs.map(|x| Ok((x, f(x)?))).collect()
}
