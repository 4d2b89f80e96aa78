//! What the crash tests share.
#![allow(dead_code, reason = "each test uses a part")]

pub mod camera;
pub mod cluster;
pub mod code;
pub mod disks;
pub mod essence;
pub mod futures;
pub mod levels;
