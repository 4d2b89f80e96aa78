//! The result of a test as shared memory keeps it until it is reported.

use serde::{Deserialize, Serialize};

use super::history::History;
use crate::record::{Sample, TestRecord};

/// The report of a test, without what follows from the rest.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The record without its events, samples and restarts, which are stored below.
    record: TestRecord,
    /// Elapsed seconds of the run, and columns, of this start.
    samples: Vec<(f64, usize)>,
    #[serde(flatten)]
    history: History,
}

/// The complete record, from the bytes that `write` made.
///
/// # Panics
/// When this version of the program has not written the bytes.
pub fn read(result: &[u8]) -> TestRecord {
    try_read(result).expect("a result that this program wrote")
}

/// The complete record, from bytes that another version of this program may have written; `None` if
/// it cannot be read.
pub fn try_read(result: &[u8]) -> Option<TestRecord> {
    let kept: Kept = serde_json::from_slice(result).ok()?;
    let Kept { mut record, samples, history } = kept;
    if let Some(protection) = &mut record.protection {
        protection.restarts.clone_from(&history.restarts);
    }
    let sample = |(elapsed_seconds, column)| Sample { elapsed_seconds, column };
    let samples: Vec<Sample> = samples.into_iter().map(sample).collect();
    if record.protection.is_some() {
        let last_part = if record.mxp.is_some() { "refinement" } else { "back substitution" };
        record.events = history.events(record.time_seconds, last_part);
    }
    record.progress = history.progress(&samples);
    Some(record)
}

/// The bytes of a test that ran without checkpoints, for [`read`].
pub fn write_plain(record: &TestRecord) -> Vec<u8> {
    let history = History { taken: Vec::new(), restarts: Vec::new(), before_seconds: 0.0 };
    write(record.clone(), &record.progress, history, usize::MAX)
}

/// The bytes of a record with its history, at most `capacity_bytes`. If they do not fit, the
/// detailed timing is left out, then all but the latest restarts.
pub(super) fn write(
    mut record: TestRecord,
    samples: &[Sample],
    history: History,
    capacity_bytes: usize,
) -> Vec<u8> {
    record.events.clear();
    record.progress.clear();
    if let Some(protection) = &mut record.protection {
        protection.restarts.clear();
    }
    let samples = samples.iter().map(|s| (s.elapsed_seconds, s.column)).collect();
    let mut kept = Kept { record, samples, history };
    // A restart is worth more than some lines of the report.
    if json(&kept).len() > capacity_bytes {
        kept.record.detailed = None;
    }
    fit(kept, capacity_bytes, |kept| &mut kept.history.restarts).1
}

