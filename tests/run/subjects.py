"""What of the product the tests with real daemons are about: `make test SINCE=REVISION` chooses
them by it.

These tests run the product in processes and pods of their own, so their imports don't show what
they use. In patterns, `**` stands for any text, and `*` for text without a slash.
"""

from collections.abc import Mapping

HARNESS = (
    "pyproject.toml",
    "Makefile",
    "requirements/**",
    ".ci/**",
    "tests/conftest.py",
    "tests/run/**",
    "tests/cluster/**",
)
"""A change of these runs everything."""

STAGES: Mapping[str, tuple[str, ...]] = {
    "charts": (
        *(
            "charts/**",
            "schemas/**",
            "docs/**",
            "README.md",
            "ct.yaml",
            ".github/linters/**",
            "release/**",
        ),
        *("tests/charts/**", "tests/configurations/**", "sidecars/workloads/**", "postrender/**"),
    ),
    "docs": ("*.md", "docs/**", "schemas/**", "tests/site.py"),
}
"""Stages without tests of pytest. Those that are not named run always: they take seconds."""

PRODUCT = ("charts/**", "images/**", "postrender/**", "schemas/**", "sidecars/**")

BASE = ("test_jobs", "test_login", "test_nodesets", "test_scaling", "test_configuration")
"""The end-to-end tests of what most of the product is in: they stand for all others where a subject
is not narrower.
"""

COMMON = (
    *(
        "sidecars/operator/**",
        "sidecars/kube/**",
        "sidecars/slurm/**",
        "sidecars/contract/**",
        "sidecars/workloads/**",
    ),
    *(
        "sidecars/policy/nodeset/**",
        "sidecars/policy/*.py",
        "sidecars/node/**",
        "sidecars/register/**",
        "sidecars/*.py",
    ),
    *(
        "sidecars/reconfigure/**",
        "charts/shared/**",
        "charts/slurm/**",
        "charts/slurm-operator/**",
        "charts/slurm-operator-crds/**",
        "schemas/**",
    ),
    *("images/**",),
)

_AUTOSCALING = ("**/autoscaling/**", "sidecars/exporter/**", "**power**")
_BRIDGE = ("**bridge**",)
_CONTAINERS = ("sidecars/containers/**", "images/slurmd/**", "**containers**")
_JAIL = ("images/**jail**", "**jail**", "**ssh**")
_NODESETS = (
    "**/nodeset/**",
    "**/worker_pod/**",
    "**/kube_node/**",
    "sidecars/node/**",
    "sidecars/register/**",
)
_UPGRADES = (
    "**upgrade**",
    "**/controller/**",
    "sidecars/workloads/**",
    "charts/slurm-operator-crds/**",
)

SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "tests/integration/backup/**": ("sidecars/backup/**",),
    "tests/integration/bridge/**": _BRIDGE,
    "tests/integration/test_documented_commands.py": (
        *("docs/**", "README.md", "charts/**", "sidecars/workloads/**", "postrender/**"),
    ),
    "tests/integration/exporter/**": ("sidecars/exporter/**", "charts/slurm-exporter/**"),
    "tests/integration/kube/**": ("sidecars/kube/**", "sidecars/objects.py"),
    "tests/integration/ldap/**": ("sidecars/ldap/**",),
    "tests/integration/operator/**": COMMON,
    "test_accounting": ("**account**", "images/slurmdbd/**"),
    "test_autoscaling": _AUTOSCALING,
    "test_bad_configurations": (
        *("sidecars/reconfigure/**", "**configuration**", "sidecars/operator/controller/quotes.py"),
        *("images/slurmctld/**", "images/slurmd/**"),
    ),
    "test_bridge*": _BRIDGE,
    "test_cgroup2": ("**cgroup**", "images/slurmd/**"),
    "test_chart_testing": (
        "charts/*/ci/**",
        "charts/*/examples/**",
        "charts/*/templates/tests/**",
        "ct.yaml",
    ),
    "test_check*": ("**check**",),
    "test_contain*": (*_CONTAINERS, "images/slurmd-mpi/**", "**mpi**"),
    "test_contract": ("sidecars/simulate/**", "sidecars/slurm/**", "tests/contract/**"),
    "test_database_tls": ("**account**", "**database**", "images/slurmdbd/**", "images/mariadb/**"),
    "test_explain": ("**explain**",),
    "test_exporter": ("sidecars/exporter/**", "charts/slurm-exporter/**"),
    "test_external_jobs": ("**external**", "**foreign**", *_BRIDGE),
    "test_faults": _NODESETS,
    "test_first_minutes": ("images/slurm**", "**account**"),
    "test_shared_slurmdbd": ("images/slurm**", "**account**"),
    "test_gpus": ("**gpu**", "**nvidia**", "sidecars/register/**"),
    "test_guides": ("docs/backup.md", "docs/air-gapped.md", "sidecars/backup/**", "**backup**"),
    "test_helm_test": ("charts/*/templates/tests/**",),
    "test_high_availability": ("**/controller/**", "**replica**", "**state**"),
    "test_horizontal_autoscaling": _AUTOSCALING,
    "test_hostile_jobs": ("images/**", "charts/slurm-operator/workloads/**"),
    "test_hybrid": ("**hybrid**", "**external**"),
    "test_jail*": _JAIL,
    "test_job_logs": ("sidecars/logs/**", "**job_logs**"),
    "test_jupyterhub": (
        *("docs/jupyterhub.md", "images/jupyter/**", "images/login-jupyter/**"),
        *("images/slurmd-jupyter/**", "images/login/**", "images/slurmd/**"),
    ),
    "test_keys": ("**/keys/**", "**secret**"),
    "test_local_cluster": ("tests/cluster/**",),
    "test_network_policies": ("**network**",),
    "test_no_ghosts": _NODESETS,
    "test_planner": ("**/autoscaling/**",),
    "test_drawn_queues": ("**/autoscaling/**",),
    "test_power_saving": _AUTOSCALING,
    "test_preview": ("postrender/**", "**preview**"),
    "test_prometheus": ("sidecars/exporter/**", "charts/slurm-exporter/**", "schemas/dashboard**"),
    "test_pyxis": _CONTAINERS,
    "test_reservations": ("**reservation**", "**/autoscaling/**", *_NODESETS),
    "test_ssh_to_workers": _JAIL,
    "test_states": _NODESETS,
    "test_takeover": ("**takeover**", *_UPGRADES),
    "test_topology": ("**topology**",),
    "test_upgrades": _UPGRADES,
    "test_users": ("**users**", "sidecars/ldap/**"),
    "test_without_operator": (
        "postrender/**",
        "sidecars/node/**",
        "sidecars/secrets/**",
        "docs/without-operator.md",
    ),
    "test_workers": (*_NODESETS, "images/slurmd/**"),
    "test_z_leaving": ("charts/*/templates/**",),
    **dict.fromkeys(BASE, COMMON),
}
"""Files, by a pattern of their path or of their name without the ending, and what of the product
they are about.

A file that no pattern names runs after each change of PRODUCT.
"""
