//! Figures as SVG and CSV, drawn by ourselves: lines with error bars, grouped
//! bars, and grids of panels.
//!
//! A figure is data first: [`Figure::csv`] and [`Figure::svg`] show the same
//! numbers. Colours are those of Okabe and Ito, which people with any colour
//! vision tell apart, and every series has a dash pattern and a marker besides.

mod scale;
mod svg;
mod text;

pub use scale::Scale;

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// For people, with the unit: "platform MTBF (hours)".
    pub label: &'static str,
    /// For programs, with the unit: "platform_mtbf_hours".
    pub column: &'static str,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Fixed ends; else those of the data.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis that fits its data.
    pub fn linear(label: &'static str, column: &'static str) -> Self {
        Self { label, column, scale: Scale::Linear, range: None }
    }

    /// A logarithmic axis that fits its data.
    pub fn log(label: &'static str, column: &'static str) -> Self {
        Self { label, column, scale: Scale::Log, range: None }
    }

    /// The same axis with fixed ends.
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }
}

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// On the x axis.
    pub x: f64,
    /// On the y axis.
    pub y: f64,
    /// Half the width of its confidence interval, if it was measured.
    pub error: Option<f64>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line through the points.
    Line,
    /// Markers alone, with error bars where there are errors.
    Markers,
}

/// A named row of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Line or markers.
    pub style: Style,
    /// In order of x.
    pub points: Vec<Point>,
}

impl Series {
    /// A line through `points`.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, error: None }).collect();
        Self { name: name.into(), style: Style::Line, points }
    }

    /// Markers with error bars, from `(x, y, half width)`.
    pub fn measured(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y, e)| Point { x, y, error: Some(e) }).collect();
        Self { name: name.into(), style: Style::Markers, points }
    }
}

/// A chart of lines and markers.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Above the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Bars side by side, a group a category.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What the categories are, for people.
    pub category_label: &'static str,
    /// The same for programs.
    pub category_column: &'static str,
    /// Their names.
    pub categories: Vec<String>,
    /// Vertical axis.
    pub y: Axis,
    /// Name and one value a category.
    pub series: Vec<(String, Vec<f64>)>,
}

/// What a figure shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// One chart of lines.
    Lines(Lines),
    /// One chart of bars.
    Bars(Bars),
    /// Charts of lines that share one legend, row by row; series of the same
    /// name look alike in all.
    Panels {
        /// Charts in a row.
        columns: usize,
        /// All charts.
        panels: Vec<Lines>,
    },
}

/// A figure with its name and its explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// File name without extension.
    pub id: &'static str,
    /// Heading.
    pub title: String,
    /// What it shows, from which equations, with which numbers; a paragraph.
    pub caption: String,
    /// The charts.
    pub body: Body,
}

impl Figure {
    /// The figure as a standalone SVG document.
    pub fn svg(&self) -> String {
        svg::document(self)
    }

    /// The figure's numbers, one row a point, with a header that names units.
    pub fn csv(&self) -> String {
        match &self.body {
            Body::Lines(lines) => {
                let header = text::csv_row(&["series", lines.x.column, lines.y.column]);
                header_with_error(header, lines) + &lines_csv(None, lines)
            }
            Body::Bars(bars) => bars_csv(bars),
            Body::Panels { panels, .. } => panels_csv(panels),
        }
    }
}

fn has_errors(lines: &Lines) -> bool {
    lines.series.iter().any(|s| s.points.iter().any(|p| p.error.is_some()))
}

fn header_with_error(header: String, lines: &Lines) -> String {
    if has_errors(lines) {
        format!("{},{}_half_width\n", header.trim_end(), lines.y.column)
    } else {
        header
    }
}

fn lines_csv(panel: Option<&str>, lines: &Lines) -> String {
    let with_error = has_errors(lines);
    let mut rows = String::new();
    for series in &lines.series {
        for point in &series.points {
            let (x, y) = (text::csv_number(point.x), text::csv_number(point.y));
            let mut fields: Vec<&str> = panel.into_iter().collect();
            fields.extend([series.name.as_str(), &x, &y]);
            let error = point.error.map_or_else(String::new, text::csv_number);
            if with_error {
                fields.push(&error);
            }
            rows += &text::csv_row(&fields);
        }
    }
    rows
}

