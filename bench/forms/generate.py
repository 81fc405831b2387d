"""`model.generate` on the job's prompt, with the same token ids in every row of the batch."""

from bench import compat
from bench.measuring import measure


def run(job, loaded, say):
    measurements, longest = [], None
    most = max(one["new_tokens"] for one in job.runs)
    for number, one in enumerate(job.runs):
        measurement, output = _measure(job, loaded, one, number == 0, say)
        measurements.append(measurement)
        if one["new_tokens"] == most:
            longest = output[:, loaded.input_ids.shape[1]:]
    return measurements, longest, {}


def _measure(job, loaded, one, cold, say):
    """(the measurement of one of the job's runs, what its last call gave: [batch, prompt + new tokens])."""
    import torch
    import transformers

    prompt_tokens, outputs = loaded.input_ids.shape[1], {}
    arguments = dict(one["arguments"])
    arguments.update(compat.length_arguments(transformers.__version__, arguments, prompt_tokens, one["new_tokens"]))

    def generate():
        outputs["last"] = loaded.model.generate(loaded.input_ids, **arguments)
        return outputs["last"].shape[1] - prompt_tokens

    with torch.no_grad():
        measurement = measure.measure_run(job, one, generate, cold, say)
    return measurement, outputs["last"]
