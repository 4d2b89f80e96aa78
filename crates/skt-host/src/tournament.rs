//! Pairs that work at the same time, round by round, so that no pair meets twice.

/// Up to `most` rounds of a tournament of `players`, by the circle method: the last player stays,
/// the others move on around a circle. In each round a player is in one pair; if the number of
/// players is odd, each rests in one of all the rounds. Pairs are in ascending order.
pub fn rounds(players: usize, most: usize) -> Vec<Vec<[usize; 2]>> {
    if players < 2 {
        return Vec::new();
    }
    let even = players.next_multiple_of(2);
    (0..most.min(even - 1)).map(|round| pairs(players, even, round)).collect()
}

/// Round `round` of `even` players; players numbered `players` and above do not exist.
fn pairs(players: usize, even: usize, round: usize) -> Vec<[usize; 2]> {
    let circle = even - 1;
    let at = |place: usize| (place + round) % circle;
    let first = (at(0), even - 1);
    let others = (1..even / 2).map(|place| (at(place), at(circle - place)));
    let ordered = |(a, b): (usize, usize)| [a.min(b), a.max(b)];
    std::iter::once(first).chain(others).map(ordered).filter(|pair| pair[1] < players).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_meets_once() {
        for players in 0..40 {
            let rounds = rounds(players, usize::MAX);
            let mut met = BTreeSet::new();
            for round in &rounds {
                let members: BTreeSet<usize> = round.iter().flatten().copied().collect();
                assert_eq!(members.len(), 2 * round.len(), "{players}: {round:?}");
                assert!(round.iter().all(|pair| pair[0] < pair[1] && met.insert(*pair)));
            }
            assert_eq!(met.len(), players * players.saturating_sub(1) / 2, "{players}");
        }
        assert_eq!(rounds(9, 3).len(), 3);
    }
}
