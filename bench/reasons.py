"""One line for an error of a library or a backend, which a result keeps as the reason of its failure, and whether the error reports that memory ran out."""

#: What the reason of a run begins with whose memory ran out after its timed calls.
AFTER_TIMED_CALLS = "a call after the timed ones ran out of memory: "


def first_line(error):
    """The first line of an error's text; its type where it has no text."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def reason(error):
    """ "RuntimeError: no kernel was injected"."""
    return "{}: {}".format(type(error).__name__, first_line(error))


def reports_out_of_memory(error):
    """Does the text of an error report that memory ran out? CUDA, cuBLAS, the host's allocator and DeepSpeed's workspace have no error type for it."""
    text = str(error)
    known = any(words in text for words in ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory"))
    return known or "orkspace" in text and "alloc" in text
