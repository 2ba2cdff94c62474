"""The documented commands of kubectl and Helm, run as they are on a real kube-apiserver with
releases of our charts: an option, an object, a container or a value that doesn't exist fails.

What a command would wait for, change or delete is its last step, and left out: `--dry-run` and a
second of time are added. No kubelet runs. So `kubectl exec` gets as far as the API server,
which looks at pod and container; tests/unit/test_documented_commands.py reads what runs in them.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sidecars.kube import PODS, Client, load_credentials
from sidecars.simulate import SlurmModel, serve
from tests.charts import examples
from tests.cluster.commands import environment, run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support import documented, documented_rules
from tests.support.apiserver import WatchedNamespace, until
from tests.support.documented import Block

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
NAMESPACES = ("slinky", "physics")
"""The operator's release creates `slurm`."""
BLOCKS = [
    block
    for block in documented.of_folder(ROOT)
    if documented_rules.runs(block) and not documented_rules.why_marked(block)
]
VALUES = {
    "accounting": {"enabled": True, "mariadb": {"enabled": True, "storage": "1Gi"}},
    "backup": {"enabled": True},
    "checks": {"definitions": {"disk": {"enabled": True}, "network": {"enabled": True}}},
    "ldap": {
        "uri": "ldaps://ldap.example.com",
        "base": "dc=example,dc=com",
        "bindDn": "cn=slurm",
        "passwordSecretRef": {"name": "directory"},
    },
    "nodesetDefaults": {"jobLogs": {"enabled": True}},
    "nodesets": {
        "cpu": {
            "replicas": 1,
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "scratch"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
        "gpu": {"replicas": 4, "gpu": {"enabled": True}, "health": {"enabled": True}},
        "slinky": {"replicas": 2},
    },
    "jail": {"enabled": True, "existingClaim": "jail", "version": "1", "image": "debian:13"},
    "loginsets": {"login": {}, "slinky": {}},
    "partitions": {"all": {"enabled": True}},
}
"""A cluster that has every object that the pages name."""
WORKERS = {
    "slurm-worker-cpu-0",
    *(f"slurm-worker-gpu-{it}" for it in range(4)),
    *(f"slurm-worker-slinky-{it}" for it in range(2)),
}
OTHERS = """
- {apiVersion: v1, kind: Node, metadata: {name: kube-1}}
- {apiVersion: v1, kind: Node, metadata: {name: gpu-1}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: slurm-operator-webhook, namespace: slinky}
  spec:
    replicas: 0
    selector: {matchLabels: {app: webhook}}
    template: {metadata: {labels: {app: webhook}}, spec: {containers: [{name: a, image: a}]}}
"""
"""Kubernetes nodes, and what an installation of SchedMD's chart has."""
PLACEHOLDERS = {
    "NODE": "kube-1",
    "NAME": "slurm-worker-cpu",
    "REVISION": "1",
    "YOUR-VALUES.yaml": "values.yaml",
    "charts/slurm-operator/image-digests.yaml": "operator-values.yaml",
    "charts/slurm/image-digests.yaml": "values.yaml",
}
"""Words that readers replace, and files that `make lock-images` writes."""
FILES = {
    "values.yaml": "loginsets: {login: {}}\n",
    "operator-values.yaml": "{}\n",
    "bridge-values.yaml": "{}\n",
    "postrender.yaml": "steps: [{check: {}}]\n",
    "registry.yaml": "global: {imageRepository: registry.example:5000/slurm}\n",
    "slurm-keys.json": '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-key"}}',
    "backup-store.env": "AWS_ACCESS_KEY_ID=a\n",
    **dict.fromkeys(
        ("slurm.key", "jwt.key", "password", "ca.crt", "sssd.conf", "statesave.tar", "client-id"),
        "a",
    ),
    **dict.fromkeys(("client-secret", "jupyterhub_config.py"), "a"),
}
"""What the commands read, where the page has no block with the file's name."""
AS_FAR_AS = re.compile(
    "timed out waiting for the condition|condition not met for|does not have a host assigned"
    "|namespaces .* already exists|only dynamically provisioned pvc can be resized"
    "|spec is immutable after creation except resources.requests"
    "|(previous terminated container|no logs).* not found"
)
"""Errors that a command ends with, after everything that it names has been found."""


POSTRENDER = "slurm-postrender"


@dataclass(frozen=True)
class Cluster:
    """A kube-apiserver with the releases."""

    kubeconfig: Path

    def run(
        self, words: Sequence[str | Path], folder: Path, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        path = f"{folder / POSTRENDER}:/usr/bin:/bin"
        env = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(folder), "PATH": path}
        return subprocess.run(
            words,
            cwd=folder,
            env=environment(env),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One with releases of all charts, and what the operator and Kubernetes' own controllers have
    created of them.
    """
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("documented"), controller_manager=True)
    try:
        found = Cluster(plane.kubeconfig)
        kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
        for name in NAMESPACES:
            run([*kubectl, "create", "namespace", name])
        listed = {"apiVersion": "v1", "kind": "List", "items": [*yaml.safe_load(OTHERS), restore()]}
        install(plane.kubeconfig)
        run([*kubectl, "create", "--filename=-"], stdin=json.dumps(listed))
        asyncio.run(reconciled(plane.kubeconfig))
        run([*kubectl, "create", "--filename=-"], stdin=without_operator(plane.folder))
        yield found
    finally:
        plane.stop()


def restore() -> object:
    """The pod of docs/backup.md, which the next commands there name."""
    page = (ROOT / "docs/backup.md").read_text(encoding="utf-8")
    (found,) = (
        document
        for block in examples.examples("backup.md", page)
        for document in block.documents
        if document.get("kind") == "Pod"
    )
    return found


def without_operator(folder: Path) -> str:
    """The StatefulSets of workers and login nodes of docs/without-operator.md."""
    page = (ROOT / "docs/without-operator.md").read_text(encoding="utf-8")
    config = folder / "postrender.yaml"
    config.write_text(
        next(it for it in examples.examples("", page) if it.title == config.name).text
    )
    values = "loginsets: {slinky: {}}\nnodesets: {slinky: {}}\n"
    command: list[str | Path] = [
        "template",
        "slurm",
        ROOT / "charts/slurm",
        "--namespace=slurm",
        "--values=-",
    ]
    stream = run([tool("helm"), *command, "--set=withoutOperator=true"], stdin=values)
    command = [sys.executable, "-m", "postrender", config, "--namespace=slurm"]
    created = yaml.safe_load_all(run(command, stdin=stream))
    named = ("slinky", "slurm-login-slinky")
    chosen = [
        it for it in created if it["kind"] == "StatefulSet" and it["metadata"]["name"] in named
    ]
    return yaml.safe_dump_all(chosen)


def install(kubeconfig: Path) -> None:
    """Install a release of each chart, as the README does."""
    helm: list[str | Path] = [tool("helm"), f"--kubeconfig={kubeconfig}", "install", "--no-hooks"]
    for chart, namespace, values in (
        ("slurm-operator-crds", "slinky", {}),
        ("slurm-operator", "slinky", {}),
        ("slurm", "slurm", VALUES),
        ("slurm-exporter", "slurm", {}),
    ):
        where: list[str | Path] = [
            chart,
            ROOT / "charts" / chart,
            f"--namespace={namespace}",
            "--values=-",
        ]
        run([*helm, *where], stdin=json.dumps(values), seconds=90)


async def reconciled(kubeconfig: Path) -> None:
    """Run the operator until all workers exist, and report that all pods run."""
    slurm = SlurmModel()
    async with Client.connect(load_credentials(kubeconfig)) as client, serve(slurm) as url:
        world = WatchedNamespace(client, "slurm", slurm, url, default_kube_node="", mute=WORKERS)
        world.kubelet_works = False

        async def pods() -> bool:
            items, _ = await client.list(PODS, "slurm")
            names = {it["metadata"]["name"] for it in items}
            if "slurm-accounting-0" in names:
                # slurmctld starts after slurmdbd.
                await report_running(client, "slurm", "slurm-accounting-0")
            roles = {name.rsplit("-", 2)[0] for name in names}
            every = {*WORKERS, "slurm-controller-0", "slurm-mariadb-0"}
            return names >= every and roles >= {"slurm-login-login", "slurm-login-slinky"}

        async with world.operator():
            await until("all pods", pods)
        items, _ = await client.list(PODS)
        for pod in items:
            await report_running(client, pod["metadata"]["namespace"], pod["metadata"]["name"])


async def report_running(client: Client, namespace: str, pod: str) -> None:
    """As a kubelet would."""
    ready = [{"type": "Ready", "status": "True"}]
    shown = {"status": {"phase": "Running", "conditions": ready}}
    await client.merge_patch(PODS, namespace, pod, shown, subresource="status")


def adapted(words: Sequence[str]) -> list[str | Path]:
    """A command as it is run here."""
    program, *rest = words
    for name, value in PLACEHOLDERS.items():
        rest = [re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", value, word) for word in rest]
    verb = next((it for it in rest if it in KUBECTL | HELM), "")
    more = (KUBECTL if program == "kubectl" else HELM).get(verb, ())
    at = rest.index("--") if "--" in rest else len(rest)
    if "--dry-run=client" in rest:
        more = ()
    rest = [
        re.sub(r"^(slurm[\w-]*)-0\.1\.0\.tgz$", r"charts/\1", it) for it in [*rest[:at], *more]
    ] + rest[at:]
    if verb == "upgrade" and "--install" not in rest:
        rest.append("--install")
    return [tool(program), *(it for it in rest if it not in {"-w", "--watch"})]


CHANGES = ("--dry-run=server",)
KUBECTL: dict[str, Sequence[str]] = {
    **dict.fromkeys(
        ("annotate", "cordon", "delete", "drain", "label", "patch", "scale", "uncordon"), CHANGES
    ),
    **dict.fromkeys(("exec", "logs"), ("--pod-running-timeout=100ms",)),
    "wait": ("--timeout=0s",),
    "rollout": ("--watch=false",),
    "create": ("--output=json",),
    "describe": (),
    "get": (),
}
"""What is added to each command of kubectl."""
HELM: dict[str, Sequence[str]] = {
    **dict.fromkeys(("install", "upgrade"), ("--dry-run=client", "--no-hooks", "--take-ownership")),
    **dict.fromkeys(("rollback", "uninstall"), ("--dry-run",)),
    "test": ("--filter=name=none",),
    **dict.fromkeys(("get", "history", "template"), ()),
}


def prepare(block: Block, folder: Path) -> None:
    """Write the files that the commands read: the block above that shows one, else FILES."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    page = (ROOT / block.page).read_text(encoding="utf-8")
    for example in examples.examples(block.page, page):
        if example.title and int(example.place.rpartition(":")[2]) < block.line:
            (folder / example.title).write_text(example.text, encoding="utf-8")
    (folder / "charts").symlink_to(ROOT / "charts")
    program = folder / POSTRENDER / POSTRENDER
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m postrender "$@"\n')
    program.chmod(0o755)


def failures(cluster: Cluster, block: Block, folder: Path) -> Iterator[str]:
    """Run the commands of a block, one after the other, and yield what each fails with."""
    prepare(block, folder)
    created: list[tuple[str, str, str]] = []
    before = ""
    found = documented.commands(block, folder, {"SLURM_JWT": "a", "SLURMRESTD": "http://a"})
    # What reads the output of another one starts beside it.
    for words in sorted(found, key=lambda words: "--filename=-" in words):
        if words[0] not in {"kubectl", "helm"} or words[:2] == ["kubectl", "slurm"]:
            continue
        done = ran(cluster, tuple(adapted(words)), folder, before)
        unknown = "unknown field" in done.stderr
        if unknown or (done.returncode and not AS_FAR_AS.search(done.stderr)):
            yield f"{' '.join(words)}: {done.stderr.strip()}"
        before = done.stdout
        created += of_creation(words, done.stdout)
        if "--for=delete" in words and not exists(cluster, words, folder):
            yield f"{' '.join(words)}: no such object"
    for kind, namespace, name in created:
        cluster.run([tool("kubectl"), "delete", kind, name, f"--namespace={namespace}"], folder)


RESULTS: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}
"""Of Helm, by command and files: many pages install the same charts."""


def ran(
    cluster: Cluster, words: tuple[str | Path, ...], folder: Path, stdin: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; of Helm once."""
    if words[0] != tool("helm"):
        return cluster.run(words, folder, stdin)
    named = [folder / it for it in words[1:]]
    files = [it.read_text(encoding="utf-8") for it in named if it.is_file()]
    same = {"--namespace": "-n", "--values": "-f"}
    key = (*(same.get(str(it), str(it)) for it in words), *files)
    if key not in RESULTS:
        RESULTS[key] = cluster.run(words, folder)
    return RESULTS[key]


def of_creation(words: Sequence[str], printed: str) -> Iterator[tuple[str, str, str]]:
    """What `kubectl create` has created, but Namespaces: kind, namespace and name."""
    if "create" in words[:4] and "--dry-run=client" not in words and printed:
        found = json.loads(printed)
        if found["kind"] != "Namespace":
            meta = found["metadata"]
            yield found["kind"], meta["namespace"], meta["name"]


def exists(cluster: Cluster, words: Sequence[str], folder: Path) -> bool:
    """Whether what `kubectl wait --for=delete` names exists now."""
    at = words.index("wait")
    rest = [it for it in words[at + 1 :] if not it.startswith(("--for", "--timeout"))]
    done = cluster.run([tool("kubectl"), *words[1:at], "get", *rest, "--output=name"], folder)
    return done.returncode == 0 and bool(done.stdout.strip())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_each_command_of_kubectl_and_helm_finds_what_it_names(
    block: Block, cluster: Cluster, tmp_path: Path
) -> None:
    assert [*failures(cluster, block, tmp_path)] == []


@pytest.mark.parametrize(
    "command",
    [
        "kubectl -n slurm get nodeset --all-namespace",
        "kubectl -n slurm get nodesett",
        "kubectl -n slurm describe nodeset slurm-worker-cpus",
        "kubectl -n slurm exec slurm-worker-cpu-0 -c slurm -- true",
        "kubectl -n slurm exec deploy/slurm-logins-login -- true",
        "kubectl -n slurm logs slurm-worker-cpu-0 -c logfiles",
        "kubectl -n slurm scale nodeset slurm-worker-cpu --replica=8",
        "kubectl -n slurm create job backup-now --from=cronjob/slurm-backups",
        "kubectl -n slurm wait --for=delete pod/slurm-controllers-0 --timeout=2m",
        "kubectl -n slurm wait --for=delete pod --selector=app.kubernetes.io/name=slurmctl",
        "kubectl -n slurm wait job/backup-now --for=condition=Complete",
        'kubectl -n slurm patch nodeset slurm-worker-cpu --type=merge -p \'{"spec":{"remove":1}}\'',
        "helm install slurm charts/slurm -n slurm --set nodesets.cpu.replica=4",
        "helm install slurm charts/slurms -n slurm",
        "helm install slurm charts/slurm -n slurm --create-namespaces",
        "helm -n slurm history slurms",
        "helm test slurms --namespace slurm",
    ],
)
def test_a_typo_in_an_option_an_object_or_a_value_fails(
    command: str, cluster: Cluster, tmp_path: Path
) -> None:
    block = Block("docs/index.md", 1, f"{command}\n", prompted=False)
    assert len([*failures(cluster, block, tmp_path)]) == 1
