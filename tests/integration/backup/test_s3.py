"""Copies of the backups in a real S3-compatible store, versitygw, and what it refuses."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError

from sidecars.__main__ import main
from sidecars.backup import volume
from sidecars.backup.store import opened
from sidecars.backup.uploads import Upload, Uploads
from tests.cluster.certificates import Authority
from tests.cluster.control_plane import free_ports
from tests.cluster.tools import tool
from tests.cluster.waiting import until
from tests.support.real.object_store import BUCKET, KEYS
from tests.unit.backup.test_state import found as files_of
from tests.unit.backup.test_state import statesave
from tests.unit.backup.test_volume import NOW, made

SECONDS = 30.0


@dataclass(frozen=True)
class Gateway:
    """versitygw with a bucket, whose objects are files of `bucket`."""

    process: "subprocess.Popen[bytes]"
    port: int
    bucket: Path
    scheme: str

    def words(self, *others: str) -> list[str]:
        """Options of `copy` and `fetch`."""
        return [
            f"--bucket={BUCKET}",
            "--prefix=clusters/berlin",
            f"--endpoint={self.scheme}://127.0.0.1:{self.port}",
            *others,
        ]

    def objects(self) -> list[str]:
        folder = self.bucket / "clusters" / "berlin"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def parts(self) -> int:
        """How many parts of unfinished uploads it has."""
        return sum(path.is_file() for path in (self.bucket / ".sgwtmp" / "multipart").glob("*/*/*"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """Without TLS; the environment has its keys."""
    with_keys(monkeypatch)
    yield from gateway(tmp_path, "http")


def with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def gateway(folder: Path, scheme: str, *options: str) -> Iterator[Gateway]:
    (port,) = free_ports(1)
    bucket = folder / "store" / BUCKET
    bucket.mkdir(parents=True)
    (folder / "attributes").mkdir()
    environment = {
        "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    with (folder / "versitygw.log").open("wb") as log:
        process = subprocess.Popen(
            [
                tool("versitygw"),
                f"--port=127.0.0.1:{port}",
                *options,
                "posix",
                "--sidecar",
                folder / "attributes",
                bucket.parent,
            ],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        until_it_answers(port, process)
        yield Gateway(process, port, bucket, scheme)
    finally:
        process.kill()
        process.wait()


def until_it_answers(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            assert process.poll() is None, "versitygw has ended"
            assert time.monotonic() < deadline, "versitygw doesn't answer"
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def test_the_newest_backups_go_to_the_store_and_come_back_to_an_empty_volume(
    store: Gateway, disk: Path, tmp_path: Path
) -> None:
    # More than one part of a multipart upload.
    large = os.urandom(20 << 20)
    old, new = made(disk, NOW, None), volume.begin(disk, "pod", NOW + 60, 3600)
    (new / volume.STATE).write_bytes(large)
    newest = volume.finish(disk, "pod", False, NOW + 60).name
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 0
    files = (volume.MANIFEST, volume.STATE)
    assert store.objects() == [f"{name}/{file}" for name in (old.name, newest) for file in files]
    assert main(["backup", "copy", f"--volume={disk}", "--keep=1", *store.words()]) == 0
    assert store.objects() == [f"{newest}/{file}" for file in files]

    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        main(["backup", "fetch", f"--volume={empty}", "--pod=restore", *store.words(), "latest"])
        == 0
    )
    assert (empty / newest / volume.STATE).read_bytes() == large
    assert volume.choose(empty, newest) == volume.choose(disk, newest)


def test_a_damaged_copy_is_refused_in_words_and_changes_nothing(
    store: Gateway, disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = made(disk).name
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 0
    statesave(tmp_path / "statesave")
    before = files_of(tmp_path / "statesave")
    copied = store.bucket / "clusters" / "berlin" / name / volume.STATE
    copied.write_bytes(b"other")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        main(["backup", "fetch", f"--volume={empty}", "--pod=restore", *store.words(), "latest"])
        == 1
    )
    assert "state.tar.gz isn't the file that was saved" in caplog.text
    assert volume.backups(empty) == []

    caplog.clear()
    for damaged in (volume.STATE, volume.MANIFEST):
        (disk / name / damaged).write_bytes(b"other")
        assert (
            main(
                ["backup", "restore", f"--volume={disk}", f"--state={tmp_path / 'statesave'}", name]
            )
            == 1
        )
    assert "state.tar.gz isn't the file that was saved" in caplog.text
    assert "backup.json can't be read" in caplog.text
    assert files_of(tmp_path / "statesave") == before


def begun(gateway: Gateway, key: str, prefix: str = "clusters/berlin") -> object:
    """An upload of two parts that doesn't end."""
    client = opened(BUCKET, prefix, f"http://127.0.0.1:{gateway.port}", "us-east-1").client
    arrived = gateway.parts()
    writer = obstore.open_writer(client, key, buffer_size=5 << 20)
    writer.write(os.urandom(12 << 20))
    writer.flush()
    # It continues in the background. A part that arrives after its upload was deleted brings the
    # upload back.
    until(lambda: gateway.parts() == arrived + 2, "both parts to arrive", SECONDS)
    return writer


