"""How to ask the directory: the file that the chart writes."""

from pathlib import Path

import msgspec


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Attributes(_Part, frozen=True):
    """The names of attributes. The defaults are those of RFC 2307."""

    name: str = "uid"
    uid: str = "uidNumber"
    gid: str = "gidNumber"
    full_name: str = "cn"
    home: str = "homeDirectory"
    shell: str = "loginShell"
    ssh_keys: str = "sshPublicKey"
    group_name: str = "cn"
    group_gid: str = "gidNumber"
    members: str = "memberUid"
    """With the names of users."""
    member_dns: str = "member"
    """With distinguished names."""


class Settings(_Part, frozen=True):
    """All of them."""

    uri: str
    base: str
    start_tls: bool = False
    user_base: str | None = None
    """None: `base`."""
    group_base: str | None = None
    """None: `base`."""
    user_filter: str = "(objectClass=posixAccount)"
    group_filter: str = "(objectClass=posixGroup)"
    bind_dn: str | None = None
    """None: anonymous."""
    attributes: Attributes = Attributes()
    home: str | None = None
    """Instead of the attribute; `%u` is the name of the user."""
    shell: str | None = None
    """Instead of the attribute."""
    interval_seconds: float = 30.0


def read(path: Path) -> Settings:
    """Return the settings in the file. Raises ValueError, which names the file and the place."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
