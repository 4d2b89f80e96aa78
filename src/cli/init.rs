//! `skt-hpl init`: writes a configuration that fits this machine.

use std::path::PathBuf;

use clap::Args;
use skt_host::ranges::above_zero;
use skt_host::units::counted;

use super::chosen::Chosen;
use super::fit::{self, Fitted, Room, SizeArgs};
use super::pace::Pace;
use super::{by_hand, machine};
use crate::report::output;
use skt_config::value::Value;
use skt_config::{At, ConfigError, RunSpec, Setting};
use skt_health::environment::library;
use skt_host::messages;
use skt_host::starter::Ranks;
use skt_run::protect;
use skt_store::store::StoreKind;

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// How large the run is, and how it is protected.
    #[command(flatten)]
    size: SizeArgs,
    /// Memory to plan for, in GiB, e.g. for another machine [default: what is available on this
    /// machine]
    #[arg(long, value_name = "GIB", value_parser = above_zero)]
    memory_gib: Option<f64>,
    /// Ranks on this machine [default: (cores - helper cores) / threads]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    ranks: Option<u64>,
    /// Lost ranks per group to leave memory for; with abft, per process row [default: as in a run
    /// without flags]
    #[arg(long, value_name = "M")]
    parities: Option<usize>,
    /// Cores to keep from the solver for the threads that encode and write images
    #[arg(long, value_name = "K", default_value_t = 0)]
    helper_cores: usize,
    /// Leave the memory for one rank more, which may come from a node that is lost without a spare
    /// (`launch --no-spare spread`); --ranks is then the number on one node
    #[arg(long)]
    survive_without_spares: bool,
    /// Write a configuration for HPL-MxP (`skt-hpl mxp`): a matrix in single precision, whose
    /// products are taken to be twice as fast as DGEMM; the time of the refinement is not counted
    #[arg(long)]
    mxp: bool,
    /// File to write, TOML if it ends in .toml, else HPL.dat; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = "HPL.dat")]
    out: PathBuf,
}

pub(crate) fn execute(args: &InitArgs) -> Result<(), ConfigError> {
    // The rate of a core is measured.
    library::take_default();
    let (size, helper_cores, path) = (&args.size, args.helper_cores, args.out.as_path());
    let threads = size.threads.map_or(1, usize::from);
    let ranks = ranks(args, threads)?;
    let available_bytes = match args.memory_gib {
        Some(gib) => (gib * f64::from(1 << 30)) as u64,
        None => machine::available_bytes()?,
    };
    let mut room = size.room(ranks, available_bytes);
    room.guests = usize::from(args.survive_without_spares);
    let parities = args.parities.map(|parities| (Setting::Parities, parities));
    let helpers = (helper_cores > 0).then_some((Setting::HelperCores, helper_cores));
    let asked = parities.into_iter().chain(helpers);
    room.asked.extend(asked.map(|(setting, count)| (setting, Value::flag(count.to_string()))));
    let (pace, source) = Pace::measure(ranks * threads)?;
    let base = fit::base(&room, threads, args.mxp, "skt-hpl init")?;
    let fitted = fit::fit(&base, &fit::grids(&base, ranks), &room, &pace)?;
    let spec = RunSpec { title: title(args, &room, available_bytes), ..fitted.spec.clone() };
    let chosen = Chosen { spec: &spec, protection: &fitted.protection, path };
    let count = Ranks { count: ranks, nodes: None, hostfile: "", threads, helper_cores };
    let command = by_hand::start(&count) + &chosen.flags();
    let config = chosen.text(&format!(
        "# Made by `skt-hpl init` for this machine; run it with\n#   {command}\n\
         # A smaller n ends sooner (the time grows as n^3), but at a lower rate.\n\n"
    ))?;
    output::write_file(path, &config, size.force)?;
    if output::is_stdout(path) {
        return Ok(());
    }
    messages::print(format_args!(
        "{}: {} on {}, {}; run it with\n  {command}\nor, for a first look,\n  {command} --n {}\n\
         times are {source}",
        path.display(),
        fitted.words(&pace, room.seconds),
        counted(ranks, "rank"),
        protection_words(&fitted),
        spec.n[0].min(spec.nb[0] * 50),
    ));
    if args.memory_gib.is_none() {
        warn_of_too_few_cores(ranks, threads, helper_cores)?;
        warn_of_memory_that_is_left()?;
    }
    Ok(())
}

fn protection_words(fitted: &Fitted) -> String {
    match fitted.protection[&Setting::Method].text.as_str() {
        "none" => "without checkpoints".to_owned(),
        "abft" => "with checksums (abft)".to_owned(),
        method => format!("with {method} checkpoints"),
    }
}

fn title(args: &InitArgs, room: &Room, available_bytes: u64) -> [String; 2] {
    let more = if room.guests > 0 { " and room for one more" } else { "" };
    let (part, mib) = (args.size.memory_part(), available_bytes >> 20);
    let ranks = counted(room.ranks, "rank");
    [
        "HPLinpack benchmark input file".to_owned(),
        format!("skt-hpl init: {ranks}{more}, {part} of {mib} MiB available"),
    ]
}

fn ranks(args: &InitArgs, threads: usize) -> Result<usize, ConfigError> {
    if let Some(ranks) = args.ranks {
        return Ok(ranks as usize);
    }
    let (cores, kept) = (machine::cores()?, args.helper_cores);
    if cores <= kept {
        let legal = format!("less than the cores of this machine, which has {cores}");
        return Err(At::flag("--helper-cores").out_of_range(kept, legal));
    }
    Ok(((cores - kept) / threads).max(1))
}

fn warn_of_too_few_cores(
    ranks: usize,
    threads: usize,
    helper_cores: usize,
) -> Result<(), ConfigError> {
    let (needed, cores) = (ranks * threads + helper_cores, machine::cores()?);
    if needed > cores {
        messages::print(format_args!(
            "warning: {} of {threads} thread(s) need {needed} cores, and this machine has {cores}: \
             they share them and are slow, and Open MPI starts no more ranks than cores",
            counted(ranks, "rank"),
        ));
    }
    Ok(())
}

fn warn_of_memory_that_is_left() -> Result<(), ConfigError> {
    let stores = [("sysv", StoreKind::SysV { huge_pages: false }), ("posix", StoreKind::Posix)];
    for (name, kind) in stores {
        let left = protect::left_by_others(&*kind.open(), name, None);
        let left = left.map_err(|why| ConfigError::Other(why.to_string()))?;
        if let Some(left) = left {
            messages::print(format_args!("note: {left}"));
        }
    }
    Ok(())
}
