"""Writes merged documents as templates of Helm.

A document is dumped as YAML with a placeholder wherever a template computes something, and each placeholder is then
replaced, line by line. What the documents themselves have of Helm's braces is quoted before.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from chart.merge import Choice, Expression, FromValues, When, condition

_LINE = re.compile(r"^( *)(?:- )?<<muster:(\d+)>>(?:: null)?$", re.MULTILINE)
_INLINE = re.compile(r"<<muster:(\d+)>>")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


class _Emitter:
    """Keeps what stands for each placeholder of one document."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def placeholder(self, text: str) -> str:
        self._texts.append(text)
        return f"<<muster:{len(self._texts) - 1}>>"

    def plain(self, part: Any) -> Any:
        """The part as YAML can write it."""
        match part:
            case dict():
                return self._fields(part)
            case list():
                return [line for each in part for line in self._entry(each)]
            case Choice(options):
                return self.placeholder(_choice(options))
            case Expression(text):
                return self.placeholder(text)
        return part

    def _fields(self, part: dict[str, Any]) -> dict[str, Any]:
        """The fields, first those that are always there: a line of a template may not follow the dash of an entry."""
        last = {name: each for name, each in part.items() if isinstance(each, When | FromValues)}
        result = {name: self.plain(each) for name, each in part.items() if name not in last}
        for name, each in last.items():
            if isinstance(each, FromValues):
                result[self.placeholder(_from_values(name, each))] = None
            else:
                result[self.placeholder(f"{{{{- if {condition(each)} }}}}")] = None
                result[name] = self.plain(each.part)
                result[self.placeholder("{{- end }}")] = None
        return result

    def _entry(self, each: Any) -> list[Any]:
        if isinstance(each, FromValues):
            return [self.placeholder(_entries_from_values(each))]
        if not isinstance(each, When):
            return [self.plain(each)]
        begin = self.placeholder(f"{{{{- if {condition(each)} }}}}")
        return [begin, self.plain(each.part), self.placeholder("{{- end }}")]

    def written(self, document: Any) -> str:
        dumped = yaml.dump(self.plain(document), Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
        quoted = dumped.replace("{{", '{{ "{{" }}')
        lines = _LINE.sub(lambda match: _line(match[1], self._texts[int(match[2])]), quoted)
        return _INLINE.sub(lambda match: self._texts[int(match[1])], lines)


def _line(indent: str, text: str) -> str:
    here = len(indent)
    return text.replace("<indent>", indent).replace("<here>", str(here)).replace("<deeper>", str(here + 2))


def _from_values(name: str, value: FromValues) -> str:
    """A field whose value is not empty."""
    is_block = value.default is None or isinstance(value.default, dict | list)
    written = "\n<indent>  {{- toYaml . | nindent <deeper> }}" if is_block else " {{ . }}"
    return f"{{{{- with $.Values.{value.path} }}}}\n<indent>{name}:{written}\n{{{{- end }}}}"


def _entries_from_values(value: FromValues) -> str:
    """Further entries of a list."""
    return f"{{{{- with $.Values.{value.path} }}}}\n<indent>{{{{- toYaml . | nindent <here> }}}}\n{{{{- end }}}}"


def _choice(options: tuple[When, ...]) -> str:
    """The scalar of each variant; the last is what is left."""
    *first, last = options
    parts = [f"{{{{ {'else ' * (at > 0)}if {condition(each)} }}}}{each.part}" for at, each in enumerate(first)]
    return "".join([*parts, f"{{{{ else }}}}{last.part}{{{{ end }}}}"])


def template(when: When) -> str:
    """The template of a document, and of when it is rendered."""
    text = _Emitter().written(when.part)
    if when.variants == when.among:
        return text
    return f"{{{{- if {condition(when)} }}}}\n{text}{{{{- end }}}}\n"
