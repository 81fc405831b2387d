"""From a case to a job: dtypes, prompts, references and the ids of runs."""

import dataclasses
import json

import pytest

from bench.job import to_json
from bench.models import weights
from scripts import articles, results
from scripts.pins import models
from scripts.results.machine_kind import MachineKind
from scripts.run import jobs
from tests import committed, synthetic
from tests.synthetic import record

ARTICLE = articles.find("inference-tools")
CASES = {case.name: case for case in ARTICLE.cases}


H200 = {"machine": {"cpu": "Xeon", "cpu_count": 16}, "gpus": [synthetic.gpu(0, "NVIDIA H200", 140)]}


def job_of(name, variant="published", batch_size=None, **changes):
    target = jobs.Target(**{"stack": "current", "device": "cuda", "device_count": 2, "weights": "random", "scale": "full", **changes})
    return jobs.measuring_job(ARTICLE, CASES[name], variant, target, jobs.Typed(batch_size))


def test_the_published_variant_keeps_the_articles_dtypes():
    assert {name: job_of(name).load["dtype"] for name in CASES if CASES[name].published or name in ("transformers", "bminf-int8")} == {
        "transformers": "float16",
        "layer-parallel": "float32",
        "tensor-parallel": "float32",
        "int8": "int8",
        "deepspeed": "float16",
        "bminf": "float32",
        "bminf-int8": "float16",
    }


def test_the_controlled_variant_has_one_dtype_and_both_lengths():
    assert {job_of(name, "controlled").load["dtype"] for name in CASES if name != "int8"} == {"float16"}
    assert [run["new_tokens"] for run in job_of("deepspeed", "controlled").runs] == [1, 128]


def test_the_published_variant_passes_the_articles_empty_generation_arguments():
    assert job_of("deepspeed").runs == [{"new_tokens": 1, "arguments": {}}]


def test_on_a_cpu_float16_becomes_float32():
    assert job_of("deepspeed", device="cpu").load["dtype"] == "float32"
    assert job_of("layer-parallel", "controlled", device="cpu").load["dtype"] == "float32"


def test_the_tolerance_is_that_of_the_dtype():
    assert job_of("layer-parallel").tolerance == articles.tolerances()["float32"]["value"]
    assert job_of("int8").tolerance == job_of("bminf-int8").tolerance == articles.tolerances()["int8"]["value"]


def test_real_weights_bring_their_own_tokenizer_and_length():
    assert job_of("deepspeed", weights="hub").prompt["tokens"] is None
    assert job_of("deepspeed").prompt["tokens"] == ARTICLE.prompt["tokens"]


def test_all_backends_of_a_stack_share_one_right_answer():
    assert jobs.reference_key(job_of("deepspeed")) == jobs.reference_key(job_of("layer-parallel"))
    assert jobs.reference_key(job_of("deepspeed")) != jobs.reference_key(job_of("deepspeed", "controlled"))
    assert jobs.reference_key(job_of("deepspeed")) != jobs.reference_key(job_of("deepspeed", stack="2023-02"))


def test_right_answers_and_readings_are_those_of_the_model_wherever_it_lies():
    there = job_of("deepspeed")
    for key in (jobs.reference_key, jobs.readings_key):
        assert key(dataclasses.replace(there, model={**there.model, "path": "/elsewhere"})) == key(there)
        assert key(dataclasses.replace(there, model={**there.model, "seed": 1})) != key(there)


def test_the_right_answer_is_plain_transformers_in_float32():
    asked = jobs.reference_job(job_of("deepspeed"))
    assert (asked.kind, asked.backend, asked.load) == ("reference", "transformers", {"dtype": "float32"})


def test_the_right_answer_is_of_one_sequence_whatever_the_batch_size_and_the_form():
    one, batch = job_of("deepspeed"), job_of("deepspeed", batch_size=8)
    assert batch.prompt["batch_size"] == 8
    assert jobs.reference_key(batch) == jobs.reference_key(one)
    assert jobs.reference_job(dataclasses.replace(batch, form="other", options={"items": 1})) == jobs.reference_job(one)


