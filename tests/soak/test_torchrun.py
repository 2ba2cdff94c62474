"""docs/use-gpus-containers.md: its script starts the real torchrun in a container on two nodes, and
the ranks compute together.

A part of `make soak`: Debian's PyTorch is 245 MB of downloads and 1.1 GB in the image. Without
GPUs, it uses the backend gloo.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cache
from tests.cluster import images as built
from tests.support import pages
from tests.support.real import contained as clusters
from tests.support.real import ports, registry
from tests.support.real.as_processes import Daemons
from tests.support.real.contained import CACHE, run_as
from tests.support.real.harness import REPOSITORY, until
from tests.support.real.registry import Addresses
from tests.support.real.rendered import Ports

pytestmark = pytest.mark.timeout(1800)

PORTS = Ports(ports.TORCHRUN)
ADDRESSES = Addresses.on_this_host(PORTS.others)
IMAGE = f"{ADDRESSES.open}/team/torch:1"
TORCH = "/usr/lib/python3/dist-packages/torch/distributed"
CONTAINERFILE = f"""\
FROM docker.io/library/debian:forky-slim
RUN apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends python3-torch
RUN sed -i 's/multi_tenant=True,/multi_tenant=True, use_libuv=False,/' \
    {TORCH}/elastic/rendezvous/c10d_rendezvous_backend.py \
    {TORCH}/elastic/rendezvous/dynamic_rendezvous.py \
    && sed -i 's/is_master=False,/is_master=False, use_libuv=False,/' {TORCH}/rendezvous.py
"""
"""Debian's PyTorch is built without libuv, for which its torchrun asks all the same."""
PAGE = (REPOSITORY / "docs/use-gpus-containers.md").read_text(encoding="utf-8")
[SCRIPT] = [it.text for it in pages.fenced(PAGE, "sh") if "torchrun" in it.text]
CHANGED = {
    "nvcr.io#nvidia/pytorch:25.01-py3": IMAGE,
    " --gpus-per-node=8": "",
    "--nproc-per-node=8": "--nproc-per-node=2",
    "29500": str(PORTS.mariadb),
}
"""What the page has, and what it is on hosts without GPUs that share the network."""
TRAIN = """\
import os
import torch
import torch.distributed as ranks

ranks.init_process_group("gloo")
total = torch.tensor([ranks.get_rank() + 1.0])
ranks.all_reduce(total)
print(os.environ["SLURMD_NODENAME"], os.environ["LOCAL_RANK"], ranks.get_world_size(), int(total))
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Three workers, and a registry with an image that has PyTorch."""
    # A cache of its own: a build of minutes would keep others from theirs.
    archive = built.build_text(cache.root() / "torch", "torch", CONTAINERFILE)
    home = tmp_path_factory.mktemp("torchrun")
    with (
        registry.on_this_host(tmp_path_factory.mktemp("registry") / "home", PORTS.others),
        clusters.on_this_host(home, PORTS.first, ADDRESSES) as found,
    ):
        shutil.copyfile(archive, home / "images" / "torch.tar")
        push = ("skopeo", "copy", "--quiet", "--dest-tls-verify=false")
        found.output("slinky-0", *push, f"oci-archive:{CACHE}/torch.tar", f"docker://{IMAGE}")
        Path(home / "images" / "torch.tar").unlink()
        yield found


def test_the_script_of_the_page_starts_ranks_on_two_nodes_that_compute_together(
    slurm: Daemons,
) -> None:
    script = SCRIPT
    for page, here in CHANGED.items():
        assert page in script
        script = script.replace(page, here)
    for number in range(clusters.WORKERS):
        write = ("tee", "/home/alice/train.py")
        slurm.output(f"slinky-{number}", *write, stdin=TRAIN)
    number = int(run_as(slurm, "alice", "sbatch", "--parsable", stdin=script))
    ended = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
    until("the job to end", lambda: slurm.job(number)["JobState"] in ended, seconds=900)
    first = slurm.job(number)["BatchHost"]
    printed = slurm.output(first, "cat", f"/home/alice/slurm-{number}.out")
    assert slurm.job(number)["JobState"] == "COMPLETED", printed
    ranks = [it.split() for it in printed.splitlines() if it.startswith("slinky-")]
    nodes = sorted({it[0] for it in ranks})
    assert len(nodes) == 2
    assert sorted(map(tuple, ranks)) == [(node, rank, "4", "10") for node in nodes for rank in "01"]
