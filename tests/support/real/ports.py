"""Ports of the daemons that tests start as plain processes of this machine: ten for each file of tests.

Two files run at a time, and any two may be those.
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
) = range(7830, 8010, 10)

SIMULATED = 8010
"""And the following ones: two for each number of `simulated_nodes.running`."""
