"""Strategic merge and the custom resources' own rules on top of it.

The expectations of `merge` are what the apiserver's PATCH gives for the same objects.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecars.workloads.merge import chosen, container, merge, pod_spec
from sidecars.workloads.resources import ResourceError


def env(**values: str) -> list[dict[str, str]]:
    """Environment variables in the order given."""
    return [{"name": name, "value": value} for name, value in values.items()]


# merge


def test_maps_are_merged_key_by_key() -> None:
    merged = merge(
        {"resources": {"limits": {"cpu": "1"}}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        "Container",
    )
    assert merged == {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}


def test_a_list_with_a_merge_key_is_merged_by_it() -> None:
    base = {"containers": [{"name": "a", "image": "1", "env": env(X="1", Y="2")}, {"name": "b"}]}
    merged = merge(base, {"containers": [{"name": "a", "env": env(Y="3")}]}, "PodSpec")
    assert merged == {
        "containers": [{"name": "a", "image": "1", "env": env(X="1", Y="3")}, {"name": "b"}]
    }


def test_a_list_without_a_merge_key_is_replaced() -> None:
    assert merge({"command": ["a", "b"]}, {"command": ["c"]}, "Container") == {"command": ["c"]}
    assert merge({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, "PodSpec") == {
        "tolerations": [{"key": "b"}]
    }


def test_new_items_come_first_and_kept_items_keep_their_place() -> None:
    assert merge({"env": env(A="1", B="1")}, {"env": env(X="1")}, "Container")["env"] == env(
        X="1", A="1", B="1"
    )
    assert merge({"env": env(A="1", B="1")}, {"env": env(B="2", X="1")}, "Container")["env"] == env(
        A="1", B="2", X="1"
    )
    assert merge({"env": env(A="1", B="1")}, {"env": env(X="1", B="2")}, "Container")["env"] == env(
        X="1", A="1", B="2"
    )


def test_null_removes_a_field() -> None:
    assert merge({"hostname": "a", "subdomain": "b"}, {"hostname": None}, "PodSpec") == {
        "subdomain": "b"
    }


def test_the_directives_replace_and_delete_are_understood() -> None:
    base = {"env": env(A="1", B="1"), "resources": {"limits": {"cpu": "1"}}}
    patch: dict[str, Any] = {
        "env": [{"name": "A", "$patch": "delete"}],
        "resources": {"$patch": "replace", "requests": {"cpu": "2"}},
    }
    assert merge(base, patch, "Container") == {
        "env": env(B="1"),
        "resources": {"requests": {"cpu": "2"}},
    }
    assert merge(
        {"env": env(A="1")}, {"env": [{"$patch": "replace", "name": ""}, *env(B="2")]}, "Container"
    ) == {"env": env(B="2")}


def test_a_volume_has_both_sources_unless_the_patch_is_applied_without_loss() -> None:
    base = {"volumes": [{"name": "run", "emptyDir": {"medium": "Memory"}}]}
    patch = {"volumes": [{"name": "run", "hostPath": {"path": "/x"}}]}
    assert merge(base, patch, "PodSpec")["volumes"] == [
        {"name": "run", "emptyDir": {"medium": "Memory"}, "hostPath": {"path": "/x"}}
    ]
    assert merge(base, patch, "PodSpec", applied=True) == patch


def test_types_that_do_not_fit_are_refused_with_their_place() -> None:
    with pytest.raises(ResourceError, match=r"^resources\.limits: "):
        merge({"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": "2"}}, "Container")
    with pytest.raises(ResourceError, match=r"^env: an item lacks `name`"):
        merge({"env": env(A="1")}, {"env": [{"value": "2"}]}, "Container")


json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(["a", "b", "c", "d"])
variables = st.lists(
    st.fixed_dictionaries({"name": names, "value": st.sampled_from(["", "1", "2"])}),
    unique_by=lambda item: item["name"],
)
containers = st.fixed_dictionaries(
    {},
    optional={
        "image": names,
        "args": st.lists(names),
        "command": st.lists(names),
        "env": variables,
        "securityContext": st.dictionaries(names, st.booleans()),
        "resources": st.dictionaries(
            st.sampled_from(["limits", "requests"]), st.dictionaries(names, names)
        ),
    },
)


@given(containers)
def test_an_empty_patch_changes_nothing(base: dict[str, Any]) -> None:
    assert merge(base, {}, "Container") == base


@given(containers, containers)
def test_merging_the_same_patch_again_changes_nothing(
    base: dict[str, Any], patch: dict[str, Any]
) -> None:
    once = merge(base, patch, "Container")
    assert merge(once, patch, "Container") == once


@given(containers, containers)
def test_inputs_are_left_as_they_were(base: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((base, patch))
    merge(base, patch, "Container")
    container(base, patch, "spec.slurmd")
    assert (base, patch) == before


@given(containers, containers)
def test_every_scalar_of_the_patch_is_in_the_result(
    base: dict[str, Any], patch: dict[str, Any]
) -> None:
    merged = merge(base, patch, "Container")
    assert all(item in merged["env"] for item in patch.get("env", ()))
    assert merged.get("image") == patch.get("image", base.get("image"))
    assert merged.get("securityContext", {}).items() >= patch.get("securityContext", {}).items()


# chosen


def test_empty_values_are_no_choice_and_false_zero_and_the_empty_text_are() -> None:
    user: dict[str, Any] = {
        "a": None, "b": [], "c": {}, "d": {"e": {"f": None}},
        "no": False, "zero": 0, "text": "", "list": [{"emptyDir": {}}],
    }  # fmt: skip
    assert chosen(user) == {"no": False, "zero": 0, "text": "", "list": [{"emptyDir": {}}]}


# container


def test_arguments_are_appended() -> None:
    assert container({"args": ["-Z"]}, {"args": ["-v"]}, "spec.slurmd") == {"args": ["-Z", "-v"]}
    assert container({"args": ["-Z"]}, {"args": []}, "spec.slurmd") == {"args": ["-Z"]}


def test_false_and_zero_override() -> None:
    base = {"securityContext": {"privileged": True, "runAsUser": 401}}
    user = {"securityContext": {"privileged": False, "runAsUser": 0}}
    assert container(base, user, "spec.slurmd") == user


def test_an_empty_override_leaves_ours() -> None:
    base = {"image": "a", "securityContext": {"privileged": True}, "env": env(A="1")}
    assert (
        container(base, {"securityContext": {}, "env": [], "resources": None}, "spec.slurmd")
        == base
    )


def test_a_probe_of_another_kind_takes_the_place_of_ours() -> None:
    base = {
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "slurmctld"}, "periodSeconds": 10}
    }
    user = {"livenessProbe": {"exec": {"command": ["true"]}, "failureThreshold": 9}}
    assert container(base, user, "spec.slurmctld")["livenessProbe"] == {
        "exec": {"command": ["true"]},
        "failureThreshold": 9,
        "periodSeconds": 10,
    }


def test_numbers_of_a_probe_are_changed_without_naming_its_handler() -> None:
    base = {"livenessProbe": {"httpGet": {"path": "/livez"}, "periodSeconds": 10}}
    merged = container(base, {"livenessProbe": {"periodSeconds": 5}}, "spec.slurmctld")
    assert merged["livenessProbe"] == {"httpGet": {"path": "/livez"}, "periodSeconds": 5}


def test_a_hook_of_another_kind_takes_the_place_of_ours() -> None:
    base = {
        "lifecycle": {
            "preStop": {"exec": {"command": ["a"]}},
            "postStart": {"exec": {"command": ["b"]}},
        }
    }
    merged = container(base, {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, "spec.slurmd")
    assert merged["lifecycle"] == {
        "preStop": {"sleep": {"seconds": 1}},
        "postStart": {"exec": {"command": ["b"]}},
    }


def test_a_variable_has_a_value_or_a_source_never_both() -> None:
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    base = {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": source}]}
    merged = container(
        base,
        {"env": [{"name": "A", "valueFrom": source}, {"name": "B", "value": ""}]},
        "spec.slurmd",
    )
    assert merged["env"] == [{"name": "A", "valueFrom": source}, {"name": "B", "value": ""}]


def test_a_port_of_our_name_moves_ours() -> None:
    base = {"ports": [{"name": "login", "containerPort": 22, "protocol": "TCP"}]}
    merged = container(base, {"ports": [{"name": "login", "containerPort": 2222}]}, "spec.login")
    assert merged["ports"] == [{"name": "login", "containerPort": 2222}]


def test_a_further_port_leaves_ours() -> None:
    base = {"ports": [{"name": "login", "containerPort": 22}]}
    merged = container(base, {"ports": [{"name": "metrics", "containerPort": 9100}]}, "spec.login")
    assert {port["containerPort"] for port in merged["ports"]} == {22, 9100}


def test_ports_of_one_number_with_two_protocols_are_two_ports() -> None:
    ours = {"name": "slurmd", "containerPort": 6818, "protocol": "TCP"}
    dns = [{"containerPort": 5353}, {"containerPort": 5353, "protocol": "UDP"}]
    udp = {"containerPort": 6818, "protocol": "UDP"}
    merged = container({"ports": [ours]}, {"ports": [*dns, udp]}, "spec.slurmd")
    assert merged["ports"] == [*dns, udp, ours]


def test_a_port_of_our_number_and_protocol_is_ours_with_another_name() -> None:
    base = {"ports": [{"name": "login", "containerPort": 22, "protocol": "TCP"}]}
    merged = container(base, {"ports": [{"name": "ssh", "containerPort": 22}]}, "spec.login")
    assert merged["ports"] == [{"name": "ssh", "containerPort": 22, "protocol": "TCP"}]


def test_a_port_of_our_name_with_another_protocol_replaces_ours() -> None:
    base = {"ports": [{"name": "a", "containerPort": 1, "protocol": "TCP"}]}
    user = {"name": "a", "containerPort": 1, "protocol": "UDP"}
    assert container(base, {"ports": [user]}, "spec.login")["ports"] == [user]


def test_two_names_of_one_port_are_left_to_the_apiserver() -> None:
    named = [{"name": name, "containerPort": 80} for name in ("http", "metrics")]
    assert container({}, {"ports": named}, "spec.login")["ports"] == named


def test_an_item_that_the_user_repeats_word_for_word_is_one() -> None:
    mount = {"name": "a", "mountPath": "/a"}
    assert container({}, {"volumeMounts": [mount, dict(mount)]}, "spec.login") == {
        "volumeMounts": [mount]
    }


def test_a_strategic_merge_drops_one_of_two_ports_as_the_apiserver_does() -> None:
    both = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    other = {"containerPort": 80}
    assert merge({"ports": [other]}, {"ports": both}, "Container")["ports"] == [both[1], other]
    assert merge({}, {"ports": both}, "Container")["ports"] == both


def test_a_variable_that_is_set_twice_has_the_value_that_the_kubelet_gives_it() -> None:
    twice = [{"name": "P", "value": "/a"}, {"name": "P", "value": "$(P):/b"}]
    assert container({}, {"env": twice}, "spec.slurmd")["env"] == env(P="/a:/b")


def test_a_variable_from_a_source_that_its_own_new_value_needs_is_refused() -> None:
    source = {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    twice = [source, {"name": "P", "value": "$(P):/b"}]
    with pytest.raises(ResourceError, match=r"^spec\.slurmd\.env: the value of `P` refers to `P`"):
        container({}, {"env": twice}, "spec.slurmd")


def test_a_limit_of_the_user_takes_our_request_away_because_it_may_be_lower() -> None:
    ours = {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
    limited = container(ours, {"resources": {"limits": {"memory": "64Mi"}}}, "spec.a")
    assert limited["resources"] == {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}
    both = {"limits": {"cpu": 1, "memory": "64Mi"}}
    assert container(ours, {"resources": both}, "spec.a")["resources"] == both


def test_a_request_of_the_user_replaces_ours() -> None:
    ours = {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
    assert container(ours, {"resources": {"requests": {"cpu": 0}}}, "spec.a")["resources"] == {
        "requests": {"cpu": 0, "memory": "256Mi"}
    }
    user = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    assert container(ours, {"resources": user}, "spec.a")["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }


def test_an_error_names_the_field_of_the_custom_resource() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.slurmd\.args: "):
        container({}, {"args": "-v"}, "spec.slurmd")
    with pytest.raises(ResourceError, match=r"^spec\.slurmd\.env: an item lacks `name`"):
        container({"env": env(A="1")}, {"env": ["A=1"]}, "spec.slurmd")


# pod_spec


def test_containers_are_appended_even_under_the_same_name() -> None:
    base = {"initContainers": [{"name": "logfile"}], "containers": [{"name": "slurmd"}]}
    merged = pod_spec(
        base, {"initContainers": [{"name": "own"}], "containers": [{"name": "slurmd"}]}, "spec.x"
    )
    assert merged == {
        "initContainers": [{"name": "logfile"}, {"name": "own"}],
        "containers": [{"name": "slurmd"}, {"name": "slurmd"}],
    }


def test_tolerations_and_search_domains_are_united() -> None:
    base = {"tolerations": [{"key": "worker"}], "dnsConfig": {"searches": ["a", "b"]}}
    user = {
        "tolerations": [{"key": "gpu"}, {"key": "worker"}],
        "dnsConfig": {"searches": ["b", "c"]},
    }
    assert pod_spec(base, user, "spec.x") == {
        "tolerations": [{"key": "worker"}, {"key": "gpu"}],
        "dnsConfig": {"searches": ["a", "b", "c"]},
    }


def test_two_tolerations_of_one_key_that_compare_numbers_are_both_kept() -> None:
    between = [
        {"key": "sla", "operator": "Gt", "value": "900"},
        {"key": "sla", "operator": "Lt", "value": "990"},
    ]
    base = {"tolerations": [{"key": "worker"}]}
    assert pod_spec(base, {"tolerations": between}, "spec.x") == {
        "tolerations": [{"key": "worker"}, *between]
    }


@pytest.mark.parametrize("strength", ["required", "preferred"])
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_affinity_terms_are_united(kind: str, strength: str) -> None:
    field = f"{strength}DuringSchedulingIgnoredDuringExecution"
    ours, theirs = {"topologyKey": "kubernetes.io/hostname"}, {"topologyKey": "zone"}
    merged = pod_spec(
        {"affinity": {kind: {field: [ours]}}}, {"affinity": {kind: {field: [theirs]}}}, "spec.x"
    )
    assert merged["affinity"][kind][field] == [ours, theirs]


def test_a_volume_of_our_name_takes_the_place_of_ours() -> None:
    base = {"volumes": [{"name": "run", "emptyDir": {}}, {"name": "etc", "emptyDir": {}}]}
    merged = pod_spec(base, {"volumes": [{"name": "run", "hostPath": {"path": "/run"}}]}, "spec.x")
    assert merged["volumes"] == [
        {"name": "run", "hostPath": {"path": "/run"}},
        {"name": "etc", "emptyDir": {}},
    ]


def test_a_hard_and_a_soft_spread_over_one_key_are_both_kept() -> None:
    spread = [
        {"topologyKey": "zone", "whenUnsatisfiable": whenever, "maxSkew": 1}
        for whenever in ("DoNotSchedule", "ScheduleAnyway")
    ]
    user = {"topologySpreadConstraints": spread}
    assert pod_spec({}, user, "spec.x") == user


def test_all_names_of_one_address_are_kept_in_one_host_alias() -> None:
    aliases = [
        {"ip": "10.0.0.1", "hostnames": ["a"]},
        {"ip": "10.0.0.2", "hostnames": ["b"]},
        {"ip": "10.0.0.1", "hostnames": ["c", "a"]},
    ]
    assert pod_spec({}, {"hostAliases": aliases}, "spec.x")["hostAliases"] == [
        {"ip": "10.0.0.1", "hostnames": ["a", "c"]},
        {"ip": "10.0.0.2", "hostnames": ["b"]},
    ]


def test_an_empty_dir_of_the_user_is_kept() -> None:
    merged = pod_spec({"volumes": []}, {"volumes": [{"name": "scratch", "emptyDir": {}}]}, "spec.x")
    assert merged["volumes"] == [{"name": "scratch", "emptyDir": {}}]


BASE = {
    "args": ["-Z"],
    "env": env(A="1"),
    "ports": [{"name": "a", "containerPort": 1}],
    "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
}
container_fields = st.sampled_from(
    ["args", "env", "ports", "lifecycle", "livenessProbe", "volumeMounts", "name"]
)
pod_fields = st.sampled_from(
    ["containers", "tolerations", "affinity", "dnsConfig", "volumes", "hostAliases"]
)


def outcome(call: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The result, or the field that was refused."""
    try:
        return call()
    except ResourceError as error:
        return error.field


@given(st.dictionaries(container_fields, json))
@example({"ports": [{"containerPort": 1, "name": []}]})
def test_any_nonsense_in_a_container_is_merged_or_refused(user: dict[str, Any]) -> None:
    found = outcome(lambda: container(BASE, user, "spec.slurmd"))
    assert found.startswith("spec.slurmd") if isinstance(found, str) else found["args"][0] == "-Z"


@given(st.dictionaries(pod_fields, json))
def test_any_nonsense_in_a_pod_spec_is_merged_or_refused(user: dict[str, Any]) -> None:
    base: dict[str, Any] = {
        "containers": [BASE],
        "tolerations": [{"key": "a"}],
        "volumes": [{"name": "v"}],
    }
    found = outcome(lambda: pod_spec(base, user, "spec.x"))
    assert found.startswith("spec.x") if isinstance(found, str) else found["containers"][0] == BASE
