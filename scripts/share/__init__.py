"""The report outside this machine: site, branch, bundle."""
