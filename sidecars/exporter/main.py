"""The role `exporter`: assembles its parts and runs them until a signal to stop."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence

from sidecars.exporter import external
from sidecars.exporter.collector import Collector
from sidecars.exporter.metrics import Source
from sidecars.exporter.serving import application
from sidecars.exporter.settings import Settings, parse
from sidecars.program import log_to_stderr, stop_signal
from sidecars.serving import serve
from sidecars.slurm.client import Client
from sidecars.slurm.tokens import TokenFile, Tokens, TokenSource

TOKEN_SECONDS = 300
HOST = ""
"""All addresses: probes and scrapes come by the pod's own."""


def main(arguments: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ) -> int:
    """Run the role. Return 0 after SIGTERM or SIGINT, 1 if it can't serve, 2 for an argument or an
    environment that can't be used.
    """
    try:
        if arguments:
            raise ValueError(
                f"unexpected argument {arguments[0]!r}; it is configured by its environment"
            )
        settings = parse(environment)
    except ValueError as fault:
        print(f"exporter: {fault}", file=sys.stderr)
        return 2
    log_to_stderr()
    try:
        asyncio.run(run(settings))
    except OSError as fault:
        print(f"exporter: can't serve on port {settings.port}: {fault}", file=sys.stderr)
        return 1
    return 0


async def run(settings: Settings, *, host: str = HOST) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError for a port or a certificate that can't be
    used.
    """
    stop = stop_signal()
    async with Client(settings.slurmrestd_url, tokens(settings), concurrency=len(Source)) as client:
        collector = Collector(client, settings, clock=time.monotonic, now=time.time)
        collector.start()
        try:
            ends = [await serve(application(collector), host, settings.port, settings.certificate)]
            if settings.external is not None:
                of = settings.external
                api = external.application(collector.wanted, of.namespace, of.client_names)
                ends.append(await serve(api, host, of.port, of.certificate, clients=of.client_ca))
            await stop.wait()
            for end in ends:
                await end()
        finally:
            await collector.close()


def tokens(settings: Settings) -> Tokens:
    """Tokens from the file, or else signed here. Both files are read for each call, so that new
    content counts.
    """
    if settings.token_file is not None:
        return TokenFile(settings.token_file)
    key = settings.key_file.read_bytes
    return TokenSource(key, clock=time.time, username=settings.user, lifetime_seconds=TOKEN_SECONDS)
