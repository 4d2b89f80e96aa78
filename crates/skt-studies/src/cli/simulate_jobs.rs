use super::simulate_args::{LawName, ProtocolName, SimulateArgs};
use super::stated_levels::StatedLevels;
use crate::StudyError;
use crate::bosilca::WasteModel;
use crate::sim::coordinated::Protection;
use crate::sim::trace::Trace;
use crate::sim::{CoordinatedJob, HierarchicalJob, Law, LevelledJob};
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_model::error::{at_least, positive};
use skt_model::inmemory::InMemoryJob;
use skt_model::levels::{Level, Levels, Schedule};
use skt_model::tang::memory::Protocol;
use skt_model::{Group, HOUR_SECONDS, optimum};

pub(super) fn law(args: &SimulateArgs) -> Result<Law, StudyError> {
    if let Some(path) = &args.trace {
        let text =
            infile::read_text(path, LIST_BYTES_MAX).map_err(StudyError::file("read", path))?;
        let span_seconds = args.trace_hours.map(|hours| hours * HOUR_SECONDS);
        return Ok(Law::Trace(Trace::parse(&text, span_seconds)?));
    }
    let mtbf_seconds = args.node_mtbf_hours * HOUR_SECONDS;
    let law = match args.law {
        LawName::Exponential => Law::Exponential { mtbf_seconds },
        LawName::Weibull => Law::Weibull { mtbf_seconds, shape: args.shape },
        LawName::LogNormal => Law::LogNormal { mtbf_seconds, sigma: args.sigma },
    };
    law.validate()?;
    Ok(law)
}

/// Mean time between failures of all nodes together.
fn system_mtbf_seconds(args: &SimulateArgs) -> Result<f64, StudyError> {
    at_least("nodes", args.nodes, 1, "1 or more")?;
    Ok(match law(args)? {
        Law::Trace(trace) => trace.system_mtbf_seconds(),
        _ => args.node_mtbf_hours * HOUR_SECONDS / args.nodes as f64,
    })
}

