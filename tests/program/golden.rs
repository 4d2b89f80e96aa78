//! Golden files. With `SKT_BLESS=1` the tests rewrite them, but for what the reference printed
//! (`*_reference.txt`).

use std::fs;

/// Compares `got` with the golden file `name`, in which the words of `names` stand for what differs
/// from one machine or version to the next.
#[track_caller]
pub fn assert_golden(name: &str, got: &str, names: &[(&str, &str)]) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SKT_BLESS").is_some() && !name.ends_with("_reference.txt") {
        let text =
            names.iter().fold(got.to_owned(), |text, (word, value)| text.replace(value, word));
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    let want = names.iter().fold(golden, |text, (word, value)| text.replace(word, value));
    for (i, (got, want)) in got.lines().zip(want.lines()).enumerate() {
        assert_eq!(got, want, "{name}, line {}", i + 1);
    }
    assert_eq!(got, want, "one text is longer than the other");
}
