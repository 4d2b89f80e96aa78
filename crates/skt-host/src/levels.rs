//! Levels of images of checkpoints, as texts name them.

use serde::{Deserialize, Serialize};

use crate::named;

/// The default mean time between events that memory does not survive: a power failure, or more
/// losses than the groups survive. These are rarer than the loss of a node, for which a day is
/// assumed.
pub const IMAGES_MTBF_SECONDS: f64 = 30.0 * 86400.0;

/// Which processes see the images of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The processes of the node that has written them.
    Local,
    /// All processes of the job.
    Global,
}

named!(Reach { Local: "local", Global: "global" });

/// Parses words with commas between them. A word that `begin` accepts begins an item; each other
/// word is an option that the item before it has to `take`. The error is a word that is neither.
pub fn with_options<T>(
    text: &str,
    begin: impl Fn(&str) -> Option<T>,
    take: impl Fn(&mut T, &str) -> Option<()>,
) -> Result<Vec<T>, &str> {
    let mut items: Vec<T> = Vec::new();
    for word in text.split(',') {
        match begin(word) {
            Some(item) => items.push(item),
            None => items.last_mut().and_then(|item| take(item, word)).ok_or(word)?,
        }
    }
    Ok(items)
}
