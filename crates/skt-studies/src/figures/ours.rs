//! Figures of our own: m parities, scale, spares, and the simulator.

use super::{Content, log_steps, sample};
use crate::StudyError;
use crate::bosilca::{Platform, WasteModel};
use crate::plot::{Axis, Body, LineChart, Series};
use crate::sim::{Ages, Batch, CoordinatedJob, HierarchicalJob, Law, Summary};
use skt_model::chen::{Code, Network};
use skt_model::inmemory::{Expectation, InMemoryJob};
use skt_model::tang::memory::Protocol;
use skt_model::{Group, HOUR_SECONDS, ModelError, YEAR_SECONDS, optimum};

pub(super) const CONFIDENCE: f64 = 0.99;
const SEED: u64 = 2018;

pub(super) fn memory_of_parities() -> Result<Content, StudyError> {
    let series = (1..=4usize)
        .map(|m| {
            let sizes = (2 * m..=32).filter(|n| *n >= 2).map(|n| n as f64);
            let points = sample(sizes, |n| {
                let group = Group::new(n as usize, m)?;
                Ok(100.0 * Protocol::SelfCheckpoint.available_fraction(group))
            })?;
            Ok(Series::line(format!("m = {m}"), points))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let caption = "(n-m)/(2n): Tang et al., eq. 6, for m parities.".into();
    let x = Axis::linear("group size n (members)", "group_size_members");
    let y = Axis::linear("available memory (%)", "available_memory_percent").between(20.0, 50.0);
    Ok((caption, Body::lines(x, y, series)))
}

/// The job of the figures over scale: a day's run on nodes with an MTBF of 5 years.
fn day_job(protocol: Protocol, parities: usize, nodes: usize) -> Result<InMemoryJob, ModelError> {
    Ok(InMemoryJob {
        protocol,
        group: Group::new(16, parities)?,
        nodes,
        spares: None,
        node_mtbf_seconds: 5.0 * YEAR_SECONDS,
        work_seconds: 24.0 * HOUR_SECONDS,
        checkpoint_seconds: if protocol == Protocol::Abft { 0.0 } else { 10.0 * parities as f64 },
        overlap_fraction: 0.0,
        downtime_seconds: 60.0,
        recovery_seconds: 20.0,
    })
}

fn day_expected(
    protocol: Protocol,
    parities: usize,
    nodes: usize,
) -> Result<Expectation, ModelError> {
    let job = day_job(protocol, parities, nodes)?;
    let step_seconds = 10.0;
    let best_seconds = job.best_interval_seconds()?;
    job.expect(if protocol == Protocol::Abft { step_seconds } else { best_seconds })
}

const DAY_JOB: &str = "24 h of work, nodes of 5 years MTBF, groups of 16, checkpoints of 10 s a \
                       parity, outages of 60 s and 20 s of rebuild, each run at its best \
                       interval; abft with process rows of 16 and steps of 10 s";

pub(super) fn scale_efficiency() -> Result<Content, StudyError> {
    let over_nodes = |protocol, parities| {
        sample(log_steps(100.0, 1e6, 60), |nodes| {
            Ok(100.0 * day_expected(protocol, parities, nodes as usize)?.efficiency)
        })
    };
    let mut series = vec![Series::line("none (restart from zero)", over_nodes(Protocol::None, 1)?)];
    for m in 1..=4 {
        series
            .push(Series::line(format!("self, m = {m}"), over_nodes(Protocol::SelfCheckpoint, m)?));
    }
    series.push(Series::line("abft, m = 1", over_nodes(Protocol::Abft, 1)?));
    let caption =
        format!("Expected work over expected time, exact for exponential failures. {DAY_JOB}.");
    let x = Axis::log("nodes", "nodes");
    let y = Axis::linear("efficiency (%)", "efficiency_percent").between(0.0, 100.0);
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn scale_probability() -> Result<Content, StudyError> {
    let over_nodes = |protocol, parities| {
        sample(log_steps(100.0, 1e6, 60), |nodes| {
            // Below 1e-16, the complement of a float near 1 is noise.
            Ok(1.0 - day_expected(protocol, parities, nodes as usize)?.keeps_data_probability)
        })
    };
    let mut series = vec![
        Series::line("none", over_nodes(Protocol::None, 1)?),
        Series::line("single, m = 1", over_nodes(Protocol::Single, 1)?),
    ];
    for m in 1..=3 {
        series
            .push(Series::line(format!("self, m = {m}"), over_nodes(Protocol::SelfCheckpoint, m)?));
    }
    series.push(Series::line("abft, m = 1", over_nodes(Protocol::Abft, 1)?));
    let caption = format!("For none: that anything fails. {DAY_JOB}.");
    let x = Axis::log("nodes", "nodes");
    let y = Axis::log("probability of loss (fraction)", "loses_data_fraction").between(1e-12, 2.0);
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn spares() -> Result<Content, StudyError> {
    let series = [1_000usize, 10_000, 100_000]
        .into_iter()
        .map(|nodes| {
            let spares = log_steps(1.0, 1_000.0, 70).map(f64::round);
            let points = sample(spares, |spares| {
                let job = InMemoryJob {
                    spares: Some(spares as usize),
                    ..day_job(Protocol::SelfCheckpoint, 2, nodes)?
                };
                let expected = job.expect(job.best_interval_seconds()?)?;
                Ok(100.0 * expected.spares_suffice_probability)
            })?;
            Ok(Series::line(format!("{nodes} nodes"), points))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let caption = format!("Self-checkpoint with two parities. {DAY_JOB}.");
    let x = Axis::log("spare nodes", "spare_nodes");
    let y = Axis::linear("probability (%)", "spares_suffice_percent").between(0.0, 105.0);
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn platforms() -> Result<Content, StudyError> {
    let panels = Platform::ALL
        .iter()
        .map(|platform| {
            let mut series = vec![Series::line("COORD-IO", io_waste(platform)?)];
            for parities in [1usize, 2, 4] {
                let points = self_waste(platform, Group::new(16, parities)?)?;
                series.push(Series::line(format!("self, groups of 16, m = {parities}"), points));
            }
            Ok(LineChart {
                title: platform.name.into(),
                x: Axis::log("processor MTBF (years)", "processor_mtbf_years").between(1.0, 100.0),
                y: Axis::linear("waste (fraction)", "waste_fraction").between(0.0, 1.05),
                series,
            })
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let caption =
        "Exact waste at the best period, exponential failures. COORD-IO writes all memory \
         to the I/O system (table 2). The self-checkpoint encodes its share of the memory \
         over each processor's port (Chen and Dongarra, eq. 8, sums as fast as the port) \
         and copies it at the same speed; 60 s of downtime. Waste is of time: the \
         self-checkpoint also halves the memory."
            .into();
    Ok((caption, Body::Panels { columns: 2, panels }))
}

fn io_waste(platform: &Platform) -> Result<Vec<(f64, f64)>, ModelError> {
    let (write, read) = (platform.write_seconds, platform.read_seconds);
    best_exact_waste(platform, &WasteModel::coordinated(write, read, 60.0, 0.0))
}

fn self_waste(platform: &Platform, group: Group) -> Result<Vec<(f64, f64)>, ModelError> {
    let seconds_per_byte = 1.0 / platform.port_bytes_per_second;
    let network = Network {
        latency_seconds: 2e-6,
        transfer_seconds_per_byte: seconds_per_byte,
        reduce_seconds_per_byte: seconds_per_byte,
    };
    let bytes =
        platform.processor_memory_bytes * Protocol::SelfCheckpoint.available_fraction(group);
    let code = if group.parities() == 1 { Code::Sum } else { Code::Weighted };
    let encode = network.grouped_seconds(group.size(), group.parities(), bytes, code)?;
    let checkpoint = encode + bytes * seconds_per_byte;
    best_exact_waste(platform, &WasteModel::coordinated(checkpoint, checkpoint, 60.0, 0.0))
}

/// The least exact waste over all periods, by the processor's MTBF in years.
fn best_exact_waste(
    platform: &Platform,
    model: &WasteModel,
) -> Result<Vec<(f64, f64)>, ModelError> {
    model.validate()?;
    let least = |years: f64| {
        let mtbf_seconds = platform.mtbf_seconds(years * YEAR_SECONDS);
        let shortest = model.checkpoint_seconds * (1.0 + 1e-6);
        optimum::minimize_log(shortest, 100.0 * (shortest + mtbf_seconds), |period| {
            model.exact_coordinated_waste(period, mtbf_seconds)
        })
        .value
    };
    Ok(log_steps(1.0, 100.0, 90).map(|years| (years, least(years))).collect())
}

pub(super) fn batch(nodes: usize, law: Law, runs: usize) -> Batch {
    Batch { runs, seed: SEED, threads: 0, nodes, law, ages: Ages::Steady }
}

fn waste_over_period(series: Vec<Series>) -> Body {
    let x = Axis::log("period T (hours)", "period_hours");
    let y = Axis::linear("waste (fraction)", "waste_fraction").between(0.0, 1.0);
    Body::lines(x, y, series)
}

/// The period in hours, the waste, and half of its confidence interval.
fn seen_waste(period_seconds: f64, summary: &Summary) -> (f64, f64, f64) {
    let waste = &summary.waste;
    (period_seconds / HOUR_SECONDS, waste.mean, waste.half_width(CONFIDENCE))
}

pub(super) fn simulated_coordinated() -> Result<Content, StudyError> {
    let model = WasteModel::coordinated(120.0, 120.0, 60.0, 0.3);
    let mtbf_seconds = 4.0 * HOUR_SECONDS;
    let hours = |seconds: f64| seconds / HOUR_SECONDS;
    let curve = |f: &dyn Fn(f64) -> f64| {
        log_steps(200.0, 40_000.0, 100).map(|t| (hours(t), f(t))).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for period_seconds in log_steps(200.0, 40_000.0, 14) {
        let law = Law::Exponential { mtbf_seconds: mtbf_seconds * 1_000.0 };
        let summary = batch(1_000, law, 300)
            .run(&CoordinatedJob::from_periods(&model, period_seconds, 200.0), &|_| {})?;
        seen.push(seen_waste(period_seconds, &summary));
    }
    let caption = "C = R = 120 s, D = 60 s, alpha = 0.3, platform MTBF 4 h, exponential. Eq. 5 of \
                   Bosilca et al. adds overheads that should be composed and holds for T below 0.1 \
                   MTBF (0.4 h); the exact form holds for any period. Bars: 99 % confidence, 300 \
                   runs of 200 periods."
        .into();
    Ok((
        caption,
        waste_over_period(vec![
            Series::line("eq. 5 (first order)", curve(&|t| model.waste(t, mtbf_seconds))),
            Series::line("exact", curve(&|t| model.exact_coordinated_waste(t, mtbf_seconds))),
            Series::measured("simulated", seen),
        ]),
    ))
}

pub(super) fn simulated_hierarchical() -> Result<Content, StudyError> {
    let mtbf_seconds = 20.0 * HOUR_SECONDS;
    let mut series = Vec::new();
    for groups in [1usize, 64] {
        let model = WasteModel {
            groups,
            checkpoint_seconds: 1_200.0 / groups as f64,
            recovery_seconds: 1_200.0 / groups as f64,
            downtime_seconds: 60.0,
            overlap_fraction: 0.3,
            logging_speed: 0.98,
            replay_speed: 1.5,
            growth_per_second: 2e-5,
        };
        let shortest = 1.05 * model.shortest_period_seconds().unwrap_or(1_200.0);
        let curve = log_steps(shortest, 40_000.0, 80)
            .map(|t| (t / HOUR_SECONDS, model.waste(t, mtbf_seconds)));
        let mut seen = Vec::new();
        for period_seconds in log_steps(shortest, 40_000.0, 8) {
            let job = HierarchicalJob {
                model,
                period_seconds,
                periods: 200,
                nodes: 640,
                limit_seconds: f64::INFINITY,
            };
            job.validate()?;
            let law = Law::Exponential { mtbf_seconds: mtbf_seconds * 640.0 };
            seen.push(seen_waste(period_seconds, &batch(640, law, 200).run(&job, &|_| {})?));
        }
        series.push(Series::line(format!("eq. 15, G = {groups}"), curve));
        let composed = log_steps(shortest, 40_000.0, 80)
            .map(|t| (t / HOUR_SECONDS, model.composed_waste(t, mtbf_seconds)));
        series.push(Series::line(format!("composed, G = {groups}"), composed));
        series.push(Series::measured(format!("simulated, G = {groups}"), seen));
    }
    let caption =
        "G C_0 = 1200 s, R_0 = C_0, D = 60 s, alpha = 0.3, lambda = 0.98, rho = 1.5, beta \
         = 2e-5 /s, platform MTBF 20 h. Bars: 99 % confidence, 200 runs of 200 periods. \
         Eq. 15 adds two overheads, composed they lie on the simulation; both are \
         meant for T below 2 h."
            .into();
    Ok((caption, waste_over_period(series)))
}

pub(super) fn simulated_laws() -> Result<Content, StudyError> {
    const NODES: usize = 1_000;
    let mtbf_seconds = 4.0 * HOUR_SECONDS;
    let node = mtbf_seconds * NODES as f64;
    let model = WasteModel::coordinated(120.0, 120.0, 60.0, 0.0);
    let laws = [
        ("exponential, steady", Law::Exponential { mtbf_seconds: node }, Ages::Steady),
        ("Weibull k = 0.7, steady", Law::Weibull { mtbf_seconds: node, shape: 0.7 }, Ages::Steady),
        (
            "log-normal s = 1.2, steady",
            Law::LogNormal { mtbf_seconds: node, sigma: 1.2 },
            Ages::Steady,
        ),
        ("Weibull k = 0.7, new nodes", Law::Weibull { mtbf_seconds: node, shape: 0.7 }, Ages::New),
    ];
    let mut series = vec![Series::line(
        "exact, exponential",
        log_steps(300.0, 40_000.0, 80)
            .map(|t| (t / HOUR_SECONDS, model.exact_coordinated_waste(t, mtbf_seconds))),
    )];
    for (name, law, ages) in laws {
        let mut seen = Vec::new();
        for period_seconds in log_steps(300.0, 40_000.0, 9) {
            // Eight days of work, whatever the period.
            let periods = (8.0 * 24.0 * HOUR_SECONDS / period_seconds).ceil();
            let batch = Batch { ages, ..batch(NODES, law.clone(), 200) };
            let summary = batch
                .run(&CoordinatedJob::from_periods(&model, period_seconds, periods), &|_| {})?;
            seen.push(seen_waste(period_seconds, &summary));
        }
        series.push(Series::measured(name, seen));
    }
    let caption =
        "1000 nodes, platform MTBF 4 h, C = R = 120 s, D = 60 s, eight days of work. In a \
         machine that has run for long only the mean counts; a machine of new nodes with \
         infant mortality (Weibull, k < 1) fails far more often at first. Bars: 99 % \
         confidence, 200 runs."
            .into();
    Ok((caption, waste_over_period(series)))
}

const LOSS_INTERVAL_SECONDS: f64 = 500.0;
const LOSS_NODES: usize = 64;
const LOSS_NODE_MTBF_SECONDS: f64 = 5_000.0 * LOSS_NODES as f64;

/// The job whose groups like this keep the data or not, if an outage takes `outage_seconds`.
fn loss_job(group: Group, outage_seconds: f64) -> InMemoryJob {
    InMemoryJob {
        protocol: Protocol::SelfCheckpoint,
        group,
        nodes: LOSS_NODES,
        spares: None,
        node_mtbf_seconds: LOSS_NODE_MTBF_SECONDS,
        work_seconds: 50_000.0,
        checkpoint_seconds: 20.0,
        overlap_fraction: 0.0,
        downtime_seconds: 0.0,
        recovery_seconds: outage_seconds,
    }
}

pub(super) fn simulated_loss() -> Result<Content, StudyError> {
    let mut series = Vec::new();
    for (parities, size) in [(1usize, 8usize), (1, 16), (2, 16)] {
        let group = Group::new(size, parities)?;
        let curve = sample(log_steps(30.0, 1_000.0, 40), |outage| {
            let expected = loss_job(group, outage).expect(LOSS_INTERVAL_SECONDS)?;
            Ok(expected.keeps_data_probability)
        })?;
        series.push(Series::line(format!("formula, n = {size}, m = {parities}"), curve));
        let mut seen = Vec::new();
        for outage in [30.0, 100.0, 300.0, 1_000.0] {
            let job = CoordinatedJob::in_memory(&loss_job(group, outage), LOSS_INTERVAL_SECONDS);
            let law = Law::Exponential { mtbf_seconds: LOSS_NODE_MTBF_SECONDS };
            let kept = batch(LOSS_NODES, law, 4_000).run(&job, &|_| {})?.finished;
            let (low, high) = kept.interval(CONFIDENCE);
            seen.push((outage, 0.5 * (low + high), 0.5 * (high - low)));
        }
        series.push(Series::measured(format!("simulated, n = {size}, m = {parities}"), seen));
    }
    let caption =
        "64 nodes, platform MTBF 5000 s, 50,000 s of work: far worse than any machine, so \
         that losses can be counted. Bars: 99 % confidence, 4000 runs."
            .into();
    let x = Axis::log("outage after a failure (s)", "outage_seconds");
    let y = Axis::linear("probability (fraction)", "keeps_data_fraction").between(0.0, 1.05);
    Ok((caption, Body::lines(x, y, series)))
}
