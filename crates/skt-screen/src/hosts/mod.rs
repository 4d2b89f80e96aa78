//! What `doctor` and `screen` do about the hosts of a list, before and while ranks run there.

pub mod reach;
pub mod screening;
