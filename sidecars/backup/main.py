"""The role `backup`: `slurm-sidecars backup state|finish|copy|fetch|list|check|restore`.

The pod of a backup runs `state`, then mariadb-dump, then `finish`, then `copy` with a store
outside. The state comes first, because it contains the records that slurmctld still has to send to
slurmdbd: those that it has sent since are in the dump.
"""

import argparse
import logging
import socket
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from sidecars.backup import state, store, volume
from sidecars.commandline import Parser
from sidecars.program import log_to_stderr

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 3.0


def main(arguments: Sequence[str]) -> int:
    """Run the command; 0 on success, 1 with the reason in the log, 2 for usage."""
    options = _parser().parse_args(arguments)
    log_to_stderr()
    try:
        if options.command == "state":
            _state(options)
        elif options.command == "finish":
            _finish(options)
        elif options.command == "copy":
            _copy(options)
        elif options.command == "fetch":
            _fetch(options)
        elif options.command == "list":
            _list(options)
        elif options.command == "check":
            _check(options)
        else:
            _restore(options)
    except (volume.BackupError, state.StateError, tarfile.TarError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


def _state(options: argparse.Namespace) -> None:
    folder = volume.begin(options.volume, options.pod, time.time(), options.abandoned_after)
    if options.state:
        if options.accounting and not (options.state / state.USAGE).exists():
            log.info(
                "waiting until slurmctld has written all of its state: at most 5 minutes after "
                "its first start"
            )
            state.until_complete(options.state, time.sleep)
        files = state.save(options.state, folder / volume.STATE, time.sleep)
        log.info(
            "slurmctld's state: %d files, %s", files, _size((folder / volume.STATE).stat().st_size)
        )


def _finish(options: argparse.Namespace) -> None:
    backup = volume.finish(options.volume, options.pod, options.database, time.time())
    parts = ", ".join(f"{name} {_size(file.size)}" for name, file in backup.files.items())
    log.info("backup %s is complete: %s", backup.name, parts)
    for name in volume.delete_expired(options.volume, options.keep):
        log.info("deleted backup %s: %d are kept", name, options.keep)


def _copy(options: argparse.Namespace) -> None:
    place = _store(options)
    copied, deleted = store.copy(options.volume, place, options.keep)
    for name in copied:
        log.info("copied backup %s to %s", name, place.name)
    for name in deleted:
        log.info("deleted backup %s of %s: %d are kept", name, place.name, options.keep)


def _fetch(options: argparse.Namespace) -> None:
    place = _store(options)
    name = store.fetch(options.volume, place, options.name, options.pod)
    log.info("copied backup %s from %s", name, place.name) if name else log.info(
        "the backup is on the volume"
    )


def _store(options: argparse.Namespace) -> store.Store:
    return store.opened(options.bucket, options.prefix, options.endpoint, options.region)


def _list(options: argparse.Namespace) -> None:
    for backup in volume.backups(options.volume):
        parts = "  ".join(f"{name} {_size(file.size)}" for name, file in backup.files.items())
        print(f"{backup.name}  {parts}")


def _check(options: argparse.Namespace) -> None:
    backup = _usable(options, volume.DATABASE)
    if options.chosen:
        options.chosen.write_text(
            f"{options.volume / backup.name / volume.DATABASE}\n", encoding="utf-8"
        )
    log.info("backup %s: all files are as they were saved", backup.name)


def _restore(options: argparse.Namespace) -> None:
    backup = _usable(options, volume.STATE)
    replaced = state.restore(
        options.volume / backup.name / volume.STATE, options.state, volume.name_at(time.time())
    )
    log.info("the state is that of the backup %s", backup.name)
    if replaced:
        log.info(
            "the former state is in %s of the volume of slurmctld: delete it when all is well",
            replaced.name,
        )


def _usable(options: argparse.Namespace, file: str) -> volume.Backup:
    """Return the backup, whose files are as they were saved. It contains `file`, and what would
    write meanwhile is stopped.
    """
    backup = volume.choose(options.volume, options.name)
    if file not in backup.files:
        raise volume.BackupError(f"the backup {backup.name} has no {file}. Choose another one.")
    for address in options.stopped:
        if _answers(address):
            raise volume.BackupError(
                f"{address} answers: the daemon would write over what is restored. Stop it first."
            )
    return backup


def _answers(address: str) -> bool:
    """Return whether a server accepts connections at HOST:PORT. A name without an address has no
    pod that is ready.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="slurm-sidecars backup",
        description="Copy slurmctld's state and the accounting database, and restore them.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.add_argument(
            "--volume",
            type=Path,
            default=Path("/backup"),
            help="folder of the backups (default: /backup)",
        )
        return found

    begin = command("state", "copy slurmctld's state to a new backup")
    end = command("finish", "complete the new backup, and delete the oldest ones")
    away = command(
        "copy", "copy the backups to an S3-compatible store, and delete the oldest ones there"
    )
    home = command("fetch", "copy a backup of the store to the volume, unless the volume has it")
    command("list", "list the complete backups, oldest first")
    check = command("check", "check the files of a backup with a database, before it is restored")
    back = command(
        "restore", "replace slurmctld's state with that of a backup, while slurmctld doesn't run"
    )
    for each in (begin, end, home):
        each.add_argument("--pod", required=True, help="name of the pod")
    begin.add_argument(
        "--state",
        type=Path,
        help="folder of slurmctld's state; without it, only the database is saved",
    )
    begin.add_argument(
        "--accounting",
        action="store_true",
        help="slurmctld uses slurmdbd, so its state has the usage",
    )
    begin.add_argument(
        "--abandoned-after",
        type=float,
        default=86400.0,
        metavar="SECONDS",
        help="age at which an unfinished backup is deleted (default: 86400)",
    )
    for each in (end, away):
        each.add_argument("--keep", type=_positive, required=True, help="number of backups to keep")
    for each in (away, home):
        each.add_argument("--bucket", required=True, help="name of the bucket")
        each.add_argument(
            "--prefix", default="", metavar="FOLDER", help="folder of the bucket (default: none)"
        )
        each.add_argument("--endpoint", metavar="URL", help="where the store is (default: AWS)")
        each.add_argument(
            "--region", default="us-east-1", help="region of the bucket (default: us-east-1)"
        )
    end.add_argument(
        "--database", action="store_true", help="the backup has a dump of the database"
    )
    for each in (home, check, back):
        each.add_argument(
            "name", nargs="?", default=volume.LATEST, help="name of the backup (default: latest)"
        )
    for each in (check, back):
        each.add_argument(
            "--stopped",
            action="append",
            default=[],
            metavar="HOST:PORT",
            help="where nothing may answer",
        )
    check.add_argument(
        "--chosen", type=Path, help="file to which the path of the checked dump is written"
    )
    back.add_argument("--state", type=Path, required=True, help="folder of slurmctld's state")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
