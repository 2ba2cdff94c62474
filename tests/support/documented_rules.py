"""What is right and wrong about a documented command: options that the program doesn't have, a
target that doesn't exist, a path that Slurm's REST API doesn't have.

`kubectl` and `helm` have no rules here: tests/integration/test_documented_commands.py runs them.
"""

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from postrender import cli, converting, previewing
from sidecars.__main__ import ROLES
from sidecars.explain import main as explain
from sidecars.operator import settings as operator_settings
from sidecars.simulate import SlurmModel
from sidecars.simulate import main as simulate
from tests.support.documented import Block

ROOT = Path(__file__).parents[2]

KUBELET, ENGINE, RELEASE, NETWORK, OTHERS = (
    "needs Kubernetes nodes with a kubelet",
    "needs a container engine, or a cluster in one",
    "needs a published release",
    "needs a login over the network",
    "needs a program of others on a host outside Kubernetes",
)
MARKED: Sequence[tuple[str, str, str]] = (
    ("docs/air-gapped.md", "while read -r image", RELEASE),
    ("docs/air-gapped.md", "for chart in slurm-operator-crds", RELEASE),
    ("docs/aks-openshift.md", "oc adm policy", "needs OpenShift"),
    ("docs/backup.md", "mariadb-dump --single-transaction --host", OTHERS),
    ("docs/getting-started.md", "kubectl debug node/NODE", KUBELET),
    ("docs/hybrid.md", "slurmd -Z", OTHERS),
    ("docs/images.md", "docker build", ENGINE),
    ("docs/images.md", "cosign verify ", RELEASE),
    ("docs/images.md", "cosign verify-blob ", RELEASE),
    ("docs/jupyterhub.md", "docker build", ENGINE),
    ("docs/local.md", "for image in slurmctld:26.05", ENGINE),
    ("docs/local.md", "kind load", ENGINE),
    ("docs/migrating.md", "helm install slurm-operator oci:", "needs another registry"),
    ("docs/mpi.md", "docker build", ENGINE),
    ("docs/postrender.md", "tar -xzf", RELEASE),
    ("docs/postrender.md", "kustomize build", RELEASE),
    ("docs/soperator.md", "kubectl -n soperator", "needs a cluster of Soperator"),
    ("docs/upgrades.md", "helm upgrade slurm-operator-crds …", "shows an order, not commands"),
    ("docs/use-jobs.md", "ssh USER@LOGIN", NETWORK),
    ("docs/users.md", "ssh gpu-0", NETWORK),
    ("docs/users.md", "for image in login slurmd", ENGINE),
)
"""Blocks that no test runs, or reads further than bash does: the page, how the first command
begins, and why.
"""

SLURM: Mapping[str, str] = {
    "srun": "-A= -N= -n= --pty --mpi= --gres= --gpus= --gpus-per-node= --nodes= --ntasks= "
    "--container= --job-name=",
    "sbatch": "-A= -N= -n= --wrap= --gres= --gpus= --gpus-per-node= --nodes= --ntasks= "
    "--ntasks-per-node= --cpus-per-task= --mem-per-cpu= --time= --output= --job-name= "
    "--partition= --comment= --container= --external",
    "salloc": "--nodes= --gres=",
    "squeue": "--me --noheader --states= --format=",
    "sinfo": "-N -R -o= -p=",
    "sacct": "-X",
    "scontrol": "-o",
    "sacctmgr": "-i",
    "slurmd": "-Z --conf-server= --conf=",
    "sackd": "--conf-server=",
}
"""The options of Slurm's programs that the documentation uses; `=` marks those with a value.
tests/slurm/test_login_programs.py compares them with what the real programs have.
"""
PYXIS = "--container-image= --container-mounts= --container-workdir= --container-name="
"""Those that the images of this project add to srun and salloc."""
VERBS: Mapping[str, Sequence[str]] = {
    "scontrol": ("show", "update", "delete", "requeue", "token", "release"),
    "sacctmgr": ("add", "show"),
}

KUBERNETES_CONDITIONS = {"Complete", "Ready"}
"""Conditions of Jobs and pods. docs/reference/conditions.md has ours."""

ORDINARY = {
    *("bash", "cat", "chmod", "comm", "find", "getent", "grep", "head", "hostname", "jq", "mkdir"),
    *("mv", "nvidia-smi", "rm", "sh", "sha256sum", "sort", "ssh", "tar", "xargs"),
}
"""Programs that every reader knows, also in a pod."""


def problem(words: Sequence[str]) -> str:
    """What is wrong with a command of a block, "" if nothing is."""
    program, *rest = words
    if program == "sudo":
        return problem(rest)
    if program == "kubectl":
        return _kubectl(rest)
    if program in {"helm", *ORDINARY} or program.startswith("/"):
        return ""
    rule = RULES.get(program)
    return rule(rest) if rule else f"no rule for the program {program!r}"


def of_job(block: Block, words: Sequence[str]) -> str:
    """As `problem`, in the script of a job, which starts programs of its user too."""
    own = words[0] not in {*RULES, *ORDINARY} and block.is_job
    return "" if own else problem(words)


