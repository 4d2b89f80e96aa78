//! Links between hosts over which messages take longer than over the others.
//!
//! Links are measured before the clock of a test starts and after it stops, while both ends wait
//! for nothing else. So a rank that computes slowly makes none of its links slow.
//!
//! ```text
//! lag       logarithm of time / median of the links' median times
//! slow      the lag is large in all samples, and relative to the spread of the other links
//! named     a host all of whose links are slow, if its partners have others; else the link
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use skt_host::median::{middle_two, nonempty_median};

use super::blame::{NodeGroup, blame};
use super::judge::{min_spreads, spread};

/// The least lag: links of different lengths through a network differ by less.
const MIN_TIMES: f64 = 2.0;
/// The least lag of one of few links, whose spread is not well known.
const MIN_TIMES_OF_FEW: f64 = 3.0;
/// The largest number of links that counts as few.
const FEW: usize = 6;
/// The fewest links that are compared: of two, either one could be normal.
pub const MIN_LINKS: usize = 3;
/// The samples of each link, before a test and after it. Occasional delays, such as interrupts, do
/// not hit all samples of a link, not even on one of a thousand links.
pub const SAMPLES: usize = 5;

/// The seconds for a message over a link, in each sample.
pub type Times = [f64; SAMPLES];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Links {
    pub hosts: Vec<String>,
    /// The ends of each link, as indices into `hosts`.
    pub ends: Vec<[usize; 2]>,
}

/// A link, or all links of a host, over which messages take long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowLink {
    pub host: String,
    /// The host at the other end; `None`: all links of `host` are slow.
    pub other: Option<String>,
    /// How many times the median's time a message takes after the test.
    pub times: f64,
    /// How many times the median's time a message took before the test.
    pub times_before: f64,
}

impl SlowLink {
    /// Whether `host` is at one of its ends.
    pub(crate) fn is_of(&self, host: &str) -> bool {
        self.host == host || self.other.as_deref() == Some(host)
    }

    fn ends(&self) -> String {
        match &self.other {
            Some(other) => format!("{} to {other}", self.host),
            None => format!("{}: all links", self.host),
        }
    }

    /// A few words for a line that has little space.
    pub fn brief(&self) -> String {
        format!("{} {:.1}x", self.ends(), self.times)
    }

    /// The line of the report about it.
    pub fn describe(&self) -> String {
        let Self { times, times_before, .. } = self;
        let ends = self.ends();
        format!("{ends}: {times:.1} times the median's time, {times_before:.1} before the run")
    }
}

/// The links that are slow by the times `now`, the slowest first; `before` are those of before the
/// test. Of an even number of times the median is here the shorter one of the middle two.
pub fn judge(links: &Links, before: &[Times], now: &[Times]) -> Vec<SlowLink> {
    if now.len() < MIN_LINKS {
        return Vec::new();
    }
    let [before, now] = [before, now].map(lags);
    let slow = slow(&now);
    let groups = links.ends.iter().zip(&slow);
    let groups: Vec<NodeGroup> =
        groups.map(|(nodes, &is_bad)| NodeGroup { nodes, is_bad }).collect();
    let mut hosts = blame(&groups, &BTreeSet::new()).nodes;
    hosts.retain(|_, links| links.of > 1 && links.bad.len() == links.of);
    let is_explained = |link: &usize| links.ends[*link].iter().any(|host| hosts.contains_key(host));
    let of_links = (0..now.len()).filter(|&link| slow[link] && !is_explained(&link)).map(|link| {
        let [host, other] = links.ends[link];
        (host, Some(other), vec![link])
    });
    let of_hosts = hosts.iter().map(|(&host, links)| (host, None, links.bad.clone()));
    let times = |lags: &[Vec<f64>], of: &[usize]| {
        nonempty_median(of.iter().map(|&link| nonempty_median(lags[link].iter().copied()))).exp()
    };
    let all = of_hosts.chain(of_links).map(|(host, other, of)| SlowLink {
        host: links.hosts[host].clone(),
        other: other.map(|other| links.hosts[other].clone()),
        times: times(&now, &of),
        times_before: times(&before, &of),
    });
    let mut all: Vec<SlowLink> = all.collect();
    all.sort_by(|a, b| b.times.total_cmp(&a.times));
    all
}

fn lags(times: &[Times]) -> Vec<Vec<f64>> {
    let all = times.iter().map(|times| nonempty_median(times.iter().copied()));
    let [median, _] = middle_two(all).expect("there are links");
    times.iter().map(|times| times.iter().map(|time| (time / median).ln()).collect()).collect()
}

