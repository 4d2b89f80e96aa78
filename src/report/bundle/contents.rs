//! The files of an archive, which follow from a JSON report.

use serde_json::Value;
use skt_terms::shown::{printable, shell_quoted, shown_message};

use super::{BundleError, Member, REPORT, archive, sums};
use crate::report::html::{self, NamedRun};
use crate::report::reader::RunReport;
use skt_config::Format;

/// A file that the archive gets in addition to those that follow from the report.
pub type Extra = (&'static str, Vec<u8>);

/// The archive of a report, given as text and as it was read.
pub fn from_report(text: &str, run: &NamedRun, extra: Vec<Extra>) -> Result<Vec<u8>, BundleError> {
    let report = &run.report;
    let lines = report.text_report.as_ref().ok_or(BundleError::Older)?;
    let shown = |text: &str| printable(text).into_owned().into_bytes();
    let mut files = vec![
        ("HPL.out", shown(lines)),
        ("command-line.txt", shown(&command_line(report))),
        ("environment.txt", shown(&environment(text))),
        (REPORT, text.as_bytes().to_owned()),
        ("report.html", shown(&html::page(std::slice::from_ref(run)))),
    ];
    if let Some(configuration) = &report.configuration {
        let name = match configuration.format {
            Format::Dat => "HPL.dat",
            Format::Toml => "HPL.toml",
        };
        files.push((name, configuration.text.clone().into_bytes()));
    }
    files.extend(extra);
    files.sort();
    let member = |(name, bytes): (&str, _)| Member { name: name.to_owned(), bytes };
    let mut members: Vec<Member> = files.into_iter().map(member).collect();
    members.push(sums::list(&members));
    Ok(archive::pack(&folder(report), &members))
}

/// The name of the archive's folder, by the start of the run, so that those of two runs do not mix.
fn folder(report: &RunReport) -> String {
    let start = report.start.iter().flat_map(|start| start.chars());
    let start: String = start.filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("skt-hpl-{start}")
}

/// The command of rank 0, without that of the launcher, so that a shell reads it back.
fn command_line(report: &RunReport) -> String {
    let words: Vec<String> = report.command_line.iter().map(|word| shell_quoted(word)).collect();
    words.join(" ") + "\n"
}

fn environment(text: &str) -> String {
    let report: Value = serde_json::from_str(text).unwrap_or_default();
    let mut lines = String::new();
    for part in ["program", "environment", "dgemm_self_test"] {
        add_facts(part, &report[part], &mut lines);
    }
    lines
}

/// Adds `name: value`, for each member of a structure or a list.
fn add_facts(name: &str, value: &Value, lines: &mut String) {
    match value {
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(key, value)| add_facts(&format!("{name}.{key}"), value, lines));
        }
        Value::Array(items) => {
            let items = (0..).zip(items);
            items.for_each(|(i, item): (usize, _)| add_facts(&format!("{name}.{i}"), item, lines));
        }
        // What is not known has no line.
        Value::Null => {}
        Value::String(text) => lines.push_str(&format!("{name}: {}\n", shown_message(text))),
        other => lines.push_str(&format!("{name}: {other}\n")),
    }
}
