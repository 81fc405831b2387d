"""Lists of numbers as Linux and SLURM write them: "0-15,64-79"."""


def parsed(text: str) -> set[int]:
    """The numbers of a list; raises ValueError for a text that is no such list."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"{part!r} is no number and no range")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def text(numbers: set[int]) -> str:
    """The list of some numbers."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
