use std::path::PathBuf;
use std::str::FromStr;

use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::time_limit::TimeLimit;
use skt_host::choice::{OnLoss, Overlap, Region};
use skt_host::units::parse_seconds;
use skt_solver::pgesv::abft::CheckEvery;
use skt_store::codec::CodecKind;

use super::protection::Every;

pub trait Field {
    /// There are several `texts` for a list alone. `None`: one is not of this type.
    fn set(&mut self, texts: &[&str]) -> Option<()>;
}

macro_rules! read_by {
    ($read:expr => $($type:ty),*) => {$(
        impl Field for $type {
            fn set(&mut self, texts: &[&str]) -> Option<()> {
                *self = $read(*texts.first()?)?;
                Some(())
            }
        }
    )*};
}

pub(super) use read_by;

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

read_by!(parsed => usize, bool, PathBuf, Every, CheckEvery, Resume, TimeLimit);
read_by!(|text| parsed(text).map(Some) => Option<usize>, Option<String>, Option<PathBuf>);
read_by!(Self::named => Method, Region, CodecKind, Overlap, OnLoss);
// Times are in seconds.
read_by!(|text| parse_seconds(text).ok() => f64);

impl Field for Vec<String> {
    fn set(&mut self, texts: &[&str]) -> Option<()> {
        *self = texts.iter().map(|text| (*text).to_owned()).collect();
        Some(())
    }
}
