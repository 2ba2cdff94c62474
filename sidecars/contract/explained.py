"""Words and texts that the product shows to its users, each with its cause and the remedy beside
it.

docs/reference/conditions.md is generated from the enumerations of this kind
(schemas/conditions.py).
"""

from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """A word or text, why it is shown, and what the reader does about it.

    `statuses`: with which status of its condition it occurs; "" for what is no reason of a
    condition.
    """

    cause: str
    remedy: str
    statuses: str

    def __new__(cls, text: str, cause: str, remedy: str, statuses: str = "") -> Self:
        """`cause` and `remedy` are Markdown sentences."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.cause, member.remedy, member.statuses = cause, remedy, statuses
        return member
