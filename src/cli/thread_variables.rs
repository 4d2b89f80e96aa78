//! With a threaded BLAS under the reference, variables of the BLAS give the threads of a rank.

use skt_config::param::Param;

/// The variables, each with its library: that library prefers it to `OMP_NUM_THREADS`.
const VARIABLES: [(&str, &str); 5] = [
    ("OPENBLAS_NUM_THREADS", "OpenBLAS"),
    ("GOTO_NUM_THREADS", "OpenBLAS"),
    ("MKL_NUM_THREADS", "oneMKL"),
    ("BLIS_NUM_THREADS", "BLIS"),
    ("OMP_NUM_THREADS", ""),
];

/// In the order in which they count: those of the library in use, that of OpenMP, others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadVariables(Vec<(&'static str, String)>);

impl ThreadVariables {
    pub(crate) fn read(library: &str, get: impl Fn(&str) -> Option<String>) -> Self {
        let mut all = VARIABLES;
        all.sort_by_key(|(_, of)| match *of {
            of if of == library => 0,
            "" => 1,
            _ => 2,
        });
        let set = all.into_iter().filter_map(|(name, _)| Some((name, get(name)?)));
        Self(set.filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    pub(crate) fn threads(&self) -> Option<usize> {
        self.0.iter().find_map(|(_, value)| number(value))
    }

    /// The variables that are set to something else than a number of threads.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let legal = Param::Threads.info().legal();
        let ignored = self.0.iter().filter(|(_, value)| number(value).is_none());
        let warning = |(name, value): &(&str, String)| {
            format!("{name}={value:?} is ignored: it is no number of threads ({legal})")
        };
        ignored.map(warning).collect()
    }
}

/// The number of threads of a value: the first of OpenMP's list, which has one for each level.
fn number(value: &str) -> Option<usize> {
    let range = Param::Threads.info().range.expect("the row has a range");
    let first = value.split(',').next()?.trim();
    first.parse().ok().filter(|_| range.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(library: &str, set: &[(&str, &str)]) -> ThreadVariables {
        ThreadVariables::read(library, |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_variable_alone_gives_the_threads() {
        for (name, _) in VARIABLES {
            for library in ["OpenBLAS", "oneMKL", "BLIS", "libblas.so.3"] {
                let variables = read(library, &[(name, "3")]);
                assert_eq!((variables.threads(), variables.warnings()), (Some(3), vec![]));
            }
        }
        assert_eq!(read("OpenBLAS", &[]).threads(), None);
    }

    #[test]
    fn the_library_in_use_prefers_its_own_variable() {
        let set =
            [("OMP_NUM_THREADS", "2"), ("OPENBLAS_NUM_THREADS", "4"), ("MKL_NUM_THREADS", "8")];
        let threads = |library| read(library, &set).threads();
        assert_eq!(threads("OpenBLAS"), Some(4));
        assert_eq!(threads("oneMKL"), Some(8));
        assert_eq!((threads("BLIS"), threads("libblas.so.3")), (Some(2), Some(2)));
    }

    #[test]
    fn a_value_that_is_no_number_of_threads_is_named() {
        for (value, threads) in
            [("4", Some(4)), (" 8 ", Some(8)), ("2,4", Some(2)), ("4096", Some(4096))]
        {
            let variables = read("OpenBLAS", &[("OMP_NUM_THREADS", value)]);
            assert_eq!((variables.threads(), variables.warnings()), (threads, vec![]), "{value}");
        }
        for value in ["0", "x", "-1", "4097", "1e3", "4 cores"] {
            let variables = read("OpenBLAS", &[("OMP_NUM_THREADS", value)]);
            assert_eq!(variables.threads(), None, "{value}");
            let warning = variables.warnings().pop().expect("one");
            assert!(
                warning.contains(&format!("OMP_NUM_THREADS={value:?} is ignored")),
                "{warning}"
            );
        }
        assert_eq!(read("OpenBLAS", &[("OMP_NUM_THREADS", "")]).warnings(), [""; 0]);
    }
}
