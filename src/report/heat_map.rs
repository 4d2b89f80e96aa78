//! The rates of all ranks over time, as a heat map: a row for each rank, the hosts in order, and a
//! cell for each window of the panels.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::reader::{RankPart, SlowPart};
use skt_health::slow::{SlowRank, upper_median};
use skt_model::plot::escape;

/// Most rows, and most bytes of them; with more a row shows the slowest of several ranks.
const MAX_ROWS: usize = 256;
const MAX_BYTES: usize = 5_000;
const WIDTH: f64 = 900.0;
const LEFT: f64 = 170.0;
/// Pixels right of the map, for words about slow ranks.
const RIGHT: f64 = 150.0;
const TOP: f64 = 6.0;
/// Pixels of a line of words.
const ROW_WITH_WORDS: f64 = 12.0;

/// The colours, each with the least lag that has it, in per cent.
const COLOURS: [(f64, &str); 6] = [
    (f64::NEG_INFINITY, "#f3f0ea"),
    (5.0, "#fdd0a2"),
    (10.0, "#fda65b"),
    (20.0, "#e6550d"),
    (30.0, "#a63603"),
    (50.0, "#5a1a00"),
];
const UNKNOWN: &str = "#c8d4e0";

/// The map with its legend; `None` where there are no rates.
pub(crate) fn svg(slow: &SlowPart) -> Option<String> {
    let windows = slow.columns.len().checked_sub(1).filter(|windows| *windows > 0)?;
    let mut ranks: Vec<&RankPart> = slow.ranks.iter().collect();
    ranks.sort_by_key(|rank| rank.rank);
    let hosts = hosts_in_order(&ranks);
    ranks.sort_by_key(|rank| (hosts[rank.host.as_str()], rank.rank));
    let lags = lags(&ranks, windows);
    if ranks.is_empty() {
        return None;
    }
    let mut in_a_row = ranks.len().div_ceil(MAX_ROWS);
    let mut drawn = draw_rows(&ranks, &lags, in_a_row);
    while drawn.len() > MAX_BYTES && in_a_row < ranks.len() {
        in_a_row *= 2;
        drawn = draw_rows(&ranks, &lags, in_a_row);
    }
    let rows: Vec<&[&RankPart]> = ranks.chunks(in_a_row).collect();
    let height = (480.0 / rows.len() as f64).clamp(2.0, 18.0);
    let bottom = TOP + height * rows.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{0}\" viewBox=\"0 0 \
         {WIDTH} {0}\" font-size=\"11\" font-family=\"DejaVu Sans,Verdana,sans-serif\" \
         role=\"img\">\n<title>Rates of all ranks over time</title>\n",
        bottom + 66.0
    );
    // A unit is a cell.
    let _ = writeln!(
        svg,
        "<g transform=\"translate({LEFT} {:.2}) scale({:.3} {height:.3})\" stroke=\"{}\" \
         stroke-width=\"{}\">\n{drawn}</g>",
        TOP + height / 2.0,
        (WIDTH - LEFT - RIGHT) / windows as f64,
        COLOURS[0].1,
        if height > 4.0 { 0.94 } else { 1.0 }
    );
    host_names(&mut svg, &rows, height);
    slow_names(&mut svg, slow, &rows, height);
    column_names(&mut svg, &slow.columns, bottom);
    legend(&mut svg, bottom + 58.0);
    svg.push_str("</svg>");
    Some(svg)
}

/// The place of each host, in the order of its first rank.
fn hosts_in_order<'a>(ranks: &[&'a RankPart]) -> BTreeMap<&'a str, usize> {
    let mut hosts = BTreeMap::new();
    for rank in ranks {
        let next = hosts.len();
        hosts.entry(rank.host.as_str()).or_insert(next);
    }
    hosts
}

/// The lag of each rank relative to the median of its kind in each window, in per cent; `None`
/// where nothing was measured.
fn lags(ranks: &[&RankPart], windows: usize) -> Vec<Vec<Option<f64>>> {
    let rates: Vec<Vec<Option<f64>>> = ranks.iter().map(|rank| rank.rates()).collect();
    let rate = |rank: usize, window: usize| rates[rank].get(window).copied().flatten();
    let mut of_kinds: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        for window in 0..windows {
            if let Some(rate) = rate(index, window) {
                of_kinds.entry((rank.kind, window)).or_default().push(rate);
            }
        }
    }
    let medians: BTreeMap<(usize, usize), f64> =
        of_kinds.into_iter().map(|(of, rates)| (of, upper_median(rates))).collect();
    let lag = |index: usize, window: usize| {
        let rate = rate(index, window)?;
        Some(100.0 * (1.0 - rate / medians[&(ranks[index].kind, window)]))
    };
    let of_rank = |index| (0..windows).map(|window| lag(index, window)).collect();
    (0..ranks.len()).map(of_rank).collect()
}

