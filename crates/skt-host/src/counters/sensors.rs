//! The clocks of the cores and what limits them, throttling, temperatures, errors of the memory.

use serde::{Deserialize, Serialize};

use super::Root;

const CPUS: &str = "sys/devices/system/cpu";

/// The clocks of a machine; empty or `None` where the kernel does not set them, as in a virtual
/// machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequencies {
    pub cpus: Vec<CpuClock>,
    /// Whether clocks above the nominal one are allowed (`no_turbo`, `boost`).
    pub boosts: Option<bool>,
}

/// The clocks of a CPU, in kHz.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuClock {
    pub cpu: usize,
    pub governor: String,
    /// The driver; those of `SELF_GOVERNED` leave the choice to the processor.
    pub driver: String,
    /// The energy preference that the processor is set to, if it has the choice.
    pub preference: Option<String>,
    pub least_khz: u64,
    /// The highest clock that the driver can set: the highest of the hardware, or of the list from
    /// which the driver chooses, which leaves the boost to the processor (acpi-cpufreq).
    pub most_khz: u64,
    /// The highest clock that the settings allow.
    pub allowed_khz: u64,
    pub base_khz: Option<u64>,
}

impl CpuClock {
    /// Whether the processor itself chooses the clock: then `powersave` is the ordinary governor.
    pub fn is_self_governed(&self) -> bool {
        const SELF_GOVERNED: [&str; 3] = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];
        SELF_GOVERNED.contains(&self.driver.as_str())
    }
}

/// Reads the clocks of the CPUs `ids`.
pub fn frequencies(root: &Root, ids: &[usize]) -> Frequencies {
    let turbo = root.number(&format!("{CPUS}/intel_pstate/no_turbo")).map(|no| no == 0);
    let boost = || root.number(&format!("{CPUS}/cpufreq/boost")).map(|on| on != 0);
    let clock = |&cpu: &usize| {
        let path = |name: &str| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
        let listed = root.text(&path("scaling_available_frequencies")).unwrap_or_default();
        let listed: Option<Vec<u64>> =
            listed.split_whitespace().map(|khz| khz.parse().ok()).collect();
        let listed = listed.and_then(|listed| listed.into_iter().max());
        let most_khz = root.number(&path("cpuinfo_max_freq"))?;
        let most_khz = listed.map_or(most_khz, |listed| listed.min(most_khz));
        Some(CpuClock {
            cpu,
            governor: root.text(&path("scaling_governor"))?,
            driver: root.text(&path("scaling_driver")).unwrap_or_default(),
            preference: root.text(&path("energy_performance_preference")),
            least_khz: root.number(&path("cpuinfo_min_freq")).unwrap_or(most_khz),
            most_khz,
            allowed_khz: root.number(&path("scaling_max_freq")).unwrap_or(most_khz),
            base_khz: root.number(&path("base_frequency")),
        })
    };
    Frequencies { cpus: ids.iter().filter_map(clock).collect(), boosts: turbo.or_else(boost) }
}

/// The events of each of the CPUs `ids` and its package since the machine was started. Each CPU of
/// a package counts the package's events.
pub fn events_of_cpus(root: &Root, ids: &[usize]) -> Vec<Option<u64>> {
    let of_cpu = |&id: &usize| {
        let count = |name: &str| {
            let folder = format!("{CPUS}/cpu{id}/thermal_throttle");
            root.number(&format!("{folder}/{name}"))
        };
        let (core, package) = (count("core_throttle_count"), count("package_throttle_count"));
        (core.is_some() || package.is_some()).then(|| core.unwrap_or(0) + package.unwrap_or(0))
    };
    ids.iter().map(of_cpu).collect()
}

/// The events between two readings of [`events_of_cpus`], of the CPU with the most.
pub fn max_events_between(before: &[Option<u64>], after: &[Option<u64>]) -> u64 {
    let moved = |(before, after): (&Option<u64>, &Option<u64>)| (*after)?.checked_sub((*before)?);
    before.iter().zip(after).filter_map(moved).max().unwrap_or(0)
}

/// Readings outside of this range come from inputs without a sensor, in degrees Celsius.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=150.0;

