//! Which losses a list of nodes survives: computed before the run, from the groups that its ranks
//! will form.

use std::collections::BTreeMap;

use super::hosts::{Host, Pool};
use skt_checkpoint::checkpoint::group::{self, Groups, PlacementError};
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::launch::NoSpare;
use skt_config::protection::Settings;

/// What a list of nodes survives, in a sentence, with warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// Which losses the run survives.
    pub summary: String,
    /// What could go wrong.
    pub warnings: Vec<String>,
    /// For each node in use, in order: whether the checksums can rebuild the data of its ranks.
    /// Without checksums no node is losable, because nothing shows that it computes wrong.
    pub losable: Vec<bool>,
    /// The group of the rank of each slot of the nodes in use; empty where no groups can be formed.
    pub groups: Vec<usize>,
}

/// Judges the pool for `ranks` ranks. `rows` gives the groups of a run with checksums, which are
/// its process rows; `no_spare` is what follows a loss without a spare.
pub fn judge(
    pool: &Pool,
    ranks: usize,
    settings: &Settings,
    rows: Option<Vec<Vec<usize>>>,
    no_spare: NoSpare,
) -> Shape {
    let mut shape = Shape { losable: vec![false; pool.active.len()], ..Shape::default() };
    let parities = settings.parities;
    let of_host = |host: &Host| vec![settings.domain_of(&host.name); host.slots];
    let of_slots: Vec<String> = pool.active.iter().flat_map(of_host).take(ranks).collect();
    let has_checksums = rows.is_some();
    let refused = form(&of_slots, settings, rows.clone(), settings.allow_shared_domains).err();
    // A run that had begun continues there.
    let formed = form(&of_slots, settings, rows, true);
    if let Ok((groups, rank_of)) = &formed {
        let mut group_of = vec![0; rank_of.len()];
        for (group, members) in groups.members.iter().enumerate() {
            members.iter().for_each(|&rank| group_of[rank] = group);
        }
        shape.groups = rank_of.iter().map(|&rank| group_of[rank]).collect();
    }
    if settings.method_for(ranks) == Method::None {
        let why = if settings.is_on() {
            let least = 2 * parities;
            PlacementError::TooFewRanks { ranks, parities, least }.to_string()
        } else {
            "--ft none".to_owned()
        };
        shape.warnings = vec![format!(
            "no checkpoints ({why}): after any loss the run starts from the beginning"
        )];
        return shape;
    }
    shape.warnings.extend(refused.map(|why| why.to_string()));
    let Ok((groups, rank_of)) = formed else { return shape };
    if has_checksums {
        let mut first = 0;
        let is_losable = |host: &Host| {
            let here = &rank_of[first.min(ranks)..(first + host.slots).min(ranks)];
            first += host.slots;
            let lost = |row: &Vec<usize>| row.iter().filter(|rank| here.contains(rank)).count();
            groups.members.iter().all(|row| lost(row) <= parities)
        };
        shape.losable = pool.active.iter().map(is_losable).collect();
    }
    let mut domains = of_slots.clone();
    rank_of.iter().zip(of_slots).for_each(|(&rank, domain)| domains[rank] = domain);
    let sizes = groups.members.iter().map(Vec::len);
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    let size = if least == most { most.to_string() } else { format!("{least} to {most}") };
    shape.summary = format!(
        "{} group(s) of {size} ranks in {} failure domain(s): each survives the loss of {parities} \
         of its ranks; {} spare node(s)",
        groups.members.len(),
        count(domains.iter()).len(),
        pool.spares.len()
    );
    if groups.single_domain {
        shape.warnings.push(
            "all ranks are in one failure domain: the run survives the death of a process, but not \
             the loss of the domain"
                .to_owned(),
        );
        return shape;
    }
    shape.warnings.extend(too_many_in_a_domain(&groups, &domains, parities));
    if !pool.spares.is_empty() || no_spare == NoSpare::Stop {
        shape.warnings.extend(too_few_spares(pool, settings));
    }
    shape
}

