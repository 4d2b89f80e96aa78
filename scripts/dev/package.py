#!/usr/bin/env python3
"""The parts of scripts/package that are no shell commands.

    scripts/dev/package.py notices INPUTS                 prints the licences of what is linked
    scripts/dev/package.py wheel TREE VERSION TAG FOLDER  makes a wheel of a folder's files
"""

import base64
import csv
import glob
import hashlib
import io
import json
import os
import subprocess
import sys
import time
import zipfile

TARGET = "x86_64-unknown-linux-gnu"


def linked_crates():
    """The packages that the programs are linked from, but for our own."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    data = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    wanted = [id for id, package in packages.items() if package["name"] in ("skt-hpl", "skt-starter", "skt-studies")]
    found = set()
    while wanted:
        found.add(id := wanted.pop())
        is_linked = lambda dep: any(kind["kind"] is None for kind in dep["dep_kinds"])
        wanted += [dep["pkg"] for dep in nodes[id]["deps"] if is_linked(dep) and dep["pkg"] not in found]
    outside = [packages[id] for id in found if packages[id]["source"]]
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def notices(inputs):
    """Prints each licence text once, below the names of what it is for."""
    texts = {}

    def add(text, what):
        texts.setdefault(text.strip(), []).append(what)

    for crate in linked_crates():
        what = f'{crate["name"]} {crate["version"]} ({crate["license"]})'
        folder = os.path.dirname(crate["manifest_path"])
        files = [file for file in sorted(os.listdir(folder))
                 if file.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"))
                 and os.path.isfile(os.path.join(folder, file))]
        for file in files:
            add(open(os.path.join(folder, file), errors="replace").read(), what)
        if not files:
            add("Its texts are among those above and below.", what)
    [file] = glob.glob(f"{inputs}/python/lib/*/site-packages/ziglang-*/licenses/ziglang/lib/libc/glibc/LICENSES")
    add(open(file).read(), "start-up code of glibc")
    print("The programs of this package are linked from skt-hpl, from Rust's standard library (MIT OR\n"
          "Apache-2.0, https://www.rust-lang.org), and from the following.")
    for text, of in sorted(texts.items(), key=lambda item: item[1]):
        print("\n" + "=" * 80 + "\n" + "\n".join(of) + "\n\n" + text)


def wheel(tree, version, tag, folder):
    """Makes a wheel that lays the files of `tree` into the environment that it is installed in."""
    info = f"skt_hpl-{version}.dist-info"
    license = "MIT OR Apache-2.0"
    files = {
        f"{info}/METADATA": (f"Metadata-Version: 2.4\nName: skt-hpl\nVersion: {version}\n"
                             "Summary: High-Performance Linpack that survives the loss of nodes\n"
                             f"License-Expression: {license}\nRequires-Python: >=3\n"
                             "Description-Content-Type: text/markdown\n\n"
                             + open("docs/install.md").read()),
        f"{info}/WHEEL": ("Wheel-Version: 1.0\nGenerator: skt-hpl\nRoot-Is-Purelib: false\n"
                          f"Tag: py3-none-{tag}\n"),
    }
    # A wheel has no links: a second name is a copy.
    for path, _, names in os.walk(tree):
        for name in names:
            file = os.path.join(path, name)
            files[f"skt_hpl-{version}.data/data/{os.path.relpath(file, tree)}"] = file
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    out = f"{folder}/skt_hpl-{version}-py3-none-{tag}.whl"
    stamp = max(time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6], (1980, 1, 1, 0, 0, 0))

    def put(archive, name, data, mode):
        entry = zipfile.ZipInfo(name, stamp)
        entry.external_attr, entry.create_system = (0o100000 | mode) << 16, 3
        archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)

    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            is_text = name.startswith(info)
            data = files[name].encode() if is_text else open(files[name], "rb").read()
            put(archive, name, data, 0o644 if is_text else os.stat(files[name]).st_mode & 0o777)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(data)])
        rows.writerow([f"{info}/RECORD", "", ""])
        put(archive, f"{info}/RECORD", record.getvalue(), 0o644)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["notices", inputs]:
            notices(inputs)
        case ["wheel", tree, version, tag, folder]:
            wheel(tree, version, tag, folder)
        case _:
            sys.exit(__doc__)
