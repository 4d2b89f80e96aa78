//! Clocks: who keeps them low, and what they do under load.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::finding;
use skt_host::counters::frequency::CpuClock;

/// Clocks within this share are equal.
const EQUAL: f64 = 0.95;
/// The least share of its clock that a core keeps under the load of vector instructions: of the
/// nominal clock, or of that in a loop of integers where this is lower. Clocks above the nominal
/// one are not promised under such a load, and processors with AVX-512 are made without them.
const KEPT: f64 = 0.8;

fn gigahertz(khz: u64) -> String {
    format!("{:.2} GHz", khz as f64 / 1e6)
}

/// Findings from the settings of the clocks and from the firmware.
pub(crate) fn settings(host: &HostFacts) -> Vec<Finding> {
    [governor(host), cap(host), boost(host), firmware(host)].into_iter().flatten().collect()
}

/// Findings from the clocks that were measured, and from what was counted during the measurement.
pub(crate) fn measured(host: &HostFacts) -> Vec<Finding> {
    [throttled(host), low(host), falling(host)].into_iter().flatten().collect()
}

fn used_clocks(host: &HostFacts) -> impl Iterator<Item = &CpuClock> {
    let used = host.used_cpus();
    host.counters.frequencies.cpus.iter().filter(move |clock| used.contains(&clock.cpu))
}

fn governor(host: &HostFacts) -> Option<Finding> {
    let keeps_low = |clock: &&CpuClock| {
        if clock.is_self_governed() {
            clock.preference.as_deref() == Some("power")
        } else {
            ["powersave", "conservative"].contains(&clock.governor.as_str())
        }
    };
    let found: Vec<&CpuClock> = used_clocks(host).filter(keeps_low).collect();
    let clock = *found.first()?;
    let (what, remedy) = if clock.is_self_governed() {
        (
            "the processor is set to save power".to_owned(),
            "x86_energy_perf_policy performance (as root)",
        )
    } else {
        (
            format!("the governor '{}' keeps the clock low", clock.governor),
            "cpupower frequency-set -g performance (as root)",
        )
    };
    let measured = format!(
        "{} CPU(s), driver {}, {} to {}",
        found.len(),
        clock.driver,
        gigahertz(clock.least_khz),
        gigahertz(clock.most_khz)
    );
    // With a driver that does not choose the clock itself, `powersave` means the lowest one.
    let times = clock.most_khz as f64 / clock.least_khz.max(1) as f64;
    let is_lowest = clock.governor == "powersave" && !clock.is_self_governed() && times > 1.0;
    let gain = is_lowest.then(|| Gain::computed(times)).flatten();
    Some(finding(host, FindingKind::Governor, what, measured, remedy, gain))
}

fn cap(host: &HostFacts) -> Option<Finding> {
    let is_capped = |clock: &&CpuClock| (clock.allowed_khz as f64) < EQUAL * clock.most_khz as f64;
    // Without a boost the nominal clock is the highest.
    let boosts = host.counters.frequencies.boosts != Some(false);
    let clock = used_clocks(host).filter(is_capped).find(|_| boosts)?;
    let measured =
        format!("at most {} of {}", gigahertz(clock.allowed_khz), gigahertz(clock.most_khz));
    let remedy = format!("cpupower frequency-set -u {}kHz (as root)", clock.most_khz);
    let gain = Gain::computed(clock.most_khz as f64 / clock.allowed_khz.max(1) as f64);
    Some(finding(host, FindingKind::ClockCap, "a setting caps the clock", measured, remedy, gain))
}

fn boost(host: &HostFacts) -> Option<Finding> {
    let clock =
        used_clocks(host).next().filter(|_| host.counters.frequencies.boosts == Some(false))?;
    let (file, value) = match clock.driver.as_str() {
        "intel_pstate" | "intel_cpufreq" => ("/sys/devices/system/cpu/intel_pstate/no_turbo", 0),
        _ => ("/sys/devices/system/cpu/cpufreq/boost", 1),
    };
    let base = clock.base_khz.filter(|base| (*base as f64) < EQUAL * clock.most_khz as f64);
    let measured = match base {
        Some(base) => format!("{} of {}", gigahertz(base), gigahertz(clock.most_khz)),
        None => format!("see {file}"),
    };
    let gain = base.and_then(|base| Gain::computed(clock.most_khz as f64 / base as f64));
    let what = "clocks above the nominal one are switched off";
    let remedy = format!("echo {value} > {file} (as root)");
    Some(finding(host, FindingKind::NoBoost, what, measured, remedy, gain))
}

fn firmware(host: &HostFacts) -> Option<Finding> {
    let throttling = &host.counters.throttling;
    let why = throttling.now()?;
    let what = format!("the firmware slows the processor down: {why}");
    let measured = format!("get_throttled reports {:#x}", throttling.firmware.unwrap_or(0));
    let remedy = "a power supply of its maker, and a heat sink with a fan (vcgencmd get_throttled)";
    Some(finding(host, FindingKind::Throttled, what, measured, remedy, None))
}

fn throttled(host: &HostFacts) -> Option<Finding> {
    let events = host.measured().map(|measured| measured.throttled).max()?;
    if events == 0 {
        return None;
    }
    let measured = format!("{events} event(s) of thermal_throttle during the measurement");
    let remedy = "cooling: filters and fans of the host, and the temperature of the room (sensors, \
                  ipmitool sdr type temperature)";
    let what = "cores are slowed down because they are too hot";
    Some(finding(host, FindingKind::Throttled, what, measured, remedy, None))
}

fn low(host: &HostFacts) -> Option<Finding> {
    let clock = host.mean(|measured| measured.light_gigahertz)?;
    let nominal = host.nominal_gigahertz()?;
    if clock >= 0.9 * nominal {
        return None;
    }
    let measured = format!("{clock:.2} of {nominal:.2} GHz, in a loop of integers");
    let remedy = "cpupower frequency-set -g performance; the power profile and the power limit in \
                  the BIOS; turbostat shows which limit binds";
    let what = "the clock is below the nominal one";
    Some(finding(
        host,
        FindingKind::LowClock,
        what,
        measured,
        remedy,
        Gain::computed(nominal / clock),
    ))
}

fn falling(host: &HostFacts) -> Option<Finding> {
    let light = host.mean(|measured| measured.light_gigahertz)?;
    let vector = host.mean(|measured| measured.vector_gigahertz)?;
    let promised = host.nominal_gigahertz().map_or(light, |nominal| nominal.min(light));
    if vector >= KEPT * promised {
        return None;
    }
    let measured = format!("from {light:.2} to {vector:.2} GHz after a second of DGEMM");
    let remedy = "the power limit and the power profile in the BIOS, and cooling (turbostat shows \
                  which limit binds)";
    let what = "the clock falls under the load of vector instructions";
    let gain = Gain::computed(promised / vector);
    Some(finding(host, FindingKind::FallingClock, what, measured, remedy, gain))
}
