"""The tables and sections of the report: a figure a file."""
