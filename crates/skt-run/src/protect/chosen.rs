//! What a start of a test has chosen for itself, and a restart has to choose again.
//!
//! It is a part of the state of each checkpoint, in memory and in images, so it is that of the
//! start which computed the data. A restart compares it before it computes.

use serde::{Deserialize, Serialize};
use skt_checkpoint::checkpoint::agree::Refusal;
use skt_health::environment::library::{CalledBlas, LibraryId};
use skt_solver::blas::library::{BUILT_IN, LINKED, PRESET};

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
    /// The value of `--blas`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Whether this start chose it (`--blas auto`).
    #[serde(skip)]
    pub by_auto: bool,
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
    /// warning if they give other last bits of x.
    ///
    /// # Errors
    /// When this start has another library, which was not asked for.
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
        // Another kernel may be all that this host has, and so may another linked library.
        let library = |blas: &RunBlas| (blas.called.files.clone(), blas.called.is_built_in);
        let is_other = library(&there) != library(here);
        let is_asked_for = here.named.is_some() && !here.by_auto;
        let (before, after) = (there.value(), here.value());
        if is_other && !is_asked_for && (before, after) != (LINKED, LINKED) {
            return Err(Refusal::OtherChoice {
                why: format!(
                    "{what}. Install the same library on all hosts and add --blas {before}, or \
                     continue with other last bits of x by --blas {PRESET}"
                ),
            });
        }
        Ok(Some(format!("{what}: the last bits of x may differ from those of an unbroken run")))
    }
}

impl RunBlas {
    /// The value of `--blas` that names it.
    fn value(&self) -> &str {
        let unnamed = if self.called.is_built_in { BUILT_IN } else { LINKED };
        self.named.as_deref().unwrap_or(unnamed)
    }

    /// The library, wherever it is.
    pub(crate) fn id(&self) -> LibraryId {
        let name = self.value().to_owned();
        let is_own = [LINKED, BUILT_IN].contains(&&*name);
        LibraryId { name, files: if is_own { [].into() } else { self.called.files.clone() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words end with the kernel.
    fn chosen(named: Option<&str>, words: &str, sum: &str) -> Chosen {
        let kernel = words.split_once(", kernel ").map(|(_, kernel)| kernel.to_owned());
        let (named, words) = (named.map(str::to_owned), words.to_owned());
        let files = [("libx.so", sum)].into();
        let called = CalledBlas { words, kernel, files, is_built_in: false };
        let blas = RunBlas { named, by_auto: false, called };
        Chosen { blas, rates: Vec::new() }
    }

    fn built_in(named: Option<&str>) -> Chosen {
        let mut chosen = chosen(named, "built-in BLAS 0, kernel AVX2", "");
        (chosen.blas.called.files, chosen.blas.called.is_built_in) = ([].into(), true);
        chosen
    }

    fn state(chosen: &Chosen) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({"panel": 3, "chosen": chosen})).unwrap()
    }

    #[test]
    fn the_same_library_under_another_name_is_the_same() {
        let first = state(&chosen(Some("/a/libx.so"), "X 1", "77"));
        assert_eq!(chosen(Some("/b/libx.so"), "X 1", "77").check(&first), Ok(None));
        let mut copied = chosen(None, "liby.so", "77");
        copied.blas.called.files = [("liby.so", "77")].into();
        assert_eq!(copied.check(&first), Ok(None));
    }

    #[test]
    fn another_library_is_refused_unless_it_is_named() {
        let first = state(&chosen(Some("x"), "X 1", "77"));
        let why = chosen(None, "Y", "1").check(&first).unwrap_err().to_string();
        let want = "computed with the BLAS X 1 (libx.so, 77), and this start has Y (libx.so, 1)";
        assert!(why.contains(want) && why.contains("add --blas x"), "{why}");
        let mut by_auto = chosen(Some("y"), "Y", "78");
        by_auto.blas.by_auto = true;
        assert!(by_auto.check(&first).unwrap_err().to_string().contains("add --blas x"));
        for other in [chosen(Some("linked"), "Y", "1"), chosen(Some("x"), "X 1", "78")] {
            let warning = other.check(&first).unwrap().expect("a warning");
            assert!(warning.contains("last bits of x may differ"), "{warning}");
        }
        let linked = state(&chosen(None, "Y", "1"));
        assert!(chosen(Some("x"), "X 1", "77").check(&linked).unwrap().is_some());
        assert!(chosen(None, "Y", "2").check(&linked).unwrap().is_some(), "another linked one");
    }

    #[test]
    fn the_built_in_library_is_another_than_the_linked_one() {
        let linked = || chosen(None, "Y", "1");
        let (of_linked, of_built_in) = (state(&linked()), state(&built_in(Some("built-in"))));
        assert_eq!(built_in(None).check(&of_built_in), Ok(None));
        let why = linked().check(&of_built_in).unwrap_err().to_string();
        assert!(why.contains("add --blas built-in, or"), "{why}");
        let why = built_in(None).check(&of_linked).unwrap_err().to_string();
        assert!(why.contains("has built-in BLAS 0, kernel AVX2. Install"), "{why}");
        assert!(why.contains("add --blas linked, or"), "{why}");
        assert!(built_in(Some("built-in")).check(&of_linked).unwrap().is_some());
    }

    #[test]
    fn another_kernel_is_a_warning_that_names_both() {
        let first = state(&chosen(None, "Y, kernel Zen", "1"));
        let warning = chosen(None, "Y, kernel Haswell", "1").check(&first).unwrap();
        let warning = warning.expect("a warning");
        assert!(warning.contains("kernel Zen") && warning.contains("kernel Haswell"), "{warning}");
    }
}
