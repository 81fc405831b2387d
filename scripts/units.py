"""Units of the kit's numbers."""

#: Bytes of a gibibyte.
GIB = 1 << 30
