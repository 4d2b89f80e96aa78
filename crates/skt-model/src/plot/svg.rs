//! Draws figures as SVG.

use std::fmt::Write;

use super::scale::Ruler;
use super::text::{escape, tick_label};
use super::{Axis, Bars, Body, Figure, LineChart, Series, Style};

/// The palette of Okabe and Ito without its yellow, which is too pale for lines on white.
const COLOURS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];
const INK: &str = "#222";
const FAINT: &str = "#ddd";

const CHART_WIDTH: f64 = 560.0;
const CHART_HEIGHT: f64 = 400.0;
const PANEL_WIDTH: f64 = 330.0;
const PANEL_HEIGHT: f64 = 280.0;
const TITLE_HEIGHT: f64 = 40.0;
const LEGEND_ROW: f64 = 20.0;
/// Approximate width of a letter of 12 px, because SVG cannot be asked for it.
const LETTER: f64 = 6.7;
/// Approximate width of a letter of the title, which is 16 px and bold.
const TITLE_LETTER: f64 = 9.6;

/// The plotting area of a chart on the page.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// The figure as one SVG document.
pub(super) fn document(figure: &Figure) -> String {
    let mut page = String::new();
    let (width, height) = match &figure.body {
        Body::Lines(lines) => one_chart(&mut page, lines),
        Body::Bars(bars) => bar_chart(&mut page, bars),
        Body::Panels { columns, panels } => panel_grid(&mut page, *columns, panels),
    };
    let width = width.max(32.0 + TITLE_LETTER * figure.title.chars().count() as f64);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <title>{title}</title>\n<desc>{caption}</desc>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n\
         {page}</svg>\n",
        title = escape(&figure.title),
        caption = escape(&figure.caption),
    )
}

fn one_chart(page: &mut String, lines: &LineChart) -> (f64, f64) {
    let heading = if lines.title.is_empty() { 6.0 } else { 24.0 };
    let area = Area {
        left: 76.0,
        top: TITLE_HEIGHT + heading,
        width: CHART_WIDTH - 96.0,
        height: CHART_HEIGHT - 100.0,
    };
    let names: Vec<&str> = lines.series.iter().map(|s| s.name.as_str()).collect();
    draw_lines(page, lines, area, &names);
    let top = area.top + area.height + 62.0;
    let legend = draw_line_legend(page, &names, lines.series.iter(), (CHART_WIDTH, top));
    (CHART_WIDTH, top + legend)
}

fn panel_grid(page: &mut String, columns: usize, panels: &[LineChart]) -> (f64, f64) {
    let columns = columns.max(1);
    let mut names: Vec<&str> = Vec::new();
    for series in panels.iter().flat_map(|p| &p.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    for (index, panel) in panels.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let area = Area {
            left: 66.0 + column as f64 * PANEL_WIDTH,
            top: TITLE_HEIGHT + 30.0 + row as f64 * PANEL_HEIGHT,
            width: PANEL_WIDTH - 82.0,
            height: PANEL_HEIGHT - 84.0,
        };
        draw_lines(page, panel, area, &names);
    }
    let width = columns as f64 * PANEL_WIDTH;
    let rows = panels.len().div_ceil(columns);
    let top = TITLE_HEIGHT + rows as f64 * PANEL_HEIGHT + 20.0;
    let series = panels.iter().flat_map(|p| &p.series);
    let legend = draw_line_legend(page, &names, series, (width, top));
    (width, top + legend)
}

/// Draws one chart of lines with its frame; `names` gives each series its look.
fn draw_lines(page: &mut String, lines: &LineChart, area: Area, names: &[&str]) {
    let points = || lines.series.iter().flat_map(|s| &s.points);
    let x = ruler(&lines.x, points().map(|p| p.x));
    let y = ruler(
        &lines.y,
        points().flat_map(|p| {
            let error = p.error.unwrap_or(0.0);
            [p.y - error, p.y + error]
        }),
    );
    if !lines.title.is_empty() {
        draw_text(page, (area.left, area.top - 9.0), " font-weight=\"bold\"", &lines.title);
    }
    draw_x_axis(page, &x, lines.x.label, area);
    draw_y_axis(page, &y, lines.y.label, area);
    // An inner document cuts what is outside of it, without a name that another figure might have.
    let (left, top) = (area.left - 6.0, area.top - 4.0);
    let (width, height) = (area.width + 12.0, area.height + 8.0);
    let _ = writeln!(
        page,
        "<svg x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         viewBox=\"{left:.1} {top:.1} {width:.1} {height:.1}\">"
    );
    for series in &lines.series {
        let look = names.iter().position(|n| *n == series.name).unwrap_or(0);
        draw_series(page, series, look, area, &x, &y);
    }
    page.push_str("</svg>\n");
    draw_frame(page, area);
}

