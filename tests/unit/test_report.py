"""The written report on made-up runs: its index, pages, tables and pictures, what marks a row, and what a damaged or missing result does."""

import copy
import csv
import dataclasses
import datetime
import functools
import json
import math
import operator
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.job import to_json
from scripts import articles, paths, pins, results, stats
from scripts.errors import KitError
from scripts.report import cells, document, rerun_command
from scripts.report import page as page_text
from scripts.report.plots import all_claims, memory_dots, svg, time_dots
from scripts.report.text import Markdown
from scripts.report.verdict_marks import COLOURS, SIGNS
from scripts.report.view import View
from scripts.report.views import VIEWS, overview, provenance
from scripts.results import Record
from scripts.verdicts import judging, row_groups
from tests import reports, synthetic
from tests.synthetic import job, record


def page(folder: Path, records: list[results.Record]) -> str:
    """The report on some records, all of its pages as one text."""
    shutil.rmtree(folder, ignore_errors=True)
    synthetic.write(folder / "runs", records)
    document.write(folder / "runs", folder)
    return reports.text_of(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*reports.pages_of(folder), *sorted((folder / "plots").glob("*"))]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    page(folder, synthetic.article_runs())
    return folder


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes_in_another_process(whole: Path) -> None:
    before = files(whole)
    subprocess.run(
        [sys.executable, "-m", "scripts", "report", "--runs", str(whole / "runs"), "--out", str(whole)], cwd=paths.ROOT, check=True, capture_output=True
    )
    assert files(whole) == before


