//! Which nodes of an allocation are bad: slow, wrong, on a slow link, or out of reach.
//!
//! All nodes do the same work, so each is the measure of the others. [`run`] has them solve the
//! same system, each alone and then in the pairs and groups of [`schedule`], and collects
//! [`results`]. [`verdict`] is pure: from results to one verdict a host and a list of slow links;
//! [`blame`](skt_health::slow::blame) finds which member of a pair is at fault. [`report`] shows
//! the verdicts. [`hosts`] probes a list of hosts before ranks run there.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod hosts;
pub mod limit;
pub mod messages;
pub mod node;
pub mod probe;
pub mod report;
pub mod results;
pub mod run;
pub mod schedule;
pub mod spread;
pub mod verdict;

#[cfg(test)]
mod simulated;
