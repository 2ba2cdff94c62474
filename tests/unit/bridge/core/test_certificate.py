"""When the certificate of the webhook is renewed, and what the API server trusts."""

import base64
import time

import pytest

from sidecars import generated
from sidecars.bridge.core import certificate as core
from sidecars.bridge.core.certificate import Content

HOST = "w.slurm.svc"
DAY = 86400.0


async def made(days: int = core.LIFETIME_DAYS, host: str = HOST) -> str:
    return (await generated.certificate(host, days))[0]


def trusted(bundle: str) -> int:
    return base64.b64decode(bundle).decode().count("BEGIN CERTIFICATE")


async def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left() -> None:
    present, now = Content(await made(), "k"), time.time()
    assert not core.is_due(present, HOST, now)
    assert not core.is_due(present, HOST, now + (365 - 121) * DAY)
    assert core.is_due(present, HOST, now + (365 - 119) * DAY)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_replaced(text: str) -> None:
    assert core.expiry(text, HOST) is None
    assert core.is_due(Content(text, "k"), HOST, 0.0)


async def test_a_certificate_for_another_name_is_replaced() -> None:
    assert core.is_due(Content(await made(host="w.other.svc"), "k"), HOST, time.time())


async def test_several_certificates_in_one_file_are_replaced() -> None:
    assert core.expiry(await made() + await made(), HOST) is None


async def test_the_api_server_trusts_the_former_certificate_until_it_ends() -> None:
    new, former = await made(), await made(2)
    assert trusted(core.bundle((new, former), HOST, time.time())) == 2
    assert trusted(core.bundle((new, former), HOST, time.time() + 3 * DAY)) == 1
    assert core.bundle((new, ""), HOST, time.time()) == core.bundle((new, new), HOST, time.time())


async def test_the_api_server_trusts_no_certificate_of_others() -> None:
    assert core.bundle((await made(host="w.other.svc"), "nonsense"), HOST, time.time()) == ""


def test_a_secret_is_read_whatever_is_in_it() -> None:
    text = base64.b64encode(b"text").decode()
    assert core.content({}) == Content()
    assert core.content({"data": None}) == Content()
    assert core.content(
        {"data": {"tls.crt": text, "tls.key": "*", "former.crt": "/w=="}}
    ) == Content("text", "", "")