/// Panels may differ in their axes; then every row names both.
fn panels_csv(panels: &[Lines]) -> String {
    let Some(first) = panels.first() else { return String::new() };
    let columns = (first.x.column, first.y.column);
    if panels.iter().all(|panel| (panel.x.column, panel.y.column) == columns) {
        let header = text::csv_row(&["panel", "series", columns.0, columns.1]);
        return panels
            .iter()
            .fold(header, |all, panel| all + &lines_csv(Some(&panel.title), panel));
    }
    let mut all = text::csv_row(&["panel", "x_name", "y_name", "series", "x_value", "y_value"]);
    for panel in panels {
        for series in &panel.series {
            for point in &series.points {
                all += &text::csv_row(&[
                    &panel.title,
                    panel.x.column,
                    panel.y.column,
                    &series.name,
                    &text::csv_number(point.x),
                    &text::csv_number(point.y),
                ]);
            }
        }
    }
    all
}

fn bars_csv(bars: &Bars) -> String {
    let mut all = text::csv_row(&["series", bars.category_column, bars.y.column]);
    for (name, values) in &bars.series {
        for (category, value) in bars.categories.iter().zip(values) {
            all += &text::csv_row(&[name, category, &text::csv_number(*value)]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Lines {
        Lines {
            title: "a < b".into(),
            x: Axis::log("time (s)", "time_seconds"),
            y: Axis::linear("waste", "waste_fraction").between(0.0, 1.0),
            series: vec![
                Series::line("one, two", [(1.0, 0.5), (100.0, 0.25)]),
                Series::measured("seen", [(10.0, 0.4, 0.1)]),
            ],
        }
    }

    #[test]
    fn csv_has_units_and_quotes_what_holds_a_comma() {
        let figure = Figure {
            id: "f",
            title: "t".into(),
            caption: String::new(),
            body: Body::Lines(chart()),
        };
        let csv = figure.csv();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows[0], "series,time_seconds,waste_fraction,waste_fraction_half_width");
        assert_eq!(rows[1], "\"one, two\",1,0.5,");
        assert_eq!(rows[3], "seen,10,0.4,0.1");
    }

    #[test]
    fn labels_of_bars_do_not_overlap() {
        let names = ["pivot messages", "row exchange messages", "back", "triangular solve"];
        let figure = Figure {
            id: "f",
            title: "t".into(),
            caption: "c".into(),
            body: Body::Bars(Bars {
                category_label: "part",
                category_column: "part",
                categories: names.map(str::to_owned).to_vec(),
                y: Axis::linear("y", "y"),
                series: vec![("s".into(), vec![1.0; 4])],
            }),
        };
        let svg = figure.svg();
        let ends = names.map(|name| {
            let line = svg.lines().find(|line| line.contains(&format!(">{name}<"))).unwrap();
            let x = line.split('"').nth(1).unwrap().parse::<f64>().unwrap();
            // Letters of 11 px, set in the middle.
            let half = 6.2 * name.len() as f64 / 2.0;
            (x - half, x + half)
        });
        assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
    }

    #[test]
    fn a_long_title_is_not_cut() {
        let width = |letters: usize| -> f64 {
            let title = "m".repeat(letters);
            let body = Body::Lines(chart());
            let svg = Figure { id: "f", title, caption: String::new(), body }.svg();
            svg.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert_eq!(width(3), width(30));
        // It begins at 16 px, and a letter of 16 px, bold, has 9 px and more.
        assert!(width(80) >= 16.0 + 80.0 * 9.2);
    }

    #[test]
    fn svg_escapes_text_and_holds_every_series() {
        let figure = Figure {
            id: "f",
            title: "a < b & c".into(),
            caption: String::new(),
            body: Body::Panels { columns: 2, panels: vec![chart(), chart(), chart()] },
        };
        let svg = figure.svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"));
        assert_eq!(svg.matches("<polyline").count(), 3 + 1, "a line a panel and one in the legend");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
