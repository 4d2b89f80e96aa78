//! Separates what comes on the standard error of a job: records for the supervisor, and the text of
//! the ranks and their launcher.
//!
//! The text of the user's program is passed on byte by byte and at once, as it may be a progress
//! bar without an end of line. What may be the beginning of a record is held until it is known.

use std::mem;

use super::program::{self, RankEnd};
use skt_checkpoint::heartbeat::{self, Heartbeat};

/// The most bytes of a record, and of a line that is kept to be searched.
const LINE_BYTES_MAX: usize = 1 << 20;
const MARKS: [&[u8]; 2] = [heartbeat::MARK.as_bytes(), program::MARK.as_bytes()];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(Vec<u8>),
    /// A line of text without the records in it. That of the user's program was passed on before;
    /// that of the benchmark is to be passed on now.
    Line(Vec<u8>),
    Heartbeat(Heartbeat),
    RankEnd(RankEnd),
}

#[derive(Debug)]
pub(crate) struct Sieve {
    is_of_program: bool,
    /// What may be a record, of which the end has not come.
    held: Vec<u8>,
    /// The present line so far, without records.
    line: Vec<u8>,
}

impl Sieve {
    /// A sieve for a job of the user's program or of the benchmark.
    pub(crate) fn new(is_of_program: bool) -> Self {
        Self { is_of_program, held: Vec::new(), line: Vec::new() }
    }

    /// The pieces of `bytes`, which come after those of the calls before. Records of jobs with
    /// another token than `token` are text.
    pub(crate) fn sift(&mut self, bytes: &[u8], token: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut held = mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut rest = &held[..];
        loop {
            let (text, from_mark) = rest.split_at(find_mark(rest));
            self.pass(text, &mut pieces);
            rest = from_mark;
            let Some(after) = rest.get(1..) else { break };
            // A record has no other mark in it.
            let end = find_mark(after) + 1;
            match rest[..end].iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let record = record(&rest[..=end], token);
                    let text_bytes = if record.is_some() { 0 } else { end + 1 };
                    self.pass(&rest[..text_bytes], &mut pieces);
                    pieces.extend(record);
                    rest = &rest[end + 1..];
                }
                None if end < rest.len() && is_whole_mark(&rest[end..])
                    || rest.len() > LINE_BYTES_MAX =>
                {
                    self.pass(&rest[..end], &mut pieces);
                    rest = &rest[end..];
                }
                None => break,
            }
        }
        self.held = rest.to_vec();
        pieces
    }

    /// The last pieces, once the job has ended.
    pub(crate) fn end(&mut self, token: &str) -> Vec<Piece> {
        let (held, mut pieces) = (mem::take(&mut self.held), Vec::new());
        match record(&held, token) {
            Some(record) => pieces.push(record),
            None => self.pass(&held, &mut pieces),
        }
        if !self.line.is_empty() {
            self.line.push(b'\n');
            pieces.push(Piece::Line(mem::take(&mut self.line)));
        }
        pieces
    }

    /// Passes text on, and keeps its last line.
    fn pass(&mut self, text: &[u8], pieces: &mut Vec<Piece>) {
        if self.is_of_program && !text.is_empty() {
            pieces.push(Piece::Text(text.to_vec()));
        }
        for part in text.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX - self.line.len();
            if part.len() <= room {
                self.line.extend_from_slice(part);
            } else if self.is_of_program {
                self.line.extend_from_slice(&part[..room]);
            } else {
                pieces.push(Piece::Text(mem::take(&mut self.line)));
                pieces.push(Piece::Text(part.to_vec()));
            }
            if part.ends_with(b"\n") && !self.line.is_empty() {
                pieces.push(Piece::Line(mem::take(&mut self.line)));
            }
        }
    }
}

/// Where the first mark begins, or what may become one, in `bytes`; their number if none does.
fn find_mark(bytes: &[u8]) -> usize {
    let begins = |at: &usize| {
        let rest = &bytes[*at..];
        MARKS.iter().any(|mark| rest.starts_with(mark) || mark.starts_with(rest))
    };
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == MARKS[0][0]);
    starts.map(|(at, _)| at).find(begins).unwrap_or(bytes.len())
}

fn is_whole_mark(bytes: &[u8]) -> bool {
    MARKS.iter().any(|mark| bytes.starts_with(mark))
}

