//! Changed copies of an HPL.dat, as `scripts/dev/mutations` makes them: read with leniency, each
//! gives the parameters that HPL 2.3 prints for it.

use skt_config::{Format, parse};
use skt_hpl::report::text::{TextOptions, TextReport};

const BASE: &str = include_str!("../golden/reports/mutations.dat");
const MUTATIONS: &str = include_str!("../golden/reports/mutations");

/// The copy with these changes.
fn changed(changes: &[&str]) -> String {
    let mut lines: Vec<String> = BASE.lines().map(str::to_owned).collect();
    for change in changes {
        if let Some(kept) = change.strip_prefix("keep ") {
            lines.truncate(kept.parse().expect("a number"));
            continue;
        }
        let (head, text) = change.split_once(':').unwrap_or((change, ""));
        let text = text.strip_prefix(' ').unwrap_or(text).replace("\\t", "\t").replace("\\r", "\r");
        let number: usize = head.trim_start_matches(['+', '-']).parse().expect("a line");
        match &head[..1] {
            "+" => lines.insert(number - 1, text),
            "-" => drop(lines.remove(number - 1)),
            _ => lines[number - 1] = text,
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The lines of the parameters in the report of a run on one rank, or why it is refused.
fn parameters(dat: &str) -> Result<Vec<String>, String> {
    let checked = parse(dat.as_bytes(), "HPL.dat", Format::Dat, true);
    let checked = checked.map_err(|error| error.to_string())?;
    checked.require_ranks(1).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    TextReport::new(&mut out, &checked.spec, TextOptions::default()).header().expect("memory");
    let report = String::from_utf8(out).expect("text");
    let lines = report.lines().skip_while(|line| !line.starts_with("N      :") || line.len() > 60);
    let end = |line: &&str| line.starts_with("ALIGN");
    let count = lines.clone().position(|line| end(&line)).expect("a last parameter") + 1;
    Ok(lines.take(count).map(str::to_owned).collect())
}

#[test]
fn changed_copies_have_the_parameters_of_the_reference() {
    let usual = parameters(BASE).expect("a legal file");
    let mut wrong = Vec::new();
    let mut counts = [0, 0];
    for record in MUTATIONS.split("\n\n").skip(1) {
        let (theirs, changes): (Vec<&str>, Vec<&str>) =
            record.lines().partition(|line| line.starts_with("> "));
        let ours = parameters(&changed(&changes));
        let is_refused = theirs == ["> refused"];
        counts[usize::from(is_refused)] += 1;
        // What the reference refuses may run here.
        if is_refused {
            continue;
        }
        let differing = match ours {
            Ok(ours) => ours.into_iter().filter(|line| !usual.contains(line)).collect(),
            Err(why) => vec![why],
        };
        let mut differing: Vec<String> = differing.iter().map(|line| format!("> {line}")).collect();
        if differing.is_empty() {
            differing.push("> as it is".to_owned());
        }
        if differing != theirs {
            wrong.push(format!("{record}\nhere:\n{}", differing.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {counts:?}:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(counts[0] >= 150 && counts[1] >= 20, "{counts:?}");
}
