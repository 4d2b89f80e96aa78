use std::fmt::Write as _;

use serde_json::Value;

const MAX_COLUMNS: usize = 8;

/// Values in order, each with its name. The parts of an object have names of their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(pub Vec<(&'static str, Value)>);

impl Fields {
    /// The values as an object; numbers that are not finite are null.
    pub fn json(&self) -> Value {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn cells(&self) -> Vec<(String, String)> {
        let mut cells = Vec::new();
        for (name, value) in &self.0 {
            match value {
                Value::Object(parts) => cells.extend(
                    parts.iter().map(|(part, value)| (format!("{name}: {part}"), cell(value))),
                ),
                value => cells.push(((*name).to_owned(), cell(value))),
            }
        }
        cells
    }
}

/// The columns next to each other with a line for each value; all have the values of the first.
pub fn table(columns: &[Fields]) -> String {
    let shown: Vec<_> = columns.iter().take(MAX_COLUMNS).map(Fields::cells).collect();
    let Some(first) = shown.first() else { return String::new() };
    let names = first.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let width = |column: &Vec<(String, String)>| {
        column.iter().map(|(_, cell)| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = shown.iter().map(width).collect();
    let mut text = String::new();
    for (row, (name, _)) in first.iter().enumerate() {
        let _ = write!(text, "  {name:names$}");
        for (column, width) in shown.iter().zip(&widths) {
            let _ = write!(text, "  {:>width$}", column[row].1);
        }
        text.push('\n');
    }
    if columns.len() > MAX_COLUMNS {
        let _ = writeln!(text, "  and {} more: --json", columns.len() - MAX_COLUMNS);
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(parts) => {
            let part = |(name, value): (&String, &Value)| format!("{name}={}", cell(value));
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or("-".to_owned(), digits),
        other => other.to_string(),
    }
}

/// Six digits of a number.
fn digits(number: f64) -> String {
    if number != 0.0 && !(1e-3..1e8).contains(&number.abs()) {
        return format!("{number:.4e}");
    }
    let before_point = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    let decimals = (5 - before_point).clamp(0, 5) as usize;
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_a_line_each_and_objects_a_line_for_each_part() {
        let column = |name: &str, seconds: f64| {
            Fields(vec![
                ("name", json!(name)),
                ("seconds", json!(seconds)),
                ("path", json!({"update": 1e9, "none": null})),
                ("list", json!([40.0, 30.5])),
            ])
        };
        let columns = [column("a", 0.25), column("longer", f64::INFINITY)];
        let want = "  \
              name                                  a            longer\n  \
              seconds                         0.25000                 -\n  \
              path: none                            -                 -\n  \
              path: update                   1.0000e9          1.0000e9\n  \
              list                   40.0000,30.5000   40.0000,30.5000\n";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&table(&columns)), squeezed(want));
        let widths: Vec<usize> = table(&columns).lines().map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{}", table(&columns));
        assert_eq!(columns[1].json()["seconds"], Value::Null);
        let many = vec![column("a", 1.0); 10];
        assert!(table(&many).ends_with("  and 2 more: --json\n"));
        assert_eq!(table(&[]), "");
    }
}
