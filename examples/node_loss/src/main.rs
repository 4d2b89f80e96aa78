//! A demonstration of a node loss, which `scripts/demo-node-loss` runs.
//!
//! Four nodes and a spare, made of Linux namespaces, run HPL. Between two checkpoints one node
//! loses power. The run ends with PASSED, and with the same x as an undisturbed one.

#[path = "../../../tests/cluster_box/mod.rs"]
mod cluster_box;
#[path = "../../../tests/executables/mod.rs"]
mod executables;

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use cluster_box::{ClusterBox, OPENMPI_ARGUMENTS};

const FOLDER: &str = "skt-hpl.launch";
const NODES: u8 = 4;

#[derive(Parser)]
struct Args {
    /// The program skt-hpl.
    program: PathBuf,
    /// Order of the matrix.
    #[arg(default_value_t = 8000)]
    n: usize,
    /// Cut the node's link before its power.
    #[arg(long)]
    silent: bool,
    /// Folder for the JSON documents of the run and of its supervisor.
    #[arg(long)]
    keep: Option<PathBuf>,
    #[command(flatten)]
    protection: Protection,
}

/// What protects the run, with one rank on each node.
#[derive(clap::Args)]
struct Protection {
    /// Method: self, double, single or abft.
    #[arg(long, default_value = "self")]
    ft: String,
    /// Ranks of a group.
    #[arg(long, default_value_t = NODES, value_parser = clap::value_parser!(u8).range(2..))]
    group_size: u8,
    /// Lost nodes that a group survives.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    parities: u8,
}

impl Protection {
    /// The flags of skt-hpl; with abft, ranks of checksums are besides those of the grid.
    fn flags(&self) -> String {
        let Self { ft, group_size, parities } = self;
        if ft == "abft" {
            return format!("--ft abft --q {} --parities {parities}", NODES - parities);
        }
        format!(
            "--ft {ft} --q {NODES} --group-size {group_size} --parities {parities} \
             --checkpoint-every 8p"
        )
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Args { program, n, silent, keep, protection } = Args::parse();
    let mut cluster = ClusterBox::new(5)?;
    cluster.install(&program, "skt-hpl");
    cluster.write("hosts", "n1\nn2\nn3\nn4\n");
    cluster.write("spares", "n5\n");
    println!("A cluster of n1 n2 n3 n4 and the spare n5 is up. Undisturbed, N = {n}:");
    let mut quiet = start(&cluster, n, &protection, "undisturbed", false)?;
    quiet.wait()?;
    let undisturbed = x_of(&cluster, "undisturbed")?;

    println!("Now n2 loses its power after a third of the columns:");
    let mut job = start(&cluster, n, &protection, FOLDER, true)?;
    let printer =
        job.stderr.take().map(|stderr| std::thread::spawn(move || print_own_lines(stderr)));
    wait_for_column(&cluster, &mut job, n / 3)?;
    println!("--- power off: n2{}", if silent { ", its link first: no last packet" } else { "" });
    if silent {
        cluster.power_off_silently("n2")
    } else {
        cluster.power_off("n2")
    }
    let status = job.wait()?;
    if let Some(printer) = printer {
        let _ = printer.join();
    }
    let disturbed = x_of(&cluster, FOLDER)?;
    let report = fs::read_to_string(cluster.shared().join(format!("{FOLDER}.report")))?;
    for line in report.lines() {
        let starts = ["WR", "WC", "||Ax", "# x:", "# protection", "# restart"];
        if starts.iter().any(|start| line.starts_with(start)) {
            println!("{line}");
        }
    }
    if let Some(folder) = keep {
        fs::create_dir_all(&folder)?;
        for (of, name) in [("json", "launch.json"), ("run.json", "run.json")] {
            fs::copy(cluster.shared().join(format!("{FOLDER}.{of}")), folder.join(name))?;
        }
    }
    // What is rebuilt from sums is rounded in another way.
    let is_exact = protection.ft != "abft";
    if !status.success() || (is_exact && disturbed != undisturbed) {
        return Err(format!("the run went wrong: {status}, {disturbed}, not {undisturbed}").into());
    }
    if !report.contains("# restart") {
        return Err("the run started from the beginning: nothing was rebuilt".into());
    }
    if is_exact {
        println!("x has the same bits as the undisturbed run's.");
    } else {
        println!("x passed the residual check; what sums rebuild differs in rounding.");
    }
    remove_marks(&cluster)?;
    let remains = cluster.remains_after(Duration::from_secs(10));
    if !remains.is_empty() {
        return Err(format!("left on the nodes:\n{}", remains.join("\n")).into());
    }
    println!("The nodes are clean: no process, no segment, no file is left.");
    Ok(())
}

/// Removes what `launch` keeps on the nodes because n2 may come back with segments of the run: a
/// mark, and nothing that a run could resume from.
fn remove_marks(cluster: &ClusterBox) -> Result<(), Box<dyn Error>> {
    const MARK_BYTES_MAX: u64 = 64 << 10;
    for node in ["n1", "n3", "n4", "n5"] {
        let bytes = cluster.segment_bytes(node);
        if bytes > MARK_BYTES_MAX {
            return Err(format!("{bytes} bytes of segments are left on {node}").into());
        }
        let cleaned = cluster.on_node(node, "bin/skt-hpl").args(["store", "clean"]).status()?;
        if !cleaned.success() {
            return Err(format!("skt-hpl store clean on {node}: {cleaned}").into());
        }
    }
    println!(
        "Each node had a mark for n2, which was not there at the end; `skt-hpl store clean` \
         removed it."
    );
    Ok(())
}

/// Prints the supervisor's own lines, without Open MPI's lines about the loss, and without the
/// warning that nodes have an IPC namespace each, which makes them nodes here.
fn print_own_lines(stderr: ChildStderr) {
    let mut is_table = false;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        is_table |= line.starts_with("failure ");
        let is_own = is_table || line.starts_with("launch ") || line.contains(" group(s) of ");
        if is_own && !line.contains("IPC namespace") {
            println!("{line}");
        }
    }
}

