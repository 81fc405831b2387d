"""The line that the report gives for a row asks for the very job that was measured."""

import dataclasses
import shlex

import pytest

from scripts import articles, paths
from scripts.report import rerun_command
from scripts.run import jobs, plan, runner
from tests import committed
from tests.synthetic import job, record
from tests.typed import chosen

KNOWN = articles.load_all()
STORED = committed.every()
JOBS = {one.job.fingerprint(): one for one in STORED}


def loaded_now(one):
    """The job with the backend and what its case loads with, as its article stands now."""
    article = KNOWN[one.article]
    case = article.case(one.case)
    return dataclasses.replace(one, backend=case.backend, load=article.load_of(case, one.variant, one.device))


def loading(one):
    return one.backend, one.deciding_load()


#: Jobs of a case that loads in another way since, or in another image: no line asks for these.
FORMER = {name: one for name, one in JOBS.items() if loading(one.job) != loading(loaded_now(one.job))}


def asked_again(one):
    """The job that the line of a result asks for."""
    typed = rerun_command.variables(one, KNOWN[one.job.article])
    asked = chosen(**typed)
    (planned,) = plan.plan([one.job.backend], asked, every=False)
    sizes = plan.batch_sizes_of(planned.article, planned.case, planned.variant, asked)
    (size,) = sizes
    target = jobs.Target(planned.stack, asked.device, asked.gpus, asked.weights, asked.scale)
    wanted = jobs.measuring_job(planned.article, planned.case, planned.variant, target, jobs.Typed(size, asked.items, asked.timed_runs))
    return jobs.profile_job(wanted, asked.profiler) if one.job.kind == "profile" else wanted


def with_checks_of(stored, wanted):
    """The wanted job with the stored one's recipe of random weights and tolerance: a result from before recipe 2 is asked for again with the newest ones."""
    model = {key: value for key, value in wanted.model.items() if key != "recipe" or key in stored.model}
    return dataclasses.replace(wanted, model=model, tolerance=stored.tolerance)


def test_a_run_whose_case_loads_in_another_way_since_says_so():
    assert {one.job.backend for one in FORMER.values()} == {"compiled", "layer-parallel", "int8", "transformers"}
    for one in FORMER.values():
        shown = rerun_command.shown(one, KNOWN[one.job.article])
        if one.job.backend == "transformers":
            assert one.job.case == "fusion-compile" and shown.startswith("`make bench-compiled ")
            assert shown.endswith("(this run used the backend transformers; its case now says compiled)")
            continue
        if one.job.backend != "compiled":
            if one.job.device_count == 1:  # a profile of the map that was named first: its fingerprint has it, and no other map would have made a difference
                assert one.job.kind == "profile" and "its case now says" not in shown
                continue
            assert r"(this run loaded with device\_map balanced\_low\_0; its case now says device\_map auto)" in shown
            continue
        assert f"(this run loaded with {'attention not given, ' if one.job.case == 'batch-compiled' else ''}products" in shown
        (now,) = {case.load["products"] for case in KNOWN[one.job.article].cases if case.name == one.job.case}
        assert f"products {now}" in shown.partition("its case now says")[2]
    same = next(one for name, one in JOBS.items() if name not in FORMER)
    assert rerun_command.shown(same, KNOWN[same.job.article]).endswith(" RUNS=../mine/runs`")


@pytest.mark.slow
@pytest.mark.parametrize("one", [one for name, one in JOBS.items() if name not in FORMER], ids=lambda one: one.id)
def test_every_committed_result_can_be_asked_for_again(one):
    assert with_checks_of(one.job, asked_again(one)).fingerprint() == one.job.fingerprint()


def test_the_line_can_be_typed():
    line = rerun_command.line(record(job("deepspeed", 2)), KNOWN["inference-tools"])
    assert line == "make bench-deepspeed ARTICLE=inference-tools VARIANT=published STACK=current WEIGHTS=random CASES=deepspeed GPUS=2 RUNS=../mine/runs"


