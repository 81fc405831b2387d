"""Is the output right: one forward pass, and the tokens of the timed calls read by a float32 reference."""
