"""Which connection a bound ends: `sidecars.connections`."""

from sidecars.connections import Connection, Connections, Limits


class Scene:
    """A server of three connections and ten bytes in flight."""

    def __init__(self, unread: int = 3) -> None:
        self.now = 0.0
        self.ended: list[str] = []
        limits = Limits(connections=3, in_flight=10, unread=unread)
        self.connections = Connections(limits, lambda: self.now)

    def open(self, name: str, address: str = "10.0.0.1") -> Connection:
        self.now += 1
        return self.connections.opened(address, lambda: self.ended.append(name))


def test_one_connection_too_many_ends_the_oldest_that_has_asked_nothing() -> None:
    scene = Scene()
    scene.connections.begins(scene.open("busy"))
    scene.open("silent")
    scene.open("younger")
    scene.open("new")
    assert scene.ended == ["silent"]
    assert len(scene.connections) == 3


def test_a_connection_between_two_requests_ends_before_one_whose_request_is_being_answered() -> (
    None
):
    scene = Scene()
    connections = [scene.open(name) for name in ("busy", "idle", "later")]
    for it in connections:
        scene.connections.begins(it)
    scene.connections.answered(connections[1])
    scene.open("new")
    assert scene.ended == ["idle"]
    scene.open("newer")
    assert scene.ended == ["idle", "new"]
    for name in ("a", "b"):
        scene.connections.begins(scene.open(name))
    assert scene.ended == ["idle", "new", "newer", "busy"]


def test_the_address_with_most_connections_loses_one_whatever_it_has_asked() -> None:
    scene = Scene()
    scene.open("api server", "10.0.0.9")
    for name in ("first", "second"):
        scene.connections.begins(scene.open(name))
    scene.open("third")
    assert scene.ended == ["first"]


def test_bytes_over_the_bound_end_the_largest_request_of_the_address_that_sends_most() -> None:
    scene = Scene()
    other, small, large = scene.open("other", "10.0.0.9"), scene.open("small"), scene.open("large")
    scene.connections.received(other, 4)
    scene.connections.received(small, 2)
    scene.connections.received(large, 4)
    assert scene.ended == []
    scene.connections.received(other, 1)
    assert scene.ended == ["large"]
    scene.connections.received(small, 3)
    assert scene.ended == ["large"]


def test_an_answer_and_the_end_of_a_connection_free_its_bytes() -> None:
    scene = Scene()
    first, second, third = (
        scene.open("first"),
        scene.open("second"),
        scene.open("third", "10.0.0.9"),
    )
    scene.connections.received(first, 9)
    scene.connections.answered(first)
    scene.connections.received(second, 9)
    scene.connections.closed(second)
    scene.connections.closed(second)
    scene.connections.received(third, 10)
    assert scene.ended == []
    scene.connections.received(third, 1)
    assert scene.ended == ["third"]
    scene.connections.received(third, 100)
    scene.connections.received(first, 10)
    assert scene.ended == ["third"]


def test_one_answer_too_many_that_nobody_takes_ends_the_oldest_of_the_address_with_most() -> None:
    scene = Scene(unread=2)
    other, first, second = (
        scene.open("other", "10.0.0.9"),
        scene.open("first"),
        scene.open("second"),
    )
    for it in (other, first):
        scene.now += 1
        scene.connections.stuck(it)
    assert scene.ended == []
    scene.now += 1
    scene.connections.stuck(second)
    assert scene.ended == ["first"]
    scene.connections.flows(second)
    scene.connections.stuck(scene.open("third"))
    assert scene.ended == ["first"]


def test_a_connection_whose_answer_is_not_taken_ends_unless_it_was_taken_meanwhile() -> None:
    scene = Scene()
    taken, left, closed = scene.open("taken"), scene.open("left"), scene.open("closed")
    for it in (taken, left, closed):
        scene.connections.stuck(it)
    scene.connections.flows(taken)
    scene.connections.closed(closed)
    for it in (taken, left, closed):
        scene.connections.end_stuck(it)
    assert scene.ended == ["left"]
    scene.connections.stuck(closed)
    assert scene.ended == ["left"]


def test_only_a_connection_that_has_asked_nothing_is_silent() -> None:
    scene = Scene()
    silent, asked = scene.open("silent"), scene.open("asked")
    scene.connections.begins(asked)
    scene.connections.answered(asked)
    for it in (silent, asked, silent):
        scene.connections.end_silent(it)
    assert scene.ended == ["silent"]


def test_all_connections_can_be_ended() -> None:
    scene = Scene()
    scene.open("one")
    scene.open("two")
    scene.connections.end_all()
    assert (scene.ended, len(scene.connections)) == (["one", "two"], 0)
