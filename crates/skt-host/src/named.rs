//! Enumerations whose values have names.

/// Gives a `Copy` enumeration its values in the order of this list (`ALL`), their names (`NAMES`,
/// `name`, `Display`), the value of a name (`named`), and each name with those that a configuration
/// accepts in its place (`CHOICES`).
#[macro_export]
macro_rules! named {
    ($type:ident { $($value:ident: $name:literal $(| $alias:literal)*),+ $(,)? }) => {
        impl $type {
            /// All values, in the order of their definition.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The names of all values, in the same order as `ALL`.
            pub const NAMES: [&str; Self::ALL.len()] = [$($name),+];

            /// The names, each followed by others that a configuration accepts in its place.
            pub const CHOICES: &[&[&str]] = &[$(&[$name $(, $alias)*]),+];

            /// The name of this value.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The value with this name, if there is one.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
