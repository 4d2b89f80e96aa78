//! Rust's `{:e}` writes `1.5e1` where C's `printf` writes `1.5e+01`, which parsers of HPL's text
//! expect. Both round the exact binary value to nearest, ties to even, so only the notation
//! differs.

/// Formats like `%{width}.{precision}e`: the exponent has a sign and at least two digits.
pub(crate) fn c_exp(value: f64, width: usize, precision: usize) -> String {
    if !value.is_finite() {
        return format!("{:>width$}", non_finite(value));
    }
    let plain = format!("{value:.precision$e}");
    let (mantissa, exponent) =
        plain.split_once('e').expect("Rust's {:e} always writes an exponent");
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{:>width$}", format!("{mantissa}e{sign}{digits:0>2}"))
}

pub(crate) fn c_fixed(value: f64, width: usize, precision: usize) -> String {
    if !value.is_finite() {
        return format!("{:>width$}", non_finite(value));
    }
    format!("{value:>width$.precision$}")
}

/// glibc prints the sign bit of a NaN; it has no meaning, so it is left out.
fn non_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

/// A part of the whole in percent, in the eight characters of a column; `-` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:>8.1}", 100.0 * part / whole) } else { format!("{:>8}", "-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn snprintf(format: &std::ffi::CStr, value: f64) -> String {
        let mut buffer = [0u8; 512];
        // SAFETY: the buffer's length is passed along; the formats used here take exactly one
        // double; the result ends with NUL.
        let written = unsafe {
            libc::snprintf(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), value)
        };
        String::from_utf8(buffer[..written as usize].to_vec()).unwrap()
    }

    fn same_as_c(value: f64) {
        assert_eq!(c_exp(value, 19, 4), snprintf(c"%19.4e", value));
        assert_eq!(c_exp(value, 16, 8), snprintf(c"%16.8e", value));
        assert_eq!(c_fixed(value, 18, 2), snprintf(c"%18.2f", value));
        assert_eq!(c_fixed(value, 18, 6), snprintf(c"%18.6f", value));
        assert_eq!(c_fixed(value, 11, 1), snprintf(c"%11.1f", value));
    }

    #[test]
    fn agrees_with_c_on_ties_and_extremes() {
        for value in [
            0.0,
            -0.0,
            1.0,
            0.125,
            0.375,
            2.5,
            0.5,
            1e22,
            99999.5,
            999995.0,
            9.99995,
            9.999_95e-5,
            f64::MIN_POSITIVE,
            5e-324,
            f64::MAX,
            f64::MIN,
            f64::EPSILON,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1.110_223_024_625_156_5e-16,
            16.0,
            1e100,
            1e-100,
        ] {
            same_as_c(value);
        }
        assert_eq!(c_exp(f64::NAN, 16, 8), "             nan");
        assert_eq!(c_fixed(f64::NAN, 5, 2), "  nan");
    }

    proptest! {
        #[test]
        fn agrees_with_c_on_any_bits(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            same_as_c(value);
        }

        #[test]
        fn agrees_with_c_on_everyday_numbers(thousandths in 0u32..100_000_000) {
            same_as_c(f64::from(thousandths) / 1000.0);
        }
    }
}
