"""Renders the operator's roles and docs/reference/rights.md from the table of its rights."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.api.installation import InstallationProfile
from muster.api.namespaces import SYSTEM
from muster.api.rights import GRANTS, Grant, RoleRule, is_path, role_kind

MANIFESTS = Path("manifests")
_BASE = "base"
_API = "rbac.authorization.k8s.io"
_READS = ("get", "list", "watch")
_WIDTH = 120


def role_path(grant: Grant) -> Path:
    """Return the file of a grant's roles."""
    return MANIFESTS / grant.folder / ("operator-rbac.yaml" if grant.folder == _BASE else "rights.yaml")


def role_file(grant: Grant, generated: str) -> str:
    """Return what that file has to hold.

    Args:
        grant: its roles.
        generated: the sentence that says how the file is made.
    """
    condition = f", with {grant.condition}" if grant.condition else ""
    head = f"What the operator may do from profile {grant.profile} on{condition}: docs/reference/rights.md."
    parts = [part for namespace in grant.namespaces for part in (_role(grant, namespace), _binding(grant, namespace))]
    return "".join(_comment(text, "") for text in (generated, head)) + "".join(f"---\n{part}" for part in parts)


def _comment(text: str, indent: str) -> str:
    lines = textwrap.wrap(text, _WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{indent}# {line}\n" for line in lines)


def _head(grant: Grant, kind: str, namespace: str) -> str:
    where = f"  namespace: {namespace}\n" if namespace else ""
    return (
        f"apiVersion: {_API}/v1\nkind: {kind}\nmetadata:\n  name: {grant.role}\n{where}"
        f"  labels:\n    app.kubernetes.io/part-of: muster\n    muster.dev/profile: {grant.profile}\n"
    )


def _role(grant: Grant, namespace: str) -> str:
    rules = [rule for rule in grant.rules if rule.namespace == namespace]
    return _head(grant, role_kind(namespace), namespace) + "rules:\n" + "".join(_rule(rule) for rule in rules)


def _rule(rule: RoleRule) -> str:
    lines = [f"nonResourceURLs: {_list(rule.resources)}"]
    if not is_path(rule.resources[0]):
        group = rule.group or '""'
        lines = [f"apiGroups: [{group}]", f"resources: {_list(rule.resources)}"]
    if rule.names:
        lines.append(f"resourceNames: {_list(rule.names)}")
    lines.append(f"verbs: {_list(rule.verbs)}")
    return _comment(_sentences(rule), "  ") + "  - " + "\n    ".join(lines) + "\n"


def _sentences(rule: RoleRule) -> str:
    text = f"{rule.task[0].upper()}{rule.task[1:]} ({rule.code})."
    return f"{text} {rule.note}" if rule.note else text


def _list(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"


def _binding(grant: Grant, namespace: str) -> str:
    return (
        f"{_head(grant, f'{role_kind(namespace)}Binding', namespace)}"
        f"roleRef:\n  apiGroup: {_API}\n  kind: {role_kind(namespace)}\n  name: {grant.role}\n"
        f"subjects:\n  - kind: ServiceAccount\n    name: muster\n    namespace: {SYSTEM}\n"
    )


def rights_page(generated: str) -> str:
    """Return docs/reference/rights.md.

    Args:
        generated: the sentence that says how the file is made.
    """
    lines = [
        f"<!-- {generated} -->",
        "# The operator's rights",
        "",
        "What the service account `muster` in `muster-system` may do, by [profile](../profiles.md). A profile has the",
        "rights of those before it, too, and no others. What they are worth to a thief is in [security](../security.md).",
    ]
    for profile in InstallationProfile:
        lines += ["", f"## {profile}"]
        for grant in GRANTS:
            if grant.profile is profile:
                lines += ["", _roles_text(grant), "", *_table(grant)]
    return "\n".join(lines) + "\n"


def _roles_text(grant: Grant) -> str:
    places = [f"Role in `{namespace}`" if namespace else "ClusterRole" for namespace in grant.namespaces]
    condition = f", only with {grant.condition}" if grant.condition else ""
    return f"`{grant.role}` ({', '.join(places)}) of `manifests/{grant.folder}`{condition}:"


def _table(grant: Grant) -> Iterator[str]:
    yield "| resource | namespace | reads | writes | to |"
    yield "|---|---|---|---|---|"
    for rule in grant.rules:
        resources = ", ".join(f"`{resource}`" for resource in rule.resources)
        names = f" named {' or '.join(f'`{name}`' for name in rule.names)}" if rule.names else ""
        reads = ", ".join(verb for verb in rule.verbs if verb in _READS)
        writes = ", ".join(verb for verb in rule.verbs if verb not in _READS)
        namespace = f"`{rule.namespace}`" if rule.namespace else ""
        note = f" {rule.note}" if rule.note else ""
        cells = f"{resources}{names}", namespace, reads, writes, f"{rule.task} (`{rule.code}`).{note}"
        yield f"| {' | '.join(cells)} |"
