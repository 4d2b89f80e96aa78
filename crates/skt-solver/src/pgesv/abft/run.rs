//! The factorization on one rank: the loop over the panels.

use std::time::Instant;

use skt_host::phases::{ChecksumCosts, Phases};

use super::super::background::Token;
use super::super::events::SolverEvents;
use super::super::exchange::RowExchange;
use super::super::final_part::Reached;
use super::super::guard::Nothing;
use super::super::local::Local;
use super::super::look_ahead::LookAhead;
use super::super::pace::Pace;
use super::super::panel::Panel;
use super::super::pivoted::Pivoted;
use super::super::product::{Product, ProductClock, advances_first, multiply_narrow, narrow_parts};
use super::super::short_calls::short_ones_keep_bits;
use super::super::slots::PanelBuffers;
use super::super::{Rates, SolveError, memory_error};
use super::beginning::Flip;
use super::check::{self, Checks, Doubt, Scope};
use super::memory::{Decoded, Journal, MemoryState, Places, Recorded};
use super::noticed::Noticed;
use super::relay::Relay;
use super::restore::Step;
use super::weights::Weights;
use super::{groups, renewal};
use skt_comm::ibarrier::IBarrier;
use skt_comm::{PageBuf, collect};

pub(super) struct Elimination<'r> {
    local: &'r Local<'r>,
    places: &'r Places<'r>,
    journal: &'r Journal<'r>,
    pace: &'r Pace,
    look_ahead: LookAhead,
    /// The exchange on the columns of the next panel, and on the rest.
    exchanges: [RowExchange; 2],
    barrier: IBarrier,
    relay: Relay<'r, 'r>,
    weights: &'r Weights,
    checks: Checks,
    /// The local rows that row exchanges have written to since a check agreed.
    moved: Vec<bool>,
    /// What is wrong in its checksums of the last finished group; other ranks do not know it yet.
    noticed: Option<Noticed>,
    rates: Rates,
    pub phases: Phases,
    pub costs: ChecksumCosts,
}

