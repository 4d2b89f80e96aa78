//! The solver on hundreds of ranks of a simulated machine, compared with the model of its critical
//! path. `cargo bench --bench scale -- --help`.

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
use skt_model::path::{Changes, Counts, Machine, RunParams, UNITS, Unit, predict, work as units};
use skt_run::events::{Phase, RunEvents, Silent};
use skt_run::ptest::mxp::RefinementGuard;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{MxpRecord, Outcome, ROWS_IN_HALVES, TestRecord};
use skt_sim::clocked::{self, ClockedComm, Meter, Network, Ticks};
use skt_solver::blas::Element;
use skt_solver::blas::library::use_one_thread;
use skt_solver::blas::view::SharedMat;
use skt_solver::grid::Grid;
use skt_solver::pgesv::guard::{Background, Guard, Unguarded};
use skt_solver::pgesv::{LocalShape, SolveError};
use skt_solver::team::Team;
use skt_solver::work::{self, Work, WorkListener};
use skt_terms::phases::Phases;

/// Factors and solves a system on P x Q simulated ranks: the real solver by messages, each rank
/// with the processor time that it takes here, on a simulated network.
#[derive(Parser)]
struct Args {
    /// Order of the matrix
    #[arg(long, default_value_t = 16000)]
    n: usize,
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
    /// Time of computing: counted (units of work at the rates of `skt-hpl path`; copies of
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

