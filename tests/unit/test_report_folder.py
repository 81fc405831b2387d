"""The folder that a report is written to, and what is there already."""

import shutil

import pytest

from scripts import results
from scripts.errors import KitError
from scripts.report import document
from tests import synthetic


def test_a_report_leaves_the_files_of_others_as_they_are(tmp_path):
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8"), 50.0)])
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "figure1.svg").write_text("mine")
    document.write(tmp_path / "runs", tmp_path)
    document.write(tmp_path / "runs", tmp_path)
    assert (tmp_path / "plots" / "figure1.svg").read_text() == "mine" and len(list((tmp_path / "plots").glob("inference-tools-*.svg"))) >= 2
    for name in ("REPORT.md", "results.csv"):
        other = tmp_path / f"with-{name}"
        other.mkdir()
        (other / name).write_text("mine")
        with pytest.raises(KitError, match=rf"{name} was not written by the kit, .* type OUT=/another/folder"):
            document.write(tmp_path / "runs", other)
        assert [path.name for path in other.iterdir()] == [name] and (other / name).read_text() == "mine"


def test_a_plot_of_rows_that_are_gone_goes_too(tmp_path):
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8"), 50.0)])
    document.write(tmp_path / "runs", tmp_path)
    before = {path.name for path in (tmp_path / "plots").iterdir()}
    shutil.rmtree(tmp_path / "runs")
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8", article="demo", device="cpu", scale="tiny"), 50.0)])
    document.write(tmp_path / "runs", tmp_path)
    assert before.isdisjoint(path.name for path in (tmp_path / "plots").iterdir())


def test_a_check_names_a_plot_that_no_page_shows_with_the_command_that_removes_it(tmp_path, monkeypatch):
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8"), 50.0)])
    document.write(tmp_path / "runs", tmp_path)
    written = document._written(tmp_path / "runs", tmp_path)
    monkeypatch.setattr(document, "ROOT", tmp_path)
    monkeypatch.setattr(document, "_kept", lambda: [written])
    for page in (document.headlines, document.quoted):
        monkeypatch.setattr(page, "check", lambda _: None)
    document.check_pages()
    (tmp_path / "plots" / "figure1.svg").write_text("mine")
    with pytest.raises(KitError, match="no page shows the plot plots/figure1.svg, and make report keeps such files; type rm plots/figure1.svg"):
        document.check_pages()
    (tmp_path / "method.md").write_text(f"{(tmp_path / 'method.md').read_text()}more")
    with pytest.raises(KitError, match="method.md is not what ./runs gives. Try: make report"):
        document.check_pages()


def test_the_report_of_a_folder_with_another_name_gets_a_folder_of_its_own(tmp_path):
    assert [results.report_of(tmp_path / name) for name in ("runs", "mine")] == [tmp_path, tmp_path / "mine-report"]
