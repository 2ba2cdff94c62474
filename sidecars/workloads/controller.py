"""slurmctld: its configuration, Services and StatefulSet."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from sidecars.contract import manifest, ports
from sidecars.workloads import assembly, config, config_maps, merge, names, users
from sidecars.workloads.facts import Facts, combined, digest
from sidecars.workloads.resources import (
    Controller,
    Json,
    KeySelector,
    Manifest,
    MetricsEndpoint,
    NodeSet,
    ResourceError,
    builtins,
)


def objects(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> list[Manifest]:
    """ConfigMaps, Services and StatefulSet, in the order to apply them; for an external Controller
    ConfigMaps alone.

    `nodesets` are those of the Controller's namespace that refer to it. Raises ResourceError for a
    Controller that can't be rendered and MissingReferenceError for one whose references don't exist
    yet.
    """
    config_set = config.compose(controller, nodesets, facts)
    for problem in config_set.problems:
        raise ResourceError(problem.origin, problem.message)
    return [
        *config_maps.config_maps(controller, config_set, facts.published),
        *workload(controller, config_set, facts),
    ]


def workload(controller: Controller, config_set: config.ConfigSet, facts: Facts) -> list[Manifest]:
    """Services and StatefulSet, in the order to apply them; nothing for an external Controller.

    Raises ResourceError and MissingReferenceError as `objects` does.
    """
    if controller.spec.external:
        return []
    variables = _variables(controller, config_set, facts)
    rendered = facts.site.workloads.render("slurmctld", _overlays(controller), variables)
    internal = assembly.find(rendered, "Service", names.controller_internal(controller.name))
    client = assembly.find(rendered, "Service", names.controller(controller.name))
    stateful_set = assembly.find(rendered, "StatefulSet")
    base = stateful_set["spec"]["template"]
    stateful_set["spec"]["template"] = assembly.pod_template(
        base,
        controller,
        controller.spec.template,
        {
            "slurmctld": _behind_start_gate(base, controller)
            if controller.spec.ha.enabled
            else controller.spec.slurmctld,
            # Slinky's reconfigure runs in slurmctld's image, and values written for it say so; ours
            # is the operator's.
            "reconfigure": {
                key: value for key, value in controller.spec.reconfigure.items() if key != "image"
            },
            "logfile": controller.spec.logfile,
        },
    )
    return [
        assembly.owned(internal, controller),
        assembly.service(client, controller, controller.spec.service),
        assembly.owned(stateful_set, controller),
    ]


def _behind_start_gate(base: Json, controller: Controller) -> Json:
    """`spec.slurmctld`, whose `command` the start gate runs instead of the base's args. Raises
    ResourceError.
    """
    override = dict(controller.spec.slurmctld)
    command = override.pop("command", None)
    if not command:
        return override
    if not isinstance(command, list):
        raise ResourceError(
            "spec.slurmctld.command",
            f"{merge.kind_of(command)} is not a list: write a list of words",
        )
    assembly.container(base["spec"], "slurmctld")["args"] = command
    return override


METRICS_PATHS = ("/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler")
"""What slurmctld's openmetrics plugin serves (https://slurm.schedmd.com/metrics.html) but jobs by
user and account, of which there may be very many.
"""


def service_monitor(controller: Controller) -> Manifest | None:
    """Return the ServiceMonitor (https://prometheus-operator.dev/docs/api-reference/api/), None if
    none is asked for.

    Of the two Services it selects the clients', so that nothing is scraped twice. An external
    slurmctld has none.
    """
    monitor = controller.spec.metrics.service_monitor
    if controller.spec.external or not (controller.spec.metrics.enabled and monitor.enabled):
        return None
    endpoints = [
        {
            "path": endpoint.path,
            "port": "slurmctld",
            "scheme": "http",
            **_given("interval", endpoint.interval or monitor.interval),
            **_given("scrapeTimeout", endpoint.scrape_timeout or monitor.scrape_timeout),
        }
        for endpoint in monitor.endpoints or [MetricsEndpoint(path=path) for path in METRICS_PATHS]
    ]
    services = {names.APP_NAME: "slurmctld", names.APP_INSTANCE: controller.name}
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {
            "name": names.controller(controller.name),
            "labels": {**(monitor.labels or {}), **services, names.APP_COMPONENT: "controller"},
            "annotations": dict(monitor.annotations or {}),
        },
        "spec": {
            "selector": {
                "matchLabels": services,
                "matchExpressions": [{"key": names.INTERNAL, "operator": "DoesNotExist"}],
            },
            "namespaceSelector": {"matchNames": [controller.namespace]},
            "endpoints": endpoints,
        },
    }
    return assembly.owned(manifest, controller)


def _given(field: str, value: str | None) -> dict[str, str]:
    return {field: value} if value else {}


def mark(controller: Controller, sha256: str, facts: Facts) -> str:
    """Return a short text that changes with the configuration of that digest and with the keys
    beside it.

    Raises ResourceError and MissingReferenceError as `objects` does.
    """
    jwks = controller.spec.jwks_key_ref
    keys = [
        facts.slurm_keys(slurm_key(controller), "spec.slurmKeyRef"),
        facts.secret(jwt_key(controller), "spec.jwtKeyRef"),
        *([facts.config_map(jwks, "spec.jwksKeyRef")] if jwks else []),
    ]
    return digest("\n".join([sha256, *keys]))[:12]


def conf_server(controller: Controller) -> str:
    """`host:port` where slurmd and sackd get their configuration from."""
    external = controller.spec.external_config
    if controller.spec.external:
        if external is None:
            raise ResourceError(
                "spec.externalConfig", "must say where the external slurmctld is (host and port)"
            )
        return f"{external.host}:{external.port}"
    return f"{names.controller(controller.name)}.{controller.namespace}:{ports.SLURMCTLD}"


def slurm_key(controller: Controller) -> KeySelector:
    """Return the Secret key of auth/slurm. Raises ResourceError when the Controller names none."""
    if controller.spec.slurm_key_ref is None:
        raise ResourceError("spec.slurmKeyRef", "must name the Secret with Slurm's key")
    return controller.spec.slurm_key_ref


def key_secret(controller: Controller, text: str, since: str) -> Manifest:
    """Return the Secret with the keys that daemons have. `text` is slurm.jwks in base64, `since`
    when it changed.
    """
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.slurm_jwks(slurm_key(controller).name),
            "labels": {
                names.APP_NAME: "slurmctld",
                names.APP_INSTANCE: controller.name,
                names.APP_COMPONENT: "controller",
            },
            "annotations": {names.KEYS_SINCE: since},
        },
        "type": "Opaque",
        "data": {manifest.SLURM_JWKS: text},
    }
    return assembly.owned(secret, controller)


def jwt_key(controller: Controller) -> KeySelector:
    """Return the Secret key that signs tokens. Raises ResourceError when the Controller names
    none.
    """
    if controller.jwt_key_ref is None:
        raise ResourceError(
            "spec.jwtKeyRef", "must name the Secret with the key that signs Slurm's tokens"
        )
    return controller.jwt_key_ref


def _overlays(controller: Controller) -> list[str]:
    """Return the names of the overlays of slurmctld.yaml that this Controller asks for, in order.
    Raises ResourceError.
    """
    persistence = controller.spec.persistence
    if controller.spec.ha.enabled and not (persistence.enabled and persistence.existing_claim):
        raise ResourceError(
            "spec.ha",
            "standbys share slurmctld's state: name a ReadWriteMany claim in "
            "spec.persistence.existingClaim",
        )
    claim = (
        "no-claim"
        if not persistence.enabled
        else "existing-claim"
        if persistence.existing_claim
        else "new-claim"
    )
    return [claim, *(["ha"] if controller.spec.ha.enabled else []), *users.overlays(controller)]


def _variables(
    controller: Controller, config_set: config.ConfigSet, facts: Facts
) -> dict[str, Any]:
    spec = controller.spec
    slurm, jwt, jwks = slurm_key(controller), jwt_key(controller), spec.jwks_key_ref
    slurm_hash, jwt_hash = (
        facts.slurm_keys(slurm, "spec.slurmKeyRef"),
        facts.secret(jwt, "spec.jwtKeyRef"),
    )
    recreate = spec.config_update == "Recreate"
    jwks_digest = {jwks.name: {jwks.key: facts.config_map(jwks, "spec.jwksKeyRef")}} if jwks else {}
    return {
        "name": controller.name,
        "namespace": controller.namespace,
        "clusterDomain": facts.site.cluster_domain,
        "clusterName": controller.cluster_name,
        "replicas": controller.replicas,
        "sidecarsImage": facts.site.sidecars_image,
        "slurmKeySecret": slurm.name,
        "slurmKeyKey": slurm.key,
        "slurmJwksSecret": names.slurm_jwks(slurm.name),
        "slurmctldImage": spec.slurmctld.get("image"),
        "slurmctldPullPolicy": spec.slurmctld.get("imagePullPolicy"),
        "configUpdate": spec.config_update,
        "slurmKeyHash": slurm_hash if recreate else None,
        "jwtKeySecret": jwt.name,
        "jwtKeyKey": jwt.key,
        "jwtKeyHash": jwt_hash if recreate else None,
        "fileSources": config_maps.more_sources(partial(names.config, controller.name)),
        "jwksSource": _source(jwks, manifest.JWKS) if jwks else None,
        "configHash": combined({"": config_set.digests} | jwks_digest) if recreate else None,
        "claimSpec": _claim_spec(controller),
        "existingClaim": spec.persistence.existing_claim,
        **users.variables(controller),
    }


def _source(selector: KeySelector, path: str) -> Json:
    return {"configMap": {"name": selector.name, "items": [{"key": selector.key, "path": path}]}}


def _claim_spec(controller: Controller) -> Json:
    """Return the claim's spec: the fields of spec.persistence that are a
    PersistentVolumeClaimSpec's. No claim is valid without an access mode and a size, so they
    default to the chart's values.
    """
    spec = builtins(controller.spec.persistence)
    needed = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    return needed | {
        key: value for key, value in spec.items() if key not in {"enabled", "existingClaim"}
    }
