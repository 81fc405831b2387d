"""A library that looks for garbage after each file of weights looks through the objects of the imports once, not each time."""

import gc
import sys
import types
import weakref

import pytest

from bench.models import pretrained


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.own = self


def passes_over_imports():
    """Are the objects of the imports frozen? Python 3.12 freezes some hundred of its own in each collection."""
    return gc.get_freeze_count() > 1000


def full_collections():
    return gc.get_stats()[-1]["collections"]


@pytest.fixture
def load(monkeypatch, tmp_path):
    """`load_model` with a library whose `from_pretrained` is the given function; nothing else of the process collects meanwhile."""
    (tmp_path / "model.safetensors").touch()
    job = types.SimpleNamespace(model={"path": str(tmp_path)}, load={"dtype": "float32"})

    def with_library(from_pretrained):
        model = types.SimpleNamespace(eval=lambda: "the model")
        library = types.SimpleNamespace(from_pretrained=lambda path, **arguments: from_pretrained() or model)
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(float32="float32"))
        monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__="4.43.4", AutoModelForCausalLM=library))
        return pretrained.load_model(job)

    gc.disable()
    yield with_library
    gc.enable()


def test_collections_while_a_model_loads_find_new_garbage_and_pass_over_old_objects(load):
    old, seen = weakref.ref(Cycle()), {}

    def from_pretrained():
        new = weakref.ref(Cycle())
        gc.collect()
        seen.update(looked_through=len(gc.get_objects()), passed_over=gc.get_freeze_count(), new_is_gone=new() is None, old_is_there=old() is not None)

    assert load(from_pretrained) == "the model"
    assert seen["new_is_gone"] and seen["old_is_there"] and seen["passed_over"] > 100 * seen["looked_through"]
    assert not passes_over_imports() and old() is None  # as the library's own collection would have left it


def test_objects_that_python_itself_keeps_frozen_change_nothing(load, monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)  # as in Python 3.12 at any time
    before, seen = len(gc.get_objects()), []
    load(lambda: seen.append(len(gc.get_objects())))
    assert seen[0] < before / 10


def test_a_library_that_collects_nothing_costs_no_collection(load):
    before = full_collections()
    load(lambda: None)
    assert full_collections() == before and not passes_over_imports()


def test_a_failed_load_leaves_no_object_passed_over(load):
    def fails():
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        load(fails)
    assert not passes_over_imports()
