#!/usr/bin/env python3
"""How compare and table3 run programs, so that an interrupt leaves none."""

import signal
import subprocess
import sys

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: sys.exit(128 + number))


def run(command, **options):
    """Runs a launcher, and returns its exit code and what it printed. An interrupt ends it, and it
    ends its ranks; what they say then of the memory that they keep is printed."""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as launcher:
        try:
            text = launcher.communicate()[0]
        except BaseException:
            launcher.terminate()
            print(launcher.communicate()[0], end="", file=sys.stderr)
            raise
    return launcher.returncode, text
