#!/usr/bin/env python3
"""How compare and table3 start programs, so that an interrupt leaves none."""

import os
import signal
import subprocess
import threading


class Launchers:
    """Starts launchers, which end their ranks, and ends with an interrupt the one that runs. A thread
    does that: Python would run a handler only once the main thread, which may have begun to read from
    the launcher just then, has read something."""

    def __init__(self):
        self.running = None
        self.status = None  # of this script after an interrupt
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self.interrupts, args=(told,), daemon=True).start()

    def interrupts(self, told):
        while number := os.read(told, 1):
            self.status = 128 + number[0]
            if self.running:
                self.running.terminate()

    def start(self, command, **options):
        self.running = subprocess.Popen(command, **options)
        if self.status:
            self.running.terminate()
        return self.running
