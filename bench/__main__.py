"""python -m bench JOB RESULT: run the job of a job file and write the result file.

Progress goes to standard output as lines of `@` and a JSON object, only between timed calls. The exit code is 0 whenever a result was
written, whatever its status. Only an unreadable job or a killed process leaves no result.
"""

import atexit
import contextlib
import os
import sys
import traceback

from bench import actions, backends, compat, forms, reasons
from bench.job import InvalidDocument, Result, read_job, to_json, write_whole
from bench.measuring import environment, ranks


def run(job, folder="."):
    """The Result of a job, which may write in `folder`. Every error of the job becomes the status and the reason of the Result."""
    result = Result(id=job.id, status="ok")
    phases = actions.Phases()
    out_of_memory = (MemoryError,)
    try:
        if not actions.judged_from_kept_readings(job, result, phases, folder):
            torch = phases.run("import", actions.import_libraries)
            out_of_memory += compat.out_of_memory_errors(torch)
            if job.device == "cuda" and torch.cuda.device_count() < job.device_count:
                raise RuntimeError("torch sees {} GPUs, the job needs {}".format(torch.cuda.device_count(), job.device_count))
            actions.ACTIONS[job.kind](job, result, phases, folder)
    except ranks.LaterCallFailed as error:
        traceback.print_exc()
        result.status, result.reason = "failed", str(error)
    except out_of_memory as error:
        result.status, result.reason = "oom", reasons.first_line(error)
    except Exception as error:  # the boundary of a job: the report shows its failure, the log the traceback
        traceback.print_exc()
        result.status = "oom" if reasons.reports_out_of_memory(error) else "failed"
        result.reason = reasons.reason(error) + place_in_library(error)
    if result.status == "oom" and (result.measurements or result.figures):  # the timed calls had enough
        result.status, result.reason = "failed", reasons.AFTER_TIMED_CALLS + result.reason
    result.environment = phases.stamp("describe", described)
    result.phases, result.compat = phases.spans, dict(compat.TAKEN)
    return result


def described():
    """The environment of a Result, without the devices where CUDA does not start: that error must replace neither a failure's reason nor a good result."""
    try:
        return environment.describe()
    except Exception:
        traceback.print_exc()
        return environment.interpreter()


def place_in_library(error):
    """ " (accelerate/utils/modeling.py, line 490)" for an error that a library raised, so that a failed row leads to its cause; else "".

    The kit's own errors say what is wrong.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _, found, path = frame.filename.rpartition("/site-packages/")
    return " ({}, line {})".format(path, frame.lineno) if found else ""


def end(job, exit_code):
    """End the process once its result is written. Exit handlers run, but the interpreter does not destroy torch's objects one by one: that takes
    a second, and the end of the process frees them anyway. A profiler around the process may wait for an ordinary exit, so its jobs get one.
    """
    if job.kind != "profile":
        with contextlib.suppress(Exception):  # its traceback is printed; the result stands
            atexit._run_exitfuncs()
        ranks.leave(exit_code)
    sys.exit(exit_code)


def refused(job, backend, form):
    """The Result of a job that cannot run here, by its backend and its form, or None."""
    status = "unsupported"
    try:
        reason = forms.refusal(job.form, job.backend) or backends.mistake_in(backend, job.load) or backend.unsupported(job) or forms.unsupported(form, job)
    except Exception as error:  # a missing library, for example
        traceback.print_exc()
        status, reason = "failed", reasons.reason(error)
    return Result(id=job.id, status=status, reason=reason, environment=described()) if reason else None


def main(job, job_path, result_path):
    """Do the job and write its result; returns the exit code."""
    if ranks.inside():
        ranks.die_with_parent()
    if job.kind in ("measure", "profile"):
        backend, form = backends.find(job.backend), forms.find(job.form)
        result = refused(job, backend, form)
        if result:
            write_whole(result_path, to_json(result))
            return 0
        if backends.has_ranks(backend) and forms.loads(form) and not ranks.inside():
            return ranks.start(job.device_count, job_path, result_path)
    result = run(job, os.path.dirname(os.path.abspath(result_path)))
    actions.say(status=result.status)
    if ranks.total() > 1 and result.status != "ok":
        if not os.path.exists(result_path):  # another rank may have failed earlier and caused this failure: its result stays
            write_whole(result_path, as_json(result))
        ranks.leave(1)
    if ranks.is_first():
        write_whole(result_path, as_json(result))
    return 0


def as_json(result):
    """The result as JSON. A result with values that JSON cannot hold is written as failed, without these values: the rest shows what happened."""
    try:
        return to_json(result)
    except (TypeError, ValueError) as error:
        return to_json(failed_without_unknown(result, error))


def failed_without_unknown(result, error):
    """The result as failed, because writing it raised `error`, without the figures and fields that JSON cannot hold; the reason names them."""
    figures = {name: figure for name, figure in result.figures.items() if is_json(figure)}
    fields = {name: value for name, value in vars(result).items() if name != "figures" and is_json(value)}
    lost = ["figures " + ", ".join(name for name in result.figures if name not in figures)] if len(figures) < len(result.figures) else []
    lost += [name for name in vars(result) if name != "figures" and name not in fields]
    words = "its {} hold a number that is not finite, or no JSON data ({})".format(" and its ".join(lost), reasons.first_line(error))
    fields.update(status="failed", reason="; ".join(filter(None, (result.reason, words))), figures=figures)
    return Result(**fields)


def is_json(value):
    try:
        to_json(value)
    except (TypeError, ValueError):
        return False
    return True


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m bench JOB RESULT")
    try:
        asked = read_job(sys.argv[1])
        end(asked, main(asked, *sys.argv[1:]))
    except (InvalidDocument, OSError, ValueError) as error:
        sys.exit("error: {}".format(error))
