"""The command line: the verbs of the kit, and what the Makefile runs with the user's own Python: clean, targets, tools, variables."""
