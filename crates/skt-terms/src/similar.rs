//! Words that a user may have meant.

/// The edits from one word to a similar one, of which at least half of the letters are right;
/// `None` if they are not similar.
pub fn edits(word: &str, known: &str) -> Option<usize> {
    let edits = distance(word, known);
    (2 * edits <= word.len()).then_some(edits)
}

/// Number of edits from one word to another (insertions, deletions, changes, swaps of neighbours),
/// on the first 40 characters, ignoring case.
fn distance(from: &str, to: &str) -> usize {
    let letters = |word: &str| -> Vec<char> {
        word.chars().take(40).map(|c| c.to_ascii_lowercase()).map(dash).collect()
    };
    let (from, to) = (letters(from), letters(to));
    // `edits[i][j]`: from the first i letters of one word to the first j of the other.
    let mut edits = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            if i == 0 || j == 0 {
                edits[i][j] = i + j;
                continue;
            }
            let changed = edits[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = changed.min(edits[i - 1][j] + 1).min(edits[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(edits[i - 2][j - 2] + 1);
            }
            edits[i][j] = least;
        }
    }
    edits[from.len()][to.len()]
}

fn dash(c: char) -> char {
    if c == '-' { '_' } else { c }
}

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn half_of_the_letters_of_similar_words_are_right() {
        assert_eq!(edits("bcats", "bcast"), Some(1));
        assert_eq!(edits("Swap-Treshold", "swap_threshold"), Some(1));
        assert_eq!(edits("output", "out"), Some(3));
        for (word, known) in [("grid", "run-id"), ("it", "parities"), ("gpus", "p")] {
            assert_eq!(edits(word, known), None, "{word}");
        }
    }
}
