"""Slurm's words for generic resources."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm.gres import Gres, GresError, checked_type, parse, render, total, type_name


@pytest.mark.parametrize(
    ("product", "type_"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3"),
        ("NVIDIA A100-SXM4-40GB", "nvidia_a100-sxm4-40gb"),
        ("NVIDIA GB200", "nvidia_gb200"),
        ("NVIDIA L4", "nvidia_l4"),
        ("Tesla V100-SXM2-32GB", "tesla_v100-sxm2-32gb"),
        ("Quadro RTX 6000/8000", "quadro_rtx_6000/8000"),
        (" NVIDIA  H200 ", "nvidia__h200"),
    ],
)
def test_a_product_is_typed_as_slurms_autodetect_types_it(product: str, type_: str) -> None:
    assert type_name(product) == type_


@pytest.mark.parametrize(
    ("product", "profile", "type_"),
    [
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", "nvidia_a100_1g.5gb"),
        ("NVIDIA A100-SXM4-80GB", "1c.3g.40gb", "nvidia_a100_3g.40gb"),
        ("NVIDIA H100 80GB HBM3", "1g.10gb+me", "nvidia_h100_80gb_hbm3_1g.10gb"),
        ("NVIDIA GB200", "1g.24gb", "nvidia_gb200_1g.24gb"),
    ],
)
def test_a_mig_device_is_typed_by_product_and_profile(
    product: str, profile: str, type_: str
) -> None:
    assert type_name(product, profile) == type_


@pytest.mark.parametrize("profile", ["1g", "g.5gb", "1g.5gb,x", "0g.5gb", "1g.5gb x"])
def test_what_is_no_mig_profile_is_refused(profile: str) -> None:
    with pytest.raises(GresError, match="MIG profile"):
        type_name("NVIDIA A100-SXM4-40GB", profile)


@pytest.mark.parametrize("product", ["", "  ", "a:b", "a,b", "a=b", "a(b", 'a"b', "h\t100", "é"])
def test_a_product_that_would_break_slurms_configuration_is_refused(product: str) -> None:
    with pytest.raises(GresError, match="set the type yourself"):
        type_name(product)


def test_a_type_of_ones_own_keeps_its_letters() -> None:
    assert checked_type("H100") == "H100"


def test_resources_are_counted_by_name_and_type() -> None:
    items = [
        Gres("gpu", "h100", 1),
        Gres("gpu", "a100", 1),
        Gres("gpu", "h100", 1),
        Gres("gpu", "", 0),
    ]
    assert total(items) == (Gres("gpu", "", 0), Gres("gpu", "a100", 1), Gres("gpu", "h100", 2))
    assert render(items) == "gpu:a100:1,gpu:h100:2"
    assert render([]) == ""


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("(null)", ()),
        ("gpu:8", (Gres("gpu", "", 8),)),
        ("gpu:h100:8(S:0-1)", (Gres("gpu", "h100", 8),)),
        ("gpu:a:2(S:0,1),gpu:b:1(S:1)", (Gres("gpu", "a", 2), Gres("gpu", "b", 1))),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:(null):2(IDX:0-1)", (Gres("gpu", "", 2),)),
        ("gpu:(null):1,gpu:h100:2", (Gres("gpu", "", 1), Gres("gpu", "h100", 2))),
        ("gpu:h100", (Gres("gpu", "h100", 1),)),
        ("gpu:h100:4(IDX:0-3)", (Gres("gpu", "h100", 4),)),
        ("bandwidth:lustre:4K", (Gres("bandwidth", "lustre", 4096),)),
        ("bandwidth:lustre:no_consume:4K", (Gres("bandwidth", "lustre", 4096, True),)),
        ("bandwidth:No_Consume:4,gpu", (Gres("bandwidth", "", 4, True), Gres("gpu", "", 1))),
        ("gpu:h100:x", None),
        ("gpu:a:b:c", None),
        ("gpu,,gpu", None),
        ("gpu:1;gpu:2", None),
        ("9:1", None),
    ],
)
def test_what_slurm_reports_is_read(text: str, items: tuple[Gres, ...] | None) -> None:
    if items is None:
        with pytest.raises(GresError):
            parse(text)
    else:
        assert parse(text) == items


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(GresError):
        assert all(item.name for item in parse(text))


@given(
    st.lists(
        st.builds(
            Gres,
            st.just("gpu"),
            st.from_regex(r"[a-z][a-z0-9_.-]{0,12}", fullmatch=True),
            st.integers(1, 10**6),
            st.booleans(),
        )
    )
)
def test_what_is_rendered_is_read_back(items: list[Gres]) -> None:
    assert parse(render(items)) == total(items)