fn ruler(axis: &Axis, values: impl Iterator<Item = f64>) -> Ruler {
    match axis.range {
        Some((low, high)) => Ruler::new(axis.scale, low, high),
        None => Ruler::around(axis.scale, values),
    }
}

fn draw_series(page: &mut String, series: &Series, look: usize, area: Area, x: &Ruler, y: &Ruler) {
    let at = |px: f64, py: f64| -> Option<(f64, f64)> {
        let left = area.left + x.place(px)? * area.width;
        // A coordinate far outside of the chart only costs digits.
        let up = y.place(py)?.clamp(-2.0, 3.0);
        Some((left, area.top + (1.0 - up) * area.height))
    };
    match series.style {
        Style::Line => {
            let mut path: Vec<(f64, f64)> =
                series.points.iter().filter_map(|p| at(p.x, p.y)).collect();
            // A line is two pixels wide.
            path.dedup_by(|next, last| (next.0 - last.0).hypot(next.1 - last.1) < 2.0);
            let path: Vec<String> =
                path.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let _ = writeln!(page, "<polyline points=\"{}\" {}/>", path.join(" "), stroke(look));
        }
        Style::Markers => {
            for point in &series.points {
                let error = point.error.unwrap_or(0.0);
                let ends = (at(point.x, point.y - error), at(point.x, point.y + error));
                if let (Some((px, low)), Some((_, high))) = ends
                    && error > 0.0
                {
                    let _ = writeln!(
                        page,
                        "<path d=\"M{px:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\" \
                         stroke=\"{}\" fill=\"none\"/>",
                        px - 4.0,
                        px - 4.0,
                        colour(look)
                    );
                }
                if let Some((px, py)) = at(point.x, point.y) {
                    draw_marker(page, look, px, py);
                }
            }
        }
    }
}

fn draw_marker(page: &mut String, look: usize, x: f64, y: f64) {
    let shape = match look % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\""),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"", x - 3.5, y - 3.5),
        2 => format!("<path d=\"M{x:.1} {:.1}l5 8.5h-10z\"", y - 5.0),
        _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"", y - 5.0),
    };
    let _ =
        writeln!(page, "{shape} fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.8\"/>", colour(look));
}

fn colour(look: usize) -> &'static str {
    COLOURS[look % COLOURS.len()]
}

fn stroke(look: usize) -> String {
    let dash = DASHES[look % DASHES.len()];
    let dash =
        if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}",
        colour(look)
    )
}

fn draw_x_axis(page: &mut String, ruler: &Ruler, label: &str, area: Area) {
    let bottom = area.top + area.height;
    let ticks = ruler.ticks().into_iter().filter_map(|tick| {
        let x = area.left + ruler.place(tick)? * area.width;
        let line = format!("M{x:.1} {:.1}V{bottom:.1}", area.top);
        Some((line, (x, bottom + 17.0), tick_label(tick)))
    });
    draw_ticks(page, MIDDLE, ticks);
    draw_x_label(page, label, area);
}

/// Draws the grid lines and the labels of an axis, each with its place.
fn draw_ticks(
    page: &mut String,
    attributes: &str,
    ticks: impl Iterator<Item = (String, (f64, f64), String)>,
) {
    let (mut grid, mut labels) = (String::new(), String::new());
    for (line, place, label) in ticks {
        grid += &line;
        draw_text(&mut labels, place, "", &label);
    }
    let _ = writeln!(page, "<path d=\"{grid}\" stroke=\"{FAINT}\"/>");
    let _ = writeln!(page, "<g{attributes}>\n{labels}</g>");
}

fn draw_x_label(page: &mut String, label: &str, area: Area) {
    let at = (area.left + area.width / 2.0, area.top + area.height + 36.0);
    draw_text(page, at, MIDDLE, label);
}

const MIDDLE: &str = " text-anchor=\"middle\"";