/// The hottest sensor of a processor, or of all sensors where none is known to be a processor's, in
/// degrees Celsius; `None` where there is no sensor, as on most virtual machines.
pub fn hottest_celsius(root: &Root) -> Option<f64> {
    /// The folders of sensors, and how the names of files with a temperature begin and end.
    const MONITORS: [[&str; 3]; 2] =
        [["sys/class/hwmon", "temp", "_input"], ["sys/class/thermal", "temp", "temp"]];
    /// Drivers of the sensors in processors: Intel, AMD, AMD before 2017, Ampere and others.
    const PROCESSORS: [&str; 4] = ["coretemp", "k10temp", "k8temp", "cpu_thermal"];
    // Those of processors are greater than all others.
    let mut hottest: Option<(bool, f64)> = None;
    for [folder, begin, end] in MONITORS {
        for monitor in root.names(folder).iter().map(|name| format!("{folder}/{name}")) {
            let name = root.text(&format!("{monitor}/name"));
            let is_processor = name.is_some_and(|name| PROCESSORS.contains(&name.as_str()));
            let files = root.names(&monitor);
            let inputs = files.iter().filter(|it| it.starts_with(begin) && it.ends_with(end));
            let found = inputs.filter_map(|it| celsius(root, &format!("{monitor}/{it}")));
            let all = found.map(|celsius| (is_processor, celsius)).chain(hottest);
            hottest = all.reduce(|a, b| if a > b { a } else { b });
        }
    }
    hottest.map(|(_, celsius)| celsius)
}

