"""What `reconfigure` serves: `sidecars.contract.status`."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecars.contract.status import (
    PORT,
    STARTED_PATH,
    Rejection,
    Stage,
    StartGate,
    StartGatePhase,
    Status,
    decode,
    encode,
)
from sidecars.policy.conditions import timestamp

SLURMCTLD = Path(__file__).parents[3] / "charts/slurm-operator/workloads/slurmctld.yaml"
A, B = "a" * 64, "b" * 64
REJECTION = Rejection(
    *(B, Stage.SLURMD, "slurm.conf", 3, "no such key"),
    final=True,
    since=5.5,
    daemon="slurmd",
    nodes=("w-0", "w-1"),
)
FULL = Status(
    candidate=B,
    problem="gres.conf is not there yet",
    accepted=A,
    running=A,
    rejected=REJECTION,
    restart="SlurmctldPort (1 → 2)",
    start_gate=StartGate(StartGatePhase.ASKED, "ctl-1 leads"),
    watching=True,
    installed=A,
    phase="Settled",
    since=7.25,
)


def through_json(status: Status) -> Status:
    """The status that the operator reads when a pod serves this one."""
    return decode(json.loads(json.dumps(encode(status))))


def everything(status: Status) -> list[object]:
    """All fields, those that are not compared too."""
    rejected = status.rejected
    return [status, status.installed, status.phase, status.since, rejected and rejected.since]


@pytest.mark.parametrize(
    "status",
    [
        Status(),
        FULL,
        replace(FULL, rejected=replace(REJECTION, line=None)),
        *(replace(FULL, start_gate=StartGate(phase)) for phase in StartGatePhase),
    ],
)
def test_a_status_is_read_back_with_every_field(status: Status) -> None:
    assert everything(through_json(status)) == everything(status)


def test_fields_that_matter_to_no_condition_make_no_difference() -> None:
    assert replace(FULL, phase="Checking", since=9.0, installed=None) == FULL
    assert replace(FULL, running=B) != FULL


def test_an_older_pod_serves_no_start_gate_and_watches_no_slurmd() -> None:
    document = encode(FULL)
    for key in ("startGate", "watching"):
        del document[key]
    for key in ("daemon", "nodes"):
        del document["rejected"][key]
    rejection = replace(REJECTION, daemon="", nodes=())
    assert decode(document) == replace(FULL, start_gate=None, watching=False, rejected=rejection)


def test_an_older_pod_need_not_serve_what_is_not_compared() -> None:
    document = encode(FULL)
    for key in ("phase", "since", "installed"):
        del document[key]
    assert decode(document) == FULL


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"status": "ok"},
        encode(FULL) | {"running": 7},
        encode(FULL) | {"rejected": {}},
        encode(FULL) | {"rejected": encode(FULL)["rejected"] | {"stage": "Other"}},
        encode(FULL) | {"since": {}},
    ],
)
def test_another_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not an answer of reconfigure"):
        decode(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.data())
def test_whatever_a_field_has_the_answer_is_refused_or_can_be_shown(data: st.DataObject) -> None:
    document = encode(FULL)
    place = data.draw(st.sampled_from([document, document["rejected"], document["startGate"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        status = decode(document)
    except ValueError:
        return
    for at in (status.since, status.rejected.since if status.rejected is not None else 0.0):
        assert timestamp(at - 60.0)


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, 1e300, 1e17, -1.0, "NaN", "1e400"])
def test_a_time_that_no_calendar_has_is_refused(at: object) -> None:
    for document in (
        encode(FULL) | {"since": at},
        encode(FULL) | {"rejected": encode(FULL)["rejected"] | {"since": at}},
    ):
        with pytest.raises(ValueError, match="not an answer of reconfigure"):
            decode(document)


@pytest.mark.parametrize("line", [math.inf, math.nan, "1" * 5000, [], {}])
def test_a_line_that_is_no_number_is_refused(line: object) -> None:
    document = encode(FULL) | {"rejected": encode(FULL)["rejected"] | {"line": line}}
    with pytest.raises(ValueError, match="not an answer of reconfigure"):
        decode(document)


def test_the_pod_structure_has_the_same_port_and_path() -> None:
    [stateful_set] = [
        it for it in yaml.safe_load_all(SLURMCTLD.read_text()) if it["kind"] == "StatefulSet"
    ]
    containers = stateful_set["spec"]["template"]["spec"]["initContainers"]
    [reconfigure] = [it for it in containers if it["name"] == "reconfigure"]
    assert reconfigure["ports"] == [
        {"name": "reconfigure", "containerPort": PORT, "protocol": "TCP"}
    ]
    assert reconfigure["startupProbe"]["httpGet"] == {"path": STARTED_PATH, "port": "reconfigure"}


def test_what_a_pod_reports_is_printable_and_bounded() -> None:
    forged = "\n\x1b[2J" + "x" * 1_000_000
    rejected = replace(REJECTION, reason=forged, file=forged)
    found = through_json(
        replace(
            FULL,
            problem=forged,
            restart=forged,
            rejected=rejected,
            start_gate=StartGate(StartGatePhase.ASKED, forged),
        )
    )
    assert found.rejected is not None
    assert found.start_gate is not None
    texts = [found.problem, found.restart, found.start_gate.problem]
    for text in (*texts, found.rejected.reason, found.rejected.file):
        assert text is not None
        assert text.isprintable()
        assert len(text) <= 2000