fn draw_text(page: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(page, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{text}</text>");
}

fn draw_y_axis(page: &mut String, ruler: &Ruler, label: &str, area: Area) {
    let ticks = ruler.ticks().into_iter().filter_map(|tick| {
        let y = area.top + (1.0 - ruler.place(tick)?) * area.height;
        let line = format!("M{:.1} {y:.1}h{:.1}", area.left, area.width);
        Some((line, (area.left - 6.0, y + 4.0), tick_label(tick)))
    });
    draw_ticks(page, " text-anchor=\"end\"", ticks);
    let (x, y) = (area.left - 52.0, area.top + area.height / 2.0);
    let turned = format!("{MIDDLE} transform=\"rotate(-90 {x:.1} {y:.1})\"");
    draw_text(page, (x, y), &turned, label);
}

fn draw_frame(page: &mut String, area: Area) {
    let _ = writeln!(
        page,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" \
         stroke=\"{INK}\"/>",
        area.left, area.top, area.width, area.height
    );
}

/// Draws the legend below the charts, and returns its height. `sample` draws the look of a series
/// at the place of its name, which follows `indent` further right.
fn draw_legend(
    page: &mut String,
    names: &[&str],
    width: f64,
    top: f64,
    indent: f64,
    sample: impl Fn(&mut String, usize, (f64, f64)),
) -> f64 {
    let places = legend_places(names, width, top);
    for (look, (name, &(x, y))) in names.iter().zip(&places).enumerate() {
        sample(page, look, (x, y));
        draw_text(page, (x + indent, y), "", name);
    }
    places.last().map_or(0.0, |(_, y)| y - top + LEGEND_ROW)
}

/// Draws the legend of series of lines and markers. A single series needs none.
fn draw_line_legend<'a>(
    page: &mut String,
    names: &[&str],
    series: impl Iterator<Item = &'a Series> + Clone,
    place: (f64, f64),
) -> f64 {
    if names.len() < 2 {
        return 0.0;
    }
    draw_legend(page, names, place.0, place.1, 36.0, |page, look, (x, y)| {
        let is_it = |series: &Series| series.name == names[look] && series.style == Style::Markers;
        if series.clone().any(is_it) {
            draw_marker(page, look, x + 15.0, y - 4.0);
        } else {
            let (y, right, stroke) = (y - 4.0, x + 30.0, stroke(look));
            let _ =
                writeln!(page, "<polyline points=\"{x:.1},{y:.1} {right:.1},{y:.1}\" {stroke}/>");
        }
    })
}

/// Positions of the names: columns as wide as the longest name, as many as fit.
fn legend_places(names: &[&str], width: f64, top: f64) -> Vec<(f64, f64)> {
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0) as f64;
    let column_width = 52.0 + longest * LETTER;
    let columns = (((width - 32.0) / column_width) as usize).clamp(1, names.len());
    (0..names.len())
        .map(|i| {
            let (row, column) = (i / columns, i % columns);
            (20.0 + column as f64 * column_width, top + row as f64 * LEGEND_ROW)
        })
        .collect()
}

fn bar_chart(page: &mut String, bars: &Bars) -> (f64, f64) {
    let letters = bars.categories.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let label_width = LETTER * letters as f64 + 8.0;
    let group_width = (22.0 * bars.series.len() as f64 + 16.0).max(label_width);
    let width = (group_width * bars.categories.len() as f64 + 96.0).max(CHART_WIDTH);
    let area = Area {
        left: 76.0,
        top: TITLE_HEIGHT + 16.0,
        width: width - 96.0,
        height: CHART_HEIGHT - 100.0,
    };
    let values = || bars.series.iter().flat_map(|(_, values)| values.iter().copied());
    let y = ruler(&bars.y, values().chain([0.0]));
    draw_y_axis(page, &y, bars.y.label, area);
    let group_width = area.width / bars.categories.len() as f64;
    let bar_width = (group_width - 14.0) / bars.series.len() as f64;
    let bottom = area.top + area.height;
    let left = |index: usize| area.left + index as f64 * group_width;
    for (look, (_, values)) in bars.series.iter().enumerate() {
        let bar = |(index, value): (usize, &f64)| {
            let up = y.place(*value).unwrap_or(0.0) * area.height;
            let x = left(index) + 7.0 + look as f64 * bar_width;
            format!("M{x:.1} {bottom:.1}V{:.1}h{bar_width:.1}V{bottom:.1}z", bottom - up)
        };
        let path: String = values.iter().enumerate().map(bar).collect();
        let _ = writeln!(page, "<path d=\"{path}\" fill=\"{}\" stroke=\"#fff\"/>", colour(look));
    }
    let small = format!("{MIDDLE} font-size=\"11\"");
    for (index, category) in bars.categories.iter().enumerate() {
        draw_text(page, (left(index) + group_width / 2.0, bottom + 17.0), &small, category);
    }
    draw_x_label(page, bars.category_label, area);
    draw_frame(page, area);
    let top = bottom + 62.0;
    let names: Vec<&str> = bars.series.iter().map(|(name, _)| name.as_str()).collect();
    let legend = draw_legend(page, &names, width, top, 20.0, |page, look, (x, y)| {
        let (y, colour) = (y - 10.0, colour(look));
        let _ = write!(
            page,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"12\" fill=\"{colour}\"/>"
        );
    });
    (width, top + legend)
}
