"""The answers of a long run so far, in a file that outlives the process.

`outputs.jsonl` in the job's folder: first {"job": fingerprint}, then one line per batch, {"ms", "items": [[number, new
tokens, text]…], …}. A line is on the disk before the next batch begins, and only whole lines count. So after a kill at any
moment each item is either in the file, once, or still to be done. The host gives the file to the next run of the same job.
Of several ranks, which all make the same calls, the first alone writes the file.
"""

import json
import os

from bench.measuring import ranks

NAME = "outputs.jsonl"


class Outputs:
    """The lines of a job's file. A file of another job is overwritten."""

    def __init__(self, folder, fingerprint):
        self.path = os.path.join(folder, NAME)
        self.lines, end = _whole_lines(self.path)
        if not self.lines or self.lines[0] != {"job": fingerprint}:
            self.lines, end = [], 0
        self.stream = open(self.path, "ab") if ranks.is_first() else None
        if self.stream:
            self.stream.truncate(end)
        if not self.lines:
            self.add({"job": fingerprint})
        self.resumed = len(self.lines) > 1

    @property
    def batches(self):
        return self.lines[1:]

    def done(self):
        """The numbers of the answered items, as a set."""
        return {item[0] for batch in self.batches for item in batch["items"]}

    def add(self, line):
        """Write a batch, or the job's own line; it is on the disk when this returns."""
        if self.stream:
            self.stream.write(json.dumps(line, ensure_ascii=True).encode() + b"\n")
            self.stream.flush()
            os.fsync(self.stream.fileno())
        self.lines.append(line)

    def close(self):
        if self.stream:
            self.stream.close()


def _whole_lines(path):
    """([data of each line], their bytes), up to the first line that is not whole."""
    lines, end = [], 0
    if not os.path.exists(path):
        return lines, end
    with open(path, "rb") as stream:
        for raw in stream:
            if not raw.endswith(b"\n"):
                break
            try:
                lines.append(json.loads(raw.decode()))
            except ValueError:
                break
            end += len(raw)
    return lines, end
