"""Remove secrets from what other people see: bug reports, and the last lines of ranks in messages. Pure.

By structure, where objects say what a value is: values of variables, inline options of volumes, annotations that hold
whole manifests. By literal, where such a value recurs elsewhere (a log, an argument, a message). And by shape, where a
text has what resembles a token, a key or a password. Too much is removed rather than too little: names stay, values do
not.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from muster.world.views import READ_ANNOTATIONS

GONE = "<redacted>"
# Shorter values are frequent words and numbers: without them a text would be unreadable.
LEAST_LITERAL = 8
_MAX_NAME_CHARS = 128
# Annotations whose values are Muster's or Kubernetes' own. Those of nodes that decisions are made of stay as well; the
# values of others are removed.
_KNOWN_ANNOTATIONS = re.compile(r"(?:[a-z0-9-]+\.)*muster\.dev/.*|deployment\.kubernetes\.io/revision")
# Values of these keys anywhere in an object are removed, with all that is below them.
_SECRET_KEYS = re.compile(
    r"(?i)^(?:data|stringData|binaryData|caBundle|volumeAttributes|nodePublishSecretRef|httpHeaders|password|passwd|token|secret"
    r"|managedFields|flexVolume|auth|.*(?:password|apikey|accesskey|secretkey|credential|privatekey))$"
)
# Forty hexadecimal digits that are no key: the revision of a program.
_REVISIONS = frozenset({"gitCommit", "revision"})
_REVISION = re.compile(r"[0-9a-f]{40}")
# The repetitions of each pattern are bounded, or begin only where nothing like it precedes: a hostile log costs no more
# than another. A trainer's log is full of tokens that are no secrets, and of small numbers of them.
_NAMES = r"(?:token(?!s|iz)|secret|passw(?:or)?d|passphrase|(?:api|access|account|private)[-_]?key|credential|(?<![A-Za-z0-9])pwd(?!\s*[=:]\s*/))[\w.-]{0,64}"  # noqa: E501
# For these names a small number is a secret, too.
_PASSWORDS = r"(?:passw(?:or)?d|passphrase|(?<![A-Za-z0-9])pwd(?!\s*[=:]\s*/))[\w.-]{0,64}"
# Variables of a shell with such names by habit: DB_PASS=..., MYSQL_PWD=..., NGC_API_AUTH=..., db_pass=...
_VARIABLES = (
    r"(?<![\w$])(?:[A-Z0-9_]{0,64}(?:PASS|_PWD|KEY|AUTH|CREDS?)|[a-z0-9_]{1,64}_(?:pass|pwd|auth|creds?))=(?!\s)"
)
# A text may be JSON within JSON: its quotes are escaped.
_ANY_VALUE = r"(\\?\"[^\"\n]*\"|\\?'[^'\n]*'|[^\s\"']+)"
_VALUE = rf"(?!\d{{1,9}}\b){_ANY_VALUE}"
_SECRET_VARIABLE = re.compile(rf"(?i).*{_NAMES}|(?:\w+_)?(?:pass|pwd|key|auth|creds?)\Z")
_NAMING_ARGUMENT = re.compile(rf"(?i)--?[\w.-]{{0,64}}(?:{_NAMES}|key)")
_LOGIN_ARGUMENTS = frozenset({"-u", "--user", "--proxy-user"})
"""Options of curl and others before USER:PASSWORD. Python's own -u has the name of a file behind it."""
_SHAPES = (
    # Blocks of PEM, whatever they contain.
    (re.compile(r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)", re.DOTALL), GONE),
    # RFC 7519 (JWT), RFC 6750 (Bearer), RFC 7617 (Basic).
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), GONE),
    (re.compile(r"(?i)((?:authorization|cookie)\\?[\"']?\s{0,4}[=:]\s{0,4})\\?[\"']?[^\n\"']+"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}[\w.~+/=-]{12,}"), rf"\1 {GONE}"),
    # User and password in an URL (RFC 3986), and signatures in its query.
    (re.compile(r"(?<![\w+.-])([a-z][a-z0-9+.-]{0,30}://)[^\s/]{1,512}@", re.IGNORECASE), rf"\1{GONE}@"),
    (
        re.compile(r"(?<![\w+.-])([a-z][a-z0-9+.-]{0,30}://)[^\s/:@\"']{0,256}:[^\s\"']{1,512}@", re.IGNORECASE),
        rf"\1{GONE}@",
    ),
    # The same as an argument of curl and others, in a script or in what a shell traces. 1000:1000 is a container's
    # user.
    (
        re.compile(
            r"((?<![\w-])(?:-u|--user|--proxy-user)(?:\s{1,4}|=)[\"']?)(?!\d+:\d+\b)[^\s:\"']{1,256}:(?!//)[^\s\"']{1,512}"
        ),
        rf"\1{GONE}",
    ),
    (re.compile(r"(?i)(https://hooks\.slack\.com/)[\w/-]{1,256}"), rf"\1{GONE}"),
    # ~/.netrc, and registries' logins in a Docker configuration.
    (re.compile(r"(?i)(\blogin\s{1,8}\S{1,256}\s{1,8}password\s{1,8})\S+"), rf"\1{GONE}"),
    (re.compile(r"(\\?\"auth\\?\"\s{0,4}:\s{0,4}\\?\")[\w+/=-]{8,}"), rf"\1{GONE}"),
    (re.compile(r"(?i)([?&](?:x-amz-[\w-]{1,64}|x-goog-[\w-]{1,64}|sig|signature|key)=)[^&\s\"']+"), rf"\1{GONE}"),
    # Prefixes that vendors publish for secret scanners.
    (
        re.compile(
            r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,64}|hf_\w{16,}|sk-[\w-]{16,200}"
            r"|xox[abprs]-[\w-]{8,200}|AIza[\w-]{30,64}|ya29\.[\w-]{16,400}|npm_\w{16,}|nvapi-[\w-]{12,200}|wandb_v\d_\w{12,200}|pypi-[\w-]{16,400}|dckr_pat_[\w-]{16,64})"
        ),
        GONE,
    ),
    # name=value, name: value, "name": "value", --name value, where the name says what it is.
    (re.compile(rf"(?i)({_NAMES}\\?[\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)({_PASSWORDS}\\?[\"']?\s{{0,4}}[=:]\s{{0,4}}){_ANY_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"({_VARIABLES}){_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"((?<![\w$])[A-Z0-9_]{{0,64}}(?:PASS|_PWD)=){_ANY_VALUE}"), rf"\1{GONE}"),
    # ('name', 'value'), as Python prints the items of a mapping.
    (re.compile(rf"(?i)([\"'][\w.-]{{0,64}}{_NAMES}[\"']\s{{0,4}},\s{{0,4}})(\"[^\"\n]*\"|'[^'\n]*')"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?<![\w.-])--[\w.-]{{0,64}}{_NAMES}\s{{1,4}})(?!-){_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?<![\w.-])--[\w.-]{{0,64}}{_PASSWORDS}\s{{1,4}})(?!-){_ANY_VALUE}"), rf"\1{GONE}"),
    (re.compile(rf"(?i)((?<![\w.-])--[\w.-]{{0,64}}key(?:=|\s{{1,4}}))(?!-){_VALUE}"), rf"\1{GONE}"),
    # Length and letters of a key: 40 hexadecimal digits, as of W&B.
    (re.compile(r"(?<![\w:])[0-9a-f]{40}(?![0-9a-f])"), GONE),
)


