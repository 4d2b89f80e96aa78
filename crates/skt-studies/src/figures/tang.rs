//! Figures of Tang et al., TPDS 2018.

use super::ours::{CONFIDENCE, batch};
use super::{Content, log_steps, sample, steps};
use crate::StudyError;
use crate::bosilca::WasteModel;
use crate::plot::{Axis, Body, LineChart, Series};
use crate::sim::CoordinatedJob;
use crate::sim::failure::Law;
use crate::tang::reliability::Run;
use crate::tang::top10 as list;
use skt_model::tang::memory::Protocol;
use skt_model::tang::volume::Saved;
use skt_model::tang::{efficiency, interval};
use skt_model::{Group, HOUR_SECONDS, ModelError};

/// Runs without checkpoint of table 3: order and seconds.
const TABLE_3: [(f64, f64); 3] = [(129_280.0, 426.18), (154_880.0, 709.84), (234_240.0, 2_338.64)];

pub(super) fn efficiency_fit() -> Result<Content, StudyError> {
    let gflops = |(n, seconds): (f64, f64)| n * n * (2.0 * n / 3.0 + 1.5) / seconds / 1e9;
    let measured: Vec<(f64, f64)> = TABLE_3.map(|point| (point.0, gflops(point))).to_vec();
    let fit = efficiency::Efficiency::fit(&measured)?;
    let curve = sample(steps(20e3, 260e3, 100), |n| Ok(fit.at(n)))?;
    let caption = format!(
        "Rate N/(aN+b) (Tang et al., eq. 2) fitted to the three runs without checkpoint of \
         their table 3 (128 processes). Limit {:.0} Gflop/s, half of it at N = {:.0}. The \
         points of their figure 4 are not printed.",
        fit.limit(),
        fit.half_of_limit()
    );
    let series = vec![
        Series::line("N/(aN+b), fitted", curve),
        Series::measured("measured, table 3", measured.iter().map(|&(n, g)| (n, g, 0.0))),
    ];
    let x = Axis::linear("order N of the matrix (rows)", "n_rows");
    let y = Axis::linear("performance (Gflop/s)", "performance_gflops");
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn top10() -> Result<Content, StudyError> {
    let machines = &list::JUNE_2017;
    let with = |fraction: f64| -> Vec<f64> {
        machines.iter().map(|m| 100.0 * m.efficiency_with_memory(fraction)).collect()
    };
    let gain = list::mean_relative_gain(machines, 1.0 / 3.0, 0.5);
    let caption = format!(
        "TOP500 list of June 2017; lower bound of Tang et al., eq. 5 (a = 1). A half of the \
         memory gives on average {:.2} % more than a third; the paper prints 11.96 %.",
        100.0 * gain
    );
    let y = Axis::linear("HPL efficiency (% of peak)", "efficiency_percent").between(0.0, 100.0);
    let categories = machines.iter().map(|m| m.name.to_string()).collect();
    let series = vec![
        ("all memory (official)".into(), with(1.0)),
        ("half of the memory".into(), with(0.5)),
        ("a third of the memory".into(), with(1.0 / 3.0)),
    ];
    Ok((caption, Body::Bars { category: ("machine", "machine"), categories, y, series }))
}

pub(super) fn memory() -> Result<Content, StudyError> {
    let sizes = [2usize, 3, 4, 8, 16];
    let series = [Protocol::Single, Protocol::SelfCheckpoint, Protocol::Double]
        .into_iter()
        .map(|protocol| {
            let available = sizes
                .iter()
                .map(|&n| Ok(100.0 * protocol.available_fraction(Group::new(n, 1)?)))
                .collect::<Result<Vec<f64>, ModelError>>()?;
            Ok((format!("{} checkpoint", protocol.name()), available))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let caption = "Tang et al., eq. 6 to 8, one parity. The single checkpoint does not survive a \
                   failure while it is updated."
        .into();
    let y = Axis::linear("available memory (%)", "available_memory_percent").between(0.0, 60.0);
    let categories = sizes.map(|n| n.to_string()).to_vec();
    Ok((
        caption,
        Body::Bars {
            category: ("group size (processes)", "group_size_processes"),
            categories,
            y,
            series,
        },
    ))
}

/// The efficiency that figure 11 shows, by eq. 10 and as it is: a checkpoint of 16 s every Daly
/// interval, and outages of 72 s of downtime and 20 s of recovery (section 7.3).
fn efficiencies() -> Result<Vec<Series>, StudyError> {
    const NODES: usize = 1_000;
    let eq_10 = |outage_seconds: f64| {
        sample(log_steps(0.1, 10.0, 80), |hours| {
            interval::efficiency(hours * HOUR_SECONDS, 16.0, outage_seconds).map(|e| 100.0 * e)
        })
    };
    let model = WasteModel::coordinated(16.0, 20.0, 72.0, 0.0);
    let period = |mtbf_seconds: f64| interval::daly_seconds(mtbf_seconds, 16.0).map(|t| t + 16.0);
    let exact = sample(log_steps(0.1, 10.0, 80), |hours| {
        let mtbf_seconds = hours * HOUR_SECONDS;
        let waste = model.exact_coordinated_waste(period(mtbf_seconds)?, mtbf_seconds);
        Ok(100.0 * (1.0 - waste))
    })?;
    let mut seen = Vec::new();
    for hours in [0.25, 0.5, 1.0, 3.0] {
        let mtbf_seconds = hours * HOUR_SECONDS;
        let law = Law::Exponential { mtbf_seconds: mtbf_seconds * NODES as f64 };
        let job = CoordinatedJob::from_periods(&model, period(mtbf_seconds)?, 500.0);
        let waste = batch(NODES, law, 300).run(&job, &|_| {})?.waste;
        seen.push((hours, 100.0 * (1.0 - waste.mean), 100.0 * waste.half_width(CONFIDENCE)));
    }
    Ok(vec![
        Series::line("eq. 10, outage 0 s", eq_10(0.0)?),
        Series::line("eq. 10, outage 92 s", eq_10(92.0)?),
        Series::line("exact, outage 92 s", exact),
        Series::measured("simulated, outage 92 s", seen),
        Series::line("redundant execution", [(0.1, 50.0), (10.0, 50.0)]),
    ])
}

pub(super) fn failures() -> Result<Content, StudyError> {
    let mtbf_axis = || Axis::log("MTBF of the system (hours)", "system_mtbf_hours");
    let completes = |run_hours: f64| {
        sample(log_steps(0.1, 10.0, 80), |hours| {
            let run = Run {
                processes: 256 * 1024,
                group_size: 16,
                system_mtbf_seconds: hours * HOUR_SECONDS,
                checkpoint_seconds: 16.0,
                recovery_seconds: 20.0,
                interval_seconds: interval::daly_seconds(hours * HOUR_SECONDS, 16.0)?,
                run_seconds: run_hours * HOUR_SECONDS,
            };
            Ok(1.0 - run.success_self()?)
        })
    };
    let caption =
        "Tang et al., eq. 9 and 10 with a checkpoint of 16 s (their section 7.3), and eq. \
         14 in groups of 16 with a recovery of 20 s. An outage of 0 s leaves only a \
         checkpoint time a failure, 92 s is detection, restart and recovery on Tianhe-2. \
         The paper's marks: 15 and 30 min, 1 and 3 h; it does not print the length of the \
         run. Eq. 10 leaves out the work lost at each failure, the exact form has it. Bars: \
         99 % confidence, 300 runs of 500 periods."
            .into();
    let efficiency = LineChart {
        title: "efficiency".into(),
        x: mtbf_axis(),
        y: Axis::linear("of a run without failures (%)", "efficiency_percent").between(0.0, 100.0),
        series: efficiencies()?,
    };
    let loss = LineChart {
        title: "probability of loss, self-checkpoint".into(),
        x: mtbf_axis(),
        y: Axis::log("probability (fraction)", "loss_fraction"),
        series: vec![
            Series::line("run of 10 h", completes(10.0)?),
            Series::line("run of 100 h", completes(100.0)?),
        ],
    };
    Ok((caption, Body::Panels { columns: 2, panels: vec![efficiency, loss] }))
}

pub(super) fn reliability() -> Result<Content, StudyError> {
    let over_hours = |success: fn(&Run) -> Result<f64, ModelError>| {
        sample(steps(0.0, 200.0, 101), |hours| {
            success(&Run::figure_12(hours * HOUR_SECONDS)).map(|p| 100.0 * p)
        })
    };
    let caption = "Tang et al., eq. 11 to 16: 160,000 processes in groups of 16, MTBF of 5 h, \
                   checkpoints of 20 s every 13.6 min, recovery in 20 s. At 100 h: self over 99 %, \
                   single 61 % (it fails in 39 %)."
        .into();
    let series = vec![
        Series::line("self checkpoint", over_hours(Run::success_self)?),
        Series::line("single checkpoint", over_hours(Run::success_single)?),
    ];
    let x = Axis::linear("length of the run (hours)", "run_hours");
    let y = Axis::linear("probability to complete (%)", "success_percent").between(0.0, 105.0);
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn volumes() -> Result<Content, StudyError> {
    let name = |saved: Saved| match saved {
        Saved::Whole => "(a) whole matrix",
        Saved::Side => "(b) right side",
        Saved::Corner => "(c) corner",
    };
    let fraction = |saved: Saved, left: f64| {
        const N: u64 = 1_000_000;
        100.0 * saved.elements(N, (N as f64 * left).round() as u64) as f64
            / Saved::Whole.elements(N, N) as f64
    };
    let panel = |title: &str, x: Axis, left: fn(f64) -> f64| LineChart {
        title: title.into(),
        x,
        y: Axis::linear("saved by one checkpoint (%)", "saved_percent").between(0.0, 105.0),
        series: Saved::ALL
            .into_iter()
            .map(|saved| {
                let points = steps(0.0, 1.0, 101).map(|x| (100.0 * x, fraction(saved, left(x))));
                Series::line(name(saved), points)
            })
            .collect(),
    };
    let caption = "Tang et al., fig. 14, eq. 17 to 20. Spaced equally in columns the three save \
                   3 : 1.5 : 1 in all; spaced equally in time, as an optimal interval asks for, \
                   1 : 3/4 : 3/5, since the first columns take longest."
        .into();
    Ok((
        caption,
        Body::Panels {
            columns: 2,
            panels: vec![
                panel(
                    "over the columns",
                    Axis::linear("columns eliminated (%)", "columns_done_percent"),
                    |x| 1.0 - x,
                ),
                panel(
                    "over the time",
                    Axis::linear("time elapsed (% of the run)", "time_elapsed_percent"),
                    |x| (1.0 - x).cbrt(),
                ),
            ],
        },
    ))
}