    fn spec(&self) -> TestSpec {
        TestSpec {
            n: self.n,
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

/// The machine of the model, without copies of rows, which are not counted.
fn counting_machine() -> Machine {
    Machine { copied_byte_seconds: 0.0, ..Machine::ZEN4_CORE }
}

/// [`counting_machine`] in single precision: vectors hold twice as many numbers, and entries have
/// half of the bytes.
fn counting_machine_in_single() -> Machine {
    let machine = counting_machine();
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

thread_local!(static DONE: Cell<Counts> = Cell::new(Counts::default()));

thread_local!(static GENERATED: Cell<usize> = const { Cell::new(0) });

/// Adds a piece of work to what this thread has done, in units of the model.
fn count(work: Work) {
    let counts = match work {
        Work::Product { rows, cols, k } => units::product(rows as f64, cols as f64, k as f64, true),
        Work::Solve { k, cols } => units::solve(k as f64, cols as f64),
        Work::Panel { rows, jb, p } => units::panel(rows as f64, jb as f64, p),
        Work::Read { entries } => {
            Counts::from_list(&[(Unit::StreamedByte, (entries * size_of::<f64>()) as f64)])
        }
        Work::Generate { entries } => {
            GENERATED.set(GENERATED.get() + entries);
            return;
        }
    };
    let mut done = DONE.get();
    done.add(&counts, 1.0);
    DONE.set(done);
}

/// The meter of counted work.
fn counted() -> Ticks {
    (counting_machine().seconds(&DONE.get()) * 1e12) as Ticks
}

/// The meter of counted work in single precision.
fn counted_in_single() -> Ticks {
    let generated_seconds = GENERATED.get() as f64 * GENERATED_ENTRY_SECONDS;
    let seconds = counting_machine_in_single().seconds(&DONE.get()) + generated_seconds;
    (seconds * 1e12) as Ticks
}

/// The machine of the model that equals the simulated one; `None` if that is this machine.
fn machine(args: &Args) -> Option<Machine> {
    let compute = match args.work.as_str() {
        "counted" => counting_machine(),
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
    comm: &'c ClockedComm,
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
fn simulate(args: &Args) -> Result<TestRecord, String> {
    use_one_thread();
    let (spec, meter): (_, Meter) = match args.work.as_str() {
        "counted" if args.mxp.is_some() => (args.spec(), counted_in_single),
        "counted" => (args.spec(), counted),
        "none" => (args.spec(), clocked::no_work),
        _ => (args.spec(), clocked::processor_time),
    };
    let ranks = clocked::run(args.p * args.q, &args.network(), meter, |world| {
        work::listen(WorkListener { begins: Some(count), ..WorkListener::default() });
        let grid = Grid::new(&world, spec.p, spec.q, spec.pmap)?.expect("all ranks take part");
        let doubles = match spec.mxp {
            Some(_) => ptest::mxp::shape(&grid, &spec).doubles(),
            None => ptest::shape(&grid, &spec).doubles(),
        };
        let plain = Unguarded::new(doubles)
            .map_err(|why| SolveError::Memory { what: "the matrix", why: why.to_string() })?;
        let mut guard = Clocked { plain, comm: &world, start: Cell::new(world.now()) };
        let now = Instant::now();
        let mut progress = Progress { n: spec.n as f64, start: now, printed: now };
        let events: &mut dyn RunEvents =
            if world.rank() == 0 { &mut progress } else { &mut Silent };
        let team = Team::solo();
        let test = TestRun { grid: &grid, team: &team, spec: &spec };
        ptest::run_any(test, &mut guard, false, events)
    });
    let ranks: Result<Vec<_>, SolveError> = ranks.into_iter().collect();
    let record = ranks.map_err(|error| error.to_string())?.swap_remove(0);
    Ok(record.expect("rank 0 has it"))
}

/// Prints the model's prediction for the run next to the simulation.
fn compare(args: &Args, record: &TestRecord, halves: bool) -> Result<(), String> {
    let Some(machine) = machine(args) else { return Ok(()) };
    let TestSpec { n, nb, p, q, depth, bcast, swap, swap_threshold, .. } = args.spec();
    let run =
        RunParams { depth, bcast, swap, swap_threshold, halves, ..RunParams::new(n, nb, (p, q)) };
    let model = predict(&run, &machine, &Changes::default()).map_err(|error| error.to_string())?;
    let Phases { panel, swap, bcast, update, back, .. } = record.phases.mean;
    let simulated = [panel, swap, bcast, update, back];
    let mut rows = vec![("time", record.time_seconds, model.time_seconds)];
    rows.extend(model.mean.named().iter().zip(simulated).map(|(&(name, of), sim)| (name, sim, of)));
    eprintln!("seconds  simulated     model   (phases: mean over ranks)");
    for (name, simulated, model) in rows {
        eprintln!("{name:7} {simulated:10.6} {model:10.6}");
    }
    Ok(())
}

/// The result as a line of JSON.
fn line(args: &Args, record: &TestRecord, real_seconds: f64) -> Result<String, String> {
    let Outcome::Passed { scaled_residual, .. } = record.outcome else {
        return Err(format!("the solution is wrong: {:?}", record.outcome));
    };
    let network = args.network();
    let mean = record.phases.mean;
    let halves = record.by_messages.iter().any(|what| what == ROWS_IN_HALVES);
    // The model is that of HPL.
    if args.mxp.is_none() {
        compare(args, record, halves)?;
    }
    let mut line = json!({
        "label": args.label, "n": args.n, "nb": args.nb, "p": args.p, "q": args.q,
        "depth": args.depth, "bcast": args.bcast, "halves": halves, "work": args.work,
        "message_seconds": network.message_seconds, "byte_seconds": network.byte_seconds,
        "call_seconds": network.call_seconds, "time_seconds": record.time_seconds,
        "panel": mean.panel, "swap": mean.swap, "bcast_seconds": mean.bcast,
        "update": mean.update, "back": mean.back, "other": mean.other,
        "scaled_residual": scaled_residual,
        "x_fingerprint": format!("{:016x}", record.x_fingerprint),
        "real_seconds": real_seconds,
    });
    if let (Some(matrix), Some(mxp)) = (&args.mxp, &record.mxp) {
        let MxpRecord { factor_seconds, refine_seconds, steps, .. } = mxp;
        line["mxp"] = matrix.clone().into();
        line["factor_seconds"] = (*factor_seconds).into();
        line["refine_seconds"] = (*refine_seconds).into();
        line["corrections"] = steps.iter().map(|step| step.corrections).sum::<usize>().into();
    }
    Ok(line.to_string())
}

fn main() -> ExitCode {
    let (args, start) = (Args::parse(), Instant::now());
    let line =
        simulate(&args).and_then(|record| line(&args, &record, start.elapsed().as_secs_f64()));
    if io::stderr().is_terminal() {
        eprintln!();
    }
    let written = line.and_then(|line| {
        println!("{line}");
        let Some(path) = &args.json else { return Ok(()) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let failed = |why| format!("'{}' cannot be written: {why}", path.display());
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(failed)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}
