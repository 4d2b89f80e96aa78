use std::path::PathBuf;

use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::time_limit::TimeLimit;
use skt_host::choice::{
    Bcast, Fact, Form, GemmPrecision, Generator, MxpMatrix, OnLoss, Overlap, Pin, Pmap, Region,
    Swap, Transport,
};
use skt_solver::pgesv::abft::CheckEvery;
use skt_store::codec::CodecKind;

use super::protection::Every;
use super::rates::RateSource;

/// The typed value of a setting that follows from its texts alone.
pub trait Field {
    /// Stores the values of these texts, which are written as [`Field::texts`] writes them. No text
    /// unsets an optional value. `None`: one is not of this type.
    fn set(&mut self, texts: &[String]) -> Option<()>;

    fn texts(&self) -> Vec<String>;
}

pub(super) trait Single: Sized {
    fn read(text: &str) -> Option<Self>;
    fn text(&self) -> String;
}

impl<T: Single> Field for T {
    fn set(&mut self, texts: &[String]) -> Option<()> {
        *self = T::read(texts.first()?)?;
        Some(())
    }

    fn texts(&self) -> Vec<String> {
        vec![self.text()]
    }
}

/// The value of a setting whose default is in words.
impl<T: Single> Field for Option<T> {
    fn set(&mut self, texts: &[String]) -> Option<()> {
        *self = match texts.first() {
            Some(text) => Some(T::read(text)?),
            None => None,
        };
        Some(())
    }

    fn texts(&self) -> Vec<String> {
        self.iter().map(Single::text).collect()
    }
}

impl<T: Single> Field for Vec<T> {
    fn set(&mut self, texts: &[String]) -> Option<()> {
        *self = texts.iter().map(|text| T::read(text)).collect::<Option<_>>()?;
        Some(())
    }

    fn texts(&self) -> Vec<String> {
        self.iter().map(Single::text).collect()
    }
}

macro_rules! single {
    ($read:expr, $text:expr => $($type:ty),*) => {$(
        impl Single for $type {
            fn read(text: &str) -> Option<Self> {
                $read(text)
            }

            fn text(&self) -> String {
                $text(self)
            }
        }
    )*};
}

pub(super) use single;

single!(|text: &str| text.parse().ok(), Self::to_string => usize, String, Resume, TimeLimit);
single!(|text: &str| text.parse().ok(), |it| format!("{it:?}") => f64);
single!(|text: &str| text.parse().ok(), unwritten => Every, CheckEvery);
single!(Self::named, Self::to_string => Method, Region, CodecKind, Overlap, OnLoss, Pmap, Fact, Bcast, Swap, Form, Generator, Transport, Pin, MxpMatrix, GemmPrecision);
single!(|text| Some(Self::from_text(text)), Self::as_given => RateSource);
single!(|text| Some(Self::from(text)), |it: &Self| it.display().to_string() => PathBuf);

impl Single for bool {
    fn read(text: &str) -> Option<Self> {
        match text {
            "no" | "false" => Some(false),
            "yes" | "true" => Some(true),
            _ => None,
        }
    }

    fn text(&self) -> String {
        (if *self { "yes" } else { "no" }).to_owned()
    }
}

fn unwritten<T>(_: &T) -> String {
    unreachable!("the draft of the protection has its texts")
}
