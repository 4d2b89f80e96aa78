use std::io::ErrorKind;
use std::sync::{Arc, LazyLock};

use super::*;
use crate::checkpoint::group::SharedDomain;
use crate::checkpoint::header::{Identity, SegmentId};
use crate::checkpoint::level::{
    FoundImage, Generation, ImageId, ImagesEvery, Level, Reach, Unopened,
};
use crate::checkpoint::parameters::Parameters;
use crate::checkpoint::record::Record;
use crate::checkpoint::refusal::LostGroup;
use skt_store::codec::CodecKind;

static RULES: LazyLock<Config> = LazyLock::new(|| {
    let config = Config::new("run", CodecKind::Xor);
    Config { members: 4, clock: 9, nonce: 5, ..config }
});
const BASE: StartId = StartId { number: 3, nonce: 1 };

fn record(lineage: StartId, commit: u64, stamp: u64) -> Record {
    let mut record = Record::for_new_segment();
    record.join(lineage, &[]);
    record.confirm(lineage, RULES.method, 0, &[]);
    for epoch in 1..=commit {
        record.commit(epoch, vec![epoch as u8]);
        if epoch <= stamp {
            record.stamp(epoch);
        }
    }
    record
}

fn content(rank: usize, record: &Record) -> Option<Content> {
    let members = vec![0, 1, 2, 3];
    let identity = Identity { fingerprint: 7, rank, members, ..Identity::default() };
    Some(Content::new(identity, record))
}

fn segment(rank: usize, commit: u64, stamp: u64) -> FoundSegment {
    let id = SegmentId { rank, start: 3 };
    FoundSegment { id, content: content(rank, &record(BASE, commit, stamp)), other: None }
}

fn offers(segments: [Vec<FoundSegment>; 4]) -> Vec<Offer> {
    let offer = |(node, segments): (usize, Vec<FoundSegment>)| Offer {
        host: format!("node{node}"),
        domain: format!("node{node}"),
        node: format!("node{node}"),
        rank_in_run: None,
        held: None,
        segments,
        images: Vec::new(),
        failures: Vec::new(),
    };
    segments.into_iter().enumerate().map(offer).collect()
}

fn one_each(states: [(u64, u64); 4]) -> Vec<Offer> {
    let mut rank = 0;
    offers(states.map(|(commit, stamp)| {
        rank += 1;
        vec![segment(rank - 1, commit, stamp)]
    }))
}

fn planned(offers: &[Offer], config: &Config) -> Result<StartPlan, Refusal> {
    match decide(offers, &Rules { config, rotten: &[] })? {
        Decision::Work(plan) => Ok(plan),
        Decision::Finished(finished) => panic!("not marked, and yet {finished:?}"),
    }
}

fn ended(offers: &[Offer], config: &Config) -> Finished {
    match decide(offers, &Rules { config, rotten: &[] }) {
        Ok(Decision::Finished(finished)) => finished,
        other => panic!("marked, and yet {other:?}"),
    }
}

#[test]
fn hold_on_a_run_is_temporary_if_so_on_all_nodes() {
    let mut all = one_each([(3, 3); 4]);
    let obstacle = |why: &str, passes| Some(Obstacle { why: why.to_owned(), passes });
    let refused = |process, why: &str, passes| {
        Err::<StartPlan, _>(Refusal::Held { process, why: why.to_owned(), passes })
    };
    (all[1].held, all[3].held) = (obstacle("it ends", true), obstacle("it ends", true));
    assert_eq!(planned(&all, &RULES), refused(1, "it ends", true));
    all[2].held = obstacle("it works", false);
    assert_eq!(planned(&all, &RULES), refused(2, "it works", false));
}

/// The record of a replacement that is not rebuilt.
fn hollow() -> Record {
    let mut record = Record::for_new_segment();
    record.join(BASE, &[]);
    record.confirm(BASE, RULES.method, 4, &[4]);
    record
}

fn mark(offer: &mut Offer) {
    edit(offer).record.finish(b"");
}

fn edit(offer: &mut Offer) -> &mut Content {
    offer.segments[0].content.as_mut().expect("a whole segment")
}

