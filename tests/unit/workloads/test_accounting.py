"""slurmdbd's objects and its configuration."""

import base64
from typing import Any

import pytest

from sidecars.slurm import conf
from sidecars.workloads import accounting as render
from sidecars.workloads.assembly import find
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import Manifest, ResourceError
from tests.support import builders
from tests.support.builders import mounts, part, pod_spec, volume

STORAGE = {
    "host": "mariadb",
    "username": "slurm",
    "passwordKeyRef": {"name": "mariadb-password", "key": "password"},
}
TLS = {"caKeyRef": {"name": "db-ca", "key": "ca.pem"}, "clientSecretRef": {"name": "db-client"}}
SECRETS = render.Secrets(password=b"s3cret", slurm_key=b"key")


def objects(secrets: render.Secrets = SECRETS, **spec: Any) -> list[Manifest]:
    """What is rendered."""
    return render.objects(
        builders.accounting(**{"storageConfig": STORAGE, **spec}), builders.facts(), secrets
    )


def config(password: bytes = b"s3cret", **spec: Any) -> str:
    """slurmdbd.conf."""
    return render.slurmdbd_conf(builders.accounting(**{"storageConfig": STORAGE, **spec}), password)


def test_there_is_a_secret_a_service_and_a_stateful_set_of_one_name() -> None:
    rendered = objects()
    assert [(item["kind"], item["metadata"]["name"]) for item in rendered] == [
        ("Secret", "slurm-accounting"),
        ("Service", "slurm-accounting"),
        ("StatefulSet", "slurm-accounting"),
    ]
    assert rendered[1]["spec"]["ports"][0]["port"] == 6819
    spec = rendered[2]["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (
        1,
        "Parallel",
        "slurm-accounting",
    )
    assert {item["metadata"]["ownerReferences"][0]["kind"] for item in rendered} == {"Accounting"}
    assert base64.b64decode(rendered[0]["data"]["slurmdbd.conf"]).decode() == config()


def test_slurmdbd_conf_names_the_database() -> None:
    assert config() == (
        "#\n### GENERAL ###\nDbdHost=slurm-accounting-0\nDbdPort=6819\nSlurmUser=slurm\n"
        "#\n### PLUGINS & PARAMETERS ###\nAuthType=auth/slurm\nAuthAltTypes=auth/jwt\n"
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key\nAuthInfo=use_client_ids\n"
        "#\n### STORAGE "
        "###\nStorageType=accounting_storage/mysql\nStorageHost=mariadb\nStoragePort=3306\n"
        "StorageUser=slurm\nStorageLoc=slurm_acct_db\nStoragePass=s3cret\n"
        "#\n### LOGGING ###\nLogFile=/dev/null\n"
    )


def test_the_users_lines_come_last_and_lists_are_united() -> None:
    found = config(
        extraConf="DebugLevel=verbose\nAuthInfo=ttl=10\n", jwksKeyRef={"name": "k", "key": "j"}
    )
    assert "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json\n" in found
    assert found.endswith(
        "#\n### EXTRA CONFIG ###\nDebugLevel=verbose\nAuthInfo=ttl=10\n"
        "#\n### MERGED CONFIG ###\nAuthInfo=ttl=10,use_client_ids\n"
    )


def test_slurmdbd_uses_ipv6_where_pods_do() -> None:
    accounting = builders.accounting(storageConfig=STORAGE)
    [secret, *_] = render.objects(accounting, builders.with_ipv6(), SECRETS)
    conf_text = base64.b64decode(secret["data"]["slurmdbd.conf"]).decode()
    assert "CommunicationParameters=EnableIPv6\n" in conf_text
    assert "CommunicationParameters" not in config()


@pytest.mark.parametrize(
    "password", ["plain", "with space", "back\\slash", "it's", "#hash", "a=b,c", "ünïcode"]
)
def test_slurm_reads_back_the_password(password: str) -> None:
    assert conf.parse(config(password.encode())).get("StoragePass") == password


