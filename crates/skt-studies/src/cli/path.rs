//! `skt-studies path`: predicts how a run spends its time on a machine that is not available, and
//! which changes would make it faster.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use skt_host::choice::{Bcast, Swap};
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::phases::Phases;
use skt_host::ranges::{above_zero, above_zero_or_infinite, zero_or_above};
use skt_host::{messages, outfile};
use skt_model::path::{
    Changes, Machine, MeasuredTest, Part, Prediction, RunParams, closed, fit, measured, predict,
};
use skt_model::table::{Fields, table};

use super::output;
use crate::StudyError;

/// More than a report of the largest machine has.
const REPORT_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_long_help = EXAMPLES)]
pub(super) struct PathArgs {
    /// Order of the matrix [default: what --memory-gib allows]
    #[arg(long, value_name = "N")]
    n: Option<usize>,
    /// Memory per rank for the matrix, in GiB; N follows from it
    #[arg(long, value_parser = above_zero, value_name = "GIB", conflicts_with = "n")]
    memory_gib: Option<f64>,
    /// Blocking factors
    #[arg(long, value_name = "NB,..", value_delimiter = ',', default_value = "192")]
    nb: Vec<usize>,
    /// Process rows
    #[arg(long, value_name = "P", default_value_t = 1)]
    p: usize,
    /// Process columns
    #[arg(long, value_name = "Q", default_value_t = 1)]
    q: usize,
    /// Threads per rank
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: usize,
    /// Look-ahead: panels factored ahead of the update
    #[arg(long, value_name = "D,..", value_delimiter = ',', default_value = "1")]
    depth: Vec<usize>,
    /// How a panel travels along its process row
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "1ringM")]
    #[arg(value_parser = PossibleValuesParser::new(Bcast::NAMES)
        .map(|name| Bcast::named(&name).expect("one of the names")))]
    bcast: Vec<Bcast>,
    /// How rows are exchanged
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "mix")]
    #[arg(value_parser = PossibleValuesParser::new(Swap::NAMES)
        .map(|name| Swap::named(&name).expect("one of the names")))]
    swap: Vec<Swap>,
    /// Local columns above which mix takes spread-roll
    #[arg(long, value_name = "COLS", default_value_t = 64)]
    swap_threshold: usize,
    /// Seconds that one of each unit of work takes, as --save-machine writes them [default: fitted
    /// on two cores of an AMD EPYC (Zen 4)]
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Fit the machine to these JSON reports first (of runs with one thread per rank)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    fit: Vec<PathBuf>,
    /// Leave smaller tests out of the fit: data that fits into caches is faster
    #[arg(long, value_name = "N", default_value_t = 2048)]
    fit_from: usize,
    /// Write the machine to this new file
    #[arg(long, value_name = "FILE")]
    save_machine: Option<PathBuf>,
    /// DGEMM rate of a core, in Gflop/s; the rates of solve and panel scale with it [default: the
    /// machine's]
    #[arg(long, value_parser = above_zero, value_name = "GFLOPS")]
    gflops_per_core: Option<f64>,
    /// Latency of a message, in microseconds [default: the machine's]
    #[arg(long, value_parser = zero_or_above, value_name = "US")]
    latency_us: Option<f64>,
    /// Bandwidth of a rank in one direction, in GB/s, or inf [default: the machine's]
    #[arg(long, value_parser = above_zero_or_infinite, value_name = "GB/S")]
    bandwidth_gbs: Option<f64>,
    /// Compare predicted and measured phases of these JSON reports, instead of predicting a run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    check: Vec<PathBuf>,
    /// Also show what changes of the solver would gain
    #[arg(long)]
    changes: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Units of work are counted from the solver's own steps; a machine is the seconds that one unit of
each kind takes. The rates of computation come from a fit; the network of a future machine has to
be given.

  Predict 16 x 16 ranks of 8 threads and 16 GiB on a network of 1.5 us and 23 GB/s per rank:
    skt-studies path --p 16 --q 16 --threads 8 --memory-gib 16 --nb 192,256,384 \\
        --bcast 1ringM,2ringM,longM --latency-us 1.5 --bandwidth-gbs 23 --changes

  Fit this machine, and see how good the fit is on runs that it has not seen:
    mpirun -np 2 skt-hpl --transport messages --n 2048,4096,8192 --nb 64,128,256 --p 1,2 --q 2,1 \\
        --ft none --json fit.json
    mpirun -np 2 skt-hpl --transport messages --n 3000,6000 --nb 160 --p 1,2 --q 2,1 --ft none \\
        --json new.json
    skt-studies path --fit fit.json --check new.json --save-machine machine.json

Lists are combined; the fastest combination comes first. Of more than 30 million steps, every second
panel is walked, or fewer: the time is within 1 %.

`path` has the seconds of each part on the critical path, which sum to the time; `unhidden` what a
part takes if nothing hides it. The model assumes messages, and has no contention, noise or
checkpoints.";

