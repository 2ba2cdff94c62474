"""Enforces NetworkPolicies on a node of the local cluster: a TEST enforcer, for this cluster's
network alone.

It turns the NetworkPolicy objects of the API into packet filter rules in the node's network
namespace, in the table mangle, where kube-proxy has none. The rules drop packets that are forwarded
to or from pods. A kubelet's probes come from the node itself and aren't forwarded, so that they are
always admitted, as with every network plugin. Pods with hostNetwork are not subject. Each IP family
has rules of its own.

A daemon of its own on each node: it stands on the standard library alone.
"""

import argparse
import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, TypeVar

Manifest = Mapping[str, Any]

Network = IPv4Network | IPv6Network
N = TypeVar("N", IPv4Network, IPv6Network)

CHAIN = "SLURM-POLICY"
PROGRAMS = {4: "iptables", 6: "ip6tables"}
"""By version of IP."""
_NEIGHBOURS = ("neighbour-solicitation", "neighbour-advertisement")
PATHS = (
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/api/v1/pods",
    "/api/v1/namespaces",
)


@dataclass(frozen=True)
class Pod:
    """A pod with an address in the pod network of one IP family."""

    namespace: str
    labels: Mapping[str, str]
    address: str
    ports: Mapping[tuple[str, str], int]
    """Numbers of its named ports, by protocol and name."""

    @property
    def version(self) -> int:
        """The version of IP that its address has."""
        return ip_address(self.address).version


def ruleset(
    policies: Sequence[Manifest],
    pods: Sequence[Manifest],
    namespaces: Sequence[Manifest],
    version: int = 4,
) -> str:
    """Input of `iptables-restore --noflush`, or of `ip6tables-restore` for version 6 of IP, that
    replaces all rules of CHAIN. The rest of FORWARD isn't changed.
    """
    everyone = sorted(
        (found for pod in pods if (found := _pod(pod, version)) is not None),
        key=lambda it: it.address,
    )
    of_namespace = {it["metadata"]["name"]: it["metadata"].get("labels") or {} for it in namespaces}
    chains, jumps, rules = [CHAIN], [], []
    for number, pod in enumerate(everyone):
        subject = [
            it["spec"]
            for it in policies
            if it["metadata"]["namespace"] == pod.namespace
            and _selects(it["spec"].get("podSelector"), pod.labels)
        ]
        for direction, flag in (("Ingress", "-d"), ("Egress", "-s")):
            isolating = [spec for spec in subject if direction in _types(spec)]
            if not isolating:
                continue
            chain = f"SLURM-{direction.upper()}-{number}"
            chains.append(chain)
            jumps.append(f"-A {CHAIN} {flag} {pod.address} -j {chain}")
            admitted = {
                match
                for spec in isolating
                for rule in spec.get(direction.lower()) or ()
                for match in _matches(rule, direction, pod, everyone, of_namespace)
            }
            # A pod always reaches itself, also through its Service.
            rules.append(f"-A {chain} -s {pod.address} -d {pod.address} -j RETURN")
            rules += [
                " ".join(f"-A {chain} {match} -j RETURN".split()) for match in sorted(admitted)
            ]
            rules.append(f"-A {chain} -j DROP")
    always = [f"-A {CHAIN} -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"]
    if version == 6:
        # How pods of one node find each other.
        always += [f"-A {CHAIN} -p icmpv6 --icmpv6-type {it} -j RETURN" for it in _NEIGHBOURS]
    declared = [f":{chain} - [0:0]" for chain in chains]
    return "\n".join(["*mangle", *declared, *always, *jumps, *rules, "COMMIT", ""])


def _pod(manifest: Manifest, version: int) -> Pod | None:
    spec, status = manifest["spec"], manifest.get("status") or {}
    addresses = [it["ip"] for it in status.get("podIPs") or ()]
    address = next((it for it in addresses if ip_address(it).version == version), None)
    if spec.get("hostNetwork") or not address or status.get("phase") in {"Succeeded", "Failed"}:
        return None
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    named = {
        (port.get("protocol", "TCP"), port["name"]): port["containerPort"]
        for container in containers
        for port in container.get("ports") or ()
        if port.get("name")
    }
    metadata = manifest["metadata"]
    return Pod(metadata["namespace"], metadata.get("labels") or {}, address, named)


def _types(spec: Manifest) -> Sequence[str]:
    types: Sequence[str] = spec.get("policyTypes") or [
        "Ingress",
        *(["Egress"] if "egress" in spec else []),
    ]
    return types


