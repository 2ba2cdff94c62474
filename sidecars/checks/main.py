"""Assembles one run: `slurm-sidecars checks run`."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sidecars.checks.core.plan import failed
from sidecars.checks.run import CheckError, Run
from sidecars.checks.slurm import Slurm
from sidecars.commandline import Parser
from sidecars.contract import environment as variables
from sidecars.kube import CONFIG_MAPS, ApiError, CredentialsError, load_credentials
from sidecars.kube import Client as KubeClient
from sidecars.policy.checks.declared import Check, declared
from sidecars.policy.checks.results import Verdict, written
from sidecars.program import log_to_stderr
from sidecars.slurm.client import Client
from sidecars.slurm.errors import AuthenticationError, NoToken, SlurmError
from sidecars.slurm.tokens import TokenFile, claims

log = logging.getLogger(__name__)

TOKEN_SECONDS = 60.0
"""The operator may write the tokens after the pod has started."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment."""

    slurmrestd_url: str
    check: Check
    token_file: Path
    job_token_file: Path
    results: tuple[str, str] | None
    """Namespace and name of the ConfigMap."""
    declared: frozenset[str] = frozenset()
    """The names of all checks: results of other ones are deleted."""


def parse(environment: Mapping[str, str]) -> Settings:
    """Read the variables. Raises ValueError, which names the variable, the value and the remedy."""
    url = environment.get(variables.SLURMRESTD_URL, "")
    if not url.startswith(("http://", "https://")):
        raise ValueError(
            f"{variables.SLURMRESTD_URL} is {url!r}: give slurmrestd's address, http://HOST:PORT"
        )
    files = []
    for name in (variables.CHECK_FILE, variables.CHECK_TOKEN_FILE, variables.CHECK_JOB_TOKEN_FILE):
        if not environment.get(name):
            raise ValueError(f"{name} is missing: give the path of a file")
        files.append(Path(environment[name]))
    try:
        check = declared(files[0].read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{variables.CHECK_FILE} is {files[0]}: {error.strerror}") from None
    namespace, _, name = environment.get(variables.CHECK_RESULTS, "").partition("/")
    if bool(namespace) != bool(name):
        raise ValueError(
            f"{variables.CHECK_RESULTS} is {namespace!r}: give NAMESPACE/NAME of a ConfigMap"
        )
    names = frozenset(it.stem for it in files[0].parent.glob("*.json")) | {check.name}
    return Settings(
        url.rstrip("/"), check, files[1], files[2], (namespace, name) if name else None, names
    )


def main(arguments: Sequence[str]) -> int:
    """Run the check: 0 when no node failed, 1 when a node failed, 3 when the check couldn't run, 2
    for usage.
    """
    parser = Parser(
        prog="slurm-sidecars checks",
        description="Run a check on the nodes of a cluster, as Slurm jobs. Environment variables "
        "configure it.",
    )
    parser.add_argument("command", choices=["run"], help="run: once, and end with its result")
    parser.parse_args(arguments)
    log_to_stderr()
    try:
        settings = parse(os.environ)
    except ValueError as error:
        log.error("%s", error)
        return 3
    try:
        return asyncio.run(_run(settings))
    except (AuthenticationError, NoToken) as error:
        log.error(
            "%s. Check that the operator runs and that Slurm knows the user of the check's jobs.",
            error,
        )
    except (CheckError, SlurmError, ApiError, CredentialsError, OSError) as error:
        log.error("%s", error)
    return 3


async def _run(settings: Settings) -> int:
    username = await _username(settings.job_token_file)
    await _username(settings.token_file)
    began = time.monotonic()
    async with (
        Client(settings.slurmrestd_url, TokenFile(settings.token_file)) as admin,
        Client(settings.slurmrestd_url, TokenFile(settings.job_token_file)) as submitter,
    ):
        slurm = Slurm(
            settings.check, admin, submitter, username, now=time.time, checks=settings.declared
        )
        run = Run(settings.check, slurm, clock=time.monotonic)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, run.stop)
        verdicts = await run.run()
    for name, verdict in sorted(verdicts.items()):
        log.info("%s: %s %s", name, verdict.kind, verdict.text)
    if settings.results is not None:
        await _store(
            settings,
            written(verdicts, time.time(), time.monotonic() - began, len(settings.declared)),
        )
    return _status(verdicts)


def _status(verdicts: Mapping[str, Verdict]) -> int:
    return 1 if failed(verdicts) else 0


async def _username(file: Path) -> str:
    """Return the user of the token in the file, which the operator may still have to write."""
    end = time.monotonic() + TOKEN_SECONDS
    while True:
        try:
            found = claims(TokenFile(file).token())
        except (OSError, ValueError):
            found = None
        if found is not None:
            return found.username
        if time.monotonic() > end:
            raise CheckError(
                f"{file} has no token: check that the operator runs and watches this namespace"
            )
        await asyncio.sleep(1.0)


async def _store(settings: Settings, text: str) -> None:
    namespace, name = settings.results or ("", "")
    async with KubeClient.connect(load_credentials()) as kube:
        stored = (await kube.get(CONFIG_MAPS, namespace, name)).get("data") or {}
        data = {settings.check.name: text, **dict.fromkeys(stored.keys() - settings.declared)}
        await kube.merge_patch(CONFIG_MAPS, namespace, name, {"data": data})
