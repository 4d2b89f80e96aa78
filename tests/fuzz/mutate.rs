//! Mutations of a corpus, each determined by its seed.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The length at which inputs are cut; they stay about as short as those of the corpus, except for
/// mutations that make them long.
const LONG_BYTES: usize = 1 << 16;

/// Numbers at the ends of the types into which a reader may put them.
const EXTREMES: [&str; 30] = [
    "0",
    "1",
    "-1",
    "2",
    "20",
    "21",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740992",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "170141183460469231731687303715884105728",
    "1e308",
    "-1e308",
    "1e309",
    "5e-324",
    "-0.0",
    "nan",
    "1e-400",
];

/// Texts that are awkward anywhere: control and combining characters, a terminal's escape sequence,
/// a byte order mark, bytes that are not UTF-8.
const AWKWARD: [&[u8]; 10] = [
    b"\x1b[31m",
    b"\0",
    b"\r",
    b"\x7f",
    b"\xc2\x85",
    b"\xcc\x81",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\t",
    b"\\u001b",
];

/// Makes inputs from a corpus and a dictionary.
pub struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    tokens: &'a [&'a str],
    random: Xoshiro256PlusPlus,
}

impl<'a> Mutator<'a> {
    /// The input of a seed. The first seeds are the corpus itself.
    pub fn input(corpus: &'a [Vec<u8>], tokens: &'a [&'a str], seed: u64) -> Vec<u8> {
        if let Some(whole) = corpus.get(seed as usize) {
            return whole.clone();
        }
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut mutator = Self { corpus, tokens, random };
        let mut input = mutator.other().to_vec();
        // Mostly few, so that the reader does not fail at the first of them.
        let mutations = 1 + mutator.below(3) * mutator.below(4);
        for _ in 0..mutations {
            mutator.mutate(&mut input);
        }
        input
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound.max(1) as u64) as usize
    }

    fn other(&mut self) -> &'a [u8] {
        &self.corpus[self.below(self.corpus.len())]
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(14) {
            0 | 1 => self.flip(input),
            2 => drop(input.splice(self.range(input.len()), [])),
            3 => input.truncate(at),
            4 => {
                let other = self.other();
                let range = self.range(other.len());
                let to = self.range(input.len());
                drop(input.splice(to, other[range].iter().copied()));
            }
            5 | 6 => self.insert_token(input, at),
            7..=9 => self.replace_number(input),
            10 => self.duplicate_line(input),
            11 => self.swap_lines(input),
            12 => drop(input.splice(at..at, AWKWARD[self.below(AWKWARD.len())].iter().copied())),
            _ => self.lengthen(input, at),
        }
    }

    /// A random range of bytes, mostly short.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = if self.below(4) == 0 { len - start } else { (len - start).min(16) };
        start..start + self.below(most + 1)
    }

    fn flip(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.below(input.len());
            input[at] ^= match self.below(4) {
                0 => self.random.next_u64() as u8,
                _ => 1 << self.below(8),
            };
        }
    }

    fn insert_token(&mut self, input: &mut Vec<u8>, at: usize) {
        let token = match self.below(3) {
            0 => EXTREMES[self.below(EXTREMES.len())],
            _ if self.tokens.is_empty() => " ",
            _ => self.tokens[self.below(self.tokens.len())],
        };
        let end = at + if self.below(2) == 0 { 0 } else { token.len().min(input.len() - at) };
        input.splice(at..end, token.bytes());
    }

    /// Replaces one of the numbers by an extreme.
    fn replace_number(&mut self, input: &mut Vec<u8>) {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.".contains(byte);
        let starts: Vec<usize> = (0..input.len())
            .filter(|&at| is_part(&input[at]) && (at == 0 || !is_part(&input[at - 1])))
            .collect();
        if starts.is_empty() {
            return;
        }
        let start = starts[self.below(starts.len())];
        let len = input[start..].iter().take_while(|byte| is_part(byte)).count();
        let extreme = EXTREMES[self.below(EXTREMES.len())];
        input.splice(start..start + len, extreme.bytes());
    }

    fn lines(input: &[u8]) -> Vec<Vec<u8>> {
        input.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    fn duplicate_line(&mut self, input: &mut Vec<u8>) {
        let mut lines = Self::lines(input);
        if !lines.is_empty() && input.len() < LONG_BYTES {
            let line = lines[self.below(lines.len())].clone();
            let times = 1 + self.below(3);
            let at = self.below(lines.len() + 1);
            lines.splice(at..at, std::iter::repeat_n(line, times));
            *input = lines.concat();
        }
    }

    fn swap_lines(&mut self, input: &mut Vec<u8>) {
        let mut lines = Self::lines(input);
        let (one, other) = (self.below(lines.len()), self.below(lines.len()));
        if !lines.is_empty() {
            lines.swap(one, other);
            *input = lines.concat();
        }
    }

    /// Repeats a few bytes until the input is very long.
    fn lengthen(&mut self, input: &mut Vec<u8>, at: usize) {
        let end = (at + 1 + self.below(8)).min(input.len());
        let bytes = match input[at..end] {
            [] => b"9".to_vec(),
            ref some => some.to_vec(),
        };
        let times = LONG_BYTES >> self.below(16);
        if input.len() < LONG_BYTES {
            input.splice(at..at, bytes.repeat((times / bytes.len()).max(1)));
        }
    }
}
