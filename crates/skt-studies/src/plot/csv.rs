//! The numbers of figures as CSV (RFC 4180).

use super::{Body, LineChart, Point, Series};

pub(super) fn rows(body: &Body) -> String {
    match body {
        Body::Panels { panels, .. } => panel_rows(panels),
        Body::Bars { category, categories, y, series } => {
            let mut all = row(["series", category.1, y.column].map(str::to_owned));
            for (name, values) in series {
                for (category, value) in categories.iter().zip(values) {
                    all += &row([name.clone(), category.clone(), number(*value)]);
                }
            }
            all
        }
    }
}

/// Rows of panels that differ in their axes name both; only columns that some row needs are there.
fn panel_rows(panels: &[LineChart]) -> String {
    let Some(LineChart { x, y, .. }) = panels.first() else { return String::new() };
    let columns = [x.column, y.column];
    let differ = panels.iter().any(|panel| [panel.x.column, panel.y.column] != columns);
    let have_titles = panels.len() > 1;
    let series = || panels.iter().flat_map(|panel| &panel.series);
    let have_errors = series().any(|series| series.is_measured) && !differ;
    let line = |[title, x_name, y_name, series, x, y, error]: [String; 7]| {
        let ends = [(true, series), (true, x), (true, y), (have_errors, error)];
        let all =
            [(have_titles, title), (differ, x_name), (differ, y_name)].into_iter().chain(ends);
        row(all.filter(|(is_needed, _)| *is_needed).map(|(_, field)| field))
    };
    let [x, y] = if differ { ["x_value", "y_value"] } else { columns };
    let error = format!("{y}_half_width");
    let mut all = line(["panel", "x_name", "y_name", "series", x, y, &error].map(str::to_owned));
    for panel in panels {
        for Series { name, points, .. } in &panel.series {
            for Point { x, y, error } in points {
                let axes = [panel.x.column, panel.y.column].map(str::to_owned);
                let error = error.map_or_else(String::new, number);
                let [x_name, y_name] = axes;
                let title = panel.title.clone();
                all += &line([title, x_name, y_name, name.clone(), number(*x), number(*y), error]);
            }
        }
    }
    all
}

fn row(fields: impl IntoIterator<Item = String>) -> String {
    let quoted = fields.into_iter().map(|field| {
        let is_plain = !field.contains([',', '"', '\n']);
        if is_plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

/// Formats a number with at most ten significant digits, and no more than it needs.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let rounded: f64 = format!("{value:.9e}").parse().expect("a formatted float is a float");
    if (1e-4..1e15).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}
