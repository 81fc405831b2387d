"""Clock, ranks, memory, environment, and the tokens of timed calls."""
