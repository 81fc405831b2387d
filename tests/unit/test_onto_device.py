"""Weights that go straight onto a GPU: the model has to be as one that was moved there."""

import types

import pytest

from bench.models import pretrained


def test_a_model_that_kept_hooks_is_refused_for_they_would_be_timed(monkeypatch):
    hooked = types.SimpleNamespace(_hf_hook=None)
    model = types.SimpleNamespace(named_modules=lambda: [("lm_head", types.SimpleNamespace()), ("h.0", hooked), ("h.1", hooked)])
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: model)
    with pytest.raises(RuntimeError, match=r"loading onto cuda:0 left hooks on 2 modules, the first is 'h\.0'"):
        pretrained.straight(None, "cuda:0")


def test_a_model_loaded_straight_keeps_no_sign_of_it(monkeypatch):
    asked = []
    model = types.SimpleNamespace(named_modules=list, hf_device_map={"": "cuda:0"})
    monkeypatch.setattr(pretrained, "load_model", lambda job, **arguments: asked.append(arguments) or model)
    assert pretrained.straight(None, "cuda:0") is model and not hasattr(model, "hf_device_map")
    assert asked == [{"device_map": {"": "cuda:0"}}]
