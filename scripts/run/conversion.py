"""Real weights in safetensors, which every stack loads: those of the commit, or converted from its pickles once, in a container without a network.

The host never reads a pickle, not even with ENGINE=host, which isolates nothing.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.job import Job
from scripts import pins
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.models import article_models, converted, store
from scripts.models.article_models import ArticleModel
from scripts.models.held import HeldModel
from scripts.results import door
from scripts.run import checkpoints, engines
from scripts.run.engines import Engine
from scripts.run.engines.contained import CONTAINED, DockerEngine
from scripts.run.options import Options

#: (backend, stack) of the image that reads pickles: plain transformers on the newest torch of the pins.
IMAGE = ("layer-parallel", "current")


def hub_checkpoint(model: dict[str, Any], asked: Options, on_line: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """(folder, the job's model with commit and digest) of real weights under the models' folder, fetched and converted unless they are there."""
    pinned = article_models.find(model["name"])
    if not asked.model_path:
        pinned = dataclasses.replace(pinned, commit=model["revision"])
    held = loadable(pinned, store.provide(pinned, asked.models, asked.model_path), asked, on_line)
    said = {"converted_by": held.converted_by} if held.converted_by else {}
    return held.folder, {**model, "revision": held.commit, "weights_sha256": held.weights_sha256, **said}


def loadable(model: ArticleModel, held: HeldModel, asked: Options, on_line: Callable[[str], None]) -> HeldModel:
    """The model with weights in safetensors: itself, or its converted weights, made in a container unless they are there. Raises KitError."""
    if not held.in_pickles:
        return held
    kept = converted.kept(held)
    return kept or convert(model, held, _engine(model, asked), on_line)


def _engine(model: ArticleModel, asked: Options) -> Engine:
    """The requested engine, or Docker in place of the host: pickles are read in a container only."""
    try:
        engine = CONTAINED.get(asked.engine, DockerEngine)(pins.load().image(*IMAGE), [], asked)
    except NothingRuns as error:
        reason = error.__cause__ if isinstance(error.__cause__, NothingRuns) else error  # without its advice for a whole job
        words = f"{model.name}: its weights are pickles, which are read in a container only, and {reason}"
        raise PreflightError(f"{words}; or type MODEL_PATH=/folder of safetensors, or WEIGHTS=random") from error
    engine.prepare()
    return engine


def convert(model: ArticleModel, held: HeldModel, engine: Engine, on_line: Callable[[str], None]) -> HeldModel:
    """Convert a model's pickles on an engine. Nothing is kept of a conversion that fails, or is interrupted. Raises KitError."""
    with checkpoints.work_folder(engine.models, engine.models / "converted") as work:
        kept = converted.kept(held)  # by another process, in the meantime
        if kept:
            return kept
        converted.room_for(held)
        made = work / "converted"
        made.mkdir()
        made.chmod(0o777)  # the container's user is not this one
        job = _job(model, held, engine, made, work)
        _, status, reason = engines.answer(job, work, engine.run(job, work, on_line))
        if status != "ok":
            raise KitError(f"{model.name}: its pickles were not converted, {status}: {reason}; type MODEL_PATH=/folder of safetensors of it, or WEIGHTS=random")
        door.check_folder(made)
        return converted.keep(model, held, made, f"torch {engine.image.pins['torch'].version}")


def _job(model: ArticleModel, held: HeldModel, engine: Engine, made: Path, work: Path) -> Job:
    source, target = engine.guest_path(held.folder, work), engine.guest_path(made, work)
    return Job(
        id="convert",
        kind="convert",
        article="",
        case="",
        variant="",
        backend=IMAGE[0],
        stack=IMAGE[1],
        device="cpu",
        device_count=1,
        model={"name": model.name, "shape": model.shape, "revision": held.commit, "path": source},
        load={},
        prompt={},
        runs=[],
        warmup_runs=0,
        timed_runs=1,
        options={"into": target},
    )
