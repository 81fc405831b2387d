"""Closer looks at a job: its layers, its kernels, and the articles' own loops."""