def test_what_the_line_measures_mixes_with_no_committed_result():
    for one in {(one.job.stack, one.host["engine"], one.job.kind): one for one in STORED}.values():
        typed = rerun_command.variables(one, KNOWN[one.job.article])
        folder = chosen(**typed).runs.resolve()
        assert "FORCE" not in typed and not folder.is_relative_to(paths.ROOT), one.id


@pytest.mark.parametrize("named", [{}, {"batch_size": None}, {"batch_size": 1}])
def test_an_old_job_that_names_no_batch_size_made_calls_of_one_sequence(named):
    asked = job("deepspeed", 2)
    prompt = {name: value for name, value in asked.prompt.items() if name != "batch_size"} | named
    assert "BATCH_SIZES" not in rerun_command.line(record(dataclasses.replace(asked, prompt=prompt)), KNOWN["inference-tools"])


def test_a_batch_size_that_the_article_does_not_time_is_typed():
    asked = job("deepspeed", 2)
    in_batches = dataclasses.replace(asked, prompt={**asked.prompt, "batch_size": 8})
    assert " BATCH_SIZES=8 " in rerun_command.line(record(in_batches), KNOWN["inference-tools"])


def test_a_profile_is_asked_for_by_its_own_verb():
    profiled = dataclasses.replace(job("deepspeed", 2), kind="profile", options={"profiler": "nsys"})
    line = rerun_command.line(record(profiled), KNOWN["inference-tools"])
    assert line.startswith("make profile-deepspeed ARTICLE=inference-tools") and " PROFILER=nsys " in line


def test_a_row_of_a_cpu_says_so():
    line = rerun_command.line(record(job("int8", device="cpu", scale="tiny")), KNOWN["inference-tools"])
    assert "SCALE=tiny DEVICE=cpu" in line


def test_the_rest_of_a_table_without_containers_names_an_interpreter_for_each_backend():
    one = record(job("ds-inference", 8, article="deepspeed-inference"))
    one.host["engine"] = "host"
    typed = "VARIANT=published STACK=current WEIGHTS=random CASES=ds-zero GPUS=2 ENGINE=host PYTHON_HOST='/path/to/{backend}/bin/python3'"
    assert rerun_command.rest_of_table(one, KNOWN["deepspeed-inference"], ["ds-zero"], 2) == f"make article-deepspeed-inference {typed}"


@pytest.mark.parametrize("engine", ["podman", "apptainer", "pyxis"])
def test_a_row_of_another_engine_of_containers_names_it(engine):
    one = record(job("deepspeed", 2))
    one.host["engine"] = engine
    assert rerun_command.line(one, KNOWN["inference-tools"]).endswith(f" ENGINE={engine} RUNS=../mine/runs")
    assert rerun_command.rest_of_table(one, KNOWN["inference-tools"], ["deepspeed"], 2).endswith(f" GPUS=2 ENGINE={engine}")


def commands_for_claims():
    """{page: the command below its table of claims} of the committed reports."""
    pages = [*(paths.ROOT / "reports").glob("*.md"), *(paths.ROOT / "reports/without-containers").glob("*.md")]
    return {
        page.name: line.split("`")[1] for page in pages for line in page.read_text().splitlines() if line.startswith("- `make article-") and "CLAIMS=" in line
    }


def test_a_command_below_the_claims_of_a_page_measures_each_row_that_they_compare_on_its_gpus():
    found = commands_for_claims()
    assert found
    for page, command in found.items():
        _, target, *words = shlex.split(command)
        typed = dict(word.split("=", 1) for word in words)
        article = KNOWN[target.removeprefix("article-")]
        asked = chosen(ARTICLE=article.slug, **{name: value for name, value in typed.items() if name != "PYTHON_HOST"})
        planned = plan.plan(list(dict.fromkeys(case.backend for case in article.cases)), asked, every=True)
        of_case = {one.case.name: (plan.sizes_and_sized(one, asked)[0], runner.device_count(one, asked)) for one in planned}
        for case, sizes in article.rows_of_claims(asked.claims).items():
            planned_sizes, count = of_case[case]
            assert count == min(article.case(case).gpus, int(typed.get("GPUS", "99"))), (page, case)
            assert None in sizes or set(planned_sizes) == sizes, (page, case)
