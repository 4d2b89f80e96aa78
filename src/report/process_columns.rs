//! The process columns of a test, if their rates are unequal: blocks, rate and wait of each.

use super::cformat::percent;
use super::reader::ProcessColumn;
use skt_config::TestSpec;
use skt_run::record::TestRecord;

/// Most process columns that have a line each.
const MAX_LINES: usize = 32;

/// The number of blocks of A that each process column has.
pub(super) fn blocks(spec: &TestSpec) -> Vec<usize> {
    let (cols, panels) = (spec.columns(), spec.n.div_ceil(spec.nb));
    let mut blocks = vec![0; spec.q];
    (0..panels).for_each(|k| blocks[cols.block_owner(k)] += 1);
    blocks
}

/// All process columns, in order; none of a test without unequal rates, or that has no times.
pub(super) fn parts(record: &TestRecord) -> Vec<ProcessColumn> {
    let TestRecord { spec, column_waits, .. } = record;
    if column_waits.is_empty() {
        return Vec::new();
    }
    let columns = blocks(spec).into_iter().zip(&spec.rates).zip(column_waits);
    let part = |((blocks, &rate), &waited_seconds)| ProcessColumn { blocks, rate, waited_seconds };
    columns.map(part).collect()
}

/// The lines of the text report.
pub(super) fn lines(record: &TestRecord) -> Vec<String> {
    let parts = parts(record);
    if parts.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["# column  blocks       rate    waited s       %".to_owned()];
    for (column, part) in parts.iter().enumerate().take(MAX_LINES) {
        let ProcessColumn { blocks, rate, waited_seconds } = *part;
        let percent = percent(waited_seconds, record.time_seconds);
        lines.push(format!("# {column:>6}{blocks:>8}{rate:>11.4}{waited_seconds:>12.4}{percent}"));
    }
    if parts.len() > MAX_LINES {
        lines.push(format!("# {} more are in the JSON report", parts.len() - MAX_LINES));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, parse};

    fn record(q: usize, rates: &str) -> TestRecord {
        let text = format!("n = 1000\nnb = 10\np = 1\nq = {q}\nrates = \"{rates}\"\n");
        let spec = parse(text.as_bytes(), "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        let column_waits = vec![0.25; spec.rates.len()];
        TestRecord { time_seconds: 10.0, column_waits, ..TestRecord::not_run(spec) }
    }

    #[test]
    fn each_column_has_its_blocks_rate_and_wait() {
        let lines = lines(&record(3, "1,2,1"));
        assert_eq!(
            lines,
            [
                "# column  blocks       rate    waited s       %",
                "#      0      25     1.0000      0.2500     2.5",
                "#      1      50     2.0000      0.2500     2.5",
                "#      2      25     1.0000      0.2500     2.5",
            ]
        );
    }

    #[test]
    fn very_many_columns_are_counted() {
        let rates: Vec<&str> = (0..40).map(|column| ["1", "2"][column % 2]).collect();
        let lines = lines(&record(40, &rates.join(",")));
        assert_eq!(lines.len(), 34);
        assert_eq!(lines[33], "# 8 more are in the JSON report");
    }

    #[test]
    fn equal_columns_have_no_lines() {
        assert_eq!(lines(&record(3, "2,2,2")), Vec::<String>::new());
    }
}
