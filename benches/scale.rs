//! The solver on hundreds of ranks of a simulated machine, compared with the model of its critical
//! path. `cargo bench --bench scale -- --help`.

mod counted;

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use skt_comm::Comm;
use skt_config::{
    Bcast, Fact, GemmPrecision, Generator, MxpMatrix, Pmap, Swap, TestSpec, Transport,
};
use skt_host::phases::Phases;
use skt_model::path::{Changes, Machine, RunParams, UNITS, predict};
use skt_run::events::{Phase, RunEvents, Silent};
use skt_run::ptest::mxp::RefinementGuard;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{MxpRecord, Outcome, ROWS_IN_HALVES, TestRecord};
use skt_sim::clocked::{self, Meter, Network, Ticks};
use skt_solver::blas::Element;
use skt_solver::blas::library::use_one_thread;
use skt_solver::blas::view::SharedMat;
use skt_solver::grid::Grid;
use skt_solver::pgesv::guard::{Background, Guard, Unguarded};
use skt_solver::pgesv::{LocalShape, SolveError};
use skt_solver::team::Team;

/// Factors and solves a system on P x Q simulated ranks: the real solver by messages, each rank
/// with the processor time that it takes here, on a simulated network. Prints simulated next to
/// computed times (`skt-studies path`); of several orders, also a table.
#[derive(Parser)]
struct Args {
    /// Orders of the matrix
    #[arg(long, value_delimiter = ',', default_values_t = [16000])]
    n: Vec<usize>,
    /// Blocking factor
    #[arg(long, default_value_t = 128)]
    nb: usize,
    /// Process rows
    #[arg(long, default_value_t = 16)]
    p: usize,
    /// Process columns
    #[arg(long, default_value_t = 16)]
    q: usize,
    /// Look-ahead
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Broadcast of panels along the process row
    #[arg(long, value_name = "NAME", default_value = "1ringM")]
    #[arg(value_parser = PossibleValuesParser::new(Bcast::NAMES))]
    bcast: String,
    /// Time of an empty message, with its two calls, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1.5)]
    latency_us: f64,
    /// Bandwidth of a rank in one direction, in GB/s; inf: the length of a message takes no time
    #[arg(long, value_name = "GB/S", default_value_t = 12.0)]
    bandwidth_gbs: f64,
    /// Time of a call on its rank, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0.1)]
    call_us: f64,
    /// Time of computing: counted (units of work at the rates of `skt-studies path`; copies of
    /// rows take no time), measured (processor time of this machine) or none
    #[arg(long, value_name = "HOW", default_value = "counted")]
    #[arg(value_parser = ["counted", "measured", "none"])]
    work: String,
    /// HPL-MxP with this matrix, in place of HPL: counted work in single precision takes half of
    /// the time
    #[arg(long, value_name = "MATRIX")]
    #[arg(value_parser = PossibleValuesParser::new(MxpMatrix::NAMES))]
    mxp: Option<String>,
    /// Purpose of the run, to find it among the others
    #[arg(long, value_name = "NAME", default_value = "check")]
    label: String,
    /// Add the result to this file, one line of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn network(&self) -> Network {
        Network {
            message_seconds: self.latency_us * 1e-6,
            byte_seconds: 1e-9 / self.bandwidth_gbs,
            call_seconds: self.call_us * 1e-6,
        }
    }

    fn spec(&self, n: usize) -> TestSpec {
        TestSpec {
            n,
            nb: self.nb,
            p: self.p,
            q: self.q,
            pmap: Pmap::RowMajor,
            depth: self.depth,
            bcast: Bcast::named(&self.bcast).expect("a name"),
            rfact: Fact::Right,
            pfact: Fact::Right,
            nbmin: 4,
            ndiv: 2,
            swap: Swap::Mix,
            swap_threshold: 64,
            threshold: 16.0,
            generator: Generator::Hpl,
            threads: 1,
            transport: Transport::Messages,
            checksums: 0,
            mxp: self.mxp.as_deref().map(|name| MxpMatrix::named(name).expect("a name")),
            gemm: GemmPrecision::Fp32,
            rates: Vec::new(),
        }
    }
}

/// [`counted::machine`] in single precision: vectors hold twice as many numbers, and entries have
/// half of the bytes.
fn counting_machine_in_single() -> Machine {
    let machine = counted::machine();
    Machine {
        product_flop_seconds: machine.product_flop_seconds / 2.0,
        product_entry_seconds: machine.product_entry_seconds / 2.0,
        packed_entry_seconds: machine.packed_entry_seconds / 2.0,
        solve_flop_seconds: machine.solve_flop_seconds / 2.0,
        panel_entry_seconds: machine.panel_entry_seconds / 2.0,
        panel_flop_seconds: machine.panel_flop_seconds / 2.0,
        streamed_byte_seconds: machine.streamed_byte_seconds / 2.0,
        ..machine
    }
}