def test_no_table_of_calls_resamples_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resamples of a run with TIMED_RUNS=10000, which no table shows, took 1.6 GB."""
    monkeypatch.setattr(stats, "_resampled_means", lambda samples, seed: pytest.fail(f"{len(samples)} calls are resampled"))
    assert "| deepspeed | " in page(tmp_path, [record(job("deepspeed", timed_runs=321), 50.0)])


def index_of(folder: Path) -> str:
    return (folder / "REPORT.md").read_text(encoding="utf-8")


def test_the_index_tells_the_words_of_its_settings(whole: Path, tmp_path: Path) -> None:
    index = index_of(whole)
    assert "- *current*: today's versions" in index and "- *random (recipe 2)*: seeded random weights" in index and "- *published*: the article's own" in index
    assert "*hopper*" not in index
    page(tmp_path, [record(job("int8", stack="hopper"), 50.0)])
    assert "- *hopper*: the first article's libraries" in index_of(tmp_path) and "*current*" not in index_of(tmp_path)


def test_settings_whose_weights_let_no_row_judge_stand_behind_a_click_unless_there_are_no_others(tmp_path: Path) -> None:
    earlier, later = record(job("int8", recipe=1), 50.0), record(job("int8"), 60.0)
    page(tmp_path, [earlier, later])
    before, _, behind = index_of(tmp_path).partition("<details><summary>1 earlier setting: random weights (recipe 1) that support no verdict</summary>")
    assert "All rows: random (recipe 2) weights." in before and "All rows: random weights." not in before
    assert "All rows: random weights." in behind.partition("</details>")[0]
    for others, told in (([], "All rows: random weights."), ([record(job("int8", device="cpu", scale="tiny"), 50.0)], ", random](inference-tools")):
        page(tmp_path, [earlier, *others])
        assert told in index_of(tmp_path) and "<details>" not in index_of(tmp_path)


def test_a_setting_names_how_many_gpus_its_rows_had_and_the_engine_where_a_table_has_several(tmp_path: Path) -> None:
    page(tmp_path, [record(job("int8"), 50.0), record(job("deepspeed", 2), 20.0), record(job("deepspeed", 4), 20.0)])
    assert "[current, published, 1, 2 and 4 × SYNTHETIC GPU, 2-core host](" in index_of(tmp_path), "weights that all share stand above the table"
    podman = record(job("int8", stack="hopper"), 50.0)
    podman.host["engine"] = "podman"
    page(tmp_path, [record(job("int8"), 50.0), podman])
    assert {"host, containers](", "host, Podman]("} <= set(re.findall(r"host, \w+\]\(", index_of(tmp_path)))


@pytest.mark.slow
def test_a_deleted_run_changes_only_what_rests_on_it(whole: Path, tmp_path: Path) -> None:
    records = synthetic.article_runs()
    gone = next(one for one in records if one.job.case == "tensor-parallel")
    changed = page(tmp_path, [one for one in records if one is not gone]).splitlines()
    lost = [line for line in reports.text_of(whole).splitlines() if line not in changed]
    new = [line for line in changed if line not in reports.text_of(whole).splitlines()]
    assert lost and all(
        re.search(
            "tensor-parallel|Tensor parallelism|is the fastest|is the slowest|5 of 6|not exactly|Not exactly|Version 1 of the rules judged|results from containers",
            line,
        )
        for line in lost
    )
    assert new and all(
        re.search("tensor-parallel|Tensor parallelism|4 of 5|not tested|Version 1 of the rules judged|results from containers", line) for line in new
    )


def test_a_damaged_result_is_named_and_the_report_still_comes(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"))])
    (tmp_path / "runs" / "cut-01").mkdir()
    (tmp_path / "runs" / "cut-01" / "result.json").write_text('{"schema"')
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert "[which and why](runs.md#skipped)" in index_of(tmp_path) and "- cut-01: damaged result.json" in text and "int8" in text


def test_every_link_of_a_page_leads_to_a_file_and_to_a_place_in_it(whole: Path) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in reports.pages_of(whole)}
    anchors = {name: re.findall(r'<a id="([^"]+)">', text) for name, text in texts.items()}
    every = [anchor for of_page in anchors.values() for anchor in of_page]
    assert len(every) == len(set(every))
    links = [(name, target) for name, text in texts.items() for target in re.findall(r"\]\(([^)]+)\)", text)]
    assert len(links) > 50
    for name, target in links:
        path, _, place = target.partition("#")
        assert not path or (whole / path).is_file(), (name, target)
        assert not place or place in anchors[path or name], (name, target)


def test_every_row_of_a_table_has_as_many_cells_as_its_header(whole: Path) -> None:
    width = 0
    for line in reports.text_of(whole).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width
        width = cells


def test_published_stands_beside_measured_with_the_article_s_own_digits(whole: Path) -> None:
    lines = reports.text_of(whole).splitlines()
    assert "| 0.63 |" in next(line for line in lines if 'published--int8-1"' in line)
    assert any("143.30 ± 3.02" in line and line.endswith("| 0.63 |") for line in lines if line.startswith("| int8 | ok |"))


def test_only_the_published_variant_on_a_gpu_has_published_numbers_beside_it(tmp_path: Path) -> None:
    for other in ({"variant": "controlled"}, {"device": "cpu", "scale": "tiny"}, {"article": "demo"}, {"article": "of long ago"}):
        assert "published mean" not in page(tmp_path, [record(job("int8", **other))])


def test_rows_that_did_not_run_are_rows_with_their_reason(whole: Path) -> None:
    text = reports.text_of(whole)
    assert re.search(r'controlled--int8-1"></a>int8 \|.*\| \*\*oom\*\* \|\n', text)
    assert "- int8 on 1 GPU: oom — CUDA out of memory. Tried to allocate \\| 1.00 GiB" in text
    assert "bminf 2.0.1 needs &lt;torch&gt; 1.x" in text


def test_a_failed_output_check_marks_the_row_and_keeps_its_numbers(whole: Path) -> None:
    line = next(line for line in reports.text_of(whole).splitlines() if 'published--bminf-1"' in line)
    assert "| ran, **output FAILED** |" in line and "698.9 ± 1.9" in line


@pytest.mark.parametrize("wrong", range(3))
def test_one_wrong_output_marks_the_row_whichever_of_its_runs_it_is(tmp_path: Path, wrong: int) -> None:
    runs = synthetic.repeated(record(job("int8"), 50.0), 3)
    runs[wrong].guest.check = synthetic.check(0.2, passed=False)
    text = page(tmp_path, runs)
    assert "**output FAILED**" in next(line for line in text.splitlines() if '--int8-1"' in line)
    assert "- int8 on 1 GPU in 1 of 3 runs: **output FAILED** — output differs by 20 % from transformers'; its numbers support no claim" in text
    (line,) = csv.DictReader((tmp_path / "results.csv").open(encoding="utf-8"))
    assert (line["output_right"], line["logits_relative_error"], line["run"]) == ("False", "0.2", runs[wrong].id)


def test_one_unchecked_output_leaves_the_row_unchecked(tmp_path: Path) -> None:
    runs = synthetic.repeated(record(job("int8"), 50.0), 3)
    runs[0].guest.check = None
    assert "ok, output not checked" in next(line for line in page(tmp_path, runs).splitlines() if '--int8-1"' in line)


def test_a_row_that_differs_from_its_pins_is_marked(whole: Path) -> None:
    text = reports.text_of(whole)
    assert re.search(r'tensor-parallel-2"></a>tensor-parallel † \|', text)
    assert re.search(r"† not exactly the pinned environment, see \[its environment\]\(inference-tools-current-published-[0-9a-f]{8}-environment\.md\)", text)
    assert "- tensor-parallel on 2 GPUs: torch: pinned 9.9.9, found 9.9.8" in text


def test_images_on_a_stand_in_are_told_once_for_all_rows_or_by_name(tmp_path: Path) -> None:
    def told(*stand_ins: bool) -> str:
        runs = [record(job(case), 50.0) for case in ("transformers", "int8")]
        for run, stand_in in zip(runs, stand_ins, strict=True):
            run.host["image"]["stand_in"] = stand_in
        folder = tmp_path / str(stand_ins)
        synthetic.write(folder / "runs", runs)
        document.write(folder / "runs", folder)
        return reports.text_of(folder)

    none, every, some = told(False, False), told(True, True), told(False, True)
    assert "stand-in for" not in none
    assert "All rows: in images on a stand-in for the pinned base image, see [its environment](" in every
    assert "pinned packages, all on a stand-in for the pinned base image;" in every
    assert "int8 on 1 GPU: in images on a stand-in for the pinned base image" in some
    assert "pinned packages, 1 on a stand-in for the pinned base image;" in some


def test_of_two_runs_the_mean_is_shown_and_their_number(whole: Path) -> None:
    line = next(line for line in reports.text_of(whole).splitlines() if 'published--deepspeed-2"' in line)
    assert re.search(r"\| 2 \| 12\.2\d? ± 0\.2", line)
    assert re.search(r"deepspeed .*11\.9\d to 12\.5\d? in 2 runs", reports.text_of(whole))


def test_three_runs_count_alike_and_a_failed_one_beside_them_is_told(tmp_path: Path) -> None:
    runs = [record(job("int8"), mean, number=place, seed=place, started_at=f"2026-11-2{place}T04:10:00Z") for place, mean in enumerate((50.0, 90.0, 60.0), 1)]
    assert re.search(r"\| int8 \|.*\| 3 \| 67 ± 17 \|", page(tmp_path / "median", runs))
    failed = [record(job("int8"), status="failed", reason=f"reason {number}", number=number, started_at=f"2026-11-2{number}T04:10:00Z") for number in (4, 5)]
    one, two = page(tmp_path / "one", [*runs, failed[0]]), page(tmp_path / "two", [*runs, *failed])
    assert all(re.search(r"\| int8 \|.*\| 3 \| 67 ± 17 \|", text) for text in (one, two))
    assert "- int8 on 1 GPU: 1 of 4 runs failed and does not count — reason 4\n" in one
    assert "- int8 on 1 GPU: 2 of 5 runs failed and do not count, the latest of these — reason 5\n" in two
    all_failed = page(tmp_path / "all", failed)
    assert "- int8 on 1 GPU: failed — reason 5\n" in all_failed and "do not count" not in all_failed


def test_a_setting_s_verdicts_stand_open_on_its_page_where_the_report_links_to(whole: Path) -> None:
    links = re.findall(r"\]\((inference-tools[\w.-]+\.md)#(claims-[0-9a-f]{8})\)", (whole / "REPORT.md").read_text())
    assert links
    for page_name, name in links:
        text = (whole / page_name).read_text()
        section = text.split(f'<a id="{name}"></a>')[1].split("<details>")[0]
        assert "## Claims, judged on these rows" in section and "| 1.1 DeepSpeed-Inference is the fastest" in section


def test_a_setting_in_which_no_claim_has_a_row_says_nothing_of_claims(tmp_path: Path) -> None:
    assert "judged on these rows" not in page(tmp_path, [record(job("transformers", variant="controlled", new_tokens=(1, 128)), (10.0, 1280.0))])


def test_a_run_with_newer_pins_that_failed_is_its_row_and_hides_no_run(tmp_path: Path) -> None:
    older = [record(job("int8"), 50.0, number=number, started_at=f"2026-11-2{number}T04:10:00Z") for number in (1, 2)]
    newer = record(job("int8"), status="failed", reason="no such library", number=3, started_at="2026-11-24T04:10:00Z")
    for run in older:
        run.host["pins_id"] = "of older pins"
    text = page(tmp_path, [*older, newer])
    assert "- int8 on 1 GPU: failed — no such library\n" in text and not re.search(r"\| int8 \|.*\| 2 \| 50 ±", text)
    assert all(run.id in (tmp_path / "runs.md").read_text() for run in [*older, newer])


def test_the_page_of_runs_tells_how_the_runs_of_a_row_ended_and_on_which_gpus_and_days_the_good_ones_ran(tmp_path: Path) -> None:
    runs = synthetic.repeated(record(job("int8"), 50.0), 5)
    runs[0].guest.check = synthetic.check(0.33, passed=False)
    runs[1].host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    for run in runs[2:4]:
        synthetic.on_gpus(run, "GPU-of-another-day")
        run.host["started_at"] = "2026-11-27T04:10:00Z"
    runs.append(record(job("int8"), status="failed", reason="no such library", number=6, started_at="2026-11-20T04:10:00Z"))
    runs.append(record(job("int8"), status="oom", reason="full", number=7, started_at="2026-11-20T05:10:00Z"))
    earlier = record(dataclasses.replace(job("int8"), load={"dtype": "float16"}), 40.0, number=8, started_at="2026-11-19T04:10:00Z")
    text = page(tmp_path, [*runs, dataclasses.replace(earlier, id="of-earlier-settings-01")])
    assert "| int8 on 1 GPU | 3 | 1 | 1 | 1 | 1 | 2 | 2026-11-25, 2026-11-27 |" in text
    assert "\n- of-earlier-settings: 1 run\n" in text


@pytest.mark.parametrize("status", ["oom", "timeout", "unsupported"])
def test_a_row_whose_latest_run_had_no_room_or_no_time_says_so(tmp_path: Path, status: str) -> None:
    runs = [record(job("int8"), 50.0), record(job("int8"), status=status, reason="the newest", number=2, started_at="2026-11-24T04:10:00Z")]
    failed = record(job("int8"), status="failed", reason="it fell over", number=3, started_at="2026-11-25T04:10:00Z")
    for all_runs in (runs, [*runs, failed]):
        assert f"int8 on 1 GPU: {status} — the newest" in page(tmp_path / str(len(all_runs)), all_runs)
    assert "- int8 on 1 GPU: 1 of 3 runs failed and does not count — it fell over" in page(tmp_path / "3", [*runs, failed])


def test_the_report_tells_where_the_time_of_a_run_went(tmp_path: Path) -> None:
    one = record(job("int8"), 100.0)
    began = datetime.datetime.fromisoformat(one.host["started_at"]).timestamp()
    one.host.update(began=began, prepare_s=2.5, wall_s=12.5)
    one.guest.phases = {"import": [0.5, 4.5], "load": [4.5, 8.0], "measure": [8.0, 9.8], "check": [9.8, 10.0]}
    one.guest.phases = {name: [began + moment for moment in moments] for name, moments in one.guest.phases.items()}
    older = record(job("deepspeed", 2), 100.0)
    text = page(tmp_path, [one, older])
    assert "| int8 | 1 | 2.5 | 0.5 | 4.0 | 3.5 | 0.7 | 1.0 | 0.2 | 2.6 | 15.0 |" in text
    assert "| deepspeed | 2 | — | — | — | — | 0.7 | 1.0 | — | 10.8 | 12.5 |" in text


def test_rows_of_hosts_of_different_sizes_are_never_in_one_table_or_one_ratio(tmp_path: Path) -> None:
    rows = [record(job("deepspeed", 2), 15.0), record(job("layer-parallel", 2), 50.0), record(job("deepspeed", 2), 30.0, number=2, seed=1)]
    rows[2].host["machine"] = {**rows[2].host["machine"], "cpu_count": 32}
    text = page(tmp_path, rows)
    assert "SYNTHETIC GPU in a 2-core host" in text and "SYNTHETIC GPU in a 32-core host" in text
    assert "in 2 runs" not in text and "over repeated runs; published 3.83" not in text
    assert re.search(r"1\.5 .*3\.3\d* times as fast as layer-parallel", text)


def test_a_row_s_environment_ends_in_the_line_that_runs_it_again(whole: Path) -> None:
    assert "- deepspeed on 2 GPUs: `make bench-deepspeed ARTICLE=inference-tools VARIANT=published STACK=current" in reports.text_of(whole)


def test_runs_of_one_job_belong_together_whatever_their_ids_say_and_those_of_other_pins_do_not(tmp_path: Path) -> None:
    repeated = [record(job("int8"), mean, seed=place, started_at=f"2026-11-2{place}T04:10:00Z") for place, mean in enumerate((50.0, 60.0, 70.0))]
    named = [dataclasses.replace(one, id=one.id.replace("-01", f"-{place}-01")) for place, one in enumerate(repeated)]
    assert re.search(r"50\S* to 70\S* in 3 runs", page(tmp_path / "same", named))
    named[0].host["pins_id"] = "of other pins"
    assert re.search(r"60\S* to 70\S* in 2 runs", page(tmp_path / "other", named))


def test_claims_stand_below_what_qualifies_them(whole: Path, tmp_path: Path) -> None:
    article = (whole / "article-inference-tools.md").read_text(encoding="utf-8")
    caveat, table = article.index("DeepSpeed ran in float16, both parallel rows and BMInf in float32"), article.index("</a>1.1 DeepSpeed")
    assert article.index("](#measured-inference-tools)") < caveat < article.index("[The method](method.md)") < table
    other = articles.find("deepspeed-inference")
    assert f"none of the {len(other.claims)} claims of “{other.title}” was tested; `make article-{other.slug} " in index_of(whole)
    assert " RUNS=/folder/of/these/runs` tests them." in index_of(whole)
    page(tmp_path, [record(job("bloom-int8", article="demo", device="cpu", scale="tiny"), 50.0)])
    assert "Not run yet" not in index_of(tmp_path) and "▼" not in index_of(tmp_path)


@pytest.mark.parametrize(("count", "words"), [(1, "1 of 1 result from containers"), (2, "all 2 results from containers")])
def test_one_result_is_not_all_results(count: int, words: str) -> None:
    assert words in overview.limits([record(job("int8"), 50.0, number=number) for number in range(1, count + 1)], Markdown(), "")


def test_what_was_not_run_is_a_command_with_stack_weights_and_folder_as_of_these_results(tmp_path: Path) -> None:
    other = articles.find("deepspeed-inference")

    def told(*stacks: str, weights: str = "random", runs: str = "", engine: str = "docker") -> str:
        records = [record(job("int8", stack=stack, weights=weights)) for stack in stacks]
        for one in records:
            one.host["engine"] = engine
        return rerun_command.whole_article(other, records, runs).removeprefix(f"make article-{other.slug} ")

    assert told("hopper", runs="mine") == "STACK=hopper-2023-05 WEIGHTS=random REPEATS=5 RUNS=mine", "the port of the other article's own stack"
    assert told("2023-02", weights="hub") == "WEIGHTS=hub REPEATS=5", "its own stack"
    assert told("current", engine="podman") == "STACK=current WEIGHTS=random REPEATS=5 ENGINE=podman"
    assert told("current", "hopper") == "WEIGHTS=random REPEATS=5", "of two stacks none is taken"
    page(tmp_path, [record(job("int8"), 50.0)])
    assert "`make article-deepspeed-inference STACK=current WEIGHTS=random REPEATS=5 RUNS=/folder/of/these/runs` tests them" in index_of(tmp_path)


@pytest.fixture(scope="module")
def of_five_runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report on five runs of each row of the first article."""
    times_ms = (("layer-parallel", 2, 61.5), ("tensor-parallel", 2, 40.25), ("int8", 1, 90.0), ("deepspeed", 2, 12.5), ("bminf", 1, 700.0))
    rows = [record(job(case, count), ms) for case, count, ms in times_ms]
    return page(tmp_path_factory.mktemp("five"), [run for row in rows for run in synthetic.repeated(row)])