/// Rank 0, one of two on its node, is lost, and its segment is still there. The surviving processes
/// have other numbers now.
#[test]
fn lost_ranks_segment_displaces_no_other_rank() {
    let mut offers = one_each([(4, 4); 4]);
    let on_node_0 = [segment(0, 4, 4), segment(1, 4, 4)];
    for (process, (rank, node)) in [(1, 0), (2, 1), (3, 2)].into_iter().enumerate() {
        offers[process] = Offer { rank_in_run: Some(rank), ..offers[node].clone() };
        offers[process].segments = vec![segment(rank, 4, 4)];
        offers[process].node = format!("node{node}");
    }
    offers[0].segments = on_node_0.into();
    // The spare process.
    offers[3] = Offer { segments: Vec::new(), node: "node3".into(), ..offers[3].clone() };
    let plan = planned(&offers, &RULES).unwrap();
    assert_eq!((plan.ranks, plan.lost), (vec![1, 2, 3, 0], vec![0]));
}

/// Process 0 reads one content of each rank.
#[test]
fn an_offer_is_short_however_long_the_state_and_the_parameters() {
    let parameters = [("application".to_owned(), "x".repeat(2000))].into();
    let identity = |parameters| Identity { rank: 1, parameters, ..Identity::default() };
    let mut long = record(BASE, 4, 4);
    long.commit(5, vec![200; 4096]);
    let of = |record| Content::new(identity(Parameters::clone(&parameters)), record);
    let bytes = serde_json::to_vec(&of(&long)).expect("plain data").len();
    assert!(bytes < 400, "{bytes} bytes");
    // The checksum distinguishes one state from another.
    let mut other = record(BASE, 4, 4);
    other.commit(5, vec![201; 4096]);
    assert_ne!(of(&long), of(&other));
}

#[test]
fn one_commit_of_the_next_epoch_decides_for_it() {
    let plan = planned(&one_each([(5, 5), (5, 5), (6, 5), (5, 5)]), &RULES).expect("legal");
    assert_eq!((plan.epoch, plan.lost.len()), (6, 0));
    assert_eq!(plan.holder, Some((2, SegmentId { rank: 2, start: 3 })));
    let plan = planned(&one_each([(5, 5); 4]), &RULES).expect("legal");
    assert_eq!(plan.epoch, 5);
    assert_eq!(plan.start, StartId { number: 9, nonce: 5 });
    assert_eq!(plan.ranks, [0, 1, 2, 3]);
}

#[test]
fn starts_that_unreachable_segments_may_name_are_remembered() {
    let (alone, older) = (StartId { number: 4, nonce: 1 }, StartId { number: 2, nonce: 8 });
    let mut found = one_each([(4, 4); 4]);
    edit(&mut found[1]).record.join(alone, &[older]);
    // Nothing is out of reach here.
    assert_eq!(planned(&found, &RULES).expect("legal").left, [older]);
    found[0].segments.clear();
    assert_eq!(planned(&found, &RULES).expect("legal").left, [older, BASE, alone]);
    let afresh = Config { resume: Resume::Never, ..RULES.clone() };
    assert_eq!(planned(&found, &afresh).expect("legal").left, [older, BASE, alone]);
    // Also before the first epoch.
    let mut found = one_each([(0, 0); 4]);
    found[3].segments.clear();
    assert_eq!(planned(&found, &RULES).expect("legal").left, [BASE]);
    assert_eq!(planned(&offers([const { Vec::new() }; 4]), &RULES).expect("legal").left, []);
}

#[test]
fn processes_keep_their_data_and_others_replace_lost_ranks() {
    let found =
        offers([vec![segment(2, 4, 4)], vec![], vec![segment(0, 4, 4)], vec![segment(3, 4, 4)]]);
    let plan = planned(&found, &RULES).expect("one loss");
    assert_eq!(plan.ranks, [2, 1, 0, 3]);
    assert_eq!(plan.lost, [1]);
    assert_eq!(plan.attach[1], None);
    assert!(plan.discard.iter().all(Vec::is_empty));
}