/// The largest lag of several ranks in each window.
fn slowest(lags: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let windows = lags.first().map_or(0, Vec::len);
    let largest =
        |window: usize| lags.iter().filter_map(|lags| lags[window]).max_by(f64::total_cmp);
    (0..windows).map(largest).collect()
}

fn colour(lag: Option<f64>) -> &'static str {
    let Some(lag) = lag else { return UNKNOWN };
    COLOURS.iter().rev().find(|(least, _)| lag >= *least).map_or(UNKNOWN, |(_, colour)| colour)
}

/// Draws the rows, each for `in_a_row` ranks.
fn draw_rows(ranks: &[&RankPart], lags: &[Vec<Option<f64>>], in_a_row: usize) -> String {
    let rows = ranks.chunks(in_a_row).zip(lags.chunks(in_a_row)).enumerate();
    rows.map(|(row, (ranks, lags))| draw_row(row, &slowest(lags), &row_name(ranks))).collect()
}

/// Draws a row: all of it in the first colour, and above it a path for each other colour, in which
/// neighbouring cells are one line.
fn draw_row(row: usize, lags: &[Option<f64>], name: &str) -> String {
    let largest = lags.iter().flatten().copied().reduce(f64::max);
    let words = largest
        .map_or("not measured".to_owned(), |lag| format!("up to {:.0} % below", lag.max(0.0)));
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    let mut first = 0;
    for alike in lags.chunk_by(|a, b| colour(*a) == colour(*b)) {
        let path = paths.entry(colour(alike[0])).or_default();
        let _ = write!(path, "M{first} {row}h{}", alike.len());
        first += alike.len();
    }
    paths.remove(COLOURS[0].1);
    let path = |(colour, path)| format!("<path d=\"{path}\" stroke=\"{colour}\"/>");
    let paths: String = paths.into_iter().map(path).collect();
    let (name, windows) = (escape(name), lags.len());
    format!("<g><title>{name}: {words}</title><path d=\"M0 {row}h{windows}\"/>{paths}</g>\n")
}

fn row_name(ranks: &[&RankPart]) -> String {
    match ranks {
        [rank] => format!("{} rank {}", rank.host, rank.rank),
        [first, .., last] => format!(
            "the slowest of {} rank {} to {} rank {}",
            first.host, first.rank, last.host, last.rank
        ),
        [] => String::new(),
    }
}

/// Writes the host of the first row of each host, where there is space, and a line above it.
fn host_names(svg: &mut String, rows: &[&[&RankPart]], height: f64) {
    let (mut last, mut free) = (None, f64::NEG_INFINITY);
    let (mut lines, mut names) = (String::new(), String::new());
    for (row, of_row) in rows.iter().enumerate() {
        let (host, top) = (of_row[0].host.as_str(), TOP + height * row as f64);
        if last.replace(host) == Some(host) {
            continue;
        }
        let _ = write!(lines, "M{} {top:.1}h8", LEFT - 8.0);
        if top >= free {
            let shown: String = host.chars().take(24).collect();
            let (x, y) = (LEFT - 10.0, top + 10.0);
            let _ = writeln!(names, "<text x=\"{x}\" y=\"{y:.1}\">{}</text>", escape(&shown));
            free = top + ROW_WITH_WORDS;
        }
    }
    let _ = writeln!(
        svg,
        "<path d=\"{lines}\" stroke=\"#888\"/>\n<g text-anchor=\"end\">\n{names}</g>"
    );
}

/// Writes the lag of slow ranks next to their rows, where there is space.
fn slow_names(svg: &mut String, slow: &SlowPart, rows: &[&[&RankPart]], height: f64) {
    let mut free = f64::NEG_INFINITY;
    for (row, of_row) in rows.iter().enumerate() {
        let is_in_row = |named: &&SlowRank| of_row.iter().any(|rank| rank.rank == named.rank);
        let top = TOP + height * row as f64;
        let Some(named) = slow.named.iter().find(is_in_row).filter(|_| top >= free) else {
            continue;
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#a40000\">rank {}: -{:.0} %</text>",
            WIDTH - RIGHT + 6.0,
            top + height.min(ROW_WITH_WORDS) / 2.0 + 4.0,
            named.rank,
            named.lag_percent
        );
        free = top + ROW_WITH_WORDS;
    }
}

