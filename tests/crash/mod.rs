//! What the crash tests share.
#![allow(dead_code, reason = "each test uses a part")]

pub mod cluster;
pub mod code;
