"""A preview in its three forms."""

import json
import re
import textwrap
from dataclasses import replace
from pathlib import Path

from postrender.preview.differences import Change, Refused
from postrender.preview.report import Configured, Pods, Preview, Upgrade, preview
from postrender.preview.state import State
from postrender.preview.volumes import Volumes
from postrender.preview.words import NOTHING, as_json, as_markdown, as_text
from postrender.preview.workers import JobEnd, Worker, Workers
from tests.unit.postrender.expand import streams
from tests.unit.postrender.preview import clusters
from tests.unit.postrender.preview.test_report import slurm_of
from tests.unit.postrender.preview.test_workers import busy, documents, state

ROOT = Path(__file__).parents[4]

PREVIEW = Preview(
    changes=(
        Change("create", "ConfigMap", "slurm", "new"),
        Change("change", "NodeSet", "slurm", "gpu", ("spec.replicas: 2 → 1",)),
    ),
    configured=(
        Configured("slurm/slurm", "restart", ("slurm.conf",), ("SlurmctldPort: unset → 7000",)),
        Configured("slurm/other", "live", ("gres.conf",)),
    ),
    upgrades=(
        Upgrade(
            "slurm/slurm",
            (("Controller slurm: a → b",), ("NodeSet gpu: a → b", "NodeSet cpu: a → b")),
            ("slurmrestd keeps image a, because it is newer",),
        ),
    ),
    pods=(
        Pods(
            "StatefulSet",
            "slurm",
            "db",
            "create",
            ("spec.replicas: 1 → 9",),
            tuple(f"db-{it}" for it in range(9)),
        ),
    ),
    volumes=(
        Volumes(
            "StatefulSet",
            "slurm",
            "slurm-controller",
            "it stays",
            ("claim c grows from 4Gi to 8Gi",),
        ),
        Volumes("PersistentVolumeClaim", "slurm", "slurm-mariadb", "it grows from 1Gi to 2Gi"),
    ),
    workers=(
        Workers(
            "slurm/gpu",
            (
                Worker(
                    "gpu-1",
                    "gpu-1",
                    "delete",
                    first=True,
                    drained=True,
                    jobs=(JobEnd(7, "ada", 0.0, None),),
                ),
                Worker(
                    "gpu-0",
                    "gpu-0",
                    "replace",
                    first=False,
                    drained=True,
                    jobs=(JobEnd(8, "bob", None, 60.0),),
                ),
                Worker("gpu-2", "gpu-2", "replace", first=False, drained=True, jobs_known=False),
                Worker("gpu-3", "gpu-3", "create", first=True, drained=False),
            ),
            why=("spec.slurmd.image: a → b",),
            notes=("at most 1 of 3 workers are replaced at a time",),
        ),
    ),
)

TEXT = """\
Objects
  + ConfigMap slurm/new
  ~ NodeSet slurm/gpu
      spec.replicas: 2 → 1

Configuration of slurmctld
  Controller slurm/slurm: slurm.conf: slurmctld restarts in its pod; jobs continue
      SlurmctldPort: unset → 7000
  Controller slurm/other: gres.conf: slurmctld takes it while it runs

Order of the upgrade
  Controller slurm/slurm: each step begins when the daemons of the one before are ready
    1. Controller slurm: a → b
    2. NodeSet gpu: a → b
    2. NodeSet cpu: a → b
    slurmrestd keeps image a, because it is newer

Pods of daemons
  StatefulSet slurm/db: pods are created (db-0, db-1, db-2, … db-8)
      spec.replicas: 1 → 9

Volumes
  StatefulSet slurm/slurm-controller: it stays
      claim c grows from 4Gi to 8Gi
  PersistentVolumeClaim slurm/slurm-mariadb: it grows from 1Gi to 2Gi

Workers
  NodeSet slurm/gpu: 1 worker is created, 2 workers are replaced, 1 worker is deleted
      spec.slurmd.image: a → b
    at most 1 of 3 workers are replaced at a time
    first: Slurm node gpu-1 is drained, then pod gpu-1 is deleted
        job 7 of ada ends at 1970-01-01T00:00:00Z at the latest; the worker waits for it
    then: Slurm node gpu-0 is drained, then pod gpu-0 is replaced
        job 8 of bob has no time limit, and has to end by 1970-01-01T00:01:00Z
    then: Slurm node gpu-2 is drained, then pod gpu-2 is replaced; its jobs are unknown
"""


