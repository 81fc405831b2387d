"""Real weights: which files of which commit, where they come from, and whether they are the right ones."""
