"""What `generate` of the oldest and of the newest transformers of the pins takes, on stand-ins with their rules."""

import types

import pytest

from bench.models import generate_arguments


class Config426:
    """Of 4.26.0: what it knows are attributes of an object, and any other name is kept in silence where it is given."""

    def __init__(self, **given):
        self.do_sample, self.num_beams, self.max_new_tokens, self._from_model_config = False, 1, None, False
        vars(self).update(given)


class Config517(Config426):
    def __init__(self, **given):
        super().__init__(min_p=None, **given)


class Mixin426:
    def generate(self, inputs=None, generation_config=None, synced_gpus=False, **kwargs):
        raise AssertionError("a question is no call")


class Mixin517:
    def generate(self, inputs=None, generation_config=None, synced_gpus=None, streamer=None, *, custom_generate=None, **kwargs):
        raise AssertionError("a question is no call")


class Pipeline:
    def _sanitize_parameters(self, return_full_text=None, **generate_kwargs):
        raise AssertionError("a question is no call")


OLDEST = types.SimpleNamespace(__version__="4.26.0", GenerationConfig=Config426, GenerationMixin=Mixin426, TextGenerationPipeline=Pipeline)
NEWEST = types.SimpleNamespace(__version__="5.17.0", GenerationConfig=Config517, GenerationMixin=Mixin517, TextGenerationPipeline=Pipeline)


def said(library, name, pipeline=False):
    """What a job is refused with whose second run has this argument, or ""."""
    runs = [{"new_tokens": 1, "arguments": {"do_sample": False}}, {"new_tokens": 4, "arguments": {"num_beams": 1, name: 1}}]
    try:
        generate_arguments.check(types.SimpleNamespace(runs=runs), library, pipeline)
    except generate_arguments.UnknownArgument as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "oldest", "newest"),
    [
        ("max_new_tokens", True, True),
        ("synced_gpus", True, True),
        ("min_p", False, True),
        ("custom_generate", False, True),
        ("max_new_token", False, False),
        ("kwargs", False, False),
        ("self", False, False),
        ("_from_model_config", False, False),
        ("return_full_text", False, False),
    ],
)
def test_an_argument_is_known_where_the_library_has_it(name, oldest, newest):
    assert (said(OLDEST, name) == "", said(NEWEST, name) == "") == (oldest, newest)


def test_the_refusal_names_version_argument_and_what_may_be_meant():
    assert said(OLDEST, "max_new_token") == "generate of transformers 4.26.0 knows no argument 'max_new_token'; did you mean 'max_new_tokens'?"
    assert said(OLDEST, "xyz") == "generate of transformers 4.26.0 knows no argument 'xyz'; allowed are the names in its GenerationConfig"


def test_a_pipeline_has_arguments_of_its_own_beside_those_of_generate():
    assert said(NEWEST, "return_full_text", pipeline=True) == said(NEWEST, "min_p", pipeline=True) == ""
    assert "'return_full_texts'" in said(NEWEST, "return_full_texts", pipeline=True)