fn slow(lags: &[Vec<f64>]) -> Vec<bool> {
    let least = if lags.len() <= FEW { MIN_TIMES_OF_FEW } else { MIN_TIMES }.ln();
    let is_late = |own: &Vec<f64>| own.iter().all(|lag| *lag >= least);
    // One of four hosts has half of all links: late links must not make the spread.
    let mut compared = vec![Vec::new()];
    compared.extend(lags.iter().filter(|own| !is_late(own)).cloned());
    let mut is_slow = |own: &Vec<f64>| {
        compared[0].clone_from(own);
        let spread = spread(&compared, 0, 0);
        nonempty_median(own.iter().copied()) >= min_spreads(lags.len()) * spread
    };
    lags.iter().map(|own| is_late(own) && is_slow(own)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skt_host::tournament;
    use skt_studies::sim::random::Stream;

    use super::*;

    fn links(hosts: usize) -> Links {
        Links {
            hosts: (0..hosts).map(|host| format!("n{host}")).collect(),
            ends: tournament::rounds(hosts, 3).concat(),
        }
    }

    /// Times of links that take 50 us each: noise makes every time longer, with many links one time
    /// in twenty is a hiccup, and links that are `slow` take `times` as long.
    fn times(
        links: &Links,
        random: &mut Stream,
        noise: f64,
        slow: impl Fn(&[usize; 2]) -> bool,
        times: f64,
    ) -> Vec<Times> {
        let of_link = |ends: &[usize; 2]| {
            std::array::from_fn(|_| {
                let is_hiccup = links.ends.len() > FEW && random.below(20) == 0;
                let hiccup = if is_hiccup { 30.0 } else { 1.0 };
                let slow = if slow(ends) { times } else { 1.0 };
                50e-6 * slow * hiccup * (noise * random.normal().abs()).exp()
            })
        };
        links.ends.iter().map(of_link).collect()
    }

    fn names(links: &Links, times: &[Times]) -> Vec<(String, Option<String>)> {
        judge(links, times, times).into_iter().map(|slow| (slow.host, slow.other)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_slow_link_is_named_and_nothing_else(
            hosts in prop::sample::select(vec![4usize, 5, 16, 1000]), noise in 0.0..0.1,
            factor in 4.0..40.0, mut random in any::<u64>().prop_map(Stream::new),
        ) {
            let links = links(hosts);
            let [a, b] = links.ends[random.below(links.ends.len())];
            let before = times(&links, &mut random, noise, |_| false, 1.0);
            let after = times(&links, &mut random, noise, |ends| *ends == [a, b], factor);
            let named = judge(&links, &before, &after);
            prop_assert_eq!(named.len(), 1, "{:?}", named);
            let SlowLink { host, other, times: found, times_before } = &named[0];
            prop_assert_eq!((host, other.as_ref()), (&links.hosts[a], Some(&links.hosts[b])));
            prop_assert!((found / factor).ln().abs() < 0.5, "{} {}", found, factor);
            prop_assert!(times_before.ln().abs() < 0.5 || links.ends.len() > FEW, "{}", times_before);
        }

        #[test]
        fn a_host_whose_links_are_all_slow_is_named_alone(
            hosts in prop::sample::select(vec![4usize, 5, 16, 1000]), noise in 0.0..0.1,
            mut random in any::<u64>().prop_map(Stream::new),
        ) {
            let links = links(hosts);
            let bad = random.below(hosts);
            let all = times(&links, &mut random, noise, |ends| ends.contains(&bad), 8.0);
            prop_assert_eq!(names(&links, &all), vec![(links.hosts[bad].clone(), None)]);
        }

        #[test]
        fn noise_names_nobody(
            hosts in prop::sample::select(vec![1usize, 2, 3, 4, 16, 1000]), noise in 0.0..1.0,
            mut random in any::<u64>().prop_map(Stream::new),
        ) {
            let links = links(hosts);
            let all = times(&links, &mut random, noise, |_| false, 1.0);
            prop_assert_eq!(names(&links, &all), vec![]);
        }
    }

    /// The times of links on samples without noise.
    fn exact(links: &Links, seconds: impl Fn(&[usize; 2]) -> f64) -> Vec<Times> {
        links.ends.iter().map(|ends| [seconds(ends); SAMPLES]).collect()
    }

    #[test]
    fn a_link_that_is_slow_in_most_samples_is_not_named() {
        let links = links(8);
        let mut all = exact(&links, |ends| if *ends == links.ends[4] { 1.0 } else { 0.1 });
        assert_eq!(names(&links, &all).len(), 1);
        all[4][2] = 0.1;
        assert_eq!(names(&links, &all), []);
    }

    #[test]
    fn a_host_with_only_bad_partners_is_not_named() {
        let links = links(30);
        let of_0 = |ends: &[usize; 2]| ends.contains(&0);
        let partners: Vec<usize> =
            links.ends.iter().filter(|ends| of_0(ends)).map(|[a, b]| a + b).collect();
        let is_bad = |ends: &[usize; 2]| ends.iter().any(|host| partners.contains(host));
        let all = exact(&links, |ends| if is_bad(ends) { 1.0 } else { 0.1 });
        let named = names(&links, &all);
        assert_eq!(named.len(), 3, "{named:?}");
        assert!(named.iter().all(|(host, other)| host != "n0" && other.is_none()), "{named:?}");
    }
}
