"""The output check: the logits of one forward pass, and the tokens of the timed calls, judged by a float32 reference."""
