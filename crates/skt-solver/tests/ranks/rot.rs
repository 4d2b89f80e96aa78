//! Memory that changes without being written: HPL is killed, one bit of its segments flips, and the
//! next start must compute the same x, bit for bit, or refuse and name the rank. It must never
//! compute another x or fail a residual.
//!
//! `SKT_ROT_CASES` sets the number of cases.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

use crate::dice::Dice;
use crate::drill::{Cluster, Ended, Fault, When, bits, settings, spec, undisturbed};
use skt_checkpoint::checkpoint::decide::Refusal;
use skt_checkpoint::checkpoint::methods::Method;
use skt_run::protect::{Settings, segment_layout};
use skt_store::codec::CodecKind;
use skt_store::layout::Geometry;
use skt_store::store::SegmentInfo;

/// Bytes of the store's page, which precedes the data of the protocol.
const PAGE_BYTES: usize = 4096;

fn pick<T: Clone>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.roll(of.len())].clone()
}

/// Parts of a segment, as bytes after the page of the store.
fn classes(spec: &skt_config::TestSpec, settings: &Settings) -> Vec<(&'static str, Range<usize>)> {
    let geometry = Geometry { members: settings.group_size, parities: settings.parities };
    let (header, layout) = segment_layout(spec, settings, geometry);
    let region = &layout.regions[0];
    let slots = [header.record_slot(0), header.record_slot(1)].concat();
    let mut classes = vec![("identity", 0..slots[0].start), ("matrix", region.a.range())];
    // A record occupies the beginning of its copy.
    classes.extend(slots.into_iter().map(|copy| ("record", copy.start..copy.start + 200)));
    classes.extend(region.b.iter().map(|part| ("copy", part.range())));
    classes.extend(region.parity.iter().map(|part| ("parities", part.range())));
    classes.extend(region.sums.iter().map(|part| ("checksums", part.range())));
    classes
}

fn flip_byte(byte: &mut u8, bit: usize) {
    *byte ^= 1 << bit;
}

/// Flips a bit of a segment, after the page of the store.
fn flip(cluster: &Cluster, node: usize, segment: &SegmentInfo, at: usize, bit: usize) {
    let mut segment = cluster.store(node).attach(&segment.name).expect("it is there").unwrap();
    flip_byte(&mut segment.as_mut_slice()[at], bit);
}

/// Flips a bit of the page of the store, in its file.
fn flip_page(segment: &SegmentInfo, at: usize, bit: usize) {
    let mut file =
        std::fs::File::options().read(true).write(true).open(&segment.location).expect("a file");
    let mut byte = [0];
    file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.read_exact(&mut byte)).expect("read");
    flip_byte(&mut byte[0], bit);
    file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.write_all(&byte)).expect("written");
}

#[derive(Default, Debug, Clone, Copy)]
struct Tally {
    cases: usize,
    untouched: usize,
    repaired: usize,
    lost: usize,
    refused: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.untouched += other.untouched;
        self.repaired += other.repaired;
        self.lost += other.lost;
        self.refused += other.refused;
    }
}

/// n, nb, p, q, group size.
const SHAPES: [[usize; 5]; 3] = [[61, 8, 2, 2, 4], [83, 8, 1, 4, 2], [66, 7, 3, 1, 3]];