def test_the_first_screen_counts_the_words_and_shows_every_claim(of_five_runs: str, tmp_path: Path) -> None:
    first, _, below = of_five_runs.partition("## Did it hold?")[2].partition("## Claims and settings")
    lines = re.findall(
        r"^- (.) \[1\.\d\]\(article-inference-tools\.md#claim-inference-tools-1\.\d\) .*?\. (?:\*\*)?([a-z ]+?)(?:\*\*)?(?: on .*?)?(?::|$)", below, re.M
    )
    words = [word for _, word in lines]
    assert len(words) == 5 and all(SIGNS[word] == sign for sign, word in lines), below
    counts = " · ".join(f"{sign} **{words.count(word)}** {word}" for word, sign in SIGNS.items())
    assert f"{counts}, of 5 claims by version 3 of [the rules](method.md)" in first
    of_parts = first.partition("parts of the tested claims: ")[2].partition(".")[0]
    assert "**1** refuted" in of_parts and "**0**" not in of_parts, "a word that no part has is left out"
    assert "999.99 (CUDA 99.9)" in of_five_runs, "the driver of the runs"
    assert re.search(
        r"DeepSpeed takes 3\.83 times less .* \*\*holds in part\*\*\n    - ● faster: holds\n"
        r"    - ✖ 3\.83 times \(3\.06 to 4\.79\): refuted, deepspeed 4\.9\d* \(4.* to .*\) × layer-parallel, published 3\.83\n",
        below,
    ), below
    assert "![Every claim" in first and "plots/claims.svg" in first and "Limits: weights random; devices SYNTHETIC GPU; all 25 results" in first
    assert "## Did it hold?" not in page(tmp_path, [record(job("bloom-int8", article="demo", device="cpu", scale="tiny"), 50.0)])


