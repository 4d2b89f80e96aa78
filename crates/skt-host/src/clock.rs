//! Points in time, as numbers and as text.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time in the local time zone, in the format of C's `ctime` without the newline: `Thu Jan  1
/// 00:00:00 1970`.
pub fn ctime(unix_seconds: i64) -> String {
    // Only years that do not fit into C's `int` have none.
    local(unix_seconds).map_or(format!("@{unix_seconds}"), |it| c_layout(&it))
}

/// The time in UTC, in the format of RFC 3339: `1970-01-01T00:00:00Z`.
pub fn rfc3339(unix_seconds: i64) -> String {
    utc(unix_seconds).map_or(format!("@{unix_seconds}"), |it| {
        let (year, month) = (i64::from(it.tm_year) + 1900, it.tm_mon + 1);
        let (day, hour, minute, second) = (it.tm_mday, it.tm_hour, it.tm_min, it.tm_sec);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    })
}

/// A date and a time of day, without a time zone. The month and the day are from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    pub year: u32,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl DateTime {
    /// Seconds from 1970 to this time in UTC; `None` if no calendar has it.
    pub fn unix_in_utc(&self) -> Option<i64> {
        let number = |value: u32| libc::c_int::try_from(value).ok();
        // SAFETY: plain data for which all zeros is a value.
        let mut it: libc::tm = unsafe { std::mem::zeroed() };
        it.tm_year = number(self.year)? - 1900;
        it.tm_mon = number(self.month)? - 1;
        it.tm_mday = number(self.day)?;
        it.tm_hour = number(self.hour)?;
        it.tm_min = number(self.minute)?;
        it.tm_sec = number(self.second)?;
        // SAFETY: only reads and writes what it is given.
        let seconds = unsafe { libc::timegm(&mut it) };
        // A date that no calendar has would be that of another day.
        (date_time(&utc(seconds)?) == Some(*self)).then_some(seconds)
    }

    /// Seconds from 1970 to this time in the local time zone, which `TZ` names. Empty if the zone
    /// leaves it out, as clocks are set forward; two if the zone has it twice.
    pub fn unix_in_local_zone(&self) -> Vec<i64> {
        const DAY: i64 = 86_400;
        let Some(in_utc) = self.unix_in_utc() else { return Vec::new() };
        let here = |at: i64| date_time(&local(at)?);
        // The zone's offsets a day before and after, between which clocks may have been set.
        let offset = |at: i64| Some(here(at)?.unix_in_utc()? - at);
        let offsets = [in_utc - DAY, in_utc + DAY].into_iter().filter_map(offset);
        let mut times: Vec<i64> = offsets.map(|offset| in_utc - offset).collect();
        times.retain(|&at| here(at) == Some(*self));
        times.dedup();
        times
    }
}

/// The wall clock, in seconds since 1970; 0 before.
pub fn now_unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Whole seconds since 1970 by the wall clock; 0 before.
pub fn now_unix_seconds() -> i64 {
    now_unix() as i64
}

fn date_time(it: &libc::tm) -> Option<DateTime> {
    let number = |value: libc::c_int| u32::try_from(value).ok();
    Some(DateTime {
        year: number(it.tm_year + 1900)?,
        month: number(it.tm_mon)? + 1,
        day: number(it.tm_mday)?,
        hour: number(it.tm_hour)?,
        minute: number(it.tm_min)?,
        second: number(it.tm_sec)?,
    })
}

fn c_layout(it: &libc::tm) -> String {
    let (weekday, month) = (DAYS[it.tm_wday as usize % 7], MONTHS[it.tm_mon as usize % 12]);
    let (day, hour, minute, second) = (it.tm_mday, it.tm_hour, it.tm_min, it.tm_sec);
    let year = i64::from(it.tm_year) + 1900;
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// The calendar of a time in the local zone; `None` if its year does not fit.
fn local(unix_seconds: i64) -> Option<libc::tm> {
    // SAFETY: plain data for which all zeros is a value.
    let mut calendar: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: writes only to `calendar` and reads only `unix_seconds`, and both live here.
    let result = unsafe { libc::localtime_r(&unix_seconds, &mut calendar) };
    (!result.is_null()).then_some(calendar)
}

/// The calendar of a time in UTC; `None` if its year does not fit.
fn utc(unix_seconds: i64) -> Option<libc::tm> {
    // SAFETY: as in `local`.
    let mut calendar: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: as in `local`.
    let result = unsafe { libc::gmtime_r(&unix_seconds, &mut calendar) };
    (!result.is_null()).then_some(calendar)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn known_points() {
        assert_eq!(c_layout(&utc(0).unwrap()), "Thu Jan  1 00:00:00 1970");
        assert_eq!(c_layout(&utc(1_700_000_000).unwrap()), "Tue Nov 14 22:13:20 2023");
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

    #[test]
    fn times_of_no_calendar_are_none() {
        let at = |year, month, day| DateTime { year, month, day, hour: 1, minute: 2, second: 3 };
        assert_eq!(at(2024, 2, 29).unix_in_utc(), Some(1_709_168_523));
        for (year, month, day) in [(2023, 2, 29), (2023, 0, 1), (2023, 13, 1), (2023, 4, 31)] {
            assert_eq!(at(year, month, day).unix_in_utc(), None, "{year}-{month}-{day}");
        }
        assert_eq!(DateTime { second: 60, ..at(2023, 1, 1) }.unix_in_utc(), None);
    }

    /// Runs this test in another process, as the C library reads `TZ` when it likes.
    #[test]
    fn local_times_that_a_zone_has_twice_or_never() {
        const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
        if std::env::var("TZ").as_deref() != Ok(ZONE) {
            let name = "clock::tests::local_times_that_a_zone_has_twice_or_never";
            let mut command = Command::new(std::env::current_exe().unwrap());
            let status = command.args(["--exact", name]).env("TZ", ZONE).status();
            assert!(status.unwrap().success());
            return;
        }
        let at = |month, day, hour| {
            DateTime { year: 2026, month, day, hour, minute: 30, second: 0 }.unix_in_local_zone()
        };
        assert_eq!(at(11, 29, 6), [1_795_930_200]);
        assert_eq!(at(7, 1, 6), [1_782_880_200]);
        assert_eq!(at(3, 29, 2), []);
        assert_eq!(at(10, 25, 2), [1_792_888_200, 1_792_891_800]);
    }

    proptest! {
        #[test]
        fn dates_lead_back_to_their_time(seconds in 0i64..250_000_000_000) {
            let there = |it: Option<libc::tm>| date_time(&it.unwrap()).unwrap();
            prop_assert_eq!(there(utc(seconds)).unix_in_utc(), Some(seconds));
            let local = there(local(seconds));
            prop_assert!(local.unix_in_local_zone().contains(&seconds));
        }
    }
}
