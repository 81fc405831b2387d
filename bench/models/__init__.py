"""Weights, prompts and texts."""
