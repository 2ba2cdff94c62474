"""The collector of docs/logs.md, as a process: it reads files as the kubelet writes them, and a
store gets the lines of all pods and the events that a real kube-apiserver has.

Here because its programs take minutes to build.
"""

import http.server
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.examples import examples
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.real.harness import until

ROOT = Path(__file__).parents[2]
PAGE = "docs/logs.md"
OBJECTS = [
    document
    for example in examples(PAGE, (ROOT / PAGE).read_text(encoding="utf-8"))
    for document in example.documents
]
LINE = '{"time":"2026-11-25T14:02:11Z","job":4711,"user":"ada","message":"epoch 1"}'
TIME = "2026-11-25T14:02:11.402113999Z"


class Store(http.server.ThreadingHTTPServer):
    """Takes logs in the form of OTLP."""

    def __init__(self) -> None:
        """Listens on a port of this host."""
        super().__init__(("127.0.0.1", 0), _Request)
        self.lines: list[dict[str, Any]] = []
        """The attributes of each line and of its resource, with its `body`."""


class _Request(http.server.BaseHTTPRequestHandler):
    server: Store

    def do_POST(self) -> None:
        """Keep what is sent."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body["resourceLogs"]:
            common = _plain(resource["resource"].get("attributes", []))
            for scope in resource["scopeLogs"]:
                self.server.lines += [
                    {**common, **_plain(it["attributes"]), "body": it["body"]["stringValue"]}
                    for it in scope["logRecords"]
                ]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {it["key"]: next(iter(it["value"].values()), None) for it in attributes}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def written(pods: Path, pod: str, container: str, lines: str) -> None:
    """Write lines as the kubelet does: /var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log."""
    file = pods / f"{pod}_0f3a77c1-0000-0000-0000-000000000000" / container / "0.log"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{TIME} stdout F {line}\n" for line in lines.splitlines()))


def configuration(pods: Path, port: int) -> str:
    """That of the page, with this folder and this store."""
    [text] = [it["data"]["collector.yaml"] for it in OBJECTS if it["kind"] == "ConfigMap"]
    found = yaml.safe_load(re.sub(r"/var/log/pods", str(pods), text))
    store = {"endpoint": f"http://127.0.0.1:{port}", "encoding": "json", "compression": "none"}
    found["exporters"]["otlp_http"] |= store
    return yaml.safe_dump(found)


def events(folder: Path) -> str:
    """What the page's first container of events prints of a real kube-apiserver."""
    [deployment] = [it for it in OBJECTS if it["kind"] == "Deployment"]
    first = deployment["spec"]["template"]["spec"]["containers"][0]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": "slurm"},
        "involvedObject": {"kind": "Pod", "name": "slurm-worker-cpu-0", "namespace": "slurm"},
        "reason": "SuccessfulDelete",
        "message": "two\nlines",
    }
    plane = ControlPlane.temporary(folder)
    try:
        kubectl = [str(tool("kubectl")), f"--kubeconfig={plane.kubeconfig}"]
        for given in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slurm"}},
            event,
        ):
            command = [*kubectl, "create", "--filename=-"]
            subprocess.run(command, input=json.dumps(given), text=True, check=True, timeout=60)
        output = folder / "events"
        with output.open("wb") as file:
            process = subprocess.Popen([*kubectl, *first["args"]], stdout=file)
        try:
            until("the event", lambda: output.read_text().endswith("\n"))
        finally:
            process.kill()
            process.wait()
        return output.read_text()
    finally:
        plane.stop()


def test_the_store_gets_the_lines_of_jobs_daemons_and_events_and_no_others(
    tmp_path: Path, store: Store
) -> None:
    pods = tmp_path / "pods"
    written(pods, "slurm_slurm-worker-cpu-0", "logs", LINE)
    written(pods, "slurm_slurm-worker-cpu-0", "slurmd", "slurmd: error: something {odd")
    written(pods, "other_pod", "main", "not Slurm's")
    written(pods, "slurm-logs_events-5d9", "slurm", events(tmp_path / "plane"))
    file = tmp_path / "collector.yaml"
    file.write_text(configuration(pods, store.server_port))
    log = tmp_path / "log"
    with log.open("wb") as output:
        collector = subprocess.Popen(
            [tool("otelcol"), f"--config={file}"], stdout=output, stderr=output
        )
    try:
        until("three lines", lambda: len(store.lines) >= 3)
        # What comes later is read later.
        written(pods, "other_later", "main", "not Slurm's either")
        written(pods, "slinky_slurm-operator", "z", "the last line")
        until("the last line", lambda: any(it["body"] == "the last line" for it in store.lines))
    finally:
        collector.kill()
        collector.wait()
    assert "deprecated" not in log.read_text()
    by_container = sorted(store.lines, key=lambda it: str(it["k8s.container.name"]))
    job, event, daemon, _ = by_container
    assert (job["job"], job["user"], job["message"]) == (4711, "ada", "epoch 1")
    assert (job["k8s.namespace.name"], job["k8s.pod.name"]) == ("slurm", "slurm-worker-cpu-0")
    assert (event["k8s.container.name"], event["reason"]) == ("slurm", "SuccessfulDelete")
    assert daemon["body"] == "slurmd: error: something {odd"
