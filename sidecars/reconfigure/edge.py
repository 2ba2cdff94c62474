"""The edge of `reconfigure`: files, the container `check`, slurmctld's port. Decides nothing.

slurmctld and scontrol are run by the container `check`, which has slurmctld's image: a shell loop
that reads a request per line from a FIFO in a folder that both share, and writes `ID.out` and then
`ID.rc` there. That folder is its /etc/slurm, so that absolute paths in the candidate are valid.
"""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sidecars.contract import manifest, paths, ports
from sidecars.reconfigure import dryrun, fileset, refusals, slurmds
from sidecars.reconfigure.actions import (
    Action,
    Alive,
    Answer,
    Check,
    Forget,
    Install,
    Keep,
    Look,
    Looked,
    NoAnswer,
    Passed,
    Probe,
    Reconfigure,
    Refuse,
    Refused,
    Restart,
    Taken,
)
from sidecars.reconfigure.fileset import FileSet, Id, IncompleteError
from sidecars.slurm import diagnosis, health, keys

DATA = "..data"
"""The link that the kubelet swaps in a projected volume, and this sidecar in the folder of
slurmctld.
"""
GATE = ".gate"
CLIENT_CONF = "client.conf"
GOOD = "good"

CHECK_SECONDS = 40.0
CALL_SECONDS = 75.0
"""For scontrol, which the container `check` ends after 70 s."""
PROBE_SECONDS = 1.0
_POLL = 0.01


@dataclass(frozen=True, slots=True)
class Places:
    """Folders and addresses.

    `candidate`, `keys`: projected volumes. `live`: what slurmctld has as /etc/slurm. `good`: beside
    the state. `check`: shared with the container `check`. `state`: StateSaveLocation. `host`: this
    pod's hostname.
    """

    candidate: Path
    keys: Path
    live: Path
    good: Path
    check: Path
    state: Path
    host: str
    port: int = ports.SLURMCTLD


