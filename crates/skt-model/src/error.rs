use std::fmt::Display;
use std::ops::RangeInclusive;

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Error)]
#[error("{0}")]
pub struct ModelError(pub String);

impl ModelError {
    /// No configuration for this machine.
    pub(crate) fn no_plan(reason: impl Display) -> Self {
        Self(format!("no configuration for this machine: {reason}"))
    }

    pub(crate) fn no_fit(reason: impl Display) -> Self {
        Self(format!("cannot fit the model: {reason}"))
    }

    fn out_of_range(parameter: &str, value: impl Display, expected: &str) -> Self {
        Self(format!("{parameter} = {value} is out of range: expected {expected}"))
    }
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
    Err(ModelError::out_of_range(parameter, value, expected))
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
    Err(ModelError::out_of_range(parameter, value, expected))
}
