//! The parameters that the writer and the reader of a segment must agree on.

use std::collections::BTreeMap;

use skt_store::codec::checksum;

/// Version of the layout of segments and headers; segments of another version have another shape.
pub const FORMAT: u32 = 5;
/// Name of that number among the parameters.
pub const FORMAT_NAME: &str = "format";

/// Prefix of the names of an application's own parameters.
pub(crate) const APPLICATION: &str = "application: ";

/// Names and values, for people to read.
pub(crate) type Parameters = BTreeMap<String, String>;

/// Checksum of the name of the run and all parameters.
pub(crate) fn parameters_fingerprint(run_id: &str, parameters: &Parameters) -> u64 {
    checksum(&serde_json::to_vec(&(run_id, parameters)).expect("plain data"))
}

pub(crate) fn cut_to(mut parameters: Parameters, max_bytes: usize) -> Parameters {
    let bytes = |all: &Parameters| serde_json::to_vec(all).expect("plain data").len();
    while bytes(&parameters) > max_bytes {
        let longest = parameters.iter().max_by_key(|(_, value)| value.len());
        let name = longest.expect("without any there is room").0.clone();
        parameters.remove(&name);
    }
    parameters
}

const SHOWN_CHARS: usize = 200;

/// A value for a message: a long one, such as the groups of many ranks, is cut.
pub fn cut_value(value: &str) -> String {
    match value.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => shown(value).to_owned(),
    }
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "(empty)" } else { value }
}

pub(crate) fn differences(theirs: &Parameters, ours: &Parameters) -> String {
    if theirs.get(FORMAT_NAME) != ours.get(FORMAT_NAME) {
        return "it is of another version of this program".to_owned();
    }
    // A parameter that was cut away there may or may not differ.
    let other = theirs.iter().filter(|(name, value)| ours.get(*name) != Some(value));
    let mut words: Vec<String> = other
        .map(|(name, theirs)| match ours.get(name) {
            Some(ours) => format!("{name} {} there, {} here", shown(theirs), shown(ours)),
            None => format!("{name} {} there, not given here", shown(theirs)),
        })
        .collect();
    // Other differences may follow from what only one of them is given.
    let is_explained = |name: &str| !words.is_empty() && !name.starts_with(APPLICATION);
    let missing: Vec<String> = ours
        .iter()
        .filter(|(name, _)| !theirs.contains_key(*name) && !is_explained(name))
        .map(|(name, ours)| {
            format!("{name} not given there, or no room for it; {} here", cut_value(ours))
        })
        .collect();
    words.extend(missing);
    if words.is_empty() {
        return "they differ in what has no room in it".to_owned();
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::config::Config;
    use skt_store::codec::CodecKind;
    use skt_store::layout::RegionShape;

    #[test]
    fn differences_are_reported_field_by_field() {
        let config = |application: &str| Config {
            application: application.to_owned(),
            ..Config::new("run", CodecKind::Xor)
        };
        let shape = RegionShape { rows: 3, pitch_bytes: 16 };
        let there = config(r#"{"n": 100, "nb": 8}"#).parameters(&[shape], 4);
        let here = Config { state_capacity_bytes: 9, ..config(r#"{"n": 200, "nb": 8}"#) };
        let here = here.parameters(&[shape], 2);
        assert_eq!(
            differences(&there, &here),
            "application: n 100 there, 200 here; bytes of state 4096 there, 9 here; \
             ranks 4 there, 2 here"
        );
        assert_ne!(parameters_fingerprint("run", &there), parameters_fingerprint("run", &here));
        assert_ne!(parameters_fingerprint("run", &there), parameters_fingerprint("ran", &there));
        assert!(differences(&Parameters::new(), &here).contains("another version"));
        let default = config(r#"{"n": 100}"#).parameters(&[shape], 4);
        let given = config(r#"{"n": 100, "gemm": "bf16"}"#).parameters(&[shape], 4);
        let want = "application: gemm not given there, or no room for it; \"bf16\" here";
        assert_eq!(differences(&default, &given), want);
        let wider = RegionShape { pitch_bytes: 24, ..shape };
        let given_wider = config(r#"{"n": 100, "gemm": "bf16"}"#).parameters(&[wider], 4);
        let both = differences(&default, &given_wider);
        assert!(both.contains("24 bytes here") && both.ends_with(want), "{both}");
        let want = "application: gemm \"bf16\" there, not given here";
        assert_eq!(differences(&given, &default), want);
        assert_eq!(differences(&given, &given), "they differ in what has no room in it");
        let cut = cut_to(config(&"x".repeat(5000)).parameters(&[shape], 4), 1000);
        assert!(!cut.contains_key("application") && cut["ranks"] == "4");
        assert!(differences(&cut, &config("y").parameters(&[shape], 4)).contains("no room"));
    }
}
