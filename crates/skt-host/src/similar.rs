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
    let letter = |c: char| if c == '-' { '_' } else { c.to_ascii_lowercase() };
    let letters = |word: &str| word.chars().take(40).map(letter).collect::<String>();
    strsim::osa_distance(&letters(from), &letters(to))
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
