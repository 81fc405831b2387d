"""Weights in pickles: converted without running them, to the same tensors, which from_pretrained loads as it loads the pickles."""

import json
import os
import pickle
import re
from pathlib import Path

import pytest

from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job

#: What each line of a test's code may use.
BEFORE = """
import json, os, torch, transformers
from safetensors.torch import load_file
from bench.models import pickles
source, target = {source!r}, {target!r}
def loaded(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
def same(left, right):
    left, right = left.state_dict(), right.state_dict()
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) and left[name].dtype == right[name].dtype for name in left)
def weights_of(folder):
    return load_file(folder + "/model.safetensors")
"""


@pytest.fixture
def folders(tmp_path):
    """The folder of the pickles, and the empty folder of the conversion."""
    source, target = tmp_path / "pickles", tmp_path / "safetensors"
    source.mkdir()
    target.mkdir()
    return source, target


def run(guest, folders, code):
    source, target = map(str, folders)
    return guest.code(BEFORE.format(source=source, target=target) + code)


def with_config_of(checkpoint, folders, **changes):
    config = json.loads((checkpoint / "config.json").read_text())
    for folder in folders:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))


def convert(guest, folders):
    source, target = folders
    job = tiny_job("bloom", source, kind="convert", runs=[], options={"into": str(target)})
    return guest.run(job)


PICKLED = "state = weights_of({checkpoint!r}); "


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_every_stack_s_loader_gets_the_model_that_the_pickle_holds(guest, checkpoints, folders, architecture):
    with_config_of(checkpoints[architecture], folders)
    run(guest, folders, PICKLED.format(checkpoint=str(checkpoints[architecture])) + "torch.save(state, source + '/pytorch_model.bin'); print(0)")
    result = convert(guest, folders)
    assert result.status == "ok", result.reason
    assert result.used["files"] == 1 and result.used["tied"] == []
    code = (
        "(a, told), (b, _) = loaded(target), loaded(source); "
        "print(json.dumps([same(a, b), sorted(map(str, [*told['unexpected_keys'], *told['mismatched_keys']]))]))"
    )
    assert run(guest, folders, code) == [True, []]


def test_dtype_bits_and_shape_of_every_tensor_stay(guest, checkpoints, folders):
    """Also of what is no number, of a tensor without dimensions, of one that lies in memory the other way round, and of a part of a larger one."""
    with_config_of(checkpoints["gptj"], folders)
    odd = (
        "state = {'half': torch.tensor([1.5, float('nan'), -0.0]).half(), 'b': torch.ones(3, 3, dtype=torch.bfloat16), 'mask': torch.ones(2, 2).bool(), "
        "'scalar': torch.tensor(-1e9), 'turned': torch.arange(6.).reshape(2, 3).t(), 'part': torch.arange(10)[3:5], 'empty': torch.zeros(0, 4)}; "
    )
    run(guest, folders, odd + "torch.save(state, source + '/pytorch_model.bin'); print(0)")
    assert convert(guest, folders).status == "ok"
    code = odd + (
        "made = weights_of(target); bits = lambda t: t.contiguous().reshape(-1).view(torch.uint8).tolist(); "
        "print(json.dumps([sorted(made) == sorted(state), all(made[n].dtype == t.dtype and made[n].shape == t.shape and bits(made[n]) == bits(t) for n, t in state.items())]))"
    )
    assert run(guest, folders, code) == [True, True]


@pytest.mark.parametrize(("tied", "left_out"), [(True, ["lm_head.weight"]), (False, [])])
@pytest.mark.parametrize("prefix", ["transformer.", ""], ids=["whole names", "names of the body"])
def test_a_shared_tensor_is_kept_once_where_the_code_ties_it_and_twice_where_it_does_not(guest, checkpoints, folders, tied, left_out, prefix):
    with_config_of(checkpoints["bloom"], folders, tie_word_embeddings=tied)
    shared = (
        PICKLED.format(checkpoint=str(checkpoints["bloom"]))
        + f"state = {{(n.replace('transformer.', {prefix!r})): t for n, t in state.items()}}; state['lm_head.weight'] = state[{prefix!r} + 'word_embeddings.weight']; "
    )
    run(guest, folders, shared + "torch.save(state, source + '/pytorch_model.bin'); print(0)")
    result = convert(guest, folders)
    assert (result.status, result.used["tied"]) == ("ok", left_out), result.reason
    code = "(a, _), (b, _) = loaded(target), loaded(source); print(json.dumps([same(a, b), 'lm_head.weight' in weights_of(target)]))"
    assert run(guest, folders, code) == [True, not tied]


