//! The parts of the factorization, on one rank of one thread, each compared with what limits it on
//! this machine. `cargo bench --bench hpl`.
//!
//! Criterion prints a throughput: `GiB/s` of memory read and written, or `Gelem/s`, where an
//! element is a floating-point operation, so that it reads as Gflop/s. The share of the limit is
//! the ratio to the line `limit` of the same group.

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use skt_comm::{Comm, CommError, PageBuf};
use skt_config::{Fact, Generator, Pmap};
use skt_host::phases::PanelParts;
use skt_solver::blas::library::use_one_thread;
use skt_solver::blas::{MatMut, MatRef, gemm, transpose};
use skt_solver::comm::threads;
use skt_solver::grid::{Cyclic, Grid};
use skt_solver::pfact::{self, PanelPosition, PanelWork, Variant, pivot};
use skt_solver::pgesv::panel::leading_dimension;
use skt_solver::team::Team;
use skt_solver::update::{self, Operands};
use skt_solver::{matgen, swap};

/// Rows and columns of the matrix.
const ORDER: usize = 4096;
/// Columns of a panel.
const NB: usize = 128;

/// The throughput of `doubles` doubles that are read and written.
fn read_and_written(doubles: usize) -> Throughput {
    Throughput::Bytes((2 * doubles * size_of::<f64>()) as u64)
}

/// The only rank of a job.
fn world() -> Comm {
    use_one_thread();
    let mut ranks = threads::run(1, Ok::<_, CommError>);
    ranks.pop().expect("one rank").expect("no error")
}

/// A row-major matrix of the reference's random numbers, and its leading dimension.
fn random(rows: usize, cols: usize) -> (PageBuf, usize) {
    let lda = leading_dimension(cols);
    let mut memory = PageBuf::new(rows * lda).expect("memory");
    let grid = Grid::new(&world(), 1, 1, Pmap::RowMajor).expect("alone").expect("a member");
    let a = MatMut::row_major(&mut memory, rows, cols, lda);
    matgen::generate(&grid, &Team::solo(), rows.max(cols), NB, Generator::Hpl, a);
    (memory, lda)
}

fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    throughput: Throughput,
) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_secs(1));
    group.throughput(throughput);
    group
}

/// Times `step` on `data`; `prepare` runs before each step and is not timed.
fn time<D>(
    group: &mut BenchmarkGroup<WallTime>,
    name: &str,
    data: &mut D,
    prepare: impl Fn(&mut D),
    step: impl Fn(&mut D),
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|turns| {
            let mut total = Duration::ZERO;
            for _ in 0..turns {
                prepare(data);
                let start = Instant::now();
                step(data);
                total += start.elapsed();
            }
            total
        });
    });
}

/// The generator. Its limit is writing memory without computing it.
fn generator(criterion: &mut Criterion) {
    let bytes = (ORDER * ORDER * size_of::<f64>()) as u64;
    let mut group = group(criterion, "generator", Throughput::Bytes(bytes));
    let (mut a, lda) = random(ORDER, ORDER);
    let grid = Grid::new(&world(), 1, 1, Pmap::RowMajor).expect("alone").expect("a member");
    time(&mut group, "limit: fill", &mut a, |_| (), |a| a.fill(1.0));
    for (name, generator) in [("hpl", Generator::Hpl), ("xoshiro", Generator::Xoshiro)] {
        let generate = |a: &mut PageBuf| {
            let a = MatMut::row_major(a, ORDER, ORDER, lda);
            matgen::generate(&grid, &Team::solo(), ORDER, NB, generator, a);
        };
        time(&mut group, name, &mut a, |_| (), generate);
    }
}

/// One panel of `ORDER x NB`. Its limit is GEMM at the panel's own width.
fn panel(criterion: &mut Criterion) {
    let flops = ORDER * NB * NB - NB * NB * NB / 3;
    let mut group = group(criterion, "panel", Throughput::Elements(flops as u64));
    for (name, fact) in [("left", Fact::Left), ("Crout", Fact::Crout), ("right", Fact::Right)] {
        let variant = Variant { pfact: fact, rfact: fact, nbmin: 4, ndiv: 2 };
        factor_panel(&mut group, name, ORDER, &Team::solo(), &variant);
    }
    drop(group);
    gemm_limit(criterion, "panel", ORDER - NB, NB / 2, NB / 2);
}

/// Panels of several heights, factored by one thread and by all threads of this machine.
fn panel_by_team(criterion: &mut Criterion) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let variant = Variant { pfact: Fact::Right, rfact: Fact::Crout, nbmin: 8, ndiv: 2 };
    for rows in [512, 1024, 2048, 4096, 8192] {
        let flops = rows * NB * NB - NB * NB * NB / 3;
        let name = format!("panel of {rows} rows");
        let mut group = group(criterion, &name, Throughput::Elements(flops as u64));
        for threads in [1, all] {
            let team = Team::new(threads, |_| ()).expect("threads");
            factor_panel(&mut group, &format!("{threads} threads"), rows, &team, &variant);
        }
    }
}

