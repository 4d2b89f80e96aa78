//! Runs and records that the tests of the report share.
#![allow(dead_code, reason = "each test binary uses some of these")]

use std::path::PathBuf;

use skt_config::{
    Bcast, Fact, Form, Format, Generator, MxpMatrix, Output, Pmap, Refinement, RunSpec, Swap,
    TestSpec,
};
use skt_host::phases::{PhaseTable, Phases};
use skt_run::record::energy::{EnergyReading, METER, NodeWatts, Nodes};
use skt_run::record::{
    CheckpointSeconds, DetailedTiming, Event, MemorySplit, MxpRecord, Norms, Outcome, Protection,
    RefinementStep, Restart, Sample, Stall, TestRecord,
};

/// The HPL.dat that comes with HPL 2.3.
pub fn default_run() -> RunSpec {
    const TEXT: &str = r#"
title = ["HPLinpack benchmark input file", "Knoxville"]
n = [29, 30, 34, 35]
nb = [1, 2, 3, 4]
p = [2, 1, 4]
q = [2, 4, 1]
pfact = ["left", "crout", "right"]
nbmin = [2, 4]
rfact = ["left", "crout", "right"]
bcast = "1ring"
depth = 0
"#;
    skt_config::parse(TEXT.as_bytes(), "the default run", Format::Toml, false).unwrap().spec
}

/// A small run of two tests.
pub fn small_run() -> RunSpec {
    RunSpec {
        n: vec![35, 0],
        nb: vec![4],
        grids: vec![(1, 1)],
        pfact: vec![Fact::Crout],
        nbmin: vec![4],
        rfact: vec![Fact::Right],
        bcast: vec![Bcast::TwoRingM],
        depth: vec![1],
        ..default_run()
    }
}

/// A small run of HPL-MxP, of two tests.
pub fn mxp_run(matrix: MxpMatrix) -> RunSpec {
    RunSpec { n: vec![3500, 5000], nb: vec![192], mxp: Some(matrix), ..small_run() }
}

/// The record of a test of HPL-MxP with the scaled residuals of its steps, the last `gmres` of them
/// by GMRES.
pub fn mxp_record(spec: TestSpec, residuals: &[f64], gmres: usize) -> TestRecord {
    let first_of_gmres = residuals.len() - gmres;
    let how = |step| if step < first_of_gmres { Refinement::Classic } else { Refinement::Gmres };
    let step = |(step, residual): (usize, &f64)| RefinementStep {
        refinement: how(step),
        end_seconds: 4.25 + 0.25 * step as f64,
        corrections: 1,
        scaled_residual: *residual,
    };
    let mxp = MxpRecord {
        factor_seconds: 4.0,
        refine_seconds: 1.0,
        refinement: if gmres == 0 { Refinement::Classic } else { Refinement::Gmres },
        steps: residuals.iter().enumerate().map(step).collect(),
        has_converged: residuals.last().is_some_and(|last| *last < 1.0),
        failure: residuals.is_empty().then(|| "step 1 of the refinement failed".to_owned()),
    };
    TestRecord { mxp: Some(mxp), detailed: None, ..record(spec) }
}

/// A run that uses the other value of every choice, and all broadcasts of the reference.
pub fn other_run() -> RunSpec {
    RunSpec {
        output: Output::File(PathBuf::from("HPL.out")),
        n: (1..=20).map(|i| i * 1000).collect(),
        nb: (1..=9).map(|i| i * 32).collect(),
        pmap: Pmap::ColumnMajor,
        grids: vec![(1, 16)],
        threshold: 0.0,
        bcast: Bcast::ALL[..=Bcast::LongM.code()].to_vec(),
        depth: vec![0, 1, 2],
        swap: Swap::SpreadRoll,
        l1: Form::NoTransposed,
        u: Form::NoTransposed,
        equilibration: false,
        align_doubles: 16,
        generator: Generator::Xoshiro,
        threads: 12,
        ..default_run()
    }
}

pub const PASSED_NORMS: Norms = Norms {
    residual_oo: 1e-15,
    a_oo: 10.628_718,
    a_1: 10.538_950,
    x_oo: 5.143_742,
    x_1: 70.372_803,
    b_oo: 0.495_025,
};

/// The start of every test: 2023-11-14 22:13:20 UTC.
pub const START: i64 = 1_700_000_000;
/// The end of every test.
pub const END: i64 = START + 5;

