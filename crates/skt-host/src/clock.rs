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

/// A date and a time of day, without a time zone. The month and the day are from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    /// The year of the Gregorian calendar.
    pub year: u32,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// From 0 to 23.
    pub hour: u32,
    /// From 0 to 59.
    pub minute: u32,
    /// From 0 to 59.
    pub second: u32,
}

impl DateTime {
    /// Seconds from 1970 to this time in UTC; `None` if no calendar has it.
    pub fn unix_in_utc(&self) -> Option<i64> {
        let Self { year, month, day, hour, minute, second } = *self;
        // The days before the month, in years that begin with March, as in `utc`.
        let month_from_march = i64::from((month + 9) % 12);
        let year_from_march = i64::from(year) - i64::from(month <= 2);
        let leap_days = year_from_march.div_euclid(4) - year_from_march.div_euclid(100)
            + year_from_march.div_euclid(400);
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
        let days = 365 * year_from_march + leap_days + day_of_year - 719_468;
        let in_day = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        let seconds = days * 86_400 + in_day;
        (utc(seconds).date_time() == Some(*self)).then_some(seconds)
    }

    /// Seconds from 1970 to this time in the local time zone, which `TZ` names. Empty if the zone
    /// leaves it out, as clocks are set forward; two if the zone has it twice.
    pub fn unix_in_local_zone(&self) -> Vec<i64> {
        const DAY: i64 = 86_400;
        let Some(in_utc) = self.unix_in_utc() else { return Vec::new() };
        // The zone's offsets a day before and after, between which clocks may have been set.
        let offset = |at: i64| Some(local(at)?.date_time()?.unix_in_utc()? - at);
        let offsets = [in_utc - DAY, in_utc + DAY].into_iter().filter_map(offset);
        let mut times: Vec<i64> = offsets.map(|offset| in_utc - offset).collect();
        times.retain(|&at| local(at).and_then(|it| it.date_time()) == Some(*self));
        times.dedup();
        times
    }
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

impl Calendar {
    fn date_time(&self) -> Option<DateTime> {
        let Self { year, month, day, hour, minute, second, .. } = *self;
        let (year, month) = (u32::try_from(year).ok()?, month as u32 + 1);
        Some(DateTime { year, month, day, hour, minute, second })
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
            prop_assert_eq!(utc(seconds).date_time().unwrap().unix_in_utc(), Some(seconds));
            let local = local(seconds).unwrap().date_time().unwrap();
            prop_assert!(local.unix_in_local_zone().contains(&seconds));
        }

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
