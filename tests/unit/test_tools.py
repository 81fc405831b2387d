"""How the tools come into .venv: from locks that agree, with the user's settings of pip, and never in silence."""

import ast
import contextlib
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from scripts import pins
from scripts.commands import tools, values, variables
from scripts.errors import PreflightError, UsageError
from scripts.machine import installs, locks, steps
from scripts.pins import requirement_files, uv

ROOT = Path(__file__).resolve().parents[2]


def locked(group):
    return requirement_files.versions(pins.load().host_lock(group).read_text(encoding="utf-8"))


def test_the_groups_have_the_same_version_of_what_they_share():
    versions = {}
    for group in pins.load().host_pins:
        for name, version in locked(group).items():
            versions.setdefault(name, set()).add(version)
    assert [name for name, found in versions.items() if len(found) > 1] == []


def test_what_the_demo_needs_is_without_the_site_and_the_tests():
    run = locked("run")
    assert {"rich", "msgspec", "docker"} <= run.keys() and not {"mkdocs-material", "pytest", "ruff"} & run.keys()


@pytest.mark.parametrize("group", ["installer", "run"])
def test_no_tool_is_for_some_versions_of_python_alone(group):
    """An archive for another version would lack the tool, and `kept_files` take it for older than the locks."""
    blocks = requirement_files.blocks(pins.load().host_lock(group).read_text(encoding="utf-8"))
    assert [name for name in locked(group) if "python_" in blocks[name]] == []


def test_the_oldest_python_of_the_pins_is_that_of_the_makefile_and_of_archives():
    oldest = pins.load().host["python"].removeprefix(">=")
    assert f"3.{values.OLDEST_MINOR}" == oldest
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in (ROOT / "Makefile").read_text()


#: A module's name where the distribution's is another.
DISTRIBUTIONS = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py", "cyclonedx": "cyclonedx-python-lib", "packageurl": "packageurl-python"}


def statements(within):
    """Every statement of a tree, without a look into expressions, which hold none."""
    for node in within:
        yield node
        for inner in ("body", "handlers", "orelse", "finalbody", "cases"):
            if isinstance(found := getattr(node, inner, None), list):
                yield from statements(found)


