//! The configurations in `hpl-configs/` are legal and agree with their comments.

use std::fs;
use std::path::{Path, PathBuf};

use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{Format, RunSpec, parse, read_bytes};
use skt_host::starter::{Ranks, Starter};
use skt_run::protect::Settings;
use skt_store::layout::Geometry;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hpl-configs")
}

fn read(name: &str) -> RunSpec {
    read_all(name).0
}

fn read_all(name: &str) -> (RunSpec, Settings) {
    let path = folder().join(name);
    let bytes = read_bytes(&path).unwrap();
    let checked = parse(&bytes, name, Format::from_path(&path), false).unwrap();
    assert_eq!(checked.warnings, [], "{name}");
    let settings = Settings::read(&checked.checkpoint, &checked.spec).unwrap();
    (checked.spec, settings)
}

#[test]
fn all_are_legal_and_fill_whole_blocks() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let want = [
        "laptop.dat",
        "laptop.toml",
        "large-cluster.toml",
        "mxp.toml",
        "one-node.toml",
        "small-cluster.toml",
        "top500-style.toml",
    ];
    assert_eq!(names, want);
    for name in names {
        let spec = read(&name);
        for &(p, q) in &spec.grids {
            assert!(p <= q, "{name}");
        }
        assert_eq!(spec.n[0] % spec.nb[0], 0, "{name}");
    }
}

#[test]
fn large_ones_take_at_most_four_fifths_of_their_memory() {
    let machines = [
        ("one-node", 256),
        ("small-cluster", 8 * 256),
        ("mxp", 8 * 256),
        ("large-cluster", 256 * 512),
        ("top500-style", 4096 * 512),
    ];
    for (name, gib) in machines {
        let (spec, settings) = read_all(&format!("{name}.toml"));
        let geometry = Geometry { members: settings.group_size, parities: settings.parities };
        // The matrix with its checkpoints, Tang et al., eq. 6.
        let element = if spec.mxp.is_some() { 4.0 } else { 8.0 };
        let bytes = element * (spec.n[0] as f64).powi(2) / settings.method.available(geometry);
        let part = bytes / (f64::from(gib) * f64::from(1 << 30));
        assert!((0.79..=0.80).contains(&part), "{name}: {part}");
        let nodes = gib / if gib <= 8 * 256 { 256 } else { 512 };
        let method = if nodes == 1 { Method::None } else { Method::SelfCheckpoint };
        assert_eq!(settings.method, method, "{name}");
        let of_one_group = settings.group_size as i32;
        assert!(nodes == 1 || nodes % of_one_group == 0, "{name}: no two of a group on a node");
    }
}

#[test]
fn their_commands_give_each_thread_a_core() {
    let machines = [
        ("one-node", 1),
        ("small-cluster", 8),
        ("mxp", 8),
        ("large-cluster", 256),
        ("top500-style", 4096),
    ];
    for (name, nodes) in machines {
        let file = format!("{name}.toml");
        let spec = read(&file);
        let count = spec.max_ranks();
        let ranks = Ranks {
            count,
            nodes: (nodes > 1).then_some((nodes, count / nodes)),
            hostfile: "hosts",
            threads: spec.threads,
            helper_cores: 0,
        };
        assert_eq!(count / nodes * spec.threads, 64, "{name}: cores of a server");
        let text = fs::read_to_string(folder().join(&file)).unwrap();
        for starter in [Starter::Openmpi, Starter::Mpich, Starter::Slurm] {
            let command = starter.command(false, &ranks).join(" ");
            let program = if spec.mxp.is_some() { "skt-hpl mxp" } else { "skt-hpl" };
            let lines = format!("#   {command} \\\n#     {program} --config hpl-configs/{file}\n");
            assert!(text.contains(&lines), "{name} lacks:\n{lines}");
        }
    }
}

#[test]
fn the_laptops_two_forms_are_one_run() {
    assert_eq!(read("laptop.dat"), read("laptop.toml"));
    // What HPL.dat cannot hold is the default of a run on four ranks.
    let settings = read_all("laptop.toml").1;
    assert_eq!((settings.method_for(4), settings.group_size), (Method::SelfCheckpoint, 4));
}
