"""A log file that keeps the beginning and the end of what is written, and never fills a disk."""

import os
from pathlib import Path

#: Bytes of the beginning and of the end that a log keeps.
HEAD_BYTES = TAIL_BYTES = 8 << 20


class BoundedLog:
    """A file of lines that never grows beyond the head and twice the tail; one of its lines says how much was left out.

    The middle is dropped while the file is written, so a killed writer leaves its last lines too.
    """

    def __init__(self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes, self._tail_bytes = head_bytes, tail_bytes
        self._file = path.open("w+b", buffering=0)
        self._size_bytes = self._head_end = self._tail_begin = self._left_out_bytes = 0

    def line(self, text: str) -> None:
        """Write a line; it is in the file when this returns."""
        self._append(text.encode(errors="replace") + b"\n")
        if self._size_bytes <= self._head_bytes:
            self._head_end = self._tail_begin = self._size_bytes
        if self._size_bytes - self._tail_begin > 2 * self._tail_bytes:
            self._leave_out_middle()

    def close(self) -> None:
        if self._size_bytes - self._tail_begin > self._tail_bytes:
            self._leave_out_middle()
        self._file.close()

    def _append(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[self._file.write(view) :]
        self._size_bytes += len(content)

    def _leave_out_middle(self) -> None:
        """Drop the middle: keep whole lines of the last bytes, after a line that says how much was dropped."""
        between_bytes = self._size_bytes - self._tail_begin
        last = os.pread(self._file.fileno(), self._tail_bytes, self._size_bytes - self._tail_bytes)
        tail = last.partition(b"\n")[2]
        self._left_out_bytes += between_bytes - len(tail)
        self._file.truncate(self._head_end)
        self._file.seek(self._head_end)
        self._size_bytes = self._head_end
        self._append(f"… {self._left_out_bytes:,} bytes are left out here: a log keeps its beginning and its end …\n".encode())
        self._tail_begin = self._size_bytes
        self._append(tail)