/// A run of four ranks that survives the loss of 0, of 1 and 2, or of 3.
#[test]
fn fewer_processes_keep_their_ranks_if_the_loss_is_tolerated() {
    let left = |ranks: &[usize]| -> Vec<Offer> {
        let all = offers([0, 1, 2, 3].map(|rank| vec![segment(rank, 4, 4)]));
        ranks.iter().map(|&rank| all[rank].clone()).collect()
    };
    let may_lose = Some(vec![vec![0], vec![1, 2], vec![3]]);
    let rules = Config { method: Method::Abft, may_lose, ..RULES.clone() };
    let plan = planned(&left(&[0, 2, 3]), &rules).expect("one is lost");
    assert_eq!((&plan.ranks[..], &plan.lost[..]), (&[0, 2, 3][..], &[1][..]));
    assert!(plan.attach.iter().all(Option::is_some));
    let refused = |offers: &[Offer], lost: &[usize]| {
        let refusal = Refusal::CannotContinue { lost: lost.to_vec() };
        assert_eq!(planned(offers, &rules).unwrap_err(), refusal);
    };
    refused(&left(&[1, 2]), &[0, 3]);
    // A process whose own memory is gone cannot continue.
    let mut without = left(&[0, 2, 3]);
    without[1].segments.clear();
    refused(&without, &[1, 2]);
    let mut begun = left(&[0, 2, 3]);
    begun.iter_mut().for_each(|offer| offer.segments.clear());
    refused(&begun, &[0, 1, 2, 3]);
}

#[test]
fn two_processes_of_one_node_share_what_they_both_find() {
    let both = || vec![segment(0, 4, 4), segment(1, 4, 4)];
    let mut found = offers([both(), both(), vec![segment(2, 4, 4)], vec![segment(3, 4, 4)]]);
    found[1].node = "node0".into();
    found[1].domain = "node0".into();
    let plan = planned(&found, &RULES).expect("nothing lost");
    assert_eq!(plan.ranks, [0, 1, 2, 3]);
    assert!(plan.lost.is_empty() && plan.shared_domain.is_some());
    assert!(plan.discard.iter().all(Vec::is_empty), "what the other takes is not removed");
    // Two segments on a node with only one process: one of them is lost.
    let found = offers([both(), vec![], vec![segment(2, 4, 4)], vec![segment(3, 4, 4)]]);
    let plan = planned(&found, &RULES).expect("one loss");
    assert_eq!(plan.lost, [1]);
    assert_eq!(plan.discard[0], [SegmentId { rank: 1, start: 3 }]);
}

/// Three of four processes run on one node, as after a loss: two groups are the most there can be.
#[test]
fn ranks_of_a_group_share_a_domain_only_if_allowed() {
    let mut found = offers([const { Vec::new() }; 4]);
    found[1..3].iter_mut().for_each(|offer| offer.domain = "node0".into());
    let refused = planned(&found, &RULES).expect_err("not allowed").to_string();
    assert!(refused.contains("`node0` holds 3 of 4 ranks"), "{refused}");
    let shares = Config { allow_shared_domains: true, ..RULES.clone() };
    let plan = planned(&found, &shares).expect("allowed");
    assert_eq!(plan.groups, [[0, 2], [1, 3]]);
    assert_eq!(plan.shared_domain, Some(SharedDomain { name: "node0".into(), ranks: 2 }));
    found[2].domain = "node3".into();
    assert_eq!(planned(&found, &shares).expect("two each").shared_domain, None);
}

#[test]
fn segment_that_missed_a_decision_is_stale() {
    let mut found = one_each([(5, 5); 4]);
    let (old, later) = (StartId { number: 2, nonce: 8 }, StartId { number: 4, nonce: 8 });
    edit(&mut found[1]).record = record(old, 6, 5);
    edit(&mut found[1]).record.join(later, &[]);
    let plan = planned(&found, &RULES).expect("one loss");
    assert_eq!((plan.epoch, plan.lost, plan.unusable), (5, vec![1], 1));
    // This segment has joined the start that the others follow, and another one since: it counts,
    // and so does its commit.
    edit(&mut found[1]).record = record(old, 6, 5);
    edit(&mut found[1]).record.join(BASE, &[]);
    edit(&mut found[1]).record.join(later, &[]);
    let plan = planned(&found, &RULES).expect("nothing lost");
    assert_eq!((plan.epoch, plan.lost.len()), (6, 0));
}