def imported(path):
    for node in statements([ast.parse(path.read_text(encoding="utf-8"))]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_every_package_that_the_host_s_code_imports_is_declared():
    declared = {requirement_files.normalized(name) for group in ("run", "site") for name in pins.load().host_pins[group]}
    modules = {name.partition(".")[0] for path in (ROOT / "scripts").rglob("*.py") for name in imported(path)}
    foreign = modules - set(sys.stdlib_module_names) - {"scripts", "bench"}
    missing = {name for name in foreign if requirement_files.normalized(DISTRIBUTIONS.get(name, name)) not in declared}
    assert foreign and missing == set()


@pytest.fixture
def pip_settings(monkeypatch, tmp_path):
    """A user whose pip looks at a mirror, by a file, and at a folder, by a variable."""
    for name in list(uv.OF_PIP.values()):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    uv.settings_of_pip.cache_clear()
    yield monkeypatch
    uv.settings_of_pip.cache_clear()


@pytest.mark.slow
def test_uv_looks_where_the_user_s_pip_does(pip_settings):
    found = uv.settings_of_pip(sys.executable)
    assert (found["UV_DEFAULT_INDEX"], found["UV_FIND_LINKS"]) == ("https://mirror.example/simple", "/wheels,/more")


@pytest.mark.slow
def test_what_is_set_for_uv_itself_stays(pip_settings):
    pip_settings.setenv("UV_DEFAULT_INDEX", "https://other.example/simple")
    assert "UV_DEFAULT_INDEX" not in uv.settings_of_pip(sys.executable)


@pytest.mark.slow
def test_an_installer_s_progress_names_the_task_the_size_and_the_time_left(monkeypatch, capfd):
    monkeypatch.setattr(installs, "TELL_EVERY_S", 0.2)
    program = "import sys, time\nopen('/dev/null', 'wb').write(b'x' * 4_000_000)\ntime.sleep(0.7)\nprint('done')\nsys.exit(3)"
    done = installs.run("fetching", [sys.executable, "-c", program], {}, disk_mb=10)
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert "  fetching: 4 of about 10 MB, " in capfd.readouterr().err
    installs.run("fetching", [sys.executable, "-c", program], {}, disk_mb=3)
    assert "  fetching: 4 MB, more than the expected 3, 0 s\n" in capfd.readouterr().err


def test_no_time_left_is_told_while_nothing_comes():
    progress = installs.Progress("fetching", 100)
    assert progress.line(progress.began + 10, 50).endswith("50 of about 100 MB, 10 s, about 10 s left")
    assert progress.line(progress.began + 14, 50).endswith("left")
    assert progress.line(progress.began + 40, 50).endswith("50 of about 100 MB, 40 s, nothing came for 30 s")
    assert progress.line(progress.began + 41, 60).endswith("left")


def test_the_time_left_is_that_of_the_steps_so_far(monkeypatch):
    clock = iter([0.0, 10.0, 30.0])
    monkeypatch.setattr(steps.time, "monotonic", lambda: next(clock))
    counted = steps.Steps(3)
    assert [counted.next(), counted.next(), counted.next()] == ["[1 of 3]", "[2 of 3, about 20 s left]", "[3 of 3, about 15 s left]"]


def test_where_the_number_of_steps_is_not_known_they_are_counted():
    counted = steps.Steps(None)
    assert [counted.next(), counted.next()] == ["[1]", "[2]"]


def test_a_duration_is_told_in_the_unit_that_one_waits_in():
    assert [steps.duration(seconds) for seconds in (0.6, 59, 100, 3700)] == ["1 s", "59 s", "2 min", "1 h 02 min"]


def test_steps_that_were_done_before_tell_nothing_of_the_time_left(monkeypatch):
    clock = iter([0.0, 20.0])
    monkeypatch.setattr(steps.time, "monotonic", lambda: next(clock))
    counted = steps.Steps(4)
    shown = [counted.next()]
    counted.cost_nothing()
    shown += [counted.next(), counted.next()]
    assert shown == ["[1 of 4]", "[2 of 4]", "[3 of 4, about 40 s left]"]


def test_a_phase_without_output_is_not_silent(monkeypatch, capsys):
    monkeypatch.setattr(steps, "QUIET_S", 0.05)
    beat = steps.Heartbeat()
    beat.start()
    beat.phase("job: import")
    steps.time.sleep(0.6)
    beat.stop()
    assert 2 <= capsys.readouterr().err.count("  job: import, 0 s so far") <= 3, "after 0.05, 0.15 and 0.35 s: a log of a long run stays short"


@pytest.mark.slow
def test_a_long_silent_phase_is_told_of_at_a_steady_pace_and_the_next_one_soon_again(monkeypatch, capsys):
    monkeypatch.setattr(steps, "QUIET_S", 0.05)
    monkeypatch.setattr(steps, "TELL_EVERY_S", 0.1)
    beat = steps.Heartbeat()
    beat.start()
    beat.phase("job: load")
    steps.time.sleep(1.0)
    assert capsys.readouterr().err.count("  job: load, ") >= 5, "without an end to the doubling three"
    monkeypatch.setattr(steps, "TELL_EVERY_S", 60.0)
    steps.time.sleep(0.3)
    beat.phase("job: measure")
    steps.time.sleep(0.2)
    beat.stop()
    assert "  job: measure, 0 s so far" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "near"), [("GPU", "GPUS"), ("STAK", "STACK"), ("stack", "STACK"), ("BATCHSIZE", "BATCH_SIZES")])