/// Seconds to compute an entry of the matrix of HPL-MxP again and to multiply it, on one core with
/// AVX-512: measured 0.11 to 0.19 ns, for all matrices.
const GENERATED_ENTRY_SECONDS: f64 = 1.5e-10;

/// The meter of counted work in single precision.
fn counted_in_single() -> Ticks {
    counted::ticks(&counting_machine_in_single(), GENERATED_ENTRY_SECONDS)
}

/// The machine of the model that equals the simulated one; `None` if that is this machine.
fn machine(args: &Args) -> Option<Machine> {
    let compute = match args.work.as_str() {
        "counted" => counted::machine(),
        // The model needs a rate.
        "none" => Machine { product_flop_seconds: 1e-30, ..Machine::from_seconds([0.0; UNITS]) },
        _ => return None,
    };
    let Network { message_seconds, byte_seconds, .. } = args.network();
    Some(Machine { message_seconds, message_byte_seconds: byte_seconds, ..compute })
}

/// A guard of plain memory, with the clock of its rank.
struct Clocked<'c> {
    plain: Unguarded,
    comm: &'c Comm,
    start: Cell<Instant>,
}

impl<T: Element> Guard<T> for Clocked<'_> {
    fn matrix(&mut self) -> &mut [T] {
        self.plain.matrix()
    }

    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background) {
        self.plain.lend(shape)
    }

    fn start(&mut self) -> usize {
        self.start.set(self.comm.now());
        Guard::<T>::start(&mut self.plain)
    }

    fn cut(&mut self, next: usize, panels: usize, phases: &Phases) -> Result<usize, SolveError> {
        Guard::<T>::cut(&mut self.plain, next, panels, phases)
    }

    fn seconds(&self) -> f64 {
        (self.comm.now() - self.start.get()).as_secs_f64()
    }
}

impl RefinementGuard for Clocked<'_> {}

/// Prints on the terminal how far the simulation is, in the time of this machine.
struct Progress {
    n: f64,
    start: Instant,
    printed: Instant,
}

impl Progress {
    fn print(&mut self, what: &str) {
        if io::stderr().is_terminal() {
            eprint!("\r{:5.0} s  {what:<60}", self.start.elapsed().as_secs_f64());
        }
        self.printed = Instant::now();
    }
}

impl RunEvents for Progress {
    fn phase(&mut self, phase: Phase) {
        self.print(phase.name());
    }

    fn columns(&mut self, done: usize, _: usize, _: f64) {
        let left = 1.0 - done as f64 / self.n;
        let share = 1.0 - left * left * left;
        if self.printed.elapsed().as_secs_f64() > 1.0 && share > 0.0 {
            let rest = self.start.elapsed().as_secs_f64() * (1.0 / share - 1.0);
            self.print(&format!("{:3.0} % of the operations, {rest:.0} s left", 100.0 * share));
        }
    }
}

/// The record of the run, with simulated times.
fn simulate(args: &Args, spec: &TestSpec) -> Result<TestRecord, String> {
    use_one_thread();
    let meter: Meter = match args.work.as_str() {
        "counted" if args.mxp.is_some() => counted_in_single,
        "counted" => counted::meter,
        "none" => clocked::no_work,
        _ => clocked::processor_time,
    };
    let ranks = clocked::run(args.p * args.q, &args.network(), meter, |world| {
        counted::listen();
        let grid = Grid::new(&world, spec.p, spec.q, spec.pmap)?.expect("all ranks take part");
        let doubles = match spec.mxp {
            Some(_) => ptest::mxp::shape(&grid, spec).doubles(),
            None => ptest::shape(&grid, spec).doubles(),
        };
        let plain = Unguarded::new(doubles)
            .map_err(|why| SolveError::Memory { what: "the matrix", why: why.to_string() })?;
        let mut guard = Clocked { plain, comm: &world, start: Cell::new(world.now()) };
        let now = Instant::now();
        let mut progress = Progress { n: spec.n as f64, start: now, printed: now };
        let events: &mut dyn RunEvents =
            if world.rank() == 0 { &mut progress } else { &mut Silent };
        let team = Team::solo();
        let test = TestRun { grid: &grid, team: &team, spec };
        ptest::run_any(test, &mut guard, false, events)
    });
    let ranks: Result<Vec<_>, SolveError> = ranks.into_iter().collect();
    let record = ranks.map_err(|error| error.to_string())?.swap_remove(0);
    Ok(record.expect("rank 0 has it"))
}

