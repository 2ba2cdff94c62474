"""Whether the equal pods of a group exclude each other from a node. Pure.

Slurm packs the tasks of a job on as few nodes as it can, and the scheduler of Kubernetes would bind
only the first of such pods to each.
"""

from collections.abc import Mapping

from sidecars.bridge.core.manifests import LabelSelector, Pod, PodTerm, Requirement

_HOST = "kubernetes.io/hostname"


def excludes_itself(pod: Pod) -> bool:
    """Return whether the required anti-affinity of the pod keeps a pod with its labels off its
    node.
    """
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    if anti is None:
        return False
    return any(_is_of(it, pod) for it in anti.required_during_scheduling_ignored_during_execution)


def _is_of(term: PodTerm, pod: Pod) -> bool:
    # A key whose values have to differ is equal for equal pods.
    if term.topology_key != _HOST or term.label_selector is None or term.mismatch_label_keys:
        return False
    everywhere = term.namespace_selector == LabelSelector()
    nowhere = not term.namespaces and term.namespace_selector is None
    here = everywhere or nowhere or pod.metadata.namespace in term.namespaces
    return here and _selects(term.label_selector, pod.metadata.labels)


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(_fits(it, labels) for it in selector.match_expressions)


def _fits(it: Requirement, labels: Mapping[str, str]) -> bool:
    match it.operator:
        case "In":
            return labels.get(it.key) in it.values
        case "NotIn":
            return labels.get(it.key) not in it.values
        case "Exists":
            return it.key in labels
        case _:
            return it.key not in labels
