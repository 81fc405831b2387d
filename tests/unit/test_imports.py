"""What a command imports before it looks at its values: a wrong one is answered at once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("verb", ["measure", "images", "demo"])
def test_docker_s_library_and_numpy_wait_until_they_are_needed(verb):
    program = f"import sys, scripts.commands.{verb}; print(sorted({{'docker', 'numpy', 'requests'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_it_is_docker_s_own_all_the_same():
    import docker

    from scripts.containers import docker_library

    assert docker_library.docker.errors.NotFound is docker.errors.NotFound and docker_library.docker.from_env is docker.from_env
