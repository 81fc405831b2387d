"""What an environment page tells of the article's setting beside that of its rows, on the real pins."""

import dataclasses

import pytest

from scripts import articles
from scripts.report.views import article_setting, provenance
from scripts.verdicts import row_groups
from tests.synthetic import job, record

FIRST = articles.find("inference-tools")
SECOND = articles.find("deepspeed-inference")


def run(case, count=1, installed=None, **typed):
    """A run that tells no version, so that its image's lock counts, or these packages."""
    one = record(job(case, count, **typed))
    one.guest.environment.update({"packages": installed or {}, "python": None, "torch": {}})
    return one


def group_of(*records):
    (group,) = row_groups.build(list(records), articles.load_all())
    return group


def told(article, *records, between_gpus=()):
    """{what: (the article's, these rows')} and the text around the table."""
    text = str(article_setting.section(group_of(*records), article, between_gpus))
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {what: (theirs, ours) for what, theirs, ours in lines[2:]}, text


def test_the_port_of_the_first_article_s_stack_differs_in_what_a_reader_should_know() -> None:
    found, text = told(FIRST, run("int8", stack="hopper"), run("deepspeed", 2, stack="hopper"))
    assert found["GPUs"] == ("1 and 2 × NVIDIA GeForce RTX 3090", "1 and 2 × SYNTHETIC GPU")
    assert found["weights"] == ("bigscience/bloomz-7b1-mt", "random (recipe 2) weights")
    versions = {"Python": ("3.8", "3.11"), "torch": ("1.13.1", "2.1.2"), "bitsandbytes": ("0.37.0", "0.45.0"), "numpy": ("1.24.2", "1.24.4")}
    assert {name: found[name] for name in versions} == versions
    assert found["base image"] == ("python:3.8-slim-bookworm", "python:3.11-slim-bookworm")
    assert found["nvidia-curand-cu11"] == ("10.2.10.91", "not installed"), "one side alone has it"
    assert "settings between GPUs" not in found and not {"transformers", "deepspeed"} & set(found)
    assert (
        text.splitlines()[-1].startswith("All else that is pinned for these backends is equal: transformers 4.26.0")
        and "deepspeed 0.7.7" in text.splitlines()[-1]
    )
    assert "These rows ran on hopper, a port of it to a newer torch." in text


def test_rows_on_the_article_s_own_stack_gpus_and_weights_differ_in_nothing() -> None:
    one = run("deepspeed", 2, stack="2023-02", weights="hub")
    for gpu in one.host["gpus"]:
        gpu["name"] = "NVIDIA GeForce RTX 3090"
    found, text = told(FIRST, one)
    assert not found and "These rows ran on the same stack." in text and "All that is pinned for these backends is equal: torch 1.13.1" in text


def test_versions_that_a_run_found_go_before_the_pins() -> None:
    installed = {"torch": "9.9.9+cu999", "Bitsandbytes": "0.37.0", "numpy": "1.24.2"}
    found, _ = told(FIRST, run("int8", stack="hopper", installed=installed))
    assert found["torch"] == ("1.13.1", "9.9.9") and found["transformers"] == ("4.26.0", "not installed")
    assert not {"numpy", "bitsandbytes"} & set(found)
    assert "nvidia-ml-py" in told(FIRST, run("deepspeed", 2))[0]
    assert "nvidia-ml-py" not in told(FIRST, run("deepspeed", 2, installed=installed))[1], "what no side has"


def test_a_version_that_only_some_rows_have_names_their_cases() -> None:
    found, _ = told(FIRST, run("int8"), run("deepspeed", 2), run("tensor-parallel", 2))
    assert "transformers" not in found
    assert found["transformers (tensor-parallel, deepspeed)"][0] == found["transformers (int8)"][0] == "4.26.0"


def test_a_backend_that_the_article_s_stack_lacks_stands_beside_that_stack_s_own_pins() -> None:
    one = run("vllm-fp16", article="deepspeed-inference")
    found, _ = told(SECOND, dataclasses.replace(one, job=dataclasses.replace(one.job, backend="vllm")))
    assert found["vllm"][0] == "not installed" and found["vllm"][1][0].isdigit() and found["torch"][0] == "2.0.1"


def test_base_images_that_are_stand_ins_and_settings_between_gpus_are_told() -> None:
    real, stand_in = run("int8", stack="hopper"), run("deepspeed", 2, stack="hopper")
    stand_in.host["image"]["stand_in"] = True
    found, _ = told(FIRST, stand_in, between_gpus=["NCCL_P2P_DISABLE=1"])
    assert found["base image"][1] == "a stand-in for python:3.11-slim-bookworm" and found["settings between GPUs"] == ("not told", "`NCCL_P2P_DISABLE=1`")
    assert told(FIRST, real, stand_in)[0]["base image"][1] == "python:3.11-slim-bookworm, for some rows a stand-in"
    real.host["engine"] = "host"
    assert told(FIRST, real)[0]["base image"][1] == "none, without containers"


def test_rows_of_another_variant_and_of_other_numbers_of_calls_and_texts_are_told() -> None:
    def with_job(one, **changes):
        return dataclasses.replace(one, job=dataclasses.replace(one.job, **changes))

    found, _ = told(FIRST, run("deepspeed", 2, variant="controlled"))
    assert found["variant"] == ("published", f"controlled: {FIRST.variants['controlled']['note']}")
    of_published = run("deepspeed", 2), with_job(run("int8"), timed_runs=1)
    found, _ = told(FIRST, *of_published)
    assert "variant" not in found and found["timed calls of a run (int8)"] == ("10", "1")
    assert not [what for what in told(FIRST, of_published[0])[0] if what.startswith(("timed calls", "texts"))]
    third = articles.find("batch-generate")
    workload = run("workload-naive", article="batch-generate", variant="controlled")
    found, _ = told(third, with_job(workload, options={"items": 1000}, timed_runs=third.protocol_of(third.case("workload-naive"))["timed_runs"]))
    assert found["texts of a workload (workload-naive)"] == ("10,000", "1,000")


def test_an_article_that_names_no_gpu_and_a_stack_that_the_kit_no_longer_has_leave_dashes() -> None:
    found, _ = told(dataclasses.replace(FIRST, hardware=None), run("int8", stack="of-old"))
    assert found["GPUs"] == ("—", "1 × SYNTHETIC GPU") and found["Python"] == ("3.8", "—") and found["torch"] == ("1.13.1", "—")
    assert found["base image"] == ("python:3.8-slim-bookworm", "—")


@pytest.mark.parametrize("slug", ["demo", "calibration"])
def test_what_made_no_claims_has_no_such_table(slug: str) -> None:
    article = articles.find(slug)
    assert not article_setting.is_told(article) and not told(article, run("int8"))[1]


def test_the_table_stands_near_the_top_of_the_environment_page() -> None:
    group = group_of(run("deepspeed", 2, stack="hopper"))
    page = str(provenance.environment(group, FIRST))
    assert page.index(f'<a id="{article_setting.place(group)}"></a>') < page.index("- Processor: ") < page.index("| case | GPUs | Python |")
