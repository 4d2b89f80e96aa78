use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::csv::number;
use super::{Axis, Body, Figure, LineChart, Point};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// The palette of Okabe and Ito, for any colour vision, without its yellow, too pale on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    BLACK,
];

const FONT: &str = "sans-serif";
const CHART: (u32, u32) = (600, 380);
const PANEL: (u32, u32) = (350, 280);
const TITLE_HEIGHT: u32 = 40;
const LEGEND_ROW: u32 = 20;
/// Width of a letter of 12 px and of the title, approximately.
const LETTER: u32 = 7;
const TITLE_LETTER: u32 = 10;

pub(super) fn document(figure: &Figure) -> String {
    let (names, (width, height)) = match &figure.body {
        Body::Panels { columns, panels } => {
            let rows = panels.len().div_ceil(*columns) as u32;
            let (width, height) = if panels.len() == 1 { CHART } else { PANEL };
            (names(panels), (*columns as u32 * width, rows * height))
        }
        Body::Bars { categories, series, .. } => {
            let letters = categories.iter().map(|name| name.chars().count()).max().unwrap_or(0);
            let group = (22 * series.len() as u32 + 16).max(LETTER * letters as u32 + 8);
            let width = (group * categories.len() as u32 + 100).max(CHART.0);
            (series.iter().map(|(name, _)| &**name).collect(), (width, CHART.1))
        }
    };
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32;
    let legend_column = 52 + longest * LETTER;
    let width = width.max(32 + TITLE_LETTER * figure.title.chars().count() as u32);
    let legend_columns = ((width - 20) / legend_column).max(1) as usize;
    let legend_rows = if names.len() < 2 { 0 } else { names.len().div_ceil(legend_columns) as u32 };
    let size = (width, TITLE_HEIGHT + height + LEGEND_ROW * legend_rows + 10);
    let mut svg = String::new();
    let draw = |page: Area| -> Drawn {
        page.fill(&WHITE)?;
        page.draw_text(&figure.title, &(FONT, 16).into_text_style(&page), (16, 12))?;
        let (_, page) = page.split_vertically(TITLE_HEIGHT);
        let (charts, legend) = page.split_vertically(height);
        match &figure.body {
            Body::Panels { columns, panels } => {
                let areas = charts.split_evenly((panels.len().div_ceil(*columns), *columns));
                panels
                    .iter()
                    .zip(areas)
                    .try_for_each(|(panel, area)| lines(&area, panel, &names))?;
            }
            Body::Bars { category, categories, y, series } => {
                bars(&charts, category.0, categories, y, series)?;
            }
        }
        if legend_rows > 0 {
            draw_legend(&legend, &names, &figure.body, legend_columns, legend_column)?;
        }
        Ok(page.present()?)
    };
    draw(SVGBackend::with_string(&mut svg, size).into_drawing_area())
        .expect("the figure is in memory");
    svg
}

/// Draws the names of the series, in `columns` of this width, each after its look.
fn draw_legend(area: &Area, names: &[&str], body: &Body, columns: usize, width: u32) -> Drawn {
    let is_measured = |name: &str| match body {
        Body::Panels { panels, .. } => {
            let mut series = panels.iter().flat_map(|panel| &panel.series);
            series.find(|series| series.name == name).map(|series| series.is_measured)
        }
        Body::Bars { .. } => None,
    };
    for (look, name) in names.iter().enumerate() {
        let x = 20 + (look % columns) as i32 * width as i32;
        let y = (look / columns) as i32 * LEGEND_ROW as i32;
        match is_measured(name) {
            Some(true) => area.draw(&marker((x + 15, y + 6), look))?,
            Some(false) => area.draw(&line(vec![(x, y + 6), (x + 30, y + 6)], look))?,
            None => area.draw(&Rectangle::new([(x + 8, y), (x + 22, y + 12)], filled(look)))?,
        }
        area.draw_text(name, &(FONT, 12).into_text_style(area), (x + 36, y))?;
    }
    Ok(())
}

/// The names of the series of all panels, each once.
fn names(panels: &[LineChart]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&&*series.name) {
            names.push(&series.name);
        }
    }
    names
}

fn colour(look: usize) -> RGBColor {
    COLOURS[look % COLOURS.len()]
}

fn filled(look: usize) -> ShapeStyle {
    colour(look).filled()
}

/// A line through pixels, or points of a chart.
fn line<C>(points: Vec<C>, look: usize) -> PathElement<C> {
    // A colour that comes again is thinner.
    PathElement::new(points, colour(look).stroke_width(if look < COLOURS.len() { 2 } else { 1 }))
}

fn marker<C>(at: C, look: usize) -> Circle<C, i32> {
    Circle::new(
        at,
        4,
        ShapeStyle { filled: look.is_multiple_of(2), ..colour(look).stroke_width(2) },
    )
}

