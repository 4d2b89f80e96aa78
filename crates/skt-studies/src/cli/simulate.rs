use super::output;
use super::progress_bar::ProgressBar;
use super::simulate_args::{ProtocolName, SimulateArgs};
use super::simulate_jobs::{self, Formula};
use crate::StudyError;
use crate::sim::coordinated::Protection;
use crate::sim::stats::{Estimate, Proportion};
use crate::sim::{Ages, Batch, CoordinatedJob, Summary};
use skt_model::HOUR_SECONDS;
use skt_model::error::at_least;

pub(super) fn execute(args: &SimulateArgs) -> Result<(), StudyError> {
    at_least("nodes", args.nodes, 1, "1 or more")?;
    let batch = Batch {
        runs: args.runs,
        seed: args.seed,
        threads: args.threads.unwrap_or(0),
        nodes: args.nodes,
        law: simulate_jobs::law(args)?,
        ages: if args.new_nodes { Ages::New } else { Ages::Steady },
    };
    let bar = ProgressBar::new("runs", args.runs);
    let show = |done: usize| bar.show(done);
    let (summary, unharmed, formula) = if let Some((levels, gib)) =
        args.level.as_ref().zip(args.image_gib)
    {
        let node_bytes = gib * f64::from(1u32 << 30);
        let levelled = simulate_jobs::levelled(args, levels, node_bytes)?;
        let nodes = levelled.job.all_nodes();
        let batch = Batch { nodes, law: levelled.law.clone(), ..batch };
        let summary = batch.run(&levelled.job, &show)?;
        (summary, None, vec![levelled.formula()])
    } else if args.protocol == ProtocolName::Hierarchical {
        let (job, formula) = simulate_jobs::hierarchical(args)?;
        (batch.run(&job, &show)?, None, formula)
    } else {
        let (job, formula) = simulate_jobs::coordinated(args)?;
        let summary = batch.run(&job, &show)?;
        let unharmed = unharmed(&job, &summary).map(|job| batch.run(&job, &show)).transpose()?;
        (summary, unharmed, formula)
    };
    bar.end();
    output::print(&report(args, &summary, unharmed.as_ref(), &formula))
}

/// The job with no loss of data and with spares enough, which is the job that formulas of time and
/// waste describe. `None` if all runs of `summary` were like that.
fn unharmed(job: &CoordinatedJob, summary: &Summary) -> Option<CoordinatedJob> {
    let harmed = summary.lost_data.hits + summary.out_of_spares.hits > 0;
    let in_memory = matches!(job.protection, Protection::Memory { .. });
    (harmed && in_memory).then_some(CoordinatedJob {
        protection: Protection::Stable,
        spares: None,
        ..*job
    })
}

fn report(
    args: &SimulateArgs,
    summary: &Summary,
    unharmed: Option<&Summary>,
    formulas: &[Formula],
) -> String {
    let confidence = args.confidence;
    let mut lines = format!(
        "{} runs, seed {}, {} nodes; intervals hold with {} %\n",
        args.runs,
        args.seed,
        args.nodes,
        100.0 * confidence
    );
    let mean = |name: &str, estimate: &Estimate, unit: &str, factor: f64| {
        if estimate.count == 0 {
            return format!("{name:<28} none\n");
        }
        let value = factor * estimate.mean;
        if estimate.count == 1 {
            return format!("{name:<28} {value:.5} {unit} (one run)\n");
        }
        let half = factor * estimate.half_width(confidence);
        format!("{name:<28} {value:.5} +- {half:.5} {unit}\n")
    };
    let share = |name: &str, proportion: &Proportion| {
        let (low, high) = proportion.interval(confidence);
        format!(
            "{name:<28} {:.3} % ({:.3} to {:.3})\n",
            100.0 * proportion.value(),
            100.0 * low,
            100.0 * high
        )
    };
    lines += &share("finished", &summary.finished);
    lines += &share("lost data", &summary.lost_data);
    lines += &share("out of spares", &summary.out_of_spares);
    lines += &share("given up", &summary.timed_out);
    lines += &mean(
        "time of those that finished",
        &summary.finished_time_seconds,
        "h",
        1.0 / HOUR_SECONDS,
    );
    lines += &mean("waste", &summary.waste, "(fraction)", 1.0);
    lines += &mean("in outages", &summary.outage_fraction, "(fraction)", 1.0);
    lines += &mean("failures a run", &summary.failures, "", 1.0);
    if let Some(unharmed) = unharmed {
        lines += "if no failure lost data and spares were enough, as the formulas have it:\n";
        let time = &unharmed.finished_time_seconds;
        lines += &mean("time", time, "h", 1.0 / HOUR_SECONDS);
        lines += &mean("waste", &unharmed.waste, "(fraction)", 1.0);
    }
    for (what, how, value) in formulas {
        lines += &format!("{:<28} {value:.5} {how}\n", format!("{what} by formula"));
    }
    lines
}
