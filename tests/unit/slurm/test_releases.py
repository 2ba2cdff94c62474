"""What slurmrestd of other releases of Slurm answers: recordings of real ones, each decoded to the
same as that of the release of the images, and the simulator's answers as those releases give them.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecars.simulate import SlurmModel
from sidecars.slurm import protocol
from sidecars.slurm.errors import Refused
from sidecars.slurm.external import ExternalRequest
from sidecars.slurm.news import refuses_changes
from sidecars.slurm.protocol import Request, decode

FOLDER = Path(__file__).parent / "fixtures" / "releases"
RECORDED = sorted(it.stem for it in FOLDER.glob("*.json"))

UPDATE = protocol.update_nodes(["n1"], comment="x")
ONE = ExternalRequest("pod", "bridge", "comment", cpus_per_task=1, memory_per_task=100)
REQUESTS: dict[str, Request[Any]] = {
    **dict.fromkeys(
        ("nodes", "nodes_completing", "bad_token", "no_token", "ctld_down", "bad_query"),
        protocol.get_nodes(),
    ),
    **dict.fromkeys(("nodes_unchanged", "nodes_changed_and_no_partition"), protocol.get_nodes(5)),
    **dict.fromkeys(("jobs", "jobs_empty", "bad_token_jobs"), protocol.get_jobs()),
    "jobs_unchanged": protocol.get_jobs(5),
    "job_states": protocol.get_job_states(),
    **dict.fromkeys(("node", "node_unknown"), protocol.get_node("n1")),
    **dict.fromkeys(("ping", "bad_token_ping", "ctld_down_ping"), protocol.ping()),
    **dict.fromkeys(
        (
            *("update", "update_unknown", "update_bad_transition", "update_bad_word", "no_right"),
            *("bad_token_update", "ctld_down_update"),
        ),
        UPDATE,
    ),
    **dict.fromkeys(("create_exists", "create_suspend_time"), protocol.create_nodes("NodeName=n1")),
    **dict.fromkeys(("delete_busy", "delete_unknown"), protocol.delete_node("n1")),
    **dict.fromkeys(
        ("external_cancelled", "external_held", "external_running"), protocol.get_external_job(13)
    ),
    "conf": protocol.slurmctld_start(),
    "diag": protocol.get_statistics(),
    "external_submitted": protocol.submit_external(ONE),
    "external_components_submit": protocol.submit_external(ONE, ONE),
    "licenses": protocol.get_licenses(),
    "partitions": protocol.get_partitions(),
    "reconfigure": protocol.reconfigure(),
    "reservations": protocol.get_reservations(),
}
"""By the situation that was recorded."""


def recording(stem: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{stem}.json").read_text()))


def situation(stem: str) -> str:
    return re.sub(r"^[\d.]+-v[\d.]+-", "", stem)


def outcome(stem: str) -> str:
    """The type of what is decoded, or of the refusal with Slurm's numbers."""
    found = recording(stem)
    body = found["text"].encode() if "text" in found else json.dumps(found["body"]).encode()
    request = REQUESTS[situation(stem)]
    if request == protocol.get_external_job(13):
        request = protocol.get_external_job(int(found["request"].rpartition("/")[2]))
    try:
        answer = decode(request, found["status"], body)
    except Refused as error:
        return f"{type(error).__name__} {sorted(error.numbers)}"
    return type(answer).__name__


PAIRS = [
    (stem, newest)
    for stem in RECORDED
    if situation(stem) in REQUESTS
    and situation(stem) not in ("conf", "create_suspend_time")
    and (newest := f"26.05.1-v0.0.45-{situation(stem)}") in RECORDED
    and stem != newest
]
"""Each recording beside that of the newest release among them."""


@pytest.mark.parametrize(("stem", "newest"), PAIRS)
def test_an_answer_of_an_older_release_is_decoded_as_that_of_a_newer_one(
    stem: str, newest: str
) -> None:
    assert outcome(stem) == outcome(newest)


