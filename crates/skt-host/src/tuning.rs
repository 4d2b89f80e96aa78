//! Values found by measurement, each with its unit and its reason, and a macro by which a crate
//! lists its own.

use std::fmt;

/// A ratio of whole numbers, applied without intermediate rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// What a value is multiplied by.
    pub times: usize,
    /// What the product is divided by.
    pub over: usize,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.times, self.over)
    }
}

/// Defines `Tuning`, a struct of the values of a crate, and `TUNING`, which has the values. A line
/// is a reason as a doc comment, the name with its type, the value, and the unit.
#[macro_export]
macro_rules! tuning {
    ($($(#[doc = $reason:literal])+ $name:ident: $type:ty = $value:expr, $unit:literal;)+) => {
        /// Values found by measurement, with the reason for each.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Tuning {
            $($(#[doc = $reason])+ #[doc = concat!("\n\nUnit: ", $unit, ".")] pub $name: $type,)+
        }

        /// The values in use, which are the same on every processor and with every BLAS.
        pub const TUNING: Tuning = Tuning { $($name: $value,)+ };

        impl Tuning {
            /// Each value as a line, with its name and its unit.
            pub fn lines(&self) -> Vec<String> {
                vec![$(format!("{} = {} {}", stringify!($name), self.$name, $unit),)+]
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro is for modules that others use")]
mod tests {
    use super::Ratio;

    crate::tuning! {
        /// Longer ones are slower.
        rows: usize = 4 * 12, "rows";
        /// As measured.
        share: Ratio = Ratio { times: 7, over: 3 }, "of the rest";
    }

    #[test]
    fn each_value_has_a_line() {
        assert_eq!(TUNING.lines(), ["rows = 48 rows", "share = 7/3 of the rest"]);
    }
}
