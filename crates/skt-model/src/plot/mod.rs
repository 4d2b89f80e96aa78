//! Figures as SVG and CSV, drawn by this module: lines with error bars, grouped bars, and grids of
//! panels.
//!
//! A figure is data first: [`Figure::csv`] and [`Figure::svg`] show the same numbers. The colours
//! are those of Okabe and Ito, which people with any colour vision can distinguish, and every
//! series also has a dash pattern and a marker.

mod scale;
mod svg;
mod text;

use std::path::Path;

pub use scale::Scale;
pub use text::escape;

/// An axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The label for people, with the unit: "platform MTBF (hours)".
    pub label: &'static str,
    /// The column name for programs, with the unit: "platform_mtbf_hours".
    pub column: &'static str,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// The fixed ends of the axis; `None` for those of the data.
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

    /// This axis with fixed ends.
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }
}

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The position on the x axis.
    pub x: f64,
    /// The position on the y axis.
    pub y: f64,
    /// Half the width of the confidence interval, if the point was measured.
    pub error: Option<f64>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line through the points.
    Line,
    /// Markers only, with error bars if there are errors.
    Markers,
}

/// A named series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Whether the series is drawn as a line or as markers.
    pub style: Style,
    /// The points, in order of x.
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
pub struct LineChart {
    /// The title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series to draw.
    pub series: Vec<Series>,
}

/// A chart of bars, one group per category.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What the categories are, for people.
    pub category_label: &'static str,
    /// The column name of the categories, for programs.
    pub category_column: &'static str,
    /// The names of the categories.
    pub categories: Vec<String>,
    /// The vertical axis.
    pub y: Axis,
    /// The name of each series, with one value per category.
    pub series: Vec<(String, Vec<f64>)>,
}

/// The content of a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// One chart of lines.
    Lines(LineChart),
    /// One chart of bars.
    Bars(Bars),
    /// Charts of lines that share one legend, row by row; series of the same name look alike in all
    /// of them.
    Panels {
        /// Number of charts per row.
        columns: usize,
        /// All charts.
        panels: Vec<LineChart>,
    },
}

impl Body {
    /// One chart of lines, without a title.
    pub fn lines(x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self::Lines(LineChart { title: String::new(), x, y, series })
    }

    /// One chart of bars; `category` is the label and the column name of the categories.
    pub fn bars(
        category_label: &'static str,
        category_column: &'static str,
        categories: Vec<String>,
        y: Axis,
        series: Vec<(String, Vec<f64>)>,
    ) -> Self {
        Self::Bars(Bars { category_label, category_column, categories, y, series })
    }
}

/// A figure with its name and its explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The file name without extension.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// A paragraph on what the figure shows, from which equations, with which numbers.
    pub caption: String,
    /// The charts.
    pub body: Body,
}

impl Figure {
    /// The figure as a standalone SVG document.
    pub fn svg(&self) -> String {
        svg::document(self)
    }

    /// The figure in the format that the extension of `path` names, svg or csv; `None` if it names
    /// neither.
    pub fn text_for(&self, path: &Path) -> Option<String> {
        match path.extension()?.to_str()? {
            "svg" => Some(self.svg()),
            "csv" => Some(self.csv()),
            _ => None,
        }
    }

    /// The figure's numbers, one row per point, with a header that names units.
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

fn has_errors(lines: &LineChart) -> bool {
    lines.series.iter().any(|s| s.points.iter().any(|p| p.error.is_some()))
}

fn header_with_error(header: String, lines: &LineChart) -> String {
    if has_errors(lines) {
        format!("{},{}_half_width\n", header.trim_end(), lines.y.column)
    } else {
        header
    }
}

fn lines_csv(panel: Option<&str>, lines: &LineChart) -> String {
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

/// The CSV of panels. If panels differ in their axes, every row names both axes.
fn panels_csv(panels: &[LineChart]) -> String {
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

    fn chart() -> LineChart {
        LineChart {
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
            // Letters of 11 px, centred.
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
        // The title begins at 16 px; a bold letter of 16 px is 9 px wide or more.
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