def test_a_batch_shows_in_the_runs_id_and_one_sequence_does_not():
    assert ".published.b8.current." in jobs.run_prefix(job_of("deepspeed", batch_size=8), "abc", "docker", H200)
    assert ".published.current." in jobs.run_prefix(job_of("deepspeed"), "abc", "docker", H200)


def test_a_form_and_options_come_from_the_case_over_the_variant():
    variants = {**ARTICLE.variants, "published": {**ARTICLE.variants["published"], "options": {"items": 1, "seed": 2}}}
    article = dataclasses.replace(ARTICLE, variants=variants)
    case = dataclasses.replace(CASES["deepspeed"], form="other", options={"items": 5})
    job = jobs.measuring_job(article, case, "published", jobs.Target("current", "cuda", 2, "random", "full"))
    assert (job.form, job.options) == ("other", {"items": 5, "seed": 2})


BATCHES = articles.find("batch-generate")


def batch_job(name, variant="controlled", scale="full", **changes):
    (case,) = [case for case in BATCHES.cases if case.name == name]
    return jobs.measuring_job(BATCHES, case, variant, jobs.Target("current", changes.pop("device", "cuda"), 1, "random", scale), jobs.Typed(**changes))


def test_the_articles_options_are_under_the_variants_and_those_under_the_cases():
    assert batch_job("batch").options["texts"] == "prompt"
    assert batch_job("batch", "published").options["texts"] == "workload"
    assert batch_job("single", "published").options["texts"] == "prompt"
    assert batch_job("batch").options["terminators"] == ["<|eot_id|>"]


def test_the_items_of_a_workload_are_as_typed_else_the_articles_else_few_for_a_tiny_model():
    assert batch_job("workload-naive").options["items"] == 10_000
    assert batch_job("workload-naive", scale="tiny").options["items"] == 300
    assert batch_job("workload-naive", scale="tiny", items=7).options["items"] == 7
    assert "items" not in batch_job("batch", items=7).options
    assert all("tiny_items" not in batch_job(case.name).options for case in BATCHES.cases)


def test_a_case_may_have_runs_of_its_own():
    assert [run["new_tokens"] for run in batch_job("padding").runs] == [64]
    assert [run["new_tokens"] for run in batch_job("batch").runs] == [256]


def test_a_tiny_model_makes_fewer_tokens_where_the_article_says_so():
    assert [run["new_tokens"] for name in ("batch", "padding") for run in batch_job(name, scale="tiny").runs] == [32, 32]
    assert "tiny_new_tokens" not in batch_job("batch", "published").runs[0]


def test_timed_calls_are_as_typed_else_the_articles():
    assert (batch_job("batch").timed_runs, batch_job("batch", timed_runs=1).timed_runs) == (5, 1)


def test_on_a_cpu_bfloat16_becomes_float32():
    assert (batch_job("batch").load["dtype"], batch_job("batch", device="cpu").load["dtype"]) == ("bfloat16", "float32")


def test_a_runs_id_tells_what_it_is_and_changes_with_what_decides_it():
    job = job_of("deepspeed")
    prefix = jobs.run_prefix(job, "abc", "docker", H200)
    assert prefix.startswith("inference-tools.deepspeed.published.current.random-full.cuda2.nvidia-h200.")
    assert jobs.run_prefix(job, "abd", "docker", H200) != prefix
    assert jobs.run_prefix(job, "abc", "host", H200) != prefix
    assert jobs.run_prefix(dataclasses.replace(job, timed_runs=3), "abc", "docker", H200) != prefix
    moved = dataclasses.replace(job, model={**job.model, "path": "/elsewhere"})
    assert jobs.run_prefix(moved, "abc", "docker", H200) == prefix


def test_random_weights_name_their_recipe_and_the_hubs_have_none():
    assert job_of("deepspeed").model["recipe"] == weights.RECIPE
    assert "recipe" not in job_of("deepspeed", weights="hub").model


