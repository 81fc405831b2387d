"""The command line: the verbs of the kit, and two programs that the Makefile runs before the tools are installed."""
