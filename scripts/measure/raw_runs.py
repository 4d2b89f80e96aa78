"""The raw runs of an experiment: `figure,series,x,value` with a line for each run."""

import os
import statistics
import sys
import time


def load():
    return os.getloadavg()[0]


class Raw:
    """Rows in the order of the runs, also written to a file as they come."""

    def __init__(self, path):
        self.rows = []
        self.path = path
        self.write(f"# {time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, load {load():.1f} at the start\n"
                   f"# {' '.join(['scripts/measure/papers'] + sys.argv[1:])}\nfigure,series,x,value\n")

    def write(self, text):
        if self.path:
            with open(self.path, "a") as f:
                f.write(text)

    def add(self, figure, series, x, value):
        self.rows.append((figure, series, x, value))
        self.write(f"{figure},{series},{x},{value:.6g}\n")
        print(f"{figure}: {series}, {x}: {value:.4g}", file=sys.stderr, flush=True)

    def keys(self, figure):
        """The series and the x of a figure, in the order of the first run."""
        rows = [row for row in self.rows if row[0] == figure]
        return list(dict.fromkeys(row[1] for row in rows)), list(dict.fromkeys(row[2] for row in rows))

    def median(self, figure, series, x):
        """The median of the runs, or None where none was made."""
        values = [row[3] for row in self.rows if row[:3] == (figure, series, x)]
        return statistics.median(values) if values else None

    def table(self, figure, head, paper):
        """A Markdown table with a row for each x, and the paper's words in the last column."""
        series, xs = self.keys(figure)
        lines = [f"| {head} | {' | '.join(series)} | paper |", "|" + "---|" * (len(series) + 2)]
        for x in xs:
            cells = [self.median(figure, one, x) for one in series]
            texts = ["-" if cell is None else f"{cell:.4g}" for cell in cells]
            lines.append(f"| {x} | {' | '.join(texts)} | {paper(x)} |")
        return "\n".join(lines) + "\n"
