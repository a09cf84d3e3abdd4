"""By which names a waiting job is told of others: those of its own namespace, all of them only where the policy says so."""

JOBS_OF_OTHERS = "jobs of other namespaces"
PODS_OF_OTHERS = "pods of other namespaces"
OTHERS = frozenset({JOBS_OF_OTHERS, PODS_OF_OTHERS})
_POD = "pod "
_GIVEN = ("reserved for ", "promised to ")


def shown(name: str, viewer: str | None) -> str:
    """A holder of nodes as people of a namespace are told of it.

    Args:
        name: `<namespace>/<name>` of a job, `pod <namespace>/<name>` of a pod.
        viewer: the namespace; None: every name may be told.
    """
    if viewer is None or name.removeprefix(_POD).partition("/")[0] == viewer:
        return name
    return PODS_OF_OTHERS if name.startswith(_POD) else JOBS_OF_OTHERS


def shown_reason(why: str, viewer: str | None) -> str:
    """Why a node is given away, likewise: `reserved for <namespace>/<name>` and the like."""
    start = next((start for start in _GIVEN if why.startswith(start)), "")
    return start + shown(why.removeprefix(start), viewer) if start else why
