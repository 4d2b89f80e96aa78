//! Figures for Chen and Dongarra, and for Bautista Gomez et al.

use super::{Content, log_steps, sample};
use crate::StudyError;
use crate::bautista::Costs;
use crate::plot::{Axis, Body, Series};
use skt_model::chen::{Code, Network};
use skt_model::{ModelError, optimum};

/// A current network: 2 us, 10 GB/s, sums at 20 GB/s.
const NETWORK: Network = Network {
    latency_seconds: 2e-6,
    transfer_seconds_per_byte: 1e-10,
    reduce_seconds_per_byte: 5e-11,
};
const CHECKPOINT_BYTES: f64 = 1e9;
const WITH: &str = "Latency 2 us, 10 GB/s, weighted sums at 2 x 20 GB/s";

pub(super) fn over_processes() -> Result<Content, StudyError> {
    let counts = || (2..=20).map(|e| f64::from(1u32 << e));
    let chosen = |f: fn(usize) -> Result<f64, ModelError>| sample(counts(), |p| f(p as usize));
    let series = vec![
        Series::line(
            "binary tree, k = 1",
            chosen(|p| NETWORK.tree_seconds(p, 1, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "pipelined chain, k = 1",
            chosen(|p| NETWORK.chain_seconds(p, 1, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "groups of 16, k = 1",
            chosen(|_| NETWORK.grouped_seconds(16, 1, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "groups of 16, k = 4",
            chosen(|_| NETWORK.grouped_seconds(16, 4, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "localized, k = 4",
            chosen(|_| NETWORK.localized_seconds(4, CHECKPOINT_BYTES))?,
        ),
    ];
    let caption = format!(
        "Chen and Dongarra, eq. 6 to 9. {WITH}, 1 GB a process. k is the number of \
         simultaneous failures survived."
    );
    let x = Axis::log("processes p", "processes");
    let y = Axis::log("time of one encoding (s)", "encoding_seconds");
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn over_failures() -> Result<Content, StudyError> {
    let over =
        |f: fn(usize) -> Result<f64, ModelError>| sample((1..=8).map(f64::from), |k| f(k as usize));
    let series = vec![
        Series::line(
            "binary tree, p = 1024",
            over(|k| NETWORK.tree_seconds(1024, k, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "pipelined chain, p = 1024",
            over(|k| NETWORK.chain_seconds(1024, k, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "groups of 16",
            over(|k| NETWORK.grouped_seconds(16, k, CHECKPOINT_BYTES, Code::Weighted))?,
        ),
        Series::line(
            "localized, groups of k(k+1)",
            over(|k| NETWORK.localized_seconds(k, CHECKPOINT_BYTES))?,
        ),
    ];
    let caption = format!("Chen and Dongarra, eq. 6 to 9. {WITH}, 1 GB a process.");
    let x = Axis::linear("simultaneous failures survived, k", "failures_survived");
    let y = Axis::log("time of one encoding (s)", "encoding_seconds");
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn over_segment() -> Result<Content, StudyError> {
    let series = [16usize, 256, 4096]
        .into_iter()
        .map(|p| {
            let points = sample(log_steps(1e3, CHECKPOINT_BYTES, 120), |segment_bytes| {
                NETWORK.chain_seconds_with_segment(
                    p,
                    CHECKPOINT_BYTES,
                    segment_bytes,
                    Code::Weighted,
                )
            })?;
            Ok(Series::line(format!("p = {p}"), points))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let mut optima = Vec::new();
    for p in [16usize, 256, 4096] {
        let s = NETWORK.optimal_segment_bytes(p, CHECKPOINT_BYTES, Code::Weighted)?;
        let seconds = NETWORK.chain_seconds_with_segment(p, CHECKPOINT_BYTES, s, Code::Weighted)?;
        optima.push((s, seconds, 0.0));
    }
    let mut series = series;
    series.push(Series::measured("optimal segment", optima));
    let caption = format!(
        "Chen and Dongarra, section 3.3: (p-2+m/s)(alpha+(beta+2 gamma)s), least at \
         s = sqrt(m alpha/((p-2)(beta+2 gamma))). {WITH}, 1 GB a process."
    );
    let x = Axis::log("segment (bytes)", "segment_bytes");
    let y = Axis::log("time of one encoding (s)", "encoding_seconds").between(0.1, 100.0);
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn over_size() -> Result<Content, StudyError> {
    let over = |f: fn(f64) -> Result<f64, ModelError>| sample(log_steps(1e4, 1e11, 80), f);
    let series = vec![
        Series::line(
            "binary tree, p = 1024, k = 1",
            over(|m| NETWORK.tree_seconds(1024, 1, m, Code::Weighted))?,
        ),
        Series::line(
            "pipelined chain, p = 1024, k = 1",
            over(|m| NETWORK.chain_seconds(1024, 1, m, Code::Weighted))?,
        ),
        Series::line(
            "groups of 16, k = 1",
            over(|m| NETWORK.grouped_seconds(16, 1, m, Code::Weighted))?,
        ),
        Series::line("localized, k = 1", over(|m| NETWORK.localized_seconds(1, m))?),
    ];
    let caption = format!("Chen and Dongarra, eq. 2 and 6 to 9. {WITH}.");
    let x = Axis::log("checkpoint of a process, m (bytes)", "checkpoint_bytes");
    let y = Axis::log("time of one encoding (s)", "encoding_seconds");
    Ok((caption, Body::lines(x, y, series)))
}

pub(super) fn hybrid() -> Result<Content, StudyError> {
    let costs = |cores| Costs { cores_per_node: cores, copy_seconds: 2.0, encode_seconds: 20.0 };
    let percent = |f: &dyn Fn(f64) -> Result<f64, ModelError>| {
        sample(log_steps(30.0, 10_000.0, 100), |t| f(t).map(|x| 100.0 * x))
    };
    let mut series =
        vec![Series::line("stop and encode", percent(&|t| costs(1).time_division_overhead(t))?)];
    for cores in [16usize, 32, 64, 128] {
        series.push(Series::line(
            format!("helper core of {cores}"),
            percent(&|t| costs(cores).hybrid_overhead(t))?,
        ));
    }
    // The crossing for the caption is found without the closed form.
    let crossing_seconds = optimum::root_log(30.0, 10_000.0, |t| {
        costs(16).time_division_overhead(t).unwrap_or(f64::NAN)
            - costs(16).hybrid_overhead(t).unwrap_or(f64::NAN)
    });
    let caption = format!(
        "Bautista Gomez et al., section 5.1, both sides as fractions: 1/N + t_cpy/T against \
         t_enc/T, with a copy of 2 s and an encoding of 20 s. With 16 cores the helper is \
         cheaper below an interval of {:.0} s (N (t_enc - t_cpy)).",
        crossing_seconds.unwrap_or(f64::NAN)
    );
    let x = Axis::log("checkpoint interval (s)", "interval_seconds");
    let y = Axis::log("overhead (%)", "overhead_percent");
    Ok((caption, Body::lines(x, y, series)))
}
