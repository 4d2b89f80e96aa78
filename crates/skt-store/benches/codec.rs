//! The speed of each kernel of the codec, in bytes of source per second, compared with memcpy and
//! XOR in the same run. Run it with `cargo bench --bench codec`.
//!
//! There are two settings: `cache` is a segment of 64 KiB, which the pipelined ring works on;
//! `memory` is 64 MiB in pieces of 1 MiB, twice the size of the caches.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use skt_store::codec::{self, Coef, kernel};

const CACHE_BYTES: usize = 64 << 10;
const MEMORY_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Page-aligned noise.
struct Buffer(Vec<u8>, usize);

impl Buffer {
    fn new(bytes: usize, seed: usize) -> Self {
        let noise = (0..bytes + 4096).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9) >> 13) as u8);
        let data: Vec<u8> = noise.collect();
        let start = data.as_ptr().align_offset(4096);
        Self(data, start)
    }

    fn get(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + bytes]
    }
}

/// Measures one operation on `(src, out)`, over all of the buffers in pieces.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    (src, out): (&[u8], &mut [u8]),
    op: impl Fn(&[u8], &mut [u8]),
) {
    group.throughput(Throughput::Bytes(src.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (src, out) in src.chunks(PIECE_BYTES).zip(out.chunks_mut(PIECE_BYTES)) {
                op(src, out);
            }
            black_box(&mut *out);
        });
    });
}

fn kernels(criterion: &mut Criterion) {
    for (place, bytes) in [("cache", CACHE_BYTES), ("memory", MEMORY_BYTES)] {
        let mut group = criterion.benchmark_group(place);
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(50));
        group.measurement_time(Duration::from_millis(250));
        let [mut src, mut out] = [2, 3].map(|seed| Buffer::new(bytes, seed));
        let (src, out) = (&*src.get(bytes), out.get(bytes));

        measure(&mut group, "memcpy", (src, out), |src, out| out.copy_from_slice(src));
        measure(&mut group, "copy", (src, out), codec::copy);
        measure(&mut group, "checksum", (src, out), |src, _| {
            black_box(codec::checksum(src));
        });
        for kernel in kernel::available() {
            for (code, coef) in
                [("xor", Coef::Gf(1)), ("rs", Coef::Gf(0x53)), ("sum", Coef::Real(1.0))]
            {
                let name = |op| format!("{}/{code}-{op}", kernel.name);
                measure(&mut group, &name("fma"), (src, out), |src, out| {
                    kernel.fma(coef, src, out);
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
