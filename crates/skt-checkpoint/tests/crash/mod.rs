//! The common part of the crash tests.
#![allow(dead_code, reason = "each test uses a part")]

pub mod camera;
pub mod cluster;
pub mod disks;
pub mod essence;
pub mod futures;
pub mod levels;
