"""When the certificate of the webhook is renewed, and what the API server trusts."""

import base64
import time

import pytest

from sidecars import generated
from sidecars.policy.bridge import certificate as policy
from sidecars.policy.bridge.certificate import Content

HOST = "w.slurm.svc"
DAY = 86400.0


async def made(days: int = policy.LIFETIME_DAYS, host: str = HOST) -> str:
    return (await generated.certificate(host, days))[0]


def trusted(bundle: str) -> int:
    return base64.b64decode(bundle).decode().count("BEGIN CERTIFICATE")


async def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left() -> None:
    present, now = Content(await made(), "k"), time.time()
    assert not policy.is_due(present, HOST, now)
    assert not policy.is_due(present, HOST, now + (365 - 121) * DAY)
    assert policy.is_due(present, HOST, now + (365 - 119) * DAY)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_replaced(text: str) -> None:
    assert policy.expiry(text, HOST) is None
    assert policy.is_due(Content(text, "k"), HOST, 0.0)


async def test_a_certificate_for_another_name_is_replaced() -> None:
    assert policy.is_due(Content(await made(host="w.other.svc"), "k"), HOST, time.time())


async def test_several_certificates_in_one_file_are_replaced() -> None:
    assert policy.expiry(await made() + await made(), HOST) is None


async def test_the_api_server_trusts_the_former_certificate_until_it_ends() -> None:
    new, former = await made(), await made(2)
    assert trusted(policy.bundle((new, former), HOST, time.time())) == 2
    assert trusted(policy.bundle((new, former), HOST, time.time() + 3 * DAY)) == 1
    assert policy.bundle((new, ""), HOST, time.time()) == policy.bundle(
        (new, new), HOST, time.time()
    )


async def test_the_api_server_trusts_no_certificate_of_others() -> None:
    assert policy.bundle((await made(host="w.other.svc"), "nonsense"), HOST, time.time()) == ""


def test_a_secret_is_read_whatever_is_in_it() -> None:
    text = base64.b64encode(b"text").decode()
    assert policy.content({}) == Content()
    assert policy.content({"data": None}) == Content()
    assert policy.content(
        {"data": {"tls.crt": text, "tls.key": "*", "former.crt": "/w=="}}
    ) == Content("text", "", "")
