//! What can be wrong with the input of a model.

use std::ops::RangeInclusive;

use thiserror::Error;

/// An input that no formula can take.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// A number outside of its legal range.
    #[error("{parameter} = {value} is out of range: expected {expected}")]
    OutOfRange {
        /// Name of the parameter, with its unit.
        parameter: &'static str,
        /// The value given.
        value: f64,
        /// The legal range in words.
        expected: &'static str,
    },
    /// A checkpoint group that cannot exist.
    #[error(
        "a group of {size} members with {parities} parities is impossible: a group has at least 2 \
         members and between 1 and size/2 parities"
    )]
    Group {
        /// Members of the group.
        size: usize,
        /// Parities asked for.
        parities: usize,
    },
    /// A failure trace that cannot be used.
    #[error("failure trace, line {line}: {reason}")]
    Trace {
        /// Line, from 1; 0 means the file as a whole.
        line: usize,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// Measurements that a fit cannot use.
    #[error("cannot fit the model: {reason}")]
    Fit {
        /// Why not.
        reason: String,
    },
    /// A machine on which no configuration exists.
    #[error("no configuration for this machine: {reason}")]
    Plan {
        /// Why not.
        reason: String,
    },
    /// A figure that is not in the catalogue.
    #[error("there is no figure named {name:?}; known figures: {known}")]
    UnknownFigure {
        /// The name given.
        name: String,
        /// All names, comma separated.
        known: String,
    },
}

/// `value`, if it is finite and above zero.
///
/// # Errors
/// [`ModelError::OutOfRange`] otherwise.
pub fn positive(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, value > 0.0, "a finite number above 0")
}

/// `value`, if it is finite and not below zero.
///
/// # Errors
/// [`ModelError::OutOfRange`] otherwise.
pub fn non_negative(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, value >= 0.0, "a finite number, 0 or above")
}

/// `value`, if it lies between 0 and 1, both included.
///
/// # Errors
/// [`ModelError::OutOfRange`] otherwise.
pub fn fraction(parameter: &'static str, value: f64) -> Result<f64, ModelError> {
    check(parameter, value, (0.0..=1.0).contains(&value), "a fraction from 0 to 1")
}

/// `value`, if it lies in `range`.
///
/// # Errors
/// [`ModelError::OutOfRange`] otherwise; `expected` says the range in words.
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

/// `value`, if it is at least `min`.
///
/// # Errors
/// [`ModelError::OutOfRange`] otherwise; `expected` says the range in words.
pub fn at_least(
    parameter: &'static str,
    value: usize,
    min: usize,
    expected: &'static str,
) -> Result<usize, ModelError> {
    within(parameter, value, min..=usize::MAX, expected)
}

fn check(
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
