"""What a pod template sets for a sidecar in its environment. Standard library only."""

from collections.abc import Mapping


def required(environment: Mapping[str, str], name: str) -> str:
    """The value. Raises ValueError, which names the variable, for one that isn't set or is empty."""
    value = environment.get(name, "")
    if not value:
        raise ValueError(f"{name} isn't set; the operator's pod template sets it")
    return value


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """The value as a whole number; `default` if it isn't set or is empty. Raises ValueError for anything else."""
    text = environment.get(name, "") or str(default)
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}: it must be a whole number")
    return int(text)