def _matches(
    rule: Manifest,
    direction: str,
    pod: Pod,
    everyone: Sequence[Pod],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Matches of the packet filter for all that a rule admits."""
    peers, side = (
        rule.get("from" if direction == "Ingress" else "to"),
        "-s" if direction == "Ingress" else "-d",
    )
    if not peers:
        yield from _ports(rule, [pod] if direction == "Ingress" else everyone)
        return
    for peer in peers:
        if "ipBlock" in peer:
            for block in _blocks(peer["ipBlock"], pod.version):
                for ports in _ports(rule, [pod] if direction == "Ingress" else everyone):
                    yield f"{side} {block} {ports}"
            continue
        for other in everyone:
            if _is_peer(peer, pod.namespace, other, namespaces):
                for ports in _ports(rule, [pod if direction == "Ingress" else other]):
                    yield f"{side} {other.address} {ports}"


def _is_peer(
    peer: Manifest, namespace: str, other: Pod, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    if "namespaceSelector" not in peer:
        inside = other.namespace == namespace
    else:
        inside = _selects(peer["namespaceSelector"], namespaces.get(other.namespace, {}))
    return inside and _selects(peer.get("podSelector"), other.labels)


def _ports(rule: Manifest, targets: Sequence[Pod]) -> Iterator[str]:
    """Matches for the ports of a rule at these pods; "" for all."""
    ports = rule.get("ports")
    if not ports:
        yield ""
        return
    for each in ports:
        protocol, port = each.get("protocol", "TCP"), each.get("port")
        if port is None:
            yield f"-p {protocol.lower()}"
        elif isinstance(port, int):
            yield (
                f"-p {protocol.lower()} --dport "
                f"{port}{':' + str(each['endPort']) if 'endPort' in each else ''}"
            )
        else:
            for number in {
                it.ports[protocol, port] for it in targets if (protocol, port) in it.ports
            }:
                yield f"-p {protocol.lower()} --dport {number}"


def _blocks(block: Manifest, version: int) -> list[str]:
    """The networks of an ipBlock without those that it excepts. None of another version of IP."""
    left: list[Network] = [ip_network(block["cidr"], strict=False)]
    for text in block.get("except") or ():
        hole = ip_network(text, strict=False)
        left = [part for network in left for part in _without(network, hole)]
    return [str(network) for network in sorted(left, key=str) if network.version == version]


def _without(network: Network, hole: Network) -> list[Network]:
    if isinstance(network, IPv4Network) and isinstance(hole, IPv4Network):
        return [*_rest(network, hole)]
    if isinstance(network, IPv6Network) and isinstance(hole, IPv6Network):
        return [*_rest(network, hole)]
    return [network]


def _rest(network: N, hole: N) -> Sequence[N]:
    if network.subnet_of(hole):
        return []
    return list(network.address_exclude(hole)) if hole.subnet_of(network) else [network]


def _selects(selector: Manifest | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; an empty one selects all."""
    selector = selector or {}
    if any(
        labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()
    ):
        return False
    return all(_is_true(it, labels) for it in selector.get("matchExpressions") or ())


def _is_true(expression: Manifest, labels: Mapping[str, str]) -> bool:
    key, operator, values = (
        expression["key"],
        expression["operator"],
        expression.get("values") or (),
    )
    found = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return found[operator]


class Watch(threading.Thread):
    """The objects of one collection, kept current. Sets `changed` after each change."""

    def __init__(self, api: "Api", path: str, changed: threading.Event) -> None:
        super().__init__(daemon=True)
        self._api, self._path, self._changed = api, path, changed
        self._objects: dict[str, Manifest] | None = None

    def objects(self) -> list[Manifest] | None:
        """What was read; None before the first list."""
        found = self._objects
        return list(found.values()) if found is not None else None

    def run(self) -> None:
        """List and watch until the process ends; an apiserver that is away is asked again every
        second.
        """
        while True:
            try:
                self._once()
            except (OSError, ValueError, http.client.HTTPException) as error:
                print(f"{self._path}: again in a second: {error!r}", flush=True)
                time.sleep(1)

    def _once(self) -> None:
        with self._api.get(self._path, 30) as answer:
            listed = json.loads(answer.read())
        self._objects = {it["metadata"]["uid"]: it for it in listed["items"]}
        self._changed.set()
        version = listed["metadata"]["resourceVersion"]
        with self._api.get(
            f"{self._path}?watch=1&timeoutSeconds=240&resourceVersion={version}", 300
        ) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                uid = event["object"]["metadata"]["uid"]
                # A new map: the main thread may be reading the former one.
                others = {key: it for key, it in self._objects.items() if key != uid}
                self._objects = (
                    others if event["type"] == "DELETED" else {**others, uid: event["object"]}
                )
                self._changed.set()


class Api:
    """Requests to the apiserver, each with a connection of its own."""

    def __init__(self, address: str, port: int, authority: str, certificate: str, key: str) -> None:
        self._where = address, port
        self._trust = ssl.create_default_context(cafile=authority)
        self._trust.load_cert_chain(certificate, key)

    def get(self, path: str, seconds: float) -> http.client.HTTPResponse:
        """The answer, to be read; `seconds` is the limit for each read. Raises OSError unless it is
        a success.
        """
        connection = http.client.HTTPSConnection(*self._where, context=self._trust, timeout=seconds)
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"GET {path}: {answer.status}")
        return answer


def apply(rules: str, version: int) -> None:
    """Replace the rules of a version of IP in this network namespace. Raises OSError."""
    hook = [PROGRAMS[version], "-w", "-t", "mangle"]
    _run([f"{PROGRAMS[version]}-restore", "-w", "--noflush"], rules)
    if subprocess.run(
        [*hook, "-C", "FORWARD", "-j", CHAIN], capture_output=True, check=False
    ).returncode:
        _run([*hook, "-I", "FORWARD", "-j", CHAIN], "")


def _run(words: list[str], text: str) -> None:
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{words[0]}: {done.stderr.strip()}")


def main(argv: Sequence[str]) -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "port", "authority", "certificate", "key"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--version", required=True, action="append", type=int, help="of IP")
    given = parser.parse_args(argv)
    api = Api(given.address, int(given.port), given.authority, given.certificate, given.key)
    changed = threading.Event()
    watches = [Watch(api, path, changed) for path in PATHS]
    for watch in watches:
        watch.start()
    applied: dict[int, str] = {}
    while True:
        changed.wait()
        changed.clear()
        found = [watch.objects() for watch in watches]
        policies, pods, namespaces = found
        if policies is None or pods is None or namespaces is None:
            continue
        for version in given.version:
            rules = ruleset(policies, pods, namespaces, version)
            if rules == applied.get(version):
                continue
            try:
                apply(rules, version)
            except OSError as error:
                print(f"again in a second: {error}", flush=True)
                time.sleep(1)
                changed.set()
                continue
            applied[version] = rules
            print(
                f"IPv{version}: {rules.count('-j DROP')} directions of pods are restricted",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