def test_nodes_show_the_release_of_the_server() -> None:
    for release, api in (((25, 11, 7), "v0.0.44"), ((26, 5, 1), "v0.0.45")):
        text = f"{release[0]:02}.{release[1]:02}.{release[2]}"
        found = recording(f"{text}-{api}-nodes")
        answer = decode(protocol.get_nodes(), 200, json.dumps(found["body"]).encode())
        assert answer is not None
        assert answer.release == release
        assert {node.name for node in answer.nodes}
    for meta in ({}, {"slurm": None}, {"slurm": {"release": "next"}}, {"slurm": "x"}, "x"):
        body = {"nodes": [], "last_update": {"set": True, "number": 1}, "meta": meta}
        answer = decode(protocol.get_nodes(), 200, json.dumps(body).encode())
        assert answer is not None
        assert answer.release is None


@pytest.mark.parametrize("stem", [it for it in RECORDED if it.endswith("no_partition")])
def test_each_release_before_26_05_3_refuses_to_report_changes(stem: str) -> None:
    found = recording(stem)
    with pytest.raises(Refused) as caught:
        decode(protocol.get_nodes(5), found["status"], json.dumps(found["body"]).encode())
    assert refuses_changes(caught.value)


NOW = 1_800_000_000.0
Ask = Callable[[SlurmModel, str], Any]


def asked(method: str, path: str, body: Any = None) -> Ask:
    content = None if body is None else json.dumps(body).encode()
    return lambda model, api: model.handle(method, f"/slurm/{api}/{path}", content)


def busy(model: SlurmModel, api: str) -> Any:
    model.job_start("n1", cpus=1)
    return asked("DELETE", "node/n1")(model, api)


SIMULATED: dict[str, Ask] = {
    "bad_query": asked("GET", "nodes/?update_time=abc"),
    "conf": asked("GET", "conf"),
    "create_suspend_time": asked(
        "POST", "new/node/", {"node_conf": "NodeName=c1 State=CLOUD SuspendTime=60"}
    ),
    "delete_busy": busy,
    "delete_unknown": asked("DELETE", "node/zz"),
    "node_unknown": asked("GET", "node/zz"),
    "nodes_changed_and_no_partition": asked("GET", f"nodes/?update_time={int(NOW)}"),
    "nodes_unchanged": asked("GET", f"nodes/?update_time={int(NOW) + 5}"),
    "update": asked("POST", "nodes/", {"name": ["n1"], "comment": "x"}),
    "update_bad_transition": asked("POST", "nodes/", {"name": ["n1"], "state": ["DOWN", "RESUME"]}),
    "update_bad_word": asked("POST", "nodes/", {"name": ["n1"], "state": ["NONSENSE"]}),
    "update_unknown": asked("POST", "nodes/", {"name": ["zz"], "state": ["DRAIN"]}),
}


def numbers(body: Any) -> list[int]:
    return sorted(it["error_number"] for it in body.get("errors", ())) if body else []


@pytest.mark.parametrize("stem", [it for it in RECORDED if situation(it) in SIMULATED])
def test_the_simulator_answers_with_the_status_and_the_numbers_of_each_release(stem: str) -> None:
    release, api, _ = stem.split("-", 2)
    model = SlurmModel(lambda: NOW)
    model.release = tuple(map(int, release.split(".")))
    model.node_register("n1")
    reply = SIMULATED[situation(stem)](model, api)
    found = recording(stem)
    assert reply.status == found["status"]
    if "body" in found and reply.status != 304:
        body = json.loads(reply.body)
        assert numbers(body) == numbers(found["body"])
        assert body["meta"]["slurm"]["release"] == release


def test_the_simulator_of_25_11_has_no_newer_version_of_the_api() -> None:
    model = SlurmModel(lambda: NOW)
    model.release = (25, 11, 7)
    assert model.handle("GET", "/slurm/v0.0.45/ping/").status == 404
    assert model.handle("GET", "/slurm/v0.0.44/ping/").status == 200
