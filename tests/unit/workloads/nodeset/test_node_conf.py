"""slurmd's --conf."""

import re

import pytest

from sidecars.workloads.nodeset.node_conf import node_conf
from sidecars.workloads.resources import ResourceError
from tests.support.builders import nodeset
from tests.unit.workloads.nodeset.making import SLINKY, pod


@pytest.mark.parametrize(
    ("extra_conf", "conf"),
    [
        ("", "Features=slinky"),
        ("features=bar", "Features=bar,slinky"),
        (
            "Weight=10 feature=gpu,bar\nTopology=default:s1",
            "Features=bar,gpu,slinky Topology=default:s1 Weight=10",
        ),
        ("realMemory=100 weight=1 Weight=2", "Features=slinky RealMemory=100 Weight=2"),
        (
            "Reason=\"bad disk\"  Weight='10' State='DRAIN'",
            'Features=slinky Reason="bad disk" State=DRAIN Weight=10',
        ),
    ],
)
def test_items_of_conf_are_sorted_and_features_united(extra_conf: str, conf: str) -> None:
    assert node_conf(nodeset(extraConf=extra_conf, **SLINKY)) == conf


@pytest.mark.parametrize(
    "extra_conf", ["gpu", "Weight=", "=3", "Weight = 3", "a=b \x00", 'a="b', 'a="b"c', "a=''"]
)
def test_an_extra_conf_that_is_no_list_of_items_is_refused(extra_conf: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.extraConf: "):
        pod(nodeset(extraConf=extra_conf))


@pytest.mark.parametrize("extra_conf", ["Reason=it's", """Reason='a "b" c'""", r"Reason=a\b"])
def test_a_value_that_slurmd_s_command_line_can_t_contain_is_refused(extra_conf: str) -> None:
    with pytest.raises(
        ResourceError, match=r"^spec\.extraConf: the value of Reason has a .* write it without$"
    ):
        pod(nodeset(extraConf=extra_conf))


@pytest.mark.parametrize(
    ("extra_conf", "message"),
    [
        ("Wieght=10", "Wieght isn't a key of a node in slurm.conf; is it Weight?"),
        ("Foo=1", "Foo isn't a key"),
    ],
)
def test_a_key_that_slurmd_would_end_over_is_refused(extra_conf: str, message: str) -> None:
    with pytest.raises(ResourceError, match=re.escape(message)):
        pod(nodeset(extraConf=extra_conf, slurmd={"image": "slurmd:26.05-ubuntu24.04"}))


@pytest.mark.parametrize("image", ["slurmd:99.05", "slurmd:next"])
def test_a_release_that_is_not_known_may_have_other_keys(image: str) -> None:
    assert "NewKey=1" in node_conf(nodeset(extraConf="NewKey=1", slurmd={"image": image}))
