"""Reads what a question needs, at the same time where possible. What can't be read is named, and
stops nothing.
"""

from __future__ import annotations

import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from sidecars.contract import bridge
from sidecars.explain import commands
from sidecars.explain.core import bridge_pod, guard, objects, pod_trouble
from sidecars.explain.core.records import Kube, Missing, Seen, Slurm
from sidecars.explain.kubectl import Forbidden, KubectlError, NotFound
from sidecars.policy.reasons.bridge import BridgeEvent

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object
    from sidecars.explain.kubectl import Kubectl

GROUP = "/apis/slinky.slurm.net/v1beta1"
EXEC_SECONDS = 45.0
MOST_PODS = 500
"""Workers that run, of a large cluster; those that don't run are read in any case."""
MOST_EVENTS = 2000
SHOWN_NAMESPACES = 5
"""Namespaces of Slurm clusters in a message."""
MOST_KUBE_NODES = 10
"""Kubernetes nodes that are read one by one."""

_WORKERS = "/api/v1/namespaces/{}/pods?labelSelector=app.kubernetes.io/name%3Dslurmd"
_LISTS = {
    "NodeSets": (f"{GROUP}/namespaces/{{}}/nodesets", "nodesets"),
    "Controllers": (f"{GROUP}/namespaces/{{}}/controllers", "controllers"),
    "pods of Slurm's daemons": (
        "/api/v1/namespaces/{}/pods?labelSelector=app.kubernetes.io/name!%3Dslurmd",
        "pods",
    ),
    "workers": (f"{_WORKERS}&limit={MOST_PODS}", "pods"),
    "Events": (f"/api/v1/namespaces/{{}}/events?limit={MOST_EVENTS}", "events"),
}
"""What each question needs of the namespace, and the field of `Kube` that has it."""
_QUOTAS = {"quotas": ("/api/v1/namespaces/{}/resourcequotas", "quotas")}
_RESOURCES = {
    kind: (f"{GROUP}/namespaces/{{}}/{kind.lower()}", "resources")
    for kind in ("Accountings", "RestApis", "LoginSets", "Tokens")
}
_CHECKS = {
    "results of checks": (
        "/api/v1/namespaces/{}/configmaps?labelSelector=app.kubernetes.io/component%3Dcheck-results",
        "check_results",
    )
}
_MORE = {"job": _QUOTAS, "node": _CHECKS, "nodeset": _QUOTAS, "doctor": _QUOTAS | _RESOURCES}
"""What some questions need too."""
_WITHOUT_SLURM = frozenset({"pod", "config"})
"""Questions that Kubernetes answers."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked for."""

    subject: str
    """`job`, `queue`, `pod`, `node`, `nodeset`, `config`, `doctor`, `top`."""
    name: str = ""


