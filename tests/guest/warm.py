"""An interpreter that has imported torch and transformers, and forks a process of its own for each command.

Run by the guest's Python, without pytest: `python warm.py`. Each line of its input is a command as JSON,
{"arguments": ["-m", module, …] or ["-c", text] or [program, …], "folder": …, "environment": …, "stdout": file, "stderr": file};
its answer is a line with the process's id, and when that has ended a line with its exit code. The libraries are imported once
in place of once for each of a hundred commands. The rest is as in a process that starts from nothing: its own memory, its own
modules of the kit, its own exit code.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
import warnings

LIMIT_S = 300

#: What nearly every command imports. Nothing of the kit: each command reads it from its own folder.
LIBRARIES = (
    "numpy", "torch", "torch._dynamo", "torch._inductor.cudagraph_trees", "transformers", "transformers.generation", "transformers.models.auto.modeling_auto", "transformers.pipelines",
    "transformers.models.bloom.modeling_bloom", "transformers.models.gptj.modeling_gptj", "transformers.models.llama.modeling_llama",
    "transformers.models.auto.tokenization_auto", "safetensors.torch",
)  # fmt: skip


def run(arguments):
    """What `python arguments…` does; returns its exit code."""
    kind = arguments[0]
    sys.argv = arguments[kind == "-m" :]
    sys.path[0] = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(kind))
    try:
        if kind == "-m":
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def become(command):
    """Turn this fork into the command's process; it never returns."""
    signal.alarm(LIMIT_S)
    os.chdir(command["folder"])
    os.environ.update(command["environment"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(command[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        code = run(command["arguments"])
        atexit._run_exitfuncs()  # as an interpreter at its end: they remove temporary folders
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main():
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # a million objects that stay: no command's collection looks through them again, half a second each time
    # From Python 3.12 on a fork warns of OpenBLAS's threads; none works before its first product of matrices.
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    for line in iter(sys.stdin.readline, ""):
        process = os.fork()
        if process == 0:
            become(json.loads(line))
        print(process, flush=True)
        status = os.waitpid(process, 0)[1]
        print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