@dataclass(slots=True)
class Edge:
    """Observes and acts for the state machine. Sets are kept by their Id while the state machine
    may ask for them.
    """

    places: Places
    sets: dict[Id, FileSet] = field(default_factory=dict)
    problem: str = ""
    """Why no candidate exists; empty if one does."""
    _asked: int = 0
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    """The state machine asks, and the server's threads do when the primary wants this standby to
    end.
    """

    # -- seeing

    def version(self) -> tuple[str, ...]:
        """Return a version that changes with the files of the kubelet, and with what another
        slurmctld stores. Cheap: links are read.
        """
        places = self.places
        links = (places.candidate / DATA, places.keys / DATA, places.good / GOOD)
        return *map(_link, links), refusals.version(places.good)

    def refused(self) -> refusals.Refusal | None:
        """Read the configuration of which slurmds have ended."""
        return refusals.read(self.places.good)

    def candidate(self) -> Id | None:
        """Read the candidate and the keys; None, with `problem`, while they aren't whole."""
        try:
            found = fileset.assemble(_read(self.places.candidate), self.keys())
        except (IncompleteError, OSError) as error:
            self.problem = str(error)
            return None
        self.problem = ""
        self.sets[found.id] = found
        return found.id

    def keys(self) -> dict[str, bytes]:
        """Return the key files as they are mounted now."""
        return {
            name: content
            for name, content in _read(self.places.keys).items()
            if name in manifest.KEY_FILES
        }

    def good(self) -> Id | None:
        """Return the last good set with the keys of now, or None if none is kept, or it is
        damaged.
        """
        return self._stored(self.places.good / GOOD)

    def present(self) -> Id | None:
        """Return the set in the folder of slurmctld, or None if it is new."""
        return self._stored(self.places.live / DATA)

    def interrupted(self) -> bool:
        """Return whether slurmctld's folder got its set after the last good one was stored.

        If not, this set had run here before another slurmctld of the same state stored its own.
        """
        try:
            installed, kept = ((self.places.live / DATA).lstat(), (self.places.good / GOOD).lstat())
        except OSError:
            return False
        return installed.st_mtime_ns > kept.st_mtime_ns

    def _stored(self, folder: Path) -> Id | None:
        try:
            files = _read(folder)
            keys = {
                name: files[name] for name in manifest.KEY_FILES if name in files
            } or self.keys()
            found = fileset.assemble(files, keys)
        except (IncompleteError, OSError):
            return None
        self.sets[found.id] = found
        return found.id

    def forget(self, needed: set[Id]) -> None:
        """Drop the sets that are not needed."""
        self.sets = {id_: found for id_, found in self.sets.items() if id_ in needed}

    # -- acting

    def perform(self, action: Action, installed: Id | None) -> Answer | None:
        """Perform an action; None for one that has no answer. `installed` is what slurmctld had
        before it.

        Raises OSError when slurmctld's folder or the volume of the state can't be written.
        """
        match action:
            case Check(id_):
                return self._check(self.sets[id_], self.sets.get(installed) if installed else None)
            case Install(id_):
                self.install(self.sets[id_])
            case Keep(id_):
                self.keep(self.sets[id_])
            case Reconfigure():
                return self._scontrol("reconfigure")
            case Restart():
                return self._scontrol("shutdown slurmctld")
            case Probe():
                return self.probe()
            case Look(watched):
                return self._look(watched)
            case Refuse(refusal):
                refusals.write(self.places.good, refusal)
            case Forget():
                refusals.forget(self.places.good)
            case _:
                pass
        return None

    def install(self, new: FileSet) -> None:
        """Let slurmctld find this set: one rename, as the kubelet does it, so that it never reads
        half of two.
        """
        live = self.places.live
        former = _link(live / DATA)
        folder = live / f"..{new.id.config[:16]}-{new.id.keys[:8]}-{time.time_ns():x}"
        _write(folder, {**new.everything, manifest.FILE: fileset.manifest_of(new)})
        names = {*new.everything, manifest.FILE}
        for name in names:
            _relink(live / name, f"{DATA}/{name}")
        _relink(live / DATA, folder.name)
        for left in live.iterdir():
            # A slurmctld that is reading the former set finds it until the next change.
            if left.name not in names | {DATA, folder.name, former}:
                _remove(left)

    def keep(self, new: FileSet) -> None:
        """Store a set, without its keys, as the last good one."""
        good, before = self.places.good, self.good()
        if before is not None and before.config == new.id.config:
            return
        folder = good / f"{new.id.config[:16]}-{time.time_ns():x}"
        _write(folder, {**new.files, manifest.FILE: fileset.manifest_of(new)}, sync=True)
        _relink(good / GOOD, folder.name)
        for left in good.iterdir():
            # Another slurmctld of the same state may be writing its own.
            if (
                left.name not in {GOOD, folder.name, refusals.FILE}
                and left.stat().st_mtime < time.time() - 60
            ):
                _remove(left)

    def probe(self) -> Answer:
        """Ask whether slurmctld answers at its port. Return NoAnswer while it is busy."""
        try:
            return Alive(health.alive("127.0.0.1", self.places.port, PROBE_SECONDS))
        except OSError as error:
            return NoAnswer(f"{health.LIVEZ}: {error}")

    def hosts(self) -> list[dryrun.Host]:
        """Return every slurmctld of the configuration that lies there. Raises OSError without
        one.
        """
        files = _read(self.places.live)
        if manifest.SLURM_CONF not in files:
            raise FileNotFoundError(f"{self.places.live}: no {manifest.SLURM_CONF} yet")
        return dryrun.hosts(files)

    def has_accounting(self) -> bool:
        """Return whether the slurmctld of the configuration that lies there uses slurmdbd. Raises
        OSError.
        """
        files = _read(self.places.live)
        type_ = (
            dryrun.setting(files, "AccountingStorageType") if manifest.SLURM_CONF in files else None
        )
        return type_ is not None and type_.lower().endswith("slurmdbd")

    def end_if_leading(self) -> str:
        """Have slurmctld save its state and end if it is the primary; why it doesn't, empty if it
        does or isn't.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            return "its sidecar is busy with a configuration"
        try:
            if not health.leads("127.0.0.1", self.places.port, PROBE_SECONDS):
                return ""
            code, output = self._asked_alone(
                "scontrol shutdown slurmctld", CALL_SECONDS, _read(self.places.live)
            )
        except OSError as error:
            return str(error)
        finally:
            self._one_at_a_time.release()
        return "" if code == 0 else output.strip()[-300:] or f"scontrol: exit status {code}"

    def _check(self, new: FileSet, live: FileSet | None) -> Answer:
        location = dryrun.setting(new.files, "StateSaveLocation")
        if location and Path(location) != self.places.state:
            reason = (
                f"StateSaveLocation={location}: the state of this cluster is at "
                f"{self.places.state}; leave it out"
            )
            return Refused(diagnosis.Culprit(reason, manifest.SLURM_CONF))
        listing = ""
        if live is not None and self.probe() == Alive(True):
            code, output = self._ask(_SHOW_NODES, CALL_SECONDS, live.files)
            listing = output if code == 0 else ""
        nodes = dryrun.dynamic_nodes(listing)
        check, state = self.places.check, self.places.check / GATE / "state"
        for left in check.iterdir():
            if left.name != GATE:
                _remove(left)
        shutil.rmtree(state, ignore_errors=True)
        _write(state, _read_some(self.places.state, dryrun.CLUSTER_FILE))
        place = dryrun.Place(
            host=self.places.host,
            port=_free_port(),
            state=f"{paths.SLURM_CONF_FOLDER}/{GATE}/state",
            nodes=nodes,
        )
        prepared = dryrun.prepare(new.files, place)
        _write(check, {**prepared, **new.keys})
        code, output = self._ask("check", CHECK_SECONDS)
        if code is None:
            return NoAnswer(output)
        if code == 0:
            restart = dryrun.changed(live.files, new.files, keys.READ_AT_START) if live else []
            return Passed("; ".join(restart), slurmds.running(listing, live.files) if live else ())
        if _PORT_TAKEN in output:
            # By another process of the pod: its port is not the candidate's.
            return NoAnswer(_PORT_TAKEN)
        return Refused(diagnosis.diagnose(output, new.files))

    def _look(self, watched: tuple[slurmds.Slurmd, ...]) -> Answer:
        found = self.sets.get(self.present() or Id("", ""))
        code, output = self._ask(_SHOW_NODES, CALL_SECONDS, found.files if found else None)
        if code != 0 or found is None:
            return NoAnswer(output.strip()[-300:])
        return Looked(slurmds.in_service(output, found.files), slurmds.listening(watched))

    def _scontrol(self, words: str) -> Answer:
        if self.probe() == Alive(False):
            # scontrol would try to connect until MessageTimeout.
            return NoAnswer("nothing listens at slurmctld's port")
        found = self.sets.get(self.present() or Id("", ""))
        code, output = self._ask(f"scontrol {words}", CALL_SECONDS, found.files if found else None)
        if code == 0:
            return Taken()
        if code is None or code >= _CUT_SHORT or any(text in output for text in _UNREACHED):
            return NoAnswer(output.strip()[-300:] or f"scontrol {words}: exit status {code}")
        if any(text in output for text in _STANDBY):
            return Taken()
        return Refused(
            diagnosis.diagnose(output, found.files if found else {manifest.SLURM_CONF: b""})
        )

    def _ask(
        self, request: str, seconds: float, files: Mapping[str, bytes] | None = None
    ) -> tuple[int | None, str]:
        """Exit status and output of a request to the container `check`; None and what is wrong
        without an answer.

        `files`: the configuration of the slurmctld of this pod, for scontrol.
        """
        with self._one_at_a_time:
            return self._asked_alone(request, seconds, files)

    def _asked_alone(
        self, request: str, seconds: float, files: Mapping[str, bytes] | None
    ) -> tuple[int | None, str]:
        gate = self.places.check / GATE
        if files is not None:
            _write(
                gate, {CLIENT_CONF: dryrun.client_conf(files, self.places.host, self.places.port)}
            )
        self._asked += 1
        name = f"{os.getpid()}-{self._asked}"
        deadline = time.monotonic() + seconds
        while not _send(gate / "requests", f"{name} {request}\n"):
            if time.monotonic() >= deadline:
                return None, f"the container check took no request for {seconds:g} s"
            time.sleep(_POLL)
        code, out = gate / f"{name}.rc", gate / f"{name}.out"
        try:
            while not code.exists():
                if time.monotonic() >= deadline:
                    return None, f"the container check gave no answer within {seconds:g} s"
                time.sleep(_POLL)
            return int(code.read_text()), out.read_text(errors="replace")
        finally:
            _remove(code)
            _remove(out)


_CUT_SHORT = 124
"""From this exit status on, scontrol ran out of time or was killed (timeout(1)): slurmctld may take
the request yet.
"""
_SHOW_NODES = "scontrol -o show nodes"
_UNREACHED = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes were",
)
_PORT_TAKEN = "binding slurm stream socket: Address already in use"
_STANDBY = ("standby", "Slurm backup controller")


def _send(fifo: Path, line: str) -> bool:
    """Write to a FIFO if a process reads it now."""
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as stream:
        stream.write(line.encode())
    return True


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _read(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, through one look at its `..data` if it has one. Raises
    OSError.
    """
    data = _link(folder / DATA)
    folder = folder / data if data else folder
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _read_some(folder: Path, *names: str) -> dict[str, bytes]:
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = (folder / name).read_bytes()
    return found


def _write(folder: Path, files: Mapping[str, bytes], *, sync: bool = False) -> None:
    """Write files that only their owner reads; scripts can be run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        _remove(path)
        mode = 0o700 if content.startswith(b"#!") else 0o600
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())


def _relink(path: Path, target: str) -> None:
    """Make `path` a link to `target`, at once."""
    if _link(path) == target:
        return
    draft = path.with_name(f"..new-{path.name}")
    _remove(draft)
    draft.symlink_to(target)
    draft.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