pub(super) fn execute(args: &PathArgs) -> Result<(), StudyError> {
    let machine = machine(args)?;
    if let Some(path) = &args.save_machine {
        let text = serde_json::to_string_pretty(&machine).expect("numbers and names") + "\n";
        outfile::write_new(path, text.as_bytes()).map_err(StudyError::file("write", path))?;
    }
    let unit_seconds = Fields(vec![("machine", json!(machine))]);
    if !args.check.is_empty() {
        let (tests, errors) = compare(&read_all(&args.check)?, &machine)?;
        return print(args, &[("", vec![unit_seconds, errors]), ("tests", tests)]);
    }
    if args.n.is_none() && args.memory_gib.is_none() {
        return if args.fit.is_empty() {
            Err(StudyError::Usage("what is to be run? Give --n or --memory-gib".into()))
        } else {
            print(args, &[("", vec![unit_seconds])])
        };
    }
    let all = predictions(args, &machine)?;
    let runs = all.iter().map(|(run, predicted)| fields(run, predicted, &machine)).collect();
    let changes = if args.changes { changes(&all[0].0, &machine)? } else { Vec::new() };
    print(args, &[("", vec![unit_seconds]), ("runs", runs), ("changes", changes)])
}

/// Each group is a table, or a member of one JSON object; the group without a name is its values.
fn print(args: &PathArgs, groups: &[(&str, Vec<Fields>)]) -> Result<(), StudyError> {
    if !args.json {
        let tables = groups.iter().flat_map(|(name, columns)| match *name {
            "" => columns.iter().map(|fields| table(std::slice::from_ref(fields))).collect(),
            _ => vec![table(columns)],
        });
        let tables: Vec<String> = tables.filter(|table| !table.is_empty()).collect();
        return output::print(&tables.join("\n"));
    }
    let mut document = json!({});
    for (name, columns) in groups {
        match *name {
            "" => {
                for (name, value) in columns.iter().flat_map(|fields| &fields.0) {
                    document[*name] = value.clone();
                }
            }
            name => document[name] = columns.iter().map(Fields::json).collect(),
        }
    }
    output::print(&(serde_json::to_string_pretty(&document).expect("numbers and names") + "\n"))
}

fn read_all(files: &[PathBuf]) -> Result<Vec<MeasuredTest>, StudyError> {
    let mut runs = Vec::new();
    for path in files {
        let refused = |why: String| StudyError::Usage(format!("'{}': {why}", path.display()));
        let text = infile::read(path, REPORT_BYTES_MAX).map_err(StudyError::file("read", path))?;
        let found = measured::parse(&String::from_utf8_lossy(&text)).map_err(refused)?;
        if found.is_empty() {
            let why = "no test ran to its end without checkpoints (--ft none)";
            return Err(refused(why.to_owned()));
        }
        let before = runs.len();
        runs.extend(found.into_iter().filter(|test| !test.shared));
        if runs.len() == before {
            let why = "ranks read panels or rows in each other's memory; the model is one of \
                       messages: run with --transport messages";
            return Err(refused(why.to_owned()));
        }
    }
    Ok(measured::fastest(&runs))
}

fn machine(args: &PathArgs) -> Result<Machine, StudyError> {
    let mut machine = match &args.machine {
        Some(path) => read_machine(path)?,
        None => Machine::ZEN4_CORE,
    };
    if !args.fit.is_empty() {
        let mut runs = read_all(&args.fit)?;
        runs.retain(|measured| measured.run.n >= args.fit_from);
        let fit = fit::fit(&runs, &machine)?;
        machine = fit.machine;
        for unit in &fit.unseen {
            messages::print(format_args!(
                "note: the reports have nothing on {unit:?}, or its cost is negligible"
            ));
        }
    }
    if let Some(gflops) = args.gflops_per_core {
        machine = machine.with_core_flops(1e9 * gflops);
    }
    if let Some(latency) = args.latency_us {
        machine.message_seconds = latency * 1e-6;
    }
    if let Some(bandwidth) = args.bandwidth_gbs {
        machine.message_byte_seconds = 1e-9 / bandwidth;
    }
    machine.validate()?;
    Ok(machine)
}

fn read_machine(path: &Path) -> Result<Machine, StudyError> {
    let text = infile::read_text(path, LIST_BYTES_MAX).map_err(StudyError::file("read", path))?;
    Machine::parse(&text).map_err(|why| StudyError::Usage(format!("'{}' is {why}", path.display())))
}

/// N: the flag's value, or the largest multiple of NB whose matrix takes the memory of each rank.
fn order(args: &PathArgs, nb: usize) -> Result<usize, StudyError> {
    let Some(gib) = args.memory_gib else { return Ok(args.n.expect("one of both is given")) };
    let doubles = gib * f64::from(1u32 << 30) / 8.0 * (args.p * args.q) as f64;
    let n = doubles.sqrt() as usize / nb.max(1) * nb;
    if n == 0 || !doubles.is_finite() {
        return Err(StudyError::Usage(format!(
            "--memory-gib {gib}: not enough for one block of NB = {nb} on each rank"
        )));
    }
    Ok(n)
}

