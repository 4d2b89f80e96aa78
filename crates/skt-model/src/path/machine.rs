use serde::{Deserialize, Serialize};
use skt_host::shown::shown_message;

use crate::ModelError;
use crate::error::non_negative;

pub const UNITS: usize = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Operations of the trailing product.
    ProductFlop,
    /// Entries of the trailing matrix that a product reads and writes.
    ProductEntry,
    /// Entries of L2 and U that a product packs.
    PackedEntry,
    /// Operations of the triangular solve for U.
    SolveFlop,
    /// Columns of a panel.
    PanelColumn,
    /// Entries of a panel: copies, passes over single columns.
    PanelEntry,
    /// Operations of a panel.
    PanelFlop,
    /// Bytes read and written by copies of rows.
    CopiedByte,
    /// Bytes of the matrix that the back substitution reads.
    StreamedByte,
    /// Messages, one after the other.
    Message,
    /// Bytes of messages, one after the other.
    MessageByte,
}

impl Unit {
    pub const ALL: [Unit; UNITS] = [
        Unit::ProductFlop,
        Unit::ProductEntry,
        Unit::PackedEntry,
        Unit::SolveFlop,
        Unit::PanelColumn,
        Unit::PanelEntry,
        Unit::PanelFlop,
        Unit::CopiedByte,
        Unit::StreamedByte,
        Unit::Message,
        Unit::MessageByte,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts([f64; UNITS]);

impl Counts {
    /// The listed numbers; all others are 0.
    pub fn from_list(list: &[(Unit, f64)]) -> Self {
        let mut counts = Self::default();
        for &(unit, count) in list {
            counts.0[unit as usize] += count;
        }
        counts
    }

    pub fn get(&self, unit: Unit) -> f64 {
        self.0[unit as usize]
    }

    pub fn add(&mut self, other: &Counts, factor: f64) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += factor * theirs;
        }
    }
}

/// Seconds per unit; 0 means an infinite rate. The rates of compute and copies are those of one
/// core while all cores work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Seconds per operation of a large product: the inverse of a core's DGEMM rate.
    pub product_flop_seconds: f64,
    /// Of the trailing matrix in a product: why DGEMM is slower for few columns of L.
    pub product_entry_seconds: f64,
    /// Seconds per entry of L2 or U that the BLAS packs.
    pub packed_entry_seconds: f64,
    pub solve_flop_seconds: f64,
    pub panel_column_seconds: f64,
    pub panel_entry_seconds: f64,
    pub panel_flop_seconds: f64,
    /// Seconds per byte that a copy of rows reads or writes.
    pub copied_byte_seconds: f64,
    /// Seconds per byte of the matrix that the back substitution reads.
    pub streamed_byte_seconds: f64,
    /// Latency of a message between two ranks, including MPI, in seconds.
    pub message_seconds: f64,
    /// Seconds per byte of a message: the inverse of a rank's bandwidth in one direction.
    pub message_byte_seconds: f64,
}

impl Machine {
    /// Reads a machine as `skt-studies path --save-machine` writes it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let machine: Self = serde_json::from_str(text)
            .map_err(|why| shown_message(&why.to_string()))
            .map_err(|why| format!("no machine as --save-machine writes it: {why}"))?;
        machine.validate().map_err(|why| why.to_string())?;
        Ok(machine)
    }

    /// One of two cores of an AMD EPYC (Zen 4) with OpenBLAS 0.3.21 and two ranks that communicate
    /// through shared memory (Open MPI 4.1.4), as fitted by [`super::fit`].
    pub const ZEN4_CORE: Machine = Machine {
        product_flop_seconds: 1.731e-11,
        product_entry_seconds: 2.539e-10,
        packed_entry_seconds: 3.155e-11,
        solve_flop_seconds: 3.528e-11,
        panel_column_seconds: 2.241e-7,
        panel_entry_seconds: 1.960e-9,
        panel_flop_seconds: 3.057e-11,
        copied_byte_seconds: 2.235e-11,
        streamed_byte_seconds: 9.912e-11,
        message_seconds: 1.211e-6,
        message_byte_seconds: 2.821e-10,
    };

    pub fn seconds_per(&self, unit: Unit) -> f64 {
        match unit {
            Unit::ProductFlop => self.product_flop_seconds,
            Unit::ProductEntry => self.product_entry_seconds,
            Unit::PackedEntry => self.packed_entry_seconds,
            Unit::SolveFlop => self.solve_flop_seconds,
            Unit::PanelColumn => self.panel_column_seconds,
            Unit::PanelEntry => self.panel_entry_seconds,
            Unit::PanelFlop => self.panel_flop_seconds,
            Unit::CopiedByte => self.copied_byte_seconds,
            Unit::StreamedByte => self.streamed_byte_seconds,
            Unit::Message => self.message_seconds,
            Unit::MessageByte => self.message_byte_seconds,
        }
    }

    /// Makes a machine from the seconds of all units, in the order of [`Unit::ALL`].
    pub fn from_seconds(seconds: [f64; UNITS]) -> Self {
        let [
            flop,
            entry,
            packed,
            solve,
            column,
            panel_entry,
            panel_flop,
            copied,
            streamed,
            message,
            byte,
        ] = seconds;
        Self {
            product_flop_seconds: flop,
            product_entry_seconds: entry,
            packed_entry_seconds: packed,
            solve_flop_seconds: solve,
            panel_column_seconds: column,
            panel_entry_seconds: panel_entry,
            panel_flop_seconds: panel_flop,
            copied_byte_seconds: copied,
            streamed_byte_seconds: streamed,
            message_seconds: message,
            message_byte_seconds: byte,
        }
    }

    /// Seconds for `counts`, one unit after the other.
    pub fn seconds(&self, counts: &Counts) -> f64 {
        Unit::ALL.iter().map(|&unit| counts.get(unit) * self.seconds_per(unit)).sum()
    }

    /// Solve and panel scale with the DGEMM rate, memory and network do not.
    pub fn with_core_flops(mut self, flops: f64) -> Self {
        let factor = 1.0 / (flops * self.product_flop_seconds);
        self.product_flop_seconds *= factor;
        self.solve_flop_seconds *= factor;
        self.panel_flop_seconds *= factor;
        self
    }

    /// Elements have half of the bytes, and twice as many are computed in a time. Latencies stay.
    pub fn in_single_precision(self) -> Self {
        let halved = |unit| match unit {
            Unit::PanelColumn | Unit::Message => self.seconds_per(unit),
            _ => 0.5 * self.seconds_per(unit),
        };
        Self::from_seconds(Unit::ALL.map(halved))
    }

    pub(super) fn slowed(&self, times: f64) -> Self {
        Self::from_seconds(Unit::ALL.map(|unit| times * self.seconds_per(unit)))
    }

    pub fn validate(&self) -> Result<(), ModelError> {
        crate::error::positive("product_flop_seconds", self.product_flop_seconds)?;
        for (name, value) in [
            ("product_entry_seconds", self.product_entry_seconds),
            ("packed_entry_seconds", self.packed_entry_seconds),
            ("solve_flop_seconds", self.solve_flop_seconds),
            ("panel_column_seconds", self.panel_column_seconds),
            ("panel_entry_seconds", self.panel_entry_seconds),
            ("panel_flop_seconds", self.panel_flop_seconds),
            ("copied_byte_seconds", self.copied_byte_seconds),
            ("streamed_byte_seconds", self.streamed_byte_seconds),
            ("message_seconds", self.message_seconds),
            ("message_byte_seconds", self.message_byte_seconds),
        ] {
            non_negative(name, value)?;
        }
        Ok(())
    }
}
