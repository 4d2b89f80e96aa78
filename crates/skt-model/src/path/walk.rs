//! The walk over the panels: `pgesv::Solver::factor` with clocks instead of work.

use skt_host::columns::ColumnMap;
use skt_host::layout::Cyclic;
use skt_host::panel_edges::{self, Route, RowOrder};
use skt_host::phases::Phases;

use super::bcast::{self, Window, Wire};
use super::clock::{Moment, Part};
use super::machine::{Counts, Machine};
use super::placement::{ColumnWeights, EdgeWeights};
use super::work::{self, RowExchange};
use super::{Changes, PARTS, PhaseCounts, Prediction, RunParams, Unit};
use std::collections::VecDeque;

/// Number of columns below which exchange and solve are not divided among a team.
const TEAM_GRAIN_COLS: f64 = 64.0;

/// A panel that is factored but not yet applied everywhere.
struct Factored {
    k: usize,
    arrivals: bcast::Arrivals,
}

#[derive(Clone, Copy)]
struct Overlap {
    /// When the rank has finished sending panels, in seconds from the start of the run.
    port_seconds: f64,
    /// Seconds of the product that hides messages: that of both halves if there are halves, else 0.
    product_seconds: f64,
}

impl Overlap {
    /// That rows, whose messages take `message_seconds`, wait for the port, less what is hidden:
    /// rows of the right half follow the panel, while the product of the left half runs.
    fn queued_seconds(&self, clock: Moment, message_seconds: f64) -> f64 {
        if message_seconds == 0.0 {
            return 0.0;
        }
        let spare_seconds = (self.product_seconds - message_seconds).max(0.0) / 2.0;
        (self.port_seconds - clock.at_seconds - spare_seconds).max(0.0)
    }
}

/// Number of rows below a panel's diagonal block.
#[derive(Clone, Copy)]
struct Below {
    /// The number on the process row that has most.
    most: f64,
    /// The mean over process rows.
    mean: f64,
}