/// The record of a test that passed.
pub fn record(spec: TestSpec) -> TestRecord {
    TestRecord {
        time_seconds: 5.0,
        gflops: 92.125,
        start_unix_seconds: START,
        end_unix_seconds: END,
        generate_seconds: 0.25,
        check_seconds: 0.125,
        phases: PhaseTable {
            max: Phases {
                panel: 0.75,
                swap: 0.5,
                bcast: 0.25,
                update: 4.0,
                back: 0.0625,
                other: 0.015_625,
                ..Phases::default()
            },
            mean: Phases {
                panel: 0.5,
                swap: 0.375,
                bcast: 0.125,
                update: 3.9375,
                back: 0.046_875,
                other: 0.015_625,
                ..Phases::default()
            },
        },
        detailed: Some(DetailedTiming {
            pfact_seconds: 0.5,
            mxswp_seconds: 0.25,
            update_seconds: 4.375,
        }),
        rank_bytes: 13_207_024_435,
        memory: MemorySplit {
            matrix: 3000,
            copies: 3000,
            parities: 2000,
            header: 64,
            work_space: 500,
        },
        progress: vec![
            Sample { elapsed_seconds: 0.0, column: 4 },
            Sample { elapsed_seconds: 2.5, column: 17 },
        ],
        events: vec![
            Event { kind: "start".to_string(), ..Event::default() },
            Event {
                kind: "checkpoint".to_string(),
                start_seconds: 1.0,
                seconds: 0.25,
                epoch: Some(1),
                column: Some(8),
                bytes: Some(3000),
                detail: "checkpoint 1".to_string(),
            },
        ],
        x_fingerprint: 0x0123_4567_89ab_cdef,
        protection: Some(protection()),
        end_unix: Some(END as f64 + 0.25),
        power: vec![power(METER, None), power("RAPL", Some(nodes()))],
        outcome: Outcome::Passed { scaled_residual: 2.123_445_25e-2, norms: PASSED_NORMS },
        spec,
        ..TestRecord::default()
    }
}

/// The reading of a source for a test of 5 s at 92.125 Gflop/s: 921.25 W.
pub fn power(source: &str, nodes: Option<Nodes>) -> EnergyReading {
    let reading = EnergyReading {
        source: source.to_string(),
        covers: "2 processor package(s)".to_string(),
        level: nodes.is_none().then_some(1),
        joules: 4606.25,
        mean_watts: 921.25,
        measured_seconds: 5.0,
        gflops_per_watt: None,
        readout: None,
        nodes,
        watts: vec![Some(900.0), None, Some(942.5), Some(921.3), Some(921.2)],
    };
    reading.rated(92.125, 5.0)
}

fn nodes() -> Nodes {
    let node = |host: &str, watts: f64| NodeWatts { host: host.to_string(), watts };
    Nodes {
        all: 3,
        measured: 3,
        least: node("n2", 300.0),
        median_watts: 310.0,
        largest: node("n1", 311.25),
    }
}

/// The record of a test with the outcome `outcome`.
pub fn record_with(spec: TestSpec, outcome: Outcome) -> TestRecord {
    let mut record = TestRecord { outcome, ..record(spec) };
    if !record.outcome.ran_to_end() {
        record.power.clear();
    }
    record
}

/// The protection of a run that was restarted once.
fn protection() -> Protection {
    Protection {
        method: "self".to_string(),
        codec: "xor".to_string(),
        encoder: "ring".to_string(),
        message_bytes: 256 << 10,
        region: "corner".to_string(),
        run_id: "hpl-1".to_string(),
        groups: 2,
        group_size: 3,
        parities: 1,
        survives_nodes: true,
        segment_bytes: 3 << 30,
        open_seconds: 0.75,
        checkpoints: 4,
        seconds: CheckpointSeconds {
            checkpoint_seconds: 0.5,
            stall_seconds: 0.5,
            stall: Stall {
                begin_seconds: 0.02,
                turn_seconds: 0.03,
                encode_seconds: 0.25,
                agree_seconds: 0.05,
                copy_seconds: 0.15,
            },
            skew_seconds: 0.125,
            encode_seconds: 0.25,
            copy_seconds: 0.125,
        },
        saved_bytes: 5 << 30,
        restarts: vec![Restart {
            epoch: 2,
            column: 4096,
            rebuilt_ranks: vec![3],
            start_seconds: 30.0,
            lost_seconds: 1.5,
            down_seconds: 1.0,
            recover_seconds: 0.25,
            ..Restart::default()
        }],
        ..Protection::default()
    }
}