/// Draws a chart of lines; `names` gives each series its look.
fn lines(area: &Area, chart: &LineChart, names: &[&str]) -> Drawn {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = ends(&chart.x, points().map(|point| point.x));
    let bar =
        |&Point { y, error, .. }: &Point| [y - error.unwrap_or(0.0), y + error.unwrap_or(0.0)];
    let y = ends(&chart.y, points().flat_map(bar));
    // What is outside would be drawn on the border.
    let (x_ends, y_ends) = (x.start..=x.end, y.start..=y.end);
    let is_shown = |x: f64, y: f64| x_ends.contains(&x) && y_ends.contains(&y);
    match (chart.x.is_log, chart.y.is_log) {
        (false, false) => draw_lines(area, chart, names, &is_shown, x, y),
        (false, true) => draw_lines(area, chart, names, &is_shown, x, y.log_scale()),
        (true, false) => draw_lines(area, chart, names, &is_shown, x.log_scale(), y),
        (true, true) => draw_lines(area, chart, names, &is_shown, x.log_scale(), y.log_scale()),
    }
}

/// Draws what `is_shown` of a chart of lines between these ends.
fn draw_lines<X, Y>(
    area: &Area,
    chart: &LineChart,
    names: &[&str],
    is_shown: &dyn Fn(f64, f64) -> bool,
    x: X,
    y: Y,
) -> Drawn
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).x_label_area_size(40).y_label_area_size(66);
    if !chart.title.is_empty() {
        builder.caption(&chart.title, (FONT, 13));
    }
    let mut drawn = builder.build_cartesian_2d(x, y)?;
    let mut mesh = drawn.configure_mesh();
    mesh.max_light_lines(0).x_labels(7).y_labels(7);
    mesh.x_label_formatter(&|v| number(*v)).y_label_formatter(&|v| number(*v));
    mesh.x_desc(chart.x.label).y_desc(chart.y.label).draw()?;
    for series in &chart.series {
        let look = names.iter().position(|name| *name == series.name).unwrap_or(0);
        let parts = series.points.split(|point| !is_shown(point.x, point.y));
        if !series.is_measured {
            let part = |part: &[Point]| line(part.iter().map(|it| (it.x, it.y)).collect(), look);
            drawn.draw_series(parts.map(part))?;
            continue;
        }
        for &Point { x, y, error } in parts.flatten() {
            let bar = error.map(|error| [(x, y - error), (x, y + error)]);
            let bar =
                bar.filter(|bar| bar[0].1 < bar[1].1 && bar.iter().all(|it| is_shown(it.0, it.1)));
            drawn.draw_series(bar.map(|bar| PathElement::new(bar, colour(look))))?;
            drawn.draw_series([marker((x, y), look)])?;
        }
    }
    Ok(())
}

/// The ends of an axis: those that it has, or those of the `values` that have a place on it.
fn ends(axis: &Axis, values: impl Iterator<Item = f64>) -> Range<f64> {
    let usable = values.filter(|value| value.is_finite() && (!axis.is_log || *value > 0.0));
    let of_data = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let (low, high) = match axis.ends {
        Some(ends) => ends,
        None if of_data.0 > of_data.1 => (1.0, 10.0),
        // A zero line near the data is part of the chart.
        None if !axis.is_log && (0.0..0.5 * of_data.1).contains(&of_data.0) => (0.0, of_data.1),
        None => of_data,
    };
    match (low < high, axis.is_log) {
        (true, _) => low..high,
        (false, true) => low / 2.0..low * 2.0,
        (false, false) => low - 0.5..low + 0.5,
    }
}

fn bars(
    area: &Area,
    category: &str,
    categories: &[String],
    y: &Axis,
    series: &[(String, Vec<f64>)],
) -> Drawn {
    let values = series.iter().flat_map(|(_, values)| values.iter().copied());
    let range = ends(y, values.chain([0.0]));
    let ends = 0.0..categories.len() as f64;
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).x_label_area_size(40).y_label_area_size(66);
    let mut drawn = builder.build_cartesian_2d(ends, range.clone())?;
    let mut mesh = drawn.configure_mesh();
    mesh.disable_x_mesh().max_light_lines(0).x_labels(0).y_labels(7);
    mesh.y_label_formatter(&|v| number(*v)).x_desc(category).y_desc(y.label).draw()?;
    let width = 0.8 / series.len() as f64;
    for (look, (_, values)) in series.iter().enumerate() {
        let bar = |(index, value): (usize, &f64)| {
            let left = index as f64 + 0.1 + look as f64 * width;
            let top = if value.is_finite() { value.min(range.end) } else { 0.0 };
            Rectangle::new([(left, 0.0), (left + width, top)], filled(look))
        };
        drawn.draw_series(values.iter().enumerate().map(bar))?;
    }
    let style = (FONT, 11).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let (left, top) = area.get_base_pixel();
    for (index, name) in categories.iter().enumerate() {
        let (x, y) = drawn.backend_coord(&(index as f64 + 0.5, range.start));
        area.draw_text(name, &style, (x - left, y - top + 6))?;
    }
    Ok(())
}
