//! Parse, dispatch; nothing else.
fn main() {}
