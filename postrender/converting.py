"""The command `slurm-postrender from-soperator FILE…`: prints values of the chart slurm for a
SlurmCluster of Soperator and its NodeSets. Changes nothing.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from postrender import soperator
from postrender.errors import PostrenderError
from postrender.report import PROGRAM
from postrender.stream import LARGEST, Stream
from sidecars.commandline import Parser


def parser() -> Parser:
    """Return the parser of the command."""
    found = Parser(
        prog=f"{PROGRAM} from-soperator",
        description="Print values of the chart slurm for resources of Soperator. Comments in them "
        "list what was not converted, and why.",
    )
    found.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="manifests of one SlurmCluster and its NodeSets, for example of `kubectl get "
        "slurmclusters,nodesets.slurm.nebius.ai -o yaml`",
    )
    return found


def result(given: Namespace) -> str:
    """Return the values as text. Raises PostrenderError with file and place of a fault."""
    return soperator.text(soperator.convert([*_documents(given.files)]))


def _documents(files: Sequence[str]) -> Iterator[Any]:
    for file in files:
        try:
            with Path(file).open("rb") as opened:
                data = opened.read(LARGEST + 1)
        except OSError as error:
            raise PostrenderError(f"{file} can't be read: {error.strerror}") from None
        try:
            yield from (it.value for it in Stream.read(data).documents)
        except PostrenderError as error:
            raise PostrenderError(f"{file}: {error.message}", error.detail) from None
