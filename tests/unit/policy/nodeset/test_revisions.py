"""Which revision is created, found again, and deleted."""

from sidecars.policy.nodeset.revisions import Stored, choose, surplus
from sidecars.workloads.nodeset import Revision


def revision(name: str, image: str, base: str = "one") -> Revision:
    return Revision(
        name, {"spec": {"image": image}, "reads": {}, "base": {"files": {"slurmd": [base]}}}
    )


def stored(number: int, found: Revision) -> Stored:
    return Stored(f"slinky-{found.hash}", number, found)


OLD, NEW = stored(1, revision("a", "old")), stored(2, revision("b", "new"))


def test_the_first_revision_has_number_one() -> None:
    assert choose(revision("a", "old"), []).store_as == 1


def test_a_new_content_is_stored_with_the_next_number() -> None:
    choice = choose(revision("c", "newer"), [OLD, NEW])
    assert (choice.store_as, choice.renumber, choice.revision.hash) == (3, None, "c")


def test_the_newest_revision_is_used_with_the_base_that_it_was_stored_with() -> None:
    choice = choose(revision("b", "new", base="two"), [OLD, NEW])
    assert (choice.store_as, choice.renumber) == (None, None)
    assert choice.revision == NEW.revision


def test_an_earlier_content_is_the_earlier_revision_renumbered() -> None:
    choice = choose(revision("a", "old"), [OLD, NEW])
    assert (choice.store_as, choice.renumber, choice.revision) == (
        None,
        ("slinky-a", 3),
        OLD.revision,
    )


def test_a_hash_that_another_content_has_is_a_collision() -> None:
    assert choose(revision("a", "newer"), [OLD, NEW]).collision


def test_a_content_stored_under_the_hash_of_a_collision_is_found_again() -> None:
    after_collision = stored(3, revision("c", "newer"))
    assert choose(revision("a", "newer"), [OLD, NEW, after_collision]).revision.hash == "c"


def test_old_revisions_beyond_the_limit_go_oldest_first() -> None:
    history = [stored(number, revision(f"r{number}", f"v{number}")) for number in (3, 1, 4, 2)]
    assert surplus(history, "r4", frozenset(), 1) == ["slinky-r1", "slinky-r2"]
    assert surplus(history, "r4", frozenset(), 0) == ["slinky-r1", "slinky-r2", "slinky-r3"]
    assert surplus(history, "r4", frozenset(), 3) == []


def test_a_revision_that_a_pod_has_stays_and_takes_no_room() -> None:
    history = [stored(number, revision(f"r{number}", f"v{number}")) for number in (1, 2, 3, 4)]
    assert surplus(history, "r4", {"r1"}, 1) == ["slinky-r2"]
