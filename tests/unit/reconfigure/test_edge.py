"""Files as the kubelet and the container `check` leave them, on a real file system."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecars.reconfigure import refusals
from sidecars.reconfigure.actions import (
    Check,
    Forget,
    Install,
    Keep,
    Look,
    Looked,
    NoAnswer,
    Passed,
    Reconfigure,
    Refuse,
    Refused,
    Restart,
)
from sidecars.reconfigure.dryrun import Host
from sidecars.reconfigure.edge import Edge, Places
from sidecars.reconfigure.fileset import FileSet, IncompleteError, assemble
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.slurm import keys
from sidecars.slurm.diagnosis import Culprit

KEYS = {"slurm.key": b"s", "jwt.key": b"j"}


def candidate(files: Mapping[str, str], letter: str = "a") -> dict[str, bytes]:
    """The files with their manifest."""
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    manifest = json.dumps({"files": digests, "sha256": letter * 64})
    return {name: text.encode() for name, text in files.items()} | {
        "manifest.json": manifest.encode()
    }


def project(folder: Path, files: Mapping[str, bytes], version: str) -> None:
    """Write a volume as the kubelet does: a folder, and `..data` swapped to it."""
    (folder / version).mkdir(parents=True)
    for name, content in files.items():
        (folder / version / name).write_bytes(content)
    (folder / "..new").symlink_to(version)
    (folder / "..new").replace(folder / "..data")


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    """An edge over empty folders, with keys."""
    for name in ("candidate", "live", "state", "check/.gate"):
        (tmp_path / name).mkdir(parents=True)
    project(tmp_path / "keys", KEYS, "..1")
    places = Places(
        candidate=tmp_path / "candidate",
        keys=tmp_path / "keys",
        live=tmp_path / "live",
        good=tmp_path / "state" / ".slurm-config",
        check=tmp_path / "check",
        state=tmp_path / "state",
        host="ctl-0",
        port=1,
    )
    return Edge(places)


@contextmanager
def checker(edge: Edge, code: int, message: str) -> Iterator[list[str]]:
    """A stand-in for the container `check` that answers one request."""
    gate = edge.places.check / ".gate"
    os.mkfifo(gate / "requests")
    asked: list[str] = []

    def serve() -> None:
        line = (gate / "requests").read_text().strip()
        asked.append(line.partition(" ")[2])
        name = line.split()[0]
        (gate / f"{name}.out").write_text(message)
        (gate / "answer").write_text(f"{code}\n")
        (gate / "answer").replace(gate / f"{name}.rc")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield asked
    thread.join(5)


def installed(edge: Edge, text: str, letter: str = "a") -> FileSet:
    """A whole set with that slurm.conf."""
    return assemble(candidate({"slurm.conf": text}, letter), edge.keys())


def test_a_candidate_counts_only_when_every_file_is_its_manifests(edge: Edge) -> None:
    assert edge.candidate() is None
    assert edge.problem == "manifest.json is not there yet"
    whole = candidate({"slurm.conf": "KillWait=5\n", "gres.conf": ""})
    project(
        edge.places.candidate,
        {name: whole[name] for name in ("slurm.conf", "manifest.json")},
        "..1",
    )
    assert edge.candidate() is None
    assert edge.problem == "gres.conf is not there yet"
    project(edge.places.candidate, whole | {"slurm.conf": b"old"}, "..2")
    assert edge.candidate() is None
    project(edge.places.candidate, whole, "..3")
    found = edge.candidate()
    assert found is not None
    assert (found.config, edge.problem) == ("a" * 64, "")


def test_a_manifest_cannot_bring_keys_or_leave_the_folder() -> None:
    for name in ("slurm.key", "../passwd", ".hidden", "manifest.json"):
        with pytest.raises(IncompleteError, match="can't be a file"):
            assemble(
                candidate({name: "x", "slurm.conf": ""}) | {name: b"x"}, {}
            ) if name != "manifest.json" else (
                assemble(
                    {
                        "manifest.json": json.dumps(
                            {"files": {name: "0"}, "sha256": "a" * 64}
                        ).encode()
                    },
                    {},
                )
            )


def test_a_set_is_installed_at_once_and_only_its_owner_reads_it(edge: Edge) -> None:
    live = edge.places.live
    for version, letter in (("..1", "a"), ("..2", "b"), ("..3", "c")):
        files = {"slurm.conf": f"# {letter}\n", "prolog.sh": "#!/bin/sh\n", f"{letter}.conf": ""}
        project(edge.places.candidate, candidate(files, letter), version)
        found = edge.candidate()
        assert found is not None
        edge.perform(Install(found), None)
        assert edge.present() == found
    assert (live / "slurm.conf").read_text() == "# c\n"
    assert (live / "slurm.key").read_bytes() == b"s"
    assert (live / "slurm.key").stat().st_mode & 0o777 == 0o600
    assert (live / "prolog.sh").stat().st_mode & 0o777 == 0o700
    # The links of this set, the set before for a reader that has it open, and nothing older.
    names = {path.name for path in live.iterdir() if not path.name.startswith("..")}
    assert names == {"slurm.conf", "prolog.sh", "c.conf", "slurm.key", "jwt.key", "manifest.json"}
    assert len([path for path in live.iterdir() if path.is_dir() and not path.is_symlink()]) == 2


def test_the_last_good_set_is_kept_without_keys_and_found_by_another_process(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "KillWait=5\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    edge.perform(Keep(found), None)
    assert Edge(edge.places).good() == found
    kept = {path.name for path in edge.places.good.rglob("*") if path.is_file()}
    assert kept == {"slurm.conf", "manifest.json"}


def test_a_set_was_being_brought_in_if_it_is_newer_than_the_last_good_one(edge: Edge) -> None:
    assert not edge.interrupted()
    edge.install(installed(edge, "KillWait=6\n"))
    assert not edge.interrupted()
    edge.keep(installed(edge, "KillWait=5\n"))
    for installed_at, interrupted in ((60, True), (40, False)):
        os.utime(edge.places.live / "..data", (installed_at, installed_at), follow_symlinks=False)
        os.utime(edge.places.good / "good", (50, 50), follow_symlinks=False)
        assert edge.interrupted() is interrupted


def test_a_damaged_last_good_set_is_none(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "KillWait=5\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    edge.perform(Keep(found), None)
    (edge.places.good / "good" / "slurm.conf").write_text("KillW")
    assert Edge(edge.places).good() is None


def test_a_dry_run_quotes_slurmctld(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "ClusterName=lab\nFoo=1\n"}), "..1")
    (edge.places.state / "clustername").write_text("lab")
    found = edge.candidate()
    assert found is not None
    with checker(edge, 1, "slurmctld: error: Parsing error at unrecognized key: Foo\n") as asked:
        answer = edge.perform(Check(found), None)
    assert isinstance(answer, Refused)
    assert str(answer.culprit) == "slurm.conf line 2: Parsing error at unrecognized key: Foo"
    assert asked == ["check"]
    assert (edge.places.check / ".gate" / "state" / "clustername").read_text() == "lab"
    assert (edge.places.check / "slurm.key").read_bytes() == b"s"


def test_a_dry_run_that_comes_up_passes(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "ClusterName=lab\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    with checker(edge, 0, "Running as primary controller\n"):
        assert edge.perform(Check(found), None) == Passed()


@pytest.mark.parametrize(("code", "nodes"), [(0, True), (1, False)])
def test_a_dry_run_has_the_dynamic_nodes_that_slurmctld_lists_and_none_of_an_error(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, code: int, *, nodes: bool
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.alive", lambda *_: True)
    live = installed(edge, "ClusterName=lab\n")
    project(
        edge.places.candidate,
        candidate({"slurm.conf": "ClusterName=lab\nKillWait=5\n"}, "b"),
        "..1",
    )
    found = edge.candidate()
    assert found is not None
    edge.install(live)
    listed = code, "NodeName=w-0 NodeAddr=10.0.0.1 State=IDLE+DYNAMIC_NORM\n"
    monkeypatch.setattr(
        Edge, "_ask", lambda _, what, *__: listed if what == "scontrol -o show nodes" else (0, "")
    )
    assert isinstance(edge.perform(Check(found), edge.present()), Passed)
    assert ("NodeName=w-0" in (edge.places.check / "slurm.conf").read_text()) is nodes


def test_slurmds_are_looked_at_by_their_records_and_their_ports(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.answers", lambda *_: False)
    edge.install(installed(edge, "ClusterName=lab\n"))
    watched = Slurmd("w-0", "10.0.0.1", 7001, "monday")
    with checker(
        edge, 0, "NodeName=w-0 NodeAddr=10.0.0.1 Port=7001 State=IDLE* SlurmdStartTime=monday\n"
    ) as asked:
        assert edge.perform(Look((watched,)), None) == Looked((watched,), {"w-0": False})
    assert asked == ["scontrol -o show nodes"]


def test_slurmds_about_which_scontrol_fails_are_unknown(edge: Edge) -> None:
    edge.install(installed(edge, "ClusterName=lab\n"))
    with checker(edge, 1, "Unable to contact slurm controller\n"):
        assert edge.perform(Look(()), None) == NoAnswer("Unable to contact slurm controller")


def test_what_slurmds_ended_of_is_stored_beside_the_last_good_set_and_survives_the_next_one(
    edge: Edge,
) -> None:
    refusal = refusals.Refusal("b" * 64, Culprit("slurmd ended"), ("w-0",), 5.0)
    before = edge.version()
    edge.perform(Refuse(refusal), None)
    os.utime(edge.places.good / refusals.FILE, (1, 1))
    assert edge.version() != before
    edge.keep(installed(edge, "KillWait=5\n"))
    for found in (edge.refused(), Edge(edge.places).refused()):
        assert found is not None
        assert (found.config, found.culprit, found.nodes) == (
            refusal.config,
            refusal.culprit,
            refusal.nodes,
        )
    edge.perform(Forget(), None)
    assert edge.refused() is None


@pytest.mark.parametrize("code", [124, 137])
def test_an_scontrol_that_timed_out_or_was_killed_reports_nothing_about_the_configuration(
    edge: Edge, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.alive", lambda *_: True)
    edge.install(installed(edge, "ClusterName=lab\n"))
    with checker(edge, code, "") as asked:
        answer = edge.perform(Reconfigure(), None)
    assert asked == ["scontrol reconfigure"]
    assert isinstance(answer, NoAnswer)
    assert str(code) in answer.reason


@pytest.mark.parametrize("action", [Reconfigure(), Restart()])
def test_no_scontrol_is_started_while_nothing_listens_at_slurmctlds_port(
    edge: Edge, action: Reconfigure | Restart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sidecars.reconfigure.edge._send", lambda *_: pytest.fail("scontrol is started")
    )
    edge.install(installed(edge, "ClusterName=lab\n"))
    assert edge.perform(action, None) == NoAnswer("nothing listens at slurmctld's port")


def test_a_dry_run_asks_no_slurmctld_that_is_gone_for_its_nodes(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "ClusterName=lab\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    with checker(edge, 0, "") as asked:
        assert edge.perform(Check(found), found) == Passed()
    assert asked == ["check"]


def test_a_dry_run_whose_port_another_process_has_taken_reports_nothing_about_the_set(
    edge: Edge,
) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "ClusterName=lab\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    message = (
        "slurmctld: error: Error binding slurm stream socket: Address already in use\nslurmctld: "
        "fatal: Unable to\n"
    )
    with checker(edge, 1, message):
        answer = edge.perform(Check(found), None)
    assert isinstance(answer, NoAnswer)
    assert "Address already in use" in answer.reason


def test_a_set_that_moves_the_state_is_refused_without_a_dry_run(edge: Edge) -> None:
    project(edge.places.candidate, candidate({"slurm.conf": "StateSaveLocation=/tmp/x\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    answer = edge.perform(Check(found), None)
    assert isinstance(answer, Refused)
    assert "StateSaveLocation=/tmp/x" in str(answer.culprit)


def test_without_the_container_check_nothing_is_accepted(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.reconfigure.edge.CHECK_SECONDS", 0.05)
    project(edge.places.candidate, candidate({"slurm.conf": "ClusterName=lab\n"}), "..1")
    found = edge.candidate()
    assert found is not None
    assert isinstance(edge.perform(Check(found), None), NoAnswer)


@pytest.mark.parametrize("leads", [True, False])
def test_only_a_slurmctld_that_leads_is_ended_for_the_primary(
    edge: Edge, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.leads", lambda *_: leads)
    edge.install(installed(edge, "ClusterName=lab\n"))
    if leads:
        with checker(edge, 0, "") as asked:
            assert edge.end_if_leading() == ""
        assert asked == ["scontrol shutdown slurmctld"]
    else:
        assert edge.end_if_leading() == ""  # nobody serves requests here


def test_slurmctld_does_not_end_while_its_container_check_is_asked_something_else(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.leads", lambda *_: True)
    with edge._one_at_a_time:
        assert edge.end_if_leading() == "its sidecar is busy with a configuration"


def test_the_primary_gets_what_scontrol_reported(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecars.slurm.health.leads", lambda *_: True)
    edge.install(installed(edge, "ClusterName=lab\n"))
    with checker(edge, 1, "slurm_shutdown error: Unable to contact slurm controller\n"):
        assert edge.end_if_leading() == "slurm_shutdown error: Unable to contact slurm controller"


def test_a_slurmctld_that_reports_nothing_is_not_ended(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> bool:
        raise TimeoutError("timed out")

    monkeypatch.setattr("sidecars.slurm.health.leads", silent)
    assert edge.end_if_leading() == "timed out"


def test_the_other_slurmctld_are_those_of_the_installed_set(edge: Edge) -> None:
    with pytest.raises(FileNotFoundError):
        edge.hosts()
    edge.install(installed(edge, "SlurmctldHost=ctl-0(a)\nSlurmctldHost=ctl-1(b)\n"))
    assert edge.hosts() == [Host("ctl-0", "a"), Host("ctl-1", "b")]


def test_what_slurm_takes_only_on_a_restart_are_keys_of_slurm() -> None:
    assert set(keys.READ_AT_START) <= set(keys.spelled("slurm.conf"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("AccountingStorageType=accounting_storage/slurmdbd\n", True),
        ("accountingstoragetype=ACCOUNTING_STORAGE/SLURMDBD\n", True),
        ("AccountingStorageType=accounting_storage/none\n", False),
        ("ClusterName=lab\n", False),
        (None, False),
    ],
)
def test_it_knows_whether_slurmctld_uses_slurmdbd(
    edge: Edge, lines: str | None, *, expected: bool
) -> None:
    if lines is not None:
        (edge.places.live / "slurm.conf").write_text(lines)
    assert edge.has_accounting() is expected


def test_a_set_with_the_kept_configuration_is_not_stored_again_and_another_one_is(
    edge: Edge,
) -> None:
    edge.keep(installed(edge, "KillWait=5\n"))
    first = (edge.places.good / "good").readlink()
    edge.keep(installed(edge, "KillWait=5\n"))
    assert (edge.places.good / "good").readlink() == first
    changed = installed(edge, "KillWait=6\n", "b")
    edge.keep(changed)
    assert (edge.places.good / "good").readlink() != first
    assert edge.good() == changed.id
