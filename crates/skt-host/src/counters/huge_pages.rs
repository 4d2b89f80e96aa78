//! The setting of transparent huge pages.

use super::Root;

/// The word in brackets of `always [madvise] never`: the setting for private memory. `None` if the
/// kernel has no transparent huge pages.
pub fn read(root: &Root) -> Option<String> {
    let text = root.text("sys/kernel/mm/transparent_hugepage/enabled")?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn the_word_in_brackets_is_the_setting() {
        let tree = Tree::new();
        assert_eq!(read(&tree.root()), None);
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        tree.file(path, "always madvise [never]\n");
        assert_eq!(read(&tree.root()).as_deref(), Some("never"));
    }
}
