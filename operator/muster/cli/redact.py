"""What must not leave the cluster in a report of a defect is taken out: pure.

By structure, where objects say what a value is: values of variables, inline options of volumes, annotations that hold whole
manifests. By literal, where such a value turns up elsewhere (a log, an argument, a message). And by shape, where a text has what looks like
a token, a key or a password. Rather too much than too little: names stay, values go.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

GONE = "<redacted>"
# Shorter values are words and numbers that are everywhere: to take them out of texts would leave nothing to read.
LEAST_LITERAL = 8
MAX_LITERALS = 256
# Annotations whose values are Muster's or Kubernetes' own words; the values of others go.
_KNOWN_ANNOTATIONS = re.compile(r"(?:[a-z0-9-]+\.)*muster\.dev/.*|deployment\.kubernetes\.io/revision")
# Values of these keys anywhere in an object go, whatever is below them.
_SECRET_KEYS = re.compile(
    r"(?i)^(?:data|stringData|binaryData|caBundle|volumeAttributes|nodePublishSecretRef|httpHeaders|password|passwd|token|secret"
    r"|managedFields|.*(?:password|apikey|accesskey|secretkey|credential|privatekey))$"
)
# Of each pattern what may repeat is bounded, or begins only where nothing like it stands before: a hostile log costs no more than another.
# A trainer's log is full of tokens that are none, and of small numbers of them.
_NAMES = r"(?:token(?!s|iz)|secret|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credential)[\w.-]{0,64}"
# A text may be JSON within JSON: its quotes are escaped.
_VALUE = r"(?!\d{1,9}\b)(\\?\"[^\"\n]*\"|\\?'[^'\n]*'|[^\s\"']+)"
_NAMING_ARGUMENT = re.compile(rf"(?i)--?[\w.-]{{0,64}}(?:{_NAMES}|key)")
_SHAPES = (
    # Blocks of PEM, whatever they hold.
    (re.compile(r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)", re.DOTALL), GONE),
    # RFC 7519 (JWT), RFC 6750 (Bearer), RFC 7617 (Basic).
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), GONE),
    (re.compile(r"(?i)((?:authorization|cookie)\\?[\"']?\s{0,4}[=:]\s{0,4})\\?[\"']?[^\n\"']+"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}[\w.~+/=-]{12,}"), rf"\1 {GONE}"),
    # User and password in an URL (RFC 3986), and signatures in its query.
    (re.compile(r"(?<![\w+.-])([a-z][a-z0-9+.-]{0,30}://)[^\s/]{1,512}@", re.IGNORECASE), rf"\1{GONE}@"),
    (re.compile(r"(?i)([?&](?:x-amz-[\w-]{1,64}|x-goog-[\w-]{1,64}|sig|signature|key)=)[^&\s\"']+"), rf"\1{GONE}"),
    # Prefixes by which their makers let scanners know them.
    (
        re.compile(
            r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,64}|hf_\w{16,}|sk-[\w-]{16,200}"
            r"|xox[abprs]-[\w-]{8,200}|AIza[\w-]{30,64}|ya29\.[\w-]{16,400}|npm_\w{16,}|pypi-[\w-]{16,400}|dckr_pat_[\w-]{16,64})"
        ),
        GONE,
    ),
    # name=value, name: value, "name": "value", --name value, where the name says what it is.
    (re.compile(rf"(?i)({_NAMES}\\?[\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?<![\w.-])--[\w.-]{{0,64}}{_NAMES}\s{{1,4}})(?!-){_VALUE}"), rf"\1{GONE}"),
    # What has the length and the letters of a key: 40 hexadecimal digits, as of W&B.
    (re.compile(r"(?<![\w:])[0-9a-f]{40}(?![0-9a-f])"), GONE),
)


def values_of(manifest: Any) -> Iterator[str]:
    """The literal values of variables in an object, however deep its pods are: what has to go from texts, too."""
    if isinstance(manifest, Mapping):
        for key, value in manifest.items():
            if key == "env" and isinstance(value, list):
                for each in value:
                    if isinstance(each, Mapping) and isinstance(each.get("value"), str):
                        yield each["value"]
            else:
                yield from values_of(value)
    elif isinstance(manifest, list):
        for each in manifest:
            yield from values_of(each)


class Redactor:
    """Takes out what must not leave.

    Args:
        literals: values that must not be anywhere.

    Attributes:
        count: how much it has taken out so far.
    """

    def __init__(self, literals: Iterable[str] = ()) -> None:
        found = Counter(
            part.strip()
            for each in literals
            for part in {each, *each.splitlines()}
            if len(part.strip()) >= LEAST_LITERAL
        )
        # What all pods of a job have counts before what each has of its own. What contains another comes first: its rest would be left.
        known = sorted((text for text, _ in found.most_common(MAX_LITERALS)), key=len, reverse=True)
        self._literals = re.compile("|".join(map(re.escape, known))) if known else None
        self.count = 0

    def text(self, text: str) -> str:
        """A text without them."""
        if self._literals is not None:
            text, times = self._literals.subn(GONE, text)
            self.count += times
        for shape, instead in _SHAPES:
            text, times = shape.subn(instead, text)
            self.count += times
        return text

    def object(self, value: Any) -> Any:
        """An object without them: same shape, same names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return self._list(value)
        if not isinstance(value, Mapping):
            return value
        return {key: self._field(str(key), each) for key, each in value.items() if key != "managedFields"}

    def _list(self, listed: list[Any]) -> list[Any]:
        """A list of objects, or of arguments, of which one may name what the next one is."""
        found: list[Any] = []
        for place, each in enumerate(listed):
            before = listed[place - 1] if place else None
            if isinstance(each, str) and isinstance(before, str) and _NAMING_ARGUMENT.fullmatch(before):
                found.append(self._gone())
            else:
                found.append(self.object(each))
        return found

    def _field(self, key: str, value: Any) -> Any:
        if key == "env" and isinstance(value, list):
            return [self._variable(each) for each in value]
        if key == "annotations" and isinstance(value, Mapping):
            return {name: self._annotation(str(name), each) for name, each in value.items()}
        if _SECRET_KEYS.match(key) and value not in (None, "", [], {}) and not _is_reference(value):
            return self._gone()
        return self.object(value)

    def _variable(self, each: Any) -> Any:
        if not isinstance(each, Mapping) or "value" not in each:
            return self.object(each)
        return {**{key: value for key, value in each.items() if key != "value"}, "value": self._gone()}

    def _annotation(self, name: str, value: Any) -> Any:
        return self.object(value) if _KNOWN_ANNOTATIONS.fullmatch(name) else self._gone()

    def _gone(self) -> str:
        self.count += 1
        return GONE


def _is_reference(value: Any) -> bool:
    """Whether it only names where the value is: a Secret's name, or a volume of one."""
    return isinstance(value, Mapping) and set(value) <= {
        "name",
        "key",
        "optional",
        "secretName",
        "defaultMode",
        "items",
        "namespace",
    }
