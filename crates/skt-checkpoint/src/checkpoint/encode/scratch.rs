//! Buffers for messages.

use crate::tuning::TUNING;
use skt_comm::{PageBuf, Result};

/// Buffers for messages, made at their first use and kept. They are on huge pages if the system
/// grants them, because a transport that copies between processes is twice as fast there.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) buffers: Vec<PageBuf>,
    /// The checksums of a row's cells.
    pub(super) sums: Vec<u64>,
}

impl Scratch {
    /// A buffer of at least `bytes`, with any contents.
    pub(super) fn take(&mut self, bytes: usize) -> Result<PageBuf> {
        let doubles = bytes.div_ceil(size_of::<f64>());
        match self.buffers.pop() {
            Some(buffer) if buffer.len() >= doubles => Ok(buffer),
            _ => {
                let is_small = doubles < TUNING.small_message_bytes / size_of::<f64>();
                let most = if is_small { doubles } else { doubles.max(HUGE_DOUBLES) };
                PageBuf::for_messages(most)
            }
        }
    }

    pub(super) fn give(&mut self, buffer: PageBuf) {
        self.buffers.push(buffer);
    }
}

pub(super) fn bytes_of(buffer: &PageBuf, bytes: usize) -> &[u8] {
    &bytemuck::cast_slice(buffer)[..bytes]
}

pub(super) fn bytes_of_mut(buffer: &mut PageBuf, bytes: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(buffer)[..bytes]
}

/// Doubles in a huge page of 2 MiB.
const HUGE_DOUBLES: usize = (2 << 20) / size_of::<f64>();
