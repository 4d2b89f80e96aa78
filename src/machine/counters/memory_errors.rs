//! Errors of the memory that its controllers have corrected or found (EDAC), and machine checks.

use serde::{Deserialize, Serialize};

use super::Root;

/// Errors since the machine was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryErrors {
    /// Memory controllers with errors, by their names: corrected and uncorrected ones.
    pub controllers: Vec<(String, u64, u64)>,
    /// Machine check exceptions of all CPUs.
    pub machine_checks: u64,
}

/// Reads the counts.
pub fn read(root: &Root) -> MemoryErrors {
    const FOLDER: &str = "sys/devices/system/edac/mc";
    let controller = |name: String| {
        let count = |file: &str| root.number(&format!("{FOLDER}/{name}/{file}")).unwrap_or(0);
        let (corrected, uncorrected) = (count("ce_count"), count("ue_count"));
        (corrected + uncorrected > 0).then_some((name, corrected, uncorrected))
    };
    let interrupts = root.text("proc/interrupts").unwrap_or_default();
    let checks = interrupts.lines().find_map(|line| line.trim_start().strip_prefix("MCE:"));
    // The counts of all CPUs, then words.
    let counts =
        checks.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<u64>().ok());
    MemoryErrors {
        controllers: root.names(FOLDER).into_iter().filter_map(controller).collect(),
        machine_checks: counts.sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;

    #[test]
    fn controllers_without_errors_are_left_out() {
        let tree = Tree::new();
        assert_eq!(read(&tree.root()), MemoryErrors::default());
        for (name, corrected) in [("mc0", "0"), ("mc1", "12")] {
            tree.file(&format!("sys/devices/system/edac/mc/{name}/ce_count"), corrected);
            tree.file(&format!("sys/devices/system/edac/mc/{name}/ue_count"), "0");
        }
        let text = "  CPU0 CPU1\n MCE:   1   2   Machine check exceptions\n MCP: 9 9 polls\n";
        tree.file("proc/interrupts", text);
        let want = MemoryErrors { controllers: vec![("mc1".into(), 12, 0)], machine_checks: 3 };
        assert_eq!(read(&tree.root()), want);
    }
}
