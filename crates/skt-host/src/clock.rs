//! Points in time, as numbers and as text.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A point in time, broken down into calendar fields of some time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Calendar {
    year: i64,
    /// From 0 for January.
    month: usize,
    /// From 1.
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    /// From 0 for Sunday.
    weekday: usize,
}

/// The time in the local time zone, in the format of C's `ctime` without the newline: `Thu Jan  1
/// 00:00:00 1970`.
pub fn ctime(unix_seconds: i64) -> String {
    match local(unix_seconds) {
        Some(calendar) => c_layout(&calendar),
        // Only years that do not fit into C's `int` come here.
        None => format!("@{unix_seconds}"),
    }
}

/// The time in UTC, in the format of RFC 3339: `1970-01-01T00:00:00Z`.
pub fn rfc3339(unix_seconds: i64) -> String {
    let c = utc(unix_seconds);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        c.year,
        c.month + 1,
        c.day,
        c.hour,
        c.minute,
        c.second
    )
}

/// The wall clock, in seconds since 1970; 0 before.
pub fn now_unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Whole seconds since 1970 by the wall clock.
pub fn now_unix_seconds() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    }
}

fn c_layout(c: &Calendar) -> String {
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        DAYS[c.weekday], MONTHS[c.month], c.day, c.hour, c.minute, c.second, c.year
    )
}

fn local(unix_seconds: i64) -> Option<Calendar> {
    let time: libc::time_t = unix_seconds;
    // SAFETY: `tm` is plain data for which all zeros is a value; localtime_r writes only to it and
    // reads only `time`, and both live here.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&time, &mut tm).is_null() {
            return None;
        }
        tm
    };
    let field = |value: libc::c_int| u32::try_from(value).ok();
    Some(Calendar {
        year: i64::from(tm.tm_year) + 1900,
        month: field(tm.tm_mon)? as usize,
        day: field(tm.tm_mday)?,
        hour: field(tm.tm_hour)?,
        minute: field(tm.tm_min)?,
        second: field(tm.tm_sec)?,
        weekday: field(tm.tm_wday)? as usize,
    })
}

/// The Gregorian calendar of a number of seconds since 1970. Years are counted from March, so that
/// the leap day is the last of its year; an era is 400 years, 146097 days.
fn utc(unix_seconds: i64) -> Calendar {
    let days = unix_seconds.div_euclid(86_400);
    let in_day = unix_seconds.rem_euclid(86_400) as u32;
    let from_march_0000 = days + 719_468;
    let era = from_march_0000.div_euclid(146_097);
    let day_of_era = from_march_0000.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    Calendar {
        year: era * 400 + year_of_era + i64::from(month < 2),
        month: month as usize,
        day: day as u32,
        hour: in_day / 3600,
        minute: in_day / 60 % 60,
        second: in_day % 60,
        weekday: (days + 4).rem_euclid(7) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn known_points() {
        assert_eq!(c_layout(&utc(0)), "Thu Jan  1 00:00:00 1970");
        assert_eq!(c_layout(&utc(1_700_000_000)), "Tue Nov 14 22:13:20 2023");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn local_time_matches_date() {
        for seconds in [0, 86_399, 1_700_000_000, 1_720_000_000] {
            let date = Command::new("date")
                .env("LC_ALL", "C")
                .args(["-d", &format!("@{seconds}"), "+%a %b %e %H:%M:%S %Y"])
                .output()
                .unwrap();
            assert_eq!(ctime(seconds), String::from_utf8(date.stdout).unwrap().trim_end());
        }
    }

    proptest! {
        #[test]
        fn utc_agrees_with_the_c_library(seconds in -60_000_000_000i64..250_000_000_000) {
            // SAFETY: the same reasons as in `local`, with gmtime_r.
            let tm = unsafe {
                let mut tm: libc::tm = std::mem::zeroed();
                assert!(!libc::gmtime_r(&seconds, &mut tm).is_null());
                tm
            };
            let c = utc(seconds);
            prop_assert_eq!(
                (c.year, c.month, c.day, c.hour, c.minute, c.second, c.weekday),
                (
                    i64::from(tm.tm_year) + 1900,
                    tm.tm_mon as usize,
                    tm.tm_mday as u32,
                    tm.tm_hour as u32,
                    tm.tm_min as u32,
                    tm.tm_sec as u32,
                    tm.tm_wday as usize,
                )
            );
        }
    }
}
