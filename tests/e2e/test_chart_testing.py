"""`ct install` of the charts with their values files: `slurm` is Ready, and `helm test` passes.

That of the operator's charts is in test_z_leaving.py, because it needs a cluster without them.
"""

import re
from pathlib import Path

from tests.charts import chart_testing
from tests.cluster.certificates import Authority
from tests.support.real.harness import CHARTS, Slurm


def test_the_chart_installs_and_a_job_runs(slurm: Slurm) -> None:
    kubernetes = slurm.kubernetes
    shown = chart_testing.run(
        "install",
        ["slurm"],
        "--namespace=charts",
        "--helm-extra-set-args=--values=charts/slurm/examples/without-cgroup-v2.yaml",
        values=[CHARTS / "slurm" / "examples" / "minimal.yaml"],
        kubeconfig=kubernetes.kubeconfig,
        seconds=600,
    )
    _, installed = shown.split("Installing chart with values file ")
    assert installed.startswith('"charts/slurm/ci/minimal-values.yaml"...')
    # ct prints the phase and the log of the test's pod more than once.
    assert "Phase:          Succeeded" in installed
    assert "Slurm works." in installed
    kubernetes.kubectl("delete", "namespace", "charts", "--wait=false")


def test_the_exporter_installs_with_every_values_file_beside_a_slurm_cluster(
    slurm: Slurm, tmp_path: Path
) -> None:
    certificate, key = Authority(tmp_path).issue("api", "api", hosts=["slurm-exporter"])
    # That of the site, which external-metrics-values.yaml names.
    secret = (
        "secret",
        "tls",
        "slurm-external-metrics-tls",
        f"--cert={certificate}",
        f"--key={key}",
    )
    slurm.kubernetes.kubectl("-n", slurm.namespace, "create", *secret)
    files = list((CHARTS / "slurm-exporter" / "ci").glob("*-values.yaml"))
    shown = chart_testing.run(
        "install",
        ["slurm-exporter"],
        f"--namespace={slurm.namespace}",
        kubeconfig=slurm.kubernetes.kubeconfig,
        seconds=600,
    )
    assert files
    for file in files:
        assert f'Installing chart with values file "charts/slurm-exporter/ci/{file.name}"' in shown
    # ct prints what it waited for.
    assert len(
        re.findall(r'deployment "slurm-exporter-\w+" successfully rolled out', shown)
    ) == len(files)
    slurm.kubernetes.kubectl(
        "-n", slurm.namespace, "delete", "secret", "slurm-external-metrics-tls"
    )
