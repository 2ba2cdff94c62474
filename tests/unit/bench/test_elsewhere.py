"""What the benchmark reads in the output of `make up`."""

import io

from tests.bench.elsewhere import steps
from tests.cluster.progress import Progress


def test_the_seconds_of_each_step_are_read_from_what_a_run_prints() -> None:
    out = io.StringIO()
    progress = Progress(out)
    for name in ("images", "push to registry.example.com/team", "srun -N2 hostname"):
        with progress.step(name):
            progress.announce("half of it")
    progress.note("\ncpu-0\ncpu-1\n")
    assert list(steps(out.getvalue())) == [
        "images",
        "push to registry.example.com/team",
        "srun -N2 hostname",
    ]
    assert steps("images ..................... ok (312.5 s)\n") == {"images": 312.5}
