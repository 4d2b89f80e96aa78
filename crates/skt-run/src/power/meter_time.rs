//! The times of readings, as tools write them.

use skt_host::clock::DateTime;

use super::fields::{is_blank, number};

/// The least numbers that are milli-, micro- and nanoseconds since 1970, and their seconds: as
/// seconds they would be after the year 5000, and in their own unit they are before 1974.
const SMALL_UNITS: [(f64, f64); 3] = [(1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)];
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// How the times of a log are read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TimeForm {
    /// The seconds of the unit of numbers, if the header has one.
    pub unit_seconds: Option<f64>,
    pub has_decimal_commas: bool,
    /// Whether the clock of a BMC wrote them: UTC if there is no zone, and the month first in
    /// `11/29/2026`.
    pub is_of_bmc: bool,
}

/// Seconds since 1970 of a time: a number, or a date and a time of day.
pub(super) fn unix_seconds(text: &str, form: TimeForm) -> Result<f64, &'static str> {
    let Some(number) = number(text, form.has_decimal_commas) else {
        return calendar(text, form.is_of_bmc);
    };
    let by_size = SMALL_UNITS.iter().find(|(least, _)| number >= *least).map(|(_, unit)| *unit);
    match (form.unit_seconds, by_size) {
        (Some(unit), Some(by_size)) if unit > by_size => Err("the unit in the header is too large"),
        (unit, by_size) => Ok(number * unit.or(by_size).unwrap_or(1.0)),
    }
}

/// Seconds since 1970 of a time as in a log of power, by the local time zone if it has none.
pub fn unix_seconds_of(text: &str) -> Result<f64, &'static str> {
    unix_seconds(text, TimeForm::default())
}

const NO_TIME: &str = "neither a number nor a date and a time of day";

/// `2026-11-29T05:31:06.123+01:00`, `2026/11/29 05:31:06`, `Sun Nov 29 05:31:06 2026`.
fn calendar(text: &str, is_of_bmc: bool) -> Result<f64, &'static str> {
    let mut text = text.to_owned();
    if text.as_bytes().get(10) == Some(&b'T') {
        text.replace_range(10..11, " ");
    }
    let words: Vec<&str> = text.split(is_blank).filter(|word| !word.is_empty()).collect();
    let ([year, month, day], clock, tail) = match words[..] {
        [weekday, month, day, clock, ref tail @ .., year] if WEEKDAYS.contains(&weekday) => {
            let month = MONTHS.iter().position(|name| *name == month).ok_or(NO_TIME)?;
            ([integer(year)?, month as u32 + 1, integer(day)?], clock, tail)
        }
        // FreeIPMI puts a dash between the two.
        [day, "-", clock] if is_of_bmc => (date(day, true)?, clock, &[][..]),
        [day, clock, ref tail @ ..] => (date(day, is_of_bmc)?, clock, tail),
        [clock] if clock.contains(':') => return Err("a time of day without its date"),
        _ => return Err(NO_TIME),
    };
    let (clock, zone) = clock.split_at(clock.find(['Z', '+', '-']).unwrap_or(clock.len()));
    let [hour, minute, seconds] = clock.split(':').collect::<Vec<_>>()[..] else {
        return Err(NO_TIME);
    };
    let (second, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, "0"));
    let fraction = number(&format!("0.{fraction}"), false).ok_or(NO_TIME)?;
    let (mut hour, mut zone) = (integer(hour)?, Some(zone).filter(|zone| !zone.is_empty()));
    for &word in tail {
        match word {
            "AM" | "PM" if !(1..=12).contains(&hour) => return Err(NO_TIME),
            "AM" => hour %= 12,
            "PM" => hour = hour % 12 + 12,
            _ if zone.is_some() => return Err(NO_TIME),
            _ => zone = Some(word),
        }
    }
    let time =
        DateTime { year, month, day, hour, minute: integer(minute)?, second: integer(second)? };
    let in_utc = time.unix_in_utc().ok_or("no calendar has this time")?;
    let unix = match zone {
        Some(zone) => in_utc - offset_seconds(zone)?,
        None if is_of_bmc => in_utc,
        None => in_local_zone(time)?,
    };
    Ok(unix as f64 + fraction)
}

fn in_local_zone(time: DateTime) -> Result<i64, &'static str> {
    match time.unix_in_local_zone()[..] {
        [unix] => Ok(unix),
        [] => Err("the local time zone (TZ) leaves this time out, as clocks are set forward"),
        _ => {
            Err("the local time zone (TZ) has this time twice, as clocks are set back; times need \
                  their zone, e.g. `2026-11-29T05:31:06+01:00`")
        }
    }
}

