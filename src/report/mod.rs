//! What people and programs get to read: the reference's text, JSON, progress.

pub mod record;
