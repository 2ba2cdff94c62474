"""As whom the bridge calls slurmrestd."""

from pathlib import Path

import pytest

from sidecars.bridge.credentials import Credentials, SecretTokens, check
from sidecars.bridge.settings import Settings, TokenSecret
from sidecars.kube import Store
from sidecars.objects import ObjectMeta, Secret
from sidecars.simulate import serve
from sidecars.slurm import protocol
from sidecars.slurm.errors import NoToken, Refused
from tests.support.bridge import KEY, slurm
from tests.unit.bridge.test_slurm import JOB

PLACE = TokenSecret("hpc", "bridge", "SLURM_JWT")


def secret(**data: bytes) -> Store[Secret]:
    """A store with that Secret."""
    store: Store[Secret] = Store()
    store.put(Secret(ObjectMeta("bridge", namespace="hpc", uid="1"), data=data))
    return store


def test_a_token_is_that_of_the_secret_now() -> None:
    store = secret(SLURM_JWT=b" a.b.c\n")
    tokens = SecretTokens(store, PLACE)
    assert tokens.token() == "a.b.c"
    tokens.forget()
    assert tokens.token() == "a.b.c"


@pytest.mark.parametrize(
    "store",
    [Store[Secret](), secret(), secret(SLURM_JWT=b" \n"), secret(SLURM_JWT=b"\xff\r\nX: y")],
)
def test_a_secret_without_a_token_is_named_with_the_command_that_shows_why(
    store: Store[Secret],
) -> None:
    with pytest.raises(ValueError, match=r"Secret hpc/bridge has no token .*-n hpc get tokens"):
        SecretTokens(store, PLACE).token()


async def test_without_a_token_the_bridge_signs_one_of_each_user(tmp_path: Path) -> None:
    key = tmp_path / "jwt.key"
    key.write_bytes(KEY)
    model = slurm()
    async with serve(model) as url:
        credentials = Credentials(Settings(url, "slurm", key_file=key), Store())
        async with credentials.of("ada") as client:
            job_id = await client.call(protocol.submit_external(JOB))
        assert model.jobs[job_id].user == "ada"
        async with credentials.own() as client:
            await client.call(protocol.cancel_job(job_id))
        key.write_bytes(b"another key, which slurmctld does not have")
        async with credentials.own() as client:
            with pytest.raises(Refused):
                await client.call(protocol.cancel_job(job_id))


@pytest.mark.parametrize("user", ["", "a b", "ada\r\nX-SLURM-USER-TOKEN: forged", "ada@hpc"])
async def test_no_request_is_sent_as_what_is_no_users_name(tmp_path: Path, user: str) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c")
    settings = Settings("http://127.0.0.1:9", "slurm", token_file=token)
    async with Credentials(settings, Store()).of(user) as client:
        with pytest.raises(NoToken, match="is not a user name"):
            await client.call(protocol.submit_external(JOB))


def test_a_secret_may_come_later_and_a_file_must_exist(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    check(Settings("http://x:1", "slurm", key_file=absent, token_secret=PLACE))
    for settings in (
        Settings("http://x:1", "slurm", key_file=absent),
        Settings("http://x:1", "slurm", token_file=absent),
    ):
        with pytest.raises(OSError, match="absent"):
            check(settings)
