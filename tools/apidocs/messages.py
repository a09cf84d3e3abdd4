"""Renders docs/reference/messages.md from the table of reasons, so that one sitting reads all that Muster says."""

import textwrap
from collections.abc import Iterator

from muster.answers.reasons import REASONS, Reason, Topic
from muster.recovery import blame
from muster.recovery.failure import Kind

_HEAD = """<!-- {generated} -->

# Messages

Every reason that Muster writes into a condition, an Event or an incident, in alphabetical order within each chapter.
*Since when* is `lastTransitionTime` of the condition, or the time of the Event. `kubectl muster status JOB` prints the
message with the next steps. [Troubleshooting](../troubleshooting.md) says where to look first.

A reason of a container that waits and is not listed here, such as `CreateContainerConfigError`, is the kubelet's own.
Reasons of findings about nodes are in [node health](../node-health.md) and the [node agent](../node-agent.md).

"""

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
    return _HEAD.format(generated=generated) + _contents() + "\n" + "\n".join(chapters).rstrip() + "\n"


def _contents() -> str:
    return "".join(f"- [{topic.value}](#{topic.value.lower().replace(' ', '-')})\n" for topic in Topic)


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
    (usual,) = {str(blame.CLASSES[kind]) if kind in blame.CLASSES else "Application or Unknown" for kind in kinds}
    faulty = "; Hardware where its node is faulty" if blame.OF_A_SICK_NODE.issuperset(kinds) else ""
    return f" · class {usual}{faulty}"


def _linked(text: str) -> str:
    """The text with its links, which begin at the root of the repository, as they are on the page."""
    return text.replace("](docs/", "](../").replace("](../reference/", "](")
