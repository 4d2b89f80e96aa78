"""The experiments of `papers`: each measures into raw runs, and reports them as a table."""

import collections
import glob
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time

import launchers

NB = 64
# Of a run that checkpoints its whole matrix again and again.
CHECKPOINTS = 4


def numbers(args, default):
    """The numbers of ranks: those of the command line, or the experiment's."""
    return [int(text) for text in (args.ranks or default).split(",")]


def launched(args, ranks, words, fails=False):
    """Runs a program on ranks, and returns its text. `fails`: it has to end with an error."""
    command = args.mpirun.split() + ["-np", str(ranks)] + [str(word) for word in words]
    code, text = launchers.run(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    if (code != 0) != fails:
        sys.exit(f"ended with {code}: {' '.join(command)}\n{text}")
    return text


def order(mib, ranks):
    """N, a multiple of NB, of a matrix with this many MiB a rank."""
    return max(int(math.sqrt(mib * 2**20 * ranks / 8)) // NB, ranks) * NB


def hpl(args, ranks, flags, n=None, fails=False):
    """Runs HPL on 1 x ranks; returns its test of the JSON report."""
    report = os.path.join(args.folder, "report.json")
    if os.path.exists(report):
        os.remove(report)
    n = n or order(args.mib, ranks)
    words = [args.program, "--n", n, "--nb", NB, "--p", 1, "--progress", "off", "--json", report]
    text = launched(args, ranks, words + flags, fails)
    if fails:
        return None
    with open(report) as f:
        test = json.load(f)["tests"][0]
    if test["status"] != "passed":
        sys.exit(f"the residual check did not pass:\n{text}")
    return test


def checkpointed(args, ranks, flags):
    """The test of a run in one group of all ranks with CHECKPOINTS checkpoints."""
    panels = order(args.mib, ranks) // NB
    every = f"{max(panels // (CHECKPOINTS + 1), 1)}p!"
    return hpl(args, ranks, ["--q", ranks, "--ft", "self", "--group-size", ranks, "--checkpoint-every", every,
                             "--overlap", "off", "--store", f"file:{args.folder}"] + flags)["protection"]


def compiled_reduce(args):
    program = os.path.join(args.folder, "reduce")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reduce.c")
    code, text = launchers.run(["mpicc", "-O2", source, "-o", program])
    if code != 0:
        sys.exit(f"mpicc {source}: {text}")
    return program


def mpi_reduce(args, program, ranks, mib):
    """Seconds of the encoding by MPI_Reduce, by code."""
    text = launched(args, ranks, [program, mib, CHECKPOINTS + 1])
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", text, re.M)}


def own_encodings(args, ranks, mib, codes="xor,sum,reed-solomon"):
    """Seconds of our encodings of the same data, by code: `xor by ring`."""
    program = os.path.join(os.path.dirname(args.program), "examples/encode")
    text = launched(args, ranks, [program, "--mib", mib, "--repeats", CHECKPOINTS + 1, "--codes", codes,
                                  "--store", f"file:{args.folder}"])
    return {name: float(value) for name, value in re.findall(r"^(\S+ by \w+) ([\d.]+)$", text, re.M)}


def encode_seconds(saved):
    return saved["encode_seconds"] / saved["checkpoints"]


def codes(args, raw):
    reduce = compiled_reduce(args)
    for _ in range(args.runs):
        for ranks in numbers(args, "2,4,8"):
            for series, seconds in own_encodings(args, ranks, args.mib).items():
                raw.add("tang-18-codes", series, ranks, seconds)
            for code, seconds in mpi_reduce(args, reduce, ranks, args.mib).items():
                raw.add("tang-18-codes", f"{code} by MPI_Reduce", ranks, seconds)


def report_codes(raw):
    def paper(ranks):
        return "SUM 15 % faster than XOR" if ranks == 16 else "SUM faster from more than 4 nodes" if ranks > 4 else "-"
    return raw.table("tang-18-codes", "ranks in a group, s", paper)


def groups(args, raw):
    memory_mib = args.mib
    for _ in range(args.runs):
        for ranks in numbers(args, "2,4,8"):
            # What the self-checkpoint leaves to the matrix (eq. 6).
            args.mib = memory_mib * (ranks - 1) / (2 * ranks)
            saved = checkpointed(args, ranks, ["--region", "whole"])
            raw.add("tang-19-groups", "encode", ranks, encode_seconds(saved))
            raw.add("tang-19-sizes", "checkpoint", ranks, saved["saved_bytes"] / saved["checkpoints"] / 2**20)


def report_groups(raw):
    times = raw.table("tang-19-groups", "ranks in a group, s",
                      lambda ranks: "16 s for 7/16 of 64 GB a node" if ranks == 8 else "grows slowly")
    return times + "\n" + raw.table("tang-19-sizes", "ranks in a group, MiB",
                                    lambda ranks: f"{(ranks - 1) / (2 * ranks):.3g} of the memory (eq. 6)")


def regions(args, raw):
    ranks = numbers(args, "2")[0]
    for _ in range(args.runs):
        for region in REGIONS:
            saved = checkpointed(args, ranks, ["--region", region])
            raw.add("tang-20-regions", "s", region, saved["checkpoint_seconds"])
            raw.add("tang-20-sizes", "MiB", region, saved["saved_bytes"] / 2**20)


# Eq. 20, and what Tang et al. measured is drawn in fig. 20 alone.
REGIONS = {"whole": "3", "side": "1.5", "corner": "1"}


def report_regions(raw):
    lines = ["| region | s | corner = 1 | MiB | corner = 1 | paper (eq. 20) |", "|---|---|---|---|---|---|"]
    for region, paper in REGIONS.items():
        cells = []
        for figure, series in (("tang-20-regions", "s"), ("tang-20-sizes", "MiB")):
            value, least = (raw.median(figure, series, one) for one in (region, "corner"))
            cells += [f"{value:.4g}", f"{value / least:.3g}"]
        lines.append(f"| {region} | {' | '.join(cells)} | {paper} |")
    return "\n".join(lines) + "\n"


# Of Tang et al., section 7.3, on Tianhe-2 with 24,576 processes.
PHASES = {"detection": "63 s", "replacement": "10 s", "restart": "9 s", "recovery": "20 s"}


def loss(args, raw):
    demo = os.path.join(os.path.dirname(args.program), "node_loss")
    for _ in range(args.runs):
        code, text = launchers.run([demo, args.program, str(args.n), "--keep", args.folder])
        if code != 0:
            sys.exit(f"{demo} ended with {code}:\n{text}")
        with open(os.path.join(args.folder, "launch.json")) as f:
            (failure,) = json.load(f)["failures"]
        for phase in PHASES:
            raw.add("tang-15-loss", "seconds", phase, failure["timeline"][f"{phase}_seconds"])


def report_loss(raw):
    return raw.table("tang-15-loss", "phase", PHASES.get)


def chain(args, raw):
    reduce, (ranks, *_) = compiled_reduce(args), numbers(args, "4")
    for _ in range(args.runs):
        for mib in (args.mib / 2**power for power in range(6, -1, -2)):
            own, x = own_encodings(args, ranks, mib, "sum"), f"{mib:.3g}"
            raw.add("chen-chain", "ring", x, own["sum by ring"])
            raw.add("chen-chain", "MPI_Reduce", x, mpi_reduce(args, reduce, ranks, mib)["sum"])


def report_chain(raw):
    return raw.table("chen-chain", "MiB a rank, s", lambda _: "chain 1, tree log2 p (eq. 6, 8)")


# Chen and Dongarra: four processes are killed.
LOSSES = 4
TIMES = re.compile(r"^# checkpoints: (\d+) in ([\d.]+) s; recovery: ([\d.]+) s; all: ([\d.]+) s\n(.*)", re.M | re.S)
Ended = collections.namedtuple("Ended", "checkpoint_seconds recovery_seconds all_seconds result")


def client(args, ranks, words, fails=False):
    """Runs an example; returns its times, and its result as it prints it."""
    program = os.path.join(os.path.dirname(args.program), "examples", words[0])
    text = launched(args, ranks, [program] + words[1:], fails)
    if fails:
        return None
    count, seconds, recovery_seconds, all_seconds, result = TIMES.search(text).groups()
    return Ended(float(seconds) / max(int(count), 1), float(recovery_seconds), float(all_seconds), result)


def recovery(args, raw):
    for _ in range(args.runs):
        for ranks in numbers(args, "8,12,16"):
            # Three vectors a rank.
            size = int(math.sqrt(args.mib * 2**20 * ranks / 24))
            run = ["pcg", "--size", size, "--tolerance", "1e-6", "--every", 10, "--group-size", 8, "--parities",
                   LOSSES, "--store", f"file:{args.folder}"]
            # The last ranks of the first group.
            faults = [word for rank in range(4, 8) for word in ("--inject", f"{rank}@column:25")]
            undisturbed = client(args, ranks, run)
            client(args, ranks, run + faults, fails=True)
            for rank in range(4, 8):
                for segment in glob.glob(os.path.join(args.folder, f"skt-hpl-*-{rank}")):
                    os.remove(segment)
            resumed = client(args, ranks, run)
            if resumed.result != undisturbed.result or resumed.recovery_seconds == 0:
                sys.exit(f"{undisturbed.result} without and {resumed.result} after {LOSSES} losses, "
                         f"recovery in {resumed.recovery_seconds} s")
            raw.add("chen-08-recovery", "checkpoint", ranks, undisturbed.checkpoint_seconds)
            raw.add("chen-08-recovery", "recovery", ranks, resumed.recovery_seconds)


def report_recovery(raw):
    return raw.table("chen-08-recovery", "processes, s", lambda _: "the same from 60 to 480")


def checksums(args, raw):
    ranks = numbers(args, "3")[0]
    unprotected = ["--q", ranks, "--ft", "none"]
    abft = ["--q", ranks - 1, "--ft", "abft"]
    for _ in range(args.runs):
        start = time.monotonic()
        none = hpl(args, ranks, unprotected, args.n)
        raw.add("wang-09-stages", "unprotected", "no loss", time.monotonic() - start)
        raw.add("wang-08-residuals", "unprotected", "no loss", none["scaled_residual"])
        for stage in ("no loss", "0/4", "1/4", "2/4", "3/4"):
            run = abft + ["--store", f"file:{args.folder}"]
            start = time.monotonic()
            if stage != "no loss":
                column = max(args.n * int(stage[0]) // 4, NB)
                hpl(args, ranks, run + ["--inject", f"1@column:{column}"], args.n, fails=True)
            test = hpl(args, ranks, run, args.n)
            raw.add("wang-09-stages", "abft", stage, time.monotonic() - start)
            raw.add("wang-08-residuals", "abft", stage, test["scaled_residual"])


def report_checksums(raw):
    times = raw.table("wang-09-stages", "loss at, s from the first start to the end",
                      lambda stage: "-" if stage == "no loss" else "1 to 5 % (recovery), grows with the stage")
    return times + "\n" + raw.table("wang-08-residuals", "loss at, residual",
                                    lambda stage: "-" if stage == "no loss" else "little more; replaced: doubled")


# How a client is saved: not, while it stops, and while it computes on. The image is on args.disk.
WAYS = {
    "without": ["--every", 1000],
    "stopped": ["--every", 10],
    "overlapped": ["--every", 10, "--overlap"],
    "helper": ["--every", 10, "--overlap", "--helper"],
    "helper and SSD": ["--every", 10, "--overlap", "--helper", "--levels", "local:{disk},every=0.001s!"],
}


def clients(args, raw):
    disk = tempfile.mkdtemp(prefix="papers-", dir=args.disk)
    try:
        for _ in range(args.runs):
            for ranks in numbers(args, "2,4"):
                for name, words in (
                    ("nbody", ["--bodies", int(math.sqrt(args.mib * 2**20 * ranks / 8)), "--steps", 40]),
                    ("himeno", ["--size", max(int((args.mib * 2**20 * ranks / 4) ** (1 / 3)), 8), "--iterations", 40]),
                ):
                    common = ["--group-size", ranks, "--parities", ranks // 2, "--store", f"file:{args.folder}"]
                    for way, flags in WAYS.items():
                        flags = [str(flag).format(disk=disk) for flag in flags]
                        ended = client(args, ranks, [name] + words + common + flags)
                        raw.add(f"bautista-{name}", way, ranks, ended.all_seconds)
    finally:
        shutil.rmtree(disk, ignore_errors=True)


# Bautista Gomez et al., section 5, with 16 cores a node.
CLIENTS = {
    "nbody": "stopped about as with a helper core, 7 % (fig. 4)",
    "himeno": "stopped 9 to 11 %, helper core under 2 % (fig. 5), on idle cores next to a GPU 1 % at most (fig. 6)",
}


def report_clients(raw):
    text = ""
    for name, paper in CLIENTS.items():
        figure = f"bautista-{name}"
        for ranks in raw.keys(figure)[1]:
            for way in list(WAYS)[1:]:
                seconds, without = (raw.median(figure, one, ranks) for one in (way, "without"))
                raw.rows.append((f"{name} more", f"{way}, %", ranks, 100 * (seconds / without - 1)))
        text += raw.table(figure, f"{name}: ranks, s", lambda _: "-") + "\n"
        text += raw.table(f"{name} more", f"{name}: ranks", lambda _: paper) + "\n"
    return text


ALL = {
    "codes": (codes, report_codes),
    "groups": (groups, report_groups),
    "regions": (regions, report_regions),
    "loss": (loss, report_loss),
    "chain": (chain, report_chain),
    "recovery": (recovery, report_recovery),
    "checksums": (checksums, report_checksums),
    "clients": (clients, report_clients),
}