pub(super) struct Walk<'a> {
    pub(super) run: &'a RunParams,
    /// Panels that one step represents: the first is walked, on a machine slower by this factor.
    pub(super) stride: usize,
    /// The machine, with the mean core.
    pub(super) machine: &'a Machine,
    /// The machine with the cores of each process column.
    pub(super) columns: Vec<Machine>,
    changes: &'a Changes,
    /// The clock of each process column.
    pub(super) clocks: Vec<Moment>,
    /// By process column, that the mean rank will wait for the rank with most rows when they meet.
    waits: Vec<f64>,
    /// The seconds by phase of each process column.
    pub(super) phases: Vec<Phases>,
    route: Route,
    factored: VecDeque<Factored>,
    /// Bytes of panels on the way from column to column.
    edge_weights: EdgeWeights<'a>,
    /// Bytes of pivots, which one process column exchanges at a time.
    pivot_weights: ColumnWeights,
    exchange: RowExchange,
    exchange_last: RowExchange,
    unhidden: [f64; PARTS],
    pub(super) counts: PhaseCounts,
    pub(super) cols: ColumnMap,
    /// The owners of the panels that are walked: with a stride, of a matrix with as few blocks, so
    /// that each process column has its share of them.
    owners: ColumnMap,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        run: &'a RunParams,
        machine: &'a Machine,
        rates: &[f64],
        changes: &'a Changes,
        stride: usize,
    ) -> Self {
        let steps = run.panels().div_ceil(stride);
        let map = |n: usize| match rates {
            [] => ColumnMap::cyclic(run.nb, run.q),
            rates => ColumnMap::with_rates(n, run.nb, rates),
        };
        let column = |rate: &f64| machine.with_core_flops(rate / machine.product_flop_seconds);
        let columns = match rates {
            [] => vec![*machine; run.q],
            rates => rates.iter().map(column).collect(),
        };
        let cols = map(run.n);
        let owners = if stride == 1 { cols.clone() } else { map(steps * run.nb) };
        let last = run.n - (run.panels() - 1) * run.nb;
        let row_weights = ColumnWeights::new(run, run.q);
        Self {
            run,
            stride,
            machine,
            columns,
            changes,
            cols,
            owners,
            clocks: vec![Moment::default(); run.q],
            waits: vec![0.0; run.q],
            phases: vec![Phases::default(); run.q],
            route: panel_edges::route(run.bcast, run.q),
            factored: VecDeque::new(),
            edge_weights: EdgeWeights::new(run),
            pivot_weights: ColumnWeights::new(run, 1),
            exchange: RowExchange::new(run.p, run.nb, &row_weights),
            exchange_last: RowExchange::new(run.p, last, &row_weights),
            unhidden: [0.0; PARTS],
            counts: PhaseCounts::default(),
        }
    }

    pub(super) fn walk_panels(&mut self) {
        let steps = self.run.panels().div_ceil(self.stride);
        let depth = self.run.depth;
        for next in 0..steps.min(depth) {
            let owner = self.owner(next);
            let ready = self.advance(self.clocks[owner], next, self.run.threads);
            self.clocks[owner] = ready;
            self.start(next, ready, &self.idle_windows());
            self.finish(false);
        }
        for k in 0..steps {
            if depth == 0 {
                let owner = self.owner(k);
                let ready = self.advance(self.clocks[owner], k, self.run.threads);
                self.clocks[owner] = ready;
                self.start(k, ready, &self.idle_windows());
                self.finish(false);
            }
            self.update(k, (depth > 0 && k + depth < steps).then_some(k + depth));
        }
    }

    /// Applies panel `current` to the columns right of the look-ahead, while panel `ahead` is
    /// brought up to date, factored and broadcast.
    fn update(&mut self, current: usize, ahead: Option<usize>) {
        let q = self.run.q;
        let owner = ahead.map(|next| self.owner(next));
        let below = self.below(current);
        let jb = self.width(current) as f64;
        let mut ready = None;
        let mut windows = Vec::with_capacity(q);
        for column in 0..q {
            let cols = self.columns_right_of(column, current);
            let advances = owner == Some(column);
            let goes_first = work::advances_first(self.run, jb, cols);
            let mut clock = self.clocks[column];
            clock = self.wait_for(clock, column, current);
            let mut port_seconds = self.port_seconds(clock, column);
            if advances && goes_first {
                let next = ahead.expect("it is the owner");
                clock = self.advance(clock, next, self.run.threads);
                ready = Some(clock);
                port_seconds = self.first_sent_seconds(next, clock);
            }
            let product = self.product(below.most, cols, jb, false);
            let core_seconds = self.columns[column].seconds(&product);
            let threads = self.run.threads as f64;
            let hides = if self.run.is_in_halves(cols) { core_seconds / threads } else { 0.0 };
            let overlap = Overlap { port_seconds, product_seconds: hides };
            clock = self.exchange_and_solve(clock, column, current, cols, overlap, threads);
            let start = clock;
            if advances && !goes_first {
                let advanced = self.advance(clock, ahead.expect("it is the owner"), 1);
                ready = Some(advanced);
                clock = self.join(clock, advanced, core_seconds, column);
            } else {
                let seconds = core_seconds / self.run.threads as f64;
                clock = clock.after(Part::Product, seconds);
                self.phases[column].update += seconds;
            }
            self.account_product(column, below, cols, jb, false, threads);
            windows.push(Window { start, end: clock, rows: below.most });
            self.clocks[column] = clock;
        }
        if let (Some(next), Some(ready)) = (ahead, ready) {
            self.start(next, ready, &windows);
        }
        let applied = self.factored.pop_front().expect("the current panel is factored");
        debug_assert_eq!(applied.k, current);
        for (column, clock) in self.clocks.iter_mut().enumerate() {
            let before = clock.at_seconds;
            *clock = clock.and(applied.arrivals.sent[column]);
            self.phases[column].bcast += clock.at_seconds - before;
        }
        if ahead.is_some() {
            self.finish(self.changes.wait_for_oldest);
        }
    }

    /// A team multiplies while one of its threads advances the next panel and then joins in.
    fn join(
        &mut self,
        start: Moment,
        advanced: Moment,
        core_seconds: f64,
        column: usize,
    ) -> Moment {
        let threads = self.run.threads as f64;
        let advance_seconds = advanced.at_seconds - start.at_seconds;
        let left = (core_seconds - (threads - 1.0) * advance_seconds).max(0.0);
        let seconds = left / threads;
        self.phases[column].update += seconds;
        advanced.after(Part::Product, seconds)
    }

    /// `threads` threads of the owner of panel `next` bring it up to date and factor it.
    fn advance(&mut self, mut clock: Moment, next: usize, threads: usize) -> Moment {
        let team = threads as f64;
        let column = self.owner(next);
        let cols = self.width(next) as f64;
        for k in next - self.factored.len()..next {
            clock = self.wait_for(clock, column, k);
            let port_seconds = self.port_seconds(clock, column);
            let overlap = Overlap { port_seconds, product_seconds: 0.0 };
            clock = self.exchange_and_solve(clock, column, k, cols, overlap, team);
            let (below, jb) = (self.below(k), self.width(k) as f64);
            let product = self.product(below.most, cols, jb, true);
            let seconds = self.columns[column].seconds(&product) / team;
            clock = clock.after(Part::Product, seconds);
            self.phases[column].update += seconds;
            self.account_product(column, below, cols, jb, true, team);
        }
        self.factor(clock, column, next, threads)
    }

    fn factor(&mut self, clock: Moment, column: usize, k: usize, threads: usize) -> Moment {
        let (below, jb) = (self.below(k), self.width(k) as f64);
        let loss = work::team_panel_loss(threads, self.changes);
        let compute = self.columns[column].seconds(&work::panel(below.most, jb, self.run.p))
            * (1.0 / threads as f64 + loss);
        let pivots = work::pivots(jb, self.run.p, &self.pivot_weights);
        let messages = self.machine.seconds(&pivots);
        self.unhidden[Part::Panel as usize] += compute;
        self.unhidden[Part::Pivots as usize] += messages;
        self.phases[column].panel += compute + messages + std::mem::take(&mut self.waits[column]);
        let share = 1.0 / self.run.q as f64;
        self.counts.panel.add(&work::panel(below.most, jb, self.run.p), share);
        self.counts.panel.add(&pivots, share);
        clock.after(Part::Panel, compute).after(Part::Pivots, messages)
    }

    /// Exchanges the rows of panel `k` on `cols` columns, and solves for U there. `threads` threads
    /// share the work, unless there are messages in between or the columns are few.
    fn exchange_and_solve(
        &mut self,
        clock: Moment,
        column: usize,
        k: usize,
        cols: f64,
        overlap: Overlap,
        threads: f64,
    ) -> Moment {
        if cols == 0.0 {
            return clock;
        }
        let (run, machine, jb) = (self.run, &self.columns[column], self.width(k) as f64);
        let exchange =
            if self.panel(k) + 1 == run.panels() { self.exchange_last } else { self.exchange };
        let threads = if cols < TEAM_GRAIN_COLS { 1.0 } else { threads };
        let copying = if run.p == 1 { threads } else { 1.0 };
        let (copies, mean_copies) = exchange.copies(cols);
        let copy_seconds = machine.seconds(&copies) / copying;
        let messages = exchange.messages(run.swap, run.swap_threshold, cols);
        let all_seconds = machine.seconds(&messages);
        let message_seconds = (all_seconds - overlap.product_seconds).max(0.0);
        let solve = work::solve(jb, cols);
        let solve_seconds = machine.seconds(&solve) / threads;
        let keep = if run.p > 1 { work::keep(jb, run.p, cols) } else { Counts::default() };
        let keep_seconds = machine.seconds(&keep);
        let share = 1.0 / run.q as f64;
        let clock = clock.after(Part::Rows, copy_seconds);
        let queued_seconds = overlap.queued_seconds(clock, all_seconds);
        let phases = &mut self.phases[column];
        phases.swap += copy_seconds
            + queued_seconds
            + message_seconds
            + std::mem::take(&mut self.waits[column]);
        phases.update += solve_seconds + keep_seconds;
        self.counts.swap.add(&mean_copies, share);
        self.counts.swap.add(&messages, share);
        self.counts.update.add(&solve, share);
        self.counts.update.add(&keep, share);
        clock
            .after(Part::Bcast, queued_seconds)
            .after(Part::RowMessages, message_seconds)
            .after(Part::Solve, solve_seconds)
            .after(Part::Rows, keep_seconds)
    }

    /// In pieces unless `whole`, and in halves if the rows of its columns are exchanged in halves.
    fn product(&self, rows: f64, cols: f64, jb: f64, whole: bool) -> Counts {
        let halves = if whole || !self.run.is_in_halves(cols) { 1.0 } else { 2.0 };
        let mut product = Counts::default();
        product.add(&work::product(rows, cols / halves, jb, whole), halves);
        product
    }

    /// The time of the row with most is on the clock: the mean rank has less to do and waits.
    fn account_product(
        &mut self,
        column: usize,
        below: Below,
        cols: f64,
        jb: f64,
        whole: bool,
        threads: f64,
    ) {
        let machine = &self.columns[column];
        let most = machine.seconds(&self.product(below.most, cols, jb, whole));
        let mean = self.product(below.mean, cols, jb, whole);
        let waits = (most - machine.seconds(&mean)) / threads;
        self.phases[column].update -= waits;
        self.waits[column] += waits;
        self.counts.update.add(&mean, 1.0 / self.run.q as f64);
    }

    /// When `column`, whose clock is `clock`, has finished sending the panels that it has, in
    /// seconds from the start of the run: it has one port, and rows leave after panels.
    fn port_seconds(&self, clock: Moment, column: usize) -> f64 {
        let panels = self.factored.iter().map(|panel| &panel.arrivals);
        let here = panels.filter(|panel| panel.here[column].at_seconds <= clock.at_seconds);
        here.map(|panel| panel.sent[column].at_seconds).fold(0.0, f64::max)
    }

    /// When the owner of panel `next`, ready at `ready`, has sent its copies before it waits.
    fn first_sent_seconds(&self, next: usize, ready: Moment) -> f64 {
        let bytes = work::panel_bytes(self.below(next).most, self.width(next));
        let wire = self.wire(bytes);
        ready.at_seconds + wire.root_copies(self.order(next)) * bytes * wire.byte_seconds
    }

    fn wire(&self, bytes: f64) -> Wire<'_> {
        Wire {
            latency_seconds: self.machine.message_seconds,
            byte_seconds: self.machine.message_byte_seconds,
            weights: Some(&self.edge_weights),
            prompt: self.changes.prompt_forwarding,
            edges: &self.route.edges,
            pieces: self.route.pieces(bytes as usize),
        }
    }

    fn start(&mut self, next: usize, ready: Moment, windows: &[Window]) {
        let bytes = work::panel_bytes(self.below(next).most, self.width(next));
        let (wire, q) = (self.wire(bytes), self.run.q);
        let idle_seconds = wire.idle_seconds(bytes, q);
        let arrivals = bcast::arrivals(&wire, self.order(next), ready, bytes, windows);
        self.unhidden[Part::Bcast as usize] += idle_seconds;
        self.factored.push_back(Factored { k: next, arrivals });
    }

    fn finish(&mut self, oldest: bool) {
        let waited_for = if oldest { self.factored.front() } else { self.factored.back() };
        let k = waited_for.expect("a panel is factored").k;
        for column in 0..self.run.q {
            self.clocks[column] = self.wait_for(self.clocks[column], column, k);
        }
    }

    fn wait_for(&mut self, clock: Moment, column: usize, k: usize) -> Moment {
        let oldest = self.factored.front().expect("it is factored").k;
        let here = self.factored[k - oldest].arrivals.here[column];
        let later = clock.and(here);
        self.phases[column].bcast += later.at_seconds - clock.at_seconds;
        later
    }

    fn idle_windows(&self) -> Vec<Window> {
        self.clocks.iter().map(|&now| Window { start: now, end: now, rows: 0.0 }).collect()
    }

    fn panel(&self, k: usize) -> usize {
        k * self.stride
    }

    fn width(&self, k: usize) -> usize {
        self.run.nb.min(self.run.n - self.panel(k) * self.run.nb)
    }

    fn owner(&self, k: usize) -> usize {
        self.owners.block_owner(k)
    }

    /// The order in which the broadcast of the panel of step `k` counts the process columns.
    fn order(&self, k: usize) -> RowOrder {
        RowOrder::new(self.owner(k), self.owners.next_owner(k), self.run.q)
    }

    fn below(&self, k: usize) -> Below {
        let RunParams { n, nb, p, .. } = *self.run;
        let first = ((self.panel(k) + 1) * nb).min(n);
        Below {
            most: max_held_from(Cyclic::rows(nb, p), first, n),
            mean: (n - first) as f64 / p as f64,
        }
    }

    /// Local ones of process column `column`, right of the look-ahead in step `k`, including b.
    fn columns_right_of(&self, column: usize, k: usize) -> f64 {
        let RunParams { n, nb, depth, .. } = *self.run;
        let (map, first) = (&self.cols, ((self.panel(k) + 1 + depth) * nb).min(n));
        (map.count_before(n + 1, column) - map.count_before(first, column)) as f64
    }

    pub(super) fn prediction(mut self) -> Prediction {
        let run = self.run;
        let end = self.clocks.iter().copied().reduce(Moment::and).expect("a process column");
        let (mut mean, mut max) = (Phases::default(), Phases::default());
        let share = 1.0 / run.q as f64;
        for phases in &self.phases {
            mean.panel += share * phases.panel;
            mean.swap += share * phases.swap;
            mean.bcast += share * phases.bcast;
            mean.update += share * phases.update;
            mean.back += share * phases.back;
            max.panel = max.panel.max(phases.panel);
            max.swap = max.swap.max(phases.swap);
            max.bcast = max.bcast.max(phases.bcast);
            max.update = max.update.max(phases.update);
            max.back = max.back.max(phases.back);
        }
        let (machine, threads) = (self.machine, run.threads as f64);
        let of = |counts: &Counts, units: &[Unit]| -> f64 {
            units.iter().map(|&unit| counts.get(unit) * machine.seconds_per(unit)).sum()
        };
        let counts = &self.counts;
        let product = [Unit::ProductFlop, Unit::ProductEntry, Unit::PackedEntry];
        self.unhidden[Part::Product as usize] = of(&counts.update, &product) / threads;
        self.unhidden[Part::Solve as usize] = of(&counts.update, &[Unit::SolveFlop]) / threads;
        let copied = [Unit::CopiedByte];
        let copying = if run.p == 1 { threads } else { 1.0 };
        self.unhidden[Part::Rows as usize] =
            of(&counts.swap, &copied) / copying + of(&counts.update, &copied);
        self.unhidden[Part::RowMessages as usize] =
            of(&counts.swap, &[Unit::Message, Unit::MessageByte]);
        self.unhidden[Part::Back as usize] = mean.back;
        let stride = self.stride as f64;
        let mut all = PhaseCounts::default();
        all.panel.add(&counts.panel, stride);
        all.swap.add(&counts.swap, stride);
        all.update.add(&counts.update, stride);
        all.back.add(&counts.back, stride);
        let gflops = run.flops() / end.at_seconds * 1e-9;
        let cores = run.p as f64 * run.q as f64 * run.threads as f64;
        Prediction {
            time_seconds: end.at_seconds,
            gflops,
            efficiency: gflops * 1e9 * (machine.product_flop_seconds / stride) / cores,
            mean,
            max,
            path: end.by,
            unhidden: self.unhidden,
            counts: all,
        }
    }
}

