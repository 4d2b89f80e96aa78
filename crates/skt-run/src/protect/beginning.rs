//! When a test began, and its restarts: what is known of the test besides its checkpoints.
//!
//! A checkpoint has this, too, as of the time when it was taken. But a start may be lost before it
//! has taken its first checkpoint or, after it has resumed from one, before it has taken the next.
//! So each start, when its clock begins or resumes, writes what it has found into the ledger of the
//! run, on all nodes: no time is dropped, and the clocks of the current nodes measure the time at
//! the next start.

use std::cell::RefCell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::clock::Origin;
use super::ledger::Ledger;
use crate::record::Restart;
use skt_config::TestSpec;
use skt_store::codec::checksum;
use skt_store::store::StoreError;

/// What a start has noted; the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The checksum of the test's parameters: an earlier run of that name may have had another one.
    test: u64,
    pub origin: Origin,
    pub restarts: Vec<Restart>,
}

impl Begun {
    pub(crate) fn new(test: &TestSpec, origin: Origin, restarts: Vec<Restart>) -> Self {
        Self { test: test_checksum(test), origin, restarts }
    }

    /// Seconds of the run when the last start that noted something was running: a lower bound.
    pub(crate) fn seconds_min(&self) -> f64 {
        seconds(&self.restarts)
    }
}

/// Seconds of the run when the last of these restarts was complete.
fn seconds(restarts: &[Restart]) -> f64 {
    restarts.last().map_or(0.0, |restart| restart.start_seconds + restart.recover_seconds)
}

fn test_checksum(test: &TestSpec) -> u64 {
    checksum(&serde_json::to_vec(test).expect("plain data"))
}

/// The note in the ledger about the beginning of a test.
pub struct Beginning<'a> {
    ledger: Rc<RefCell<Ledger<'a>>>,
    number: usize,
}

impl<'a> Beginning<'a> {
    /// The note about test number `number` of the run with this ledger.
    pub(crate) fn new(ledger: Rc<RefCell<Ledger<'a>>>, number: usize) -> Self {
        Self { ledger, number }
    }

    /// What the latest start has noted about `test`. `None` if a checkpoint, whose `restarts` are
    /// these, knows of a later start.
    pub(super) fn read(&self, test: &TestSpec, restarts: &[Restart]) -> Option<Begun> {
        let ledger = self.ledger.borrow();
        let begun: Begun = serde_json::from_str(ledger.begun(self.number)?).ok()?;
        let is_latest = begun.seconds_min() >= seconds(restarts);
        (begun.test == test_checksum(test) && is_latest).then_some(begun)
    }

    /// Writes rank 0's note on each node. If the store refuses, the earlier note stays.
    pub(super) fn note(&self, begun: &Begun) -> Result<(), StoreError> {
        let note = serde_json::to_string(begun).expect("plain data");
        self.ledger.borrow_mut().note_begun(self.number, note)
    }
}
