"""Lines from an untrusted stream of bytes, in bounded memory."""

from collections.abc import Iterator

#: Bytes kept of each line. The guest's own lines are shorter than 1 KiB.
LONGEST_BYTES = 64 << 10


class Lines:
    """Whole lines from chunks of any size. A line longer than LONGEST_BYTES keeps its beginning and says how much was left out."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._left_out_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that a chunk completes."""
        *complete, last = chunk.split(b"\n")
        for part in complete:
            self._add(part)
            yield self._take()
        self._add(last)

    def rest(self) -> Iterator[str]:
        """The last line, where the stream ended within it."""
        if self._begun:
            yield self._take()

    def _add(self, part: bytes) -> None:
        kept = part[: LONGEST_BYTES - len(self._begun)]
        self._begun += kept
        self._left_out_bytes += len(part) - len(kept)

    def _take(self) -> str:
        text = self._begun.decode(errors="replace").removesuffix("\r")
        if self._left_out_bytes:
            text += f"… ({self._left_out_bytes:,} more bytes of this line are left out)"
        self._begun.clear()
        self._left_out_bytes = 0
        return text