class Reader:
    """Reads for one question."""

    def __init__(self, kubectl: Kubectl, namespace: str, now: float) -> None:
        self._kubectl, self._namespace, self._now = kubectl, namespace, now
        self._missing: list[Missing] = []

    def read(self, question: Question) -> Seen:
        """Read everything that the question needs. Raises NoKubectl if the API server can't be
        reached.
        """
        wanted = _LISTS | _MORE.get(question.subject, {})
        with ThreadPoolExecutor(len(wanted) + 4) as executor:
            lists = {
                name: executor.submit(self._list, path, name) for name, (path, _) in wanted.items()
            }
            programs = executor.submit(self._programs, question)
            more = [executor.submit(self._one, path) for path in self._paths(question)]
            daemons = lists["pods of Slurm's daemons"].result()
            slurm = executor.submit(self._slurm, question, daemons, self._namespace)
            found: dict[str, list[Object] | None] = {}
            for name, (_, field) in wanted.items():
                listed = lists[name].result()
                if field == "pods" or field == "resources":
                    before = found.get(field, [])
                    found[field] = (
                        None
                        if listed is None and field == "pods"
                        else [*(before or ()), *(listed or ())]
                    )
                else:
                    found[field] = listed
            if found["pods"] is not None:
                found["pods"] += [it for future in more if (it := future.result()) is not None]
            found["workloads"] = programs.result()
            reported, exec_in = slurm.result()
        fields = {
            field: None if listed is None else _once(listed) for field, listed in found.items()
        }
        kube = self._kube_nodes(Kube(**fields), question, reported)  # type: ignore[arg-type]
        if question.subject == "job":
            kube = replace(kube, guarded=self._guarded(reported))
        asked = objects.named(kube.pods, question.name) if question.subject == "pod" else None
        if asked is not None and bridge_pod.is_bridged(asked):
            return self._of_bridge(asked, kube)
        return Seen(self._now, self._namespace, reported, kube, tuple(self._missing), exec_in)

    # --- pods that Slurm schedules

    def _guarded(self, slurm: Slurm) -> tuple[Object, ...] | None:
        """Return the pods for which the nodes of the job wait. None where it has none, or they
        can't be read.
        """
        job = next((it for it in slurm.jobs or () if guard.waits_for_pods(it)), None)
        if job is None:
            return None
        namespace = guard.namespace_of(job)
        place = f"namespaces/{namespace}/pods" if namespace else "pods"
        query = urllib.parse.urlencode({"labelSelector": f"{bridge.JOB_LABEL}={job.job_id}"})
        answer = self._one(f"/api/v1/{place}?{query}")
        return tuple(_items(answer)) if answer is not None else None

    def _of_bridge(self, asked: Object, kube: Kube) -> Seen:
        """Read the job of a pod, from the namespace of the Slurm cluster, and the pod that it waits
        for.
        """
        # A tenant's namespace has no Slurm cluster.
        self._missing = [it for it in self._missing if it.part not in ("NodeSets", "Controllers")]
        other = bridge_pod.blocker(asked)
        more = None if other is None else self._one("/api/v1/namespaces/{}/pods/{}".format(*other))
        if more is not None:
            kube = replace(kube, pods=_once([*(kube.pods or ()), more]))
        number = bridge_pod.job_id(asked)
        place = self._place(number)
        slurm, exec_in = Slurm(), ""
        if place and number:
            path, what = (
                _LISTS["pods of Slurm's daemons"][0].format(place),
                f"pods of namespace {place}",
            )
            answer = self._get(path, what)
            daemons = None if answer is None else _items(answer)
            slurm, exec_in = self._slurm(Question("job", number), daemons, place)
        silent = bridge_pod.is_silent(asked)
        tenants = self._tenants(place) if silent or bridge_pod.lacks_tenant(asked) else None
        events = self._role_bindings(tenants[0]) if silent and tenants is not None else ()
        return Seen(
            self._now,
            self._namespace,
            slurm,
            kube,
            tuple(self._missing),
            exec_in,
            place,
            tenants,
            events,
        )

    def _role_bindings(self, place: str) -> tuple[Object, ...]:
        """Return the Events about RoleBindings that tenants' namespaces lack, from the namespace of
        the bridge.
        """
        query = urllib.parse.urlencode(
            {"fieldSelector": f"reason={BridgeEvent.NO_ROLE_BINDING.value}"}
        )
        answer = self._one(f"/api/v1/namespaces/{place}/events?{query}")
        return tuple(_items(answer)) if answer is not None else ()

    def _tenants(self, place: str) -> tuple[str, str] | None:
        """Return the ConfigMap of the bridge beside the Slurm cluster, or of the only one, or None
        if it can't be read.
        """
        query = urllib.parse.urlencode({"labelSelector": bridge_pod.BRIDGES})
        for path in ([f"namespaces/{place}/deployments"] if place else []) + ["deployments"]:
            answer = self._one(f"/apis/apps/v1/{path}?{query}")
            found = bridge_pod.tenants_of(_items(answer)) if answer is not None else None
            if found is not None:
                return found
        return None

    def _place(self, number: str) -> str:
        """Return the namespace of the only Slurm cluster, or of that for which the only bridge
        works, "" if none or several are seen.

        `number`: the id of the job, "" without one.
        """
        answer = self._get(f"{GROUP}/controllers", "Slurm clusters of all namespaces")
        found = (
            {objects.text(it, "metadata", "namespace") for it in _items(answer)}
            if answer is not None
            else set()
        )
        if len(found) > 1:
            query = urllib.parse.urlencode({"labelSelector": bridge_pod.BRIDGES})
            bridges = self._one(f"/apis/apps/v1/deployments?{query}")
            own = bridge_pod.clusters_of(_items(bridges)) & found if bridges is not None else set()
            if len(own) == 1:
                return own.pop()
            names = ", ".join(sorted(found)[:SHOWN_NAMESPACES])
            text = f"{len(found)} Slurm clusters exist: {names}"
            remedy = (
                "Ask for the job in the namespace of its Slurm cluster: kubectl slurm explain job "
                f"{number or 'ID'} -n NAMESPACE"
            )
            self._missing.append(Missing("what Slurm knows of its job", text, remedy))
        return found.pop() if len(found) == 1 else ""

    def _programs(self, question: Question) -> list[Object] | None:
        """Return the Deployments of operators and bridges, wherever they are. None: none of them
        can be read, or matters.
        """
        if question.subject != "doctor":
            return None
        query = urllib.parse.urlencode({"labelSelector": bridge_pod.BRIDGES})
        operators = self._list(
            f"/apis/apps/v1/deployments?labelSelector={objects.APP}%3Dslurm-operator",
            "the operator",
        )
        bridges = self._list(f"/apis/apps/v1/deployments?{query}", "the Slurm Bridge")
        return (
            None
            if operators is None and bridges is None
            else [*(operators or ()), *(bridges or ())]
        )

    def _paths(self, question: Question) -> list[str]:
        name = urllib.parse.quote(question.name, safe="")
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        if question.subject == "pod":
            return [f"{pods}/{name}"]
        if question.subject == "node":
            return [
                f"{pods}?labelSelector={objects.POD_HOSTNAME}%3D{name}",
                f"{pods}?fieldSelector=spec.nodeName%3D{name}",
            ]
        return []

    def _list(self, path: str, what: str) -> list[Object] | None:
        answer = self._get(path.format(self._namespace), what)
        if answer is None:
            return None
        found = _items(answer)
        if what == "workers" and objects.text(answer, "metadata", "continue"):
            # Of the others, those that don't run matter.
            found += (
                self._list(
                    f"{_WORKERS}&fieldSelector=status.phase!%3DRunning", "workers that don't run"
                )
                or []
            )
        return found

    def _one(self, path: str) -> Object | None:
        try:
            answer = self._kubectl.read(path)
        except KubectlError:
            return None
        return answer if isinstance(answer, dict) else None

    def _get(self, path: str, what: str) -> Any:
        try:
            return self._kubectl.read(path)
        except Forbidden as error:
            remedy = "Ask for this right, or use an account that has it."
            self._missing.append(Missing(what, f"you lack {error}", remedy))
        except NotFound:
            if "/apis/" not in path:
                raise
            self._missing.append(
                Missing(
                    what,
                    "the API server has no such kind",
                    "Install the chart slurm-operator-crds.",
                )
            )
        return None

    # --- Slurm

    def _slurm(
        self, question: Question, daemons: list[Object] | None, namespace: str
    ) -> tuple[Slurm, str]:
        if daemons is None or question.subject in _WITHOUT_SLURM:
            return Slurm(), ""
        places = [
            (objects.name(it), container)
            for app, container in (("slurmctld", "slurmctld"), ("login", "login"))
            for it in daemons
            if objects.label(it, objects.APP) == app and _runs(it, container)
        ]
        if not places:
            where = "this namespace" if namespace == self._namespace else f"namespace {namespace}"
            text = f"no pod of slurmctld or of a LoginSet runs in {where}"
            self._missing.append(
                Missing(
                    "everything that Slurm knows", text, "See the pods and the conditions below."
                )
            )
            return Slurm(), ""
        subject = {"top": "queue", "doctor": "queue"}.get(question.subject, question.subject)
        why: KubectlError | None = None
        for name, container in places[:2]:
            try:
                words = commands.script(subject, question.name if subject == "job" else "")
                done = self._kubectl.execute(namespace, name, container, words, EXEC_SECONDS)
            except Forbidden as error:
                role = (
                    f"kubectl create role slurm-explain -n {namespace} --verb=create "
                    "--resource=pods/exec"
                )
                remedy = f"An administrator grants it: {role}"
                text = f"you lack {error}, with which Slurm's commands are run in pod {name}"
                self._missing.append(Missing("everything that Slurm knows", text, remedy))
                return Slurm(), ""
            except KubectlError as error:
                why = error
                continue
            slurm, missing = commands.read(commands.sections(done.out, done.err), subject)
            self._missing += missing
            return slurm, f"kubectl -n {namespace} exec {name} -c {container} --"
        self._missing.append(
            Missing("everything that Slurm knows", f"no command runs in its pods: {why}")
        )
        return Slurm(), ""

    # --- Kubernetes nodes

    def _kube_nodes(self, kube: Kube, question: Question, slurm: Slurm) -> Kube:
        """Read the Kubernetes nodes of pods that aren't ready, and the one that was asked for."""
        wanted = dict.fromkeys(
            objects.text(it, "spec", "nodeName")
            for it in kube.pods or ()
            if not pod_trouble.is_ready(it)
        )
        wanted.pop("", None)
        if question.subject == "node" and question.name not in {
            it.name for it in slurm.nodes or ()
        }:
            wanted = {question.name: None, **wanted}
        found, absent = [], set()
        if question.subject == "doctor":
            listed = self._list(f"/api/v1/nodes?limit={MOST_PODS}", "Kubernetes nodes")
            return replace(kube, kube_nodes=None if listed is None else tuple(listed))
        for name in islice(wanted, MOST_KUBE_NODES):
            try:
                answer = self._get(
                    f"/api/v1/nodes/{urllib.parse.quote(name, safe='')}", "Kubernetes nodes"
                )
            except NotFound:
                absent.add(name)
                continue
            if answer is None:
                return kube
            found.append(answer)
        return replace(kube, kube_nodes=tuple(found), absent_kube_nodes=frozenset(absent))