def test_a_line_break_at_the_end_of_the_password_is_the_editors() -> None:
    assert config(b"s3cret\n") == config()


@pytest.mark.parametrize(
    "password", [b"", b"hid den\nStoragePass=x", b"hid\x00den", b"\xff\xfe", b'hid "den']
)
def test_a_password_that_no_line_can_contain_is_refused_and_not_shown(password: bytes) -> None:
    with pytest.raises(ResourceError, match=r"'mariadb-password'.*choose another") as caught:
        config(password)
    assert "hid" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("field", ["host", "username", "database"])
def test_no_value_can_begin_another_line(field: str) -> None:
    with pytest.raises(ResourceError, match=rf"^spec\.storageConfig\.{field}: .*line break"):
        config(storageConfig=STORAGE | {field: "x\nStorageHost=evil"})


@pytest.mark.parametrize("field", ["host", "username", "database"])
@pytest.mark.parametrize("value", ["x\\", "x#y", "x\\\\#", 'x"y', "x=y"])
def test_no_value_swallows_what_follows_it(field: str, value: str) -> None:
    key = {"host": "StorageHost", "username": "StorageUser", "database": "StorageLoc"}[field]
    parsed = conf.parse(config(storageConfig=STORAGE | {field: value}))
    assert parsed.get(key) == value
    assert parsed.get("StoragePass") == conf.parse(config()).get("StoragePass")


def test_an_empty_host_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.storageConfig\.host: "):
        config(storageConfig=STORAGE | {"host": ""})


def test_secrets_show_in_no_repr() -> None:
    assert "s3cret" not in repr(SECRETS)
    assert "key" not in repr(SECRETS).replace("slurm_key", "")


def annotations(secrets: render.Secrets = SECRETS, **spec: Any) -> dict[str, str]:
    """Of the pods."""
    found: dict[str, str] = find(objects(secrets, **spec), "StatefulSet")["spec"]["template"][
        "metadata"
    ]["annotations"]
    return found


def test_another_password_or_setting_restarts_slurmdbd() -> None:
    name = "slinky.slurm.net/slurmdbd-conf-hash"
    other = render.Secrets(password=b"other", slurm_key=b"key")
    assert (
        len({annotations()[name], annotations(other)[name], annotations(extraConf="A=b")[name]})
        == 3
    )


def test_the_hash_of_the_configuration_helps_nobody_to_try_out_passwords() -> None:
    name = "slinky.slurm.net/slurmdbd-conf-hash"
    salted = render.Secrets(password=b"s3cret", slurm_key=b"another key")
    assert annotations()[name] != annotations(salted)[name]


