//! The bytes that checkpoints and reports keep of records: a change here needs a new number of the
//! format, as other versions of the program read them.

use bytemuck::bytes_of;
use serde::Serialize;
use serde::de::DeserializeOwned;
use skt_checkpoint::checkpoint::level::LevelReport;
use skt_checkpoint::heartbeat::{CorruptionReport, Heartbeat};
use skt_health::slow::SlowRank;
use skt_health::slow::links::SlowLink;
use skt_host::phases::ChecksumCosts;
use skt_run::protect::result;
use skt_run::record::{
    Outcome, Protection, RepairedRank, Replacement, Restart, TestRecord, Unverified,
};

use crate::golden::assert_golden;
use crate::report_common::{PASSED_NORMS, record, record_with, small_run};

/// A record in which each field that may be left out has a value.
fn whole() -> TestRecord {
    let mut record = record(small_run().tests()[0].clone());
    let protection = record.protection.as_mut().expect("it is protected");
    protection.repaired = vec![RepairedRank {
        host: "n1".into(),
        rank: 3,
        process_row: 1,
        process_column: 2,
        rows: 5,
        first_row: 7,
        first_column: 64,
        last_column: 128,
        checks: 2,
        is_origin: true,
    }];
    protection.unverified = vec![Unverified { process_row: 1, first_column: 64, last_column: 192 }];
    protection.checksum_costs =
        Some(ChecksumCosts { log_seconds: 0.5, sum_seconds: 0.25, check_seconds: 0.125 });
    protection.levels = vec![LevelReport {
        name: "local:/l".into(),
        images: 2,
        bytes: 3_000_000,
        seconds: 1.5,
        stall_seconds: 0.25,
        cpu_seconds: 0.75,
        interval_seconds: Some(60.5),
        given_up: 1,
        complete_epoch: 3,
        failure: Some("disk full".into()),
        is_over: true,
    }];
    protection.restarts.push(Restart {
        damaged_blocks: 1,
        repair_seconds: Some(2.5),
        undone_ranks: 2,
        replacement: Some(Replacement {
            process_column: 1,
            decoded_bytes: 4096,
            decode_seconds: 0.25,
        }),
        level: Some("global:/g".into()),
        ..Restart::default()
    });
    record.by_messages = vec!["panels".into(), "rows in halves".into()];
    record
}

fn beat() -> Heartbeat {
    let blame = CorruptionReport {
        host: "n1".into(),
        rank: 3,
        checks: 1,
        rows: 2,
        first_column: 8,
        ends_job: true,
    };
    Heartbeat {
        token: "t1".into(),
        rank: 0,
        phase: "factor".into(),
        column: 512,
        steps: 1,
        pieces: 2,
        expected_seconds: 0.5,
        n: 4000,
        slow: Some("slow: n3 rank 12 -38 %".into()),
        elapsed_seconds: 1.25,
        exit: Some(1),
        report_lines: Some(80),
        corruption: vec![blame],
        unfit: Vec::new(),
        keeps: None,
    }
}

fn outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Failed { scaled_residual: 17.5, norms: PASSED_NORMS },
        Outcome::NotChecked,
        Outcome::Broke { column: 12, pivot: "NaN".into() },
        Outcome::Skipped { reason: "no memory".into() },
    ]
}

/// The JSON of a value, and that it is read as the same value again.
fn json<T: Serialize + DeserializeOwned>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("plain data");
    let read: T = serde_json::from_str(&json).expect("written just now");
    assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
    json + "\n"
}

#[test]
fn bytes_of_records_stay_what_they_are() {
    let whole = whole();
    let mut text = json(&whole);
    text += &json(&TestRecord { spec: whole.spec.clone(), ..TestRecord::default() });
    for outcome in outcomes() {
        text += &json(&record_with(whole.spec.clone(), outcome).outcome);
    }
    text += &json(&Protection::default());
    text += &json(&Restart::default());
    text += &json(&SlowRank { host: "n3".into(), rank: 12, ..SlowRank::default() });
    text += &json(&SlowLink { host: "n3".into(), times: 4.5, ..SlowLink::default() });
    text += &beat().line();
    text += &String::from_utf8(result::write_plain(&whole)).expect("JSON is text");
    let stall = whole.protection.expect("it is protected").seconds.stall;
    text += &format!("\n{:02x?}\n", bytes_of(&stall));
    assert_golden("records.txt", &text, &[]);
}