def test_text_names_each_change_node_and_job() -> None:
    assert as_text(PREVIEW) == TEXT


def test_markdown_has_the_same_lines_in_blocks() -> None:
    found = as_markdown(PREVIEW)
    assert found.startswith("### Objects\n\n```text\n  + ConfigMap slurm/new\n")
    assert [line for line in found.splitlines() if line.startswith("  ")] == [
        line for line in TEXT.splitlines() if line.startswith("  ")
    ]


def test_what_a_stream_chooses_ends_neither_a_line_nor_the_block_and_is_no_command() -> None:
    name = "a\n```\n````\n<!-- @team\n::error::x\x1b[2J"
    hostile = Preview(
        changes=(
            Change("create", name, name, name),
            Change("change", "A", "", "b", ("::add-mask::x is added",)),
        ),
        pods=(Pods("StatefulSet", name, name, "create", (name,), (name,)),),
    )
    lines = as_markdown(hostile).splitlines()
    assert [it for it in lines if not it.startswith("  ")] == [
        "### Objects",
        "",
        "`````text",
        "`````",
        "",
        "### Pods of daemons",
        "",
        "`````text",
        "`````",
    ]
    for line in (*lines, *as_text(hostile).splitlines()):
        assert line.isprintable()
        assert not line.lstrip().startswith("::")
    assert "      : :add-mask::x is added" in lines


def test_what_the_api_server_refuses_is_first() -> None:
    refused = Refused("Controller", "slurm", "slurm", ("spec.clusterName: cannot change",))
    lines = as_text(replace(PREVIEW, refused=(refused,))).splitlines()
    assert lines[0].startswith("Refused by the API server: the upgrade fails")
    assert lines[1:3] == ["  Controller slurm/slurm", "      spec.clusterName: cannot change"]


def test_json_has_all_of_it() -> None:
    found = json.loads(as_json(PREVIEW))
    kinds = ["changes", "configured", "pods", "refused", "stranded", "upgrades", "volumes"]
    kinds.append("workers")
    assert sorted(found) == kinds
    assert found["workers"][0]["workers"][0]["jobs"] == [
        {"job_id": 7, "user": "ada", "ends": 0.0, "by": None}
    ]


def test_no_change_is_reported_as_such() -> None:
    assert as_text(Preview()) == as_markdown(Preview()) == f"{NOTHING}\n"
    assert json.loads(as_json(Preview())) == {
        "refused": [],
        "changes": [],
        "configured": [],
        "upgrades": [],
        "pods": [],
        "volumes": [],
        "workers": [],
        "stranded": [],
    }


def shown_in(page: str) -> str:
    """The block of a page that begins like a preview."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [
        textwrap.dedent(it)
        for it in re.findall(r"^ *```text\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    ]
    return next(it for it in blocks if it.startswith(("Objects\n", "NodeSet ")))


def test_the_documentation_shows_what_the_program_writes() -> None:
    slurm = busy(clusters.job(4711, "slinky-0", 90))
    after = [
        *streams.known_keys(),
        streams.controller(extraConf="SchedulerParameters=bf_interval=9"),
        *(
            it
            for it in documents(slurmd={"image": "slurmd:26.05.1"})
            if it["kind"] in {"RestApi", "NodeSet"}
        ),
    ]
    written = as_text(preview(documents(), after, streams.SITE, state(slurm)))
    assert shown_in("docs/preview.md") == written
    assert shown_in("README.md") == textwrap.dedent(written.partition("\nWorkers\n")[2])


def test_the_documentation_shows_the_order_of_an_upgrade_as_the_program_writes_it() -> None:
    [upgrade] = preview(
        slurm_of("25.11"), slurm_of("26.05"), streams.SITE, State(clusters.NOW)
    ).upgrades
    text = (ROOT / "docs" / "preview.md").read_text(encoding="utf-8")
    assert textwrap.indent(as_text(Preview(upgrades=(upgrade,))), "  ") in text