def _kubectl(words: Sequence[str]) -> str:
    if words[:1] == ["slurm"]:
        return _explain(words[1:])
    known = (ROOT / "docs/reference/conditions.md").read_text(encoding="utf-8")
    for name in re.findall(r'condition=(\w+)|@\.type=="(\w+)"', " ".join(words)):
        condition = "".join(name)
        if condition not in KUBERNETES_CONDITIONS and f"\n## {condition}\n" not in known:
            return f"kubectl: no condition {condition!r}"
    return problem(words[words.index("--") + 1 :]) if "--" in words else ""


def _parsed(parse: Callable[[Sequence[str]], object], words: Sequence[str]) -> str:
    """The message of an argument parser."""
    printed = io.StringIO()
    given = [word for word in words if word != "…"]
    try:
        with contextlib.redirect_stderr(printed):
            parse(given)
    except SystemExit:
        return printed.getvalue().strip().rpartition("\n")[2]
    return ""


def _explain(words: Sequence[str]) -> str:
    return _parsed(explain._parser().parse_args, words)


def _postrender(words: Sequence[str]) -> str:
    modules = {cli.PREVIEW: previewing, cli.FROM_SOPERATOR: converting}
    parser = modules[words[0]].parser() if words[0] in modules else cli._parser()
    return _parsed(parser.parse_args, words[words[0] in {cli.CHECK, *modules} :])


def _sidecars(words: Sequence[str]) -> str:
    role, *rest = words
    if role not in ROLES:
        return f"slurm-sidecars: no role {role!r}"
    parsers: dict[str, Callable[[Sequence[str]], object]] = {
        "operator": lambda given: operator_settings.parse(given, {}),
        "simulate": simulate.parse,
    }
    if role in parsers:
        return _parsed(parsers[role], rest)
    if role == "doctor":
        return (
            "" if rest[:1] == ["gres"] and _options("doctor", rest[1:], "-n=") == "" else "doctor"
        )
    return "" if not rest else f"slurm-sidecars {role}: {' '.join(rest)}"


def _make(words: Sequence[str]) -> str:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))
    missing = [word for word in words if not word.startswith("-") and word not in targets]
    return f"make has no target {', '.join(missing)}" if missing else ""


def _python(words: Sequence[str]) -> str:
    if words[0] != "-m" or not (ROOT / words[1].replace(".", "/")).exists():
        return f"python: no module {words[1:2]}"
    options = "--cluster= --run= --admin="
    return _options(words[1], [word for word in words[2:] if not word.isupper()], options)


def _curl(words: Sequence[str]) -> str:
    """Options, and whether the simulated slurmrestd, or its port for faults, knows the path."""
    options = "-s -H= -X= -d= --silent --fail-with-body --header= --request= --data="
    if wrong := _options("curl", words, options):
        return wrong
    (url,) = (word for word in words if word.startswith("http"))
    path = urlsplit(url).path
    if path == "/fault":
        return ""
    method = next((each for each in ("DELETE", "POST") if each in words), "GET")
    body = words[words.index("--data") + 1] if "--data" in words else ""
    try:
        content = json.loads(body or "{}")
    except ValueError as error:
        return f"{path}: {error}"
    # It takes jobs of the bridge alone, and answers 400 to others.
    answer = SlurmModel().handle("POST" if content else method, path, body.encode())
    return f"slurmrestd has no {method} {path}" if answer.status in {404, 405} else ""


def _slurm(program: str) -> Callable[[Sequence[str]], str]:
    def rule(words: Sequence[str]) -> str:
        added = PYXIS if program in {"srun", "salloc"} else ""
        return _options(program, words, f"{SLURM[program]} {added}")

    return rule


def _options(program: str, words: Sequence[str], listed: str) -> str:
    """The first option that isn't in the list, or the first word that is no command of it."""
    takes = {it.rstrip("="): it.endswith("=") for it in listed.split()}
    verbs = VERBS.get(program, ())
    rest = iter(words)
    for word in rest:
        name, value, _ = word.partition("=")
        if not word.startswith("-"):
            if verbs and word not in verbs:
                return f"{program}: no command {word!r}"
            verbs = ()
            if program in {"srun", "salloc"}:
                return _run(rest, word)
        elif name in takes:
            if takes[name] and not value:
                next(rest, "")
        elif word[:2] not in takes or word.startswith("--"):
            return f"{program}: no option {word!r}"
    return ""


def _run(rest: Iterator[str], program: str) -> str:
    words = [program, *rest]
    return problem(words) if program in RULES else ""


RULES: Mapping[str, Callable[[Sequence[str]], str]] = {
    "slurm-postrender": _postrender,
    "slurm-sidecars": _sidecars,
    "kubectl-slurm": _explain,
    "make": _make,
    "python": _python,
    "curl": _curl,
    **{program: _slurm(program) for program in SLURM},
}


def runs(block: Block) -> bool:
    """Whether a test runs the block: kubectl and Helm on a kube-apiserver, a request to the
    simulated slurmrestd, and the examples of docs/explain.md.
    """
    return bool(re.search(r"(?m)^[^#\n]*\b(kubectl|helm|curl) ", block.script))


def why_marked(block: Block) -> str:
    """Why no test runs the block, "" if it isn't marked."""
    return next(
        (
            why
            for page, begin, why in MARKED
            if block.page == page and block.first.startswith(begin)
        ),
        "",
    )
