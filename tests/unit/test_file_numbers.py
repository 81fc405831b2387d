"""scripts/report/file_numbers.py: a path leads to one number of a committed file, or says what is there in its place."""

import os

import pytest

from scripts.report import file_numbers

JSON = """
{"gpu": "H200", "passed": true, "lost": NaN, "rounds": 30, "empty": [], "mixed": [{"us": 1}, {"us": "2"}], "rows": [{"context_tokens": 64, "us": [39.0, 55.0, 40.0]}, {"context_tokens": 256, "us": [1]}]}
"""
TOML = """
[[cases]]
name = "single"
published = { minutes_per_10000_items = 420, ms_per_token = { 1 = 34.04 } }
[[claims]]
id = "1.5"
relations = [{ size = 3.83 }]
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "read.json").write_text(JSON)
    (tmp_path / "article.toml").write_text(TOML)
    (tmp_path / "page.md").write_text("1")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    os.mkfifo(tmp_path / "pipe.json")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "path", "number"),
    [
        ("read.json", "rounds", 30),
        ("read.json", "rows/1/context_tokens", 256),
        ("read.json", "rows/0/us", 40.0),
        ("read.json", "rows/0/us/1", 55.0),
        ("read.json", "rows/*/context_tokens", 160),
        ("article.toml", "cases/single/published/minutes_per_10000_items", 420),
        ("article.toml", "cases/single/published/ms_per_token/1", 34.04),
        ("article.toml", "claims/1.5/relations/0/size", 3.83),
    ],
)
def test_a_path_leads_to_a_number_by_keys_positions_names_and_ids(root, file, path, number):
    assert file_numbers.at(file, path, root) == number


@pytest.mark.parametrize(
    ("file", "path", "words"),
    [
        ("read.json", "rows/2/us", "read.json holds no rows/2, there are 0, 1"),
        ("read.json", "rows/*/ms", "holds no rows/*/ms, there are context_tokens, us"),
        ("read.json", "rows/*/us", "holds no number at rows/*/us, but a list; there are 0, 1, 2"),
        ("read.json", "empty/*", "holds no empty/*, there are no more steps"),
        ("read.json", "rows/0/ms", "holds no rows/0/ms, there are context_tokens, us"),
        ("read.json", "rounds/0", "holds no rounds/0, there are no more steps"),
        ("read.json", "gpu", "holds no number at gpu, but a str"),
        ("read.json", "passed", "holds no number at passed, but a bool"),
        ("read.json", "lost", "holds no number at lost, but a float"),
        ("../outside.json", "rounds", "../outside.json lies outside of the repository"),
        ("read.json", "empty", "holds no number at empty, but a list"),
        ("read.json", "rows", "holds no number at rows, but a list; there are 0, 1"),
        ("article.toml", "cases/batch", "holds no cases/batch, there are 0, single"),
        ("read.json", "mixed/*/us", "holds no number at mixed/*/us, but a str; there are no more steps"),
        ("folder.json", "1", "folder.json is no file"),
        ("pipe.json", "1", "pipe.json is no file"),
        ("loop.json", "1", "loop.json names no file"),
        ("a" * 300 + ".json", "1", "a" * 60 + " names no file"),
        ("page.md", "1", "page.md is no file of numbers, allowed are .json and .toml"),
    ],
)
def test_a_path_to_no_number_says_what_is_there(root, file, path, words):
    with pytest.raises(ValueError) as caught:
        file_numbers.at(file, path, root)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_changes_is_read_again(root):
    assert file_numbers.at("read.json", "rounds", root) == 30
    (root / "read.json").write_text('{"rounds": 31}')
    assert file_numbers.at("read.json", "rounds", root) == 31


@pytest.mark.parametrize(("text", "why"), [("[" * 100_000, "recursion"), ('{"us": 1, "us": 2}', "the key 'us' comes twice"), ('{"us": ', "Expecting value")])
def test_a_damaged_file_is_told_with_its_name(tmp_path, text, why):
    (tmp_path / "probe.json").write_text(text)
    with pytest.raises(ValueError, match=rf"^probe\.json cannot be read: .*{why}"):
        file_numbers.at("probe.json", "us", tmp_path)
