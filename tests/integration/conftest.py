"""A real kube-apiserver and etcd for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Started once. A test that ends the apiserver starts it again, and works in a namespace of its own."""
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("control-plane"))
    try:
        yield plane
    finally:
        plane.stop()
