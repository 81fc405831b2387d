"""The pictures: every bar of an interval is within its axis, words are text, and no font of this machine decides a byte."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest

from scripts import articles, paths, stats
from scripts.report.plots import dots, scales, sweeps, time_dots
from scripts.report.plots.dots import Dot, Panel
from scripts.report.plots.svg import WIDTH
from scripts.report.plots.sweeps import Curve
from scripts.verdicts import row_groups
from tests import synthetic
from tests.synthetic import job, record

#: Draws a picture, and ends with an error where anything opens a font or imports what looks for fonts.
WATCHED = """
import sys
sys.addaudithook(lambda event, values: sys.exit(f"opened {values[0]}") if event == "open" and str(values[0]).lower().endswith((".ttf", ".otf", ".pfb", ".afm")) else None)
from scripts import articles
from scripts.report.plots import time_dots
from scripts.verdicts import row_groups
from tests import synthetic
(group,) = row_groups.build([synthetic.record(synthetic.job("int8"), 50.0)], articles.load_all())
print(time_dots.plot(group, articles.find("inference-tools")))
sys.exit("matplotlib" in sys.modules)
"""


def group_of(records):
    (group,) = row_groups.build(records, articles.load_all())
    return group


def words_of(picture: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_an_interval_far_above_its_mean_stays_within_the_axis():
    picture = time_dots.plot(group_of(synthetic.repeated(record(job("int8"), 50.0), scatter=1.2)), None)
    low, high = (float(number) for number in re.search(r"M([\d.]+) [\d.]+v8M[\d.]+ [\d.]+H([\d.]+)M", picture).groups())
    mean = float(re.search(r'<circle cx="([\d.]+)"', picture)[1])
    ticks = [float(x) for x in re.findall(r'd="M([\d.]+) [\d.]+L\1 [\d.]+" class="grid"', picture)]
    assert ticks[0] <= low < mean < high < WIDTH - 100
    assert len(ticks) > 1


def test_what_was_published_stands_on_the_axis_of_what_was_measured():
    asked = articles.find("inference-tools")
    picture = time_dots.plot(group_of([record(job("int8"), 71.65)]), asked)
    assert words_of(picture)[0] == "int8 ×1 takes 71.7 ms" and "published" in words_of(picture)
    at, measured = (float(re.search(pattern, picture)[1]) for pattern in (r'd="M([\d.]+) [\d.]+L\1 [\d.]+" class="ink"', r'<circle cx="([\d.]+)"'))
    start = float(re.search(r'd="M([\d.]+) [\d.]+L\1 [\d.]+" class="grid"', picture)[1])
    assert (at - start) / (measured - start) == pytest.approx(143.30 / 71.65, rel=0.02), "twice as far from zero"
    assert "published 143.3" in picture.partition("<desc>")[2].partition("</desc>")[0]


def test_a_wrong_output_is_hollow_and_leads_no_title():
    wrong, right = record(job("deepspeed", 2), 10.0, checked=synthetic.check(0.5, passed=False)), record(job("int8"), 50.0)
    picture = time_dots.plot(group_of([wrong, right]), None)
    assert words_of(picture)[0].startswith("int8 ×1 takes") and picture.count('class="s0 hollow"') == 1 and picture.count('class="s0 fill"') == 1
    assert words_of(time_dots.plot(group_of([wrong]), None))[0] == "No row has a right output"


def test_an_axis_is_logarithmic_where_its_numbers_lie_far_apart():
    near, far = scales.for_values([10.0, 100.0], 0, 100), scales.for_values([1.0, 100.0], 0, 100)
    assert (near.logarithmic, near.low, far.logarithmic) == (False, 0.0, True)
    assert far.at(10.0) == pytest.approx(50) and near.at(50.0) == pytest.approx(50 / 1.06)
    assert far.at(1e9) == 100 and far.at(1e-9) == 0, "what lies outside stands at an end"
    for scale in (near, far, scales.for_values([1e-9, 1e12], 0, 100), scales.for_values([7.0], 0, 100)):
        assert 1 <= len(scale.ticks) <= scales.MOST_TICKS + 2 and all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in scale.ticks)


def test_names_at_the_ends_of_curves_do_not_lie_on_each_other():
    curves = [Curve(name, {1: stats.Estimate(1.0), 8: stats.Estimate(2.0)}) for name in ("a", "b", "c")]
    picture = sweeps.plot({"": curves}, "title", "subtitle", "unit")
    places = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="s\d words small"', picture))
    assert len(places) == 3 and all(below - above >= 12 for above, below in zip(places, places[1:], strict=False))


@pytest.mark.parametrize("value", [numpy.inf, numpy.nan, 0.0, -1.0])
def test_a_number_that_no_axis_can_show_leaves_the_others_in_the_picture(value: float):
    panel = Panel("ms", [Dot("good", stats.Estimate(5.0), "5 ms"), Dot("bad", stats.Estimate(value), "bad")])
    ElementTree.fromstring(dots.plot([panel], "title", "subtitle"))
    assert dots.plot([Panel("ms", [panel.dots[1]])], "title", "subtitle") is None


@pytest.mark.slow
def test_a_picture_has_the_same_bytes_where_another_dejavu_is_installed(tmp_path: Path):
    drawn = []
    for place, home in enumerate((tmp_path / "without", tmp_path / "with")):
        for folder in (home / ".fonts", home / ".local/share/fonts") if place else ():
            folder.mkdir(parents=True)
            (folder / "DejaVuSans.ttf").write_bytes(b"no font at all")
        command = [sys.executable, "-c", WATCHED]
        done = subprocess.run(command, cwd=paths.ROOT, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        drawn.append(done.stdout)
    assert drawn[0] == drawn[1] and "<svg" in drawn[0]


def test_every_committed_picture_is_small_and_has_its_words_as_text_for_light_and_dark_pages():
    pictures = sorted((paths.ROOT / "reports" / "plots").glob("*.svg"))
    assert len(pictures) > 20
    for path in pictures:
        picture = path.read_text(encoding="utf-8")
        assert len(picture) < 60_000 and "prefers-color-scheme:dark" in picture, path.name
        root = ElementTree.fromstring(picture)
        assert [child.tag.partition("}")[2] for child in root][:3] == ["title", "desc", "style"] and root[0].text and root[1].text, path.name
        assert words_of(picture)[0] == root[0].text or words_of(picture)[0].endswith("…"), path.name


def test_a_row_s_time_is_that_of_all_runs_and_five_have_an_interval():
    runs = synthetic.repeated(record(job("int8"), 50.0), scatter=0.2)
    (group,) = row_groups.build(runs, articles.load_all())
    means = group.rows[0].run_means_ms(1)
    summary = group.rows[0].summary(1)
    assert len(means) == 5 and summary.interval == stats.over_runs(means)
    assert summary.mean == pytest.approx(sum(means) / 5) and summary.std == pytest.approx(float(numpy.std(means)))
    assert summary.p95 > max(means), "the 95th percentile is that of all calls"
    (single,) = row_groups.build(runs[:4], articles.load_all())
    few = single.rows[0].summary(1)
    assert few.interval.low is None and (few.mean, few.std) == pytest.approx((sum(means[:4]) / 4, float(numpy.std(means[:4]))))
    (alone,) = row_groups.build(runs[:1], articles.load_all())
    one, calls = alone.rows[0].summary(1), alone.rows[0].timed_ms(1)
    assert one.interval.low is None and (one.mean, one.std) == pytest.approx((sum(calls) / len(calls), float(numpy.std(calls))))
