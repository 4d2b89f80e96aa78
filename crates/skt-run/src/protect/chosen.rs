//! What a start of a test has chosen for itself, and a restart has to choose again.
//!
//! It is a part of the state of each checkpoint, in memory and in images, so it is that of the
//! start which computed the data. A restart compares it before it computes.

use serde::{Deserialize, Serialize};
use skt_checkpoint::checkpoint::decide::Refusal;
use skt_health::environment::library::{CalledBlas, LibraryId};
use skt_solver::blas::library::BUILT_IN;

/// The choices of a start, the same on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The BLAS that it calls.
    pub blas: RunBlas,
    /// The rates of all ranks that the first start has measured, if it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<u32>,
}

/// The BLAS of a start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlas {
    /// The value of `--blas` that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Whether the user of this start has named it.
    #[serde(skip)]
    pub is_asked_for: bool,
    /// The library on rank 0.
    pub called: CalledBlas,
}

/// The choices in the state of a checkpoint, whose other parts depend on the method.
#[derive(Deserialize)]
struct StateOfAnyMethod {
    #[serde(default)]
    chosen: Chosen,
}

impl Chosen {
    /// The choices in the state of a checkpoint; none in the result of a test.
    pub(super) fn kept_in(state: &[u8]) -> Option<Self> {
        Some(serde_json::from_slice::<StateOfAnyMethod>(state).ok()?.chosen)
    }

    /// Compares the choices of this start with those in the `state` that it resumes from. Returns a
    /// warning if they give other last bits of x, and refuses a library that was not asked for.
    pub(super) fn check(&self, state: &[u8]) -> Result<Option<String>, Refusal> {
        let kept: StateOfAnyMethod =
            serde_json::from_slice(state).expect("a state that this program wrote");
        let (there, here) = (kept.chosen.blas, &self.blas);
        if there.called == here.called {
            return Ok(None);
        }
        let what = format!(
            "this test was computed with the BLAS {}, and this start has {}",
            there.called.shown(),
            here.called.shown()
        );
        // Another kernel may be all that this host has, and so may another version of a library.
        let library = |blas: &RunBlas| (blas.called.files.clone(), blas.called.is_built_in);
        let is_other = library(&there) != library(here);
        let (before, after) = (there.value(), here.value());
        if is_other && !here.is_asked_for && before != after {
            return Err(Refusal::OtherChoice {
                why: format!(
                    "{what}. Install the same library on all hosts and add --blas {before}, or \
                     continue with other last bits of x by --blas {after}"
                ),
            });
        }
        Ok(Some(format!("{what}: the last bits of x may differ from those of an unbroken run")))
    }
}

impl RunBlas {
    /// The value of `--blas` that names it.
    fn value(&self) -> &str {
        self.named.as_deref().unwrap_or(BUILT_IN)
    }

    /// The library, wherever it is.
    pub(crate) fn id(&self) -> LibraryId {
        LibraryId { name: self.value().to_owned(), files: self.called.files.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words end with the kernel.
    fn chosen(is_asked_for: bool, name: &str, words: &str, sum: &str) -> Chosen {
        let kernel = words.split_once(", kernel ").map(|(_, kernel)| kernel.to_owned());
        let (named, words) = (Some(name.to_owned()), words.to_owned());
        let files = [("libx.so", sum)].into();
        let called = CalledBlas { words, kernel, files, is_built_in: false };
        let blas = RunBlas { named, is_asked_for, called };
        Chosen { blas, rates: Vec::new() }
    }

    fn built_in(is_asked_for: bool) -> Chosen {
        let mut chosen = chosen(is_asked_for, BUILT_IN, "built-in BLAS 0, kernel AVX2", "");
        (chosen.blas.called.files, chosen.blas.called.is_built_in) = ([].into(), true);
        chosen
    }

    fn state(chosen: &Chosen) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({"panel": 3, "chosen": chosen})).unwrap()
    }

    #[test]
    fn the_same_library_under_another_name_is_the_same() {
        let first = state(&chosen(true, "/a/libx.so", "X 1", "77"));
        assert_eq!(chosen(true, "/b/libx.so", "X 1", "77").check(&first), Ok(None));
        let mut copied = chosen(false, "y", "liby.so", "77");
        copied.blas.called.files = [("liby.so", "77")].into();
        assert_eq!(copied.check(&first), Ok(None));
    }

    #[test]
    fn another_library_is_refused_unless_it_is_named() {
        let first = state(&chosen(true, "x", "X 1", "77"));
        let why = chosen(false, "y", "Y", "1").check(&first).unwrap_err().to_string();
        let want = "computed with the BLAS X 1 (libx.so, 77), and this start has Y (libx.so, 1)";
        assert!(why.contains(want) && why.contains("add --blas x, or"), "{why}");
        assert!(why.ends_with("by --blas y"), "{why}");
        for other in [chosen(true, "y", "Y", "1"), chosen(true, "x", "X 1", "78")] {
            let warning = other.check(&first).unwrap().expect("a warning");
            assert!(warning.contains("last bits of x may differ"), "{warning}");
        }
        let newer = chosen(false, "x", "X 2", "78").check(&first).unwrap();
        assert!(newer.is_some(), "another version, as the host may have no other");
    }

    #[test]
    fn the_built_in_library_is_another_than_one_of_the_system() {
        let of_system = || chosen(false, "y", "Y", "1");
        let (of_y, of_built_in) = (state(&of_system()), state(&built_in(true)));
        assert_eq!(built_in(false).check(&of_built_in), Ok(None));
        let why = of_system().check(&of_built_in).unwrap_err().to_string();
        assert!(why.contains("add --blas built-in, or"), "{why}");
        let why = built_in(false).check(&of_y).unwrap_err().to_string();
        assert!(why.contains("has built-in BLAS 0, kernel AVX2. Install"), "{why}");
        assert!(why.contains("add --blas y, or"), "{why}");
        assert!(built_in(true).check(&of_y).unwrap().is_some());
    }

    #[test]
    fn another_kernel_is_a_warning_that_names_both() {
        let first = state(&chosen(false, "y", "Y, kernel Zen", "1"));
        let warning = chosen(false, "y", "Y, kernel Haswell", "1").check(&first).unwrap();
        let warning = warning.expect("a warning");
        assert!(warning.contains("kernel Zen") && warning.contains("kernel Haswell"), "{warning}");
    }
}
