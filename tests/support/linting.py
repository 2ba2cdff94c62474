"""Lint of a Controller's configuration, for the tests of its rules."""

from typing import Any

from sidecars.policy.configuration.lint import lint
from sidecars.policy.configuration.reading import Finding, error
from sidecars.slurm import versions
from sidecars.workloads.config import compose
from sidecars.workloads.resources import Controller, NodeSet, ResourceError, read
from tests.support import builders


def findings(
    extra_conf: str = "",
    *nodesets: NodeSet,
    version: str | None = "26.05.5",
    name: str = "slurm",
    config_maps: dict[str, dict[str, str | bytes]] | None = None,
    known_nodes: tuple[str, ...] = (),
    **spec: Any,
) -> tuple[Finding, ...]:
    """What is found in the configuration of a Controller with these lines."""
    maps = config_maps or {}
    references = [{"name": name} for name in maps]
    of = read(
        Controller,
        {
            "metadata": builders.metadata(name),
            "spec": builders.KEYS | {"extraConf": extra_conf, "configFileRefs": references} | spec,
        },
    )
    release = versions.parse(version) if version else None
    try:
        config_set = compose(of, nodesets, builders.facts(config_maps=maps))
    except ResourceError as found:
        return (error("slurm.conf", None, found.field, found.problem),)
    return lint(config_set, nodesets, release, known_nodes)


def errors(of: tuple[Finding, ...]) -> list[str]:
    """The errors as texts."""
    return [str(finding) for finding in of if finding.severity == "error"]
