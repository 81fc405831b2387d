"""The verbs of the kit."""