/// The value and its JSON. The oldest entries of `list` are removed until it has `capacity_bytes`,
/// or none is left.
pub(super) fn fit<T: Serialize, E: Serialize>(
    mut value: T,
    capacity_bytes: usize,
    list: impl Fn(&mut T) -> &mut Vec<E>,
) -> (T, Vec<u8>) {
    let bytes = json(&value);
    let mut excess = bytes.len().saturating_sub(capacity_bytes);
    if excess == 0 {
        return (value, bytes);
    }
    let entries = list(&mut value);
    let mut oldest = 0;
    while excess > 0 && oldest < entries.len() {
        excess = excess.saturating_sub(json(&entries[oldest]).len() + ",".len());
        oldest += 1;
    }
    entries.drain(..oldest);
    let bytes = json(&value);
    (value, bytes)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data")
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use skt_host::phases::ChecksumCosts;

    use super::super::history::{RESTARTS_KEPT, TAKEN_KEPT, Taken, remember};
    use super::super::split::state_bytes;
    use super::*;
    use crate::record::energy::{EnergyReading, NodeWatts, Nodes, PARTS_MAX, Readout};
    use crate::record::{
        DetailedTiming, MxpRecord, Norms, Outcome, Protection, RefinementStep, RepairedRank,
        Restart, Samples, Unverified,
    };
    use skt_config::{
        Bcast, Fact, GemmPrecision, Generator, MxpMatrix, Pmap, Refinement, Swap, TestSpec,
    };

    /// A number with as many digits as possible.
    const LONG: f64 = 1_234_567_890.123_456_7;
    const MANY: usize = 1 << 60;

    /// The largest reading of a source.
    fn reading() -> EnergyReading {
        let node = |watts| NodeWatts { host: "h".repeat(64), watts };
        EnergyReading {
            source: "s".repeat(100),
            covers: "c".repeat(250),
            level: Some(3),
            joules: LONG,
            mean_watts: LONG,
            measured_seconds: LONG,
            gflops_per_watt: Some(LONG),
            nodes: Some(Nodes {
                all: MANY,
                measured: MANY,
                least: node(LONG),
                median_watts: LONG,
                largest: node(LONG),
            }),
            readout: Some(Readout { readings: MANY, longest_seconds: LONG }),
            watts: vec![Some(12_345_678.9); PARTS_MAX],
        }
    }

    /// `value` with all numbers as long as their types take; negative ones are of signed types.
    fn widened<T: Serialize + DeserializeOwned>(value: &T) -> T {
        fn widen(value: &mut Value) {
            match value {
                Value::Number(number) if number.is_f64() => *value = LONG.into(),
                Value::Number(number) if number.is_i64() && !number.is_u64() => {
                    *value = i64::MIN.into()
                }
                Value::Number(_) => *value = u64::MAX.into(),
                Value::Array(values) => values.iter_mut().for_each(widen),
                Value::Object(fields) => fields.values_mut().for_each(widen),
                Value::Null | Value::Bool(_) | Value::String(_) => {}
            }
        }
        let mut value = serde_json::to_value(value).expect("plain data");
        widen(&mut value);
        serde_json::from_value(value).expect("numbers of their types")
    }

    /// The largest record.
    fn record() -> TestRecord {
        let spec = TestSpec {
            pmap: Pmap::ColumnMajor,
            bcast: Bcast::TwoRingM,
            rfact: Fact::Right,
            pfact: Fact::Right,
            swap: Swap::BinaryExchange,
            generator: Generator::Xoshiro,
            threshold: LONG,
            checksums: 1,
            ..TestSpec::default()
        };
        let protection = Protection {
            method: "double".into(),
            codec: "reed-solomon".into(),
            encoder: "ring".into(),
            region: "corner".into(),
            run_id: "r".repeat(skt_store::store::RUN_BYTES_MAX),
            checksum_costs: Some(ChecksumCosts::default()),
            ..Protection::default()
        };
        let mut record = widened(&TestRecord {
            start_unix_seconds: -1,
            end_unix_seconds: -1,
            detailed: Some(DetailedTiming::default()),
            by_messages: vec!["panels".into(); 2],
            protection: Some(protection),
            end_unix: Some(0.0),
            spec,
            ..TestRecord::default()
        });
        record.power = vec![reading(); 2];
        record.outcome = Outcome::Failed {
            scaled_residual: f64::NAN,
            norms: Norms {
                residual_oo: f64::INFINITY,
                a_oo: LONG,
                a_1: LONG,
                x_oo: -0.0,
                x_1: LONG,
                b_oo: LONG,
            },
        };
        let protection = record.protection.as_mut().expect("it is protected");
        protection.repaired = vec![
            RepairedRank {
                host: "h".repeat(64),
                rank: MANY,
                process_row: MANY,
                process_column: MANY,
                rows: u64::MAX,
                first_row: 10_000_000,
                first_column: 10_000_000,
                last_column: 10_000_000,
                checks: u64::MAX,
                is_origin: false,
            };
            Protection::REPAIRED_KEPT
        ];
        protection.unverified =
            vec![
                Unverified { process_row: MANY, first_column: 10_000_000, last_column: 10_000_000 };
                Protection::UNVERIFIED_KEPT
            ];
        record
    }

    /// The largest record of HPL-MxP, which has no checksums.
    fn record_of_mxp() -> TestRecord {
        let mut record = record();
        record.spec.mxp = Some(MxpMatrix::FasiHigham);
        record.spec.gemm = GemmPrecision::EmulatedBf16;
        let protection = record.protection.as_mut().expect("it is protected");
        (protection.repaired, protection.unverified) = (Vec::new(), Vec::new());
        let step = RefinementStep {
            refinement: Refinement::Classic,
            corrections: MxpRecord::MAX_STEPS,
            end_seconds: LONG,
            scaled_residual: LONG,
        };
        record.mxp = Some(MxpRecord {
            factor_seconds: LONG,
            refine_seconds: LONG,
            refinement: Refinement::Classic,
            steps: vec![step; MxpRecord::MAX_STEPS],
            has_converged: false,
            failure: Some("f".repeat(300)),
        });
        record
    }

    fn history(restarts: usize, rebuilt: usize) -> History {
        let mut taken = Vec::new();
        for epoch in 0..100 {
            let at = LONG + epoch as f64;
            let seconds = 123_456.789;
            let bytes = 1 << 50;
            let new = Taken { start_seconds: at, seconds, epoch, column: 10_000_000, bytes };
            remember(&mut taken, new, TAKEN_KEPT);
        }
        let restart = |number: usize| Restart {
            epoch: number as u64,
            column: 10_000_000,
            rebuilt_ranks: (0..rebuilt).map(|rank| 2 * rank).collect(),
            start_seconds: LONG / 3.0 + number as f64,
            lost_seconds: LONG / 7.0,
            down_seconds: LONG / 9.0,
            recover_seconds: LONG / 11.0,
            wall_clock_step_seconds: -LONG / 13.0,
            ..Restart::default()
        };
        History { taken, restarts: (0..restarts).map(restart).collect(), before_seconds: LONG }
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Samples::default();
        for panel in 0..10_000 {
            samples.push(LONG + panel as f64, 1_000_000 + panel);
        }
        samples.list()
    }

    #[test]
    fn the_largest_result_fits() {
        for ranks in [2, 100, 100_000] {
            let capacity_bytes = state_bytes(ranks);
            let records = [record(), record_of_mxp()];
            for (record, rebuilt) in records.iter().flat_map(|it| [(it, 1), (it, ranks / 2)]) {
                let history = history(RESTARTS_KEPT, rebuilt);
                let bytes = write(record.clone(), &samples(), history, capacity_bytes);
                assert!(bytes.len() <= capacity_bytes, "{ranks}: {}", bytes.len());
                let kept = read(&bytes).protection.unwrap().restarts;
                // All restarts are kept, except where half of a large job is lost each time, and
                // where a refinement has taken all of its steps, each by one correction.
                let least = match (&record.mxp, rebuilt) {
                    (None, 1) => RESTARTS_KEPT,
                    (Some(_), 1) => RESTARTS_KEPT - 10,
                    _ => 1,
                };
                assert!(kept.len() >= least, "{} of {least}", kept.len());
                assert_eq!(kept.last().unwrap().epoch, RESTARTS_KEPT as u64 - 1, "the latest");
            }
        }
    }

    #[test]
    fn a_test_without_checkpoints_has_no_events() {
        let record = TestRecord { protection: None, ..record() };
        assert_eq!(read(&write_plain(&record)).events, []);
    }

    #[test]
    fn result_survives_a_round_trip() {
        let (history, samples) = (history(3, 2), samples());
        let want = TestRecord {
            events: history.events(LONG, "back substitution"),
            progress: history.progress(&samples),
            ..record()
        };
        let bytes = write(record(), &samples, history, state_bytes(4));
        let read = read(&bytes);
        let Outcome::Failed { scaled_residual, norms } = &read.outcome else { panic!("{read:?}") };
        assert!(scaled_residual.is_nan());
        assert_eq!((norms.residual_oo, norms.a_oo), (f64::INFINITY, LONG));
        assert_eq!(norms.x_oo.to_bits(), (-0f64).to_bits());
        assert_eq!(read.protection.as_ref().unwrap().restarts.len(), 3);
        assert_eq!((read.events, read.progress), (want.events, want.progress));
        assert_eq!((read.spec, read.phases), (want.spec, want.phases));
        assert_eq!(read.detailed, want.detailed);
        assert_eq!((read.time_seconds, read.x_fingerprint), (LONG, u64::MAX));
        assert_eq!((read.power, read.end_unix), (want.power, Some(LONG)));
    }
}
