"""The command line: the verbs of the kit, and what the Makefile asks before the tools are installed."""
