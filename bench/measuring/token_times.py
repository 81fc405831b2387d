"""When each token of a call comes: the time to the first token, and between tokens. The calls are apart from the timed ones.

Waiting for each token on the host costs time, so these calls enter no other number. The engine gets a `streamer`, to which it
hands the tokens [rows] of each step once they are on the host, after the prompt [rows, tokens] (transformers' own order).
"""

import time

from bench import compat
from bench.measuring import measure, ranks, timed_tokens

#: At most so many calls, and about so many seconds of them.
CALLS, SECONDS = 5, 15.0


class Stamps:
    """A streamer that notes when each step's tokens come, in seconds of `clock`."""

    def __init__(self, clock=time.perf_counter):
        self.clock, self.moments, self.saw_prompt = clock, [], False

    def put(self, tokens):
        if self.saw_prompt:
            self.moments.append(self.clock())
        self.saw_prompt = True

    def end(self):
        pass


def calls_of(mean_ms):
    """How many calls to make where one takes `mean_ms`. All ranks have the same mean, so they make the same calls."""
    return max(1, min(CALLS, int(SECONDS * 1000 / mean_ms)))


def measure_tokens(job, loaded, form, measurements):
    """{new_tokens, first_ms: [of each call], between_ms: [[of each call]]} of the longest run, or {reason} where the engine tells no tokens
    (bench/measuring/ranks.py `told`)."""
    run = timed_tokens.longest_of(job.runs)
    timed_ms = next(one["timed_ms"] for one in measurements if one["new_tokens"] == run["new_tokens"])
    synchronize = measure.synchronizer(job)
    first_ms, between_ms = [], []
    try:
        for _ in range(calls_of(sum(timed_ms) / len(timed_ms))):
            stamps = Stamps()
            synchronize()
            began = time.perf_counter()
            form.call(job, loaded, run, loaded.prompt_ids, streamer=stamps)
            if len(stamps.moments) != run["new_tokens"]:
                return {"reason": "{} new tokens were asked for, {} were streamed".format(run["new_tokens"], len(stamps.moments))}
            # Rounded to the µs: a result holds hundreds of these numbers, and no token's time is more exact.
            first_ms.append(round((stamps.moments[0] - began) * 1000, 3))
            between_ms.append([round((after - before) * 1000, 3) for before, after in zip(stamps.moments, stamps.moments[1:])])
    except Exception as error:  # any error of a backend about the streamer: the run keeps its other numbers
        return ranks.told(error, alike=ranks.REFUSALS)
    return {"new_tokens": run["new_tokens"], "first_ms": first_ms, "between_ms": between_ms}


def for_library(arguments):
    """(arguments of `generate` for the installed transformers, a function that gets the tokens [rows, new tokens] which it then made).

    Where the library has no streamers yet, a stopping criterion that stops nothing does the same. It never sees the last token, because the
    criterion of the length comes first and ends the call: so the function tells the streamer that token.
    """
    import transformers

    if "streamer" not in arguments or compat.streams_tokens(transformers.__version__):
        return arguments, lambda made: None
    streamer, told = arguments["streamer"], []

    def tell(tokens):
        streamer.put(tokens.cpu())
        told.append(None)

    class Tell(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            tell(input_ids[:, -1])
            return False

    def tell_the_last(made):
        if len(told) == made.shape[1] - 1:
            tell(made[:, -1])

    streamer.put(None)
    kept = {name: value for name, value in arguments.items() if name != "streamer"}
    return dict(kept, stopping_criteria=transformers.StoppingCriteriaList([Tell()])), tell_the_last
