"""An error of a library or of a backend in a line: a result keeps it as the reason of a failure."""


def first_line(error):
    """The first line of an error's text; its type where it has no text."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def reason(error):
    """ "RuntimeError: no kernel was injected"."""
    return "{}: {}".format(type(error).__name__, first_line(error))
