"""Which bytes are printed, in which order, and what happens when they are too many."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.logs import shipper as module
from sidecars.logs.records import Output, Refused, Settings
from sidecars.logs.shipper import Shipper
from tests.unit.logs.world import JOB, PATH, SETTINGS, File, World


def running(world: World) -> Shipper:
    shipper = Shipper(world.settings, world)
    shipper.announce(JOB)
    return shipper


def content(world: World) -> File:
    found = world.files[PATH]
    assert isinstance(found, File)
    return found


def test_a_job_is_printed_with_its_fields() -> None:
    world = World(files={PATH: File(b"hello\n")})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, array_job=5, array_task=2))
    world.step(shipper)
    assert world.lines[0] == {
        "time": "0.000",
        "job": 7,
        "step": "batch",
        "arrayJob": 5,
        "arrayTask": 2,
        "user": "ada",
        "uid": 1000,
        "partition": "all",
        "node": "w-0",
        "stream": "stdout",
        "file": PATH.decode(),
        "message": "hello",
    }


def test_output_is_printed_while_the_job_runs() -> None:
    world = World()
    shipper = running(world)
    world.pass_time(shipper, 3)
    world.files[PATH] = File(b"one\n")
    world.pass_time(shipper, 1)
    content(world).data += b"two\n"
    world.pass_time(shipper, 1)
    assert world.messages() == ["one", "two"]


def test_a_file_is_read_to_its_end_when_the_job_has_ended_and_then_forgotten() -> None:
    world = World(files={PATH: File(b"one\nlast")})
    shipper = running(world)
    shipper.ended(JOB.key, world.now)
    content(world).data += b" words"
    world.pass_time(shipper, 30)
    assert world.messages() == ["one", "last words"]
    assert world.removed == [f"7-0.{suffix}" for suffix in ("prolog", "epilog", "end", "job")]
    assert content(world).open_count == 0
    assert shipper.jobs == frozenset()


def test_a_file_that_never_appears_is_reported_once() -> None:
    world = World()
    shipper = running(world)
    shipper.ended(JOB.key, world.now)
    world.pass_time(shipper, 60)
    [line] = [line for line in world.lines if line.get("shipped") is False]
    assert "doesn't exist" in line["message"]
    assert line["job"] == 7
    assert shipper.counters.missing_files == 1


def test_a_file_that_is_refused_is_reported_once_and_printed_when_it_may_be() -> None:
    world = World(files={PATH: Refused("it is private")})
    shipper = running(world)
    world.pass_time(shipper, 20)
    assert world.messages() == ["not printed: it is private"]
    world.files[PATH] = File(b"now\n")
    world.pass_time(shipper, 6)
    assert world.messages() == ["not printed: it is private", "now"]


def test_a_truncated_file_is_read_from_its_start() -> None:
    world = World(files={PATH: File(b"old\n" * 5)})
    shipper = running(world)
    world.pass_time(shipper, 1)
    content(world).data = b"new\n"
    world.pass_time(shipper, 1)
    assert world.messages()[5:] == ["the file was truncated: it is read from its start", "new"]


def test_a_file_that_was_replaced_is_read_to_its_end_and_then_the_new_one() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = running(world)
    world.pass_time(shipper, 1)
    former = content(world)
    former.data += b"two\n"
    world.files[PATH] = File(b"three\n", inode=2)
    world.pass_time(shipper, 8)
    assert world.messages() == ["one", "two", "three"]
    assert former.open_count == 0
    assert content(world).open_count == 1


def test_a_file_that_was_deleted_is_read_on() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = running(world)
    world.pass_time(shipper, 1)
    deleted = content(world)
    del world.files[PATH]
    deleted.data += b"two\n"
    world.pass_time(shipper, 10)
    assert world.messages() == ["one", "two"]


def test_a_file_that_cannot_be_read_for_a_while_is_continued() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = running(world)
    world.pass_time(shipper, 1)
    content(world).broken = True
    world.pass_time(shipper, 1)
    content(world).broken = False
    content(world).data += b"two\n"
    world.pass_time(shipper, 6)
    assert world.messages() == ["one", "two"]


def test_a_job_that_appends_is_printed_from_where_it_begins() -> None:
    world = World(files={PATH: File(b"of yesterday\n", modified=50.0)})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, began=90.0))
    world.pass_time(shipper, 1)
    content(world).data += b"of today\n"
    world.pass_time(shipper, 1)
    assert world.messages() == ["of today"]


def test_a_job_that_replaces_an_old_file_is_printed_whole() -> None:
    world = World(files={PATH: File(b"of yesterday\n", modified=50.0)})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, began=90.0))
    world.pass_time(shipper, 1)
    content(world).data = b"new\n"
    world.pass_time(shipper, 1)
    assert world.messages()[-1] == "new"


def test_a_file_that_was_truncated_and_is_longer_again_is_read_from_its_start() -> None:
    world = World(files={PATH: File(b"of yesterday\n", modified=50.0)})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, began=90.0))
    world.pass_time(shipper, 1)
    content(world).data = b"a job of today with more output\n"
    world.pass_time(shipper, 1)
    content(world).data = b"and again, with more than that, in one go\n"
    world.pass_time(shipper, 1)
    found = [line["message"] for line in world.lines if "truncated" not in line]
    assert found == [
        "a job of today with more output",
        "and again, with more than that, in one go",
    ]


def test_a_file_that_changed_shortly_before_the_job_is_read_whole_because_clocks_differ() -> None:
    world = World(files={PATH: File(b"first words\n", modified=88.0)})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, began=90.0))
    world.pass_time(shipper, 1)
    assert world.messages() == ["first words"]


def test_a_record_that_is_completed_later_adds_its_files() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = Shipper(world.settings, world)
    shipper.announce(replace(JOB, outputs=()))
    world.pass_time(shipper, 1)
    shipper.announce(JOB)
    shipper.announce(JOB)
    world.pass_time(shipper, 1)
    assert world.messages() == ["one"]


def test_a_requeued_job_is_a_job_of_its_own() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = running(world)
    shipper.ended(JOB.key, 0)
    shipper.announce(replace(JOB, restarts=1))
    assert shipper.jobs == {"7-0", "7-1"}


def test_what_is_written_faster_than_printed_is_dropped_and_counted() -> None:
    world = World(replace(SETTINGS, bytes_per_second=100_000), {PATH: File()})
    shipper = running(world)
    written = 0
    for _ in range(40):
        content(world).data += b"x" * 99 + b"\n"
        content(world).data += (b"y" * 99 + b"\n") * 2000
        written += 2001 * 100
        world.pass_time(shipper, 0.5)
    shipper.ended(JOB.key, world.now)
    world.pass_time(shipper, 400)
    dropped = sum(line.get("droppedBytes", 0) for line in world.lines if line["stream"] == "stdout")
    assert dropped == shipper.counters.dropped_bytes > 0
    assert shipper.counters.read_bytes + dropped == written
    assert world.lines[-1]["stream"] == "logs"
    assert world.lines[-1]["droppedBytes"] == dropped


def test_no_more_than_the_limit_is_printed() -> None:
    world = World(
        Settings("w-0", bytes_per_second=200_000, backlog_bytes=1 << 40),
        {PATH: File(b"a\n" * 500_000)},
    )
    shipper = running(world)
    world.pass_time(shipper, 10)
    # One chunk more than the allowance of 11 s.
    assert len(world.printed) < 11 * 200_000 + 700_000


def test_what_one_step_prints_is_bounded_also_for_empty_lines() -> None:
    world = World(files={PATH: File(b"\n" * 200_000)})
    shipper = running(world)
    world.pass_time(shipper, 1)
    assert len(world.messages()) == 200_000
    assert world.largest < 2 << 20


def test_a_job_with_much_output_does_not_delay_another() -> None:
    other = Output(b"/home/bob/out", "stdout")
    world = World(
        Settings("w-0", bytes_per_second=1_000_000, backlog_bytes=1 << 40),
        {PATH: File(b"much\n" * 1_000_000), other.path: File(b"little\n")},
    )
    shipper = running(world)
    shipper.announce(replace(JOB, id=8, outputs=(other,)))
    world.pass_time(shipper, 2)
    assert world.text(8) == "little\n"


@pytest.mark.parametrize("count", [3, 6])
def test_jobs_with_much_output_are_printed_equally_fast(count: int) -> None:
    paths = [b"/home/ada/%d" % number for number in range(count)]
    world = World(
        Settings("w-0", bytes_per_second=1 << 40, backlog_bytes=1 << 40),
        {it: File(b"a\n" * 500_000) for it in paths},
    )
    shipper = Shipper(world.settings, world)
    for number, path in enumerate(paths):
        shipper.announce(replace(JOB, id=number, outputs=(Output(path, "stdout"),)))
    for _ in range(40):
        shipper.step(world.now, "")
    offsets = [tail.offset for tail, _ in shipper._tails()]
    assert min(offsets) > 0
    assert max(offsets) - min(offsets) <= module.CHUNK


def test_zero_bytes_of_a_sparse_file_are_left_out_and_counted() -> None:
    world = World(files={PATH: File(bytes(1_000_000) + b"\nend\n")})
    shipper = running(world)
    world.pass_time(shipper, 1)
    assert world.messages()[-1] == "end"
    assert shipper.counters.dropped_bytes >= 1_000_000 - 2 * module.CHUNK


def test_files_beyond_the_limit_of_open_files_are_printed_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    world = World()
    shipper = Shipper(world.settings, world)
    for number in range(5):
        path = b"/home/ada/%d" % number
        world.files[path] = File(b"%d\n" % number)
        shipper.announce(replace(JOB, id=number, outputs=(Output(path, "stdout"),)))
        shipper.ended(f"{number}-0", world.now)
    world.pass_time(shipper, 30)
    assert sorted(world.messages()) == ["0", "1", "2", "3", "4"]


def test_prolog_and_epilog_are_printed_after_the_jobs_end_too() -> None:
    world = World(
        files={PATH: File(b""), b"7-0.prolog": File(b"mounting\n"), b"7-0.epilog": File(b"")}
    )
    shipper = running(world)
    shipper.program("7-0.prolog", "7-0", "prolog")
    shipper.ended(JOB.key, world.now)
    shipper.program("7-0.epilog", "7-0", "epilog")
    world.pass_time(shipper, 5)
    epilog = world.files[b"7-0.epilog"]
    assert isinstance(epilog, File)
    epilog.data += b"cleaned"
    world.pass_time(shipper, 30)
    assert world.messages("prolog") == ["mounting"]
    assert world.messages("epilog") == ["cleaned"]
    [line] = [line for line in world.lines if line["stream"] == "epilog"]
    assert (line["job"], line["user"]) == (7, "ada")
    assert "step" not in line


def test_health_checks_are_printed_and_their_long_file_is_deleted() -> None:
    world = World(files={b"health": File(b"slurm-node: health: disk\n")})
    shipper = Shipper(world.settings, world)
    shipper.health()
    world.pass_time(shipper, 2)
    assert world.messages("health") == ["slurm-node: health: disk"]
    assert world.removed == []


def test_a_long_file_of_health_checks_is_deleted() -> None:
    world = World(files={b"health": File(b"slurm-node: health: disk\n" * 4000)})
    shipper = Shipper(world.settings, world)
    shipper.health()
    world.pass_time(shipper, 2)
    assert world.removed == ["health"]
    assert len(world.messages("health")) == 4000


def test_a_file_of_health_checks_is_deleted_once_it_is_longer_than_64_kib() -> None:
    health = File(b"x" * 65_535 + b"\n")
    world = World(files={b"health": health})
    shipper = Shipper(world.settings, world)
    shipper.health()
    world.pass_time(shipper, 2)
    assert world.removed == []
    health.data += b"\n"
    world.pass_time(shipper, 2)
    assert world.removed == ["health"]


def test_a_summary_is_printed_a_minute_after_the_change_that_it_reports() -> None:
    world = World(files={PATH: File(b"one\n")})
    shipper = running(world)
    summaries = []
    for now in (0.0, 59.9, 60.0):
        world.now = now
        world.step(shipper)
        summaries.append(len(world.messages("logs")))
    assert summaries == [0, 0, 1]


def test_at_the_pods_end_what_is_left_is_printed_at_once() -> None:
    world = World(files={PATH: File(b"one\n"), b"health": File(b"sick\n")})
    shipper = running(world)
    shipper.health()
    shipper.leave(world.now)
    world.pass_time(shipper, 2)
    assert world.messages() == ["one"]
    assert shipper.is_done


def test_at_the_pods_end_what_cannot_be_printed_in_time_is_counted() -> None:
    size = 5_000_000
    world = World(
        Settings("w-0", bytes_per_second=100_000, backlog_bytes=1 << 40),
        {PATH: File(b"x\n" * (size // 2))},
    )
    shipper = running(world)
    shipper.leave(world.now)
    world.pass_time(shipper, module.LEAVE_SECONDS)
    assert shipper.jobs == {JOB.key}
    world.printed += shipper.drop_all("T")
    assert shipper.is_done
    assert shipper.counters.read_bytes + shipper.counters.dropped_bytes == size
    assert world.lines[-2]["droppedBytes"] == shipper.counters.dropped_bytes
    assert world.lines[-1]["droppedBytes"] == shipper.counters.dropped_bytes


def test_a_file_for_which_the_pods_end_left_no_time_is_reported() -> None:
    other = Output(b"/home/bob/out", "stdout")
    world = World(
        Settings("w-0", bytes_per_second=1000, backlog_bytes=1 << 40),
        {PATH: File(b"x\n" * 1_000_000), other.path: File(b"never\n")},
    )
    shipper = running(world)
    world.step(shipper)
    shipper.announce(replace(JOB, id=8, outputs=(other,)))
    shipper.leave(world.now)
    world.pass_time(shipper, module.LEAVE_SECONDS)
    world.printed += shipper.drop_all("T")
    assert [line["message"] for line in world.lines if line.get("job") == 8] == [
        "not printed: the pod has ended"
    ]


def test_an_idle_shipper_prints_nothing_and_pauses() -> None:
    world = World()
    shipper = running(world)
    assert world.step(shipper) == module.RETRY_SECONDS
    assert world.printed == b""


chunks = st.lists(
    st.sampled_from(
        [b"a\n", b"line of text\n", b"x" * 9000 + b"\n", b"no end", b"\n", b"y" * 70_000]
    )
)


@settings(max_examples=60, deadline=None)
@given(st.lists(chunks, max_size=8), st.integers(0, 8), st.sampled_from([3000, 100_000, 1 << 30]))
def test_all_bytes_are_printed_or_counted_whatever_a_job_writes(
    parts: list[list[bytes]], cut: int, rate: int
) -> None:
    world = World(Settings("w-0", bytes_per_second=rate, backlog_bytes=100_000), {PATH: File()})
    shipper = running(world)
    written = b""
    for index, part in enumerate(parts):
        data = b"".join(part)
        written += data
        content(world).data += data
        if index == cut:
            world.pass_time(shipper, 2)
    shipper.ended(JOB.key, world.now)
    world.pass_time(shipper, module.END_SECONDS + 60)
    assert shipper.counters.read_bytes + shipper.counters.dropped_bytes == len(written)
    assert shipper.jobs == frozenset()
    if shipper.counters.dropped_bytes == 0:
        want = written if not written or written.endswith(b"\n") else written + b"\n"
        assert world.text() == want.decode()
