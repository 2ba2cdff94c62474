"""`ct install` of the chart `slurm` with each of its values files: it is Ready, and `helm test` passes.

That of the operator's charts is in test_z_leaving.py, because it needs a cluster without them.
"""

import pytest

from tests.charts import chart_testing
from tests.support.real.harness import CHARTS, Slurm

pytestmark = pytest.mark.timeout(300)


def test_the_chart_installs_with_every_values_file_and_a_job_runs(slurm: Slurm) -> None:
    kubernetes, files = slurm.kubernetes, list((CHARTS / "slurm" / "ci").glob("*-values.yaml"))
    shown = chart_testing.run("install", ["slurm"], "--namespace=charts", kubeconfig=kubernetes.kubeconfig, seconds=280)
    for file in files:
        assert f'Installing chart with values file "charts/slurm/ci/{file.name}"' in shown
    # Helm prints the log of the test's pod, and ct prints it again.
    assert shown.count("Phase:          Succeeded") >= len(files)
    assert shown.count("Slurm works.") >= len(files)
    kubernetes.kubectl("delete", "namespace", "charts", "--wait=false")
