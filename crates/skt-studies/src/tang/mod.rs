//! Tang et al., "An Efficient In-Memory Checkpoint Method and its Practice on Fault-Tolerant HPL",
//! IEEE TPDS 2018, sections 3 and 5.2: what only its figures need.

pub mod reliability;
pub mod top10;
