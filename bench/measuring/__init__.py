"""Clock, ranks, memory, environment, and the check of the output."""