/// Starts `skt-hpl launch` on the head node.
fn start(
    cluster: &ClusterBox,
    n: usize,
    protection: &Protection,
    state: &str,
    is_printed: bool,
) -> Result<Child, Box<dyn Error>> {
    let script = format!(
        "exec bin/skt-hpl launch --hosts hosts --spares spares --agent /mnt/bin/agent \
         --state {state} --json {state}.json --launcher openmpi {} -- --json {state}.run.json --n {n} --p 1 {} --nb 128 \
         --progress off > {state}.report",
        OPENMPI_ARGUMENTS.map(|word| format!("--launcher-arg={word}")).join(" "),
        protection.flags()
    );
    let mut command = cluster.on_head("/bin/sh");
    command.args(["-c", &script]).stdin(Stdio::null());
    command.stderr(if is_printed { Stdio::piped() } else { Stdio::null() });
    Ok(command.spawn()?)
}

fn wait_for_column(
    cluster: &ClusterBox,
    job: &mut Child,
    column: usize,
) -> Result<(), Box<dyn Error>> {
    let file = cluster.shared().join(FOLDER).join("start-1.err");
    let start = Instant::now();
    loop {
        let log = fs::read_to_string(&file).unwrap_or_default();
        let columns = log.split("\"column\":").skip(1).filter_map(|rest| {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..digits].parse::<usize>().ok()
        });
        if columns.max().is_some_and(|done| done >= column) {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(300) || job.try_wait()?.is_some() {
            return Err(format!("the job does not come to column {column}; is N too small?").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The line of the report with x.
fn x_of(cluster: &ClusterBox, state: &str) -> Result<String, Box<dyn Error>> {
    let report = fs::read_to_string(cluster.shared().join(format!("{state}.report")))?;
    let line = report.lines().find(|line| line.starts_with("# x: "));
    Ok(line.ok_or_else(|| format!("no x in the report:\n{report}"))?.to_owned())
}
