"""As whom the bridge calls slurmrestd: by a Token of SlurmUser, or by tokens that it signs with
jwt.key.

A Token is read from a file, or by the Kubernetes API where it is in another namespace than the
bridge. It is of SlurmUser, who may send a request as any user: slurmctld then applies that user's
rights and limits.
"""

import time

from sidecars.bridge.settings import Settings, TokenSecret
from sidecars.kube import Store
from sidecars.objects import Secret
from sidecars.slurm.client import Client
from sidecars.slurm.tokens import TokenFile, Tokens, TokenSource

SUBMITTER_SECONDS = 60
"""Lifetime of a token of a tenant's user that the bridge signs."""
_OWN_SECONDS = 900


class SecretTokens:
    """The token in a Secret that the operator renews. `store` has that Secret, if it exists."""

    def __init__(self, store: Store[Secret], place: TokenSecret) -> None:
        self._store = store
        self._place = place

    def token(self) -> str:
        """Read the token. Raises ValueError without one."""
        place = self._place
        secret = self._store.get(place.namespace, place.name)
        text = b"" if secret is None else secret.data.get(place.key, b"").strip()
        try:
            found = text.decode("ascii")
        except UnicodeDecodeError:
            found = ""
        if not found:
            raise ValueError(
                f"Secret {place.namespace}/{place.name} has no token under {place.key!r}:"
                f" see `kubectl -n {place.namespace} get tokens`"
            )
        return found

    def forget(self) -> None:
        """Do nothing: nothing is stored."""


class Credentials:
    """`secrets`: what is known of the Secret of `settings.token_secret`."""

    def __init__(self, settings: Settings, secrets: Store[Secret]) -> None:
        self._settings = settings
        self._renewed: Tokens | None = None
        if settings.token_secret is not None:
            self._renewed = SecretTokens(secrets, settings.token_secret)
        elif settings.token_file is not None:
            self._renewed = TokenFile(settings.token_file)

    def own(self) -> Client:
        """Make a client as SlurmUser."""
        return self._client(self._settings.slurm_user, _OWN_SECONDS)

    def of(self, user: str) -> Client:
        """Make a client as the user of a tenant."""
        return self._client(user, SUBMITTER_SECONDS)

    def _client(self, user: str, seconds: int) -> Client:
        url = self._settings.slurmrestd_url
        if self._renewed is not None:
            named = None if user == self._settings.slurm_user else user
            return Client(url, self._renewed, user=named)
        key = self._settings.key_file.read_bytes
        tokens = TokenSource(key, clock=time.time, username=user, lifetime_seconds=seconds)
        return Client(url, tokens)


def check(settings: Settings) -> None:
    """Check that the file has a key or a token; a Secret may be created later. Raises OSError."""
    if settings.token_file is not None:
        try:
            TokenFile(settings.token_file).token()
        except ValueError as error:
            raise OSError(str(error)) from None
    elif settings.token_secret is None:
        settings.key_file.read_bytes()
