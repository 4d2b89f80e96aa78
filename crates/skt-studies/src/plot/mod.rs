//! A figure is data first: [`Figure::csv`] and [`Figure::svg`] show the same numbers.

mod csv;
mod draw;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// The label for people, with the unit: "platform MTBF (hours)".
    pub(crate) label: &'static str,
    /// The column name for programs, with the unit: "platform_mtbf_hours".
    pub(crate) column: &'static str,
    is_log: bool,
    /// The fixed ends of the axis; `None` for those of the data.
    ends: Option<(f64, f64)>,
}

impl Axis {
    pub(crate) fn linear(label: &'static str, column: &'static str) -> Self {
        Self { label, column, is_log: false, ends: None }
    }

    pub(crate) fn log(label: &'static str, column: &'static str) -> Self {
        Self { is_log: true, ..Self::linear(label, column) }
    }

    pub(crate) fn between(self, low: f64, high: f64) -> Self {
        Self { ends: Some((low, high)), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Half the width of the confidence interval, if the point was measured.
    pub(crate) error: Option<f64>,
}

/// A named series of points, in order of x.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Whether the points are marked, with error bars, and not joined by a line.
    pub(crate) is_measured: bool,
    pub(crate) points: Vec<Point>,
}

impl Series {
    pub(crate) fn line(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, error: None }).collect();
        Self { name: name.into(), is_measured: false, points }
    }

    /// Markers with error bars, from `(x, y, half width)`.
    pub(crate) fn measured(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y, e)| Point { x, y, error: Some(e) }).collect();
        Self { name: name.into(), is_measured: true, points }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineChart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// Charts of lines that share one legend, row by row; series of the same name look alike in all
    /// of them. A single chart has no title.
    Panels {
        /// Number of charts per row.
        columns: usize,
        panels: Vec<LineChart>,
    },
    /// One chart of bars, one group per category.
    Bars {
        /// What the categories are, for people and as the name of a column.
        category: (&'static str, &'static str),
        categories: Vec<String>,
        y: Axis,
        /// The name of each series, with one value per category.
        series: Vec<(String, Vec<f64>)>,
    },
}

impl Body {
    pub(crate) fn lines(x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self::Panels { columns: 1, panels: vec![LineChart { title: String::new(), x, y, series }] }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// The file name without extension.
    pub(crate) id: &'static str,
    pub(crate) title: String,
    /// A paragraph on what the figure shows, from which equations, with which numbers.
    pub(crate) caption: String,
    pub(crate) body: Body,
}

impl Figure {
    pub(crate) fn svg(&self) -> String {
        draw::document(self)
    }

    /// The figure's numbers, one row per point, with a header that names units.
    pub(crate) fn csv(&self) -> String {
        csv::rows(&self.body)
    }
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
                Series::line("on no axis", [(0.0, 0.5), (f64::NAN, 0.25), (1.0, f64::INFINITY)]),
                Series::measured("seen", [(10.0, 0.4, 0.1)]),
            ],
        }
    }

    fn figure(title: &str, body: Body) -> Figure {
        Figure { id: "f", title: title.into(), caption: String::new(), body }
    }

    #[test]
    fn csv_has_units_and_quotes_what_holds_a_comma() {
        let LineChart { x, y, series, .. } = chart();
        let csv = figure("t", Body::lines(x, y, series)).csv();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows[0], "series,time_seconds,waste_fraction,waste_fraction_half_width");
        assert_eq!(rows[1], "\"one, two\",1,0.5,");
        assert_eq!(rows[6], "seen,10,0.4,0.1");
    }

    #[test]
    fn labels_of_bars_do_not_overlap() {
        let names = ["pivot messages", "row exchange messages", "back", "triangular solve"];
        let bars = Body::Bars {
            category: ("part", "part"),
            categories: names.map(str::to_owned).to_vec(),
            y: Axis::linear("y", "y"),
            series: vec![("s".into(), vec![1.0; 4])],
        };
        let svg = figure("t", bars).svg();
        let ends = names.map(|name| {
            let text = svg.split("<text ").find(|text| text.contains(&format!("\n{name}\n")));
            let x = text.unwrap().split('"').nth(1).unwrap().parse::<f64>().unwrap();
            // Letters of 11 px, centred.
            let half = 6.2 * name.len() as f64 / 2.0;
            (x - half, x + half)
        });
        assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
    }

    #[test]
    fn a_long_title_is_not_cut() {
        let width = |letters: usize| -> f64 {
            let svg =
                figure(&"m".repeat(letters), Body::Panels { columns: 1, panels: vec![chart()] })
                    .svg();
            svg.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert_eq!(width(3), width(30));
        // A letter of 16 px is 9 px wide or more.
        assert!(width(80) >= 16.0 + 80.0 * 9.2);
    }

    #[test]
    fn svg_escapes_text_and_holds_every_series() {
        let panels = vec![chart(), chart(), chart()];
        let svg = figure("a < b & c", Body::Panels { columns: 2, panels }).svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"));
        for name in ["one, two", "on no axis", "seen"] {
            assert_eq!(svg.matches(&format!("\n{name}\n")).count(), 1, "one legend for all");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