/// The record in a line that begins with a mark.
fn record(line: &[u8], token: &str) -> Option<Piece> {
    let line = std::str::from_utf8(line).ok()?;
    let beat = Heartbeat::find(line, token).map(|(_, beat)| Piece::Heartbeat(beat));
    beat.or_else(|| RankEnd::find(line, token).map(|(_, end)| Piece::RankEnd(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProcessEnd;

    const TOKEN: &str = "r.1.3";

    fn record_of(token: &str) -> (Vec<u8>, Piece) {
        let (token, host) = (token.to_owned(), "n1".to_owned());
        let end = RankEnd { token, rank: Some(1), host, end: ProcessEnd::Signal(9) };
        (end.line().into_bytes(), Piece::RankEnd(end))
    }

    /// What the pieces of `parts` make: text that is passed on, lines, and records.
    fn sifted(is_of_program: bool, parts: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>, Vec<Piece>) {
        let mut sieve = Sieve::new(is_of_program);
        let mut pieces: Vec<Piece> =
            parts.iter().flat_map(|part| sieve.sift(part, TOKEN)).collect();
        pieces.extend(sieve.end(TOKEN));
        let (mut text, mut lines, mut records) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(bytes) => text.extend(bytes),
                Piece::Line(line) => lines.push(line),
                record => records.push(record),
            }
        }
        (text, lines, records)
    }

    #[test]
    fn bytes_of_a_program_pass_unchanged_and_records_are_found() {
        let (line, record) = record_of(TOKEN);
        let (foreign, _) = record_of("r.2.3");
        let stream = [
            b"caf\xe9\r12%",
            &line[..],
            b"\r13% @skt @skt-hpl-beat@{} \n",
            &line[..],
            &foreign[..],
            b"@skt-hpl-rank@",
            &line[..],
            b"end@",
        ];
        let text =
            [b"caf\xe9\r12%\r13% @skt @skt-hpl-beat@{} \n", &foreign[..], b"@skt-hpl-rank@end@"];
        let (stream, text) = (stream.concat(), text.concat());
        for bytes_at_a_time in 1..stream.len() {
            let parts: Vec<&[u8]> = stream.chunks(bytes_at_a_time).collect();
            let (passed, lines, records) = sifted(true, &parts);
            assert_eq!(passed, text, "{bytes_at_a_time}: {}", String::from_utf8_lossy(&passed));
            assert_eq!(records, vec![record.clone(); 3], "{bytes_at_a_time}");
            assert_eq!(lines.concat(), [&text[..], b"\n"].concat(), "{bytes_at_a_time}");
            assert_eq!(lines.len(), 3);
        }
    }

    #[test]
    fn text_without_an_end_of_line_passes_at_once() {
        let mut sieve = Sieve::new(true);
        for part in [&b"12%"[..], b"\r13% a@b"] {
            assert_eq!(sieve.sift(part, TOKEN), [Piece::Text(part.to_vec())]);
        }
        assert_eq!(sieve.sift(b"@skt", TOKEN), []);
        assert_eq!(sieve.sift(b"-x", TOKEN), [Piece::Text(b"@skt-x".to_vec())]);
    }

    #[test]
    fn benchmark_lines_are_passed_on_whole() {
        let (line, record) = record_of(TOKEN);
        let parts = [&b"warning: \xe9"[..], b"a\n12%", &line, b"rest"];
        let (text, lines, records) = sifted(false, &parts);
        assert_eq!((text, records), (Vec::new(), vec![record]));
        assert_eq!(lines, [&b"warning: \xe9a\n"[..], b"12%rest\n"]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let part = vec![b'x'; 300_000];
        let marked = [&part[..], b"@skt-hpl-beat@"].concat();
        for (part, is_of_program) in [(&part, true), (&marked, true), (&part, false)] {
            let (mut sieve, mut passed) = (Sieve::new(is_of_program), 0);
            for _ in 0..20 {
                for piece in sieve.sift(part, TOKEN) {
                    let Piece::Text(text) = piece else { panic!("{piece:?}") };
                    passed += text.len();
                }
                assert!(sieve.held.len() + sieve.line.len() < 2 * LINE_BYTES_MAX + part.len());
            }
            assert!(passed + LINE_BYTES_MAX + part.len() >= 20 * part.len(), "{passed}");
        }
    }
}
