"""Nsight Systems around a run: `nsys profile`, between the guest's marks of begin and end."""

import shutil

from scripts.errors import PreflightError, UsageError

#: The files that a profiler leaves in a job's folder, kept beside its result and out of version control.
REPORT = "profile.nsys-rep"
KEPT = ("trace.json.gz", REPORT)

#: Trace the calls of CUDA, NVTX and the operating system, but take no CPU samples, which nsys takes by default: it would have to look up their names in
#: torch's large libraries.
WATCHED = ("--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none")


def wrapper(engine: str) -> list[str]:
    """The command to put before the interpreter's; raises UsageError or PreflightError where it cannot be used."""
    if engine != "host":
        raise UsageError(f"PROFILER is 'nsys' and ENGINE is {engine!r}: Nsight Systems wraps a run without a container; type ENGINE=host, or PROFILER=torch")
    program = shutil.which("nsys")
    if not program:
        raise PreflightError(
            "nsys is not on the PATH: install NVIDIA Nsight Systems (the package nsight-systems-cli of NVIDIA's repository for your system), "
            "or type PROFILER=torch"
        )
    return [program, "profile", *WATCHED, "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true"]


def command(wrapper: list[str], work_folder: str, program: list[str]) -> list[str]:
    """The wrapped command; its report lands in the job's folder."""
    return [*wrapper, f"--output={work_folder}/{REPORT.removesuffix('.nsys-rep')}", *program]
