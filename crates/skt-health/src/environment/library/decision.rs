//! Which library all ranks of a job call with `--blas auto`.

use serde::{Deserialize, Serialize};

use super::LibraryId;

/// The gain in rate for which another library is taken than the first: less may be noise.
const MIN_GAIN: f64 = 0.02;

/// Measurements of each library, in turn: the best counts, as other programs only ever slow one
/// down.
pub const ROUNDS: usize = 3;

/// A library that a rank has tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedBlas {
    pub id: LibraryId,
    /// Why it is refused, if it is.
    pub refused: Option<String>,
}

/// A library that was tried on all ranks, for reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RatedBlas {
    /// The library, as rank 0 names it.
    pub name: String,
    /// The rate of GEMM on a core while all ranks measure, in the precision in which the run
    /// multiplies, on the slowest rank; none if it was not measured.
    pub gflops_per_core: Option<f64>,
    /// Why it is refused, if it is.
    pub refused: Option<String>,
}

impl RatedBlas {
    /// A library without a rate so far.
    pub fn unmeasured(tried: &TriedBlas) -> Self {
        let TriedBlas { id, refused } = tried;
        Self { name: id.name.clone(), gflops_per_core: None, refused: refused.clone() }
    }

    /// The library, with its rate or why it is refused.
    pub fn words(&self) -> String {
        match (&self.refused, self.gflops_per_core) {
            (Some(why), _) => format!("{} is refused: {why}", self.name),
            (None, Some(rate)) => format!("{} {rate:.1} Gflop/s a core", self.name),
            (None, None) => self.name.clone(),
        }
    }
}

/// What a rank has tried, and where it is, in words.
pub(crate) type RankTried = (String, Vec<TriedBlas>);

/// The libraries of the first rank, refused if another rank refuses or lacks them.
pub fn on_all(ranks: &[RankTried]) -> Vec<TriedBlas> {
    let Some(((_, first), others)) = ranks.split_first() else { return Vec::new() };
    let on_others = |tried: &TriedBlas| {
        let why = |(at, theirs): &RankTried| Some(format!("{at}: {}", flaw(&tried.id, theirs)?));
        others.iter().find_map(why)
    };
    let joined = |tried: &TriedBlas| {
        let refused = tried.refused.clone().or_else(|| on_others(tried));
        TriedBlas { refused, ..tried.clone() }
    };
    first.iter().map(joined).collect()
}

/// Why a library does not serve on a rank, which has tried these.
pub(super) fn flaw(id: &LibraryId, tried: &[TriedBlas]) -> Option<String> {
    match tried.iter().find(|it| it.id.is_same(id)) {
        Some(TriedBlas { refused, .. }) => refused.clone(),
        None => Some(match tried.iter().find(|it| it.id.name == id.name) {
            Some(TriedBlas { refused: Some(why), .. }) => why.clone(),
            Some(_) => "another library has this name there".to_owned(),
            None => "it is not found there".to_owned(),
        }),
    }
}

/// The index of the library to call, and why: the fastest, or the first that serves if it is hardly
/// slower.
pub fn fastest(tried: &[RatedBlas]) -> Result<(usize, String), String> {
    let rate = |at: usize| tried[at].gflops_per_core.unwrap_or(0.0);
    let serving: Vec<usize> = (0..tried.len()).filter(|&at| tried[at].refused.is_none()).collect();
    let Some(&first) = serving.first() else {
        let all: Vec<String> = tried.iter().map(RatedBlas::words).collect();
        return Err(format!("no library serves; {}", all.join("; ")));
    };
    if serving.len() == 1 {
        return Ok((first, "no other library was found that serves".to_owned()));
    }
    let best = serving.into_iter().max_by(|&a, &b| rate(a).total_cmp(&rate(b))).unwrap_or(first);
    let gain = rate(best) / rate(first) - 1.0;
    if gain >= MIN_GAIN {
        return Ok((best, format!("{:.0} % faster than {}", 100.0 * gain, tried[first].name)));
    }
    Ok((first, format!("no other library is {:.0} % faster", 100.0 * MIN_GAIN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(name: &str, gflops: f64) -> RatedBlas {
        RatedBlas { name: name.to_owned(), gflops_per_core: Some(gflops), refused: None }
    }

    fn refused(name: &str, why: &str) -> RatedBlas {
        RatedBlas { refused: Some(why.to_owned()), gflops_per_core: None, name: name.to_owned() }
    }

    #[test]
    fn the_first_library_is_kept_unless_another_is_clearly_faster() {
        let chosen = |others: &[RatedBlas]| {
            let all = [&[refused("z", "it is wrong"), rated("first", 100.0)], others].concat();
            fastest(&all).map(|(index, why)| (all[index].name.clone(), why)).unwrap()
        };
        let of = |others: &[RatedBlas]| chosen(others).0;
        assert_eq!(of(&[]), "first");
        assert_eq!(of(&[rated("a", 101.9)]), "first");
        assert_eq!(of(&[rated("a", 60.0), rated("b", 102.1), rated("c", 102.0)]), "b");
        assert_eq!(of(&[refused("a", "it crashes"), rated("b", 80.0)]), "first");
        assert_eq!(chosen(&[rated("a", 150.0)]).1, "50 % faster than first");
        let none = chosen(&[refused("a", "it crashes")]).1;
        assert_eq!(none, "no other library was found that serves");
        let why = fastest(&[refused("a", "it is wrong")]).unwrap_err();
        assert_eq!(why, "no library serves; a is refused: it is wrong");
        assert!(fastest(&[]).is_err());
    }

    fn tried(name: &str, sum: &str, refused: Option<&str>) -> TriedBlas {
        let files = if sum.is_empty() { [].into() } else { [("lib.so", sum)].into() };
        let id = LibraryId { name: name.to_owned(), files };
        TriedBlas { id, refused: refused.map(str::to_owned) }
    }

    #[test]
    fn a_library_serves_if_all_ranks_have_the_same_and_accept_it() {
        let first = vec![
            tried("built-in", "", None),
            tried("same", "1", None),
            tried("moved", "2", None),
            tried("other", "3", None),
            tried("missing", "4", None),
            tried("crashes", "5", None),
            tried("refused", "6", Some("no")),
        ];
        let second = vec![
            tried("built-in", "", None),
            tried("same", "1", None),
            tried("/opt/moved", "2", None),
            tried("other", "33", None),
            tried("crashes", "", Some("it crashes")),
            tried("refused", "6", None),
        ];
        let ranks = [("rank 0 on a".to_owned(), first), ("rank 1 on b".to_owned(), second)];
        let why: Vec<Option<String>> = on_all(&ranks).into_iter().map(|it| it.refused).collect();
        let at = |why: &str| Some(format!("rank 1 on b: {why}"));
        assert_eq!(
            why,
            [
                None,
                None,
                None,
                at("another library has this name there"),
                at("it is not found there"),
                at("it crashes"),
                Some("no".to_owned()),
            ]
        );
        assert_eq!(on_all(&[]), []);
    }
}