#[test]
fn a_second_segment_of_a_rank_is_discarded() {
    let mut stale = segment(0, 3, 3);
    stale.id.start = 2;
    let mut found = one_each([(4, 4); 4]);
    found[3].segments.push(stale.clone());
    let plan = planned(&found, &RULES).expect("nothing lost");
    assert_eq!(plan.attach[0], Some(SegmentId { rank: 0, start: 3 }));
    assert_eq!(plan.discard[3], [stale.id]);
}

#[test]
fn torn_and_hollow_segments_count_as_lost() {
    let mut found = one_each([(4, 4); 4]);
    found[0].segments[0].content = None;
    let plan = planned(&found, &RULES).expect("one loss");
    assert_eq!((plan.lost.clone(), plan.discard[0].len()), (vec![0], 1));
    edit(&mut found[2]).record = hollow();
    let error = planned(&found, &RULES).expect_err("two losses");
    let lost = vec![LostGroup { group: Some(0), ranks: vec![0, 2] }];
    assert_eq!(error, Refusal::Unrecoverable { epoch: 4, lost, incomplete: vec![], parities: 1 });
    assert!(error.to_string().contains("group 0 has lost ranks [0, 2]"), "{error}");
}

#[test]
fn resume_option_decides_what_happens_to_found_data() {
    let never = Config { resume: Resume::Never, ..RULES.clone() };
    let require = Config { resume: Resume::Require, ..RULES.clone() };
    let found = one_each([(4, 4); 4]);
    let plan = planned(&found, &never).expect("afresh");
    assert_eq!((plan.epoch, plan.unusable), (0, 4));
    let mut of_one_node = found.clone();
    for offer in &mut of_one_node {
        offer.node = found[0].node.clone();
        offer.segments = found.iter().flat_map(|it| it.segments.clone()).collect();
    }
    assert_eq!(planned(&of_one_node, &never).expect("afresh").unusable, 4, "each once");
    assert!(plan.discard.iter().all(|list| list.len() == 1));
    assert_eq!(planned(&found, &require).expect("there is one").epoch, 4);
    let nothing = offers([vec![], vec![], vec![], vec![]]);
    assert_eq!(planned(&nothing, &require), Err(Refusal::NothingFound { bare: 0, images: 0 }));
    assert_eq!(planned(&nothing, &RULES).expect("afresh").epoch, 0);
    let refused = planned(&one_each([(0, 0); 4]), &require).expect_err("no checkpoint");
    assert_eq!(refused, Refusal::NothingFound { bare: 4, images: 0 });
    assert!(!refused.to_string().contains("gone"), "{refused}");
}

#[test]
fn other_settings_are_refused_not_thrown_away() {
    let mut found = one_each([(4, 4); 4]);
    found[2].segments[0].content = None;
    found[2].segments[0].other = Some("ranks 4 there, 2 here".into());
    let refusal = planned(&found, &RULES).expect_err("of another shape");
    assert!(matches!(refusal, Refusal::OtherShape { process: 2, rank: 2, .. }), "{refusal}");
    assert!(refusal.to_string().contains("other settings: ranks 4 there, 2 here"));
    let never = Config { resume: Resume::Never, ..RULES.clone() };
    assert_eq!(planned(&found, &never).expect("afresh").epoch, 0);
}

#[test]
fn a_group_with_nothing_left_is_named_by_its_ranks() {
    let mut found = one_each([(4, 4); 4]);
    for (rank, offer) in found.iter_mut().enumerate() {
        let identity = edit(offer);
        identity.members = if rank < 2 { vec![0, 1] } else { vec![2, 3] };
        identity.group = rank / 2;
    }
    found[2].segments.clear();
    found[3].segments.clear();
    let lost = vec![LostGroup { group: None, ranks: vec![2, 3] }];
    let refusal = Refusal::Unrecoverable { epoch: 4, lost, incomplete: vec![], parities: 1 };
    assert_eq!(planned(&found, &RULES), Err(refusal));
}

