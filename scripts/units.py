"""Units of the kit's numbers."""

#: Bytes of a gibibyte.
GIB = 1 << 30

#: Bytes of a gigabyte, the unit of rates of memory.
GB = 10**9
