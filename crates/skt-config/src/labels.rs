//! The labels of an HPL.dat, which are comments, compared with the lines that they are in.
//!
//! HPL.dat is read by position, so a line too few or too many makes each later line look wrong, or
//! gives it the value of another. Most files have the reference's labels: a label in the wrong line
//! names the cause. A label that is missing or unknown is ignored.

use std::sync::Arc;

use skt_terms::shown::shown;

use super::error::{At, Misplaced};
use super::source::ValueSource;

/// Number of lines of an HPL.dat.
pub(crate) const LINES: usize = 31;

/// The lines and how their labels begin, in small letters, without punctuation. `#` stands for
/// `# of` or `number of`, `$` for the end.
const LABELS: &[(usize, &[&str])] = &[
    (OUTPUT_FILE, &["output file", "output filename", "file name"]),
    (4, &["device", "output device"]),
    (5, &["# problem", "# problems", "# n", "# ns"]),
    (6, &["ns", "n $"]),
    (7, &["# nbs", "# nb", "# block", "# blocking"]),
    (8, &["nbs", "nb"]),
    (9, &["pmap", "process mapping"]),
    (10, &["# process grids", "# process grid", "# grids"]),
    (11, &["ps", "p $"]),
    (12, &["qs", "q $"]),
    (THRESHOLD, &["threshold", "residual threshold"]),
    (14, &["# panel fact", "# panel factorizations", "# pfacts"]),
    (15, &["pfacts", "pfact"]),
    (16, &["# recursive stopping", "# nbmins"]),
    (17, &["nbmins", "nbmin"]),
    (18, &["# panels in", "# ndivs"]),
    (19, &["ndivs", "ndiv"]),
    (20, &["# recursive panel", "# rfacts"]),
    (21, &["rfacts", "rfact"]),
    (22, &["# broadcast", "# broadcasts", "# bcasts"]),
    (23, &["bcasts", "bcast"]),
    (24, &["# lookahead", "# look ahead", "# depths"]),
    (25, &["depths", "depth"]),
    // Before `swap` alone.
    (SWAP_THRESHOLD, &["swapping threshold", "swap threshold"]),
    (SWAP, &["swap"]),
    (28, &["l1"]),
    (29, &["u in", "u $"]),
    (30, &["equilibration"]),
    (31, &["memory alignment", "alignment"]),
];

const OUTPUT_FILE: usize = 3;
const THRESHOLD: usize = 13;
const SWAP: usize = 26;
const SWAP_THRESHOLD: usize = 27;

/// Lines whose labels are easily confused, and are not taken for a mistake if one of them alone is
/// in another's place: a count and its list, and the two thresholds.
const ALIKE: &[&[usize]] = &[
    &[5, 6],
    &[7, 8],
    &[10, 11, 12],
    &[14, 15],
    &[16, 17],
    &[18, 19],
    &[20, 21],
    &[22, 23],
    &[24, 25],
    &[THRESHOLD, SWAP_THRESHOLD],
    &[SWAP, SWAP_THRESHOLD],
];

/// Finds the first line whose label belongs in another line, and why it most likely does.
/// `file` is its name in messages.
pub(super) fn find_misplaced(lines: &[&[u8]], file: &Arc<str>) -> Option<Misplaced> {
    // What follows the last line is ignored, unless it is that line.
    let is_read = |index: usize, home: usize| index < LINES || home == LINES;
    let found = lines.iter().take(LINES + 1).enumerate();
    let found = found.map(|(index, line)| label(line).filter(|(home, _)| is_read(index, *home)));
    let found = found.collect();
    let labels = Labels { lines, file, found };
    (1..=labels.found.len()).find_map(|line| labels.judge(line))
}

/// Whether lines may be those of an HPL-MxP.dat, whose grid has no count and is followed, after the
/// threshold, by the broadcasts: each label that is known is in its place there.
pub(super) fn may_be_of_mxp(lines: &[&[u8]]) -> bool {
    const HOMES: [usize; 5] = [11, 12, THRESHOLD, 22, 23];
    lines[9..].iter().zip(HOMES).all(|(line, home)| label(line).is_none_or(|(at, _)| at == home))
}

/// A known label: the line that it belongs in, and its text.
type Label = Option<(usize, String)>;

/// The label of a line, if it is known.
fn label(line: &[u8]) -> Label {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let values = words.iter().take_while(|word| begins_like_a_number(word)).count();
    if values > 0 {
        return known(&words[values..]);
    }
    // A line without a number is the file's name with its label, the label alone, or free text.
    let of_file = |label: &(usize, String)| label.0 == OUTPUT_FILE;
    known(words.get(1..)?).filter(of_file).or_else(|| known(&words).filter(of_file))
}

fn begins_like_a_number(word: &str) -> bool {
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    digits.strip_prefix('.').unwrap_or(digits).starts_with(|c: char| c.is_ascii_digit())
}

