//! `skt-hpl path`: predicts how a run spends its time on a machine that is not available,
//! and which changes would make it faster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use skt_terms::phases::Phases;

use super::flags;
use super::tool_error::ToolError;
use crate::report::output;
use crate::report::{self, reader};
use skt_config::{Bcast, Swap};
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::messages;
use skt_model::path::{
    Changes, Machine, MeasuredTest, Part, Prediction, RunParams, closed, fit, measured, predict,
};
use skt_model::plot::{Axis, Body, Figure};
use skt_terms::ranges::{above_zero, above_zero_or_infinite, zero_or_above};

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_long_help = EXAMPLES)]
pub struct PathArgs {
    /// Order of the matrix [default: what --memory-gib allows]
    #[arg(long, value_name = "N")]
    pub n: Option<usize>,
    /// Memory per rank for the matrix, in GiB; N follows from it
    #[arg(long, value_parser = above_zero, value_name = "GIB", conflicts_with = "n")]
    pub(crate) memory_gib: Option<f64>,
    /// Blocking factors
    #[arg(long, value_name = "NB,..", value_delimiter = ',', default_value = "192")]
    pub nb: Vec<usize>,
    /// Process rows
    #[arg(long, value_name = "P", default_value_t = 1)]
    pub p: usize,
    /// Process columns
    #[arg(long, value_name = "Q", default_value_t = 1)]
    pub q: usize,
    /// Threads per rank
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Look-ahead: panels factored ahead of the update
    #[arg(long, value_name = "D,..", value_delimiter = ',', default_value = "1")]
    pub depth: Vec<usize>,
    /// How a panel travels along its process row
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "1ringM")]
    #[arg(value_parser = flags::one_of(Bcast::NAMES, Bcast::named))]
    pub bcast: Vec<Bcast>,
    /// How rows are exchanged
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "mix")]
    #[arg(value_parser = flags::one_of(Swap::NAMES, Swap::named))]
    pub swap: Vec<Swap>,
    /// Local columns above which mix takes spread-roll
    #[arg(long, value_name = "COLS", default_value_t = 64)]
    pub swap_threshold: usize,

    /// Seconds that one of each unit of work takes, as --save-machine writes them [default: fitted
    /// on two cores of an AMD EPYC (Zen 4)]
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    pub machine: Option<PathBuf>,
    /// Fit the machine to these JSON reports first (of runs with one thread per rank)
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = MACHINE)]
    pub fit: Vec<PathBuf>,
    /// Leave smaller tests out of the fit: data that fits into caches is faster
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = MACHINE)]
    pub(crate) fit_from: usize,
    /// Write the machine to this file
    #[arg(long, value_name = "FILE", value_parser = flags::file_next_to_a_report())]
    #[arg(help_heading = MACHINE)]
    pub(crate) save_machine: Option<PathBuf>,
    /// DGEMM rate of a core, in Gflop/s; the rates of solve and panel scale with it [default: the
    /// machine's]
    #[arg(long, value_parser = above_zero, value_name = "GFLOPS", help_heading = MACHINE)]
    pub gflops_per_core: Option<f64>,
    /// Latency of a message, in microseconds [default: the machine's]
    #[arg(long, value_parser = zero_or_above, value_name = "US", help_heading = MACHINE)]
    pub latency_us: Option<f64>,
    /// Bandwidth of a rank in one direction, in GB/s, or inf [default: the machine's]
    #[arg(long, value_parser = above_zero_or_infinite, value_name = "GB/S", help_heading = MACHINE)]
    pub bandwidth_gbs: Option<f64>,

    /// Compare predicted and measured phases of these JSON reports, instead of predicting a run
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = SHOW)]
    pub check: Vec<PathBuf>,
    /// Also show what changes of the solver would gain
    #[arg(long, help_heading = SHOW)]
    pub changes: bool,
    /// Print JSON instead of text
    #[arg(long, help_heading = SHOW)]
    pub json: bool,
    /// Also draw the critical path into this .svg or .csv file
    #[arg(long, short, value_name = "FILE", help_heading = SHOW)]
    pub out: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(long, short, help_heading = SHOW)]
    pub force: bool,
}

const MACHINE: &str = "Machine";
const SHOW: &str = "Output";

