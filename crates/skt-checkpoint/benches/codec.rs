//! Each kernel of the codec, in bytes of source a second, beside memcpy and XOR
//! in the same run. `cargo bench --bench codec`.
//!
//! Two places: `cache` is a segment of 64 KiB, as the pipelined ring works on;
//! `memory` is 64 MiB walked in pieces of 1 MiB, twice the size of the caches.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use skt_checkpoint::checkpoint::codec::{self, Coef, kernel};

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

/// One operation on `(acc, src, out)`, over all of the buffers in pieces.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    (acc, src, out): (&[u8], &[u8], &mut [u8]),
    op: impl Fn(&[u8], &[u8], &mut [u8]),
) {
    group.throughput(Throughput::Bytes(src.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let sources = acc.chunks(PIECE_BYTES).zip(src.chunks(PIECE_BYTES));
            for ((acc, src), out) in sources.zip(out.chunks_mut(PIECE_BYTES)) {
                op(acc, src, out);
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
        let [mut acc, mut src, mut out] = [1, 2, 3].map(|seed| Buffer::new(bytes, seed));
        let (acc, src, out) = (&*acc.get(bytes), &*src.get(bytes), out.get(bytes));

        measure(&mut group, "memcpy", (acc, src, out), |_, src, out| out.copy_from_slice(src));
        measure(&mut group, "copy", (acc, src, out), |_, src, out| codec::copy(src, out));
        measure(&mut group, "checksum", (acc, src, out), |_, src, _| {
            black_box(codec::checksum(src));
        });
        for kernel in kernel::available() {
            for (code, coef) in
                [("xor", Coef::Gf(1)), ("rs", Coef::Gf(0x53)), ("sum", Coef::Real(1.0))]
            {
                let name = |op| format!("{}/{code}-{op}", kernel.name);
                measure(&mut group, &name("fma"), (acc, src, out), |_, src, out| {
                    kernel.fma(coef, src, out);
                });
                measure(&mut group, &name("fma-into"), (acc, src, out), |acc, src, out| {
                    kernel.fma_into(coef, acc, src, out);
                });
            }
        }
        for parities in [2, 3] {
            let mut sums: Vec<Buffer> = (0..parities).map(|i| Buffer::new(bytes, 7 + i)).collect();
            let mut sums: Vec<&mut [u8]> = sums.iter_mut().map(|sum| sum.get(bytes)).collect();
            let coefs = &[0x53, 0x54, 0x55].map(Coef::Gf)[..parities];
            group.throughput(Throughput::Bytes(bytes as u64));
            for kernel in kernel::available().iter().filter(|kernel| kernel.name != "scalar") {
                group.bench_function(
                    format!("{}/rs-fma-many/{parities}", kernel.name),
                    |bencher| {
                        bencher.iter(|| {
                            for start in (0..bytes).step_by(PIECE_BYTES) {
                                let piece = start..bytes.min(start + PIECE_BYTES);
                                let mut parts: Vec<&mut [u8]> =
                                    sums.iter_mut().map(|sum| &mut sum[piece.clone()]).collect();
                                kernel.fma_many(coefs, &src[piece], &mut parts);
                            }
                            black_box(&mut sums);
                        });
                    },
                );
            }
        }
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
