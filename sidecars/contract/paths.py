"""Where the containers of the pods mount what they share. The YAML of
charts/slurm-operator/workloads mounts it there.

The folder that the containers of a worker pod share is `sidecars.contract.podfiles.FOLDER`.
"""

from typing import Final

SLURM_CONF_FOLDER: Final = "/etc/slurm"
"""Slurm's configuration, in every Slurm daemon's container. In slurmctld's pod only `reconfigure`
writes it.
"""

CANDIDATE: Final = "/etc/slurm-candidate"
"""The files that the operator has published, in `reconfigure`."""

KEYS: Final = "/etc/slurm-keys"
"""The key files of the cluster (`sidecars.contract.manifest.KEY_FILES`), in `reconfigure`."""

CHECK: Final = "/run/check"
"""The folder that `reconfigure` shares with the container `check`, which has it as /etc/slurm."""

STATE: Final = "/var/spool/slurmctld"
"""Parent of slurmctld's StateSaveLocation."""

JWT_KEY: Final = "/etc/slurm-jwt/jwt.key"
"""The key that `node` signs its tokens with. No other container of a worker pod mounts it."""

ANNOTATIONS: Final = "/etc/podinfo/annotations"
"""The pod's annotations, in `register` (`sidecars.contract.annotations`)."""

USERS: Final = "/var/lib/extrausers"
"""The files of declared users, in every Slurm daemon's container: libnss-extrausers reads this
folder.
"""

USERS_SSHD_CONF: Final = f"{USERS}/sshd.conf"
"""What sshd does for declared users. Its sshd_config includes it."""

HEALTH: Final = "/etc/slurm-health"
"""Slurm's HealthCheckProgram and its checks, in slurmd's container."""

NO_PROGRAM: Final = "/bin/true"
"""ResumeProgram and SuspendProgram: a node's state is Slurm's request, and the operator acts on it.
"""
