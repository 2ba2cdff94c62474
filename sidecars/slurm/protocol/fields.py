"""The JSON of an answer, read field by field. A wrong value is reported with its place."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

R = TypeVar("R")


class WrongField(Exception):
    """A value that doesn't follow the REST schema. `decode` turns it into Malformed, which names
    the call.
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(where, message)
        self.where = where
        self.message = message


class Fields:
    """A JSON object of an answer. `at` is its place in the answer, "" for the answer itself.

    All methods raise WrongField for a value of another type.
    """

    __slots__ = ("_at", "_values")

    def __init__(self, value: object, at: str) -> None:
        if not isinstance(value, dict):
            raise WrongField(at or "body", f"should be an object, is {_kind(value)}")
        self._values: dict[str, Any] = value
        self._at = at

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a string, "" when absent or null, unless it is required."""
        value = self._values.get(key)
        if isinstance(value, str) and (value or not required):
            return value
        if value is None and not required:
            return ""
        raise self._wrong(key, "a string" if not required else "a string that isn't empty", value)

    def flag(self, key: str, *, optional: bool = False) -> bool:
        """Return a boolean. A missing one is wrong unless it is optional, and is then False."""
        value = self._values.get(key)
        if isinstance(value, bool):
            return value
        if value is None and optional:
            return False
        raise self._wrong(key, "a boolean", value)

    def number(self, key: str) -> int:
        """Return a whole number, plain or as `{set, infinite, number}`, or 0 when absent, not set
        or infinite.
        """
        value = self._values.get(key)
        return self.number_or_none(key) or 0 if isinstance(value, dict) else self._whole(key, value)

    def number_or_none(self, key: str) -> int | None:
        """Return a number as `number` does, but None when absent, not set or infinite."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            return None if value is None else self._whole(key, value)
        if value.get("infinite") is True or value.get("set") is False:
            return None
        return self._whole(f"{key}.number", value.get("number"))

    def numbers(self) -> dict[str, int]:
        """Return all members that are whole numbers or booleans, the latter as 1 and 0, without
        those that are not set.
        """
        found: dict[str, int] = {}
        for key, value in self._values.items():
            if isinstance(value, int) or (isinstance(value, dict) and "number" in value):
                number = int(value) if isinstance(value, bool) else self.number_or_none(key)
                if number is not None:
                    found[key] = number
        return found

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, or a text separated by commas as in older API versions, () when
        absent.
        """
        value = self._values.get(key)
        if isinstance(value, str):
            return tuple(filter(None, value.split(",")))
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(value)
        raise self._wrong(key, "a list of strings", value)

    def states(self, key: str) -> frozenset[str]:
        """Return the states of a node or job."""
        return _shared(self.words(key))

    def nested(self, key: str) -> "Fields":
        """Return a nested object, or an empty one when absent."""
        value = self._values.get(key)
        return Fields({} if value is None else value, self._place(key))

    def items(self, key: str, *, optional: bool = False) -> Iterator["Fields"]:
        """Yield the objects of a list. A missing list is wrong unless it is optional, because it
        would look like "none".
        """
        value = self._values.get(key)
        if value is None and optional:
            return
        for index, item in enumerate(self._list(key)):
            yield Fields(item, self._place(f"{key}[{index}]"))

    def records(self, key: str, kind: type[R], read: Callable[["Fields"], R]) -> tuple[R, ...]:
        """Return the records of a required list. An item that is already a `kind` is taken as it
        is.
        """
        return tuple(
            value
            if isinstance(value, kind)
            else read(Fields(value, self._place(f"{key}[{index}]")))
            for index, value in enumerate(self._list(key))
        )

    def _list(self, key: str) -> list[Any]:
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        return value

    def _whole(self, key: str, value: object) -> int:
        if value is None:
            return 0
        # Slurm's numbers have at most 64 bits. Anything else is damage that would spread.
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64:
            return value
        raise self._wrong(key, "a whole number of at most 64 bits", value)

    def _wrong(self, key: str, expected: str, value: object) -> WrongField:
        return WrongField(self._place(key), f"should be {expected}, is {_kind(value)}")

    def _place(self, key: str) -> str:
        return f"{self._at}.{key}" if self._at else key


@lru_cache(maxsize=1024)
def _shared(words: tuple[str, ...]) -> frozenset[str]:
    # One object for all records with the same states: few combinations, tens of thousands of
    # records.
    return frozenset(map(intern, words))


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return "missing or null" if value is None else names.get(type(value), type(value).__name__)
