"""The report outside this machine: site, branch, bundle."""

#: The folder in a bundle, and its file's name without the ending.
BUNDLE = "llm-repro-bundle"