/// The groups on slots in these failure domains, and the rank of each slot.
fn form(
    domains: &[String],
    settings: &Settings,
    rows: Option<Vec<Vec<usize>>>,
    allow_shared_domains: bool,
) -> Result<(Groups, Vec<usize>), PlacementError> {
    let Settings { group_size, parities, .. } = *settings;
    let Some(members) = rows else {
        let groups = group::form(domains, group_size, parities, allow_shared_domains)?;
        return Ok((groups, (0..domains.len()).collect()));
    };
    let group::Placement { ranks, single_domain } =
        group::place(domains, &members, parities, allow_shared_domains)?;
    Ok((Groups { members, single_domain }, ranks))
}

fn count<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    let mut all = BTreeMap::new();
    for name in names {
        *all.entry(name.as_str()).or_default() += 1;
    }
    all
}

/// Names a failure domain that has more ranks of one group than the code can rebuild, if there is
/// one.
fn too_many_in_a_domain(groups: &Groups, domains: &[String], parities: usize) -> Option<String> {
    let in_group = |members: &Vec<usize>| {
        let counts = count(members.iter().map(|rank| &domains[*rank]));
        counts.into_iter().max_by_key(|(_, ranks)| *ranks).map(|(name, n)| (n, name.to_owned()))
    };
    let (ranks, name) = groups.members.iter().filter_map(in_group).max()?;
    (ranks > parities).then(|| {
        format!(
            "failure domain {name} has {ranks} ranks of one group, which can lose {parities}: the \
             loss of {name} cannot be rebuilt; spread the ranks or raise --parities"
        )
    })
}

