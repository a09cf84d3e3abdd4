"""Tells licences in the words of SPDX where a package states them so that a program can tell, and says so where not."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from email.message import Message
from typing import Any

from debian.copyright import Copyright, MachineReadableFormatError, NotMachineReadableError
from license_expression import ExpressionError, ParseError, get_spdx_licensing

logging.getLogger("debian.copyright").setLevel(logging.ERROR)  # it reads old forms all the same
_SPDX = get_spdx_licensing()
# Sources of these have to be offered. Where a package states its licence in prose, its words decide.
_COPYLEFT = re.compile(
    r"\b[AL]?GPL|General Public Licen[cs]e|\bMPL|Mozilla Public|\bEPL|\bCDDL|Sleepycat", re.IGNORECASE
)
_GNU = re.compile(r"(A?GPL|LGPL)-?v?(\d)(\.\d)?(?:\.0)?(\+|-or-later|-only)?", re.IGNORECASE)
_DEBIAN_NAMES = {
    "artistic": "Artistic-1.0-Perl",
    "expat": "MIT",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "gpl": "GPL-1.0-or-later",
    "lgpl": "LGPL-2.0-or-later",
    "zlib": "Zlib",
}
# Of classifiers, those that mean one licence; "BSD License" means three.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def debian_names(copyright_file: str) -> list[str]:
    """The licences that a machine-readable copyright file names, in Debian's words; none of another file."""
    try:
        read = Copyright(copyright_file.splitlines(keepends=True), strict=False)
        # The type that python-debian states for it is that of the descriptor behind it.
        stated: list[Any] = [part.license for part in read.all_files_paragraphs()]
    except (NotMachineReadableError, MachineReadableFormatError, ValueError):
        return []
    return sorted({licence.synopsis.strip() for licence in stated if licence} - {""})


def is_copyleft(copyright_file: str) -> bool:
    """Whether a package is, in whole or in part, under a licence that asks for its source. Unknown ones count."""
    names = debian_names(copyright_file)
    return not copyright_file or bool(_COPYLEFT.search("\n".join(names) or copyright_file))


def from_debian(names: Iterable[str]) -> str:
    """An SPDX expression of Debian's names; empty where one of them has none, and without names."""
    found = sorted({_from_synopsis(name) for name in names})
    return " AND ".join(f"({each})" if " OR " in each else each for each in found) if all(found) else ""


def from_metadata(metadata: Message) -> str:
    """An SPDX expression from a Python distribution's metadata; empty where it states none that a program can tell."""
    stated = [str(metadata[field]) for field in ("License-Expression", "License") if metadata[field]]
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if "License ::" in line]
    mapped = [_CLASSIFIERS.get(each, "") for each in classifiers]
    candidates = [*stated, " OR ".join(mapped) if mapped and all(mapped) else ""]
    return next((each for each in candidates if is_expression(each)), "")


def is_expression(text: str) -> bool:
    """Whether SPDX knows each licence in this expression."""
    try:
        return _SPDX.parse(text, validate=True) is not None
    except (ExpressionError, ParseError):
        return False


def _from_synopsis(name: str) -> str:
    words = re.split(r" (and|or) ", name)
    text = " ".join(part.upper() if part in ("and", "or") else _from_name(part) for part in words)
    return text if is_expression(text) else ""


def _from_name(name: str) -> str:
    found = _GNU.fullmatch(name)
    if found:
        later = "-or-later" if found[4] in ("+", "-or-later") else "-only"
        return f"{found[1].upper()}-{found[2]}{found[3] or '.0'}{later}"
    return _DEBIAN_NAMES.get(name.lower(), name)
