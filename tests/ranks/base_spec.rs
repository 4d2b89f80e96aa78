//! The base test that other tests vary: small, on threads.

use skt_config::{Bcast, Fact, Generator, Pmap, Swap, TestSpec, Transport};

/// A test of order `n` in blocks of `nb` on `p` times `q` ranks.
pub fn base(n: usize, nb: usize, p: usize, q: usize) -> TestSpec {
    TestSpec {
        n,
        nb,
        p,
        q,
        pmap: Pmap::RowMajor,
        depth: 0,
        bcast: Bcast::OneRing,
        rfact: Fact::Right,
        pfact: Fact::Right,
        nbmin: 4,
        ndiv: 2,
        swap: Swap::Mix,
        swap_threshold: 8,
        threshold: 16.0,
        generator: Generator::Hpl,
        threads: 1,
        transport: Transport::Shared,
        checksums: 0,
    }
}
