"""Real weights: the files of each pinned commit, fetched, checked and kept."""
