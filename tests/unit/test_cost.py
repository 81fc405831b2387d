"""What a run costs beside its timed calls, from the stamps in its record."""

import dataclasses

from scripts.run import cost
from tests import synthetic


def stamped():
    """A run that began at 1000 s and took 12 s, with a second between its loading and its calls."""
    record = synthetic.record(synthetic.job("int8"))
    host = {**record.host, "began": 1000.0, "wall_s": 12.0, "prepare_s": 0.25, "container_s": 0.75, "judge_s": 0.5}
    phases = {"check": [1009.5, 1010.0], "import": [1001.0, 1004.0], "load": [1004.0, 1006.0], "measure": [1007.0, 1009.5]}
    return dataclasses.replace(record, host=host, guest=dataclasses.replace(record.guest, phases=phases))


def test_every_second_that_is_no_timed_call_belongs_to_a_part_in_the_order_in_which_it_happens():
    parts = cost.beside_calls(stamped())
    assert list(parts.items()) == [
        ("prepare", 0.25),
        ("container", 0.75),
        ("start", 1.0),
        ("import", 3.0),
        ("load", 2.0),
        ("check", 0.5),
        ("other", 1.0),
        ("end", 2.0),
        ("judge", 0.5),
    ]
    assert sum(parts.values()) == 0.25 + 0.75 + 12.0 + 0.5 - cost.calls_s(stamped())


def test_the_calls_of_a_profile_are_calls():
    record = stamped()
    record.guest.phases["profile"] = record.guest.phases.pop("measure")
    assert cost.calls_s(record) == 2.5 and cost.beside_calls(record)["other"] == 1.0


def test_the_line_names_the_parts_that_show():
    record = stamped()
    record.host["container_s"] = 0.01
    assert cost.line(record) == "10.3 s beside the calls (2.5 s): prepare 0.2, start 1.0, import 3.0, load 2.0, check 0.5, other 1.0, end 2.0, judge 0.5"


def test_a_run_without_stamps_has_no_line_and_no_time():
    record = synthetic.record(synthetic.job("int8"))
    del record.host["wall_s"]
    assert cost.whole_s(record) is None and cost.line(dataclasses.replace(record, guest=None)) == ""


def test_the_whole_of_a_run_is_what_the_next_one_takes_too():
    assert cost.whole_s(stamped()) == 12.0 + 0.75 + 0.5


def test_a_phase_that_a_guest_made_up_shows_no_name():
    record = stamped()
    record.guest.phases["\x1b[2J"] = record.guest.phases.pop("load")
    assert "\x1b" not in cost.line(record) and cost.beside_calls(record)["other"] == 3.0


def test_a_clock_that_was_set_back_makes_no_part_negative():
    record = stamped()
    record.host["began"] = 1005.0
    assert cost.beside_calls(record)["start"] == 0.0
