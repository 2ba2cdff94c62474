"""The ports that tests give their daemons."""

import socket
from pathlib import Path

import pytest

from tests.cluster.control_plane import free_ports


def test_no_port_is_given_twice_and_none_that_the_kernel_gives_or_that_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw9")
    [first] = free_ports(1)
    with socket.socket() as blocked:
        blocked.bind(("127.0.0.1", first + 1))
        more = free_ports(20)
    assert len({first, first + 1, *more}) == 22
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(more) < lowest


def test_two_processes_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    for worker in ("gw7", "gw8"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        given.append({port // 1000 for port in free_ports(30)})
    assert given == [{27}, {28}]
