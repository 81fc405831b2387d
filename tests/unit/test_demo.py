"""scripts/commands/demo.py where an environment cannot be made: told once, and no job is tried in vain. Two demos run one after the other."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from scripts import articles, pins
from scripts.commands import demo
from scripts.errors import KitError, PreflightError
from scripts.machine import locks
from scripts.report import document
from scripts.run import rounds
from scripts.run.engines import demo_environments
from tests import synthetic

KNOWN = pins.load()
BACKENDS = [name for name, table in KNOWN.backends.items() if "demo" in table["stacks"]]
ENVIRONMENTS = [KNOWN.image(backend, "demo").environment for backend in BACKENDS for _ in articles.find("demo").cases_of(backend)]
ALL, LEFT_OUT = len(ENVIRONMENTS), ENVIRONMENTS.count("tensor-parallel")


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The cases that a demo would run, without running them."""
    cases = []
    monkeypatch.setattr(demo, "DEMO", tmp_path / "demo")
    monkeypatch.setattr(rounds, "run_all", lambda planned, *_, **__: cases.extend(one.case.name for one in planned) or [])
    monkeypatch.setattr(document, "write", lambda runs, out: cases.append("report"))
    return cases


def refuse(monkeypatch, errors):
    asked = []

    def ensure(name):
        asked.append(name)
        if name in errors:
            raise errors[name]

    monkeypatch.setattr(demo_environments, "ensure", ensure)
    return asked


def test_every_environment_is_made_once_before_the_first_job(monkeypatch, ran):
    asked = refuse(monkeypatch, {})
    demo.run_demo()
    assert asked == ["common", "tensor-parallel"] and len(ran) == ALL + 1 and ran[-1] == "report"


def test_jobs_stand_in_the_article_s_order_and_those_that_it_does_not_name_come_last():
    planned = [SimpleNamespace(case=SimpleNamespace(name=name)) for name in ("mine", "llama-int8", "bloom-transformers")]
    assert [job.case.name for job in demo._in_order_of_article(planned)] == ["bloom-transformers", "llama-int8", "mine"]


@pytest.mark.parametrize(
    ("made", "bad"),
    [
        ({"status": "failed"}, True),
        ({"status": "timeout"}, True),
        ({"status": "oom"}, True),
        ({"status": "unsupported"}, False),
        ({"checked": synthetic.check(0.5, passed=False)}, True),
        ({"checked": synthetic.check()}, False),
        ({"unchecked": True}, False),
    ],
)
def test_a_job_that_failed_or_whose_output_is_wrong_is_an_error_after_the_report(monkeypatch, ran, made, bad):
    refuse(monkeypatch, {})
    good = synthetic.record(synthetic.job("int8"), 90.0)
    monkeypatch.setattr(rounds, "run_all", lambda *_, **__: [good, synthetic.record(synthetic.job("int8"), 90.0, **made)])
    if not bad:
        demo.run_demo()
    else:
        with pytest.raises(KitError, match=f"^1 job of {ALL} failed or gave a wrong output; the report says why: .*REPORT.md$") as error:
            demo.run_demo()
        assert error.value.exit_code == 1
    assert ran == ["report"]


def test_without_any_environment_nothing_is_tried_and_the_first_reason_ends_it(monkeypatch, ran):
    asked = refuse(monkeypatch, {"common": KitError("common: no network"), "tensor-parallel": KitError("tensor-parallel: no network")})
    with pytest.raises(KitError, match=f"^common: no network; {ALL} of {ALL} jobs were left out$") as error:
        demo.run_demo()
    assert (asked, ran, error.value.exit_code) == (["common", "tensor-parallel"], [], 1)


def test_an_environment_that_this_machine_has_no_python_for_leaves_out_its_jobs_alone(monkeypatch, ran, capsys):
    refuse(monkeypatch, {"tensor-parallel": PreflightError("tensor-parallel needs Python 3.12")})
    demo.run_demo()
    assert len(ran) == ALL - LEFT_OUT + 1 and "bloom-tensor-parallel" not in ran and ran[-1] == "report"
    assert f"note: tensor-parallel needs Python 3.12; {LEFT_OUT} of {ALL} jobs were left out" in capsys.readouterr().err


def test_an_environment_that_could_not_be_installed_is_an_error_after_the_other_jobs(monkeypatch, ran):
    refuse(monkeypatch, {"tensor-parallel": KitError("tensor-parallel: no network")})
    with pytest.raises(KitError, match=f"^tensor-parallel: no network; {LEFT_OUT} of {ALL} jobs were left out$") as error:
        demo.run_demo()
    assert len(ran) == ALL - LEFT_OUT + 1 and error.value.exit_code == 1


def test_a_machine_that_has_no_python_for_any_environment_cannot_run_the_demo(monkeypatch, ran):
    refuse(monkeypatch, {name: PreflightError(f"{name} needs Python 3.12") for name in ("common", "tensor-parallel")})
    with pytest.raises(PreflightError, match=f"^common needs Python 3.12; {ALL} of {ALL} jobs were left out$"):
        demo.run_demo()
    assert ran == []


def test_a_second_demo_waits_for_the_first_and_says_so_once(monkeypatch, ran, tmp_path, capsys):
    refuse(monkeypatch, {})
    (tmp_path / "demo/runs/a-01").mkdir(parents=True)
    with ThreadPoolExecutor(1) as beside:
        with locks.held(tmp_path / ".demo.lock"):
            second = beside.submit(demo.demo.callback)
            with contextlib.suppress(TimeoutError):
                second.result(0.6)
            assert (tmp_path / "demo/runs/a-01").is_dir() and ran == [], "the first demo's folder stays as long as it runs"
        second.result(20)
    assert ran[-1] == "report" and not (tmp_path / "demo/runs/a-01").exists() and not (tmp_path / ".demo.lock").exists()
    assert capsys.readouterr().err.count("another demo runs in this clone (pid ") == 1


def test_a_folder_of_reports_that_cannot_be_written_is_named(monkeypatch, ran, tmp_path):
    monkeypatch.setattr(demo, "DEMO", tmp_path / "absent/demo")
    with pytest.raises(KitError, match="absent cannot be written .*; make it writable"):
        demo.demo.callback()


def test_a_mistake_in_the_pins_leaves_the_report_of_the_last_demo_where_it_is(monkeypatch, ran, tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "REPORT.md").write_text("the last one")
    monkeypatch.setattr(pins.Image, "locked", lambda image: {})
    with pytest.raises(KitError, match="type make lock BACKEND="):
        demo.run_demo()
    assert (tmp_path / "demo" / "REPORT.md").exists() and ran == []
