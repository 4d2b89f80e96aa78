//! The checksums of an archive's files, as `sha256sum` writes and checks them.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{BundleError, Member, SUMS};

pub fn list(members: &[Member]) -> Member {
    let line = |member: &Member| format!("{}  {}\n", sum(&member.bytes), member.name);
    let text: String = members.iter().map(line).collect();
    Member { name: SUMS.to_owned(), bytes: text.into_bytes() }
}

/// Checks that each file but the list has the checksum that the list gives it, and that no file of
/// the list is missing.
///
/// # Errors
/// The first file for which that does not hold.
pub fn check(members: &[Member]) -> Result<(), BundleError> {
    let (lists, files): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.name == SUMS);
    let list = lists.first().ok_or_else(|| BundleError::Lacks(SUMS.to_owned()))?;
    let mut listed = parse(&list.bytes)?;
    for member in files {
        match listed.remove(member.name.as_str()) {
            None => return Err(BundleError::Unlisted(member.name.clone())),
            Some(listed) if listed != sum(&member.bytes) => {
                return Err(BundleError::Changed(member.name.clone()));
            }
            Some(_) => {}
        }
    }
    match listed.into_keys().next() {
        Some(name) => Err(BundleError::Lacks(skt_terms::shown::shown(name))),
        None => Ok(()),
    }
}

/// The checksum of each name in a list.
fn parse(list: &[u8]) -> Result<BTreeMap<&str, String>, BundleError> {
    let text = std::str::from_utf8(list).map_err(|_| BundleError::Sums(1))?;
    let entry = |(number, line)| parse_line(line).ok_or(BundleError::Sums(number));
    (1..).zip(text.lines()).map(entry).collect()
}

/// The name and the checksum of a line. Two spaces precede the name or, if `sha256sum` read the
/// file as binary, a space and `*`.
fn parse_line(line: &str) -> Option<(&str, String)> {
    let (sum, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?;
    let is_sum = sum.len() == 64 && sum.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_sum && !name.is_empty()).then(|| (name, sum.to_ascii_lowercase()))
}

/// The SHA-256 of `bytes`, in hexadecimal digits.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of FIPS 180-4.
    #[test]
    fn sums_are_those_of_the_standard() {
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(b"abc"), of_abc);
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sum(b""), of_nothing);
    }

    #[test]
    fn lines_of_sha256sum_are_read_and_others_are_not() {
        let digits = "0aF".repeat(21) + "1";
        let of = |line: String| parse_line(&line).map(|(name, _)| name.to_owned());
        assert_eq!(of(format!("{digits}  a b")), Some("a b".to_owned()));
        assert_eq!(of(format!("{digits} *a")), Some("a".to_owned()));
        for wrong in [
            String::new(),
            digits.clone(),
            format!("{digits} a"),
            format!("{digits}  "),
            format!("{}  a", &digits[1..]),
            format!("g{}  a", &digits[1..]),
        ] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
        assert!(matches!(parse(b"\n"), Err(BundleError::Sums(1))));
    }
}
