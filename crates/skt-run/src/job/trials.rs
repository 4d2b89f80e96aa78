//! A job whose tests are chosen while it runs: the trials of `tune`.
//!
//! Rank 0 chooses, the others follow. Each test runs as in [`super::run`], from the matrix to the
//! residual, and under the same protection; nothing is reported, and nothing is kept for a later
//! start.

use std::time::Instant;

use super::series::{Ranks, Tests, Turn};
use super::setup::{Setup, check_memory};
use super::{JobOptions, outlook};
use crate::error::JobError;
use crate::events::Silent;
use crate::protect::{self, Outlook, Settings};
use crate::record::TestRecord;
use skt_checkpoint::checkpoint::decide::Resume;
use skt_comm::{Comm, collect};
use skt_config::{RunSpec, TestSpec};
use skt_health::environment::preflight::DoesNotFit;
use skt_store::store::Store;

/// The ranks of a job of trials.
pub struct Trials<'a> {
    world: &'a Comm,
    spec: &'a RunSpec,
    settings: &'a Settings,
    setup: Setup<'a>,
    ranks: Option<Ranks>,
}

impl<'a> Trials<'a> {
    /// Sets up a job for tests such as those of `spec`. If it is protected, their segments are in
    /// `store`. Collective.
    pub(crate) fn open(
        world: &'a Comm,
        spec: &'a RunSpec,
        settings: &'a Settings,
        options: &JobOptions,
        store: &'a (dyn Store + Send + Sync),
    ) -> Result<Self, JobError> {
        let setup = Setup::new(world, spec, settings, options, store)?;
        if settings.is_on() {
            // Removes what trials of the same name have left when they were killed.
            protect::sweep(store, &settings.run_id, 0)?;
            world.barrier()?;
        }
        Ok(Self { world, spec, settings, setup, ranks: None })
    }

    /// Checks all tests of `spec` against the memory of the hosts.
    pub(crate) fn check_memory(&self, spec: &RunSpec) -> Result<(), DoesNotFit> {
        check_memory(spec, self.settings, self.setup.places()).map_or(Ok(()), Err)
    }

    /// The predicted rate of a test before any has run, in operations a second.
    pub(crate) fn guessed_rate(&self, test: &TestSpec) -> f64 {
        self.setup.rated.rates.guess(test).flops
    }

    /// On rank 0: runs a test on all ranks. What is wrong with the test itself is in its record.
    pub(crate) fn lead(&mut self, test: &TestSpec) -> Result<TestRecord, JobError> {
        self.send(Some(test))?;
        Ok(self.run(test)?.expect("rank 0 has a place in each grid"))
    }

    /// On all other ranks: runs the tests that rank 0 chooses, until it ends the job.
    pub(crate) fn follow(mut self) -> Result<(), JobError> {
        loop {
            collect::await_broadcast(self.world, 0)?;
            let mut bytes = Vec::new();
            collect::broadcast_bytes(self.world, &mut bytes, 0)?;
            let test = serde_json::from_slice(&bytes);
            let test: Option<TestSpec> = test.map_err(|error| JobError::unread(&error))?;
            let Some(test) = test else { return self.clear() };
            match self.run(&test) {
                // All ranks of the grid have refused it alike: rank 0 ends the job on all ranks.
                Err(why) if !why.is_local() => {}
                ran => drop(ran?),
            }
        }
    }

    /// On rank 0: ends the job on all ranks.
    pub(crate) fn end(self) -> Result<(), JobError> {
        self.send(None)?;
        self.clear()
    }

    fn send(&self, test: Option<&TestSpec>) -> Result<(), JobError> {
        let mut bytes = serde_json::to_vec(&test).expect("plain data");
        Ok(collect::broadcast_bytes(self.world, &mut bytes, 0)?)
    }

    /// Runs a test. Returns its record on rank 0. Collective.
    fn run(&mut self, test: &TestSpec) -> Result<Option<TestRecord>, JobError> {
        let (alone, rates) = (std::slice::from_ref(test), self.setup.rated.rates);
        self.setup.held.outlooks = outlook::outlooks(self.world, alone, self.settings, rates)?;
        let mut unreported = Silent;
        let mut tests = Tests::new(self.spec, self.settings, &self.setup, &mut unreported);
        let is_protected = tests.is_protected(0, Resume::Never);
        let size = if is_protected { test.ranks() } else { test.p * test.q };
        if self.ranks.as_ref().is_none_or(|ranks| ranks.size != size) {
            self.ranks = Some(Ranks::new(self.world, size)?);
        }
        let Some(ranks) = self.ranks.as_mut().filter(|ranks| ranks.comm.is_some()) else {
            return Ok(None);
        };
        let turn = Turn { index: 0, tests: 1, resume: Resume::Never, nothing_hidden: true };
        let reported = tests.run_one(ranks, test, turn, &mut Instant::now())?;
        if let Some(done) = reported.done {
            done.clear()?;
        }
        let is_known = self.world.rank() == 0;
        let read = || protect::result::read(&reported.result);
        Ok(is_known.then(|| TestRecord { cores: reported.cores.clone(), ..read() }))
    }

    /// Whether the last test that ran had checkpoints or checksums.
    pub(crate) fn is_protected(&self) -> bool {
        matches!(self.setup.held.outlooks.first(), Some(Some(Outlook::Due | Outlook::NoneDue)))
    }

    /// Removes what the trials have left. Collective.
    fn clear(self) -> Result<(), JobError> {
        if self.settings.is_on() {
            self.world.barrier()?;
            protect::sweep(self.setup.store, &self.settings.run_id, 0)?;
        }
        Ok(())
    }
}
