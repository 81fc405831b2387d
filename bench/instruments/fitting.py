"""An instrument refuses a job that it would not examine, or would examine wrongly, in one line and before it loads a model."""

import sys

from bench import backends
from bench.measuring import ranks


def must(fits, job, allowed):
    """End the process where a job does not fit; `allowed` says in words which job does."""
    if not fits:
        facts = job.article, job.case, job.backend, job.model["weights"], job.device_count
        sys.exit("the job is of {}/{} (backend {}, {} weights, GPUS={}); take a job of {}".format(*facts, allowed))


def must_be_in_one_process(job):
    """End a process that is alone where the job's backend runs as one for each GPU."""
    several = job.device_count > 1 and backends.has_ranks(backends.find(job.backend))
    must(not several or ranks.inside(), job, "one GPU, which is one process")
