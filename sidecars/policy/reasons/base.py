"""What the reasons of all condition types have in common."""

from sidecars.contract.explained import Explained

NOTHING = "Nothing."
"""The remedy of what needs none."""

WAIT = "Wait."


class Reason(Explained):
    """A reason of a condition: a CamelCase word. The docstring of each class describes its
    condition type.
    """