/// The year, the month and the day of a date in digits.
fn date(text: &str, is_month_first: bool) -> Result<[u32; 3], &'static str> {
    let mark = text.chars().find(|c| ['-', '/', '.'].contains(c)).ok_or(NO_TIME)?;
    let [first, second, third] = text.split(mark).collect::<Vec<_>>()[..] else {
        return Err(NO_TIME);
    };
    let [a, b, c] = [integer(first)?, integer(second)?, integer(third)?];
    match (first.len(), third.len()) {
        (4, 1 | 2) => Ok([a, b, c]),
        (1 | 2, 4) if mark == '.' || a > 12 => Ok([c, b, a]),
        (1 | 2, 4) if is_month_first || b > 12 || a == b => Ok([c, a, b]),
        // The date of ipmitool 1.8.19.
        (2, 2) if is_month_first && mark == '/' => Ok([2000 + c, a, b]),
        (1 | 2, 4) => Err("its day and month could be exchanged; write e.g. `2026-11-29`"),
        _ => Err(NO_TIME),
    }
}

fn integer(text: &str) -> Result<u32, &'static str> {
    let are_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if are_digits { text.parse().map_err(|_| NO_TIME) } else { Err(NO_TIME) }
}

/// Seconds that a zone's clocks are ahead of UTC.
fn offset_seconds(zone: &str) -> Result<i64, &'static str> {
    const NO_ZONE: &str = "its zone is neither `UTC` nor e.g. `+01:00`";
    if ["Z", "UTC", "GMT"].contains(&zone) {
        return Ok(0);
    }
    let sign = match zone.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(NO_ZONE),
    };
    let digits = zone[1..].replacen(':', "", 1);
    let number = i64::from(integer(&digits).map_err(|_| NO_ZONE)?);
    let (hours, minutes) = match digits.len() {
        2 => (number, 0),
        4 => (number / 100, number % 100),
        _ => return Err(NO_ZONE),
    };
    if hours > 14 || minutes > 59 { Err(NO_ZONE) } else { Ok(sign * (hours * 3600 + minutes * 60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_tools_are_read() {
        let bmc = TimeForm { is_of_bmc: true, ..TimeForm::default() };
        let any = TimeForm::default();
        for (text, form, seconds) in [
            ("1795930266.5", any, 1_795_930_266.5),
            ("1795930266500", any, 1_795_930_266.5),
            ("1795930266500000", any, 1_795_930_266.5),
            ("1795930266500000000", any, 1_795_930_266.5),
            ("5", TimeForm { unit_seconds: Some(1e-3), ..any }, 0.005),
            ("5,25", TimeForm { has_decimal_commas: true, ..any }, 5.25),
            ("2026-11-29T05:31:06Z", any, 1_795_930_266.0),
            ("2026-11-29T05:31:06.500+00:00", any, 1_795_930_266.5),
            ("2026-11-29 06:31:06,500+0100", any, 1_795_930_266.5),
            ("2026/11/29 00:31:06.5 -05", any, 1_795_930_266.5),
            ("2026-11-29 05:31:06 UTC", any, 1_795_930_266.0),
            ("29.11.2026 05:31:06 UTC", any, 1_795_930_266.0),
            ("11-29-2026 05:31:06.5 GMT", any, 1_795_930_266.5),
            ("29/11/2026 05:31:06 AM UTC", any, 1_795_930_266.0),
            ("11/29/2026 05:31:06 PM UTC", any, 1_795_973_466.0),
            ("Sun Nov 29 05:31:06 UTC 2026", any, 1_795_930_266.0),
            ("Sun Nov 29 05:31:06 2026", bmc, 1_795_930_266.0),
            ("11/09/2026 - 05:31:06", bmc, 1_794_202_266.0),
            ("11/09/2026 05:31:06 UTC", bmc, 1_794_202_266.0),
            ("11/09/26 05:31:06 UTC", bmc, 1_794_202_266.0),
        ] {
            assert_eq!(unix_seconds(text, form), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn times_that_could_be_several_are_refused() {
        for (text, why) in [
            ("11/09/2026 05:31:06 UTC", "could be exchanged"),
            ("05:31:06", "without its date"),
            ("2026-11-29 05:31:06 EST", "its zone is neither"),
            ("2026-11-29 05:31:06+1", "its zone is neither"),
            ("2026-11-29 05:31:06+00:00 UTC", NO_TIME),
            ("2026-11-29 05:31", NO_TIME),
            ("26-11-29 05:31:06", NO_TIME),
            ("2026-11-31 05:31:06Z", "no calendar"),
            ("2026-11-29 25:31:06Z", "no calendar"),
            ("2026-11-29 13:31:06 PM", NO_TIME),
            ("2026-11-29 05:31:06.Z", NO_TIME),
            ("-5", NO_TIME),
            ("5e3", NO_TIME),
            ("inf", NO_TIME),
            ("", NO_TIME),
        ] {
            let message = unix_seconds(text, TimeForm::default()).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
        let seconds = TimeForm { unit_seconds: Some(1.0), ..TimeForm::default() };
        assert!(unix_seconds("1795930266500", seconds).unwrap_err().contains("too large"));
    }
}
