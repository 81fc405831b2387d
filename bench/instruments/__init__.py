"""Instruments: programs that look closer at one question than a job of the bench does. Each is run by hand and writes a file."""
