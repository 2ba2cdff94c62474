"""The gate of slurmctld's configuration without a pod: the sidecars `check` and `reconfigure`, and
their volumes.

Configurations are published as the kubelet brings them, and judged as the operator does, by the
sidecar's /status.
"""

import http.client
import itertools
import json
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from sidecars.contract import environment as variables
from sidecars.contract import paths, signature
from sidecars.contract.status import STARTED_PATH, STATUS_PATH, Status, decode
from sidecars.policy import gate as policy
from sidecars.policy.conditions import Condition
from tests.support.real import outside
from tests.support.real.rendered import ADDRESS, Release, constants, shell

POD = "slurm-controller-0"
CHECK = "/run/check"


class Gate:
    """The volumes in a folder of this host, for the daemons of a release."""

    def __init__(self, home: Path, release: Release) -> None:
        """Creates the volumes, empty but for the keys."""
        self._key = release.keys
        self._port = release.ports.others[0]
        self._versions = itertools.count()
        self._volumes = {
            name: home / name for name in ("candidate", "keys", "live", "check", "state", "socket")
        }
        for folder in self._volumes.values():
            folder.mkdir(parents=True)
            os.chown(folder, outside.SLURM, outside.SLURM)
        self._project("keys", release.keys)
        reconfigure = constants(release.of_slurmctld("reconfigure"))
        self._state = reconfigure[variables.STATE_SAVE_LOCATION]
        own = {
            variables.POD_NAME: POD,
            variables.POD_IP: ADDRESS,
            variables.SLURMCTLD_PORT: str(release.ports.slurmctld),
            variables.STATUS_PORT: str(self._port),
        }
        self.environment = shell({**reconfigure, **own})
        """The variables of `reconfigure`."""
        self.check = shlex.join(release.of_slurmctld("check")["command"])
        """The command of `check`."""

    @property
    def of_check(self) -> Mapping[str, Path]:
        """The volumes of `check`, by their paths."""
        return {
            paths.SLURM_CONF_FOLDER: self._volumes["check"],
            "/run/slurm": self._volumes["socket"],
        }

    @property
    def of_reconfigure(self) -> Mapping[str, Path]:
        """Those of `reconfigure`."""
        return {
            paths.CANDIDATE: self._volumes["candidate"],
            paths.KEYS: self._volumes["keys"],
            paths.SLURM_CONF_FOLDER: self._volumes["live"],
            paths.CHECK: self._volumes["check"],
            self._state: self._volumes["state"],
        }

    @property
    def of_slurmctld(self) -> Mapping[str, Path]:
        """Those of slurmctld."""
        return {
            paths.SLURM_CONF_FOLDER: self._volumes["live"],
            self._state: self._volumes["state"],
            "/run/slurmctld": self._volumes["socket"],
        }

    def publish(self, release: Release) -> None:
        """Bring the configuration of this release, which has the same keys."""
        self._project("candidate", release.published)

    def has_started(self) -> bool:
        """Whether slurmctld may start."""
        try:
            return self._get(STARTED_PATH)[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def status(self) -> Status:
        """What `reconfigure` reports."""
        status, body = self._get(STATUS_PATH)
        assert status == http.HTTPStatus.OK, body
        return decode(json.loads(body))

    def accepted(self, release: Release) -> Condition:
        """The condition ConfigurationAccepted, once the operator has published this release."""
        sha256 = release.config_set.sha256
        published = policy.Published(sha256, sha256)
        pod = policy.Pod(POD, "", ADDRESS, True, "")
        known = {POD: policy.Known("", self.status(), "", 0.0)}
        accepted, _ = policy.conditions(published, (), [pod], known, release.config_set.origin)
        return accepted

    def _get(self, path: str) -> tuple[int, bytes]:
        signed = signature.authorization(
            signature.Request("GET", path, POD), self._key["jwt.key"], time.time()
        )
        connection = http.client.HTTPConnection(ADDRESS, self._port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": signed})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _project(self, volume: str, files: Mapping[str, bytes]) -> None:
        """Change a volume as the kubelet does: all files at once, by a link."""
        folder = self._volumes[volume]
        version = folder / f"..{next(self._versions)}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
        for path in (version, *version.iterdir()):
            os.chown(path, outside.SLURM, outside.SLURM)
        draft = folder / "..new"
        draft.symlink_to(version.name)
        draft.replace(folder / "..data")
        for name in files:
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")
