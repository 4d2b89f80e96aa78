//! When a test began, and its restarts: what is known of it beside its checkpoints.
//!
//! A checkpoint knows this, too, as it was when it was taken. Before the first one there is none,
//! and a start that goes on from one may be lost before the next. So each start notes in the ledger
//! of the run, on all nodes, what it has found, when its clock begins or goes on: no time is
//! dropped, and the clocks of the nodes that are up now tell the time at the next start.

use std::cell::RefCell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::clock::Origin;
use super::ledger::Ledger;
use crate::checkpoint::codec::checksum;
use crate::checkpoint::store::StoreError;
use crate::config::TestSpec;
use crate::report::record::Restart;

/// What a start has noted. The same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// Of the values of the test: a run of that name may have had another one.
    test: u64,
    pub origin: Origin,
    pub restarts: Vec<Restart>,
}

impl Begun {
    pub fn new(test: &TestSpec, origin: Origin, restarts: Vec<Restart>) -> Self {
        Self { test: fingerprint(test), origin, restarts }
    }

    /// Seconds of the run when the last start that has noted something was under way.
    pub fn least_seconds(&self) -> f64 {
        seconds(&self.restarts)
    }
}

/// Seconds of the run when the last of these restarts was over.
fn seconds(restarts: &[Restart]) -> f64 {
    restarts.last().map_or(0.0, |restart| restart.start_seconds + restart.recover_seconds)
}

fn fingerprint(test: &TestSpec) -> u64 {
    checksum(&serde_json::to_vec(test).expect("plain data"))
}

/// Where the beginning of a test is noted.
pub struct Beginning<'a> {
    ledger: Rc<RefCell<Ledger<'a>>>,
    number: usize,
}

impl<'a> Beginning<'a> {
    /// That of test number `number` of the run that has this ledger.
    pub fn new(ledger: Rc<RefCell<Ledger<'a>>>, number: usize) -> Self {
        Self { ledger, number }
    }

    /// What the last start has noted of `test` that came so far; nothing where a checkpoint knows
    /// of a later one, whose `restarts` are these.
    pub(super) fn read(&self, test: &TestSpec, restarts: &[Restart]) -> Option<Begun> {
        let ledger = self.ledger.borrow();
        let begun: Begun = serde_json::from_slice(ledger.begun(self.number)?).ok()?;
        let is_latest = begun.least_seconds() >= seconds(restarts);
        (begun.test == fingerprint(test) && is_latest).then_some(begun)
    }

    /// Notes what rank 0 has said, on each node.
    ///
    /// # Errors
    /// When the store refuses; what was noted before stays.
    pub(super) fn note(&self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.ledger.borrow_mut().note_begun(self.number, bytes)
    }
}