/// The label that these words begin with.
fn known(words: &[&str]) -> Label {
    let lower = words.join(" ").to_lowercase();
    let mut parts: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let count = match parts[..] {
        ["of", ..] => 1,
        ["number" | "num" | "no" | "nr", "of", ..] => 2,
        _ => 0,
    };
    if count > 0 {
        parts.splice(..count, ["#"]);
    }
    let normal = parts.join(" ") + " $ ";
    let begins =
        |start: &&str| normal.strip_prefix(start).is_some_and(|rest| rest.starts_with(' '));
    let (line, _) = LABELS.iter().find(|(_, starts)| starts.iter().any(begins))?;
    Some((*line, shown(words.join(" ").trim_start_matches([';', ':', '!', '/', ' ']))))
}

struct Labels<'a> {
    lines: &'a [&'a [u8]],
    file: &'a Arc<str>,
    found: Vec<Label>,
}

impl Labels<'_> {
    /// The line in which the label of `line` belongs.
    fn home(&self, line: usize) -> Option<usize> {
        self.found.get(line.wrapping_sub(1))?.as_ref().map(|(home, _)| *home)
    }

    fn is_in_place(&self, line: usize) -> bool {
        self.home(line) == Some(line)
    }

    /// Whether the next line after `line` that has a known label is in place. `None`: there is no
    /// such line.
    fn is_next_in_place(&self, line: usize) -> Option<bool> {
        let next = (line + 1..=self.found.len()).find(|&next| self.home(next).is_some())?;
        Some(self.is_in_place(next))
    }

    /// Judges a line; all lines before it were found in place or without a known label.
    fn judge(&self, line: usize) -> Option<Misplaced> {
        let (home, text) = self.found[line - 1].as_ref().filter(|(home, _)| *home != line)?;
        let home = *home;
        let last_in_place = (1..line).rev().find(|&l| self.is_in_place(l)).unwrap_or(0);
        let label = format!("label `{text}`");
        let misplaced = |why: String| Misplaced {
            at: self.at(line, &label),
            what: format!("belongs in line {home}; {why}"),
            first_doubtful: last_in_place + 1,
            is_alone: false,
        };
        let why = if self.is_swapped(line, home) {
            format!("are lines {line} and {home} swapped?")
        } else if self.is_next_in_place(line) == Some(true) {
            // The lines that follow are where they belong, so none is missing.
            let is_usual = line < OUTPUT_FILE
                || ALIKE.iter().any(|alike| alike.contains(&line) && alike.contains(&home));
            let alone = misplaced("is it in the wrong place?".to_owned());
            return (!is_usual).then_some(Misplaced { is_alone: true, ..alone });
        } else if home + 1 != line && self.home(line + 1) == Some(line) {
            format!("is line {line} additional?")
        } else if home > line + 1 {
            format!("are {} lines missing before it?", home - line)
        } else if home > line {
            "is a line missing before it?".to_owned()
        } else if self.is_in_place(home) {
            format!(
                "line {home} has it as well: is line {line} additional (a list has its values in \
                 one line)?"
            )
        } else if let Some(only) = self.likely_additional(last_in_place + 1, line, line - home) {
            let what = format!(
                "is this line additional? Line {line} has the {label}, which belongs in line {home}"
            );
            let at = self.at(only, &format!("`{}`", shown(&self.text(only))));
            return Some(Misplaced { at, what, ..misplaced(String::new()) });
        } else {
            format!("is one of the lines {} to {} additional?", last_in_place + 1, line - 1)
        };
        Some(misplaced(why))
    }

    fn at(&self, line: usize, name: &str) -> At {
        At::named(name, &ValueSource::Dat { file: self.file.clone(), line })
    }

    fn text(&self, line: usize) -> String {
        String::from_utf8_lossy(self.lines[line - 1]).trim().to_owned()
    }

    /// Whether the lines are in each other's place, as far as their labels are known.
    fn is_swapped(&self, line: usize, home: usize) -> bool {
        if home < line || home > self.found.len() {
            return false;
        }
        let mut later = (line + 1..=self.found.len()).filter(|&l| l != home);
        let between = later.find(|&l| self.home(l).is_some()).map(|l| self.is_in_place(l));
        let after = self.is_next_in_place(home);
        match self.home(home) {
            Some(other) => other == line && between != Some(false) && after != Some(false),
            // Without a label, only the lines that follow show that none is missing.
            None => between == Some(true) && after == Some(true),
        }
    }

    /// The one line before `line`, from `first` on, that is most likely additional if `surplus`
    /// lines are: the only one there, else the blank one, else the one that repeats another.
    fn likely_additional(&self, first: usize, line: usize, surplus: usize) -> Option<usize> {
        let lines = || first..line;
        let blank = lines().filter(|&l| self.text(l).is_empty()).collect();
        let again = lines().filter(|&l| l > 1 && self.text(l) == self.text(l - 1)).collect();
        let candidates: [Vec<usize>; 3] = [lines().collect(), blank, again];
        let single = candidates.into_iter().find(|lines| lines.len() == 1)?;
        (surplus == 1).then_some(single[0])
    }
}