impl<'r> Elimination<'r> {
    pub(crate) fn new(
        local: &'r Local<'r>,
        places: &'r Places<'r>,
        (journal, pace): (&'r Journal<'r>, &'r Pace),
        relay: Relay<'r, 'r>,
        (weights, checks): (&'r Weights, Checks),
        from: usize,
    ) -> Result<Self, SolveError> {
        let (grid, params) = (local.grid, local.params);
        // SAFETY: this run has the memory for as long as the buffers exist. A panel and its U are
        // read only between being received or solved for and being overwritten, see `Step`.
        let (panels, [u_next, u_rest]) =
            unsafe { (places.panel_buffers(from), places.u_buffers()) };
        let w = if grid.is_checksum() {
            PageBuf::new(0).map_err(memory_error("the panel"))?
        } else {
            // SAFETY: this run has the memory for as long as the buffer exists, and ranks with data
            // store no sums there.
            unsafe { places.w_buffer() }
        };
        let buffers = PanelBuffers::Messages(panels.into());
        let nb = params.widest_panel();
        short_ones_keep_bits::<f64>(None);
        let next = RowExchange::with_u(grid.p, nb, nb, || Ok(u_next))?;
        let rest = RowExchange::with_u(grid.p, nb, local.shape.cols, || Ok(u_rest))?;
        // Rows are exchanged on all columns at once, so the look-ahead exchanges none.
        let look_ahead = LookAhead::with_buffers(
            &params,
            buffers,
            Pivoted::new(&params, w, None),
            RowExchange::InPlace,
        );
        Ok(Self {
            local,
            places,
            journal,
            pace,
            look_ahead,
            exchanges: [next, rest],
            barrier: IBarrier::new()?,
            relay,
            weights,
            checks,
            // A start that resumes does not know what earlier ones have exchanged.
            moved: vec![from > 0; local.shape.rows],
            noticed: None,
            rates: Rates::new(params.n, params.nb),
            phases: Phases::default(),
            costs: ChecksumCosts::default(),
        })
    }

    /// Calls [`Self::factor`], and completes the messages of sums. Wrong numbers that a rank has
    /// noticed take precedence over a column without a pivot, which they may have caused.
    pub(crate) fn factor_and_report(
        &mut self,
        from: usize,
        events: &mut dyn SolverEvents,
    ) -> Result<(), SolveError> {
        let factored = self.factor(from, events);
        match &factored {
            // All ranks get this error at the same panel, so messages of sums can be completed.
            Err(SolveError::Pivot { column, .. }) => {
                self.relay.wait_all()?;
                self.report_noticed(column / self.local.params.nb)?;
            }
            Err(SolveError::TimeUp(_) | SolveError::Wrong(_)) => self.relay.wait_all()?,
            Ok(()) | Err(_) => {}
        }
        factored
    }

    fn factor(&mut self, from: usize, events: &mut dyn SolverEvents) -> Result<(), SolveError> {
        let local = self.local;
        let panels = local.params.panels();
        let mut nothing = Nothing;
        let background = &mut local.background_work(&mut nothing, panels);
        self.arrive(from, false, events)?;
        self.look_ahead.begin(local, from, background, &mut self.phases)?;
        for k in from..panels {
            let panel = self.look_ahead.take(local, k, background, &mut self.phases)?;
            // SAFETY: the next panel uses the other buffer, and the one after it uses this buffer
            // when this panel has been given back.
            let step = unsafe { Step::new(local, self.places, k) };
            self.exchange(&panel, &step)?;
            let next = (local.params.depth > 0 && k + 1 < panels).then_some(k + 1);
            let wants_image = events.wants_image();
            self.multiply(&panel, &step, next, wants_image)?;
            if next.is_some() {
                let applied = Reached::Applied { k };
                self.look_ahead.wait_for_newest(local, background, applied, &mut self.phases)?;
            }
            // Until all ranks have exchanged their rows, some rank may have to go back. T also
            // reports whether any rank wants an image or has noticed wrong numbers.
            let keeps_image = self.barrier.wait(&local.grid.all)?;
            self.journal.before("u1", k)?;
            local.store_diagonal(k, step.panel.l1);
            self.journal.set(MemoryState::Rest(k + 1))?;
            self.look_ahead.give_back(panel)?;
            self.arrive(k + 1, keeps_image, events)?;
            events.columns(local.params.columns_before(k + 1), &self.rates, &self.phases)?;
        }
        self.relay.wait_all()?;
        self.costs.sum_seconds = self.relay.taken().as_secs_f64();
        // The sums of the last group have passed since the last check.
        if groups::is_group_end(panels, local.grid.q) {
            self.report_noticed(panels)
        } else {
            Ok(())
        }
    }

    /// Ends the run with [`SolveError::Wrong`] on all ranks if one of them has noticed wrong
    /// numbers in the last finished group. Collective, at the cut before panel `cut`.
    fn report_noticed(&mut self, cut: usize) -> Result<(), SolveError> {
        let Self { local, places, journal, weights, ref mut relay, noticed, .. } = *self;
        let (is_any, decoded) = (noticed.is_some() || relay.noticed().is_some(), journal.decoded());
        let mut any = [is_any, decoded.is_unchecked, decoded.has_been].map(u8::from);
        collect::all_reduce(&local.grid.all, &mut any, u8::max)?;
        let [is_any, is_unchecked, was_decoded] = any.map(|any| any != 0);
        if !is_any {
            return Ok(());
        }
        // The sums that are still in progress may show more.
        relay.wait_all()?;
        let noticed = noticed.into_iter().chain(relay.noticed()).reduce(Noticed::and);
        let column = local.params.columns_before(cut);
        let doubt = Doubt { is_unchecked, was_decoded };
        Err(check::refuse_noticed(local, places, weights, noticed, doubt, column)?)
    }

    /// Does all work at the cut before panel `cut` that is not part of the elimination.
    /// `keeps_image` is whether some rank wants an image of the cut or has noticed wrong numbers;
    /// wrong numbers end the run here, without an image.
    fn arrive(
        &mut self,
        cut: usize,
        keeps_image: bool,
        events: &mut dyn SolverEvents,
    ) -> Result<(), SolveError> {
        if keeps_image {
            // Wrong numbers are traced by comparing the new sums outside A with the old ones, which
            // `store` overwrites.
            self.report_noticed(cut)?;
        }
        renewal::store(self.local, self.places, self.journal, cut)?;
        let ended = self.check_group(cut)?;
        if let Some(flip) = events.flip(cut) {
            self.flip(cut, flip);
        }
        self.check(cut, keeps_image, events)?;
        if let Some(unit) = ended {
            // This follows the check, as new sums of numbers that it corrects would not agree with
            // the old ones, and precedes the image, which must not have the word of older sums.
            let Self { local, journal, relay, weights, .. } = self;
            renewal::begin(local, journal, relay, weights, cut, unit)?;
        }
        if keeps_image {
            events.keep_image(cut, &self.phases)?;
        }
        Ok(())
    }

    /// Compares the checksums with the matrix before panel `cut`, if a check is due or an image is
    /// to be kept: no image may have a matrix that the checksums contradict.
    fn check(
        &mut self,
        cut: usize,
        keeps_image: bool,
        events: &mut dyn SolverEvents,
    ) -> Result<(), SolveError> {
        let is_due = self.checks.is_due(self.local, self.places, cut)?;
        if !is_due && (!keeps_image || self.checks.are_off()) {
            return Ok(());
        }
        if groups::is_group_end(cut, self.local.grid.q) {
            self.report_noticed(cut)?;
        }
        let Self { local, places, journal, weights, relay, checks, moved, costs, .. } = self;
        let start = Instant::now();
        let (decoded, nobody) = (journal.decoded(), vec![false; local.grid.row.size()]);
        let number = local.grid.all.rank();
        let scope = Scope { decoded, number, moved: Some(moved), ..Scope::whole(cut, &nobody) };
        let (found, _) = check::check(local, places, weights, relay, &scope)?;
        moved.fill(false);
        journal.set_decoded(Decoded { is_unchecked: false, ..decoded })?;
        let took = start.elapsed();
        costs.check_seconds += took.as_secs_f64();
        checks.done(cut, took);
        events.checked(found);
        Ok(())
    }

    fn flip(&self, cut: usize, Flip { place, bit }: Flip) {
        let Local { grid, ref cols, shape, params, .. } = *self.local;
        let finished = params.columns_before(cut);
        let first = if grid.is_checksum() {
            (finished / (params.nb * grid.q) * params.nb).min(shape.cols)
        } else {
            cols.count_before(finished, grid.mycol)
        };
        if shape.rows == 0 || first == shape.cols {
            return;
        }
        let (row, col) = (place.0 % shape.rows, first + place.1 % (shape.cols - first));
        // SAFETY: no other thread uses A between two steps.
        let mut element = unsafe { self.places.a.block(row..row + 1, col..col + 1) };
        let value = &mut element.row_mut(0)[0];
        *value = f64::from_bits(value.to_bits() ^ 1 << bit);
    }

    /// If a group of columns ends before panel `end`, checks what is left over in its checksums.
    /// Returns the unit of these checksums: new sums may differ from them by rounding of this unit.
    fn check_group(&mut self, end: usize) -> Result<Option<f64>, SolveError> {
        let Self { local, places, journal, checks, noticed, costs, .. } = self;
        if !groups::is_group_end(end, local.grid.q) {
            return Ok(None);
        }
        if checks.are_off() {
            return Ok(Some(f64::INFINITY));
        }
        let start = Instant::now();
        let (unit, found) = check::check_left_over(local, places, end)?;
        *noticed = found;
        if noticed.is_some() {
            // All ranks learn of it at the next cut.
            journal.set_wrong(true)?;
        }
        costs.check_seconds += start.elapsed().as_secs_f64();
        Ok(Some(unit))
    }

    fn exchange(&mut self, panel: &Panel, step: &Step) -> Result<(), SolveError> {
        let Self { local, places, journal, moved, phases, costs, .. } = self;
        let k = panel.k;
        journal.before("log", k)?;
        let start = Instant::now();
        for row in step.log_rows(local, places) {
            moved[row] = true;
        }
        costs.log_seconds += start.elapsed().as_secs_f64();
        journal.set(MemoryState::Logged(k))?;
        let columns = [&step.columns.next, &step.columns.rest];
        for (exchange, cols) in self.exchanges.iter_mut().zip(columns) {
            if !cols.is_empty() {
                journal.before("exchange", k)?;
                // SAFETY: no other thread uses A, and U of the last step is no longer needed.
                unsafe { exchange.solve(local, panel, cols.clone(), phases) }?;
            }
        }
        Ok(())
    }

    /// Writes that the rows have been exchanged, and computes the product. Panel `next`, if there
    /// is one, is factored once its columns have their product, before or during the rest. During
    /// the product sums pass; then all ranks learn whether any rank wants an image of the next cut
    /// (`wants_image`) or has noticed wrong numbers.
    fn multiply(
        &mut self,
        panel: &Panel,
        step: &Step,
        next: Option<usize>,
        wants_image: bool,
    ) -> Result<(), SolveError> {
        let Self {
            local,
            places,
            journal,
            pace,
            look_ahead,
            barrier,
            relay,
            noticed,
            rates,
            phases,
            ..
        } = self;
        let (grid, columns) = (local.grid, &step.columns);
        let rows = local.shape.rows - step.panel.below;
        let [of_next, of_rest] = [true, false].map(|is_next| Recorded { journal, pace, is_next });
        // SAFETY: no rows are exchanged before this step is over.
        let [u_next, u_rest] =
            [true, false].map(|is_next| unsafe { step.u(local, places, is_next) });
        let threads = local.team.threads();
        let goes_first = advances_first(threads, step.layout.jb, columns.rest.len());
        let overlapped = next.filter(|_| !goes_first);
        // SAFETY: the columns of the next panel are not among these.
        let product = unsafe {
            Product::new(
                local,
                panel,
                u_rest.into(),
                columns.rest.clone(),
                overlapped,
                true,
                &of_rest,
            )
        };
        let narrow_rows = if columns.next.is_empty() { 0 } else { rows };
        journal.list_parts(narrow_parts(narrow_rows, threads), product.parts())?;
        journal.set(MemoryState::Exchanged(panel.k))?;
        let mut asks = Some(wants_image || noticed.is_some());
        let mut enter_once = |relay: &Relay, barrier: &mut IBarrier| {
            if let Some(asks) = asks.take_if(|_| relay.is_idle()) {
                renewal::have_passed(local, journal, panel.k)?;
                barrier.enter(&grid.all, asks || relay.noticed().is_some())?;
            }
            Ok::<_, SolveError>(())
        };
        enter_once(relay, barrier)?;
        let clock = ProductClock::start(local.grid.all.now(), phases);
        let before = relay.taken();
        let advance = |look_ahead: &mut LookAhead, phases: &mut Phases| {
            let Some(next) = next else { return Ok(()) };
            if !columns.next.is_empty() {
                let u = u_next.into();
                // SAFETY: no other thread uses the columns of the next panel.
                unsafe { multiply_narrow(local, &columns.next, &step.panel, u, &of_next) }?;
            }
            look_ahead.factor_and_broadcast(local, next, &mut Token::alone(), phases)
        };
        if goes_first {
            advance(look_ahead, phases)?;
        }
        let computed = product.compute_overlapped_with(local.team, || {
            if !goes_first {
                advance(look_ahead, phases)?;
            }
            let progress = |_: &Token| {
                let must_forward = look_ahead.progress(local, panel)?;
                relay.progress()?;
                enter_once(relay, barrier)?;
                barrier.progress(&grid.all)?;
                Ok(must_forward)
            };
            // There is no background work that would wait for finished rows.
            product.compute_between_messages(&mut Token::alone(), progress, |_, _| {})
        });
        clock.stop(local.grid.all.now(), phases);
        phases.update -= (relay.taken() - before).as_secs_f64();
        computed?;
        rates.add(panel.k, product.work());
        relay.complete()?;
        enter_once(relay, barrier)
    }
}
