//! Errors of the memory that its controllers have corrected or found (EDAC), and machine checks.

use serde::{Deserialize, Serialize};

use super::Root;

/// Errors since the machine was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryErrors {
    /// Memory controllers with errors, by their names: corrected and uncorrected ones.
    pub controllers: Vec<(String, u64, u64)>,
    /// Whether the counts of all controllers could be read.
    pub has_all: bool,
    /// Machine check exceptions of all CPUs; `None` where they are not known.
    pub machine_checks: Option<u64>,
}

/// Reads the counts.
pub fn read(root: &Root) -> MemoryErrors {
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
    fn controllers_without_errors_are_left_out() {
        let tree = Tree::new();
        let unknown = MemoryErrors { has_all: true, ..MemoryErrors::default() };
        assert_eq!(read(&tree.root()), unknown);
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
        assert_eq!(read(&tree.root()), want);
        tree.file("sys/devices/system/edac/mc/mc1/ce_count", "12 errors");
        tree.file("proc/interrupts", &text.replace("1   2", "1   x"));
        assert_eq!(read(&tree.root()), MemoryErrors::default(), "unknown, and not 0 or 1");
    }
}
