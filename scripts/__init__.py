"""The host: what builds images, runs jobs and writes the report (Python >= 3.11). It never measures."""