#[test]
fn a_half_written_single_copy_is_never_used() {
    let rules = Config { method: Method::Single, ..RULES.clone() };
    let mut found = one_each([(4, 4); 4]);
    edit(&mut found[1]).record.begin_update(5);
    let plan = planned(&found, &rules).expect("one incomplete copy is one loss");
    assert_eq!(plan.lost, [1]);
    edit(&mut found[3]).record.begin_update(5);
    let refusal = planned(&found, &rules).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Unrecoverable { incomplete, .. } if *incomplete == [1, 3]),
        "{refusal}"
    );
    let text = refusal.to_string();
    assert!(text.contains("ranks [1, 3] are here") && text.contains("method `self`"), "{text}");
    // A rank whose memory is lost, too, has no incomplete copy.
    let mut gone = found.clone();
    gone[3].segments.clear();
    let refusal = planned(&gone, &rules).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Unrecoverable { incomplete, .. } if *incomplete == [1]),
        "{refusal}"
    );
    // Some rank saw the end of the update: all were complete by then.
    edit(&mut found[0]).record.commit(5, vec![5]);
    edit(&mut found[0]).record.stamp(5);
    edit(&mut found[2]).record.begin_update(5);
    let plan = planned(&found, &rules).expect("all complete");
    assert_eq!((plan.epoch, plan.lost.len()), (5, 0));
}

#[test]
fn one_mark_means_that_the_run_is_finished() {
    let mut found = one_each([(5, 5), (5, 5), (5, 5), (5, 5)]);
    mark(&mut found[2]);
    let id = |rank| SegmentId { rank, start: 3 };
    let done = ended(&found, &RULES);
    assert_eq!((done.epoch, done.holder), (5, (2, id(2))));
    assert_eq!(done.mark, [vec![id(0)], vec![id(1)], vec![], vec![id(3)]]);
    assert_eq!(done.keep, [0, 1, 2, 3].map(|rank| vec![id(rank)]));
    assert!(done.discard.iter().all(Vec::is_empty));
    // This holds whatever else is lost, and also if resuming was required.
    for rank in [0, 1, 3] {
        found[rank].segments.clear();
    }
    let require = Config { resume: Resume::Require, ..RULES.clone() };
    assert_eq!(ended(&found, &require).holder, (2, id(2)));
    let never = Config { resume: Resume::Never, ..RULES.clone() };
    let plan = planned(&found, &never).expect("afresh");
    assert_eq!((plan.epoch, &plan.discard[2][..]), (0, &[id(2)][..]));
    // A run without a checkpoint can have ended, too.
    edit(&mut found[2]).record = record(BASE, 0, 0);
    mark(&mut found[2]);
    assert_eq!(ended(&found, &require).epoch, 0);
}

#[test]
fn a_mark_that_missed_a_decision_is_stale() {
    let mut found = one_each([(5, 5); 4]);
    let old = StartId { number: 2, nonce: 8 };
    edit(&mut found[1]).record = record(old, 5, 5);
    mark(&mut found[1]);
    let plan = planned(&found, &RULES).expect("one loss");
    assert_eq!((plan.epoch, plan.lost, plan.unusable), (5, vec![1], 1));
    // The other way round: a segment that missed the end does not count.
    let mut found = one_each([(5, 5); 4]);
    for rank in [0, 2, 3] {
        mark(&mut found[rank]);
    }
    edit(&mut found[1]).record = record(old, 9, 9);
    let done = ended(&found, &RULES);
    assert_eq!((done.epoch, done.discard[1].len(), done.keep[1].len()), (5, 1, 0));
    assert!(done.mark.iter().all(Vec::is_empty));
}