def test_a_misspelled_variable_gets_the_nearest_name(name, near):
    assert f"{name} is not a variable of the kit; did you mean {near}?" in variables.advice(name, ["GPUS", "GPU_IDS", "STACK", "BATCH_SIZES", "PIP_%"])


@pytest.mark.parametrize("command", [("tools", "nope"), ("variables", "GPU", "GPUS")])
def test_what_runs_before_the_tools_are_installed_needs_nothing_but_python(command):
    """-S leaves out what is installed."""
    done = subprocess.run([sys.executable, "-S", "-m", f"scripts.commands.{command[0]}", *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "there is no group of tools 'nope', allowed are" in done.stderr or "GPUS" in done.stdout


def test_a_linked_environment_is_refused_before_anything_in_it_is_removed(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "tool").write_text("")
    (tmp_path / ".venv").symlink_to(tmp_path / "shared")
    monkeypatch.setattr(tools, "ROOT", tmp_path)
    monkeypatch.setattr(tools, "VENV", tmp_path / ".venv")
    with pytest.raises(UsageError, match=".venv is a link to .*shared, allowed is a folder of its own"):
        tools.install("run")
    assert (tmp_path / "shared" / "tool").exists()


@pytest.fixture
def of_old_tools(tmp_path, monkeypatch):
    """A folder whose tools are older than their lock."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".run").touch()
    os.utime(tmp_path / ".venv" / ".run", (0, 0))
    monkeypatch.setattr(tools, "ROOT", tmp_path)
    monkeypatch.setattr(tools, "VENV", tmp_path / ".venv")
    return tmp_path


def test_tools_are_not_replaced_while_a_command_of_the_kit_runs_with_them(of_old_tools, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(tools, "_make_environment", lambda lock, source: made.append(lock))
    monkeypatch.setattr(tools, "_fill", lambda *_: None)
    with locks.shared(of_old_tools / ".venv" / ".in-use"):
        with pytest.raises(PreflightError, match=f"a command of the kit runs from {of_old_tools}; wait for its end, or end it, and type the same again"):
            tools.install("run")
        monkeypatch.setattr(tools, "_is_current", lambda group, loaded: False)
        filled = []
        monkeypatch.setattr(tools, "_fill", lambda lock, *_: filled.append(lock.name))
        tools.install("dev")  # tools that are added take none away
        assert filled == ["dev.txt"] and "installing" in capsys.readouterr().err
    assert not made
    tools.install("run")
    assert len(made) == 1 and "installing" in capsys.readouterr().err
    assert not (of_old_tools / ".venv.lock").exists()


def test_an_archive_with_the_tools_of_this_python_takes_the_place_of_the_index_for_what_it_holds(of_old_tools, monkeypatch):
    archives, sources = of_old_tools / "archives" / "tools", {}
    monkeypatch.setattr(tools, "_make_environment", lambda lock, source: sources.update({lock.name: source}))
    monkeypatch.setattr(tools, "_fill", lambda lock, disk_mb, source: sources.update({lock.name: source}))
    loaded, this = pins.load(), f"cp{sys.version_info.major}{sys.version_info.minor}"
    keep(archives, loaded, "cp10")
    assert tools.kept_files(loaded) == [], "the archive is of another Python"
    keep(archives, loaded, this)
    monkeypatch.setenv("ARCHIVES", str(archives.parent))
    monkeypatch.setattr(tools, "ROOT", of_old_tools / "elsewhere")
    for group in ("run", "dev"):
        tools._install(group, loaded)
    kept = ["--no-index", "--find-links", str(archives)]
    assert sources == {"installer.txt": kept, "run.txt": kept, "dev.txt": []}


@pytest.mark.parametrize("name", ["uv", "numpy", "markupsafe"])
def test_an_archive_that_is_older_than_the_locks_does_not_keep_the_tools_from_the_network(of_old_tools, capsys, name):
    archives, loaded, this = of_old_tools / "archives" / "tools", pins.load(), f"cp{sys.version_info.major}{sys.version_info.minor}"
    keep(archives, loaded, this)
    (path,) = archives.glob(f"{name}-*")
    version = path.name.split("-")[1]
    path.rename(archives / path.name.replace(version, "0.1"))
    (archives / f"{name}-{version}-cp10-cp10-any.whl").touch()
    assert tools.kept_files(loaded) == []
    assert capsys.readouterr().err == f"{archives} has no {name} {version}, so the tools come from the network; make archive ONLY=tools would keep them\n"


def keep(archives, loaded, tag):
    """Wheels of all tools in an archive, some for the Python of `tag` alone; their content does not matter."""
    archives.mkdir(parents=True, exist_ok=True)
    kinds = {"numpy": f"{tag}-{tag}", "markupsafe": f"{tag}-{tag}", "psutil": "cp36-abi3", "docker": "py2.py3-none"}
    for group in ("installer", "run"):
        for name, version in requirement_files.versions(loaded.host_lock(group).read_text()).items():
            (archives / f"{name.replace('-', '_')}-{version}-{kinds.get(name, 'py3-none')}-any.whl").touch()


def test_a_python_that_makes_no_environment_is_told_before_anything_is_fetched(of_old_tools, monkeypatch):
    ran, codes = [], iter([1, 0, 0])
    monkeypatch.setattr(tools.installs, "run", lambda title, *_: ran.append(title) or subprocess.CompletedProcess([], next(codes), "", ""))
    with pytest.raises(PreflightError, match="cannot make a virtual environment; on Debian and Ubuntu type apt-get install python3-venv"):
        tools._make_environment(Path("installer.txt"), [])
    assert ran == ["making .venv"]
    tools._make_environment(Path("installer.txt"), [])
    assert ran == ["making .venv", "making .venv", "fetching uv"]


def test_tools_that_are_installed_need_no_lock(of_old_tools, monkeypatch):
    """A kit in a folder that its user cannot write to works, once its tools are there."""
    (of_old_tools / ".venv" / ".run").touch()
    monkeypatch.setattr(tools.locks, "held", lambda *_, **__: pytest.fail("no lock is needed"))
    tools.install("run")


def test_a_new_pin_of_the_installer_makes_the_tools_anew(of_old_tools, monkeypatch):
    locks_of = {name: of_old_tools / f"{name}.txt" for name in ("installer", "run", "dev")}
    for path in locks_of.values():
        path.touch()
        os.utime(path, (1, 1))
    for group in ("run", "dev"):
        (of_old_tools / ".venv" / f".{group}").touch()
        os.utime(of_old_tools / ".venv" / f".{group}", (5, 5))
    loaded = types.SimpleNamespace(host_lock=locks_of.__getitem__)
    assert tools._is_current("run", loaded) and tools._is_current("dev", loaded)
    os.utime(locks_of["installer"], (9, 9))
    assert not tools._is_current("run", loaded) and tools._is_current("dev", loaded)


def test_tools_whose_lock_is_from_the_future_are_installed_once(of_old_tools, monkeypatch):
    """The clock was ahead when the clone was made, and was set right since."""
    filled, ahead_ns = [], time.time_ns() + 3600 * 10**9
    monkeypatch.setattr(tools, "_newest_lock_ns", lambda group, loaded: ahead_ns)
    monkeypatch.setattr(tools, "_fill", lambda lock, *_: filled.append(lock.name))
    tools.install("dev")
    tools.install("dev")
    assert filled == ["dev.txt"]


def test_tools_that_another_make_installed_meanwhile_are_not_installed_twice(of_old_tools, monkeypatch):
    def wait(*_, **__):
        (of_old_tools / ".venv" / ".run").touch()
        return contextlib.nullcontext()

    monkeypatch.setattr(tools.locks, "held", wait)
    monkeypatch.setattr(tools, "_make_environment", lambda _: pytest.fail("the tools are there"))
    tools.install("run")
