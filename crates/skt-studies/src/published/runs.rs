use skt_host::choice::{Bcast, Swap};
use skt_model::path::{Changes, Machine, Placement, RunParams, predict};

use super::machines::{DAHU, Processors, dahu};
use crate::StudyError;

/// One line for each run, with its source and commit.
const RUNS: &str = include_str!("../../data/published.csv");
/// Above which "mix" takes spread-roll (Ezibenroc/hpl, `bin/SMPI/HPL.dat`), and on Stellar.
const SWAP_THRESHOLD: usize = 128;
const STELLAR_SWAP_THRESHOLD: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub machine: &'static str,
    /// What was varied.
    pub experiment: &'static str,
    /// Year and month.
    pub date: &'static str,
    pub nodes: usize,
    /// The parameters, without threads and placement.
    pub run: RunParams,
    /// Number of times that it was run.
    pub runs: usize,
    /// The median of their rates.
    pub gflops: f64,
    /// The rate that the owners' simulation predicts.
    pub theirs_gflops: Option<f64>,
}

/// All published runs, in the order of the file.
pub fn published() -> impl Iterator<Item = Published> {
    RUNS.lines().skip(1).map(read)
}

fn read(line: &'static str) -> Published {
    let mut cells = line.split(',');
    let mut cell = || cells.next().expect("a column");
    let number = |text: &str| text.parse::<usize>().expect("a whole number");
    let (machine, experiment, date) = (cell(), cell(), cell());
    let [nodes, n, nb, p, q, depth] = [(); 6].map(|()| number(cell()));
    let bcast = Bcast::named(cell()).expect("a broadcast");
    let swap = Swap::named(cell()).expect("an exchange of rows");
    let runs = number(cell());
    let rate = |text: &str| text.parse::<f64>().expect("a rate");
    let (gflops, theirs) = (rate(cell()), cell());
    // HPL exchanges the rows of all columns at once.
    let run = RunParams {
        depth,
        bcast,
        swap,
        swap_threshold: if machine == "stellar" { STELLAR_SWAP_THRESHOLD } else { SWAP_THRESHOLD },
        halves: false,
        ..RunParams::new(n, nb, (p, q))
    };
    let theirs_gflops = (!theirs.is_empty()).then(|| rate(theirs));
    Published { machine, experiment, date, nodes, run, runs, gflops, theirs_gflops }
}

impl Published {
    pub fn on_dahu(&self, processors: Processors) -> Result<f64, StudyError> {
        assert_eq!(self.machine, "dahu");
        self.with_a_rank_a_core(&dahu(processors), DAHU)
    }

    /// The rate that the model predicts on `machine` with a rank on each core of its nodes.
    pub(crate) fn with_a_rank_a_core(
        &self,
        machine: &Machine,
        placement: Placement,
    ) -> Result<f64, StudyError> {
        assert_eq!(self.run.p * self.run.q, self.nodes * placement.ranks_per_node);
        let run = RunParams { placement, ..self.run };
        Ok(predict(&run, machine, &Changes::default())?.gflops)
    }

    /// The rate that the model predicts on `machine` with `threads` threads on each node.
    pub(crate) fn with_a_rank_a_node(
        &self,
        machine: &Machine,
        threads: usize,
    ) -> Result<f64, StudyError> {
        assert_eq!(self.run.p * self.run.q, self.nodes);
        let run = RunParams { threads, ..self.run };
        Ok(predict(&run, machine, &Changes::default())?.gflops)
    }
}
