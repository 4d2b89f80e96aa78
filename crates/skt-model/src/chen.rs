//! Chen and Dongarra, "A Scalable Checkpoint Encoding Algorithm for Diskless Checkpointing", HASE
//! 2008: the cost of encoding a checkpoint.

use super::ModelError;
use super::error::{at_least, check, non_negative, positive};

/// The network of section 2.2: a message of x bytes takes `alpha + beta x`, summing two arrays
/// takes `gamma` per byte; a process sends and receives at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// alpha: latency of a message.
    pub latency_seconds: f64,
    /// beta: seconds per byte of a message.
    pub transfer_seconds_per_byte: f64,
    /// gamma: seconds per byte of a sum.
    pub reduce_seconds_per_byte: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A plain sum or XOR, with gamma per byte.
    Sum,
    /// A weighted checksum, with a product in addition and so 2 gamma per byte (section 4.1).
    Weighted,
}

impl Network {
    pub fn validate(&self) -> Result<(), ModelError> {
        non_negative("latency_seconds", self.latency_seconds)?;
        positive("transfer_seconds_per_byte", self.transfer_seconds_per_byte)?;
        non_negative("reduce_seconds_per_byte", self.reduce_seconds_per_byte)?;
        Ok(())
    }

    /// `beta + gamma`, or `beta + 2 gamma` for a weighted sum.
    fn seconds_per_byte(&self, code: Code) -> f64 {
        let operations = match code {
            Code::Sum => 1.0,
            Code::Weighted => 2.0,
        };
        self.transfer_seconds_per_byte + operations * self.reduce_seconds_per_byte
    }

    /// Seconds for k encodings along a binary tree: `2 ceil(log2 p) k ((beta + gamma) m + alpha)`;
    /// eq. 6 with 2 gamma for [`Code::Weighted`].
    pub fn tree_seconds(
        &self,
        processes: usize,
        failures: usize,
        bytes: f64,
        code: Code,
    ) -> Result<f64, ModelError> {
        self.check(processes, 2, "2 or more", failures, bytes)?;
        let depth = (processes as f64).log2().ceil();
        let per_level = self.seconds_per_byte(code) * bytes + self.latency_seconds;
        Ok(2.0 * depth * failures as f64 * per_level)
    }

    /// Seconds for one encoding along a chain in t = m/s segments of s bytes: `(p - 2 + t) (alpha +
    /// (beta + gamma) s)` (section 3.3).
    pub fn chain_seconds_with_segment(
        &self,
        processes: usize,
        bytes: f64,
        segment_bytes: f64,
        code: Code,
    ) -> Result<f64, ModelError> {
        self.check(processes, 3, "3 or more (a pipeline)", 1, bytes)?;
        let expected = "above 0 and at most the checkpoint's bytes";
        let is_legal = segment_bytes > 0.0 && segment_bytes <= bytes;
        check("segment_bytes", segment_bytes, is_legal, expected)?;
        let steps = (processes - 2) as f64 + bytes / segment_bytes;
        Ok(steps * (self.latency_seconds + self.seconds_per_byte(code) * segment_bytes))
    }

    /// The segment, in bytes, that makes [`Network::chain_seconds_with_segment`] fastest: `s1 =
    /// sqrt(m alpha / ((p-2) (beta + gamma)))` (section 3.3), at most the whole checkpoint. With a
    /// latency of zero the optimum is an infinitely small segment; one byte is returned.
    pub fn optimal_segment_bytes(
        &self,
        processes: usize,
        bytes: f64,
        code: Code,
    ) -> Result<f64, ModelError> {
        self.check(processes, 3, "3 or more (a pipeline)", 1, bytes)?;
        let unbounded = (bytes * self.latency_seconds
            / ((processes - 2) as f64 * self.seconds_per_byte(code)))
        .sqrt();
        Ok(unbounded.max(1.0).min(bytes))
    }

    /// k encodings along a chain with the optimal segment: k times eq. 2, eq. 7 without its O().
    pub fn chain_seconds(
        &self,
        processes: usize,
        failures: usize,
        bytes: f64,
        code: Code,
    ) -> Result<f64, ModelError> {
        self.check(processes, 3, "3 or more (a pipeline)", failures, bytes)?;
        let segment_bytes = self.optimal_segment_bytes(processes, bytes, code)?;
        let once = self.chain_seconds_with_segment(processes, bytes, segment_bytes, code)?;
        Ok(failures as f64 * once)
    }

    /// Seconds for k encodings in groups of g processes with checksum processes of their own, all
    /// groups at once: eq. 8. The chain has the g members and the process that keeps the checksum.
    pub fn grouped_seconds(
        &self,
        group_size: usize,
        failures: usize,
        bytes: f64,
        code: Code,
    ) -> Result<f64, ModelError> {
        at_least("group_size", group_size, 2, "2 or more")?;
        self.chain_seconds(group_size + 1, failures, bytes, code)
    }

    /// A pipelined broadcast along the chain of section 3.3 with the best segment, without the sum.
    fn broadcast_seconds(&self, processes: usize, bytes: f64) -> f64 {
        if processes < 2 {
            return 0.0;
        }
        let hops = (processes - 2) as f64;
        let beta = self.transfer_seconds_per_byte;
        // (sqrt(hops alpha) + sqrt(beta m))^2 is the minimum over the segment.
        ((hops * self.latency_seconds).sqrt() + (beta * bytes).sqrt()).powi(2)
    }

    /// Seconds for the localized scheme without checksum processes: k encodings within groups of
    /// k(k+1), each result then kept k+1 times (eq. 9).
    pub fn localized_seconds(&self, failures: usize, bytes: f64) -> Result<f64, ModelError> {
        self.check(2, 2, "2 or more", failures, bytes)?;
        let group_size = failures * (failures + 1);
        let encode_seconds = if group_size < 3 {
            self.latency_seconds + self.seconds_per_byte(Code::Weighted) * bytes
        } else {
            self.chain_seconds(group_size, failures, bytes, Code::Weighted)?
        };
        Ok(encode_seconds + self.broadcast_seconds(failures + 1, bytes))
    }

    fn check(
        &self,
        processes: usize,
        min_processes: usize,
        expected: &'static str,
        failures: usize,
        bytes: f64,
    ) -> Result<(), ModelError> {
        self.validate()?;
        at_least("processes", processes, min_processes, expected)?;
        at_least("failures", failures, 1, "1 or more")?;
        positive("checkpoint_bytes", bytes)?;
        Ok(())
    }
}
