//! Raw runs of `scripts/measure/papers` and `benches/encoding.rs`: lines `figure,series,x,value`.

use crate::plot::{Axis, Body, Figure, Series};
use skt_host::median::median;

use crate::StudyError;

const HEADER: &str = "figure,series,x,value";

struct Shown {
    name: &'static str,
    title: &'static str,
    x: (&'static str, &'static str),
    y: (&'static str, &'static str),
}

const RANKS: (&str, &str) = ("ranks of a group", "group_size_processes");
const ENCODE: (&str, &str) = ("seconds of an encoding", "encode_seconds");
const STAGE: (&str, &str) = ("columns done at the loss", "part");
const ELAPSED: (&str, &str) = ("seconds", "elapsed_seconds");
const PROCESSES: (&str, &str) = ("processes", "processes");

const MEASURED: &[Shown] = &[
    Shown { name: "tang-15-loss", title: "Phases of a loss", x: ("phase", "part"), y: ELAPSED },
    Shown {
        name: "tang-18-codes",
        title: "Encoding by code and by way of the messages",
        x: RANKS,
        y: ENCODE,
    },
    Shown {
        name: "tang-19-groups",
        title: "Encoding over the size of a group",
        x: RANKS,
        y: ENCODE,
    },
    Shown {
        name: "tang-19-sizes",
        title: "Bytes of a checkpoint over the size of a group, at one memory of a rank",
        x: RANKS,
        y: ("MiB of a checkpoint", "checkpoint_mebibytes"),
    },
    Shown {
        name: "tang-20-regions",
        title: "Seconds of all checkpoints, by what they save",
        x: ("region", "part"),
        y: ("seconds", "checkpoints_seconds"),
    },
    Shown {
        name: "tang-20-sizes",
        title: "Bytes of all checkpoints, by what they save",
        x: ("region", "part"),
        y: ("MiB of a rank", "checkpoints_mebibytes"),
    },
    Shown {
        name: "chen-chain",
        title: "Chain and tree over the size of the data",
        x: ("MiB of a rank", "rank_mebibytes"),
        y: ENCODE,
    },
    Shown {
        name: "chen-08-recovery",
        title: "PCG: a checkpoint, and a recovery from four losses",
        x: PROCESSES,
        y: ELAPSED,
    },
    Shown {
        name: "chen-08-simulated",
        title: "Simulated ranks: a checkpoint, and a recovery from several losses",
        x: PROCESSES,
        y: ELAPSED,
    },
    Shown {
        name: "chen-chain-simulated",
        title: "Simulated ranks: chain and trees over the size of the data",
        x: ("MiB of a rank", "rank_mebibytes"),
        y: ("seconds of a checkpoint", "checkpoint_seconds"),
    },
    Shown {
        name: "wang-08-residuals",
        title: "Scaled residual with abft, by the stage of the loss",
        x: STAGE,
        y: ("scaled residual", "residual"),
    },
    Shown {
        name: "wang-09-stages",
        title: "Time of a run with abft, by the stage of the loss",
        x: STAGE,
        y: ELAPSED,
    },
    Shown {
        name: "bautista-nbody",
        title: "N-body with checkpoints that survive half of a group",
        x: PROCESSES,
        y: ELAPSED,
    },
    Shown {
        name: "bautista-himeno",
        title: "Himeno with checkpoints that survive half of a group",
        x: PROCESSES,
        y: ELAPSED,
    },
];

/// A run: its figure, its series, its x and the value.
type Row<'a> = (&'static Shown, &'a str, &'a str, f64);

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.split(',').collect();
    let &[figure, series, x, value] = cells.as_slice() else { return None };
    let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some((MEASURED.iter().find(|shown| shown.name == figure)?, series, x, value))
}

/// The figures of a file of raw runs, each point the median of its runs.
pub(crate) fn measured(text: &str) -> Result<Vec<Figure>, StudyError> {
    let is_run = |line: &&str| !line.starts_with('#') && *line != HEADER;
    let read = |(at, line)| {
        let fault = || StudyError::Usage(format!("line {}: {line:?} is no run: {HEADER}", at + 1));
        row(line).ok_or_else(fault)
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_run(line));
    let rows = lines.map(read).collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() {
        return Err(StudyError::Usage(format!("no run: a line for each, {HEADER}")));
    }
    let mut shown = in_order(rows.iter().map(|row| row.0.name));
    let of = |name| MEASURED.iter().find(|shown| shown.name == name).expect("a row has it");
    Ok(shown.drain(..).map(|name| figure(of(name), &rows)).collect())
}

/// The words without repetitions, in the order of the first of each.
fn in_order<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    words.fold(Vec::new(), |mut all, word| {
        if !all.contains(&word) {
            all.push(word);
        }
        all
    })
}

fn figure(shown: &Shown, rows: &[Row]) -> Figure {
    let own: Vec<&Row> = rows.iter().filter(|row| row.0.name == shown.name).collect();
    let (series, xs) = (in_order(own.iter().map(|r| r.1)), in_order(own.iter().map(|r| r.2)));
    let value = |series: &str, x: &str| {
        let runs = own.iter().filter(|row| (row.1, row.2) == (series, x));
        median(runs.map(|row| row.3))
    };
    let numbers: Result<Vec<f64>, _> = xs.iter().map(|x| x.parse::<f64>()).collect();
    let y = Axis::linear(shown.y.0, shown.y.1);
    let body = if let Ok(numbers) = numbers {
        let line = |name: &&str| {
            let points = xs.iter().zip(&numbers);
            Series::line(*name, points.filter_map(|(x, &at)| Some((at, value(name, x)?))))
        };
        Body::lines(Axis::linear(shown.x.0, shown.x.1), y, series.iter().map(line).collect())
    } else {
        // No bar where a series has no run.
        let bars = |name: &&str| {
            let values = xs.iter().map(|x| value(name, x).unwrap_or(0.0));
            ((*name).to_owned(), values.collect())
        };
        let categories = xs.iter().map(|x| (*x).to_owned()).collect();
        Body::Bars { category: shown.x, categories, y, series: series.iter().map(bars).collect() }
    };
    let most = own.iter().map(|row| own.iter().filter(|r| (r.1, r.2) == (row.1, row.2)).count());
    let caption = format!("Medians of up to {} run(s).", most.max().unwrap_or(0));
    Figure { id: shown.name, title: shown.title.into(), caption, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_median_of_its_runs() {
        let runs = "# a machine\nfigure,series,x,value\nchen-chain,ring,1,3\nchen-chain,ring,1,2\n\
                    chen-chain,tree,1,9\nchen-chain,ring,4,7\ntang-15-loss,seconds,restart,5\n";
        let figures = measured(runs).unwrap();
        let csvs: Vec<String> = figures.iter().map(Figure::csv).collect();
        let chain = "series,rank_mebibytes,encode_seconds\nring,1,2.5\nring,4,7\ntree,1,9\n";
        assert_eq!(csvs, [chain, "series,part,elapsed_seconds\nseconds,restart,5\n"]);
        assert!(figures[0].caption.contains("up to 2"), "{}", figures[0].caption);
    }

    #[test]
    fn a_line_that_is_no_run_is_named() {
        let faults = ["chen-chain,ring,1", "no-such,ring,1,2", "chen-chain,ring,1,NaN"];
        for fault in faults {
            let error = measured(&format!("{HEADER}\n{fault}\n")).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(fault), "{error}");
        }
        assert!(measured(HEADER).unwrap_err().to_string().contains("no run"));
    }
}
