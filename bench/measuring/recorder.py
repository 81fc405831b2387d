"""Record the input and output of a model's `generate` while a pipeline calls it: the pipeline itself returns only texts."""

import contextlib


class Recorder:
    """Replaces a model's `generate`; keeps the last call's `ids` [rows, prompt tokens] and `new` tokens [sequences, new tokens]."""

    def __init__(self, generate):
        self.generate, self.ids, self.new = generate, None, None

    def __call__(self, *arguments, **named):
        output = self.generate(*arguments, **named)
        self.ids = named.get("input_ids", arguments[0] if arguments else None)
        self.new = getattr(output, "sequences", output)[:, self.ids.shape[1] :]
        return output


@contextlib.contextmanager
def recording(model):
    """`with recording(model) as calls: …`: a Recorder replaces `model.generate` within the block."""
    recorder = Recorder(model.generate)
    model.generate = recorder
    try:
        yield recorder
    finally:
        model.generate = recorder.generate
