//! Folders in place of `/`, for tests, also those of other crates.

use std::fs;

use crate::counters::Root;

/// A folder in place of `/`, filled by a test.
#[derive(Debug)]
pub struct Tree(tempfile::TempDir);

impl Tree {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn root(&self) -> Root {
        Root::at(self.0.path())
    }
}

/// The range of a package of Xeon, in uJ.
pub(crate) const RANGE_UJ: u64 = 262_143_328_850;

/// A zone of RAPL whose counter reads `energy_uj`.
pub fn zone(tree: &Tree, zone: &str, name: &str, energy_uj: u64) {
    let folder = format!("sys/class/powercap/{zone}");
    tree.file(&format!("{folder}/name"), name);
    tree.file(&format!("{folder}/energy_uj"), &format!("{energy_uj}\n"));
    tree.file(&format!("{folder}/max_energy_range_uj"), &format!("{RANGE_UJ}\n"));
}
