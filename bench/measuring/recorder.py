"""What a model's `generate` is given and makes while something else calls it: a pipeline hands out texts alone."""

import contextlib


class Recorder:
    """Stands in for a model's `generate` and keeps the last call's `ids`, [rows, prompt tokens], and `new` tokens, [sequences, new tokens]."""

    def __init__(self, generate):
        self.generate, self.ids, self.new = generate, None, None

    def __call__(self, *arguments, **named):
        output = self.generate(*arguments, **named)
        self.ids = named.get("input_ids", arguments[0] if arguments else None)
        self.new = getattr(output, "sequences", output)[:, self.ids.shape[1] :]
        return output


@contextlib.contextmanager
def recording(model):
    """`with recording(model) as calls: …`: the Recorder in the place of `model.generate`, which is as it was afterwards."""
    recorder = Recorder(model.generate)
    model.generate = recorder
    try:
        yield recorder
    finally:
        model.generate = recorder.generate
