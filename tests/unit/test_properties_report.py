"""A report on any mix of whole and broken runs: it comes, names each broken run, and shows nothing of any as more than text."""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import strategies as st

from bench.job import to_json
from scripts import results
from scripts.report import document
from scripts.results import Record
from tests import reports, synthetic
from tests.properties import holds_for

#: A mark that no page may hold: it comes out of texts only where a `<` was not escaped.
EVIL = "<evil>"
HOSTILE = st.sampled_from(
    [EVIL, f"| {EVIL} |\n\n{EVIL}", f"](javascript:1){EVIL}", f'" {EVIL}=', f"\x1b[31m{EVIL}\u2028", f"`{EVIL}`", f"# {EVIL}", f"<!-- {EVIL} -->"]
)
TEXTS = HOSTILE | st.text(max_size=12)
CASES = ("transformers", "layer-parallel", "tensor-parallel", "int8", "deepspeed", "bminf", "vllm", "fixed-kernel", "no-such-case")
ARTICLES = ("inference-tools", "deepspeed-inference", "calibration", "no-such-article")


@st.composite
def whole_runs(draw: Callable) -> Record:
    """A run of an article, with texts of any kind wherever a guest or a library may put its own."""
    asked = synthetic.job(
        draw(st.sampled_from(CASES)),
        draw(st.integers(1, 2)),
        article=draw(st.sampled_from(ARTICLES)),
        variant=draw(st.sampled_from(["published", "controlled"])),
        stack=draw(st.sampled_from(["current", "hopper"])),
        device=draw(st.sampled_from(["cuda", "cuda", "cpu"])),
        new_tokens=draw(st.sampled_from([(1,), (1, 128), (50,)])),
        timed_runs=draw(st.integers(1, 6)),
        recipe=draw(st.integers(1, 2)),
    )
    status = draw(st.sampled_from(["ok", "ok", "ok", "oom", "failed"]))
    error = draw(st.none() | st.floats(0, 10))
    checked = synthetic.check(error, passed=error is not None and error <= asked.tolerance)
    record = synthetic.record(asked, draw(st.floats(1e-6, 1e9)), status=status, reason="" if status == "ok" else draw(TEXTS.filter(str.strip)), checked=checked)
    if record.status == "ok" and asked.device == "cuda" and draw(st.booleans()):
        record = draw(probed_runs(record))
    record.host["differences"] = draw(st.lists(TEXTS, max_size=2))
    record.host["machine"]["cpu"] = draw(TEXTS)
    record.host["conditions"] = {"marks": draw(st.lists(TEXTS, max_size=2))}
    for gpu in record.host["gpus"]:
        gpu["name"] = draw(TEXTS)
    if record.guest:
        record.guest.environment["packages"] = draw(st.dictionaries(TEXTS, TEXTS, max_size=2))
        record.guest.used["dtype"] = draw(TEXTS)
    return record


@st.composite
def probed_runs(draw: Callable, record: Record) -> Record:
    """The run with what probes, token stamps and energy counters tell of a GPU, in any size."""
    times = st.floats(1e-3, 1e7)
    numbers = {name: draw(times) for name in ("read_us", "step_ms", "between_ms", "joules")}
    return synthetic.probed(record, **numbers, code=draw(st.sampled_from(["ok", "too-short", "few-updates"])))


def cut(text: str, draw: Callable) -> str:
    return text[: draw(st.integers(0, len(text) - 3))]


def retyped(text: str, draw: Callable) -> str:
    """A required field holds something else."""
    fields = json.loads(text)
    field = draw(st.sampled_from(["job", "host", "status", "schema", "id"]))
    return json.dumps({**fields, field: draw(st.sampled_from([None, [], {}, -1, EVIL]))})


def with_another_key(text: str, draw: Callable) -> str:
    return json.dumps({**json.loads(text), EVIL + draw(st.text(max_size=4)): 1})


def too_large(text: str, draw: Callable) -> str:
    fields = json.loads(text)
    return json.dumps({**fields, "host": {**fields["host"], "wall_s": draw(st.sampled_from([1e300, 10**40, -1]))}})


def nonsense(text: str, draw: Callable) -> str:
    return draw(st.sampled_from([EVIL, "[" * 10_000, "\0", "null", "[]"]))


BREAKS = (cut, retyped, with_another_key, too_large, nonsense)


def timed_calls(record: Record) -> object:
    """What no two runs of a mix share: the kit leaves out a copy, which is no broken run."""
    return str([measured["timed_ms"] for measured in record.guest.measurements]) if record.guest else id(record)


@st.composite
def mixes(draw: Callable) -> tuple[dict[str, str], dict[str, str]]:
    """({id: the text of its result} of whole runs, and of broken ones)."""
    whole, broken = {}, {}
    for number, record in enumerate(draw(st.lists(whole_runs(), min_size=1, max_size=5, unique_by=timed_calls)), 1):
        run_id = f"{record.id.rsplit('-', 1)[0]}-{number:02d}"
        renamed = json.loads(to_json(record).replace(record.id, run_id))
        text = json.dumps(renamed)
        if draw(st.integers(0, 2)) == 0:
            broken[run_id] = draw(st.sampled_from(BREAKS))(text, draw)
        else:
            whole[run_id] = text
    return whole, broken


def written(folder: Path, texts: dict[str, str]) -> None:
    for run_id, text in texts.items():
        (folder / "runs" / run_id).mkdir(parents=True)
        (folder / "runs" / run_id / "result.json").write_text(text, encoding="utf-8", errors="surrogatepass")


@holds_for(fast=12, full=100, mix=mixes())
def test_a_report_comes_of_any_mix_of_runs_names_the_broken_ones_and_escapes_all(mix: tuple[dict[str, str], dict[str, str]]) -> None:
    whole, broken = mix
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, {**whole, **broken})
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            document.write(folder / "runs", folder, with_rows=True)
        records, skipped = results.load_all(folder / "runs")
        pages = [*folder.glob("*.md"), *folder.glob("plots/*.svg")]
        everything = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        for picture in folder.glob("plots/*.svg"):
            ElementTree.fromstring(picture.read_bytes())
        index, _, left_out = reports.text_of(folder).partition('<a id="skipped"></a>')
    assert {record.id for record in records} == set(whole) and {skip.path.name for skip in skipped} == set(broken)
    for run_id in broken:
        assert run_id in left_out, "each broken run is named"
    for run_id in whole:
        assert run_id in index and run_id not in left_out
    assert EVIL not in everything, "nothing of a result is a tag"
    assert "\x1b" not in everything + told.getvalue(), "nothing of a result steers a terminal"
    assert "Traceback" not in told.getvalue()
