"""Programs that examine a job more closely: its layers, its faults, and the articles' own loops."""