/// The largest number of the indices `first..n` that any process holds.
pub(super) fn max_held_from(map: Cyclic, first: usize, n: usize) -> f64 {
    let held = |me: usize| map.count_before(n, me) - map.count_before(first, me);
    (0..map.procs).map(held).max().expect("a process") as f64
}

#[cfg(test)]
mod tests {
    use super::super::UNITS;
    use super::*;
    use skt_host::choice::Bcast;

    /// A machine on which sending takes a second per byte, and everything else is free.
    fn wires() -> Machine {
        Machine { message_byte_seconds: 1.0, ..Machine::from_seconds([0.0; UNITS]) }
    }

    fn two_panels(p: usize, q: usize) -> RunParams {
        RunParams { bcast: Bcast::OneRing, halves: false, ..RunParams::new(128, 64, (p, q)) }
    }

    #[test]
    fn rows_leave_behind_the_panel_that_the_rank_sends() {
        let (wires, none) = (wires(), Changes::default());
        let run = two_panels(2, 2);
        let mut walk = Walk::new(&run, &wires, &[], &none, 1);
        let messages = |exchange: RowExchange| {
            wires.seconds(&exchange.messages(run.swap, run.swap_threshold, 1.0))
        };
        // Column 0 has only b right of the look-ahead. The rows of b for panel 0 wait until that
        // panel has left for column 1; the rows for panel 1, which comes from column 1, do not
        // wait.
        let rows = messages(walk.exchange) + messages(walk.exchange_last);
        let panel = work::panel_bytes(walk.below(0).most, 64);
        assert!(rows > 0.0 && panel > 0.0);
        walk.walk_panels();
        assert!((walk.phases[0].swap / (panel + rows) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn on_one_process_row_no_rows_wait() {
        let (wires, none) = (wires(), Changes::default());
        let run = two_panels(1, 2);
        let mut walk = Walk::new(&run, &wires, &[], &none, 1);
        walk.walk_panels();
        assert_eq!(walk.phases[0].swap, 0.0);
    }

    #[test]
    fn a_panel_that_is_not_here_holds_no_rows_up() {
        let (wires, none) = (wires(), Changes::default());
        let run = two_panels(2, 3);
        let mut walk = Walk::new(&run, &wires, &[], &none, 1);
        let at = |seconds| Moment::default().after(Part::Panel, seconds);
        let panel = work::panel_bytes(walk.below(0).most, 64);
        walk.start(0, at(1000.0), &walk.idle_windows());
        // Column 1 has the panel when column 0 has sent it, and forwards it to column 2.
        let here = 1000.0 + panel;
        assert_eq!(walk.port_seconds(at(here - 1.0), 1), 0.0);
        assert_eq!(walk.port_seconds(at(here), 1), here + panel);
        assert_eq!(walk.port_seconds(at(here), 0), here);
        assert_eq!(walk.first_sent_seconds(0, at(1000.0)), here);
    }

    #[test]
    fn half_of_a_product_that_is_left_over_hides_the_wait() {
        let queued = |port_seconds, product_seconds, message_seconds| {
            let overlap = Overlap { port_seconds, product_seconds };
            overlap.queued_seconds(Moment::default(), message_seconds)
        };
        assert_eq!(queued(10.0, 0.0, 6.0), 10.0);
        assert_eq!(queued(10.0, 6.0, 6.0), 10.0);
        assert_eq!(queued(10.0, 8.0, 6.0), 9.0);
        assert_eq!(queued(10.0, 40.0, 6.0), 0.0);
        assert_eq!(queued(10.0, 0.0, 0.0), 0.0, "no message, no port");
    }
}
