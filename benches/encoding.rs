//! Checkpoints on simulated ranks, as Chen and Dongarra, "A scalable checkpoint encoding algorithm
//! for diskless checkpointing" (HASE 2008), time and compute them. `cargo bench --bench encoding --
//! --help`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skt_model::chen::{self, Code};
use skt_sim::checkpoints::{Case, Times};
use skt_sim::clocked::{self, Meter, Network};
use skt_store::codec::CodecKind;

/// Prints what a checkpoint and a recovery take on simulated ranks, which are one group: over the
/// number of ranks (figure 8), and over the size of the data (section 3). Messages alone are the
/// same on every machine; encoding and copies take the processor time that they take here.
#[derive(Parser)]
struct Args {
    /// Numbers of ranks, up to 256
    #[arg(long, value_delimiter = ',', default_values_t = [15, 30, 60, 120, 240])]
    ranks: Vec<usize>,
    /// Ranks that are lost at once, and parities
    #[arg(long, default_value_t = 4)]
    losses: usize,
    /// Data of each rank over the number of ranks, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4.0)]
    mib: f64,
    /// Ranks over the size of the data, which survive one loss
    #[arg(long, default_value_t = 64)]
    chain_ranks: usize,
    /// Sizes of the data of each rank, in MiB
    #[arg(long, value_name = "MIB", value_delimiter = ',', default_values_t = [0.0625, 0.25, 1.0, 4.0, 16.0])]
    sizes: Vec<f64>,
    /// Time of an empty message, with its two calls, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1.5)]
    latency_us: f64,
    /// Bandwidth of a rank in one direction, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 1.44)]
    bandwidth_gbs: f64,
    /// Time of a call on its rank, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0.1)]
    call_us: f64,
    /// File for the values, of which `skt-studies measured` draws the figures; it must not exist
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// A bench, with the values that it has found.
struct Bench {
    args: Args,
    raw: String,
}

type Outcome<T> = Result<T, String>;

impl Bench {
    fn network(&self) -> Network {
        Network {
            message_seconds: self.args.latency_us * 1e-6,
            byte_seconds: 1e-9 / self.args.bandwidth_gbs,
            call_seconds: self.args.call_us * 1e-6,
        }
    }

    /// The network of the paper's formulas, in which sums take no time.
    fn formulas(&self) -> chen::Network {
        let Network { message_seconds, byte_seconds, .. } = self.network();
        chen::Network {
            latency_seconds: message_seconds,
            transfer_seconds_per_byte: byte_seconds,
            reduce_seconds_per_byte: 0.0,
        }
    }

    /// The times of a case, with the messages that are best for a chain (section 3.3).
    fn times(&self, ranks: usize, losses: usize, mib: f64, meter: Meter) -> Outcome<Times> {
        let bytes = (mib * f64::from(1 << 20)) as usize;
        let block = bytes as f64 / (ranks - losses) as f64;
        let best = self.formulas().optimal_segment_bytes(ranks, block, Code::Sum);
        let best = best.map_err(|why| why.to_string())? as usize;
        let code = if losses == 1 { CodecKind::Xor } else { CodecKind::ReedSolomon };
        let message_bytes = best.clamp(4 << 10, 4 << 20);
        let case = Case { ranks, bytes, code, parities: losses, message_bytes };
        case.times(&self.network(), meter).map_err(|why| format!("{case:?}: {why}"))
    }

    fn add(&mut self, figure: &str, series: &str, x: impl ToString, seconds: f64) -> String {
        self.raw += &format!("{figure},{series},{},{seconds:.6e}\n", x.to_string());
        format!(" {:.4} |", 1e3 * seconds)
    }

    /// Figure 8: a checkpoint and a recovery over the number of ranks.
    fn over_ranks(&mut self) -> Outcome<()> {
        println!(
            "| ranks, {} lost, {} MiB a rank, ms | checkpoint (messages) | recovery (messages) \
             | checkpoint | recovery | k beta m | paper (fig. 8) |\n|---|---|---|---|---|---|---|",
            self.args.losses, self.args.mib
        );
        let (losses, mib) = (self.args.losses, self.args.mib);
        for ranks in self.args.ranks.clone() {
            let mut line = format!("| {ranks} |");
            let meters: [(&str, Meter); 2] =
                [(" (messages)", clocked::no_work), ("", clocked::processor_time)];
            for (how, meter) in meters {
                let times = self.times(ranks, losses, mib, meter)?;
                for (what, seconds) in
                    [("checkpoint", times.checkpoint_seconds), ("recovery", times.recovery_seconds)]
                {
                    let series = format!("{what}{how}");
                    line += &self.add("chen-08-simulated", &series, ranks, seconds);
                }
            }
            let least = losses as f64 * mib * f64::from(1 << 20) * self.network().byte_seconds;
            println!("{line} {:.4} | the same from 60 to 480 |", 1e3 * least);
        }
        Ok(())
    }

    /// The pipelined chain over the size of the data, compared with the paper's formulas.
    fn over_sizes(&mut self) -> Outcome<()> {
        let ranks = self.args.chain_ranks;
        println!(
            "\n| MiB a rank, {ranks} ranks, ms | chain | paper: chain (eq. 2) | paper: tree (eq. 6) |\n\
             |---|---|---|---|"
        );
        for mib in self.args.sizes.clone() {
            let mut line = format!("| {mib} |");
            let seconds = self.times(ranks, 1, mib, clocked::no_work)?.checkpoint_seconds;
            line += &self.add("chen-chain-simulated", "chain", mib, seconds);
            let (formulas, bytes) = (self.formulas(), mib * f64::from(1 << 20));
            for (series, seconds) in [
                ("eq. 2", formulas.chain_seconds(ranks, 1, bytes, Code::Sum)),
                ("eq. 6", formulas.tree_seconds(ranks, 1, bytes, Code::Sum)),
            ] {
                let seconds = seconds.map_err(|why| why.to_string())?;
                line += &self.add("chen-chain-simulated", series, mib, seconds);
            }
            println!("{line}");
        }
        Ok(())
    }
}

fn run(args: Args) -> Outcome<()> {
    let file = args.raw.clone();
    if let Some(path) = file.as_ref().filter(|path| path.exists()) {
        return Err(format!("'{}' exists already", path.display()));
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let head =
        format!("# cargo bench --bench encoding -- {}\nfigure,series,x,value\n", words.join(" "));
    let mut bench = Bench { args, raw: head };
    bench.over_ranks()?;
    bench.over_sizes()?;
    let Some(path) = file else { return Ok(()) };
    fs::write(&path, bench.raw)
        .map_err(|why| format!("'{}' cannot be written: {why}", path.display()))
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("encoding: {error}");
            ExitCode::FAILURE
        }
    }
}