/// Writes the first column of some windows below the map.
fn column_names(svg: &mut String, columns: &[usize], bottom: f64) {
    let windows = columns.len() - 1;
    let cell = (WIDTH - LEFT - RIGHT) / windows as f64;
    for window in (0..=windows).step_by(windows.div_ceil(8)) {
        let x = LEFT + cell * window as f64;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\" stroke=\"#888\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 4.0,
            bottom + 16.0,
            columns[window]
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">columns eliminated; all cells have \
         about the same work</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 32.0
    );
}

fn legend(svg: &mut String, y: f64) {
    let entries = COLOURS.iter().zip(COLOURS.iter().skip(1).map(Some).chain([None]));
    let words = |(least, next): (f64, Option<&(f64, &str)>)| match next {
        Some((next, _)) if least < 0.0 => format!("under {next} %"),
        Some((next, _)) => format!("{least} to {next} %"),
        None => format!("{least} % or more"),
    };
    let entries: Vec<(String, &str)> = entries
        .map(|(&(least, colour), next)| (words((least, next)), colour))
        .chain([("not measured".to_owned(), UNKNOWN)])
        .collect();
    let _ = writeln!(svg, "<text x=\"0\" y=\"{y:.1}\">below the median:</text>");
    let mut x = 125.0;
    for (name, colour) in entries {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\" \
             stroke=\"#999\"/><text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            y - 10.0,
            x + 17.0
        );
        x += 34.0 + 7.0 * name.chars().count() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: usize, host: &str, rates: &str) -> RankPart {
        RankPart { host: host.into(), rank, kind: 0, gflops_a_thread: rates.into() }
    }

    #[test]
    fn hosts_are_in_order_and_slow_windows_dark() {
        let slow = SlowPart {
            named: vec![SlowRank {
                host: "n2".into(),
                rank: 1,
                lag_percent: 60.0,
                ..Default::default()
            }],
            columns: vec![0, 100, 300, 1000],
            ranks: vec![
                rank(0, "n1", "50.00 50.00 -"),
                rank(1, "n2", "50.00 20.00 -"),
                rank(2, "n1", "50.00 49.00 -"),
            ],
        };
        let svg = svg(&slow).unwrap();
        let at = |what: &str| svg.find(what).unwrap_or_else(|| panic!("{what} in {svg}"));
        assert!(at("n1 rank 0: ") < at("n1 rank 2: ") && at("n1 rank 2: ") < at("n2 rank 1: "));
        assert_eq!(svg.matches("up to 59 % below").count(), 1);
        let unknown = |row: usize| format!("<path d=\"M2 {row}h1\" stroke=\"{UNKNOWN}\"/>");
        (0..3).for_each(|row| assert!(svg.contains(&unknown(row)), "{svg}"));
        at("<path d=\"M1 2h1\" stroke=\"#5a1a00\"/>");
        at("rank 1: -60 %");
    }

    #[test]
    fn very_many_ranks_share_rows() {
        // In quiet runs, and where each rank lags in every other window.
        for rates in [["50.00", "50.00"], ["50.00", "20.00"]] {
            let ranks = (0..4096).map(|index| {
                let rates: Vec<&str> = (0..64).map(|window| rates[(index + window) % 2]).collect();
                rank(index, &format!("n{}", index / 64), &rates.join(" "))
            });
            let columns = (0..65).collect();
            let part = SlowPart { columns, ranks: ranks.collect(), ..Default::default() };
            let svg = svg(&part).unwrap();
            assert!(svg.len() < 8_500, "{} bytes", svg.len());
            assert_eq!(svg.matches("the slowest of ").count(), 32);
            assert!(svg.contains(">n60<"), "{svg}");
        }
    }

    #[test]
    fn a_report_of_any_shape_is_drawn_or_left_out() {
        assert_eq!(svg(&SlowPart::default()), None);
        let part = SlowPart { columns: vec![0, 1, 2], ..Default::default() };
        assert_eq!(svg(&part), None);
        let part = SlowPart { ranks: vec![rank(7, "", ""), rank(7, "<a>", "x nan 1e999")], ..part };
        assert!(svg(&part).unwrap().contains("&lt;a&gt; rank 7: not measured"));
    }
}
