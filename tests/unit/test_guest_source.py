"""The guest's source keeps to what every image has."""

import ast
import sys
from pathlib import Path

import pytest

from scripts import pins

BENCH = Path(__file__).resolve().parents[2] / "bench"
SOURCES = sorted(BENCH.rglob("*.py"))

#: What some image pins; everything else that the guest imports has to be in the standard library.
PINNED = {"bench"} | {name.replace("-", "_") for image in pins.load().images() for name in image.pins}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(BENCH)))
def test_it_parses_as_python_3_8_and_imports_only_what_images_pin(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        for name in names:
            assert name.split(".")[0] in PINNED | set(sys.stdlib_module_names), f"{path.name} imports {name}"


def test_branches_on_versions_stand_in_compat_alone():
    for path in SOURCES:
        if path.name not in ("compat.py",):
            text = path.read_text(encoding="utf-8")
            assert "compat.release(" not in text, f"{path.name} compares a version itself"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(BENCH)))
def test_no_code_of_a_model_is_trusted_and_no_pickle_is_run(path):
    for call in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)):
        typed = {keyword.arg: getattr(keyword.value, "value", ...) for keyword in call.keywords}
        assert typed.get("trust_remote_code", False) is False, f"{path.name}, line {call.lineno}"
        name = ast.unparse(call.func)
        assert name not in ("pickle.load", "pickle.loads") and (name != "torch.load" or typed.get("weights_only") is True), f"{path.name}, line {call.lineno}"