fn case(seed: u64, references: &mut BTreeMap<(usize, usize), Vec<u64>>, table: &mut Table) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let shape = dice.roll(SHAPES.len());
    let [n, nb, p, q, group] = SHAPES[shape];
    let spec = spec(n, nb, p, q, dice.roll(2));
    let want =
        references.entry((shape, spec.depth)).or_insert_with(|| bits(&undisturbed(&spec))).clone();
    let codec = pick(&mut dice, &[CodecKind::Xor, CodecKind::ReedSolomon]);
    let parities = if codec == CodecKind::ReedSolomon && group == 4 { 2 } else { 1 };
    let method = pick(&mut dice, &[Method::SelfCheckpoint, Method::SelfCheckpoint, Method::Double]);
    let settings = Settings { method, codec, ..settings(2, group, parities) };
    let mut cluster = Cluster::new(p * q, 1);
    if dice.roll(4) == 0 {
        cluster = cluster.with_sysv();
    }
    let is_files = !cluster.is_sysv();

    // The job dies in the middle of its work.
    let steps: &[&str] = match method {
        Method::SelfCheckpoint => &["encode", "barrier", "commit", "flush", "stamp", "carry"],
        _ => &["copy", "encode", "commit"],
    };
    let epoch = 2 + dice.roll(2);
    let when = match dice.roll(3) {
        0 => When::Columns((2 * epoch + 1) * nb),
        _ => When::Step(format!("{}:epoch={epoch}", pick(&mut dice, steps)).parse().unwrap(), 0),
    };
    let fault = Fault { process: dice.roll(p * q), when };
    let label = format!("case {seed}: {spec:?}, {method} {codec} m={parities} {fault:?}");
    assert!(matches!(cluster.start(&spec, &settings, &[fault]), Ended::Died), "{label}");

    // One node may lose everything; on another one a bit flips.
    let losses = dice.roll(2);
    let loser = dice.roll(p * q);
    if losses == 1 {
        cluster.lose(&[loser]);
    }
    let hurt = (loser + 1 + dice.roll(p * q - 1)) % (p * q);
    let node = cluster.places[hurt];
    let found = cluster.on_node(node);
    let [segment] = &found[..] else { panic!("{label}: {found:?}") };
    let (mut class, mut range) = pick(&mut dice, &classes(&spec, &settings));
    if is_files && dice.roll(12) == 0 {
        (class, range) = ("page", 0..PAGE_BYTES);
    }
    let (at, bit) = (range.start + dice.roll(range.len()), dice.roll(8));
    match class {
        "page" => flip_page(segment, at, bit),
        _ => flip(&cluster, node, segment, at, bit),
    }
    let label = format!("{label}, lost {losses}, {class} of {hurt}, byte {at}, bit {bit}");

    let tally = table.entry((class, losses, parities)).or_default();
    tally.cases += 1;
    match cluster.start(&spec, &settings, &[]) {
        Ended::Died => panic!("{label}: nobody was to die"),
        Ended::Refused(refusal) => {
            // The last byte of the magic number is the version: nothing is known of data of another
            // version.
            if (class, at) == ("identity", 7) {
                assert!(matches!(refusal, Refusal::OtherShape { .. }), "{label}: {refusal}");
                tally.refused += 1;
                (0..p * q).for_each(|process| cluster.lose(&[process]));
                return;
            }
            let is_named = match &refusal {
                Refusal::Damaged { damage, .. } => damage.iter().any(|d| d.rank == hurt),
                Refusal::Unrecoverable { .. } => matches!(class, "page" | "identity"),
                _ => false,
            };
            assert!(is_named, "{label}: {refusal}");
            // A single flip is always survived; with two parities, so is a flip together with a
            // loss.
            assert!(losses + 1 > parities, "{label}: {refusal}");
            tally.refused += 1;
        }
        Ended::Done(ran) => {
            assert!(ran.residual < spec.threshold, "{label}: residual {}", ran.residual);
            assert_eq!(bits(&ran.x), want, "{label}: another x");
            let lost = ran.work().found.lost.len();
            let repaired = ran.work().protection.restarts.last().map_or(0, |r| r.damaged_blocks);
            tally.repaired += usize::from(repaired > 0);
            tally.lost += usize::from(lost > losses);
            tally.untouched += usize::from(repaired == 0 && lost == losses);
        }
    }
    // Data that the store no longer recognizes as its own stays, because its owner is unknown.
    let left = cluster.segments();
    if left > 0 {
        (0..p * q).for_each(|process| cluster.lose(&[process]));
    }
}

type Table = BTreeMap<(&'static str, usize, usize), Tally>;

#[test]
fn a_flipped_bit_is_rebuilt_or_refused() {
    let cases = std::env::var("SKT_ROT_CASES").map_or(200, |n| n.parse().expect("a number"));
    // A start is mostly waiting, so two run at a time.
    let part = |seeds: std::iter::StepBy<Range<u64>>| {
        let (mut references, mut table) = (BTreeMap::new(), Table::new());
        seeds.for_each(|seed| case(seed, &mut references, &mut table));
        table
    };
    let parts = std::thread::scope(|scope| {
        let parts = [0, 1].map(|first| scope.spawn(move || part((first..cases).step_by(2))));
        parts.map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let mut table = Table::new();
    for (key, tally) in parts.into_iter().flatten() {
        table.entry(key).or_default().add(tally);
    }
    println!("part, lost ranks, parities: cases, not needed, mended, taken as lost, refused");
    for ((class, losses, parities), tally) in &table {
        let Tally { cases, untouched, repaired, lost, refused } = tally;
        println!(
            "{class:10} {losses} {parities}: {cases:5} {untouched:5} {repaired:5} {lost:5} {refused:5}"
        );
    }
    let sum = |of: fn(&Tally) -> usize, class: &str| -> usize {
        table.iter().filter(|((name, ..), _)| *name == class).map(|(_, tally)| of(tally)).sum()
    };
    for class in ["copy", "parities", "checksums"] {
        assert!(sum(|t| t.repaired, class) > 0, "{class}");
        assert!(sum(|t| t.refused, class) > 0, "{class}");
    }
    assert!(sum(|t| t.lost, "identity") > 0);
    // A record has a second copy.
    assert_eq!(sum(|t| t.untouched, "record"), sum(|t| t.cases, "record"));
}