_END_OF_PEM = re.compile(r"-----END [A-Z0-9 ]{1,64}-----")
_LINE_OF_PEM = re.compile(r"(?:\S{1,64}\s)?[ \t]{0,64}[A-Za-z0-9+/=]{1,76}\s*")
"""The log's own timestamp may precede it."""


def values_of(manifest: Any) -> Iterator[str]:
    """Yield the literal values of variables in an object, however deep its pods are: they are removed from texts,
    too.

    Muster's own say nothing that the manifest of a job does not: its checkpoint directory, names.
    """
    return (
        value
        for name, value in _variables_of(manifest)
        if not name.startswith("MUSTER_") or _SECRET_VARIABLE.match(name[:_MAX_NAME_CHARS])
    )


def _variables_of(manifest: Any) -> Iterator[tuple[str, str]]:
    if isinstance(manifest, Mapping):
        for key, value in manifest.items():
            if key == "env" and isinstance(value, list):
                for variable in value:
                    if isinstance(variable, Mapping) and isinstance(variable.get("value"), str):
                        yield str(variable.get("name")), variable["value"]
            else:
                yield from _variables_of(value)
    elif isinstance(manifest, list):
        for item in manifest:
            yield from _variables_of(item)


def without_secrets(text: str, containers: list[dict[str, Any]]) -> str:
    """Return a container's output without secrets, for other users.

    Values of its variables stay unless the variable's name suggests a secret: without paths and names of models a
    message would be useless.
    """
    secrets = (value for name, value in _variables_of(containers) if _SECRET_VARIABLE.match(name[:_MAX_NAME_CHARS]))
    return _redacted(text, frozenset(secrets))


@lru_cache(maxsize=1024)
def _redacted(text: str, literals: frozenset[str]) -> str:
    """Redact a text; results are kept, because each decision asks again until a job has recovered."""
    return Redactor(literals).text(text)


