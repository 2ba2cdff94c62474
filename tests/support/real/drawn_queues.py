"""Random queues of a random cluster, drawn from what sbatch, slurm.conf and a node's shape allow.

Each world has its own NodeSets, partitions and licenses, all of whose names begin with a prefix, so
that one slurmctld can have many worlds that don't affect each other. In the texts here, `@` stands
for the prefix.

Options: https://slurm.schedmd.com/sbatch.html, and of partitions
https://slurm.schedmd.com/slurm.conf.html.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from sidecars.autoscaling.records import ScaledNodeSet, Shape
from sidecars.slurm.gres import Gres
from sidecars.slurm.hostlists import compress

GPUS = ("a100", "h100")
LICENSES = 2
"""Of each world."""
_FREE = (
    "--comment=text", "--no-kill", "--wait-all-nodes=1", "--nice=0", "--requeue", "--no-requeue",
    "--signal=B:USR1", "--cpu-freq=high", "--gpu-freq=low", "--gpu-bind=none", "--mem-bind=local",
    "--open-mode=append", "--export=NONE", "--profile=none", "--oom-kill-step=1", "--delay-boot=1",
    "--kill-on-invalid-dep=yes", "--mail-type=NONE", "--get-user-env", "--acctg-freq=30",
    "--wckey=key", "--network=any", "--propagate=NONE", "--switches=1",
    "--cores-per-socket=1", "--time-min=1", "--gres-flags=disable-binding",
    "--gres-flags=enforce-binding", "--gres-flags=allow-task-sharing",
)  # fmt: skip
"""Options that place no job elsewhere on these nodes."""


@dataclass(frozen=True)
class World:
    """NodeSets, and what slurm.conf has for them."""

    nodesets: tuple[ScaledNodeSet, ...]
    conf: str
    gres: str
    queue: tuple[str, ...]
    """The options of each sbatch, in the order of submission."""


def names(nodeset: ScaledNodeSet, count: int | None = None) -> list[str]:
    """The first so many nodes of a NodeSet."""
    return [f"{nodeset.name}-{number}" for number in range(nodeset.max if count is None else count)]


def line(nodeset: ScaledNodeSet) -> str:
    """The nodes of a NodeSet in slurm.conf."""
    shape = nodeset.shape
    assert shape is not None
    gres = f" Gres={','.join(map(str, shape.gres))}" if shape.gres else ""
    return (
        f"NodeName={compress(names(nodeset))} NodeAddr=127.0.0.1 "
        f"CPUs={shape.sockets * shape.cores * shape.threads} Sockets={shape.sockets} "
        f"CoresPerSocket={shape.cores} ThreadsPerCore={shape.threads} RealMemory={shape.memory} "
        f"TmpDisk={shape.tmp_disk} CoreSpecCount={shape.specialized_cores} "
        f"Feature={','.join(sorted(shape.features))} Weight={nodeset.weight}{gres} State=CLOUD"
    )


def with_prefix(world: World, prefix: str) -> World:
    """The world with its names."""

    def named(text: str) -> str:
        return text.replace("@", prefix)

    def of(nodeset: ScaledNodeSet) -> ScaledNodeSet:
        assert nodeset.shape is not None
        return replace(
            nodeset,
            name=named(nodeset.name),
            partitions=frozenset(map(named, nodeset.partitions)),
            shape=replace(nodeset.shape, features=frozenset(map(named, nodeset.shape.features))),
        )

    return World(
        tuple(map(of, world.nodesets)),
        named(world.conf),
        named(world.gres),
        tuple(map(named, world.queue)),
    )


def draw(seed: int) -> World:
    """The world and the queue of a seed."""
    random = Random(seed)  # noqa: S311 - no secret
    return _World(random).drawn()


class _World:
    def __init__(self, random: Random) -> None:
        self._random = random
        kinds = random.choice(("sb", "sg", "bg", "sbg", "sbg"))
        self._nodesets = [self._nodeset(kind, rank) for rank, kind in enumerate(kinds)]
        self._gpus = "g" in kinds
        self._job = 0

    def drawn(self) -> World:
        partitions = self._partitions()
        nodesets = tuple(
            replace(
                it,
                partitions=frozenset(
                    name for name, (of, _) in partitions.items() if it.name[-1] in of
                ),
            )
            for it in self._nodesets
        )
        lines = [f"NodeSet={it.name} Feature={it.name}" for it in nodesets]
        lines += [
            f"PartitionName={name} Nodes={','.join(f'@{it}' for it in of)} {options}"
            for name, (of, options) in partitions.items()
        ]
        gres = "".join(
            f"NodeName={compress(names(it))} Name=gpu Type={kind.type} "
            f"File=/dev/nvidia[{at * 4}-{at * 4 + kind.count - 1}]\n"
            for it in nodesets
            if it.shape is not None
            for at, kind in enumerate(it.shape.gres)
        )
        queue = [self._line(tuple(partitions)) for _ in range(self._random.randint(5, 12))]
        return World(nodesets, "\n".join(lines) + "\n", gres, tuple(queue))

    # --- nodes and partitions

    def _nodeset(self, kind: str, rank: int) -> ScaledNodeSet:
        choose = self._random.choice
        name, features = f"@{kind}", {f"@{kind}", {"s": "small", "b": "big", "g": "gpu"}[kind]}
        if self._random.random() < 0.5:
            features.add("ib")
        sockets = choose((1, 2)) if kind != "s" else 1
        cores, threads = choose((2, 4)) if kind == "s" else choose((4, 8)), choose((1, 1, 2))
        gres: tuple[Gres, ...] = ()
        if kind == "g":
            types = choose((("h100",), ("h100",), GPUS))
            gres = tuple(Gres("gpu", it, choose((2, 4))) for it in types)
        shape = Shape(
            sockets,
            cores,
            threads,
            choose((2000, 4000)) if kind == "s" else choose((8000, 16000)),
            gres,
            frozenset(features),
            choose((0, 1000)),
            choose((0, 0, 0, 1)),
        )
        weight = choose((rank + 1, rank + 1, 1))
        return ScaledNodeSet(
            name,
            shape,
            frozenset(),
            0,
            max=choose((12, 16, 20)),
            price=float(choose((weight, weight, 1 + rank * 4))),
            weight=weight,
        )

    def _partitions(self) -> dict[str, tuple[str, str]]:
        """Names, with the NodeSets and options of each."""
        kinds = "".join(it.name[-1] for it in self._nodesets)
        found = {"@all": (kinds, "State=UP")}
        found["@one"] = self._random.choice(kinds), f"State=UP {self._options()}"
        found["@two"] = kinds[-2:], f"State=UP {self._options()}"
        if self._random.random() < 0.1:
            found["@off"] = kinds[:1], "State=DOWN PriorityTier=9"
        return found

    def _options(self) -> str:
        choose = self._random.choice
        options = (
            "", "", "PriorityTier=5", "PriorityTier=2", "MaxNodes=2", "MinNodes=2",
            f"MaxCPUsPerNode={choose((2, 3))}", "MaxCPUsPerSocket=1", "MaxMemPerNode=1500",
            "MaxMemPerCPU=400", "DefMemPerCPU=200", "DefMemPerNode=700", "OverSubscribe=EXCLUSIVE",
            "OverSubscribe=FORCE:2", "OverSubscribe=YES:2", "OverSubscribe=NO", "LLN=YES",
            "ExclusiveUser=YES", "MaxTime=120", "DefaultTime=10", "DisableRootJobs=NO",
            "DefCpuPerGPU=2" if self._gpus else "", "DefMemPerGPU=500" if self._gpus else "",
        )  # fmt: skip
        found = {it.partition("=")[0]: it for it in self._random.sample(options, 2)}
        if "DefMemPerGPU" in found:
            found.pop("DefMemPerCPU", None)
            found.pop("DefMemPerNode", None)
        if "DefMemPerCPU" in found:
            found.pop("DefMemPerNode", None)
        if "MaxMemPerCPU" in found:
            found.pop("MaxMemPerNode", None)
        return " ".join(filter(None, found.values()))

    # --- jobs

    def _line(self, partitions: Sequence[str]) -> str:
        self._job += 1
        random = self._random
        parts = 2 if random.random() < 0.07 else 1
        line = " : ".join(self._component(partitions) for _ in range(parts))
        return f"{line} {self._waits()}".strip() if parts == 1 else line

    def _component(self, partitions: Sequence[str]) -> str:
        random = self._random
        count = 2 if random.random() < 0.15 else 1
        words = [f"--partition={','.join(random.sample(list(partitions), count))}"]
        families: list[Callable[[], str]] = [self._tasks, self._nodes, self._cpus]
        if self._gpus:
            families += [self._gpu, self._gpu]
        words += [it() for it in random.sample(families, random.choice((1, 1, 1, 2)))]
        if random.random() < 0.7:
            words.append(self._memory())
        rare: tuple[Callable[[], str], ...] = (
            self._per_part, self._threads, self._constraint, self._sharing, self._choice,
            self._named, self._core_spec, self._disk, self._distribution, self._licenses,
            self._free,
        )  # fmt: skip
        words += [it() for it in random.sample(rare, random.choice((0, 0, 1, 1, 2)))]
        return " ".join(filter(None, words))

    def _pick(self, *options: str) -> str:
        return self._random.choice(options)

    def _tasks(self) -> str:
        return self._pick("-n1", "-n2", "-n3", "-n4", "-n6", "-n8", "-n12")

    def _nodes(self) -> str:
        return self._pick(
            "-N1", "-N2", "-N3", "-N1-2", "-N2-4", "-N2-3 -n6", "-N2,4", "-N1-4:2", "-N2 -n5",
            "-N1-3 -n4", "-N2 --ntasks-per-node=2", "-N4-",
        )  # fmt: skip

    def _cpus(self) -> str:
        return self._pick("-c1", "-c2", "-c3", "-n2 -c2", "-n3 -c2", "-n4 -c3", "--mincpus=3")

    def _gpu(self) -> str:
        per = self._pick(
            "--gres=gpu:{n}", "--gres=gpu:h100:{n}", "--gpus={n}", "--gpus=h100:{n}",
            "--gpus-per-node={n}", "--gpus-per-task=1 -n{n}", "--gpus={n} --ntasks-per-gpu=1",
            "--gpus={n} -n{n}", "-N2 --gpus={n}", "--gpus-per-node=1 -N{n}", "--gpus=6", "--gpus=8",
            "--gpus-per-socket=1 --sockets-per-node=1", "--tres-per-task=cpu:1,gres/gpu:1 -n{n}",
            "--gres=gpu:1 --ntasks-per-node=2 -N2", "-n2 --gpus={n} --gpus-per-task=1",
        )  # fmt: skip
        more = self._pick("", "", "", "--cpus-per-gpu=2", "--cpus-per-gpu=1", "--mem-per-gpu=500")
        return f"{per} {more}".format(n=self._random.randint(1, 4)).strip()

    def _memory(self) -> str:
        return self._pick(
            "--mem=100", "--mem=300", "--mem=900", "--mem=1500", "--mem=3000", "--mem=0",
            "--mem-per-cpu=100", "--mem-per-cpu=300", "--mem-per-cpu=700", "--mem=1G",
        )  # fmt: skip

    def _per_part(self) -> str:
        return self._pick(
            "--ntasks-per-node=1", "--ntasks-per-node=2", "--ntasks-per-socket=1",
            "--ntasks-per-socket=2", "--ntasks-per-core=1",
        )  # fmt: skip

    def _threads(self) -> str:
        return self._pick(
            "--threads-per-core=1", "--hint=nomultithread", "--hint=multithread",
            "--hint=compute_bound", "--hint=memory_bound", "-B1:2", "-B2:1", "-B1:2:1",
            "--sockets-per-node=1", "--sockets-per-node=2", "--cores-per-socket=3",
        )  # fmt: skip

    def _constraint(self) -> str:
        return self._pick(
            "-Csmall", "-Cbig", "-Cgpu", "-Cib", "'-Csmall|big'", "'-Cbig&ib'", "'-C[small|big]'",
            "'-C[big|gpu]' -N2", "'-C(big|gpu)&ib'", "'-C[small*1&big*1]' -N2", "'-Cbig*2' -N3",
            "--prefer=big", "--prefer=ib", "-Cnosuch",
        )  # fmt: skip

    def _sharing(self) -> str:
        return self._pick(
            "--exclusive", "--exclusive", "--exclusive=user", "--exclusive=mcs", "--oversubscribe",
            "-s", "--overcommit",
        )  # fmt: skip

    def _choice(self) -> str:
        return self._pick(
            "--spread-job", "--use-min-nodes", "--contiguous", "--switches=1@1:00:00",
            "--segment=1", "-O",
        )  # fmt: skip

    def _named(self) -> str:
        nodeset = self._random.choice(self._nodesets).name
        return self._pick(
            f"-w{nodeset}-0", f"-w{nodeset}-1", f"-x{nodeset}-0", f"-x{nodeset}-[0-1]",
            f"-N2 -w{nodeset}-1", "-F/tmp/nodes-@",
        )  # fmt: skip

    def _core_spec(self) -> str:
        return self._pick("-S1", "--thread-spec=1", "-S0")

    def _disk(self) -> str:
        return self._pick("--tmp=500", "--tmp=2000", "--tmp=0")

    def _distribution(self) -> str:
        return self._pick(
            "-mblock", "-mcyclic", "-mplane=2", "-mblock:cyclic", "-m*:fcyclic", "-mpack",
            "-mnopack", "-mcyclic:block:fcyclic",
        )  # fmt: skip

    def _licenses(self) -> str:
        return self._pick("-L@lic:1", "-L@lic", "-L@lic:2")

    def _free(self) -> str:
        return self._random.choice(_FREE)

    def _waits(self) -> str:
        """What a whole job waits for, and its time."""
        if self._random.random() < 0.85:
            return ""
        return self._pick(
            "--begin=now+1hour", "--dependency=afterok:$first", "--dependency=singleton",
            "--hold", "--array=0-3", "--array=0-5%2", "--array=1,3,9", "--array=0-7:2", "-t30",
            "-t3:00:00", "--deadline=now+2hours -t60", "--priority=7", "--qos=normal",
            "--reservation=none", "--account=root", "--reboot",
        )  # fmt: skip
