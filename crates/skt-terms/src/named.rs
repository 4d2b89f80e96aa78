//! Enumerations whose values have names.

/// Gives an enumeration, which is `Copy`, its values in the order of this list (`ALL`), the name
/// of each (`NAMES`, `name`, `Display`), and the value of a name (`named`).
#[macro_export]
macro_rules! named {
    ($type:ident { $($value:ident: $name:literal),+ $(,)? }) => {
        impl $type {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Their names.
            pub const NAMES: [&str; Self::ALL.len()] = [$($name),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The one of that name.
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
