"""Reports where a variable that Muster sets had another form in the other system, and where a script sets one itself.

Muster sets the variables of muster.protocol.contract at each start, whatever a manifest says of them. The functions
change their arguments, and note each change.

Tests: tests/unit/convert/test_identity.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.convert.fields import Notes, short
from muster.convert.worker import rewrite_texts, words
from muster.protocol.contract import IDENTITY
from muster.protocol.starters import commands_of

_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR", "JAX_COORDINATOR_IP")
_ENDPOINT = "JAX_COORDINATOR_ADDRESS"
_PORTS = ("MASTER_PORT", "PET_MASTER_PORT", "JAX_COORDINATOR_PORT")
_RANKS = ("RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID")
_NODES = ("NNODES", "PET_NNODES")
_PROCESSES = ("WORLD_SIZE", "JAX_NUM_PROCESSES", "LOCAL_WORLD_SIZE")
_PORT = r":(?:\d+|\$\S+)"
# How a script refers to a variable, and what may stand in the place of its value if it has none.
_NAMED = r"\$(?:\(({0})\)|\{{({0})(?::?-[^}}]*)?\}}|({0})\b)"
_LOOKUP = r"\b(nslookup|dig|getent\s+hosts)\b[^\n;&|]{{0,256}}?\$[({{]?(?:{0})\b[^\s;&|\"']*"
_ALONE = re.compile(r"\$\((\w+)\)")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def convert_forms(
    container: dict[str, Any], env: Iterable[Any], nodes: int, given: Mapping[str, str], notes: Notes
) -> None:
    """Note the variables of the source, `env`, to which Muster gives another form, and replace references where that
    helps. `nodes` is the number of workers. `given` has variables that the other system sets by itself, in another form
    than Muster.
    """
    listed = {str(variable.get("name")): variable for variable in env if isinstance(variable, dict)}
    values = {name: _value_of(name, listed) for name in listed if name in IDENTITY}
    for name, value in values.items():
        with_port = re.search(rf"{_PORT}$", value) is not None
        if name in _ADDRESSES and with_port:
            scheme = "".join(re.findall(r"^\w+://", value))
            _refer(container, name, f"{scheme}%s:%s", ("MASTER_ADDR", "MASTER_PORT"), notes)
            _note(name, value, "an address with a port", "the address alone; MASTER_PORT has the port", notes)
        elif name == _ENDPOINT and value and not with_port:
            _refer(container, name, "%s", ("MASTER_ADDR",), notes)
            _note(name, value, "a host without a port", "ADDRESS:PORT; MASTER_ADDR has the address alone", notes)
        elif name in _PORTS and value and not value.isdecimal() and "$" not in value:
            _note(name, value, "no number", "a number", notes)
        elif name in _NODES and value.isdecimal() and int(value) != nodes:
            _note(name, value, f"another number than that of the pods, {nodes}", f"{nodes}, the number of nodes", notes)
    for name in _RANKS:
        if re.search(r"'metadata\.name'", str(listed.get(name, {}).get("valueFrom"))):
            _note(name, short(listed[name]["valueFrom"]), "the name of a pod", "a number, from 0", notes)
    _note_counts(container, values, given, nodes, notes)


def _value_of(name: str, listed: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the value of a variable, or of the one that is its whole value; "": it is not known."""
    value = str(listed[name].get("value", ""))
    alone = _ALONE.fullmatch(value)
    return str(listed.get(alone[1], {}).get("value", "")) if alone else value


def _note(name: str, value: str, old_form: str, now: str, notes: Notes) -> None:
    notes.check.append(f"env {name}: {short(value)}: it was {old_form}, and is {now}: change what reads the old form")


def _refer(container: dict[str, Any], name: str, form: str, names: Sequence[str], notes: Notes) -> None:
    """Let the container refer to other variables in the place of this one, unless it sets it itself."""
    pattern = re.compile(rf"(?<![$\\])(?:\$\({name}\)|\$\{{{name}\}}|\${name}\b)")

    def replaced(word: Any, where: str) -> Any:
        if not isinstance(word, str) or not pattern.search(word) or re.search(_setting(name), word):
            return word

        def written(match: re.Match[str]) -> str:
            left, right = ("$(", ")") if match.group()[1] == "(" else ("${", "}")
            return form % tuple(f"{left}{variable}{right}" for variable in names)

        notes.became.append(f"{where}: ${name} -> {form % tuple(f'${variable}' for variable in names)}")
        return pattern.sub(written, word)

    rewrite_texts(container, replaced)


def _note_counts(
    container: Mapping[str, Any], values: Mapping[str, str], given: Mapping[str, str], nodes: int, notes: Notes
) -> None:
    """Note counts of processes that the container's own script reads: Muster sets another number."""
    command = words(container)
    texts = "\n".join([*command, *(str(variable.get("value")) for variable in container.get("env") or ())])
    for name in _PROCESSES:
        wanted, set_count = values.get(name) or given.get(name, ""), 1 if name == "LOCAL_WORLD_SIZE" else nodes
        is_read = re.search(rf"\b{name}\b(?!=)", texts) is not None
        # torchrun and the like set the number themselves, for the processes that they start.
        is_used = is_read or (name in values and not commands_of(command))
        if wanted.isdecimal() and int(wanted) != set_count and is_used:
            notes.check.append(
                f"env {name}: {wanted}: Muster starts one process on each of {nodes} nodes, and tells it "
                f"{name}={set_count}: where a script starts several on each node by itself, let it set {name}={wanted} "
                "for them, or let it start one and write how many in spec.launch.processesPerNode; where it counts "
                "nodes by it, let it read NNODES"
            )


def note_scripts(container: Mapping[str, Any], notes: Notes) -> None:
    """Note where a script sets an address that Muster sets, or looks one up as if it were a name."""
    values = {str(variable.get("name")): str(variable.get("value")) for variable in container.get("env") or ()}
    holding = [*_ADDRESSES, _ENDPOINT, *(name for name, value in values.items() if value == "$(MASTER_ADDR)")]
    either = "|".join(map(re.escape, holding))
    taken_over = re.compile(rf"[\"']?{_NAMED.format(either)}(?:{_PORT})?[\"']?(?=[\s;&|)]|$)")
    for script in (_COMMENT.sub("", word) for word in words(container)):
        for name in (*_ADDRESSES, _ENDPOINT):
            for match in re.finditer(_setting(name), script):
                if not taken_over.match(script, match.end()):
                    line = script[match.end() :].partition("\n")[0]
                    notes.check.append(
                        f"{name}={short(line)}: the script sets it in the place of Muster, which has set it to where "
                        "rank 0 is: take that out"
                    )
                    script = script.replace(line, " " * len(line))
        for match in re.finditer(_LOOKUP.format(either), script):
            notes.check.append(
                f"{short(match.group())}: Muster gives an address and no name, of which {match.group(1)} may find "
                "nothing: write $MASTER_ADDR in the place of what it finds"
            )


def _setting(name: str) -> str:
    """Return a pattern of an assignment in a script, up to its value."""
    prefix = r"(?:^|[;&|({]|\b(?:export|declare|readonly|local|typeset|env|then|do|else)\b)[ \t]*(?:-\w+[ \t]+)?"
    return rf"(?m:{prefix}(?:\w{{1,64}}=[^\s;&|]{{0,256}}[ \t]{{1,8}}){{0,8}}){name}="
