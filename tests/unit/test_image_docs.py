"""docker/README.md: what is generated in it follows from the locks and from the record of the last full build."""

import re
import tomllib
import types

import pytest

from scripts import paths, pins
from scripts.errors import KitError
from scripts.images import image_docs

LOADED = pins.load()
LOCKS = [(image.stack, image.locked()) for image in LOADED.images()]


def test_an_advisory_concerns_the_versions_between_its_fault_and_its_cure():
    assert image_docs.affected(LOCKS, "torch", "0", "2.0.1") == {"1.13.1": ["2023-02"]}
    assert image_docs.affected(LOCKS, "torch", "2.0", "2.1") == {"2.0.1": ["2023-05"]}
    assert image_docs.affected(LOCKS, "torch", "0", "1.13.1") == {}
    assert image_docs.affected(LOCKS, "no-such-package", "0", "99") == {}


def test_every_advisory_is_one_of_a_package_and_has_a_cure():
    for one in tomllib.loads((paths.ROOT / image_docs.ADVISORIES).read_text())["advisory"]:
        assert re.fullmatch(r"CVE-\d{4}-\d{4,}", one["id"]) and one["package"] and one["fixed_in"] and one["what"]


def test_the_table_names_the_frozen_torch():
    assert any(line.startswith("| CVE-2025-32434 | torch below 2.6.0 |") and "1.13.1 in 2023-02" in line for line in image_docs.advisory_lines(LOADED))


def test_an_advisory_that_concerns_no_image_is_not_in_the_table(tmp_path):
    text = (paths.ROOT / image_docs.ADVISORIES).read_text()
    (tmp_path / "docker").mkdir()
    (tmp_path / image_docs.ADVISORIES).write_text(text + '\n[[advisory]]\nid = "CVE-2026-0001"\npackage = "torch"\nfixed_in = "0.1"\nwhat = "old"\n')
    with_one_more = types.SimpleNamespace(root=tmp_path, images=LOADED.images)
    assert image_docs.advisory_lines(with_one_more) == image_docs.advisory_lines(LOADED)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[advisory]]", "[[advisory]", "^advisories.toml: not TOML: "),
        ('fixed_in = "2.6.0"\n', "", r"^docker/advisories.toml, \[advisory\[CVE-2025-32434\]\]: Object missing required field `fixed_in`"),
        ("since", "sinc", r"\]: unknown key 'sinc'; did you mean 'since'"),
    ],
)
def test_a_mistake_in_the_advisories_is_one_line_with_its_place(tmp_path, old, new, message):
    (tmp_path / "docker").mkdir()
    (tmp_path / image_docs.ADVISORIES).write_text(re.sub(f"^{re.escape(old)}", new, (paths.ROOT / image_docs.ADVISORIES).read_text(), count=1, flags=re.M))
    with pytest.raises(KitError, match=message):
        image_docs.advisory_lines(types.SimpleNamespace(root=tmp_path, images=LOADED.images))


def test_a_page_without_markers_says_which_to_put_in():
    with pytest.raises(KitError, match="images:begin"):
        image_docs.put_in("no markers", LOADED)