class Redactor:
    """Removes secrets from texts and objects.

    Args:
        literals: values to remove everywhere.

    Attributes:
        count: how many values it has removed so far.
    """

    def __init__(self, literals: Iterable[str] = ()) -> None:
        parts = {part.strip() for literal in literals for part in {literal, *literal.splitlines()}}
        self._literals = frozenset(part for part in parts if len(part) >= LEAST_LITERAL)
        self._alike: dict[str, list[str]] = {}  # by their first characters, in order
        # Of those with which a literal begins, itself among them, the longest last.
        self._lengths: dict[str, list[int]] = {}
        self._longest = max(map(len, self._literals), default=0)
        begins: list[str] = []
        for literal in sorted(self._literals):
            while begins and not literal.startswith(begins[-1]):
                begins.pop()
            begins.append(literal)
            self._alike.setdefault(literal[:LEAST_LITERAL], []).append(literal)
            self._lengths[literal] = [len(begin) for begin in begins]
        self.count = 0

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._without_literals(text) if self._literals else text
        for shape, instead in _SHAPES:
            text, times = shape.subn(instead, text)
            self.count += times
        return self._without_rests_of_keys(text)

    def _without_literals(self, text: str) -> str:
        """Remove the literals, found by their first characters: thousands of them take no longer than one."""
        begins, kept, after = self._alike, list[str](), 0
        for at in [at for at in range(len(text) - LEAST_LITERAL + 1) if text[at : at + LEAST_LITERAL] in begins]:
            if at < after:
                continue
            length = self._length_at(text, at)
            if length:
                kept += text[after:at], GONE
                after = at + length
                self.count += 1
        return "".join([*kept, text[after:]])

    def _length_at(self, text: str, at: int) -> int:
        """The length of the longest literal that stands here; 0 = none.

        The literal before the text, in the order of both, has the longest beginning in common with it. To try one after
        the other would take a job with hundreds of values that begin alike half a second of the leader's loop.
        """
        alike = self._alike[text[at : at + LEAST_LITERAL]]
        rest = text[at : at + self._longest]
        place = bisect_right(alike, rest)
        if not place:
            return 0
        nearest = alike[place - 1]
        lengths = self._lengths[nearest]
        fitting = bisect_left(lengths, True, key=lambda length: not rest.startswith(nearest[:length]))
        return lengths[fitting - 1] if fitting else 0

    def _without_rests_of_keys(self, text: str) -> str:
        """Remove blocks of PEM whose beginning was cut off with the older part of a log."""
        ends = list(_END_OF_PEM.finditer(text))
        if not ends:
            return text
        kept, after = list[str](), 0
        for end in ends:
            begin = max(text.rfind("\n", after, end.start()) + 1, after)
            lines = text[after:begin].splitlines(keepends=True)
            while lines and _LINE_OF_PEM.fullmatch(lines[-1]):
                lines.pop()
            kept += "".join(lines), GONE
            after = end.end()
            self.count += 1
        return "".join([*kept, text[after:]])

    def object(self, value: Any) -> Any:
        """Return an object without secrets: same shape, same names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return self._list(value)
        if not isinstance(value, Mapping):
            return value
        return {key: self._field(str(key), item) for key, item in value.items() if key != "managedFields"}

    def _list(self, listed: list[Any]) -> list[Any]:
        """Redact a list of objects, or of arguments, where one may name the next one."""
        redacted: list[Any] = []
        for place, item in enumerate(listed):
            previous = listed[place - 1] if place else None
            if not (isinstance(item, str) and isinstance(previous, str)):
                redacted.append(self.object(item))
            elif _NAMING_ARGUMENT.fullmatch(previous) or (previous in _LOGIN_ARGUMENTS and ":" in item[1:]):
                redacted.append(self._gone())
            else:
                redacted.append(self.object(item))
        return redacted

    def _field(self, key: str, value: Any) -> Any:
        if key == "env" and isinstance(value, list):
            return [self._variable(variable) for variable in value]
        if key == "annotations" and isinstance(value, Mapping):
            return {name: self._annotation(str(name), text) for name, text in value.items()}
        if key in _REVISIONS and isinstance(value, str) and _REVISION.fullmatch(value):
            return value
        if _SECRET_KEYS.match(key) and value not in (None, "", [], {}) and not _is_reference(value):
            return self._gone()
        return self.object(value)

    def _variable(self, variable: Any) -> Any:
        if not isinstance(variable, Mapping) or "value" not in variable:
            return self.object(variable)
        return {**{key: value for key, value in variable.items() if key != "value"}, "value": self._gone()}

    def _annotation(self, name: str, value: Any) -> Any:
        is_known = name in READ_ANNOTATIONS or _KNOWN_ANNOTATIONS.fullmatch(name)
        return self.object(value) if is_known else self._gone()

    def _gone(self) -> str:
        self.count += 1
        return GONE


def _is_reference(value: Any) -> bool:
    """Whether a value only refers to a secret: a Secret's name, or a volume of one."""
    return isinstance(value, Mapping) and set(value) <= {
        "name",
        "key",
        "optional",
        "secretName",
        "defaultMode",
        "items",
        "namespace",
    }
