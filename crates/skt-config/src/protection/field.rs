//! How the typed values of the protection's settings are read.

use skt_checkpoint::checkpoint::agree::Resume;
use skt_checkpoint::checkpoint::codec::CodecKind;
use skt_checkpoint::checkpoint::encode::Encoder;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::time_limit::TimeLimit;
use skt_solver::pgesv::abft::CheckEvery;
use skt_terms::choice::{OnLoss, Overlap, Region};
use skt_terms::units::parse_seconds;

use super::Every;

/// What a setting of the protection is stored in.
pub trait SettingField {
    /// Stores the value of a text. `None`: it is none of this type.
    fn set(&mut self, text: &str) -> Option<()>;
}

macro_rules! read_by {
    ($read:expr => $($type:ty),*) => {$(
        impl SettingField for $type {
            fn set(&mut self, text: &str) -> Option<()> {
                *self = $read(text)?;
                Some(())
            }
        }
    )*};
}

fn parsed<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

read_by!(parsed => usize, bool, Every, CheckEvery, TimeLimit);
read_by!(Self::named => Method, Resume, Region, CodecKind, Encoder, Overlap, OnLoss);
read_by!(|text| parsed(text).map(Some) => Option<usize>);
// Times are in seconds.
read_by!(|text| parse_seconds(text).ok() => f64);
