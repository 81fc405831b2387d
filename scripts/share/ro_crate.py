"""ro-crate-metadata.json: every run as an action with its software, its job and its result, for archives and tools that do not know this kit.

Process Run Crate 0.5 (https://w3id.org/ro/wfrun/process/0.5) on RO-Crate 1.1. A run that failed is an action that failed, with its reason.
The file follows from the results alone: the same results give the same bytes.
"""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts import __version__
from scripts.results import Record, json_schema

NAME = "ro-crate-metadata.json"
CRATE, PROFILE = "https://w3id.org/ro/crate/1.1", "https://w3id.org/ro/wfrun/process/0.5"
CONTEXT = [f"{CRATE}/context", "https://w3id.org/ro/terms/workflow-run/context"]
LICENSE = "https://spdx.org/licenses/MIT"

#: The tool that ran every job, at the commit that a run names; each action names the pinned software beside it.
KIT = "#llm-inference-reproducibility-kit"

#: As CITATION.cff names them.
AUTHORS = "#authors"

Entity = dict[str, Any]


def text(held: Mapping[str, Sequence[Record]]) -> str:
    """The file's text; `held` is {path from the file's folder to a folder of runs: its records}, "reports/runs" in a bundle."""
    records = [record for of_folder in held.values() for record in of_folder]
    actions = [_action(record, runs) for runs, of_folder in held.items() for record in of_folder]
    software = {one["@id"]: one for record in records for one in _software(record)}
    files = [one for runs, of_folder in held.items() for record in of_folder for one in _files(record, runs)]
    root: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "name": "LLM inference, measured again",
        "description": "Runs of the benchmarks of published comparisons of LLM inference, with the report that follows from them.",
        "datePublished": max((record.host["started_at"] for record in records), default="2026-01-01T00:00:00Z")[:10],
        "version": __version__,
        "author": {"@id": AUTHORS},
        "license": {"@id": LICENSE},
        "conformsTo": {"@id": PROFILE},
        "hasPart": [_ref(one) for one in files],
        "mentions": [_ref(one) for one in actions],
    }
    descriptor = {"@id": NAME, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": CRATE}}
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    licence = {"@id": LICENSE, "@type": "CreativeWork", "name": "MIT License"}
    authors = {"@id": AUTHORS, "@type": "Organization", "name": "The authors of the LLM inference reproducibility kit"}
    graph = [descriptor, root, profile, licence, authors, *software.values(), *actions, *files]
    return json.dumps({"@context": CONTEXT, "@graph": graph}, indent=1) + "\n"


def _ref(entity: Entity) -> Entity:
    return {"@id": entity["@id"]}


def _action(record: Record, runs: str) -> Entity:
    """The action of a run: completed for the status ok, else failed, with its reason."""
    job, result = _files(record, runs)
    done = record.status == "ok"
    ended = _ended_at(record)
    image = record.host.get("image")
    return {
        "@id": f"#run-{record.id}",
        "@type": "CreateAction",
        "name": record.id,
        "description": f"{record.job.case} of {record.job.article}, {record.job.variant}: {record.job.backend} of the stack {record.job.stack}",
        "instrument": [{"@id": _backend_id(record)}, {"@id": _kit_id(record)}],
        "object": _ref(job),
        "result": _ref(result),
        "startTime": record.host["started_at"],
        **({"endTime": ended} if ended else {}),
        "actionStatus": {"@id": f"http://schema.org/{'Completed' if done else 'Failed'}ActionStatus"},
        **({} if done else {"error": f"{record.status}: {record.reason}"}),
        **({"containerImage": {"@id": _image_id(image)}} if image else {}),
    }


def _ended_at(record: Record) -> str | None:
    """The end of the job's process or container, to the second as its beginning."""
    if (wall_s := record.host.get("wall_s")) is None:
        return None
    began = datetime.datetime.fromisoformat(record.host["started_at"])
    return (began + datetime.timedelta(seconds=round(wall_s))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _backend_id(record: Record) -> str:
    return f"#software-{record.job.backend}-{record.job.stack}-{record.host.get('pins_id') or 'unpinned'}"


def _commit(record: Record) -> str:
    """ "" where the run names none."""
    commit = record.host.get("commit") or ""
    return f"{commit}-with-uncommitted-changes" if commit and record.host.get("dirty") else commit


def _kit_id(record: Record) -> str:
    return f"{KIT}-{_commit(record) or 'of-no-commit'}"


def _image_id(image: Mapping[str, Any]) -> str:
    """Images of one tag differ where a local stand-in for their base does, so the tag alone names no image."""
    digest = (image.get("id") or "").removeprefix("sha256:")
    return f"#image-{image['tag']}" + (f"-{digest[:12]}" if digest else "")


def _software(record: Record) -> Iterator[Entity]:
    """What ran: the kit, the pinned environment, and the image where one was used."""
    version = _commit(record) or __version__
    yield {"@id": _kit_id(record), "@type": "SoftwareApplication", "name": "LLM inference reproducibility kit", "softwareVersion": version}
    yield {
        "@id": _backend_id(record),
        "@type": "SoftwareApplication",
        "name": f"{record.job.backend} of the stack {record.job.stack}",
        "softwareVersion": record.host.get("pins_id") or "unpinned",
    }
    if image := record.host.get("image"):
        name, _, tag = image["tag"].rpartition(":")
        digest = (image.get("id") or "").removeprefix("sha256:")
        kind = {"@id": "https://w3id.org/ro/terms/workflow-run#DockerImage"}
        told = {"additionalType": kind, "name": name, "tag": tag, **({"sha256": digest} if digest else {})}
        yield {"@id": _image_id(image), "@type": "ContainerImage", **told}


def _files(record: Record, runs: str) -> tuple[Entity, Entity]:
    """(job.json, result.json)"""

    def file(name: str, what: str, schema: str) -> Entity:
        place = f"{runs}/{record.id}/{name}"
        return {"@id": place, "@type": "File", "name": f"{what} of {record.id}", "encodingFormat": "application/json", "description": f"follows {schema}"}

    return file("job.json", "job", json_schema.JOB), file("result.json", "result", json_schema.RESULT)
