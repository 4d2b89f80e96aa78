//! Tang et al., "An Efficient In-Memory Checkpoint Method and its Practice on
//! Fault-Tolerant HPL", IEEE TPDS 2018, sections 3, 4.2, 5 and 6.3.

pub mod efficiency;
pub mod interval;
pub mod memory;
pub mod volume;
