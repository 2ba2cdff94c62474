"""The role `simulate`: a simulated slurmrestd on a port, and a second port to control it."""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from sidecars.commandline import Parser
from sidecars.program import stop_signal
from sidecars.simulate.carriers import serve
from sidecars.simulate.control import ACTIONS, ControlError, apply
from sidecars.simulate.initial import InitialError, fill
from sidecars.simulate.model import SlurmModel
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.protocol import VERSIONS


@dataclass(slots=True)
class Settings:
    """The settings of the command line. `key`: the file with the JWT key, None to accept any
    token.
    """

    listen: tuple[str, int]
    control: tuple[str, int] | None
    nodes: str
    model: Path | None
    versions: tuple[str, ...]
    key: Path | None
    accounting: bool
    release: tuple[int, ...]


def parse(arguments: Sequence[str]) -> Settings:
    """Read the flags; exits with a usage error for a bad one (argparse)."""
    parser = Parser(
        prog="slurm-sidecars simulate",
        description="A simulated Slurm behind slurmrestd's REST API, for tests and for trying "
        "things out.",
        epilog="Actions, as POST /ACTION of the control address with JSON arguments: "
        f"{', '.join(sorted(ACTIONS))}; and refuse, which closes slurmrestd's port for "
        "SECONDS.",
    )
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default=("127.0.0.1", 6820),
        metavar="HOST:PORT",
        help="default 127.0.0.1:6820",
    )
    add(
        "--control",
        type=_address,
        metavar="HOST:PORT",
        help="where faults and events come in; default: nowhere",
    )
    add("--nodes", default="", metavar="HOSTLIST", help="idle nodes to begin with, such as n[0-3]")
    add("--model", type=Path, metavar="FILE", help="YAML or JSON of the initial content")
    add(
        "--versions",
        type=_versions,
        default=VERSIONS,
        metavar="A,B",
        help=f"default {','.join(VERSIONS)}",
    )
    add(
        "--key",
        type=Path,
        metavar="FILE",
        help="the key that signs the tokens to accept; default: accept any token",
    )
    add("--no-accounting", action="store_true", help="a cluster without slurmdbd")
    add(
        "--release",
        type=_release,
        default="26.05.5",
        metavar="A.B.C",
        help="of Slurm; default 26.05.5",
    )
    given = parser.parse_args(arguments)
    return Settings(
        listen=given.listen,
        control=given.control,
        nodes=given.nodes,
        model=given.model,
        versions=given.versions,
        key=given.key,
        accounting=not given.no_accounting,
        release=given.release,
    )


def main(arguments: Sequence[str]) -> int:
    """Simulate until SIGTERM or SIGINT; 1 when it can't."""
    settings = parse(arguments)
    try:
        asyncio.run(_run(settings, build(settings)))
    except (OSError, InitialError, HostlistError) as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 1
    return 0


def build(settings: Settings) -> SlurmModel:
    """Return the cluster that the settings describe. Raises OSError, InitialError and
    HostlistError.
    """
    model = SlurmModel()
    model.versions = settings.versions
    model.release = settings.release
    if not settings.accounting:
        model.accounting = None
    if settings.key is not None:
        model.key = settings.key.read_bytes()
    for name in expand(settings.nodes):
        model.node_register(name)
    if settings.model is not None:
        try:
            fill(model, settings.model.read_bytes())
        except InitialError as error:
            raise InitialError(f"{settings.model}: {error}") from error
    return model


class Simulator:
    """slurmrestd on its port, which can be closed for a while."""

    def __init__(self, model: SlurmModel, listen: tuple[str, int]) -> None:
        self._model = model
        self._listen = listen
        self._open: contextlib.AsyncExitStack | None = None
        self._reopening: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Open the port; its URL. Raises OSError."""
        stack = contextlib.AsyncExitStack()
        url = await stack.enter_async_context(serve(self._model, *self._listen))
        self._listen = (self._listen[0], int(url.rpartition(":")[2]))
        self._open = stack
        return url

    async def close(self) -> None:
        """Refuse connections from now on."""
        stack, self._open = self._open, None
        if stack is not None:
            await stack.aclose()

    async def refuse(self, seconds: float) -> None:
        """Refuse connections for so long."""
        await self.close()
        self._reopening = asyncio.create_task(self._reopen(seconds))

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._open is None:
            await self.open()

    async def stop(self) -> None:
        """End for good."""
        if self._reopening is not None:
            self._reopening.cancel()
        await self.close()


@contextlib.asynccontextmanager
async def controlled(
    model: SlurmModel, simulator: Simulator, listen: tuple[str, int]
) -> AsyncIterator[str]:
    """Serve the control endpoint while the block runs, and provide its URL. Raises OSError."""

    async def act(request: web.Request) -> web.Response:
        action, body = request.match_info["action"], await request.read()
        try:
            if action == "refuse":
                await simulator.refuse(_seconds(body))
                return web.json_response({})
            return web.json_response(apply(model, action, body))
        except ControlError as error:
            return web.json_response({"error": str(error)}, status=400)

    application = web.Application()
    application.router.add_post("/{action}", act)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, *listen).start()
        yield f"http://{listen[0]}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _run(settings: Settings, model: SlurmModel) -> None:
    stop = stop_signal()
    simulator = Simulator(model, settings.listen)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(simulator.stop)
        print(
            f"simulate: slurmrestd at {await simulator.open()}, {len(model.nodes)} nodes",
            flush=True,
        )
        if settings.control is not None:
            url = await stack.enter_async_context(controlled(model, simulator, settings.control))
            print(f"simulate: control at {url}", flush=True)
        await stop.wait()


def _seconds(body: bytes) -> float:
    try:
        seconds = json.loads(body)["seconds"]
    except (ValueError, KeyError, TypeError):
        seconds = None
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= 86_400
    ):
        raise ControlError('refuse: give how long, such as {"seconds": 5}')
    return float(seconds)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT; give for example 127.0.0.1:6820"
        )
    return host or "127.0.0.1", int(port)


def _release(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no release of Slurm such as 25.11.7")
    return tuple(int(part) for part in parts)


def _versions(text: str) -> tuple[str, ...]:
    versions = tuple(filter(None, text.split(",")))
    unknown = [version for version in versions if version not in VERSIONS]
    if unknown or not versions:
        raise argparse.ArgumentTypeError(f"{text!r} should be one or more of {', '.join(VERSIONS)}")
    return versions
