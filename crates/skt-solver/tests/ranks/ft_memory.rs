//! A rank's segment has the size of the formula: Tang et al., TPDS 2018, eq. 6 to 8, for any number
//! of parities.

use crate::drill::{Cluster, settings, spec};
use skt_checkpoint::checkpoint::methods::Method;
use skt_run::protect::{self, Settings};
use skt_solver::grid::{ColumnMap, Cyclic};
use skt_store::layout::Geometry;

#[test]
fn segments_take_the_bytes_of_the_formula() {
    let (mut cases, mut worst) = (0, 0f64);
    for (p, q) in [(1, 2), (2, 2), (2, 4)] {
        for parities in [1, 2] {
            let members = p * q;
            if members < 2 * parities {
                continue;
            }
            for method in [Method::SelfCheckpoint, Method::Double, Method::Single] {
                for (n, nb) in [(2600, 40), (2611, 64)] {
                    // At 512 columns per rank the padding of rows alone is 1.6 %, and the header,
                    // which has 128 KiB for any N, counts.
                    let n = if q > 2 { 2 * n } else { n };
                    let spec = spec(n, nb, p, q, 1);
                    let settings = Settings { method, ..settings(4, members, parities) };
                    // The part of [A|b] on the rank with most.
                    let rows = Cyclic::rows(nb, p).count_before(n, 0);
                    let cols = ColumnMap::cyclic(nb, q).count_before(n + 1, 0);
                    let matrix = (rows * cols * size_of::<f64>()) as u64;
                    let geometry = Geometry { members, parities };
                    let share = method.available(geometry);
                    let formula = matrix as f64 / share;

                    let cluster = Cluster::new(members, 1);
                    let measured = cluster.measure(&spec, &settings);
                    let split = protect::memory_split(&spec, &settings, Some(geometry));
                    let announced = split.total() - split.work_space;
                    for (listed, resident) in measured {
                        assert_eq!(listed, announced, "what is said before the run");
                        let label = format!("{method} n={members} m={parities} N={n}");
                        for bytes in [listed, resident] {
                            let off = bytes as f64 / formula - 1.0;
                            worst = worst.max(off.abs());
                            assert!(off.abs() < 0.02, "{label}: {bytes} bytes, not {formula}");
                            let share_now = matrix as f64 / bytes as f64;
                            assert!((share_now / share - 1.0).abs() < 0.02, "{label}");
                        }
                    }
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases, at most {:.2} % off", worst * 100.0);
    assert_eq!(cases, 5 * 3 * 2);
}
