//! The buffers of the reference's `HPL_pdinfo`, from which it takes a value even where HPL.dat has
//! none.
//!
//! `HPL_pdinfo` takes a line by `fgets(line, HPL_LINE_MAX - 2, file)` and a token by
//! `sscanf(text, "%s", num)`, and ignores what both return:
//! - A line has at most 253 bytes; the rest is the next line.
//! - After the last line, `line` keeps what it had; where no token follows, so does `num`.
//! - In a list, the next token is searched for at the length of the last one plus one, from the
//!   first column on. With more blanks, the end of a token is read again; after the end of a line,
//!   what an earlier and longer one has left there is read.
//! - `atoi` and `atof` make 0 of a token that is no number.
//!
//! Memory that nothing was read into has no token here.

/// What `fgets` reads at most: `HPL_LINE_MAX` is 256, and one byte is for the NUL at the end.
const LINE_BYTES: usize = 253;

pub(super) struct Buffers<'a> {
    rest: &'a [u8],
    /// `line`: the last line with a NUL, then what earlier lines have left.
    line: Vec<u8>,
    /// `num`.
    word: Vec<u8>,
    /// How often `fgets` was called.
    calls: usize,
}

impl<'a> Buffers<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, line: Vec::new(), word: Vec::new(), calls: 0 }
    }

    /// Reads the next line and returns it; `None`: there is none, and the buffer is as it was.
    pub(super) fn next_line(&mut self) -> Option<&'a [u8]> {
        let most = &self.rest[..self.rest.len().min(LINE_BYTES)];
        let length = most.iter().position(|&byte| byte == b'\n').map_or(most.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.calls += 1;
        // The second line goes to another buffer.
        if length > 0 && self.calls != 2 {
            self.line.resize(self.line.len().max(length + 1), 0);
            self.line[..length].copy_from_slice(line);
            self.line[length] = 0;
        }
        (length > 0).then_some(line)
    }

    /// The first token of the line, else the last token that was read.
    pub(super) fn word(&mut self) -> &[u8] {
        self.scan(0)
    }

    pub(super) fn words(&mut self, count: usize) -> Vec<String> {
        let mut at = 0;
        let mut next = || {
            let word = self.scan(at);
            at += word.len() + 1;
            String::from_utf8_lossy(word).into_owned()
        };
        (0..count).map(|_| next()).collect()
    }

    fn scan(&mut self, at: usize) -> &[u8] {
        let text = self.line.get(at..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        if let Some(word) = tokens(text).next() {
            self.word = word.to_vec();
        }
        &self.word
    }
}

/// Whether C's `isspace` takes the byte for a blank.
pub(super) fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// The tokens that `sscanf` finds in a text one after the other.
pub(super) fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_blank).filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(line: &str, count: usize) -> String {
        let text = format!("a first line of some length\nanother\n{line}\n");
        let mut buffers = Buffers::new(text.as_bytes());
        assert!((0..3).all(|_| buffers.next_line().is_some()));
        buffers.words(count).join(" ")
    }

    /// Each as HPL 2.3 reads it.
    #[test]
    fn lists_are_stepped_through_by_length() {
        assert_eq!(list("29 30 34 35 Ns", 4), "29 30 34 35");
        assert_eq!(list("200          Ns", 4), "200 Ns Ns Ns");
        assert_eq!(list("200,300       Ns", 2), "200,300 Ns");
        assert_eq!(list("1000    2000    3000", 3), "1000 2000 00");
        assert_eq!(list("  29 35", 2), "29 9");
        // The end of the line keeps `64`; after it is the first line: `t line of some length`.
        assert_eq!(list("64", 4), "64 64 t line");
    }

    #[test]
    fn a_buffer_keeps_what_it_had() {
        let mut buffers = Buffers::new(b"title\nx\n12 Ns\n\n");
        let mut next = |word: &[u8], is_there| {
            assert_eq!(buffers.next_line().is_some(), is_there);
            assert_eq!(buffers.word(), word);
        };
        next(b"title", true);
        next(b"title", true);
        next(b"12", true);
        next(b"12", true);
        next(b"12", false);
    }

    #[test]
    fn a_long_line_is_two() {
        let text = format!("{}7 rest\n", "x".repeat(LINE_BYTES));
        let mut buffers = Buffers::new(text.as_bytes());
        assert!(buffers.next_line().is_some() && buffers.word().len() == LINE_BYTES);
        let mut third = Buffers { calls: 2, ..buffers };
        assert!(third.next_line().is_some() && third.word() == b"7");
        assert_eq!(third.next_line(), None);
    }
}
