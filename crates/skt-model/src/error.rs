use std::ops::RangeInclusive;

use skt_host::units::counted;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    #[error("{parameter} = {value} is out of range: expected {expected}")]
    OutOfRange { parameter: &'static str, value: f64, expected: &'static str },
    #[error(
        "a group of {} with {} is impossible: a group has at least 2 members and between 1 and \
         size/2 parities",
        counted(*size, "member"), counted(*parities, "parity")
    )]
    Group { size: usize, parities: usize },
    #[error("cannot fit the model: {reason}")]
    Fit { reason: String },
    #[error("no configuration for this machine: {reason}")]
    Plan { reason: String },
}

pub fn positive(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, value > 0.0, "a finite number above 0")
}

pub fn non_negative(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, value >= 0.0, "a finite number, 0 or above")
}

pub fn fraction(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, (0.0..=1.0).contains(&value), "a fraction from 0 to 1")
}

pub fn within(
    parameter: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
    expected: &'static str,
) -> Result<usize, ModelError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(ModelError::OutOfRange { parameter, value: value as f64, expected })
}

pub fn at_least(
    parameter: &'static str,
    value: usize,
    min: usize,
    expected: &'static str,
) -> Result<usize, ModelError> {
    within(parameter, value, min..=usize::MAX, expected)
}

/// Returns `value` if it is finite and `legal`; `expected` describes what is.
pub fn check(
    parameter: &'static str,
    value: f64,
    legal: bool,
    expected: &'static str,
) -> Result<f64, ModelError> {
    if legal && value.is_finite() {
        return Ok(value);
    }
    Err(ModelError::OutOfRange { parameter, value, expected })
}