def test_the_pod_is_locked_down_and_listens_when_ready() -> None:
    workload = find(objects(), "StatefulSet")
    container = part(workload, "slurmdbd")
    assert container["readinessProbe"]["tcpSocket"] == {"port": "slurmdbd"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod_spec(workload)["securityContext"]["runAsUser"] == 401
    assert mounts(workload, "slurmdbd") == {"/etc/slurm": "slurm-etc", "/run": "run", "/tmp": "tmp"}  # noqa: S108


def test_pods_take_labels_image_and_fields_of_the_resource() -> None:
    workload = find(
        objects(
            slurmdbd={"image": "mine"},
            template={"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"x": "y"}}},
        ),
        "StatefulSet",
    )
    assert workload["spec"]["template"]["metadata"]["labels"]["a"] == "b"
    assert (part(workload, "slurmdbd")["image"], pod_spec(workload)["nodeSelector"]) == (
        "mine",
        {"x": "y"},
    )


def test_public_keys_of_others_are_mounted() -> None:
    facts = builders.facts(config_maps={"keys": {"jwks": "{}"}})
    of = builders.accounting(storageConfig=STORAGE, jwksKeyRef={"name": "keys", "key": "jwks"})
    sources = volume(find(render.objects(of, facts, SECRETS), "StatefulSet"), "slurm-etc")[
        "projected"
    ]["sources"]
    assert sources[-1] == {
        "configMap": {"name": "keys", "items": [{"key": "jwks", "path": "jwks.json"}]}
    }


def test_slurmdbd_knows_the_authority_and_has_a_certificate_for_its_database() -> None:
    names = {"db-ca": {"ca.pem": "1"}, "db-client": {"tls.crt": "2", "tls.key": "3"}}
    known = builders.facts(secrets={**builders.facts().secrets, **names})
    of = builders.accounting(storageConfig=STORAGE | {"tls": TLS})
    rendered = render.objects(of, known, SECRETS)
    text = base64.b64decode(rendered[0]["data"]["slurmdbd.conf"]).decode()
    files = ("database-ca.crt", "database.crt", "database.key")
    options = zip(("SSL_CA", "SSL_CERT", "SSL_KEY"), files, strict=True)
    assert conf.parse(text).get("StorageParameters") == ",".join(
        f"{option}=/etc/slurm/{file}" for option, file in options
    )
    sources = volume(find(rendered, "StatefulSet"), "slurm-etc")["projected"]["sources"]
    found = {
        item["path"]: (it["secret"]["name"], item["key"])
        for it in sources
        for item in it.get("secret", {}).get("items", ())
        if item["path"] in files
    }
    assert found == {
        "database-ca.crt": ("db-ca", "ca.pem"),
        "database.crt": ("db-client", "tls.crt"),
        "database.key": ("db-client", "tls.key"),
    }


def test_ciphers_of_the_user_are_added_and_the_authority_remains() -> None:
    found = config(
        storageConfig=STORAGE | {"tls": {"caKeyRef": TLS["caKeyRef"]}},
        extraConf="StorageParameters=SSL_CIPHER=AES256,ssl_ca=/dev/null\n",
    )
    assert conf.parse(found).get("StorageParameters") == (
        "SSL_CA=/etc/slurm/database-ca.crt,ssl_cipher=AES256"
    )


@pytest.mark.parametrize(
    ("secrets", "missing"),
    [
        ({}, r"^spec\.storageConfig\.tls\.caKeyRef: Secret 'db-ca'"),
        ({"db-ca": {"other": "1"}}, r"tls\.caKeyRef: key 'ca\.pem' in Secret 'db-ca'"),
        ({"db-ca": {"ca.pem": "1"}}, r"^spec\.storageConfig\.tls\.clientSecretRef: Secret"),
        (
            {"db-ca": {"ca.pem": "1"}, "db-client": {"tls.crt": "2"}},
            r"tls\.clientSecretRef: key 'tls\.key' in Secret 'db-client'",
        ),
    ],
)
def test_without_a_certificate_no_slurmdbd_connects_to_its_database(
    secrets: dict[str, dict[str, str]], missing: str
) -> None:
    known = builders.facts(secrets={**builders.facts().secrets, **secrets})
    of = builders.accounting(storageConfig=STORAGE | {"tls": TLS})
    with pytest.raises(MissingReferenceError, match=missing):
        render.objects(of, known, SECRETS)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingReferenceError, match=r"^spec\.jwksKeyRef: ConfigMap 'keys'"):
        objects(jwksKeyRef={"name": "keys", "key": "jwks"})
    for field in ("slurmKeyRef", "jwtKeyRef", "storageConfig"):
        with pytest.raises(ResourceError, match=rf"^spec\.{field}: must"):
            render.objects(
                builders.accounting(**{"storageConfig": STORAGE, field: None}),
                builders.facts(),
                SECRETS,
            )


def test_an_external_slurmdbd_needs_no_objects() -> None:
    assert not objects(external=True, externalConfig={"host": "dbd", "port": 6819})


def test_a_bad_line_of_the_user_is_refused_with_its_place() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.extraConf: "):
        config(extraConf="no value")