def test_real_weights_name_their_pinned_commit_and_random_ones_what_the_first_results_named():
    commit = models.load()[ARTICLE.model["name"]].commit
    assert job_of("deepspeed", weights="hub").model["revision"] == commit and len(commit) == 40
    assert job_of("deepspeed").model["revision"] == "main"
    demo = articles.find("demo")
    assert jobs.measuring_job(demo, demo.cases[0], "controlled", jobs.Target("demo", "cpu", 1, "random", "tiny")).model["revision"] is None


def test_weights_of_another_recipe_are_another_measurement_with_readings_of_their_own():
    new = job_of("deepspeed")
    old = dataclasses.replace(new, model={key: value for key, value in new.model.items() if key != "recipe"})
    assert new.fingerprint() != old.fingerprint() and jobs.reference_key(new) != jobs.reference_key(old) and jobs.readings_key(new) != jobs.readings_key(old)


def test_rows_share_what_the_reference_read_whatever_they_ask_for():
    assert jobs.readings_key(job_of("deepspeed")) == jobs.readings_key(job_of("layer-parallel", "controlled", batch_size=4))


def test_8_bit_rows_are_judged_beside_plain_float16_or_float32_on_a_cpu():
    def plain(dtype, **changes):
        return jobs.judge_job(job_of("int8", **changes), dtype, {}).options["dtype"]

    assert (plain("int8"), plain("int8", device="cpu"), plain("bfloat16")) == ("float16", "float32", "bfloat16")


def stored_by_schema_1(runs, job, changed=(), seen=()):
    """A run of `job` as a kit of schema 1 stored it, on a machine of which the host saw this: with prose in its load, under an id of its own hash."""
    made = record(job)
    made = dataclasses.replace(made, host={**made.host, **dict(seen)})
    prefix = jobs.prefix_of(made)
    document = {**json.loads(to_json(made)), "schema": 1, "id": prefix.rpartition(".")[0] + ".0123456789ab-01", **dict(changed)}
    document["job"] |= {"schema": 1, "load": {**job.load, "dtype_origin": "stated: torch_dtype=torch.float16"}}
    (runs / document["id"]).mkdir(parents=True)
    (runs / document["id"] / "result.json").write_text(json.dumps(document))
    return prefix, document["id"]


def test_a_run_of_the_first_schema_counts_for_the_same_question_and_keeps_its_id(tmp_path):
    prefix, stored = stored_by_schema_1(tmp_path, job_of("deepspeed"))
    assert results.enough(prefix, 1, tmp_path, jobs.prefix_of).id == stored
    assert results.load(tmp_path / stored).job.load == job_of("deepspeed").load
    other = jobs.prefix_of(record(dataclasses.replace(job_of("deepspeed"), timed_runs=3)))
    assert results.enough(other, 1, tmp_path, jobs.prefix_of) is None


def test_a_failed_run_of_the_first_schema_is_tried_again(tmp_path):
    prefix, _ = stored_by_schema_1(tmp_path, job_of("deepspeed"), {"status": "failed", "reason": "died"}.items())
    assert results.enough(prefix, 1, tmp_path, jobs.prefix_of) is None


def test_a_stored_run_that_names_no_batch_size_hinders_nobody(tmp_path):
    job = job_of("deepspeed")
    prefix, _ = stored_by_schema_1(tmp_path, dataclasses.replace(job, prompt={"text": "x"}))
    assert results.enough(jobs.prefix_of(record(job)), 1, tmp_path, jobs.prefix_of) is None
    assert results.enough(prefix, 1, tmp_path, jobs.prefix_of) is not None


def test_the_prefix_of_a_stored_run_is_the_one_that_it_was_measured_under():
    made = record(job_of("deepspeed"))
    host = made.host
    assert jobs.prefix_of(made) == jobs.run_prefix(made.job, "", host["engine"], {"machine": host["machine"], "gpus": host["gpus"]})
    job = job_of("deepspeed", device="cpu")
    on_cpu = dataclasses.replace(made, job=job, host={**host, "gpus": [], "pins_id": "abc"})
    assert ".cpu2.cpu." in jobs.prefix_of(on_cpu) == jobs.run_prefix(job, "abc", "docker", {"machine": host["machine"], "gpus": []})


