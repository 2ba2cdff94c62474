"""The archive of `doctor --bundle`."""

import json
import tarfile
from pathlib import Path

import pytest

from sidecars.explain import bundle as subject
from sidecars.explain.core import cluster_health
from tests.unit.explain.core.test_bundle_contents import JWT, SECRET, with_secrets
from tests.unit.explain.fake_kubectl import FakeKubectl, forbidden


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The files of an archive of a cluster full of secrets, logs included."""
    fake = FakeKubectl(tmp_path / "fake")
    log = "/api/v1/namespaces/slurm/pods/slurm-controller-0/log?container=slurmctld&tailLines=500"
    fake.paths[log] = (
        0,
        f"error: connect with password={SECRET}\nAuthorization: Bearer {JWT}\nuser sent {SECRET}\n",
        "",
    )
    fake.other = forbidden("get", "pods/log")
    seen = with_secrets()
    (seen.kube.pods or ())[1]["status"]["containerStatuses"] = [
        {"name": "slurmctld"},
        {"name": "logfile"},
    ]
    subject.write(tmp_path / "b.tar.gz", fake.kubectl(), seen, cluster_health.explain(seen))
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o077 == 0
    assert not any("secrets" in word for call in fake.asked() for word in call), (
        "Secrets are never read"
    )
    found = {}
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            found[entry.name] = stream.read().decode()
    return found


def test_nothing_in_the_archive_is_a_secret(files: dict[str, str]) -> None:
    for name, content in files.items():
        assert SECRET not in content, name
        assert JWT not in content, name


def test_the_archive_has_the_answer_the_objects_and_the_logs(files: dict[str, str]) -> None:
    assert json.loads(files["slurm-doctor/doctor.json"])["findings"]
    assert json.loads(files["slurm-doctor/pods.json"])
    assert (
        "connect with password=REDACTED"
        in files["slurm-doctor/logs/slurm-controller-0-slurmctld.log"]
    )


def test_a_log_that_may_not_be_read_is_named(files: dict[str, str]) -> None:
    assert "the right to get pods/log" in files["slurm-doctor/logs/slurm-controller-0-logfile.log"]
