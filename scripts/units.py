"""Units of the kit's numbers."""

#: Bytes of a mebibyte and of a gibibyte.
MIB, GIB = 1 << 20, 1 << 30

#: Bytes of a gigabyte, the unit of rates of memory and of sizes of images.
GB = 10**9


def counted(count: int, noun: str) -> str:
    """ "1 run", "2 runs", "0 runs"."""
    return f"{count} {noun}{'s' * (count != 1)}"