const EXAMPLES: &str = "\
Units of work are counted from the solver's own steps; a machine is the seconds that one unit of
each kind takes. The rates of computation come from a fit; the network of a future machine has to
be given.

  Predict 16 x 16 ranks of 8 threads and 16 GiB on a network of 1.5 us and 23 GB/s per rank:
    skt-hpl path --p 16 --q 16 --threads 8 --memory-gib 16 --nb 192,256,384 \\
        --bcast 1ringM,2ringM,longM --latency-us 1.5 --bandwidth-gbs 23 --changes

  Fit this machine, and see how good the fit is on runs that it has not seen:
    mpirun -np 2 skt-hpl --transport messages --n 2048,4096,8192 --nb 64,128,256 --p 1,2 --q 2,1 \\
        --ft none --json fit.json
    mpirun -np 2 skt-hpl --transport messages --n 3000,6000 --nb 160 --p 1,2 --q 2,1 --ft none \\
        --json new.json
    skt-hpl path --fit fit.json --check new.json --save-machine machine.json

Of more than 30 million steps, N / NB (P + Q + DEPTH), every second panel is walked, or fewer: the
time is within 1 %.

The model assumes messages. Where all ranks of a process row or column share a node, they read
panels and rows in each other's memory instead, and are faster. If a run has several tests, the
fastest counts.

Lists are combined; the fastest combination is shown in full.

'on the path' are the seconds of each part on the critical path; they sum up to the time.
'unhidden' is what a part takes if nothing hides it: panels, pivots and broadcasts one after the
other, and the rest on a mean rank. The model has no contention, noise or checkpoints.";

/// Predicts, fits or compares, according to the flags.
pub fn execute(args: &PathArgs) -> Result<(), ToolError> {
    let fitted = fitted(args)?;
    let machine = machine(args, fitted.as_ref().map(|fit| fit.machine))?;
    if let Some(path) = &args.save_machine {
        let text = serde_json::to_string_pretty(&machine).expect("numbers and names") + "\n";
        output::write_file(path, &text, args.force)?;
    }
    if !args.check.is_empty() {
        return show_check(args, &machine);
    }
    if args.n.is_none() && args.memory_gib.is_none() {
        if fitted.is_some() {
            return Ok(output::print(&describe_machine(&machine))?);
        }
        return Err(ToolError::Usage("what is to be run? Give --n or --memory-gib".into()));
    }
    let all = predictions(args, &machine)?;
    let (run, best) = &all[0];
    if let Some(path) = &args.out {
        draw(path, run, best, args.force)?;
    }
    let changed = if args.changes { changed(run, &machine)? } else { Vec::new() };
    let text =
        if args.json { json(&machine, &all, &changed) } else { describe(&machine, &all, &changed) };
    Ok(output::print(&text)?)
}

fn fitted(args: &PathArgs) -> Result<Option<fit::Fit>, ToolError> {
    if args.fit.is_empty() {
        return Ok(None);
    }
    let mut runs = read_all(&args.fit)?;
    runs.retain(|measured| measured.run.n >= args.fit_from);
    let fit = fit::fit(&runs, &read_machine(args.machine.as_deref())?)?;
    for unit in &fit.unseen {
        messages::print(format_args!(
            "note: the reports have nothing on {unit:?}, or its cost is negligible against the others"
        ));
    }
    Ok(Some(fit))
}

fn read_all(files: &[PathBuf]) -> Result<Vec<MeasuredTest>, ToolError> {
    let mut runs = Vec::new();
    for path in files {
        let found = report::measured::read(path)?;
        if found.is_empty() {
            return Err(ToolError::Usage(format!(
                "'{}' has no test that ran to its end without checkpoints (--ft none)",
                path.display()
            )));
        }
        let all = found.len();
        let by_messages: Vec<_> = found.into_iter().filter(|test| !test.shared).collect();
        let shared = all - by_messages.len();
        if by_messages.is_empty() {
            return Err(ToolError::Usage(format!(
                "in '{}' ranks read panels or rows in each other's memory; the model is one of \
                 messages: run with --transport messages",
                path.display()
            )));
        }
        if shared > 0 {
            messages::print(format_args!(
                "note: '{}' has {shared} tests where ranks read panels or rows in each other's \
                 memory; they are left out, the model is one of messages",
                path.display()
            ));
        }
        runs.extend(by_messages);
    }
    Ok(measured::fastest(&runs))
}

