"""The fastest system of each model: which rows the line names, and by what time."""

import dataclasses
import re

from scripts import articles, pins
from scripts.paths import ROOT
from scripts.report.views import fastest
from scripts.verdicts import row_groups
from tests.synthetic import job, record, repeated


def a_row(case, call_ms, batch_size=1, count=1, new_tokens=128, **asked):
    """A run of calls of so many new tokens."""
    of_job = job(case, count, new_tokens=(new_tokens,), **{"variant": "controlled", **asked})
    prompt = {**of_job.prompt, "batch_size": batch_size}
    return record(dataclasses.replace(of_job, prompt=prompt), call_ms, spread=0.0)


def lines_of(*records):
    """{batch size: {header of a column: its cell}}."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown(*records).splitlines() if line.startswith("|")]
    return {int(cells["batch"]): cells for cells in (dict(zip(lines[0], line, strict=True)) for line in lines[2:])}


def shown(*records):
    return str(fastest.section(row_groups.build(list(records), articles.load_all())))


def line_of(*records, batch_size=1):
    """(the fastest, ms/token, GPUs, systems, runs) in this batch size, without the page that the name leads to."""
    cells = lines_of(*records)[batch_size]
    name = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cells["fastest system"])
    return (name, *(cells[column] for column in ("ms/token", "GPUs", "systems compared", "runs")))


def elsewhere(*records, batch_size=1):
    """What stands behind the fastest row of this batch size: a row that is faster."""
    told = lines_of(*records)[batch_size].get("faster in another setting", "")
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", told)


def test_a_batch_of_128_is_the_largest_that_counts_and_its_time_is_over_all_its_tokens():
    records = a_row("deepspeed", 1280.0, 128), a_row("int8", 1280.0, 256)
    assert lines_of(*records).keys() == {128} and list(lines_of(*records, a_row("deepspeed", 1280.0))) == [1, 128]
    assert line_of(*records, batch_size=128) == ("▼ deepspeed", "0.078", "1", "1", "1")


def test_engines_that_the_kit_does_not_measure_are_named():
    assert "Engines without a backend of the kit, such as SGLang and TensorRT-LLM, are in no line." in shown(a_row("deepspeed", 1280.0))
    assert not {name.lower() for name in fastest.NOT_MEASURED} & set(pins.load().backends)


def test_below_the_table_stands_what_each_system_is():
    told = shown(a_row("deepspeed", 1280.0), a_row("layer-parallel", 1380.0), a_row("int8", 9000.0)).partition(f"{fastest.SYSTEMS}\n")[2].splitlines()
    assert [line.partition(": ")[0] for line in told] == ["    - deepspeed", "    - layer-parallel"], "a system that the table does not name needs no line"
    assert pins.load().backends["deepspeed"]["summary"] in told[0]


def test_the_systems_note_says_where_a_case_s_changes_stand_because_two_cases_of_a_backend_share_its_line():
    told = shown(a_row("deepspeed", 1280.0), a_row("layer-parallel", 1380.0))
    assert "*Its rows* on its article's page" in told and "the reference is plain transformers in float32" in told
    template = (ROOT / "scripts/report/templates/article.md.j2").read_text(encoding="utf-8")
    assert "## Its rows" in template


def test_a_system_that_is_called_like_a_word_of_the_table_needs_a_line_only_where_the_table_names_it():
    def of_batch(call_ms, batch_size):
        run = a_row("transformers", call_ms, batch_size)
        return dataclasses.replace(run, job=dataclasses.replace(run.job, case="batch"))

    fast = [a_row("deepspeed", 1280.0, 128), a_row("tensor-parallel", 1380.0, 128), a_row("deepspeed", 1280.0, 32), a_row("int8", 640.0, 32, stack="hopper")]
    assert "in batch 32 [int8]" in shown(*fast, of_batch(9000.0, 128)) and "    - batch: " not in shown(*fast, of_batch(9000.0, 128))
    assert "    - batch: " in shown(*fast, of_batch(1300.0, 128)), "it is the second fastest"
    compared = a_row("layer-parallel", 1280.0), a_row("deepspeed", 2560.0)
    assert "    - int8: " in shown(*compared, a_row("int8", 640.0, count=2, stack="hopper")), "it is faster elsewhere"


def test_a_system_of_a_backend_that_the_pins_no_longer_have_stands_with_the_backend_s_name():
    run = a_row("deepspeed", 1280.0)
    assert shown(dataclasses.replace(run, job=dataclasses.replace(run.job, backend="gone"))).endswith("\n    - deepspeed: gone")


def test_the_fastest_row_tells_its_share_of_the_memory_s_rate():
    fast = a_row("deepspeed", 1280.0)
    fast.guest.used["dtype"] = "float16"
    assert "% of nominal memory bandwidth" not in shown(fast), "the rate of this GPU is not known"
    fast.host["gpus"][0]["memory_bytes_per_s"] = 4e12
    # 14.14 GB of weights at 4 TB/s take 3.5 ms
    assert lines_of(fast)[1]["% of nominal memory bandwidth"] == "35"
    assert "100 % is the limit" in shown(fast)


def test_a_system_that_is_faster_in_a_smaller_batch_and_did_not_run_in_the_fastest_one_is_named():
    both = [a_row("deepspeed", 1280.0, 128), a_row("deepspeed", 1280.0, 32), a_row("deepspeed", 1280.0, 8)]
    assert (
        elsewhere(*both, a_row("int8", 640.0, 32, stack="hopper"), a_row("int8", 320.0, 8), batch_size=128)
        == "in batch 32 int8: 0.156, 1 run (deepspeed: 0.312, 1 run)"
    )
    assert elsewhere(*both, a_row("int8", 1290.0, 32), a_row("int8", 320.0, 8), batch_size=128) == "in batch 8 int8: 0.312, 1 run (deepspeed: 1.25, 1 run)"
    assert not elsewhere(*both, a_row("int8", 640.0, 32), a_row("int8", 1290.0, 128), batch_size=128), "it ran there, and is slower"
    assert not elsewhere(*both[:1], a_row("int8", 640.0, 32), batch_size=128), "both have to have run"
    single = [a_row(case, ms, stack="hopper") for case, ms in (("int8", 640.0), ("deepspeed", 1280.0))]
    assert not elsewhere(*both[:1], *single, batch_size=128), "one text is no batch"


def test_systems_on_another_number_of_gpus_are_not_alike():
    one, two = repeated(a_row("int8", 1280.0)), repeated(a_row("deepspeed", 1280.0, count=2))
    assert line_of(*one, *two)[0] in ("int8", "deepspeed")
    assert " or " in line_of(*one, *repeated(a_row("deepspeed", 1280.0)))[0]


def test_systems_that_are_compared_go_before_a_row_alone_whatever_its_weights():
    compared = [a_row(case, call_ms, recipe=1) for case, call_ms in (("int8", 2560.0), ("deepspeed", 2816.0))]
    assert line_of(a_row("int8", 1280.0), *compared) == ("▼ int8", "20.0", "1", "2", "1, recipe 1")


def test_a_setting_whose_fastest_row_has_five_runs_goes_before_one_with_more_systems_of_fewer_runs():
    measured = [*repeated(a_row("int8", 1280.0)), a_row("deepspeed", 2560.0)]
    looks = [a_row(case, 640.0, count=2, stack="hopper") for case in ("int8", "deepspeed", "tensor-parallel")]
    assert line_of(*measured, *looks) == ("▼ int8", "10.0", "1", "2", "5")
    assert line_of(*measured[:1], *measured[-1:], *looks)[3:] == ("3", "1"), "without such a row the fastest goes first"


def test_the_fastest_and_the_next_system_need_five_runs_and_a_slower_one_does_not():
    tested = [row for case, ms in (("int8", 1280.0), ("deepspeed", 1920.0)) for row in repeated(a_row(case, ms))]
    assert line_of(*tested, a_row("tensor-parallel", 2560.0)) == ("int8", "10.0", "1", "3", "5")
    assert line_of(*tested, a_row("tensor-parallel", 1600.0))[0] == "▼ int8"


def disturbed(runs):
    for run in runs:
        run.host["conditions"] = {"marks": ["busy"], "disturbed": ["busy"]}
    return runs


def test_five_runs_on_a_disturbed_machine_are_marked_and_go_behind_five_on_a_quiet_one():
    quiet, second = repeated(a_row("int8", 1280.0)), repeated(a_row("deepspeed", 2560.0))
    busy = [*disturbed(repeated(a_row("int8", 640.0, count=2, stack="hopper"))), a_row("deepspeed", 1920.0, count=2, stack="hopper")]
    assert line_of(*quiet, *second) == ("int8", "10.0", "1", "2", "5") and "disturbed" not in shown(*quiet, *second)
    assert line_of(*quiet, *second, *busy) == ("int8", "10.0", "1", "2", "5")
    assert elsewhere(*quiet, *second, *busy) == "int8: 5.00, 2 GPUs, 5 runs, disturbed"
    tested = repeated(a_row("int8", 896.0, count=4, stack="2024-06"))
    assert elsewhere(*quiet, *second, *busy, *tested) == "int8: 7.00, 4 GPUs, 5 runs; int8: 5.00, 2 GPUs, 5 runs, disturbed"
    assert line_of(*quiet, *disturbed(second))[0] == "▼ int8" and "× deepspeed, 5 runs, disturbed |" in shown(*quiet, *second)
    assert line_of(*disturbed(quiet), *second) == ("▼ int8", "10.0", "1", "2", "5, disturbed")
    assert "- *disturbed*: the machine was disturbed in each run of the row, so its time judges nothing and none of its runs counts;" in shown(*quiet)


def test_a_setting_with_the_fastest_row_goes_before_one_that_compares_more_systems():
    fast = [row for case in ("int8", "deepspeed") for row in repeated(a_row(case, 640.0))]
    many = [row for case in ("int8", "deepspeed", "tensor-parallel") for row in repeated(a_row(case, 1280.0, stack="hopper"))]
    assert line_of(*fast, *many)[1:] == ("5.00", "1", "2", "5")


def test_a_faster_row_of_another_setting_is_named_beside_the_fastest_of_the_setting():
    compared = [*repeated(a_row("int8", 1280.0)), a_row("deepspeed", 2560.0)]
    assert elsewhere(*compared, a_row("int8", 640.0, count=2, stack="hopper")) == "int8: 5.00, 2 GPUs, 1 run"
    assert elsewhere(*compared, a_row("int8", 1280.1, stack="hopper")) == "", "it is slower"
    assert elsewhere(*compared, a_row("int8", 640.0, stack="hopper", recipe=1)) == "", "its weights are earlier ones"
    assert elsewhere(*compared, a_row("int8", 6.4, stack="hopper", new_tokens=1)) == "", "its calls make one token"


def test_a_faster_row_of_one_run_does_not_hide_a_faster_row_of_five():
    compared = [*repeated(a_row("int8", 1280.0)), a_row("deepspeed", 2560.0)]
    two, four = repeated(a_row("int8", 768.0, count=2, stack="hopper")), a_row("int8", 640.0, count=4, stack="hopper")
    assert elsewhere(*compared, *two, four) == "int8: 6.00, 2 GPUs, 5 runs; int8: 5.00, 4 GPUs, 1 run"
    assert elsewhere(*compared, *two, *repeated(four)) == "int8: 5.00, 4 GPUs, 5 runs", "the fastest has five runs itself"
    slower = repeated(a_row("int8", 1281.0, count=2, stack="hopper"))
    assert elsewhere(*compared, *slower, four) == "int8: 5.00, 4 GPUs, 1 run", "five runs that are slower are no answer"


def test_several_answers_to_one_text_are_no_single_text_and_no_batch():
    several = a_row("deepspeed", 1280.0)
    several.guest.figures["pipeline"] = {"sequences": 4}
    assert lines_of(several, a_row("int8", 2560.0)).keys() == {1}
    assert line_of(several, a_row("int8", 2560.0)) == ("▼ int8", "20.0", "1", "1", "1")


def test_of_batches_those_that_make_further_tokens_go_first_then_those_with_later_weights():
    prompts, earlier = a_row("int8", 8.0, 8, new_tokens=1, variant="published"), a_row("int8", 2048.0, 8, recipe=1)
    assert line_of(prompts, earlier, batch_size=8) == ("▼ int8", "2.00", "1", "1", "1, recipe 1")
    assert line_of(prompts, earlier, a_row("int8", 4096.0, 8), batch_size=8) == ("▼ int8", "4.00", "1", "1", "1")
    assert line_of(prompts, batch_size=8)[1] == "1.00 with the prompt"


def test_models_of_one_shape_share_a_line_with_the_fastest_of_both():
    def told(*shapes):
        rows = [a_row("int8", 1280.0 * place, stack=stack) for place, (stack, _) in enumerate(zip(("current", "hopper", "2024-06"), shapes, strict=False), 1)]
        for row, shape in zip(rows, shapes, strict=True):
            row.job.model["shape"] = shape
        return [line for line in str(fastest.section(row_groups.build(rows, {}))).splitlines() if "SYNTHETIC" in line]

    (both, other) = told("bloomz-7b1", "bloom-7b1", "gpt-j-6B")
    assert both.startswith("| bloom-7b1 and bloomz-7b1 (one shape) |") and "| 10.0 |" in both and other.startswith("| gpt-j-6B |")
    assert "one shape" not in "".join(told("bloomz-7b1", "gpt-j-6B", "llama-3-8B") + told("bloomz-7b1", "a-new-one", "another"))


def test_a_workload_is_no_batch():
    workload = a_row("int8", 1.0, 8)
    workload.guest.figures["workload"] = {"items": 4, "new_tokens": 400, "seconds": 1.0}
    assert line_of(workload, a_row("deepspeed", 2048.0, 8), batch_size=8) == ("▼ deepspeed", "2.00", "1", "1", "1")


def test_two_names_in_a_cell_are_explained_where_a_cell_has_two():
    one = repeated(a_row("int8", 1280.0))
    assert "Two names in a cell" not in shown(*one)
    assert "Two names in a cell: 5 runs cannot tell them apart." in shown(*one, *repeated(a_row("deepspeed", 1280.0)))


def test_each_batch_has_a_line_unless_a_token_takes_longer_than_in_a_smaller_one():
    one, eight, sixteen, many = a_row("int8", 1280.0), a_row("int8", 1280.0, 8), a_row("deepspeed", 5120.0, 16), a_row("int8", 1280.0, 32)
    assert list(lines_of(one, eight, sixteen, many)) == [1, 8, 32], "in batch 16 a slower system ran alone"


def test_a_line_tells_by_how_much_the_fastest_leads_and_how_many_runs_the_next_system_has():
    def lead(*records):
        return lines_of(*records)[1].get("times as fast as the second (95 % interval)")

    fast, slow = repeated(a_row("int8", 1280.0), 5, 0.02), repeated(a_row("deepspeed", 2560.0), 5, 0.02)
    assert re.fullmatch(r"2\.00 \(1\.9\d to 2\.\d+\) × deepspeed, 5 runs", lead(*fast, *slow) or "")
    assert lead(*fast, *slow[:1]) is not None and "(" not in lead(*fast, *slow[:1]), "one run has no interval"
    assert lead(*fast) is None, "there is no other system"


def test_a_line_tells_the_tokens_of_prompt_and_answer_and_long_prompts_have_lines_of_their_own():
    short, long = a_row("int8", 2560.0), a_row("deepspeed", 1280.0, stack="hopper")
    long.guest.prompt_tokens = 4096
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown(short, long).splitlines() if line.startswith("|")][2:]
    assert [bool(cells[0]) for cells in lines] == [True, False], "the second line is of the same model and GPU"
    assert [cells[3] for cells in lines] == [f"{short.guest.prompt_tokens} + 128", "4096 + 128"]
    assert "deepspeed" in lines[0][8], "it is faster even with the long prompt"
    short.guest.prompt_tokens, long.guest.prompt_tokens = 4096, 6
    assert elsewhere(short, long) == "", "a row with a short prompt is no answer to the question of a long one"
