"""After any script of changes and faults, the cache equals the server, and so does what its
subscribers have seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.kube import PODS, Client, Event, Key, Manifest, Reflector
from tests.support.kube_double import READ_FAULTS, KubeDouble
from tests.support.virtual_time import run_with_sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

names = st.sampled_from("abcde")
namespaces = st.sampled_from(["one", "two"])
steps = st.one_of(
    st.tuples(st.just("put"), namespaces, names),
    st.tuples(st.just("remove"), namespaces, names),
    st.tuples(st.just("again"), namespaces, names),
    st.tuples(st.just("fault"), st.sampled_from(READ_FAULTS), st.integers(1, 4)),
    st.tuples(st.just("compact"), st.none(), st.none()),
    st.tuples(st.just("end"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 1.0, 20.0, 100.0]), st.none()),
)
QUIET = 400.0
"""Seconds after which every fault is used up, waited out and recovered from."""


class Mirror:
    """What a subscriber believes from events alone. Any event that doesn't fit what it knows fails
    the test.
    """

    def __init__(self) -> None:
        self.items: dict[Key, Manifest] = {}

    def __call__(self, event: Event[Manifest]) -> None:
        metadata = event.object["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        known = self.items.get(key)
        if event.kind == "ADDED":
            fits = known is None and event.old is None
        else:
            fits = known is not None and known["metadata"]["uid"] == metadata["uid"]
        if not fits:
            self.items[Key("wrong", f"{event.kind} of {key}")] = event.object
        if event.new is None:
            self.items.pop(key, None)
        else:
            self.items[key] = event.new


async def play(script: Sequence[tuple[Any, ...]], page_limit: int, only: list[str] | None) -> None:
    async with KubeDouble() as server, Client.connect(server.credentials) as client:
        server.page_limit = page_limit
        reflector = Reflector(client, PODS, namespaces=only)
        reflector.store.add_index("name", lambda item: [item["metadata"]["name"]])
        mirror = Mirror()
        reflector.store.subscribe(mirror)
        task = asyncio.create_task(reflector.run())
        for number, (step, first, second) in enumerate(script):
            if step in ("remove", "again"):
                server.remove(PODS, first, second)
            if step in ("put", "again"):
                metadata = {"namespace": first, "name": second}
                server.put(
                    PODS,
                    {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "number": number},
                )
            if step == "fault":
                server.faults.extend([first] * second)
            if step == "compact":
                server.compact()
            if step == "end":
                server.end_streams()
            if step == "wait":
                await asyncio.sleep(first)
        for _ in range(len(server.faults)):
            server.end_streams()
            await asyncio.sleep(100.0)
        await asyncio.sleep(QUIET)

        want = {
            key: item
            for key, item in server.objects(PODS).items()
            if only is None or key[0] in only
        }
        assert {key: reflector.store.get(*key) for key in reflector.store.known()} == want
        assert mirror.items == want
        for name in "abcde":
            by_name = reflector.store.by("name", name)
            assert sorted(by_name, key=str) == sorted(
                (i for k, i in want.items() if k[1] == name), key=str
            )
        assert reflector.fault is None
        assert not task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.timeout(600)
@settings(max_examples=max(1_000, settings().max_examples))
@given(
    script=st.lists(steps, max_size=25),
    page_limit=st.sampled_from([1, 2, 500]),
    only=st.sampled_from([None, ["one"], ["one", "two"]]),
)
def test_after_any_script_the_cache_equals_the_server(
    script: list[tuple[Any, ...]], page_limit: int, only: list[str] | None
) -> None:
    run_with_sockets(play(script, page_limit, only))