/// Warns of nodes that no spare can replace, and of failure domains with more nodes than there are
/// spares elsewhere.
fn too_few_spares(pool: &Pool, settings: &Settings) -> Vec<String> {
    if pool.spares.is_empty() {
        return vec![
            "no spare node: the first node that is lost stops the run until it is back (--no-spare \
             wait: and then continues; --no-spare spread: others run its ranks); list one node \
             more than the ranks need, or --spares"
                .to_owned(),
        ];
    }
    let mut warnings = Vec::new();
    let largest = pool.active.iter().map(|host| host.slots).max().unwrap_or(1);
    if !pool.spares.iter().any(|spare| spare.fits(largest)) {
        warnings.push(format!("no spare node has the {largest} slots of the largest node"));
    }
    let domains = |hosts: &[Host]| -> Vec<String> {
        hosts.iter().map(|host| settings.domain_of(&host.name)).collect()
    };
    let (active, spares) = (domains(&pool.active), domains(&pool.spares));
    if let Some((name, nodes)) = count(active.iter()).into_iter().max_by_key(|(_, nodes)| *nodes) {
        let outside = spares.iter().filter(|domain| *domain != name).count();
        if nodes > 1 && outside < nodes {
            warnings.push(format!(
                "the loss of failure domain {name} takes {nodes} nodes; {outside} spare(s) are \
                 elsewhere"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &str, slots: usize) -> Vec<Host> {
        names.split_whitespace().map(|name| Host { name: name.to_owned(), slots }).collect()
    }

    fn settings(parities: usize, domains: &[(&str, &str)]) -> Settings {
        let domains = domains.iter().map(|(host, name)| ((*host).into(), (*name).into())).collect();
        Settings { method: Method::SelfCheckpoint, parities, domains, ..Settings::none() }
    }

    fn judged(active: &str, spares: &str, slots: usize, settings: &Settings) -> Shape {
        let pool = Pool::new(hosts(active, slots), hosts(spares, slots));
        let ranks = pool.ranks();
        judge(&pool, ranks, settings, None, NoSpare::Stop)
    }

    #[test]
    fn good_shape_is_reported_with_its_numbers() {
        let shape = judged("n1 n2 n3 n4", "s1", 2, &settings(1, &[]));
        assert_eq!(
            shape.summary,
            "2 group(s) of 4 ranks in 4 failure domain(s): each survives the loss of 1 of its \
             ranks; 1 spare node(s)"
        );
        assert_eq!(shape.warnings, [""; 0]);
    }

    #[test]
    fn losses_that_end_the_run_are_warned_of() {
        let warned = |active, spares, slots, settings: &Settings| {
            judged(active, spares, slots, settings).warnings.join("|")
        };
        assert!(warned("n1 n2", "", 1, &settings(1, &[])).starts_with("no spare node: "));
        assert!(warned("n1", "s1", 4, &settings(1, &[])).starts_with("all ranks are in one"));
        assert!(warned("n1 n2", "s1", 1, &Settings::none()).starts_with("no checkpoints (--ft"));
        let few =
            warned("n1 n2", "s1", 1, &Settings { method_is_asked: false, ..settings(2, &[]) });
        assert_eq!(
            few,
            "no checkpoints (a group with 2 parities needs at least 4 ranks, not 2): after any loss the run starts \
             from the beginning"
        );
        // Racks: n1 and n2 in one, n3 and n4 in the other.
        let racks = [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "b"), ("s1", "a"), ("s2", "c")];
        let two = warned("n1 n2 n3 n4", "s1", 1, &settings(1, &racks));
        assert_eq!(two, "the loss of failure domain b takes 2 nodes; 1 spare(s) are elsewhere");
        assert_eq!(warned("n1 n2 n3 n4", "s1 s2", 1, &settings(1, &racks)), "");
    }

    #[test]
    fn node_is_losable_up_to_parities_per_process_row() {
        let rows = vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
        let losable = |slots: usize, active: &str, parities: usize| {
            let settings = Settings { method: Method::Abft, ..settings(parities, &[]) };
            let pool = Pool::new(hosts(active, slots), vec![]);
            judge(&pool, 8, &settings, Some(rows.clone()), NoSpare::Stop).losable
        };
        // Two ranks of a node go to two process rows.
        assert_eq!(losable(2, "a b c d", 1), [true; 4]);
        assert_eq!(losable(4, "a b", 1), [false; 2]);
        assert_eq!(losable(4, "a b", 2), [true; 2]);
        // The slots of b are used in part, those of c not at all.
        assert_eq!(losable(6, "a b c", 2), [false, true, true]);
        let pool = Pool::new(hosts("a b", 4), vec![]);
        assert_eq!(judge(&pool, 8, &settings(1, &[]), None, NoSpare::Stop).losable, [false; 2]);
    }

    /// Neighbouring processes, among them those of a node, have ranks of different rows.
    #[test]
    fn slots_have_the_groups_of_their_ranks() {
        let pool = Pool::new(hosts("a b c", 2), vec![]);
        let of_slots = |rows| judge(&pool, 6, &settings(1, &[]), rows, NoSpare::Stop).groups;
        assert_eq!(of_slots(Some(vec![vec![0, 1, 2], vec![3, 4, 5]])), [0, 1, 0, 1, 0, 1]);
        assert_eq!(of_slots(None), [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn shared_domains_are_counted_against_the_parities() {
        let racks = [("n1", "a"), ("n2", "a"), ("n3", "a"), ("n4", "b")];
        let shared = Settings { allow_shared_domains: true, ..settings(1, &racks) };
        let warnings = judged("n1 n2 n3 n4", "s1 s2 s3", 1, &shared).warnings;
        assert!(
            warnings[0].starts_with("failure domain a has ") && warnings[0].contains("can lose 1"),
            "{warnings:?}"
        );
        // Where shared domains are not allowed, a first start is refused with the reason.
        let refused = judged("n1 n2 n3 n4", "s1 s2 s3", 1, &settings(1, &racks)).warnings;
        assert!(refused[0].contains("`a` holds 3 of 4 ranks"), "{refused:?}");
        assert_eq!(refused[1..], warnings);
    }

    #[test]
    fn no_spares_are_no_fault_if_the_loss_of_a_node_ends_no_run() {
        let pool = Pool::new(hosts("n1 n2", 1), Vec::new());
        let warned = |no_spare| judge(&pool, 2, &settings(1, &[]), None, no_spare).warnings.len();
        assert_eq!([NoSpare::Stop, NoSpare::Wait, NoSpare::Spread].map(warned), [1, 0, 0]);
    }

    #[test]
    fn spares_need_the_slots_of_the_largest_node() {
        let mut pool = Pool::new(hosts("n1 n2", 4), hosts("s1", 2));
        let warned = |pool: &Pool| judge(pool, 8, &settings(1, &[]), None, NoSpare::Stop).warnings;
        assert_eq!(warned(&pool), ["no spare node has the 4 slots of the largest node"]);
        // One slot: the list does not give a number of slots.
        pool.spares[0].slots = 1;
        assert_eq!(warned(&pool), [""; 0]);
    }
}
