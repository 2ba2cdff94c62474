"""The edge of `register`: reads /sys, the memory size and the environment into Facts. Decides
nothing.
"""

import os
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

from sidecars.contract import environment as variables
from sidecars.register import gpus
from sidecars.register.gpus import Vendor, Verdict, Wanted
from sidecars.register.limits import Given, Limits, effective
from sidecars.register.registration import BadFact, Facts, Host
from sidecars.slurm import gres

CPU_FOLDER = Path("/sys/devices/system/cpu")
_MIB = 2**20
_NUMBER = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
_TOO_MANY = 2**63
"""Of CPUs, thousandths of them, or MiB: Kubernetes counts in 64 bits."""


def read_facts(environment: Mapping[str, str], host: Host, verdict: Verdict | None = None) -> Facts:
    """Return the facts that the pod template puts into the environment, with the host's and GPUs'.
    Raises BadFact.
    """
    declared = Limits(
        _number(environment, variables.CPUS),
        _mebibytes(environment, variables.MEMORY_MIB),
        _mebibytes(environment, variables.POD_MEMORY_MIB),
    )
    slurmd, *sidecars = (_given(environment, container) for container in variables.LIMITED)
    limits = effective(declared, slurmd, sidecars)
    return Facts(
        host=host,
        pod_ip=environment.get(variables.POD_IP, ""),
        pod_uid=environment.get(variables.POD_UID, ""),
        pod_name=environment.get(variables.POD_NAME, ""),
        namespace=environment.get(variables.POD_NAMESPACE, ""),
        nodeset_uid=environment.get(variables.NODESET_UID, ""),
        kube_node=environment.get(variables.KUBE_NODE_NAME, ""),
        cpus=limits.cpus,
        memory=limits.memory,
        pod_memory=limits.pod_memory,
        default_limits=limits != declared,
        exclusive_cpus=environment.get(variables.EXCLUSIVE_CPUS) == "true",
        conf=environment.get(variables.NODESET_CONF, ""),
        topology=environment.get(variables.SLINKY_TOPOLOGY, "").strip(),
        gpus=verdict,
    )


def read_gpus(environment: Mapping[str, str], vendor: Callable[[str], Vendor]) -> Verdict | None:
    """Return the verdict on the GPUs that the vendor in REGISTER_GPUS finds, or None where it names
    none.

    Raises BadFact, and GpuMismatchError where the pod is not to register.
    """
    name = environment.get(variables.GPUS, "")
    if not name:
        return None
    return gpus.decide(vendor(name).find(), _wanted(environment))


def vendor(name: str) -> Vendor:
    """Return the vendor of this name, with its software only now loaded. Raises BadFact."""
    if name == "nvidia":
        from sidecars.register.nvidia import Nvidia

        return Nvidia(os.environ)
    raise BadFact(f"REGISTER_GPUS is {name!r}: nvidia is the only vendor")


def _wanted(environment: Mapping[str, str]) -> Wanted:
    expected = environment.get(variables.GPUS_EXPECTED, "")
    if expected and not (expected.isascii() and expected.isdecimal()):
        raise BadFact(f"REGISTER_GPUS_EXPECTED is {expected!r}: it must be a whole number")
    on_mismatch = environment.get(variables.GPUS_ON_MISMATCH, "") or "Drain"
    if on_mismatch not in ("Drain", "Refuse"):
        raise BadFact(f"REGISTER_GPUS_ON_MISMATCH is {on_mismatch!r}: it must be Drain or Refuse")
    name = environment.get(variables.GPUS_TYPE, "")
    try:
        return Wanted(
            int(expected) if expected else None,
            gres.checked_type(name) if name else "",
            on_mismatch == "Refuse",
        )
    except gres.GresError as error:
        raise BadFact(f"REGISTER_GPUS_TYPE: {error}") from error


def read_host(cpu_folder: Path = CPU_FOLDER) -> Host:
    """Cores, threads per core and memory of the whole host, as slurmd counts them, and this
    process's CPUs.

    Where /sys has no CPU topology, each CPU counts as a core. Raises BadFact, OSError.
    """
    online = _cpus((cpu_folder / "online").read_text())
    siblings: dict[tuple[int, ...], list[int]] = {}
    for cpu in online:
        siblings.setdefault(_place(cpu_folder / f"cpu{cpu}", cpu), []).append(cpu)
    if not siblings:
        raise BadFact(f"{cpu_folder / 'online'} names no CPU")
    # slurmd has the number of pages in a float.
    [pages] = struct.unpack("f", struct.pack("f", os.sysconf("SC_PHYS_PAGES")))
    memory = int(pages * (os.sysconf("SC_PAGE_SIZE") / _MIB))
    threads = max(1, len(online) // len(siblings))
    order = tuple(tuple(siblings[place]) for place in sorted(siblings))
    return Host(
        len(siblings), threads, memory, len(online), order, frozenset(os.sched_getaffinity(0))
    )


def _place(folder: Path, cpu: int) -> tuple[int, ...]:
    """Return the first CPUs of the package, NUMA node, die and cache that have this CPU, and of its
    core: hwloc's order.
    """
    of_package, of_die = folder / "topology/package_cpus_list", folder / "topology/die_cpus_list"
    of_node = next(folder.glob("node[0-9]*/cpulist"), folder)
    of_core = folder / "topology/thread_siblings_list"
    around = (of_package, of_node, of_die, folder / "cache/index3/shared_cpu_list")
    return (*(_first_cpu(it, 0) for it in around), _first_cpu(of_core, cpu))


def _first_cpu(file: Path, unknown: int) -> int:
    """Return the first CPU of a list in /sys, or `unknown` without such a file."""
    try:
        return min(_cpus(file.read_text()), default=unknown)
    except OSError:
        return unknown


def _cpus(text: str) -> list[int]:
    """Return the numbers of a kernel CPU list such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _given(environment: Mapping[str, str], container: str) -> Given:
    cpus, memory = variables.given_limits(container)
    return Given(_number(environment, cpus) / 1000, _mebibytes(environment, memory))


def _mebibytes(environment: Mapping[str, str], name: str) -> int:
    memory = _number(environment, name)
    if memory != memory.to_integral_value():
        raise BadFact(f"{name} is {memory}: it must be whole MiB")
    return int(memory)


def _number(environment: Mapping[str, str], name: str) -> Decimal:
    text = environment.get(name, "") or "0"
    number = Decimal(text if _NUMBER.fullmatch(text) else _TOO_MANY)
    if number >= _TOO_MANY:
        raise BadFact(f"{name} is {text[:40]!r}: it must be a number, 0 for no limit")
    return number
