"""python -m scripts VERB --option: the kit's one command line; `make` is its short form."""

from scripts.commands.line import main

main()
