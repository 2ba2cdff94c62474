"""A real kube-apiserver and etcd for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import debian
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool

if TYPE_CHECKING:
    from collections.abc import Iterator


PROGRAMS = ("kube", "kubectl", "helm", "kustomize", "push", "versitygw")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build the programs first, once for all processes: it would take a test longer than a test may
    take.
    """
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    debian.unpacked()
    debian.directory()
    for name in PROGRAMS:
        tool(name)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Started once. A test that ends the apiserver starts it again, and works in a namespace of its
    own.
    """
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("control-plane"))
    try:
        yield plane
    finally:
        plane.stop()