def unfinished(gateway: Gateway) -> list[str]:
    """The keys of the bucket's uploads."""
    found = Uploads(BUCKET, f"http://127.0.0.1:{gateway.port}", "us-east-1", os.environ)
    return sorted(upload.key for upload in found.list(""))


def test_the_parts_of_an_upload_that_fails_are_deleted_and_those_of_another_pod_are_not(
    store: Gateway, disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = volume.begin(disk, "pod", NOW, 3600)
    (folder / volume.STATE).write_bytes(os.urandom(12 << 20))
    name = volume.finish(disk, "pod", False, NOW).name
    key = f"{name}/{volume.STATE}"
    writers = [begun(store, key)]

    def interrupted(*_words: object, **_more: object) -> None:
        writers.append(begun(store, key))
        raise BaseError("the connection was closed")

    monkeypatch.setattr("sidecars.backup.store.obstore.put", interrupted)
    assert unfinished(store) == [f"clusters/berlin/{key}"]
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 1
    assert len(writers) == 2
    assert unfinished(store) == [f"clusters/berlin/{key}"]
    assert "the connection was closed" in caplog.text


def test_the_next_copy_deletes_the_parts_of_backups_whose_pod_was_killed_a_day_ago_and_no_others(
    store: Gateway, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"{made(disk, NOW).name}/{volume.STATE}"
    others = [
        ("notes.txt", "clusters/berlin"),
        (key, "clusters/paris"),
        (f"{key}.txt", "clusters/berlin"),
    ]
    writers = [begun(store, key), *(begun(store, *it) for it in others)]
    copy = ["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]
    assert main(copy) == 0
    assert len(unfinished(store)) == len(writers)
    monkeypatch.setattr("sidecars.backup.store.ABANDONED_SECONDS", -60.0)
    assert main(copy) == 0
    assert unfinished(store) == sorted(f"{prefix}/{other}" for other, prefix in others)


def test_a_store_that_refuses_to_list_uploads_gets_its_copies(
    store: Gateway, disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(disk)

    def refused(*_words: object) -> list[Upload]:
        raise OSError("GET: AccessDenied")

    monkeypatch.setattr(Uploads, "list", refused)
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 0
    assert "can't be listed, and keep their space: GET: AccessDenied" in caplog.text


def test_a_wrong_password_is_reported_and_not_shown(
    store: Gateway, disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(disk)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-one")
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 1
    assert "SignatureDoesNotMatch" in caplog.text
    assert "Check backup.s3 in the values" in caplog.text
    assert "a-wrong-one" not in caplog.text
    assert len(volume.backups(disk)) == 1


def test_a_bucket_that_doesnt_exist_is_named(
    store: Gateway, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(disk)
    words = [
        f"--bucket={BUCKET}-2" if word.startswith("--bucket") else word for word in store.words()
    ]
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *words]) == 1
    assert "s3://backups-2/clusters/berlin: NoSuchBucket" in caplog.text


def test_a_store_that_is_down_fails_the_copy_within_seconds_and_the_next_one_makes_up_for_it(
    store: Gateway, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = made(disk, NOW).name
    store.process.kill()
    store.process.wait()
    begun = time.monotonic()
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 1
    assert time.monotonic() - begun < SECONDS
    assert "can't list s3://backups/clusters/berlin" in caplog.text
    assert "Connection refused" in caplog.text
    assert [backup.name for backup in volume.backups(disk)] == [first]


def test_a_store_with_a_certificate_of_the_site_is_trusted_only_with_its_authority(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_keys(monkeypatch)
    authority = Authority(tmp_path / "pki")
    certificate, key = authority.issue("store", "store", hosts=["127.0.0.1"])
    made(disk)
    for found in gateway(tmp_path, "https", f"--cert={certificate}", f"--key={key}"):
        copy = ["backup", "copy", f"--volume={disk}", "--keep=2", *found.words()]
        assert main(copy) == 1
        assert found.objects() == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert main(copy) == 0
        assert len(found.objects()) == 3
    assert "InvalidCertificate: UnknownIssuer" in caplog.text


def test_a_host_without_authorities_is_an_error_in_words(
    store: Gateway, disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", str(disk))
    assert main(["backup", "copy", f"--volume={disk}", "--keep=2", *store.words()]) == 1
    assert "can't use s3://backups/clusters/berlin" in caplog.text
    assert "No CA certificates" in caplog.text
