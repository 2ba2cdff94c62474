"""Ports of the daemons that tests start as plain processes of this machine: ten for each file of
tests.

Any files may run at a time.
"""

(
    HYBRID,
    EXTERNAL_JOBS,
    BRIDGE,
    BRIDGE_RUN,
    BRIDGE_SOAK,
    BRIDGE_DEVICES,
    BRIDGE_GUARD,
    BRIDGE_PLACES,
    CHECK_JOBS,
    FIRST_MINUTES,
    TOPOLOGY,
    RESERVATIONS,
    SSH,
    JAIL,
    CHECK_PAIRS,
    PYXIS,
    CHECK_EQUIPPED,
    GPUS,
    JAIL_SESSIONS,
    CONTRACT,
    SLURMDBD_CONTRACT,
    BAD_CONFIGURATIONS,
    CONTAINERS,
    POWER_SAVING,
    WORKER_SHAPE,
    LOGIN_PROGRAMS,
    DRAWN_QUEUES,
) = range(7830, 8100, 10)

SIMULATED = 8100
"""And the following ones: two for each slurmctld whose nodes are simulated."""

EXPLAIN_FAULTS = 8180
"""Ten as well."""

DATABASE_TLS = 8190
"""Ten as well."""

OUTSIDE = 8200
"""Ten as well."""

SHARED_SLURMDBD = 8210
"""Twenty, for two clusters."""

JUPYTER = 8230
"""Ten as well."""

TORCHRUN = 8240
"""Ten as well."""