def test_the_index_of_the_committed_results_is_read_in_a_minute() -> None:
    index = index_of(paths.ROOT / "reports")
    assert len(index.encode()) <= 30_000 and len(index.splitlines()) <= 300
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", index)
    cells = [cell for line in shown.splitlines() if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
    assert len(cells) > 100 and max(len(cell.split()) for cell in cells) <= 20
    assert not re.search(r"\([^()]*\([^()]*\)[^()]*\)", shown), "no brackets within brackets"


def fastest_lines(text: str) -> list[str]:
    """The lines of the table of the fastest systems, without the pages that the names lead to."""
    return [re.sub(r"\]\([^)]*\)", "]", line) for line in text.splitlines() if line.startswith("| bloomz-7b1 | SYNTHETIC GPU |")]


def test_the_fastest_system_of_a_model_is_told_with_those_it_was_compared_with(of_five_runs: str) -> None:
    assert re.search(r"\| \[deepspeed\]\(inference-tools-\S+\) \| 12\.5 with the prompt \|", of_five_runs)
    assert fastest_lines(of_five_runs) == [
        "| bloomz-7b1 | SYNTHETIC GPU | 1 | 8 + 1 | [deepspeed] | 12.5 with the prompt | 2 | 5 | 5 | 3.22 (3.18 to 3.26) × tensor-parallel, 5 runs |"
    ]


@pytest.mark.parametrize(("article", "case"), [("inference-tools", "int8"), ("long-prompts", "vllm")])
def test_the_fastest_system_and_the_limits_are_told_where_no_row_may_judge_a_claim(article: str, case: str, tmp_path: Path) -> None:
    page(tmp_path, [record(job(case, article=article, variant="controlled", new_tokens=(1, 128)), 50.0)])
    text = index_of(tmp_path)
    assert "## Did it hold?" not in text and "## Which system is the fastest?" in text and "Limits: weights random; devices SYNTHETIC GPU" in text


def test_a_system_with_a_wrong_output_or_in_another_setting_is_not_the_fastest(tmp_path: Path) -> None:
    wrong = record(job("deepspeed", 2), 10.0, checked=synthetic.check(0.5, passed=False))
    alone = record(job("deepspeed", 2, variant="controlled"), 10.0)
    text = page(tmp_path, [wrong, alone, record(job("int8"), 50.0), record(job("layer-parallel", 2), 60.0)])
    (line,) = fastest_lines(text)
    assert re.search(
        r"\| 1 \| 8 \+ 1 \| ▼ \[int8\] \| 50\S* with the prompt \| 1 \| 1 \| \[deepspeed\]: 9\.98, 2 GPUs, 1 run \| 2 \| 1\.20 × layer-parallel, 1 run \|$",
        line,
    )
    assert "[deepspeed](inference-tools-current-controlled-" in text, "that with the right output"
    assert "| 2 of 3, 1 FAILED |" in text


def test_systems_that_the_runs_cannot_tell_from_the_fastest_are_named_with_it(tmp_path: Path) -> None:
    def runs(case: str, *times_ms: float) -> list[Record]:
        return [record(job(case), time_ms, number=number, seed=number) for number, time_ms in enumerate(times_ms, 1)]

    first, near, far = runs("deepspeed", 48, 50, 52, 49, 51), runs("int8", 49, 51, 53, 50, 52), runs("bminf", 88, 90, 92, 89, 91)
    text = page(tmp_path, [*first, *near, *far])
    assert re.search(r"\| \[deepspeed or int8\] \| 50\S* with the prompt \| 1 \| 5 \| 3 \| 1\.0\d \(0\.9\d to 1\.\d+\) × int8, 5 runs \|", *fastest_lines(text))
    text = page(tmp_path, [*first[:4], *near[:4], *far[:4]])
    assert re.search(r"\| ▼ \[deepspeed\] \| 49\S* with the prompt \| 1 \| 4 \| 3 \|", *fastest_lines(text))
    text = page(tmp_path, [*first, near[1], *far[:2]])
    (line,) = fastest_lines(text)
    assert re.search(r"\| ▼ \[deepspeed\] \| 50\S* with the prompt \| 1 \| 5 \| 3 \| 1\.0\d × int8, 1 run \|", line), (
        "a first place beside a single run is no more tested"
    )


def test_a_setting_whose_weights_verdicts_rest_on_tells_the_fastest_before_a_faster_one(tmp_path: Path) -> None:
    earlier = [record(job(case, recipe=1), time_ms) for case, time_ms in (("int8", 5.0), ("layer-parallel", 6.0))]
    text = page(tmp_path, [*earlier, record(job("int8"), 50.0), record(job("layer-parallel"), 60.0)])
    assert re.search(r"\| ▼ \[int8\] \| 50\S* with the prompt \|", *fastest_lines(text))


def test_further_tokens_tell_the_fastest_before_calls_of_one_token_and_only_runs_that_ended_are_counted(tmp_path: Path) -> None:
    prompts = [record(job(case), time_ms) for case, time_ms in (("int8", 5.0), ("layer-parallel", 6.0), ("bminf", 7.0))]
    decoding = {"variant": "controlled", "new_tokens": (1, 128)}
    failed = record(job("deepspeed", **decoding), status="failed", reason="RuntimeError: no", number=1)
    ended = record(job("deepspeed", **decoding), (20.0, 640.0), number=2)
    text = page(tmp_path, [*prompts, failed, ended, record(job("int8", **decoding), (20.0, 1280.0))])
    assert re.search(r"\| ▼ \[deepspeed\] \| 5\.0\d* \| 1 \| 1 \| 2 \|", *fastest_lines(text))


def test_the_regret_of_the_timed_tokens_stands_beside_what_is_allowed(tmp_path: Path) -> None:
    judged = {
        "passed": True,
        "reason": "",
        "regret": {"p50": 0.0, "p90": 0.011, "max": 0.2},
        "allowed": {"regret_p90": 0.03, "regret_max": 0.25, "logits_error": 0.02},
    }
    text = page(tmp_path, [record(job("int8"), 50.0, checked=synthetic.check(0.001) | {"judged": judged}), record(job("layer-parallel"), 60.0)])
    assert "| 0.011 / 0.200 (0.030 / 0.250) |" in text
    better = {**judged, "regret": {"p50": 0.0, "p90": 0.001, "max": 0.1}}
    runs = [record(job("int8"), 50.0, number=number, checked=synthetic.check(0.001) | {"judged": one}) for number, one in ((1, judged), (2, better))]
    assert "| 0.011 / 0.200 (0.030 / 0.250) |" in page(tmp_path / "two", runs), "the most of any run"


def test_a_setting_s_main_table_is_sorted_by_time_and_the_rest_is_behind_a_click(of_five_runs: str) -> None:
    setting = of_five_runs[of_five_runs.index('<a id="inference-tools-current-docker-') :]
    table, _, folds = setting.partition("<details>")
    systems = re.findall(r"^\| <a id=.*?</a>(\S+) \|", table, re.M)
    assert systems == ["deepspeed", "tensor-parallel", "layer-parallel", "int8", "bminf"]
    assert "| system | GPUs | dtype | runs | call, ms (mean ± std) | measured ÷ published | held, GiB | allocated, GiB | output check |" in table
    assert "| case | status | dtype |" in folds and "published mean ± std, ms" in folds


def test_the_main_table_names_no_number_of_gpus_that_all_rows_share(tmp_path: Path) -> None:
    text = page(tmp_path, [record(job("int8"), 50.0), record(job("bminf"), 60.0)])
    assert "| system | dtype | runs |" in text and "| system | GPUs |" not in text


def test_a_system_that_is_a_little_slower_is_not_said_to_take_as_long() -> None:
    groups = row_groups.build([record(job("int8"), 50.0, spread=0), record(job("bminf"), 51.5, spread=0)], articles.load_all())
    assert "bminf ×1 takes 1.03 times as long" in (time_dots.plot(groups[0], None) or "")


def test_an_article_s_page_begins_with_its_claims(whole: Path) -> None:
    article = (whole / "article-inference-tools.md").read_text(encoding="utf-8")
    assert article.index("\n## Claims\n") < article.index("\n## The setting that ") < article.index("\n## Every setting\n")


def test_the_picture_of_all_claims_shows_long_titles_whole_and_cuts_those_of_more_than_two_lines() -> None:
    long = "1.1 A is faster than B in every batch size from one to one hundred and twenty-eight, while C goes on."
    line = all_claims.Line(long, "holds", [all_claims.Dot("holds", 2.0)])
    shown = all_claims.plot([line, dataclasses.replace(line, title="1.2 short.")]) or ""
    texts = re.findall(r'<text [^>]*y="([0-9.]+)"[^>]*>([^<]*)</text>', shown)
    heights = {words: float(y) for y, words in texts}
    first, second = [words for _, words in texts if words in long and len(words) > 9]
    assert f"{first} {second}" == long and heights[second] - heights[first] == 14
    marks = sorted(float(y) for y, words in texts if words.endswith("holds"))
    assert marks == [(heights[first] + heights[second]) / 2, heights["1.2 short."]] and heights["1.2 short."] - heights[second] == 22
    assert "…" not in shown and "…" in (all_claims.plot([dataclasses.replace(line, title=long * 2)]) or "")


def test_the_picture_of_all_claims_has_a_line_for_each_and_no_claim_without_a_verdict() -> None:
    holds = all_claims.Line("1.1 A is faster.", "holds", [all_claims.Dot("holds", 2.0, stats.Estimate(2.5, 2.0, 3.0))])
    untested = all_claims.Line("1.2 B is right.", "not tested")
    with_ratio, without = all_claims.plot([holds, untested]), all_claims.plot([untested])
    assert without is None and with_ratio and with_ratio == all_claims.plot([holds, untested])
    assert "Of 2 claims: 1 holds, 1 not tested" in with_ratio
    assert "Of 3 claims: 3 hold in part" in (all_claims.plot([dataclasses.replace(holds, word="holds in part")] * 3) or "")
    color = COLOURS["holds"][0]
    assert color in with_ratio and with_ratio.count(color) > (all_claims.plot([dataclasses.replace(holds, dots=[all_claims.Dot("holds", 2.0)])]) or "").count(
        color
    )


def test_a_part_of_a_claim_has_a_row_of_its_own_with_its_ratio_in_digits_and_the_colour_of_its_own_verdict() -> None:
    parts = [all_claims.Dot("refuted", 1.09, stats.Estimate(4.62, 3.5, 6.2), "stops"), all_claims.Dot("holds", 2.33, stats.Estimate(3.24, 2.2, 4.8), "goes on")]
    shown = all_claims.plot([all_claims.Line("2.5 A stops, B goes on.", "holds in part", parts)]) or ""
    rows: dict[str, list[str]] = {}
    for y, words in re.findall(r'<text [^>]*y="([0-9.]+)"[^>]*>([^<]*)</text>', shown):
        rows.setdefault(y, []).append(words)
    told = [["◆", "2.5 A stops, B goes on.", "holds in part"], ["✖", "stops", "4.62", "refuted"], ["●", "goes on", "3.24", "holds"]]
    assert [row for row in rows.values() if row in told] == told
    drawn = set(re.findall(r'<path [^>]*class="(v\d) (?:fill|stroke)"', shown))
    assert drawn == {svg.verdict_class("refuted"), svg.verdict_class("holds")}, "the claim's own verdict is no dot"
    assert "stops: refuted, published 1.09, measured 4.62 (3.50 to 6.20)" in shown


def test_the_picture_of_all_claims_has_a_small_dot_for_each_set_of_gpus_that_ran_both_rows() -> None:
    dot = all_claims.Dot("holds", 3.83, stats.Estimate(2.0, 1.5, 2.5), on_gpus=[1.56, 2.64])
    shown = all_claims.plot([all_claims.Line("1.1 A is the fastest.", "holds", [dot])]) or ""
    (first, second), (one, other) = re.findall(r'<circle cx="([0-9.]+)"[^>]*class="muted', shown), (1.56, 2.64)
    (published,) = re.findall(r'<path d="M([0-9.]+) [^>]*class="ink" stroke-width="2"', shown)
    assert (float(second) - float(first)) / (float(published) - float(second)) == pytest.approx(math.log(other / one) / math.log(3.83 / other), rel=0.05)
    assert "measured 2.00 (1.50 to 2.50), by GPUs 1.56, 2.64" in shown
    assert "<circle" not in (all_claims.plot([all_claims.Line("1.1 A", "holds", [dataclasses.replace(dot, on_gpus=())])]) or "")


def test_the_reason_why_single_runs_judge_nothing_is_told_once_above_each_table(whole: Path) -> None:
    text = reports.text_of(whole)
    assert re.search(r"\n\*Not tested\*, unless a line gives another reason: 1 run, 5 are needed\.\n", text)
    untested = [line for line in index_of(whole).splitlines() if line.startswith("- ") and " × " in line]
    assert untested and all("1 run, 5 are needed" in line for line in untested), "a line of the index says it itself"
    assert not [line for line in text.splitlines() if line.startswith("|") and "1 run, 5 are needed" in line]


def test_the_report_names_its_rules_and_what_earlier_ones_judged_first(of_five_runs: str, tmp_path: Path) -> None:
    assert "follow version 3 of the rules (docs/verdict-rules.md), of 2026-11-23." in of_five_runs
    assert "Version 1 of the rules judged" not in of_five_runs, "version 1 judged no result of recipe 2"
    one, other = record(job("int8"), 50.0), record(job("deepspeed", 2), 10.0)
    for each in (one, other):
        each.job.model["recipe"] = 1
    assert "Version 1 of the rules judged all 2 results first." in page(tmp_path, [one, other])
    one.host["rules_version"] = 3
    assert "Version 1 of the rules judged 1 of the 2 results first." in page(tmp_path, [one, other])


def test_rows_of_an_article_that_is_no_longer_there_come_last() -> None:
    gone, there = record(dataclasses.replace(job("int8"), article="a-gone-one"), 50.0), record(job("int8"), 50.0)
    known = articles.load_all()
    groups = row_groups.build([gone, there], known)
    assert list(document._by_article(sorted(groups, key=lambda group: group.key.article), known)) == [there.job.article, "a-gone-one"]


def test_findings_are_linked_where_there_are_some(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"), 50.0)])
    assert "FINDINGS.md" not in document.write(tmp_path / "runs", tmp_path).read_text(encoding="utf-8")
    (tmp_path / "FINDINGS.md").write_text("# Findings\n")
    assert "](FINDINGS.md)" in document.write(tmp_path / "runs", tmp_path).read_text(encoding="utf-8")


def test_claims_are_judged_on_the_first_page(of_five_runs: str) -> None:
    first = of_five_runs.partition("<summary>How each verdict came about</summary>")[2].partition("</details>")[0]
    assert re.search(r"1\.2 .* \| \*\*holds\*\* \| tensor-parallel on 2 GPUs in float32 is 1\.5\d+ times as fast as layer-parallel on 2 GPUs in float32", first)
    assert re.search(r"1\.5 .* \| \*\*holds in part\*\* \| \*faster: holds; 3\.83 times: refuted\* — deepspeed on 2 GPUs in float32 is 4\.9", first)
    slowest = r"\*slowest: holds\* — the closest of 4: int8 on 1 GPU in float32 is 7\.\d* times as fast as bminf"
    assert re.search(
        rf"1\.4 .* \| \*\*holds\*\* \| {slowest}.*\. \*fits one card: holds\* — bminf held .*10\.00 GiB.*\. \*no loss of precision: holds\* — ", first
    )


def test_published_speed_ups_stand_beside_measured_ones_of_every_pair(of_five_runs: str) -> None:
    assert re.search(r"\| deepspeed over int8 \| 4\.66 \| 7\.2\d* \(7", of_five_runs) and re.search(r"\| int8 over bminf \| 5\.02 \| 7\.", of_five_runs)


@pytest.mark.parametrize(("device", "words"), [("cpu", "CPU devices"), ("cuda", "GPUs")])
def test_devices_are_named_by_what_the_row_ran_on(device: str, words: str) -> None:
    (group,) = row_groups.build([record(job("deepspeed", 2, device=device))], {})
    assert (cells.devices(group), cells.on(group.rows[0])) == (words, f"deepspeed on 2 {words}")


def test_a_tiny_model_on_a_cpu_leaves_every_claim_not_tested(tmp_path: Path) -> None:
    text = page(tmp_path, [record(job("deepspeed", 2, device="cpu", scale="tiny")), record(job("int8", device="cpu", scale="tiny"))])
    assert "holds**" not in text and "refuted**" not in text
    assert text.count("| not tested | so far only: tiny model on a CPU |") == len(articles.find("inference-tools").claims)


def test_an_empty_folder_says_what_to_type(tmp_path: Path) -> None:
    text = page(tmp_path, [])
    assert "make demo" in text and "make bench-layer-parallel" in text


def test_plots_are_whole_svg_on_a_ground_of_their_own(whole: Path) -> None:
    pictures = sorted((whole / "plots").glob("*.svg"))
    linked = set(re.findall(r"\]\(plots/([^)]*\.svg)\)", reports.text_of(whole)))
    assert linked and {picture.name for picture in pictures} == linked
    for picture in pictures:
        ElementTree.parse(picture)
        text = picture.read_text()
        assert "fill:#ffffff" in text and "<dc:date>" not in text


def test_a_plot_of_runs_that_are_gone_goes_too(tmp_path: Path) -> None:
    page(tmp_path, [record(job("int8"))])
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    document.write(tmp_path / "runs", tmp_path)
    assert not list((tmp_path / "plots").glob("*"))


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"))])
    (tmp_path / "out").write_text("a file")
    with pytest.raises(KitError, match="cannot write the report") as caught:
        document.write(tmp_path / "runs", tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_runs_folder_that_does_not_exist_is_named() -> None:
    done = subprocess.run([sys.executable, "-m", "scripts", "report", "--runs", "no/such"], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no/such', which is not a folder" in done.stderr


def test_sparse_records_are_rows_too(tmp_path: Path) -> None:
    """An early failure knows little of its machine; a guest may leave out what it could not find."""
    full = record(job("int8"))
    bare = {"engine": "docker", "started_at": "2026-11-21T04:10:00Z"}
    guest = dataclasses.replace(full.guest, load_s=None, memory={"devices": full.guest.memory["devices"]}, check=None, used={}, environment={})
    text = page(
        tmp_path, [dataclasses.replace(full, host=bare, guest=guest), dataclasses.replace(record(job("bminf"), status="failed", reason="died"), host=bare)]
    )
    assert "ok, output not checked" in text and "- bminf on 1 GPU: failed — died" in text
    assert "| bminf | 1 | docker | — |" in text and "on the host |" not in text, "a container whose image is not told"
    assert "| — | — |" in next(line for line in text.splitlines() if "| failed | 2026-11-21T04:10:00Z |" in line), "no wall time is told, not one of 0.0 s"


def test_a_row_on_several_gpus_names_what_the_machine_told_nccl(tmp_path: Path) -> None:
    told = {"NCCL_NVLS_ENABLE": "0", "NCCL_P2P_LEVEL": "NVL"}
    for count, expected in ((2, True), (1, False)):
        one = record(job("tensor-parallel", count))
        one.guest.environment["between_gpus"] = told
        text = page(tmp_path / str(count), [one])
        assert ("Variables of NCCL and its like, on several GPUs: `NCCL_NVLS_ENABLE=0 NCCL_P2P_LEVEL=NVL`" in text) is expected


def test_a_gpu_that_gave_no_memory_sample_has_no_number(tmp_path: Path) -> None:
    one = record(job("int8"))
    one.host["gpu_memory"][0]["peak_used_bytes"] = None
    text = page(tmp_path, [one])
    assert "| int8 | 1 | — | 8.00 / 9.00 |" in text
    assert "memory.svg" not in text


def test_how_fast_the_host_was_stands_beside_the_calls_where_a_result_tells(tmp_path: Path) -> None:
    one, other = record(job("int8"), 50.0), record(job("deepspeed"), 10.0)
    assert "in, µs: before / after" not in page(tmp_path, [one, other])
    one.guest.launch_us = {"before": 5.25, "after": 10.5}
    text = page(tmp_path, [one, other])
    assert "operator launch on the host, µs: before / after the calls" in text
    assert "| 5.25 / 10.5 |" in next(line for line in text.splitlines() if line.startswith("| int8 | 1 | A | 3.2 |"))
    assert "| — | 10 |" in next(line for line in text.splitlines() if line.startswith("| deepspeed | 1 | A | 3.2 |"))


def test_a_row_whose_model_lies_on_fewer_gpus_than_it_had_says_so(tmp_path: Path) -> None:
    one = record(job("layer-parallel", 2))
    one.guest.used["parameters_per_device"] = {"cuda:1": 7}
    assert "- layer-parallel on 2 GPUs: the library put the whole model on 1 GPU and no part of it on 1" in page(tmp_path, [one])
    other = record(job("int8", 2), 9.0)
    other.guest.used["parameters_per_device"] = {"cuda:0": 7}
    both = page(tmp_path, [one, other])
    assert "| GPUs | GPUs that count | dtype |" in both
    assert "- int8 on 2 GPUs and layer-parallel on 2 GPUs: the library put" in both or "- layer-parallel on 2 GPUs and int8 on 2 GPUs: the library put" in both
    one.guest.used["parameters_per_device"]["cuda:0"] = 7
    assert "no part of it" not in page(tmp_path, [one])


def fields_of(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The path of every field of a JSON document, of lists the first item's."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*path, name)
        yield from fields_of(one, (*path, name))


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, 1e308, pytest.param({}, marks=pytest.mark.full), pytest.param(["x"], marks=pytest.mark.full)])
def test_whatever_field_is_damaged_the_run_is_skipped_or_shown_and_the_report_comes(tmp_path: Path, value: object) -> None:
    good = record(job("layer-parallel", 2, new_tokens=(1, 16)), (30.0, 190.0))
    whole = json.loads(to_json(record(job("deepspeed", 2, new_tokens=(1, 16)), (10.0, 90.0))))
    known = articles.load_all()
    (tmp_path / whole["id"]).mkdir()
    for path in fields_of(whole):
        damaged = copy.deepcopy(whole)
        *above, last = path
        functools.reduce(operator.getitem, above, damaged)[last] = value
        (tmp_path / whole["id"] / "result.json").write_text(json.dumps(damaged))
        records, skipped = results.load_all(tmp_path)
        content = document.judged([*records, good], known)
        text = "".join(page_text.texts(page_text.body(content), skipped, with_findings=False).values())
        assert (len(records), len(skipped)) in ((1, 0), (0, 1))
        assert text.count(whole["id"]) >= 1


def test_a_new_view_needs_its_file_and_its_name_among_the_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beauty = View(
        "beauty",
        lambda group, article: Markdown("Beauty of {}").format(group.key.model),
        summary="Beauty",
        plot=lambda group, article: "<svg/>",
        title="All of it",
    )
    for module in (document, page_text):
        monkeypatch.setattr(module, "VIEWS", (*VIEWS, beauty))
    text = page(tmp_path, [record(job("int8"))])
    assert "\n\nBeauty of SYNTHETIC GPU\n\n" in text
    (picture,) = (tmp_path / "plots").glob("*-beauty.svg")
    assert picture.read_text() == "<svg/>" and "![All of it: current · SYNTHETIC GPU" in text and f"(plots/{picture.name})" in text


def test_a_report_judges_each_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, judge = [], judging.judge_group
    monkeypatch.setattr(judging, "judge_group", lambda group, article: judged.append(group.slug) or judge(group, article))
    page(tmp_path, [record(job("int8"), 50.0), record(job("deepspeed", 2), 10.0), record(job("int8", variant="controlled"), 50.0)])
    assert len(judged) == len(set(judged)) == 2


def test_the_terminal_tells_in_words_how_many_outputs_are_wrong_or_were_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, unchecked = record(job("bminf"), checked=synthetic.check(0.33, passed=False)), record(job("int8"), unchecked=True)
    synthetic.write(tmp_path / "runs", [record(job("transformers")), wrong, unchecked])
    document.write(tmp_path / "runs", tmp_path)
    assert "\n1 of 3 rows agree with plain transformers, 1 with a wrong output, 1 without an output check\n" in capsys.readouterr().out


def test_the_terminal_marks_the_times_of_a_busy_machine_and_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {"variant": "controlled", "new_tokens": (1, 128)}
    busy, calm, failed = (
        record(job("int8", **long), (50.0, 990.0)),
        record(job("transformers", **long), 50.0),
        record(job("bminf", **long), status="failed", reason="x"),
    )
    partly = synthetic.repeated(record(job("layer-parallel", **long), 70.0), 2)
    for run in (busy, failed, partly[0]):
        run.host["conditions"] = {"marks": ["foreign load: x"], "disturbed": ["foreign load: x"]}
    synthetic.write(tmp_path / "runs", [busy, calm, failed, *partly])
    document.write(tmp_path / "runs", tmp_path)
    told = capsys.readouterr().out
    assert re.search(r"│ int8 +│ 1 │ ok +│ +~50\.\d+ ± .* │ +~7\.\d+ │", told) and re.search(r"│ transformers +│ 1 │ ok +│ +50\.\d+ ± ", told)
    assert re.search(r"│ layer-parallel +│ 1 │ ok +│ +[67]\d\.\d+ ± ", told), "one of its two runs counts"
    assert "\n3 of 4 rows agree with plain transformers, 1 failed\n~: 1 row timed on a busy machine: the outputs count, the times judge nothing\n" in told
    synthetic.write(tmp_path / "calm" / "runs", [calm])
    document.write(tmp_path / "calm" / "runs", tmp_path / "calm")
    assert "~" not in capsys.readouterr().out


def test_runs_on_a_disturbed_machine_are_shown_with_their_mark(tmp_path: Path) -> None:
    runs = synthetic.repeated(record(job("int8"), 50.0), 3)
    runs[0].host["conditions"] = {"marks": ["foreign load: <b>"], "disturbed": ["foreign load: <b>"]}
    for run, mark in zip(runs[1:], "ab", strict=True):
        run.host["conditions"] = {"marks": [f"throttled: {mark}"], "disturbed": []}
    text = page(tmp_path, runs)
    assert "- int8 on 1 GPU: 1 of 3 runs are marked and judge nothing: foreign load: &lt;b&gt;" in text
    assert "- int8 on 1 GPU: 2 of 3 runs are marked and count, the first: throttled: a" in text
    wrong = synthetic.repeated(record(job("int8"), 50.0, checked=synthetic.check(0.5, passed=False)), 3)
    wrong[0].host["conditions"] = {"marks": ["throttled: a"], "disturbed": []}
    assert "- int8 on 1 GPU: 1 of 3 runs are marked and would count with a right output: throttled: a" in page(tmp_path / "wrong", wrong)


def test_the_output_of_a_run_that_was_not_judged_to_its_end_is_open(tmp_path: Path) -> None:
    open_row = dataclasses.replace(record(job("int8"), 50.0), status="failed", reason="its tokens were not judged: the disk is full")
    text = page(tmp_path, [open_row, record(job("deepspeed", 1), 10.0)])
    lines = text.splitlines()
    header, table = next((line, lines[at + 2 :]) for at, line in enumerate(lines) if "| output |" in line)
    place = [cell.strip() for cell in header.split("|")].index("output")
    outputs = {cells[1].strip(): cells[place].strip() for line in table[: table.index("")] if (cells := line.split("|"))}
    assert outputs == {"int8": "not judged to the end", "deepspeed": "ok"}
    (line,) = [line for line in csv.DictReader((tmp_path / "results.csv").open()) if line["case"] == "int8"]
    assert line["output_right"] == ""


def test_the_picture_of_memory_shows_the_fullest_gpu_of_a_row() -> None:
    runs = synthetic.repeated(record(job("deepspeed", 2), 10.0), 3)
    for run in runs:
        for gpu, gib in zip(run.host["gpu_memory"], (4, 9), strict=True):
            gpu["peak_used_bytes"] = gib * synthetic.GIB
    picture = memory_dots.plot(row_groups.build(runs, articles.load_all())[0]) or ""
    assert re.search(r"deepspeed ×2.*?9\.00 GiB", picture, re.S) and "4.00 GiB" not in picture


def test_runs_with_uncommitted_changes_are_named(tmp_path: Path) -> None:
    def told(*dirty: bool) -> list[str]:
        runs = [*synthetic.repeated(record(job("int8"), 50.0), 3), record(job("deepspeed", 1), 10.0)]
        for run, is_dirty in zip(runs, dirty, strict=True):
            run.host["dirty"] = is_dirty
        return re.findall(r"uncommitted changes, so the commit is not all of the code: (.*)", page(tmp_path, runs))

    assert told(False, False, False, False) == []
    assert told(True, False, True, False) == ["int8 on 1 GPU, 2 of 3 runs"]
    assert told(True, False, False, True) == ["int8 on 1 GPU, 1 of 3 runs; deepspeed on 1 GPU, 1 of 1 runs"]
    assert told(True, True, True, True) == ["all runs"]


def test_the_environment_names_gpus_commits_and_images_of_all_runs(tmp_path: Path) -> None:
    runs = synthetic.repeated(record(job("deepspeed", 1), 10.0), 2)
    synthetic.on_gpus(runs[1], "GPU-other")
    runs[1].host["commit"] = "0ther00000000000"
    runs[0].host["image"]["id"], runs[1].host["image"]["id"] = "sha256:aaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbb"
    runs[0].host["gpus"][0]["nvlinks"] = 18
    shown = page(tmp_path, runs)
    first = runs[0].host["gpus"][0]["uuid"]
    assert re.search(rf"^- GPU A: .*, 18 NVLinks, {first}$", shown, re.M) and re.search(r"^- GPU B: .*GPU-other$", shown, re.M)
    assert "0ther0000000" in shown and "`sha256:aaaaaaaaaaaa`, `sha256:bbbbbbbbbbbb`" in shown


def test_a_verdict_on_one_gpu_says_what_one_gpu_leaves_out(tmp_path: Path) -> None:
    def line_of(count: int) -> str:
        runs = [run for case, ms in (("tensor-parallel", 40.0), ("layer-parallel", 60.0)) for run in synthetic.repeated(record(job(case, count), ms))]
        page(tmp_path / str(count), runs)
        return next(line for line in index_of(tmp_path / str(count)).splitlines() if line.startswith("- ● [1.2]"))

    assert "on one GPU both rows are the same model in two wrappers" in line_of(1) and "on one GPU" not in line_of(2)


def test_rows_whose_case_loads_in_another_way_since_say_so_in_one_line(tmp_path: Path) -> None:
    both = [record(job("layer-parallel", 2)), record(job("tensor-parallel", 2))]
    assert "its case now says" not in page(tmp_path, both)
    for one in both:
        one.job.load["dtype"] = "float64"
    assert "- layer-parallel on 2 GPUs and tensor-parallel on 2 GPUs: loaded with dtype float64; its case now says dtype float32" in page(tmp_path, both)


def test_the_library_of_a_new_backend_stands_among_the_versions_of_its_own_rows_alone(monkeypatch):
    known = pins.load()
    mine = {"stacks": ["current"], "current": {"pins": {"my-engine": {"version": "1"}, "its-helper": {"version": "2"}}}}
    monkeypatch.setattr(pins, "load", lambda: dataclasses.replace(known, backends={**known.backends, "mine": mine}))
    runs = [record(job("deepspeed", 2)), record(job("int8", 2))]
    for run in runs:
        assert run.guest
        run.guest.environment["packages"] |= {"my-engine": "1", "its-helper": "2"}  # as another library may bring them

    def head() -> str:
        (group,) = row_groups.build(runs, articles.load_all())
        return str(provenance._versions(group)).splitlines()[0]

    assert "my-engine" not in head()
    runs[0] = dataclasses.replace(runs[0], job=dataclasses.replace(runs[0].job, backend="mine"))
    assert "| my-engine |" in head() and "its-helper" not in head()


def test_a_report_on_other_runs_leaves_out_an_article_with_a_mistake_and_says_so(mistaken, tmp_path, capsys):
    without = set(articles.load_all())
    mistaken()
    assert set(document._articles_for(tmp_path)) == without
    assert re.fullmatch(r"note: mine is left out: mine.toml: not TOML: .+\n", capsys.readouterr().err)