def find_namespace(kubectl: Kubectl, given: str | None, pod_name: str = "") -> str:
    """Return the namespace given, else that of the context, unless it has no Controller and exactly
    one other has one.

    The context's also if it has the pod of this name.
    """
    if given:
        return given
    own = kubectl.namespace()
    if pod_name:
        try:
            kubectl.read(f"/api/v1/namespaces/{own}/pods/{urllib.parse.quote(pod_name, safe='')}")
        except (Forbidden, NotFound):
            pass
        else:
            return own
    try:
        if not _items(kubectl.read(f"{GROUP}/namespaces/{own}/controllers")):
            everywhere = _items(kubectl.read(f"{GROUP}/controllers"))
            others = {objects.text(it, "metadata", "namespace") for it in everywhere}
            if len(others) > 1:
                names = ", ".join(sorted(others)[:SHOWN_NAMESPACES])
                raise KubectlError(
                    f"namespace {own} has no Controller, and {len(others)} others have one: "
                    f"{names}. Name one with -n"
                )
            return others.pop() if others else own
    except (Forbidden, NotFound):
        return own
    return own


def _items(answer: Any) -> list[Object]:
    """Return the items, with the kind that a list omits."""
    kind = objects.text(answer, "kind").removesuffix("List")
    return [it if "kind" in it else it | {"kind": kind} for it in objects.items(answer, "items")]


def _runs(it: Object, container: str) -> bool:
    statuses = objects.items(it, "status", "containerStatuses")
    return any(
        objects.text(s, "name") == container and objects.dig(s, "state", "running") is not None
        for s in statuses
    )


def _once(listed: list[Object]) -> tuple[Object, ...]:
    """Return the objects without repetitions, with lists among them unpacked."""
    flat = [item for it in listed for item in (_items(it) if "items" in it else [it])]
    by_uid: dict[str, Object] = {}
    for number, it in enumerate(flat):
        by_uid.setdefault(objects.text(it, "metadata", "uid") or str(number), it)
    return tuple(by_uid.values())
