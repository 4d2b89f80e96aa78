//! Settings that all processes of a start must have alike. They are compared before anything
//! depends on them: processes with different settings would wait for messages that are never sent.

use serde::{Deserialize, Serialize};

use super::parameters::cut_value;
use skt_comm::collect::{all_reduce, broadcast_bytes};
use skt_comm::{Comm, Result};
use skt_store::codec::checksum;

/// A setting of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The name of the setting, as users know it.
    pub name: String,
    /// The value, as processes compare it.
    pub value: String,
    /// The value as messages show it, for instance with its origin.
    pub shown: String,
}

impl Setting {
    /// A setting whose messages show its value.
    pub fn new(name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        Self { name: name.to_owned(), shown: cut_value(&value), value }
    }
}

/// The first process whose settings differ from those of process 0, and its first such setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The process.
    pub process: usize,
    /// The name of the setting.
    pub name: String,
    /// The value that the process has.
    pub here: String,
    /// The value that process 0 has.
    pub there: String,
}

/// Compares the settings of all processes. Returns the first difference, the same on all processes,
/// if there is one. Collective.
pub fn compare(comm: &Comm, mine: &[Setting]) -> Result<Option<Difference>> {
    let values: Vec<_> = mine.iter().map(|setting| (&setting.name, &setting.value)).collect();
    let sum = checksum(&serde_json::to_vec(&values).expect("plain data"));
    let mut ends = [sum, !sum];
    all_reduce(comm, &mut ends, u64::min)?;
    if ends[0] == !ends[1] {
        return Ok(None);
    }
    let mut of_0 = serde_json::to_vec(mine).expect("plain data");
    broadcast_bytes(comm, &mut of_0, 0)?;
    let of_0: Vec<Setting> = serde_json::from_slice(&of_0).expect("written just now");
    let difference = first_difference(comm.rank(), mine, &of_0);
    let mut first = [difference.as_ref().map_or(u64::MAX, |_| comm.rank() as u64)];
    all_reduce(comm, &mut first, u64::min)?;
    let mut answer = serde_json::to_vec(&difference).expect("plain data");
    broadcast_bytes(comm, &mut answer, first[0] as usize)?;
    Ok(serde_json::from_slice(&answer).expect("written just now"))
}

/// One of the two may have more settings, in another version of the program.
fn first_difference(process: usize, mine: &[Setting], of_0: &[Setting]) -> Option<Difference> {
    let at = |all: &[Setting], index: usize| all.get(index).cloned();
    (0..mine.len().max(of_0.len())).find_map(|index| {
        let (here, there) = (at(mine, index), at(of_0, index));
        let key = |setting: &Option<Setting>| setting.clone().map(|it| (it.name, it.value));
        if key(&here) == key(&there) {
            return None;
        }
        let name = here.as_ref().or(there.as_ref()).expect("one of them").name.clone();
        let of = |setting: Option<Setting>| {
            setting.filter(|it| it.name == name).map_or("no such setting".to_owned(), |it| it.shown)
        };
        let (here, there) = (of(here), of(there));
        Some(Difference { process, name, here, there })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_comm::{CommError, threads};

    const RANKS: usize = 5;

    fn compared(settings: impl Fn(usize) -> Vec<Setting> + Sync) -> Option<Difference> {
        let all = threads::run(RANKS, |comm| {
            let found = compare(&comm, &settings(comm.rank()))?;
            // The barrier completes only if all ranks have returned from the comparison.
            comm.barrier()?;
            Ok::<_, CommError>(found)
        });
        let mut all: Vec<_> = all.into_iter().map(|found| found.expect("no rank dies")).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
        all.remove(0)
    }

    #[test]
    fn equal_settings_have_no_difference() {
        let shown = |rank: usize| {
            let shown = format!("of {rank}");
            vec![Setting { shown, ..Setting::new("a", 1) }, Setting::new("b", "x")]
        };
        assert_eq!(compared(shown), None);
    }

    #[test]
    fn the_first_process_that_differs_is_named_with_its_setting() {
        for odd in 0..RANKS {
            let settings = |rank: usize| {
                vec![Setting::new("a", 1), Setting::new("b", if rank == odd { "x" } else { "y" })]
            };
            let (here, there) = if odd == 0 { ("y", "x") } else { ("x", "y") };
            let (name, here, there) = ("b".to_owned(), here.to_owned(), there.to_owned());
            let want = Difference { process: odd.max(1), name, here, there };
            assert_eq!(compared(settings), Some(want), "{odd}");
        }
    }

    #[test]
    fn a_setting_that_one_version_lacks_is_a_difference() {
        for odd in [0, 3] {
            let settings = |rank: usize| {
                let mut all = vec![Setting::new("a", 1), Setting::new("b", 2)];
                all.truncate(if rank == odd { 1 } else { 2 });
                all
            };
            let found = compared(settings).expect("one is missing");
            assert_eq!((found.process, &*found.name), (odd.max(1), "b"));
            assert!([&*found.here, &*found.there].contains(&"no such setting"), "{found:?}");
        }
    }
}