/// Prints the model's prediction for the run next to the simulation, and returns its time; `None`
/// if the model has no machine for it.
fn compare(
    args: &Args,
    spec: &TestSpec,
    record: &TestRecord,
    halves: bool,
) -> Result<Option<f64>, String> {
    let Some(machine) = machine(args) else { return Ok(None) };
    let &TestSpec { n, nb, p, q, depth, bcast, swap, swap_threshold, .. } = spec;
    let run =
        RunParams { depth, bcast, swap, swap_threshold, halves, ..RunParams::new(n, nb, (p, q)) };
    let model = predict(&run, &machine, &Changes::default()).map_err(|error| error.to_string())?;
    let Phases { panel, swap, bcast, update, back, .. } = record.phases.mean;
    let simulated = [panel, swap, bcast, update, back];
    let mut rows = vec![("time", record.time_seconds, model.time_seconds)];
    rows.extend(model.mean.named().iter().zip(simulated).map(|(&(name, of), sim)| (name, sim, of)));
    eprintln!("seconds  simulated     model   (N = {n}; phases: mean over ranks)");
    for (name, simulated, model) in rows {
        eprintln!("{name:7} {simulated:10.6} {model:10.6}");
    }
    Ok(Some(model.time_seconds))
}

/// The result as a line of JSON.
fn line(
    args: &Args,
    spec: &TestSpec,
    record: &TestRecord,
    real_seconds: f64,
) -> Result<serde_json::Value, String> {
    let Outcome::Passed { scaled_residual, .. } = record.outcome else {
        return Err(format!("the solution is wrong: {:?}", record.outcome));
    };
    let network = args.network();
    let mean = record.phases.mean;
    let halves = record.by_messages.iter().any(|what| what == ROWS_IN_HALVES);
    // The model is that of HPL.
    let model_seconds =
        if args.mxp.is_none() { compare(args, spec, record, halves)? } else { None };
    let mut line = json!({
        "label": args.label, "n": spec.n, "nb": args.nb, "p": args.p, "q": args.q,
        "depth": args.depth, "bcast": args.bcast, "halves": halves, "work": args.work,
        "message_seconds": network.message_seconds, "byte_seconds": network.byte_seconds,
        "call_seconds": network.call_seconds, "time_seconds": record.time_seconds,
        "panel": mean.panel, "swap": mean.swap, "bcast_seconds": mean.bcast,
        "update": mean.update, "back": mean.back, "other": mean.other,
        "scaled_residual": scaled_residual,
        "x_fingerprint": format!("{:016x}", record.x_fingerprint),
        "real_seconds": real_seconds,
    });
    if let Some(seconds) = model_seconds {
        line["model_seconds"] = seconds.into();
    }
    if let (Some(matrix), Some(mxp)) = (&args.mxp, &record.mxp) {
        let MxpRecord { factor_seconds, refine_seconds, steps, .. } = mxp;
        line["mxp"] = matrix.clone().into();
        line["factor_seconds"] = (*factor_seconds).into();
        line["refine_seconds"] = (*refine_seconds).into();
        line["corrections"] = steps.iter().map(|step| step.corrections).sum::<usize>().into();
    }
    Ok(line)
}

/// Simulates all orders, writes a line for each, and prints a table of several.
fn run(args: &Args) -> Result<(), String> {
    let mut table = String::from("| N | simulated s | path s | ratio |\n|---|---|---|---|\n");
    for &n in &args.n {
        let (start, spec) = (Instant::now(), args.spec(n));
        let record = simulate(args, &spec)?;
        if io::stderr().is_terminal() {
            eprintln!();
        }
        let line = line(args, &spec, &record, start.elapsed().as_secs_f64())?;
        println!("{line}");
        if let Some(path) = &args.json {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let failed = |why| format!("'{}' cannot be written: {why}", path.display());
            file.and_then(|mut file| writeln!(file, "{line}")).map_err(failed)?;
        }
        if let Some(model) = line["model_seconds"].as_f64() {
            let simulated = record.time_seconds;
            table += &format!("| {n} | {simulated:.4} | {model:.4} | {:.3} |\n", model / simulated);
        }
    }
    if args.n.len() > 1 {
        println!("{table}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}