SHARDED = (
    (
        "names = sorted(state); parts = {{'pytorch_model-00001-of-00002.bin': names[:9], 'pytorch_model-00002-of-00002.bin': names[9:]}}; "
        "[torch.save({{n: state[n] for n in part}}, source + '/' + file) for file, part in parts.items()]; "
        "json.dump({{'metadata': {{}}, 'weight_map': {{n: f for f, part in parts.items() for n in part}}}}, open(source + '/pytorch_model.bin.index.json', 'w')); print(0)"
    )
    .replace("{{", "{")
    .replace("}}", "}")
)


def test_several_pickles_become_as_many_files_with_an_index(guest, checkpoints, folders):
    with_config_of(checkpoints["llama"], folders)
    run(guest, folders, PICKLED.format(checkpoint=str(checkpoints["llama"])) + SHARDED)
    result = convert(guest, folders)
    assert (result.status, result.used["files"]) == ("ok", 2), result.reason
    index = json.loads((folders[1] / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert index["metadata"]["total_size"] == result.used["bytes"] and len(index["weight_map"]) == result.used["tensors"]
    assert run(guest, folders, "(a, told), (b, _) = loaded(target), loaded(source); print(json.dumps([same(a, b), sorted(told['missing_keys'])]))") == [
        True,
        [],
    ]


def test_a_pickle_of_torch_before_1_6_is_converted_too(guest, checkpoints, folders):
    with_config_of(checkpoints["gptj"], folders)
    code = "state = {'a': torch.arange(4.)}; torch.save(state, source + '/pytorch_model.bin', _use_new_zipfile_serialization=False); print(0)"
    run(guest, folders, code)
    assert convert(guest, folders).status == "ok"
    assert run(guest, folders, "print(json.dumps(weights_of(target)['a'].tolist()))") == [0.0, 1.0, 2.0, 3.0]


# ---------------------------------------------------------------- what is refused
class Runs:
    """A pickle of it runs a command when it is read without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pickle_is_refused_and_does_not_run(guest, checkpoints, folders, tmp_path):
    with_config_of(checkpoints["gptj"], folders)
    hostile, ran = pickle.dumps({"weight": Runs(tmp_path / "ran")}, protocol=2), tmp_path / "ran"
    (folders[0] / "pytorch_model.bin").write_bytes(hostile)
    result = convert(guest, folders)
    assert result.status == "failed" and "pytorch_model.bin is refused" in result.reason and "\n" not in result.reason
    assert not ran.exists() and not list(folders[1].glob("*.safetensors"))
    pickle.loads(hostile)
    assert ran.exists(), "the pickle of this test has to be hostile"


def test_a_hostile_pickle_in_torch_s_own_format_names_what_it_wanted_to_call(guest, checkpoints, folders, tmp_path):
    with_config_of(checkpoints["gptj"], folders)
    code = (
        "import os\nclass Runs:\n    def __reduce__(self):\n"
        f"        return os.system, ('touch {tmp_path}/ran',)\n"
        "torch.save({'weight': Runs()}, source + '/pytorch_model.bin'); print(0)"
    )
    run(guest, folders, code)
    result = convert(guest, folders)
    assert result.status == "failed" and re.search(r"pytorch_model.bin is refused: .*(posix|os)\.system", result.reason)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{'model': {'a': torch.ones(1)}}", "holds 'model' of type dict; allowed are dense tensors by name"),
        ("{'a': torch.ones(3).to_sparse()}", "holds 'a' of type Tensor; allowed are dense tensors by name"),
        ("[torch.ones(1)]", "holds data of type list; allowed are tensors by name"),
        ("{}", "holds nothing of type dict; allowed are tensors by name"),
        ("{'a': torch.ones(1).expand(10**6)}", "bytes and its tensors 4,000,000; allowed are 2 times the bytes of the file"),
        ("(lambda a: {str(i): a for i in range(50)})(torch.ones(10**5))", "bytes and its tensors 20,000,000; allowed are 2 times the bytes of the file"),
    ],
)
def test_a_pickle_of_anything_but_tensors_by_name_is_refused(guest, checkpoints, folders, content, words):
    with_config_of(checkpoints["gptj"], folders)
    run(guest, folders, f"torch.save({content}, source + '/pytorch_model.bin'); print(0)")
    result = convert(guest, folders)
    assert result.status == "failed" and words in result.reason


def test_a_damaged_pickle_and_a_missing_one_are_named(guest, checkpoints, folders):
    with_config_of(checkpoints["gptj"], folders)
    run(guest, folders, "state = {'a': torch.ones(4), 'b': torch.ones(4)}; " + SHARDED.replace("[:9]", "[:1]").replace("[9:]", "[1:]"))
    second = folders[0] / "pytorch_model-00002-of-00002.bin"
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    assert "pytorch_model-00002-of-00002.bin is refused" in convert(guest, folders).reason
    second.unlink()
    for made in folders[1].glob("model*"):
        made.unlink()
    assert "pytorch_model.bin.index.json names pytorch_model-00002-of-00002.bin; allowed are the files beside it" in convert(guest, folders).reason


def test_a_tensor_in_two_files_is_refused(guest, checkpoints, folders):
    with_config_of(checkpoints["gptj"], folders)
    run(guest, folders, "state = {'a': torch.ones(4), 'b': torch.ones(4)}; " + SHARDED.replace("[:9]", "[:2]").replace("[9:]", "[1:]"))
    assert "both hold b; only one file may hold a tensor" in convert(guest, folders).reason


# ---------------------------------------------------------------- what a system wrote
PIECES = """
import json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from bench.models import token_texts
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
raw = Tokenizer(models.BPE(vocab={{c: n for n, c in enumerate(alphabet)}}, merges=[]))
raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw)
print(json.dumps(token_texts.pieces(tokenizer, tokenizer({text!r}).input_ids)))
"""


def test_a_token_s_text_is_what_it_adds_and_a_character_stands_at_its_last_token(guest):
    kept = guest.code(PIECES.format(text="a 细\n"))
    assert [text for _, text in kept] == ["a", " ", "", "", "细", "\n"]


def test_the_texts_of_thirty_tokens_are_kept_and_the_last_may_be_unfinished(guest):
    kept = guest.code(PIECES.format(text="x" * 29 + "细"))
    assert len(kept) == 30 and kept[-1][1] == "\N{REPLACEMENT CHARACTER}" and "".join(text for _, text in kept) == "x" * 29 + "\N{REPLACEMENT CHARACTER}"


def test_a_row_with_real_weights_keeps_what_it_wrote_beside_the_reference(guest, checkpoints, references):
    real = tiny_job("bloom", checkpoints["bloom"], reference=references["bloom"], backend="transformers")
    real.model["weights"] = "hub"
    wrote = guest.run(real).figures["wrote"]
    assert len(wrote["system"]) == 4 and wrote["system"] == wrote["reference"]
    random = tiny_job("bloom", checkpoints["bloom"], reference=references["bloom"], backend="transformers")
    assert "wrote" not in guest.run(random).figures


def a_program(path, ran):
    """A pickle that makes a file when it is read."""

    class Program:
        def __reduce__(self):
            return (Path.touch, (ran,))

    path.write_bytes(pickle.dumps({"lm_head.weight": Program()}))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside safetensors"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_job_loads_no_pickle(guest, checkpoints, folders, tmp_path, name, beside):
    _, folder = folders
    with_config_of(checkpoints["bloom"], [folder])
    a_program(folder / name, tmp_path / "ran")
    if beside:
        (folder / "model.safetensors").symlink_to(checkpoints["bloom"] / "model.safetensors")
    result = guest.run(tiny_job("bloom", folder))
    assert result.status == "failed" and f"holds {name}; allowed are weights in safetensors" in result.reason
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("model_type", ["bloom", "unheard-of"])
def test_no_code_that_comes_with_a_model_runs(guest, checkpoints, folders, tmp_path, model_type):
    _, folder = folders
    for path in checkpoints["bloom"].iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "config.json").unlink()
    code = {name: f"evil.{name}" for name in ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer")}
    with_config_of(checkpoints["bloom"], [folder], auto_map=code, model_type=model_type)
    (folder / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import BloomConfig as AutoConfig, BloomForCausalLM as AutoModelForCausalLM\n"
    )
    result = guest.run(tiny_job("bloom", folder))
    assert result.status == ("ok" if model_type == "bloom" else "failed"), result.reason
    assert not (tmp_path / "ran").exists()
