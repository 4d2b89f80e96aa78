//! Seconds in which a group of all ranks encodes its data, by code:
//! what `scripts/measure/reduce.c` measures of `MPI_Reduce`.
//!
//! ```text
//! mpirun -np 4 target/release/examples/encode --mib 8
//! ```
//!
//! Each value is the median over the repeats of the slowest rank's seconds, from a barrier on. The
//! first checkpoint touches the memory, and is not counted.

use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::client::{self, CheckpointError, Next, Options, Region, StoreKind};
use skt_comm::{Comm, collect};
use skt_store::codec::CodecKind;

#[derive(Parser)]
struct Args {
    /// Data of each rank, in MiB.
    #[arg(long, default_value_t = 8.0)]
    mib: f64,
    /// Encodings of each kind.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,
    /// Codes, of which the others are left out.
    #[arg(long, value_delimiter = ',', default_values = CodecKind::NAMES)]
    #[arg(value_parser = PossibleValuesParser::new(CodecKind::NAMES))]
    codes: Vec<String>,
    /// Memory of the data and parities: sysv, posix, or file:FOLDER.
    #[arg(long, default_value = "sysv")]
    store: StoreKind,
}

/// A number of -0.5 to 0.5, as in the matrix of HPL.
fn value(at: usize) -> f64 {
    let bits = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    bits as f64 / (1u64 << 53) as f64 - 0.5
}

/// The median of the slowest rank's seconds.
fn measure(world: &Comm, args: &Args, code: CodecKind) -> Result<f64, CheckpointError> {
    let run_id = format!("encode-{code}");
    let mut options = Options::new(&run_id, "encode").with_store(args.store.clone());
    let config = &mut options.config;
    (config.members, config.code) = (world.size(), code);
    config.resume = Resume::Never;
    // As in an optimised program.
    config.check_frozen = false;
    let count = (args.mib * f64::from(1 << 17)) as usize;
    let Next::Compute(mut saved) = client::open(world, &options, &[Region::of::<f64>(count)])?
    else {
        unreachable!("no start leaves a result")
    };
    let rank = saved.rank();
    let [data] = saved.regions::<f64, 1>();
    data.iter_mut().enumerate().for_each(|(at, number)| *number = value(at + rank));
    saved.checkpoint(&0u64)?;
    let mut seconds = Vec::new();
    for _ in 0..args.repeats {
        saved.barrier()?;
        seconds.push(saved.checkpoint(&0u64)?.encode_seconds);
    }
    collect::all_max(world, &mut seconds)?;
    saved.finish(&0u64)?.clear()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

fn main() -> ExitCode {
    let args = Args::parse();
    client::on_mpi(|world| {
        for code in args.codes.iter().map(|name| CodecKind::named(name).expect("a name")) {
            let seconds = measure(world, &args, code)?;
            if world.rank() == 0 {
                println!("{code} by ring {seconds:.6}");
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