fn with_images_of(start: StartId, mut found: Vec<Offer>) -> Vec<Offer> {
    for (rank, offer) in found.iter_mut().enumerate() {
        let id = ImageId { generation: Generation { start, epoch: 4 }, rank };
        let content = content(rank, &record(start, 4, 4));
        offer.images = vec![vec![FoundImage { id, content, chosen: None, other: None }]];
        offer.failures = vec![None];
    }
    found
}

fn with_a_level() -> Config {
    let level = Level {
        name: "global:/scratch".to_owned(),
        disk: Arc::new(Unopened(ErrorKind::Unsupported.into())),
        reach: Reach::Global,
        every: ImagesEvery::Seconds(0.0),
        keep: 1,
    };
    Config { levels: vec![level], ..RULES.clone() }
}

#[test]
fn unfinished_images_are_named_where_nothing_is_found() {
    let require = Config { resume: Resume::Require, ..with_a_level() };
    for bare in [0, 4] {
        let found = if bare == 0 { offers([const { vec![] }; 4]) } else { one_each([(0, 0); 4]) };
        let mut found = with_images_of(BASE, found);
        found.iter_mut().for_each(|offer| offer.images[0][0].content = None);
        let refused = planned(&found, &require).expect_err("no checkpoint");
        assert_eq!(refused, Refusal::NothingFound { bare, images: 4 });
        let want = format!("was found: what is here ({bare} segments, 4 images) is not the whole");
        assert!(refused.to_string().contains(&want), "{refused}");
    }
}

#[test]
fn images_of_a_later_start_make_finished_memory_stale() {
    let rules = with_a_level();
    let later = StartId { number: BASE.number + 1, nonce: 8 };
    for is_done in [false, true] {
        let mut found = one_each([(5, 5); 4]);
        if is_done {
            mark(&mut found[2]);
        }
        let plan = planned(&with_images_of(later, found.clone()), &rules).expect("images");
        let load = plan.load.expect("of the later start");
        assert_eq!((load.generation.start, plan.epoch, plan.unusable), (later, 4, 4));
        assert!(load.why.contains("earlier start"), "{}", load.why);
        assert!(plan.attach.iter().all(Option::is_none));
        // Images of the same start, or of one before, are older than the memory.
        for start in [BASE, StartId { number: 2, nonce: 9 }] {
            let found = with_images_of(start, found.clone());
            let rules = Rules { config: &rules, rotten: &[] };
            match decide(&found, &rules).expect("memory") {
                Decision::Finished(finished) => assert!(is_done && finished.epoch == 5),
                Decision::Work(plan) => {
                    assert!(!is_done && plan.epoch == 5 && plan.load.is_none());
                }
            }
        }
        // Too few of them make nothing stale.
        let mut few = with_images_of(later, found);
        few.iter_mut().take(2).for_each(|offer| offer.images[0].clear());
        let decision = decide(&few, &Rules { config: &rules, rotten: &[] }).expect("memory");
        assert_eq!(matches!(decision, Decision::Finished(_)), is_done);
    }
    // Without memory, on nodes where no groups can be formed.
    let mut found = with_images_of(BASE, offers([const { Vec::new() }; 4]));
    found.iter_mut().for_each(|offer| offer.domain = "node0".into());
    found[3].domain = "node3".into();
    let plan = planned(&found, &rules).expect("images");
    assert_eq!((plan.epoch, plan.groups), (4, vec![vec![0, 1, 2, 3]]));
    found.iter_mut().for_each(|offer| offer.images[0].clear());
    let refused = planned(&found, &rules).expect_err("nothing is there").to_string();
    assert!(refused.contains("`node0` holds 3 of 4 ranks"), "{refused}");
}

#[test]
fn only_one_of_two_processes_writes_to_a_shared_segment() {
    let both = || vec![segment(0, 4, 4), segment(1, 4, 4)];
    let mut found = offers([both(), both(), vec![segment(2, 4, 4)], vec![segment(3, 4, 4)]]);
    found[1].node = "node0".into();
    mark(&mut found[3]);
    let done = ended(&found, &RULES);
    assert_eq!(done.mark.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1, 0]);
    assert_eq!(done.keep.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 1]);
}
