"""A preview as text, Markdown or JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from postrender.preview.report import Preview, Upgrade
from postrender.preview.stranded import Stranded
from postrender.preview.workers import JobEnd, Worker, Workers
from postrender.report import shown

NOTHING = "Nothing changes."

_SIGNS = {"create": "+", "change": "~", "delete": "-"}
_DONE = {"create": "is created", "replace": "is replaced", "delete": "is deleted"}
_TAKES = {
    "live": "slurmctld takes it while it runs",
    "restart": "slurmctld restarts in its pod; jobs continue",
    "pod": "the pod of slurmctld is replaced (configUpdate: Recreate); jobs continue",
}
_STARTS = {
    "closed": "is closed and starts no job",
    "removed": "is removed from slurm.conf",
    "empty": "has no worker left",
}
_PODS = {"restart": "pods are replaced", "create": "pods are created", "delete": "pods are deleted"}


def as_json(preview: Preview) -> str:
    """Write the preview as one JSON object: refused, changes, configured, upgrades, pods, volumes,
    workers, stranded. Times are seconds since the epoch.
    """
    return json.dumps(asdict(preview), indent=2) + "\n"


def as_text(preview: Preview) -> str:
    """Headings and indented lines."""
    sections = _sections(preview)
    if not sections:
        return f"{NOTHING}\n"
    return "\n".join(
        f"{title}\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections
    )


def as_markdown(preview: Preview) -> str:
    """Return the same for a comment on a pull request."""
    sections = _sections(preview)
    if not sections:
        return f"{NOTHING}\n"
    fence = _fence(line for _, lines in sections for line in lines)
    blocks = [
        f"### {title}\n\n{fence}text\n" + "".join(f"{line}\n" for line in lines) + f"{fence}\n"
        for title, lines in sections
    ]
    return "\n".join(blocks)


def _fence(lines: Iterable[str]) -> str:
    """Longer than any run of backticks within, so that no line ends the block."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    return "`" * max(3, longest + 1)


FORMATS = {"text": as_text, "markdown": as_markdown, "json": as_json}


def _sections(preview: Preview) -> list[tuple[str, list[str]]]:
    """Titles and lines. Names and values are quoted of a stream that any user may have written."""
    return [
        (
            title,
            [" " * (len(line) - len(line.lstrip(" "))) + shown(line.lstrip(" ")) for line in lines],
        )
        for title, lines in _quoted(preview)
    ]


def _quoted(preview: Preview) -> Iterator[tuple[str, list[str]]]:
    if preview.refused:
        yield (
            "Refused by the API server: the upgrade fails, and of the rest only a part is applied",
            list(_refused(preview)),
        )
    if preview.changes:
        yield "Objects", list(_changes(preview))
    if preview.configured:
        yield "Configuration of slurmctld", list(_configured(preview))
    if preview.upgrades:
        yield "Order of the upgrade", [line for it in preview.upgrades for line in _upgrade(it)]
    if preview.pods:
        yield "Pods of daemons", list(_pods(preview))
    if preview.volumes:
        yield "Volumes", list(_volumes(preview))
    if preview.workers:
        yield "Workers", [line for it in preview.workers for line in _workers(it)]
    if preview.stranded:
        yield "Jobs", [line for it in preview.stranded for line in _stranded(it)]


def _refused(preview: Preview) -> Iterator[str]:
    for it in preview.refused:
        yield f"  {it.kind} {_name(it.namespace, it.name)}"
        yield from (f"      {why}" for why in it.why)


def _changes(preview: Preview) -> Iterator[str]:
    for change in preview.changes:
        yield f"  {_SIGNS[change.action]} {change.kind} {_name(change.namespace, change.name)}"
        yield from (f"      {field}" for field in change.fields)


def _configured(preview: Preview) -> Iterator[str]:
    for it in preview.configured:
        yield f"  Controller {it.controller}: {', '.join(it.files)}: {_TAKES[it.action]}"
        yield from (f"      {why}" for why in it.why)


def _upgrade(of: Upgrade) -> Iterator[str]:
    yield (
        f"  Controller {of.controller}: each step begins when the daemons of the one before are "
        "ready"
    )
    for number, step in enumerate(of.steps, start=1):
        yield from (f"    {number}. {it}" for it in step)
    yield from (f"    {why}" for why in of.kept)


def _pods(preview: Preview) -> Iterator[str]:
    for it in preview.pods:
        named = f" ({_listed(it.pods)})" if it.pods else ""
        yield f"  {it.kind} {_name(it.namespace, it.name)}: {_PODS[it.action]}{named}"
        yield from (f"      {why}" for why in it.why)


def _volumes(preview: Preview) -> Iterator[str]:
    for it in preview.volumes:
        yield f"  {it.kind} {_name(it.namespace, it.name)}: {it.outcome}"
        yield from (f"      {detail}" for detail in it.details)


def _workers(of: Workers) -> Iterator[str]:
    counts = {action: [it for it in of.workers if it.action == action] for action in _DONE}
    summary = ", ".join(
        f"{len(found)} {'workers are' if len(found) > 1 else 'worker is'} "
        f"{_DONE[action].removeprefix('is ')}"
        for action, found in counts.items()
        if found
    )
    yield f"  NodeSet {of.nodeset}: {summary}"
    yield from (f"      {why}" for why in of.why)
    yield from (f"    {note}" for note in of.notes)
    for first, title in ((True, "first"), (False, "then")):
        for worker in of.workers:
            if worker.first is first and worker.action != "create":
                yield f"    {title}: {_worker(worker)}"
                yield from (f"        {_job(job)}" for job in worker.jobs)


def _stranded(of: Stranded) -> Iterator[str]:
    yield f"  Controller {of.controller}: partition {of.partition} {_STARTS[of.outcome]}"
    if of.unknown:
        yield f"      its jobs are unknown: {of.unknown}"
    if of.waiting:
        until = (
            "one of its NodeSets has a worker" if of.outcome == "empty" else "the partition is back"
        )
        yield f"      wait until {until}, or they are moved: jobs {_numbers(of.waiting)}"
    if of.lost:
        yield f"      slurmctld ends them as NODE_FAIL: jobs {_numbers(of.lost)}"


def _numbers(jobs: Sequence[int]) -> str:
    return _listed([str(it) for it in jobs], 20)


def _worker(worker: Worker) -> str:
    drained = f"Slurm node {worker.slurm_node} is drained, then " if worker.drained else ""
    jobs = (
        "" if worker.jobs else "; it has no job" if worker.jobs_known else "; its jobs are unknown"
    )
    return f"{drained}pod {worker.pod} {_DONE[worker.action]}{jobs}"


def _job(job: JobEnd) -> str:
    ends = (
        f"ends at {_time(job.ends)} at the latest" if job.ends is not None else "has no time limit"
    )
    by = (
        f", and has to end by {_time(job.by)}"
        if job.by is not None
        else "; the worker waits for it"
    )
    return f"job {job.job_id} of {job.user} {ends}{by}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _listed(items: Sequence[str], most: int = 4) -> str:
    shown: Iterable[str] = items if len(items) <= most else [*items[: most - 1], f"… {items[-1]}"]
    return ", ".join(shown)
