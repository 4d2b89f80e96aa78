#!/usr/bin/env python3
"""How compare and table3 start programs, so that an interrupt leaves none."""

import signal
import subprocess


class Launchers:
    """Starts launchers, which end their ranks, and ends with an interrupt the one that runs. The
    handler raises nothing, since an exception within Popen would lose a launcher that has started."""

    def __init__(self):
        self.running = None
        self.status = None  # of this script after an interrupt
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupt)

    def interrupt(self, number, _):
        self.status = 128 + number
        if self.running:
            self.running.terminate()

    def start(self, command, **options):
        self.running = subprocess.Popen(command, **options)
        if self.status:
            self.running.terminate()
        return self.running