def machine_of(cpu="Xeon", cores=16, gpu="NVIDIA H200", gib=140, **more):
    """What a host sees of a machine with two GPUs."""
    return {"machine": {"cpu": cpu, "cpu_count": cores, **more}, "gpus": [synthetic.gpu(number, gpu, gib) for number in range(2)]}


def test_of_runs_that_an_earlier_kit_stored_the_latest_is_told(tmp_path):
    prefix, first = stored_by_schema_1(tmp_path, job_of("deepspeed"))
    _, second = stored_by_schema_1(tmp_path, job_of("deepspeed"), {"id": f"{first[:-2]}02"}.items())
    assert results.enough(prefix, 2, tmp_path, jobs.prefix_of).id == second


def test_of_runs_that_two_earlier_kits_stored_the_one_that_began_last_is_the_latest(tmp_path):
    fitted, out_of_memory = ({**record(job_of("deepspeed")).host, "started_at": f"2026-11-0{day}T00:00:00Z"} for day in (2, 1))
    prefix, newer = stored_by_schema_1(tmp_path, job_of("deepspeed"), {"host": fitted}.items())
    of_another_hash = f"{newer.rpartition('.')[0]}.ba9876543210-02"
    stored_by_schema_1(tmp_path, job_of("deepspeed"), {"id": of_another_hash, "host": out_of_memory, "status": "oom", "reason": "full"}.items())
    assert [run.id for run in results.ended(prefix, tmp_path, jobs.prefix_of)] == [newer, of_another_hash]
    assert results.enough(prefix, 1, tmp_path, jobs.prefix_of).status == "ok"


def test_memory_that_a_driver_tells_a_little_less_of_is_told_in_whole_gib():
    gpu = {"name": "NVIDIA H100", "memory_total_bytes": 85_520_809_984, "compute_capability": "9.0"}
    assert MachineKind.of({"gpus": [gpu]}, "cuda").device_facts == "80 GiB, compute capability 9.0"


@pytest.mark.parametrize("other", [{"cores": 64}, {"cpu": "EPYC"}, {"gib": 141}, {"gpu": "NVIDIA H100"}])
def test_a_run_on_another_kind_of_machine_stands_for_no_run_here(tmp_path, other):
    job = job_of("deepspeed")
    prefix, stored = stored_by_schema_1(tmp_path, job, seen=machine_of(**other))
    assert results.enough(prefix, 1, tmp_path, jobs.prefix_of).id == stored
    assert results.enough(jobs.run_prefix(job, "", "docker", machine_of()), 1, tmp_path, jobs.prefix_of) is None


def test_the_committed_runs_keep_their_ids_and_count_on_their_own_kind_of_machine_only():
    of_kinds = {MachineKind.of(run.host, run.job.device): run for run in committed.contained()}
    for run in of_kinds.values():
        assert run in results.ended(jobs.prefix_of(run), results.RUNS, jobs.prefix_of)
        more_cores = {**run.host, "machine": {**run.host["machine"], "cpu_count": 7}}
        prefix = jobs.run_prefix(run.job, run.host["pins_id"], run.host["engine"], more_cores)
        assert list(results.ended(prefix, results.RUNS, jobs.prefix_of)) == []


def test_two_nodes_of_one_kind_share_their_runs():
    job, node, next_node = job_of("deepspeed"), machine_of(memory_total_bytes=1 << 40), machine_of(memory_total_bytes=(1 << 40) + 4096, load_average_before=3.0)
    next_node["gpus"] = [{**gpu, "uuid": f"GPU-of-the-next-{number}", "index": number + 4} for number, gpu in enumerate(next_node["gpus"])]
    assert jobs.run_prefix(job, "abc", "docker", node) == jobs.run_prefix(job, "abc", "docker", next_node)


def test_where_no_machine_is_chosen_yet_a_row_has_one_prefix():
    prefix = jobs.run_prefix(job_of("deepspeed"), "abc", "docker", {})
    assert ".cuda2.." in prefix and prefix != jobs.run_prefix(job_of("deepspeed"), "abc", "docker", H200)