/// A prediction: of what, by which formula, and its value.
pub(super) type Formula = (&'static str, String, f64);

/// A job whose nodes checkpoint at the same time, in memory or to stable storage, or not at all.
pub(super) fn coordinated(
    args: &SimulateArgs,
) -> Result<(CoordinatedJob, Vec<Formula>), StudyError> {
    let is_abft = args.protocol == ProtocolName::Abft;
    let checkpoint_seconds = if is_abft { 0.0 } else { args.checkpoint_seconds };
    let model = WasteModel::coordinated(
        checkpoint_seconds,
        args.recovery_seconds,
        args.downtime_seconds,
        args.overlap,
    );
    model.validate()?;
    let mtbf_seconds = system_mtbf_seconds(args)?;
    positive("system_mtbf_seconds", mtbf_seconds)?;
    let interval_seconds = match args.interval_seconds {
        _ if args.protocol == ProtocolName::None => f64::INFINITY,
        Some(given) => given,
        None if is_abft => {
            return Err(StudyError::Usage(
                "--protocol abft: give --interval-seconds, the seconds of a step".into(),
            ));
        }
        None => best_interval_seconds(&model, mtbf_seconds),
    };
    let work_seconds = args.work_hours * HOUR_SECONDS;
    let job = CoordinatedJob {
        work_seconds,
        interval_seconds,
        checkpoint_seconds,
        overlap_fraction: args.overlap,
        downtime_seconds: args.downtime_seconds,
        recovery_seconds: args.recovery_seconds,
        protection: protection(args)?,
        spares: args.spares,
        stop_at_loss: !args.restart,
        checkpoint_at_end: false,
        limit_seconds: args.give_up * work_seconds,
    };
    job.validate()?;
    let mut formulas = Vec::new();
    if args.protocol != ProtocolName::None {
        let period_seconds = interval_seconds + checkpoint_seconds;
        let validity = model.validity(period_seconds, mtbf_seconds);
        formulas.push((
            "waste",
            format!("Bosilca et al., eq. 5, T = {period_seconds:.0} s ({validity:?})"),
            model.waste(period_seconds, mtbf_seconds),
        ));
        formulas.push((
            "waste",
            "exact for exponential failures and long runs".into(),
            model.exact_coordinated_waste(period_seconds, mtbf_seconds),
        ));
    }
    if let Protection::Memory { group, .. } = job.protection {
        formulas.extend(in_memory_formulas(args, group, &job)?);
    }
    Ok((job, formulas))
}

fn protection(args: &SimulateArgs) -> Result<Protection, StudyError> {
    Ok(match args.protocol {
        ProtocolName::None => Protection::Nothing,
        ProtocolName::Coordinated | ProtocolName::Hierarchical => Protection::Stable,
        ProtocolName::Single
        | ProtocolName::Double
        | ProtocolName::SelfCheckpoint
        | ProtocolName::Abft => Protection::Memory {
            group: Group::new(args.group, args.parities)?,
            update_is_fatal: args.protocol == ProtocolName::Single,
        },
    })
}

/// Probabilities for in-memory checkpoints and exponential failures; empty for other laws.
fn in_memory_formulas(
    args: &SimulateArgs,
    group: Group,
    job: &CoordinatedJob,
) -> Result<Vec<Formula>, StudyError> {
    if args.trace.is_some() || args.law != LawName::Exponential {
        return Ok(Vec::new());
    }
    let protocol = match args.protocol {
        ProtocolName::Single => Protocol::Single,
        ProtocolName::Double => Protocol::Double,
        ProtocolName::Abft => Protocol::Abft,
        _ => Protocol::SelfCheckpoint,
    };
    let expected = InMemoryJob {
        protocol,
        group,
        nodes: args.nodes,
        spares: args.spares,
        node_mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS,
        work_seconds: job.work_seconds,
        checkpoint_seconds: job.checkpoint_seconds,
        overlap_fraction: job.overlap_fraction,
        downtime_seconds: job.downtime_seconds,
        recovery_seconds: job.recovery_seconds,
    }
    .expect(job.interval_seconds)?;
    let named = |what, value| (what, "exponential failures".to_string(), value);
    let mut formulas = vec![
        ("waste", "exponential failures, a run of this length".into(), 1.0 - expected.efficiency),
        named("time (h)", expected.time_seconds / HOUR_SECONDS),
        named("P(no data lost)", expected.keeps_data_probability),
    ];
    if args.spares.is_some() {
        formulas.push(named("P(spares suffice)", expected.spares_suffice_probability));
    }
    Ok(formulas)
}

fn best_interval_seconds(model: &WasteModel, mtbf_seconds: f64) -> f64 {
    let checkpoint_seconds = model.checkpoint_seconds;
    let shortest_seconds = checkpoint_seconds.max(1e-4 * mtbf_seconds);
    let best =
        optimum::minimize_log(shortest_seconds, shortest_seconds + 10.0 * mtbf_seconds, |period| {
            model.exact_coordinated_waste(period + 1e-9, mtbf_seconds)
        });
    (best.at - checkpoint_seconds).max(1e-6 * mtbf_seconds)
}

/// A job of groups that checkpoint one after the other, with message logging.
pub(super) fn hierarchical(
    args: &SimulateArgs,
) -> Result<(HierarchicalJob, Vec<Formula>), StudyError> {
    if args.spares.is_some() || args.restart {
        return Err(StudyError::Usage(
            "--spares and --restart have no meaning for --protocol hierarchical: it checkpoints to \
             stable storage and every node is replaced"
                .into(),
        ));
    }
    let model = WasteModel {
        groups: args.group,
        checkpoint_seconds: args.checkpoint_seconds,
        recovery_seconds: args.recovery_seconds,
        downtime_seconds: args.downtime_seconds,
        overlap_fraction: args.overlap,
        logging_speed: args.logging_speed,
        replay_speed: args.replay_speed,
        growth_per_second: args.growth_per_second,
    };
    let mtbf_seconds = system_mtbf_seconds(args)?;
    let best = model.best_period(mtbf_seconds)?;
    let checkpoints_seconds = args.group as f64 * args.checkpoint_seconds;
    let period_seconds = match (args.interval_seconds, best.period_seconds) {
        (Some(interval), _) => interval + checkpoints_seconds,
        (None, Some(period)) => period,
        (None, None) => {
            return Err(StudyError::Usage(format!(
                "the checkpoints of {} groups take {checkpoints_seconds} s, longer than any useful \
                 period at an MTBF of {mtbf_seconds:.0} s; give --interval-seconds",
                args.group
            )));
        }
    };
    let work_seconds = args.work_hours * HOUR_SECONDS;
    let periods = (work_seconds / (args.logging_speed * model.work_seconds(period_seconds)))
        .ceil()
        .max(1.0) as u64;
    let job = HierarchicalJob {
        model,
        period_seconds,
        periods,
        nodes: args.nodes,
        limit_seconds: args.give_up * work_seconds,
    };
    job.validate()?;
    let validity = model.validity(period_seconds, mtbf_seconds);
    let formulas = vec![
        (
            "waste",
            format!("Bosilca et al., eq. 15, T = {period_seconds:.0} s ({validity:?})"),
            model.waste(period_seconds, mtbf_seconds),
        ),
        ("waste", "the same, composed".into(), model.composed_waste(period_seconds, mtbf_seconds)),
    ];
    Ok((job, formulas))
}

pub(super) struct Levelled {
    pub(super) job: LevelledJob,
    pub(super) law: Law,
    pub(super) levels: Levels,
    pub(super) schedule: Schedule,
}

impl Levelled {
    pub(super) fn formula(&self) -> Formula {
        let Self { levels, schedule, .. } = self;
        let periods = levels.periods_seconds(schedule);
        let images: Vec<String> =
            periods[1..].iter().map(|seconds| format!("{seconds:.0} s")).collect();
        let how = format!(
            "levels to first order, T = {:.0} s, images every {} ({:?})",
            periods[0],
            images.join(", "),
            levels.validity(schedule)
        );
        ("waste", how, levels.waste(schedule))
    }
}

/// The job that these flags describe, with levels of images of `node_bytes` per node.
pub(super) fn levelled(
    args: &SimulateArgs,
    stated: &StatedLevels,
    node_bytes: f64,
) -> Result<Levelled, StudyError> {
    refuse_others(args)?;
    let outage_seconds = args.downtime_seconds + args.recovery_seconds;
    let memory = Level {
        cost_seconds: args.checkpoint_seconds,
        write_seconds: 0.0,
        outage_seconds,
        mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS / args.nodes as f64,
    };
    let levels = stated.below(memory, args.nodes, node_bytes)?;
    let schedule = stated.schedule(&levels, args.interval_seconds)?;
    let work_seconds = args.work_hours * HOUR_SECONDS;
    let (job, law) = LevelledJob::from_levels(&levels, &schedule, work_seconds)?;
    let job = LevelledJob { limit_seconds: args.give_up * work_seconds, ..job };
    job.validate()?;
    Ok(Levelled { job, law, levels, schedule })
}

/// Refuses flags that do not apply together with levels. Failures of levels are memoryless, the
/// only ones that the formula covers; their costs are stated, not derived from groups and spares.
fn refuse_others(args: &SimulateArgs) -> Result<(), StudyError> {
    let in_memory = [ProtocolName::SelfCheckpoint, ProtocolName::Double];
    let others = [
        (!in_memory.contains(&args.protocol), "--protocol but self and double"),
        (
            args.law != LawName::Exponential || args.trace.is_some(),
            "--law but exponential, --trace",
        ),
        (args.spares.is_some(), "--spares"),
        (args.overlap != 0.0, "--overlap"),
        (args.restart, "--restart"),
    ];
    match others.into_iter().find_map(|(is_asked, what)| is_asked.then_some(what)) {
        Some(what) => Err(StudyError::Usage(format!(
            "{what}: has no meaning with --level, whose mtbf= gives which failures memory does not \
             survive"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::sim::{Ages, Batch};
    use skt_model::levels::Validity;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        simulate: SimulateArgs,
    }

    fn job(flags: &str) -> Result<Levelled, String> {
        let flags = ["x"].into_iter().chain(flags.split_whitespace());
        let args = Only::try_parse_from(flags).map_err(|why| why.to_string())?.simulate;
        let levels = args.level.clone().expect("levels");
        let node_bytes = args.image_gib.expect("bytes") * f64::from(1u32 << 30);
        levelled(&args, &levels, node_bytes).map_err(|why| why.to_string())
    }

    const NODES: &str = "--nodes 100 --node-mtbf-hours 2000 --checkpoint-seconds 10 \
                         --downtime-seconds 80 --recovery-seconds 10 --image-gib 16";

    /// Disks of 512 MiB/s take 32 s; a file system of 4 GiB/s takes 400 s for all.
    #[test]
    fn levels_are_what_was_stated() {
        let levels = "--level local:0.5GiB/s,cost=4s,mtbf=5d,global:4GiB/s,every=2h,mtbf=50d";
        let Levelled { levels, schedule, job, .. } =
            job(&format!("{NODES} {levels} --interval-seconds 990")).unwrap();
        assert_eq!(levels.memory.mtbf_seconds, 72_000.0);
        let [near, far] = &levels.images[..] else { panic!("{levels:?}") };
        assert_eq!(
            (near.cost_seconds, near.write_seconds, near.outage_seconds),
            (4.0, 32.0, 122.0)
        );
        assert_eq!(
            (far.cost_seconds, far.write_seconds, far.outage_seconds),
            (400.0, 400.0, 490.0)
        );
        // sqrt(2 x 432,000 x 4) = 1859 s; 2 h are 7.2 checkpoints.
        assert_eq!(schedule, Schedule { work_seconds: 990.0, every: vec![2, 8] });
        assert_eq!((job.images[1].every, job.work_seconds), (8, 86_400.0));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let level = format!("{NODES} --level local:1GB/s");
        for (flags, says) in [
            ("--spares 3", "--spares: has no meaning with --level"),
            ("--overlap 0.5", "--overlap: has no meaning"),
            ("--law weibull", "--law but exponential"),
            ("--protocol abft", "--protocol but self and double"),
        ] {
            let why = job(&format!("{level} {flags}")).err().expect(flags);
            assert!(why.contains(says), "{why}");
        }
        for level in ["local:/x", "1GB/s", "local:1GB/s,keep=2", "local:1GB/s,mtbf=0"] {
            let why = format!("{NODES} --level={level}");
            assert!(job(&why).err().expect(level).contains("legal are local:RATE"), "{level}");
        }
        let without_bytes = job("--level local:1GB/s").err().expect("bytes are needed");
        assert!(without_bytes.contains("--image-gib"), "{without_bytes}");
    }

    /// The formula is about what is simulated.
    #[test]
    fn simulation_and_formula_agree_on_two_levels() {
        let flags = format!("{NODES} --level local:0.5GiB/s,cost=4s,mtbf=10d --work-hours 800");
        let levelled = job(&flags).unwrap();
        let Levelled { job, law, levels, schedule } = &levelled;
        assert_eq!(levels.validity(schedule), Validity::Valid);
        let nodes = job.all_nodes();
        let batch =
            Batch { runs: 200, seed: 1, threads: 2, nodes, law: law.clone(), ages: Ages::Steady };
        let waste = batch.run(job, &|_| {}).unwrap().waste.mean;
        let (_, _, by_formula) = levelled.formula();
        assert!((waste / by_formula - 1.0).abs() < 0.05, "{waste}, by formula {by_formula}");
    }
}
