"""Ways of doing the same work take turns: a host changes its speed within seconds, so timing one way after another would compare the host's moments."""

#: Rounds that count, after one that does not.
ROUNDS = 5


def in_turn(ways, take):
    """{way: [what `take(way)` says in each round]}; the order alternates between rounds, and a first round warms up and is left out."""
    taken = {way: [] for way in ways}
    for number in range(ROUNDS + 1):
        for way in ways if number % 2 else reversed(ways):
            taken[way].append(take(way))
    return {way: rounds[1:] for way, rounds in taken.items()}
