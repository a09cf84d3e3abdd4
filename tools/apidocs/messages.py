"""Renders docs/reference/messages.md from the table of reasons and from the alerts, so that one sitting reads all that
Muster says."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from apidocs.cli_errors import cli_errors
from muster.answers.reasons import REASONS, Reason, Topic
from muster.recovery import blame
from muster.recovery.failure import TRAITS, Kind

_HEAD = """<!-- {generated} -->

# Messages

Every reason that Muster writes into a condition, an Event or an incident, in alphabetical order within each chapter.
*Since when* is `lastTransitionTime` of the condition, or the time of the Event. `kubectl muster status JOB` prints the
message with the next steps. [Troubleshooting](../troubleshooting.md) says where to look first.

A reason of a container that waits and is not listed here, such as `CreateContainerConfigError`, is the kubelet's own.
Reasons of findings about nodes are in [node health](../node-health.md) and the [node agent](../node-agent.md). Errors of
`kubectl muster` have no reason; their texts are in the [last chapter](#errors-of-kubectl-muster).

"""

RULES = Path(__file__).resolve().parents[2] / "manifests/components/monitoring/rules.yaml"
JOBS_GROUP = "muster-jobs"
"""The group of the alerts that only profile jobs can raise; those of all other groups are for every profile."""
_ALERTS = "Alerts"
_OF_ALERTS = (
    "Words in capitals are labels of the alert, and N is its figure. [Metrics](../metrics.md#rules-and-alerts) says how to "
    "install the alerts."
)

_ERRORS = "Errors of kubectl muster"
_OF_ERRORS = (
    "A command that fails prints one line on stderr: what happened, and what you can do. Words in capitals stand for a "
    "name or a number, and `...` for a list or for the text of another program. The last part of a line may be left out "
    "where it does not apply. Errors that only quote another program, such as the API server, kubectl or a YAML parser, "
    "are not listed. [The command line](../cli.md) has the commands."
)

_INTRODUCTIONS = {
    Topic.FAILURES: "The class decides which budget pays for the restart:\n"
    "[troubleshooting](../troubleshooting.md#what-was-seen-to-fail) has the rules.",
    Topic.PLANNED: "No budget pays for these moves: their class is Planned.",
    Topic.REPAIRS: "Background: [repairs by others](../node-health.md#repairs-by-others).",
}


def messages(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    chapters = ("\n".join(_chapter(topic)) for topic in Topic)
    alerts = "\n".join(_alerts())
    errors = "\n".join(_errors())
    return (
        _HEAD.format(generated=generated) + _contents() + "\n" + "\n".join([*chapters, alerts, errors]).rstrip() + "\n"
    )


def _contents() -> str:
    titles = [*(topic.value for topic in Topic), _ALERTS, _ERRORS]
    return "".join(f"- [{title}](#{title.lower().replace(' ', '-')})\n" for title in titles)


def _alerts() -> Iterator[str]:
    yield f"## {_ALERTS}"
    yield ""
    yield textwrap.fill(_OF_ALERTS, 120, break_long_words=False, break_on_hyphens=False)
    yield ""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    alerts = [(group["name"], rule) for group in groups for rule in group["rules"] if "alert" in rule]
    for group, rule in sorted(alerts, key=lambda alert: alert[1]["alert"]):
        yield from _alert(rule, "profile jobs" if group == JOBS_GROUP else "every profile")


def _alert(rule: Mapping[str, Any], profiles: str) -> Iterator[str]:
    name, labels, texts = rule["alert"], rule["labels"], rule["annotations"]
    lasts = f" for {rule['for']}" if "for" in rule else ""
    yield f"### {name}"
    yield ""
    yield f"*Prometheus* · severity {labels['severity']}, for the owner `{labels['owner']}` · {profiles}"
    yield ""
    yield _item("What happened", f"{_filled(texts['summary'])}. {_filled(texts['description'])}")
    yield _item("It fires", f"When this holds{lasts}: `{' '.join(rule['expr'].split())}`")
    yield _item("What you can do", f"The runbook [{name}](../runbooks/{name}.md) says what to look at and what to do.")
    yield ""


def _errors() -> Iterator[str]:
    yield f"## {_ERRORS}"
    yield ""
    yield textwrap.fill(_OF_ERRORS, 120, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield "| command | error |"
    yield "|---|---|"
    for command, text in cli_errors():
        yield f"| {f'`{command}`' if command else 'any'} | {text.replace('|', chr(92) + '|').replace('<', '&lt;')} |"


def _filled(template: str) -> str:
    """The text of an annotation, with the names of labels in capitals and N in place of what Prometheus fills in."""
    named = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", lambda found: found[1].upper(), template)
    return " ".join(re.sub(r"\{\{ *\$value\b[^}]*\}\}", "N", named).split())


def _chapter(topic: Topic) -> Iterator[str]:
    yield f"## {topic.value}"
    yield ""
    if topic in _INTRODUCTIONS:
        yield _INTRODUCTIONS[topic]
        yield ""
    for each in sorted((each for each in REASONS if each.topic is topic), key=lambda each: each.names):
        yield from _entry(each)


def _entry(each: Reason) -> Iterator[str]:
    yield f"### {each.names}"
    yield ""
    yield f"*{each.shown}*{_class_of(each)}"
    yield ""
    yield _item("What happened", _linked(each.happened))
    yield _item("What Muster does", _linked(each.muster))
    yield _item("What you can do", _linked(each.reader))
    if each.example:
        yield _item("For example", f"`` {each.example} ``" if "`" in each.example else f"`{each.example}`")
    yield ""


def _item(title: str, text: str) -> str:
    return textwrap.fill(
        f"- **{title}.** {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _class_of(each: Reason) -> str:
    """Who pays for a failure."""
    if each.topic is not Topic.FAILURES:
        return ""
    kinds = [Kind(name) for name in each.each]
    # What a rank's exit is depends on how it exited: blame.py.
    (usual,) = {str(TRAITS[kind].fault_class or "Application or Unknown") for kind in kinds}
    faulty = "; Hardware where its node is faulty" if blame.OF_A_SICK_NODE.issuperset(kinds) else ""
    return f" · class {usual}{faulty}"


def _linked(text: str) -> str:
    """The text with its links, which begin at the root of the repository, as they are on the page."""
    return text.replace("](docs/", "](../").replace("](../reference/", "](")
