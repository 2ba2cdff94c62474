"""Actions on a running simulator from outside: by name, with JSON as their arguments."""

from collections.abc import Callable
from typing import Any

import msgspec

from sidecars.simulate.model import SlurmModel
from sidecars.simulate.records import Fault, Json
from sidecars.slurm.hostlists import HostlistError, expand

FAULTS = {fault.name.lower().replace("_", "-"): fault for fault in Fault}
"""Faults by the names that the control endpoint takes."""


class ControlError(ValueError):
    """The action is unknown, or its arguments are wrong. The text names the fault and the
    remedy.
    """


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Fault(_Arguments):
    fault: str
    times: int | None = None
    method: str | None = None
    path: str = ""
    seconds: float = 5.0


class _Register(_Arguments):
    nodes: str
    cpus: int = 4
    real_memory: int = 16_000
    features: list[str] = []
    gres: str = ""
    extra: str = ""


class _Nodes(_Arguments):
    nodes: str


class _Start(_Arguments):
    nodes: str
    cpus: int = 1
    time_limit: int | None = None
    name: str = "job"


class _Submit(_Arguments):
    count: int = 1
    name: str = "job"


class _Job(_Arguments):
    job: int
    state: str = "COMPLETED"
    completing: bool = False


class _Restart(_Arguments):
    lost_state: bool = False


class _Slurmdbd(_Arguments):
    up: bool


def apply(model: SlurmModel, action: str, body: bytes) -> Json:
    """Apply the action to the model. Returns its result. Raises ControlError."""
    found = ACTIONS.get(action)
    if found is None:
        raise ControlError(f"no action {action!r}; actions are {', '.join(sorted(ACTIONS))}")
    kind, act = found
    try:
        return act(model, msgspec.json.decode(body or b"{}", type=kind))
    except (msgspec.MsgspecError, HostlistError, UnicodeDecodeError) as error:
        raise ControlError(f"{action}: {error}") from error
    except KeyError as error:
        raise ControlError(f"{action}: {error.args[0]!r} isn't known to this Slurm") from error


def _fault(model: SlurmModel, given: _Fault) -> Json:
    fault = FAULTS.get(given.fault)
    if fault is None:
        raise ControlError(f"no fault {given.fault!r}; faults are {', '.join(sorted(FAULTS))}")
    model.fail(fault, given.times, method=given.method, path=given.path, seconds=given.seconds)
    return {}


def _heal(model: SlurmModel, given: _Arguments) -> Json:
    model.heal()
    return {}


def _register(model: SlurmModel, given: _Register) -> Json:
    for name in expand(given.nodes):
        model.node_register(
            name,
            cpus=given.cpus,
            real_memory=given.real_memory,
            features=given.features,
            gres=given.gres,
            extra=given.extra,
        )
    return {}


def _silence(model: SlurmModel, given: _Nodes) -> Json:
    for name in expand(given.nodes):
        model.node_silence(name)
    return {}


def _vanish(model: SlurmModel, given: _Nodes) -> Json:
    for name in expand(given.nodes):
        model.node_vanish(name)
    return {}


def _lose(model: SlurmModel, given: _Nodes) -> Json:
    model.node_lose(*expand(given.nodes))
    return {}


def _start(model: SlurmModel, given: _Start) -> Json:
    return {
        "job": model.job_start(
            given.nodes, cpus=given.cpus, time_limit=given.time_limit, name=given.name
        )
    }


def _submit(model: SlurmModel, given: _Submit) -> Json:
    return {"jobs": [model.job_submit(name=given.name) for _ in range(given.count)]}


def _suspend(model: SlurmModel, given: _Job) -> Json:
    model.job_suspend(given.job)
    return {}


def _end(model: SlurmModel, given: _Job) -> Json:
    model.job_end(given.job, state=given.state, completing=given.completing)
    return {}


def _restart(model: SlurmModel, given: _Restart) -> Json:
    model.restart(lost_state=given.lost_state)
    return {}


def _slurmdbd(model: SlurmModel, given: _Slurmdbd) -> Json:
    if model.accounting is None:
        raise ControlError("slurmdbd: this simulator runs without accounting")
    model.accounting.up = given.up
    return {}


def _calls(model: SlurmModel, given: _Arguments) -> Json:
    return {
        "calls": [
            {"method": c.method, "path": c.path, "query": c.query, "body": c.body}
            for c in model.calls
        ]
    }


ACTIONS: dict[str, tuple[type[_Arguments], Callable[[SlurmModel, Any], Json]]] = {
    "calls": (_Arguments, _calls),
    "end-job": (_Job, _end),
    "fault": (_Fault, _fault),
    "heal": (_Arguments, _heal),
    "lose": (_Nodes, _lose),
    "register": (_Register, _register),
    "restart": (_Restart, _restart),
    "silence": (_Nodes, _silence),
    "slurmdbd": (_Slurmdbd, _slurmdbd),
    "start-job": (_Start, _start),
    "submit-job": (_Submit, _submit),
    "suspend-job": (_Job, _suspend),
    "vanish": (_Nodes, _vanish),
}
"""Actions by name: the type of the arguments and the function."""