/// Times the factorization of a random panel of `rows x NB` by `team`.
fn factor_panel(
    group: &mut BenchmarkGroup<WallTime>,
    name: &str,
    rows: usize,
    team: &Team,
    variant: &Variant,
) {
    // Transposed, so that it is column-major; pivot rows go to the first NB rows.
    let (original, ld) = random(NB, NB + rows);
    let mut data = (random(NB, NB + rows).0, vec![0.0; NB], pivot::Candidates::new(NB, None));
    let world = world();
    let factor = |(w, ipiv, candidates): &mut (PageBuf, Vec<f64>, pivot::Candidates)| {
        let dealt = Cyclic { nb: NB, procs: 1 };
        let mut panel = PanelWork {
            w: MatMut::col_major(w, NB + rows, NB, ld),
            ipiv,
            place: PanelPosition { j: 0, rows: dealt, myrow: 0, top: 0 },
            col: &world,
            team,
            candidates,
            parts: PanelParts::default(),
        };
        pfact::factor(&mut panel, variant).expect("a random panel has pivots");
    };
    time(group, name, &mut data, |(w, ..)| w.copy_from_slice(&original), factor);
}

/// The copies of a panel of `ORDER x NB`, out of the matrix to be factored, and from there into its
/// message. Their limit is memory.
fn panel_copies(criterion: &mut Criterion) {
    let mut group = group(criterion, "panel copies", read_and_written(NB * ORDER));
    let (mut a, lda) = random(ORDER, ORDER);
    // Columns are an odd number of cache lines apart, as in a run.
    let ld = ORDER + 8;
    let (mut w, mut message) = (vec![0.0; ld * NB], vec![0.0; ORDER * NB]);
    let plain = vec![1.0; ORDER * NB];
    // As in a run, the columns have just been updated, and the rest of the rows has not.
    let touch = |(a, _): &mut (&mut PageBuf, &mut Vec<f64>)| {
        (0..ORDER).for_each(|i| a[i * lda..][..NB].iter_mut().for_each(|value| *value += 1.0));
    };
    time(&mut group, "limit: memcpy", &mut message, |_| (), |to| to.copy_from_slice(&plain));
    time(&mut group, "in", &mut (&mut a, &mut w), touch, |(a, w)| {
        let panel = MatRef::row_major(a, ORDER, ORDER, lda).block(0..ORDER, 0..NB);
        transpose::copy(panel, MatMut::col_major(w, ORDER, NB, ld));
    });
    time(
        &mut group,
        "out",
        &mut message,
        |_| (),
        |message| {
            let panel = MatRef::col_major(&w, ORDER, NB, ld);
            transpose::copy(panel, MatMut::row_major(message, ORDER, NB, NB));
        },
    );
}

/// A plain product of `m x n` by `k` in one of the groups.
fn gemm_limit(criterion: &mut Criterion, name: &str, m: usize, n: usize, k: usize) {
    let mut group = group(criterion, name, Throughput::Elements((2 * m * n * k) as u64));
    let (a, lda) = random(m, k);
    let (b, ldb) = random(k, n);
    let (mut c, ldc) = random(m, n);
    let multiply = |c: &mut PageBuf| {
        let a = MatRef::row_major(&a, m, k, lda);
        let b = MatRef::row_major(&b, k, n, ldb);
        gemm(-1.0, a, b, 1.0, MatMut::row_major(c, m, n, ldc));
    };
    time(&mut group, "limit: gemm", &mut c, |_| (), multiply);
}

/// The exchange of `NB` pairs of rows, P = 1. Its limit is memory.
fn row_swap(criterion: &mut Criterion) {
    let mut group = group(criterion, "swap", read_and_written(2 * NB * ORDER));
    let (mut a, lda) = random(ORDER, ORDER);
    let step = (ORDER - NB) / NB;
    let ipiv: Vec<f64> = (0..NB).map(|i| (NB + i * step) as f64).collect();
    let (from, mut to) = (random(2 * NB, ORDER).0, random(2 * NB, ORDER).0);
    // In a run the matrix is not in the cache when its rows are exchanged.
    let forget = |a: &mut PageBuf| a.iter_mut().for_each(|value| *value += 1.0);
    time(&mut group, "limit: memcpy", &mut to, |_| (), |to| to.copy_from_slice(&from));
    let exchange = |a: &mut PageBuf| {
        swap::exchange_local(MatMut::row_major(a, ORDER, ORDER, lda), 0, &ipiv);
    };
    time(&mut group, "local", &mut a, forget, exchange);
}

/// The solve for U and the product, on a trailing matrix of `ORDER x ORDER`. Its limit is GEMM.
fn trailing_update(criterion: &mut Criterion) {
    let (flops_solve, flops_multiply) = (NB * NB * ORDER, 2 * NB * ORDER * ORDER);
    let (l, ld) = random(NB, ORDER + NB);
    let (mut a, lda) = random(ORDER + NB, ORDER);
    let ipiv = vec![0.0; NB];
    let l = MatRef::col_major(&l, ORDER + NB, NB, ld);
    let operands = Operands {
        l1: l.block(0..NB, 0..NB),
        l2: l.block(NB..ORDER + NB, 0..NB),
        ipiv: &ipiv,
        below: NB,
    };
    let throughput = Throughput::Elements((flops_solve + flops_multiply) as u64);
    let mut with = group(criterion, "update", throughput);
    let step = |a: &mut PageBuf| {
        let a = MatMut::row_major(a, ORDER + NB, ORDER, lda);
        let (mut u, a2) = a.split_rows(NB);
        update::solve(&operands, u.rb());
        update::multiply(&operands, u.into_ref().into(), 0..ORDER, a2);
    };
    // Without `fill` the values would grow from step to step until they are infinite.
    time(&mut with, "solve and multiply", &mut a, |a| a.fill(0.5), step);
    drop(with);
    gemm_limit(criterion, "update", ORDER, ORDER, NB);
}

criterion_group!(benches, generator, panel, panel_by_team, panel_copies, row_swap, trailing_update);
criterion_main!(benches);