/// The machine of a file that --save-machine wrote, else two cores of an AMD EPYC.
pub(super) fn read_machine(path: Option<&Path>) -> Result<Machine, ToolError> {
    let Some(path) = path else { return Ok(Machine::ZEN4_CORE) };
    let file = path.display().to_string();
    let text = infile::read_text(path, LIST_BYTES_MAX).map_err(ToolError::file("read", path))?;
    reader::from_json(&text).map_err(|error| {
        ToolError::Usage(format!("'{file}' is no machine as --save-machine writes it: {error}"))
    })
}

fn machine(args: &PathArgs, fitted: Option<Machine>) -> Result<Machine, ToolError> {
    let mut machine = match fitted {
        Some(machine) => machine,
        None => read_machine(args.machine.as_deref())?,
    };
    machine.validate()?;
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

/// N: the flag's value, or the largest multiple of NB whose matrix takes the given memory of each
/// rank.
fn order(args: &PathArgs, nb: usize) -> Result<usize, ToolError> {
    let Some(gib) = args.memory_gib else { return Ok(args.n.expect("one of both is given")) };
    let doubles = gib * f64::from(1u32 << 30) / 8.0 * (args.p * args.q) as f64;
    let n = doubles.sqrt() as usize / nb.max(1) * nb;
    if n == 0 || !doubles.is_finite() {
        return Err(ToolError::Usage(format!(
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
) -> Result<Vec<(RunParams, Prediction)>, ToolError> {
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

/// A change's name, and the prediction with it.
type Changed = (&'static str, Prediction);

/// Predictions: without halves, then with each change of the solver alone, then with all of
/// these changes.
fn changed(run: &RunParams, machine: &Machine) -> Result<Vec<Changed>, ToolError> {
    let none = Changes::default();
    let all = Changes { prompt_forwarding: true, wait_for_oldest: true, team_without_loss: true };
    let list = [
        ("panels passed on as they arrive", Changes { prompt_forwarding: true, ..none }),
        ("DEPTH >= 2: wait for the oldest panel", Changes { wait_for_oldest: true, ..none }),
        ("teams that lose nothing at panels", Changes { team_without_loss: true, ..none }),
        ("all of the last three", all),
    ];
    let at_once = RunParams { halves: false, ..*run };
    let at_once = ("rows of all columns exchanged at once", predict(&at_once, machine, &none)?);
    let changed =
        list.into_iter().map(|(name, changes)| Ok((name, predict(run, machine, &changes)?)));
    [Ok(at_once)].into_iter().chain(changed).collect()
}

fn describe_machine(machine: &Machine) -> String {
    let rate = |seconds: f64, unit: f64| {
        if seconds > 0.0 { format!("{:.4}", unit / seconds) } else { "inf".into() }
    };
    let m = machine;
    format!(
        "# machine, a core     product {} Gflop/s and {:.4} ns an entry, packing {:.4} ns, solve {} \
         Gflop/s\n\
         #                     panel {} Gflop/s, {:.4} ns an entry, {:.4} us a column\n\
         #                     row copies {} GB/s, back substitution {} GB/s\n\
         # network, a rank     latency {:.4} us, bandwidth {} GB/s\n",
        rate(m.product_flop_seconds, 1e-9),
        1e9 * m.product_entry_seconds,
        1e9 * m.packed_entry_seconds,
        rate(m.solve_flop_seconds, 1e-9),
        rate(m.panel_flop_seconds, 1e-9),
        1e9 * m.panel_entry_seconds,
        1e6 * m.panel_column_seconds,
        rate(m.copied_byte_seconds, 1e-9),
        rate(m.streamed_byte_seconds, 1e-9),
        1e6 * m.message_seconds,
        rate(m.message_byte_seconds, 1e-9),
    )
}

fn describe_run(run: &RunParams) -> String {
    let RunParams { n, nb, p, q, threads, depth, bcast, swap, .. } = run;
    format!(
        "N {n}, NB {nb}, {p} x {q} ranks of {threads} thread(s), DEPTH {depth}, {}, {}",
        bcast.name(),
        swap.name()
    )
}

fn describe(machine: &Machine, all: &[(RunParams, Prediction)], changed: &[Changed]) -> String {
    let mut text = describe_machine(machine);
    if all.len() > 1 {
        text += "\n  efficiency    time (s)       Gflop/s   combination\n";
        for (run, p) in all {
            let _ = writeln!(
                text,
                "{:>10.2} %{:>12.4e}{:>14.6e}   {}",
                100.0 * p.efficiency,
                p.time_seconds,
                p.gflops,
                describe_run(run)
            );
        }
    }
    let (run, best) = &all[0];
    let _ = writeln!(
        text,
        "\n{}\ntime {:.6} s, {:.6e} Gflop/s, {:.2} % of DGEMM on all cores",
        describe_run(run),
        best.time_seconds,
        best.gflops,
        100.0 * best.efficiency
    );
    text += &parts_table(best);
    text += &phases_table(best);
    let closed = closed::seconds(run, machine, closed::RowTraffic::Reference);
    let _ = writeln!(
        text,
        "\nthe reference's formula (no look-ahead, one DGEMM rate): {closed:.6} s, {:.2} % of DGEMM",
        100.0 * best.efficiency * best.time_seconds / closed
    );
    if !changed.is_empty() {
        text += "\nchange, each alone                                  time less   efficiency\n";
        for (name, p) in changed {
            let _ = writeln!(
                text,
                "{name:<48}{:>10.2} %{:>11.2} %",
                100.0 * (1.0 - p.time_seconds / best.time_seconds),
                100.0 * p.efficiency
            );
        }
    }
    text
}

fn parts_table(p: &Prediction) -> String {
    let mut text =
        String::from("\npart                 on the path (s)  of the time   unhidden (s)\n");
    for part in Part::ALL {
        let on_path = p.path[part as usize];
        let _ = writeln!(
            text,
            "{:<20}{on_path:>16.4}{:>12.2} %{:>15.4}",
            part.name(),
            100.0 * on_path / p.time_seconds,
            p.unhidden[part as usize]
        );
    }
    text
}

fn phases_table(p: &Prediction) -> String {
    let mut text = String::from("\nphase, as in a report     mean s       %       max s       %\n");
    for ((name, mean), (_, max)) in p.mean.named().iter().zip(&p.max.named()) {
        let share = |seconds: f64| 100.0 * seconds / p.time_seconds;
        let _ = writeln!(
            text,
            "{name:<18}{mean:>14.4}{:>8.1}{max:>12.4}{:>8.1}",
            share(*mean),
            share(*max)
        );
    }
    text
}

/// One test, as predicted and as measured.
struct Compared {
    measured: MeasuredTest,
    predicted: Prediction,
}

impl Compared {
    fn time_error(&self) -> f64 {
        self.predicted.time_seconds / self.measured.time_seconds - 1.0
    }
}

fn show_check(args: &PathArgs, machine: &Machine) -> Result<(), ToolError> {
    let mut all = Vec::new();
    for measured in read_all(&args.check)? {
        let predicted = predict(&measured.run, machine, &Changes::default())?;
        all.push(Compared { measured, predicted });
    }
    let text = if args.json { check_json(&all) } else { check_table(machine, &all) };
    Ok(output::print(&text)?)
}

/// A table of predicted and measured phases, with the errors in percent of the measured phase and
/// of the whole time.
fn check_table(machine: &Machine, all: &[Compared]) -> String {
    let mut text = describe_machine(machine);
    text += "\npredicted (measured) mean seconds of a rank; error of the time in percent\n";
    for compared in all {
        let Compared { measured, predicted } = compared;
        let _ = writeln!(
            text,
            "{}\n  time {:.3} ({:.3}) {:+.1} %{}",
            describe_run(&measured.run),
            predicted.time_seconds,
            measured.time_seconds,
            100.0 * compared.time_error(),
            phases_line(&predicted.mean, &measured.mean)
        );
    }
    text += "\nphase      mean error  of its seconds   of the time\n";
    for (index, (name, _)) in Phases::default().named().iter().enumerate() {
        if *name == "other" {
            continue;
        }
        let sums = all.iter().fold((0.0, 0.0, 0.0), |(off, seconds, share), c| {
            let (p, m) = (c.predicted.mean.named()[index].1, c.measured.mean.named()[index].1);
            (off + (p - m).abs(), seconds + m, share + (p - m).abs() / c.measured.time_seconds)
        });
        let _ = writeln!(
            text,
            "{name:<8}{:>24.1} %{:>12.2} %",
            100.0 * sums.0 / sums.1,
            100.0 * sums.2 / all.len() as f64
        );
    }
    let mean = all.iter().map(|c| c.time_error().abs()).sum::<f64>() / all.len() as f64;
    let worst = all.iter().map(|c| c.time_error().abs()).fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "time: {:.1} % off on average, {:.1} % at worst, {} tests",
        100.0 * mean,
        100.0 * worst,
        all.len()
    );
    text
}

fn phases_line(predicted: &Phases, measured: &Phases) -> String {
    let pairs = predicted.named().into_iter().zip(measured.named());
    pairs
        .filter(|((name, _), _)| *name != "other")
        .map(|((name, p), (_, m))| format!("; {name} {p:.4} ({m:.4})"))
        .collect()
}

fn phases_json(phases: &Phases) -> Value {
    phases.named().into_iter().collect()
}

fn json_run(run: &RunParams, p: &Prediction) -> Value {
    let parts = |of: &[f64]| -> Value {
        Part::ALL
            .map(|part| (part.name().replace(' ', "_"), of[part as usize]))
            .into_iter()
            .collect()
    };
    json!({
        "n": run.n,
        "nb": run.nb,
        "p": run.p,
        "q": run.q,
        "threads": run.threads,
        "depth": run.depth,
        "bcast": run.bcast.name(),
        "swap": run.swap.name(),
        "time_seconds": p.time_seconds,
        "gflops": p.gflops,
        "efficiency": p.efficiency,
        "path_seconds": parts(&p.path),
        "unhidden_seconds": parts(&p.unhidden),
        "phases_mean_seconds": phases_json(&p.mean),
        "phases_max_seconds": phases_json(&p.max),
    })
}

fn json(machine: &Machine, all: &[(RunParams, Prediction)], changed: &[Changed]) -> String {
    let runs: Vec<Value> = all.iter().map(|(run, p)| json_run(run, p)).collect();
    let change = |(name, p): &Changed| {
        let (time_seconds, efficiency) = (p.time_seconds, p.efficiency);
        json!({ "change": name, "time_seconds": time_seconds, "efficiency": efficiency })
    };
    let changes: Vec<Value> = changed.iter().map(change).collect();
    let all = json!({ "machine": machine, "runs": runs, "changes": changes });
    serde_json::to_string_pretty(&all).expect("numbers and names") + "\n"
}

fn check_json(all: &[Compared]) -> String {
    let compared = |c: &Compared| {
        json!({
            "predicted": json_run(&c.measured.run, &c.predicted),
            "measured_time_seconds": c.measured.time_seconds,
            "measured_phases_mean_seconds": phases_json(&c.measured.mean),
            "time_error": c.time_error(),
        })
    };
    let list: Vec<Value> = all.iter().map(compared).collect();
    serde_json::to_string_pretty(&list).expect("numbers and names") + "\n"
}

fn draw(path: &Path, run: &RunParams, p: &Prediction, force: bool) -> Result<(), ToolError> {
    let figure = Figure {
        id: "path",
        title: format!("{:.1} % of DGEMM in {:.4} s", 100.0 * p.efficiency, p.time_seconds),
        caption: format!("{}; the critical path, and what each part takes.", describe_run(run)),
        body: Body::bars(
            "part",
            "part",
            Part::ALL.iter().map(|part| part.name().to_string()).collect(),
            Axis::linear("time (s)", "time_seconds"),
            vec![
                ("on the critical path".into(), p.path.to_vec()),
                ("unhidden".into(), p.unhidden.to_vec()),
            ],
        ),
    };
    let text = figure.text_for(path).ok_or_else(|| {
        ToolError::Usage(format!("--out {}: the name must end in .svg or .csv", path.display()))
    })?;
    Ok(output::write_file(path, &text, force)?)
}