/// A plausible reading of a file in thousandths of a degree.
fn celsius(root: &Root, path: &str) -> Option<f64> {
    let value = root.text(path)?.parse::<f64>().ok()? / 1e3;
    PLAUSIBLE.contains(&value).then_some(value)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryErrors {
    /// Memory controllers with errors, by their names: corrected and uncorrected ones.
    pub controllers: Vec<(String, u64, u64)>,
    /// Whether the counts of all controllers could be read.
    pub has_all: bool,
    /// Machine check exceptions of all CPUs; `None` where they are not known.
    pub machine_checks: Option<u64>,
}

pub fn memory_errors(root: &Root) -> MemoryErrors {
    const FOLDER: &str = "sys/devices/system/edac/mc";
    let controller = |name: String| {
        let count = |file: &str| root.number(&format!("{FOLDER}/{name}/{file}"));
        let (corrected, uncorrected) = (count("ce_count")?, count("ue_count")?);
        Some((name, corrected, uncorrected))
    };
    let is_controller = |name: &String| {
        name.strip_prefix("mc").is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let names: Vec<String> = root.names(FOLDER).into_iter().filter(is_controller).collect();
    let read: Vec<_> = names.into_iter().map(controller).collect();
    let has_all = read.iter().all(Option::is_some);
    let has_errors =
        |&(_, corrected, uncorrected): &(String, u64, u64)| corrected + uncorrected > 0;
    MemoryErrors {
        controllers: read.into_iter().flatten().filter(has_errors).collect(),
        has_all,
        machine_checks: root.text("proc/interrupts").and_then(|text| machine_checks(&text)),
    }
}

/// The sum over the CPUs that the first line of `/proc/interrupts` names.
fn machine_checks(interrupts: &str) -> Option<u64> {
    let cpus = interrupts.lines().next()?.split_whitespace().count();
    let line = interrupts.lines().find_map(|line| line.trim_start().strip_prefix("MCE:"))?;
    let counts: Option<Vec<u64>> =
        line.split_whitespace().take(cpus).map(|word| word.parse().ok()).collect();
    counts.filter(|counts| counts.len() == cpus).map(|counts| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn a_machine_without_cpufreq_has_no_clocks() {
        assert_eq!(frequencies(&Tree::new().root(), &[0, 1]), Frequencies::default());
    }

    #[test]
    fn settings_are_read() {
        let tree = Tree::new();
        let folder = "sys/devices/system/cpu/cpu1/cpufreq";
        tree.file(&format!("{folder}/cpuinfo_max_freq"), "3500000\n");
        tree.file(&format!("{folder}/scaling_max_freq"), "2000000\n");
        tree.file(&format!("{folder}/scaling_governor"), "powersave\n");
        tree.file(&format!("{folder}/scaling_driver"), "acpi-cpufreq\n");
        tree.file("sys/devices/system/cpu/cpufreq/boost", "0\n");
        let found = frequencies(&tree.root(), &[0, 1]);
        assert_eq!((found.cpus.len(), found.boosts), (1, Some(false)));
        let clock = &found.cpus[0];
        assert_eq!((clock.cpu, clock.allowed_khz, clock.least_khz), (1, 2_000_000, 3_500_000));
        assert!(clock.governor == "powersave" && !clock.is_self_governed());
        // Some kernels add the boost to the highest clock, to which no setting can raise this one.
        tree.file(&format!("{folder}/scaling_available_frequencies"), "2450000 2000000 1500000 \n");
        assert_eq!(frequencies(&tree.root(), &[1]).cpus[0].most_khz, 2_450_000);
        tree.file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        assert_eq!(frequencies(&tree.root(), &[]).boosts, Some(true), "Intel's own file decides");
    }

    /// An event of a package is counted at each of its CPUs, but is one.
    #[test]
    fn events_since_a_reading_are_those_of_the_cpu_with_most() {
        let tree = Tree::new();
        let count = |id: usize, name: &str, count: u64| {
            let folder = format!("sys/devices/system/cpu/cpu{id}/thermal_throttle");
            tree.file(&format!("{folder}/{name}_throttle_count"), &format!("{count}\n"));
        };
        let read = || events_of_cpus(&tree.root(), &[0, 1, 2]);
        [0, 1].into_iter().for_each(|id| count(id, "package", 5));
        let before = read();
        assert_eq!(before, [Some(5), Some(5), None]);
        assert_eq!(max_events_between(&before, &before), 0);
        [0, 1].into_iter().for_each(|id| count(id, "package", 12));
        count(1, "core", 5);
        assert_eq!(max_events_between(&before, &read()), 12);
        assert_eq!(max_events_between(&read(), &before), 0, "counters restart from 0 with a start");
    }

    #[test]
    fn hottest_core_counts_and_no_other_sensor() {
        let tree = Tree::new();
        assert_eq!(hottest_celsius(&tree.root()), None);
        tree.file("sys/class/thermal/thermal_zone0/temp", "41000\n");
        tree.file("sys/class/hwmon/hwmon0/name", "nvme\n");
        tree.file("sys/class/hwmon/hwmon0/temp1_input", "88000\n");
        tree.file("sys/class/hwmon/hwmon0/temp2_input", "-273150\n");
        assert_eq!(hottest_celsius(&tree.root()), Some(88.0));
        tree.file("sys/class/hwmon/hwmon1/name", "coretemp\n");
        tree.file("sys/class/hwmon/hwmon1/temp1_input", "61000\n");
        tree.file("sys/class/hwmon/hwmon1/temp2_input", "64500\n");
        tree.file("sys/class/hwmon/hwmon1/temp2_crit", "100000\n");
        assert_eq!(hottest_celsius(&tree.root()), Some(64.5));
    }

    #[test]
    fn controllers_without_errors_are_left_out() {
        let tree = Tree::new();
        let unknown = MemoryErrors { has_all: true, ..MemoryErrors::default() };
        assert_eq!(memory_errors(&tree.root()), unknown);
        for (name, corrected) in [("mc0", "0"), ("mc1", "12")] {
            tree.file(&format!("sys/devices/system/edac/mc/{name}/ce_count"), corrected);
            tree.file(&format!("sys/devices/system/edac/mc/{name}/ue_count"), "0");
        }
        let text = "  CPU0 CPU1\n MCE:   1   2   Machine check exceptions\n MCP: 9 9 polls\n";
        tree.file("proc/interrupts", text);
        let want = MemoryErrors {
            controllers: vec![("mc1".into(), 12, 0)],
            has_all: true,
            machine_checks: Some(3),
        };
        assert_eq!(memory_errors(&tree.root()), want);
        tree.file("sys/devices/system/edac/mc/mc1/ce_count", "12 errors");
        tree.file("proc/interrupts", &text.replace("1   2", "1   x"));
        assert_eq!(memory_errors(&tree.root()), MemoryErrors::default(), "unknown, and not 0 or 1");
    }
}
