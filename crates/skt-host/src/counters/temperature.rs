//! The highest temperature that the machine's sensors report.

use super::Root;

/// Readings outside of this range come from inputs without a sensor, in degrees Celsius.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=150.0;

/// The hottest sensor of a processor, or of all sensors where none is known to be a processor's, in
/// degrees Celsius; `None` where there is no sensor, as on most virtual machines.
pub fn hottest_celsius(root: &Root) -> Option<f64> {
    const MONITORS: &str = "sys/class/hwmon";
    /// Drivers of the sensors in processors: Intel, AMD, AMD before 2017, Ampere and others.
    const PROCESSORS: [&str; 4] = ["coretemp", "k10temp", "k8temp", "cpu_thermal"];
    let (mut of_processors, mut of_all) = (Vec::new(), Vec::new());
    for monitor in root.names(MONITORS) {
        let name = root.text(&format!("{MONITORS}/{monitor}/name")).unwrap_or_default();
        let files = root.names(&format!("{MONITORS}/{monitor}"));
        let inputs =
            files.iter().filter(|file| file.starts_with("temp") && file.ends_with("_input"));
        let found: Vec<f64> = inputs
            .filter_map(|file| celsius(root, &format!("{MONITORS}/{monitor}/{file}")))
            .collect();
        if PROCESSORS.contains(&name.as_str()) {
            of_processors.extend(&found);
        }
        of_all.extend(found);
    }
    const ZONES: &str = "sys/class/thermal";
    let zones = root.names(ZONES);
    let zones = zones.iter().filter(|zone| zone.starts_with("thermal_zone"));
    of_all.extend(zones.filter_map(|zone| celsius(root, &format!("{ZONES}/{zone}/temp"))));
    let sensors = if of_processors.is_empty() { of_all } else { of_processors };
    sensors.into_iter().reduce(f64::max)
}

/// A plausible reading of a file in thousandths of a degree.
fn celsius(root: &Root, path: &str) -> Option<f64> {
    let value = root.text(path)?.parse::<f64>().ok()? / 1e3;
    PLAUSIBLE.contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

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
}
