use skt_host::choice::Bcast;

use super::Content;
use crate::StudyError;
use crate::plot::{Axis, Body, Series};
use skt_model::ModelError;
use skt_model::path::{Changes, Machine, Part, RunParams, predict};

const GIB: f64 = (1u32 << 30) as f64;

/// Grids from the ranks of one node to 24,576 ranks.
const GRIDS: [(usize, usize); 6] = [(2, 2), (4, 4), (8, 8), (16, 16), (32, 48), (128, 192)];

const ASSUMED: &str = "Compute as fitted on two cores (Zen 4); nodes of 64 cores and one link of 23 \
                       GB/s and 1.5 us, 4 GiB of matrix a core, four ranks of 16 threads a node: \
                       5.75 GB/s a rank, all by messages. NB 384, DEPTH 1, 2ringM, mix. An \
                       extrapolation.";

fn machine() -> Machine {
    Machine { message_seconds: 1.5e-6, message_byte_seconds: 1.0 / 5.75e9, ..Machine::ZEN4_CORE }
}

fn run(n: usize, grid: (usize, usize)) -> RunParams {
    RunParams { threads: 16, bcast: Bcast::TwoRingM, ..RunParams::new(n, 384, grid) }
}

/// The order of a matrix of `gib` GiB per rank.
fn order(gib: f64, (p, q): (usize, usize)) -> usize {
    (gib * GIB / 8.0 * (p * q) as f64).sqrt() as usize / 384 * 384
}

/// As it is, with the change that would help most, and with all rows exchanged at once.
fn variants(run: RunParams) -> [(&'static str, RunParams, Changes); 3] {
    let none = Changes::default();
    let team = Changes { team_without_loss: true, ..none };
    [
        ("as it is", run, none),
        ("teams that lose nothing at panels", run, team),
        ("rows not in halves", RunParams { halves: false, ..run }, none),
    ]
}

fn over_ranks(
    caption: String,
    order: impl Fn((usize, usize)) -> usize,
) -> Result<Content, StudyError> {
    let mut lines: [(&str, Vec<(f64, f64)>); 3] = Default::default();
    for grid in GRIDS {
        let variants = variants(run(order(grid), grid));
        for ((name, points), (variant, run, changes)) in lines.iter_mut().zip(variants) {
            let prediction = predict(&run, &machine(), &changes)?;
            *name = variant;
            points.push(((grid.0 * grid.1) as f64, 100.0 * prediction.efficiency));
        }
    }
    let series = lines.into_iter().map(|(name, points)| Series::line(name, points)).collect();
    let x = Axis::log("ranks (processes)", "ranks_processes");
    let y = Axis::linear("of DGEMM on all cores (%)", "efficiency_percent");
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn weak_scaling() -> Result<Content, StudyError> {
    over_ranks(
        format!("The walk over our own critical path. {ASSUMED} Here 16 GiB a rank are taken."),
        |grid| order(16.0, grid),
    )
}

pub(super) fn strong_scaling() -> Result<Content, StudyError> {
    const N: usize = 768 * 384;
    over_ranks(
        format!("The walk over our own critical path, the same matrix on more ranks. {ASSUMED}"),
        |_| N,
    )
}

pub(super) fn parts() -> Result<Content, StudyError> {
    let shown: Vec<Part> = Part::ALL.into_iter().filter(|&part| part != Part::Product).collect();
    let series = [(16, 16), (128, 192)]
        .into_iter()
        .map(|grid| {
            let prediction =
                predict(&run(order(16.0, grid), grid), &machine(), &Changes::default())?;
            let share =
                |part: &Part| 100.0 * prediction.path[*part as usize] / prediction.time_seconds;
            Ok((format!("{} x {} ranks", grid.0, grid.1), shown.iter().map(share).collect()))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let caption = format!("16 GiB of matrix a rank. {ASSUMED}");
    let y = Axis::linear("on the critical path (% of the time)", "time_percent");
    let categories = shown.iter().map(|part| part.name().to_string()).collect();
    Ok((caption, Body::Bars { category: ("part", "part"), categories, y, series }))
}
