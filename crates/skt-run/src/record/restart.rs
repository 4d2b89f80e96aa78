//! A restart of a test.

use serde::{Deserialize, Serialize};

/// The checksums that have replaced a lost process column. The rest of the run had no checksums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// The process column; Q if it is the checksum column, so that nothing replaced it.
    pub process_column: usize,
    /// Bytes of the column's finished part of U that were decoded before the back substitution, on
    /// the rank with most.
    pub decoded_bytes: u64,
    /// Seconds to decode them, on the rank where it took longest.
    pub decode_seconds: f64,
}

/// One restart of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// The checkpoint that the restart continued from. It is 0 if there was none, and where the
    /// elimination carries checksums, unless the restart continued from images.
    pub epoch: u64,
    /// The column that the restart continued from.
    pub column: usize,
    /// The ranks whose data was rebuilt from the data of others.
    pub rebuilt_ranks: Vec<usize>,
    /// Number of damaged blocks of other ranks that were rebuilt.
    pub damaged_blocks: usize,
    /// Seconds from the first start to this one.
    pub start_seconds: f64,
    /// Seconds from that checkpoint, or from the beginning, to the restart: lost work and downtime.
    pub lost_seconds: f64,
    /// The part of `lost_seconds` after the last sign of life of the start before this one.
    pub down_seconds: f64,
    /// Seconds to find, rebuild and copy the data.
    pub recover_seconds: f64,
    /// Whether only the wall clock measured the time from that checkpoint to the restart, because
    /// no node had stayed up.
    pub is_by_wall_clock: bool,
    /// Seconds by which the wall clock was set in that time, as far as they are known; 0 if it was
    /// not set.
    pub wall_clock_step_seconds: f64,
    /// If the job survived the loss: seconds from when it was noticed until the ranks continued, on
    /// the rank where it took longest.
    pub repair_seconds: Option<f64>,
    /// Number of ranks that undid what they had computed beyond that column.
    pub undone_ranks: usize,
    /// The checksums that replaced a process column, if they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The level whose images the restart continued from, where memory did not suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl Restart {
    /// The ranks that were rebuilt: their numbers, or how many, if there are many.
    pub fn format_rebuilt(&self) -> String {
        match &self.rebuilt_ranks[..] {
            [] => "no rank had to be rebuilt".to_owned(),
            ranks if ranks.len() <= 8 => format!("ranks rebuilt: {ranks:?}"),
            ranks => format!("{} ranks rebuilt", ranks.len()),
        }
    }

    /// The line that a start prints when it has resumed the run.
    pub(crate) fn format_resumption(&self) -> String {
        let (rebuilt, damaged) = (self.format_rebuilt(), self.format_damage());
        let from = match self.epoch {
            0 => String::new(),
            epoch => format!("from checkpoint {epoch} "),
        };
        let (column, seconds) = (self.column, self.recover_seconds);
        format!(
            "resuming {from}at column {column}; {rebuilt}{damaged}; recovery took {seconds:.2} s"
        )
    }

    /// A note on damaged memory, to follow the ranks that were rebuilt; empty if there is none.
    pub fn format_damage(&self) -> String {
        match self.damaged_blocks {
            0 => String::new(),
            blocks => format!("; damaged blocks of memory rebuilt: {blocks}"),
        }
    }
}