/// Predicts all combinations, those with the highest rate first; with --memory-gib, N depends on
/// NB, so times do not compare.
fn predictions(
    args: &PathArgs,
    machine: &Machine,
) -> Result<Vec<(RunParams, Prediction)>, StudyError> {
    let mut all = Vec::new();
    for &nb in &args.nb {
        for &depth in &args.depth {
            for &bcast in &args.bcast {
                for &swap in &args.swap {
                    let run = RunParams {
                        threads: args.threads,
                        depth,
                        bcast,
                        swap,
                        swap_threshold: args.swap_threshold,
                        halves: RunParams::has_halves(swap, depth),
                        ..RunParams::new(order(args, nb)?, nb, (args.p, args.q))
                    };
                    all.push((run, predict(&run, machine, &Changes::default())?));
                }
            }
        }
    }
    all.sort_by(|(_, a), (_, b)| b.gflops.total_cmp(&a.gflops));
    Ok(all)
}

/// Without halves, then with each change of the solver alone, then with all of these changes.
fn changes(run: &RunParams, machine: &Machine) -> Result<Vec<Fields>, StudyError> {
    let none = Changes::default();
    let all = Changes { prompt_forwarding: true, wait_for_oldest: true, team_without_loss: true };
    let at_once = RunParams { halves: false, ..*run };
    let list = [
        ("rows of all columns at once", at_once, none),
        ("panels passed on promptly", *run, Changes { prompt_forwarding: true, ..none }),
        ("wait for the oldest panel", *run, Changes { wait_for_oldest: true, ..none }),
        ("teams without loss at panels", *run, Changes { team_without_loss: true, ..none }),
        ("the last three", *run, all),
    ];
    let one = |(name, run, changes): (&str, RunParams, Changes)| {
        let Prediction { time_seconds, efficiency, .. } = predict(&run, machine, &changes)?;
        Ok(Fields(vec![
            ("change", json!(name)),
            ("time_seconds", json!(time_seconds)),
            ("efficiency", json!(efficiency)),
        ]))
    };
    list.into_iter().map(one).collect()
}

fn phases(phases: &Phases) -> Value {
    phases.named().into_iter().collect()
}

fn fields(run: &RunParams, predicted: &Prediction, machine: &Machine) -> Fields {
    let parts = |of: &[f64]| -> Value {
        Part::ALL
            .map(|part| (part.name().replace(' ', "_"), of[part as usize]))
            .into_iter()
            .collect()
    };
    Fields(vec![
        ("n", json!(run.n)),
        ("nb", json!(run.nb)),
        ("p", json!(run.p)),
        ("q", json!(run.q)),
        ("threads", json!(run.threads)),
        ("depth", json!(run.depth)),
        ("bcast", json!(run.bcast.name())),
        ("swap", json!(run.swap.name())),
        ("time_seconds", json!(predicted.time_seconds)),
        ("gflops", json!(predicted.gflops)),
        ("efficiency", json!(predicted.efficiency)),
        // No look-ahead, and one rate of DGEMM.
        (
            "reference_formula_seconds",
            json!(closed::seconds(run, machine, closed::RowTraffic::Reference)),
        ),
        ("path_seconds", parts(&predicted.path)),
        ("unhidden_seconds", parts(&predicted.unhidden)),
        ("phases_mean_seconds", phases(&predicted.mean)),
        ("phases_max_seconds", phases(&predicted.max)),
    ])
}

/// And the errors of all together: of the time, and of each phase in parts of the time.
fn compare(tests: &[MeasuredTest], machine: &Machine) -> Result<(Vec<Fields>, Fields), StudyError> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    let mut of_phases = Phases::default().named();
    for test in tests {
        let predicted = predict(&test.run, machine, &Changes::default())?;
        let error = predicted.time_seconds / test.time_seconds - 1.0;
        errors.push(error.abs());
        let pairs = predicted.mean.named().into_iter().zip(test.mean.named());
        for ((_, sum), ((_, predicted), (_, measured))) in of_phases.iter_mut().zip(pairs) {
            let error = (predicted - measured).abs() / test.time_seconds;
            *sum += error / tests.len() as f64;
        }
        let mut one = fields(&test.run, &predicted, machine);
        one.0.extend([
            ("measured_time_seconds", json!(test.time_seconds)),
            ("measured_phases_mean_seconds", phases(&test.mean)),
            ("time_error", json!(error)),
        ]);
        all.push(one);
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let summary = Fields(vec![
        ("compared_tests", json!(errors.len())),
        ("mean_time_error", json!(mean)),
        ("largest_time_error", json!(errors.iter().copied().fold(0.0, f64::max))),
        ("phase_errors_of_the_time", of_phases.into_iter().collect()),
    ]);
    Ok((all, summary))
}
