//! The clocks of the cores, and what limits them.

use serde::{Deserialize, Serialize};

use super::Root;

const FOLDER: &str = "sys/devices/system/cpu";

/// The clocks of a machine; empty or `None` where the kernel does not set them, as in a virtual
/// machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequencies {
    /// The clocks of each CPU that has any.
    pub cpus: Vec<CpuClock>,
    /// Whether clocks above the nominal one are allowed (`no_turbo`, `boost`).
    pub boosts: Option<bool>,
}

/// The clocks of a CPU, in kHz.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuClock {
    /// The kernel's number of the CPU.
    pub cpu: usize,
    /// The governor, which chooses the clock.
    pub governor: String,
    /// The driver; those of `SELF_GOVERNED` leave the choice to the processor.
    pub driver: String,
    /// The energy preference that the processor is set to, if it has the choice.
    pub preference: Option<String>,
    /// The lowest clock of the hardware.
    pub least_khz: u64,
    /// The highest clock that the driver can set: the highest of the hardware, or of the list from
    /// which the driver chooses, which leaves the boost to the processor (acpi-cpufreq).
    pub most_khz: u64,
    /// The highest clock that the settings allow.
    pub allowed_khz: u64,
    /// The nominal clock.
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
pub fn read(root: &Root, ids: &[usize]) -> Frequencies {
    let turbo = root.number(&format!("{FOLDER}/intel_pstate/no_turbo")).map(|no| no == 0);
    let boost = || root.number(&format!("{FOLDER}/cpufreq/boost")).map(|on| on != 0);
    let clock = |&cpu: &usize| {
        let path = |name: &str| format!("{FOLDER}/cpu{cpu}/cpufreq/{name}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn a_machine_without_cpufreq_has_no_clocks() {
        assert_eq!(read(&Tree::new().root(), &[0, 1]), Frequencies::default());
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
        let found = read(&tree.root(), &[0, 1]);
        assert_eq!((found.cpus.len(), found.boosts), (1, Some(false)));
        let clock = &found.cpus[0];
        assert_eq!((clock.cpu, clock.allowed_khz, clock.least_khz), (1, 2_000_000, 3_500_000));
        assert!(clock.governor == "powersave" && !clock.is_self_governed());
        // Some kernels add the boost to the highest clock, to which no setting can raise this one.
        tree.file(&format!("{folder}/scaling_available_frequencies"), "2450000 2000000 1500000 \n");
        assert_eq!(read(&tree.root(), &[1]).cpus[0].most_khz, 2_450_000);
        tree.file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        assert_eq!(read(&tree.root(), &[]).boosts, Some(true), "Intel's own file decides");
    }
}
