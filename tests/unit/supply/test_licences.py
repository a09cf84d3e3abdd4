"""Licences are told where a program can tell, and said to be unknown where not."""

from email.parser import Parser

import pytest
from tests.unit.supply.archives import copyright_of

from supply import licences


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["GPL-2+"], "GPL-2.0-or-later"),
        (["GPL-3"], "GPL-3.0-only"),
        (["LGPL-2.1+", "Expat"], "LGPL-2.1-or-later AND MIT"),
        (["LGPL-3.0+", "LGPL-3+"], "LGPL-3.0-or-later"),
        (["GPL-2.0-only"], "GPL-2.0-only"),
        (["Artistic or GPL-1+", "Zlib"], "(Artistic-1.0-Perl OR GPL-1.0-or-later) AND Zlib"),
        (["Expat", "public-domain"], ""),
        (["GPL-3+ with Bison exception"], ""),
        (["MIT/X11"], ""),
        ([], ""),
    ],
)
def test_debians_names(names: list[str], expression: str) -> None:
    assert licences.from_debian(names) == expression


@pytest.mark.parametrize(
    ("metadata", "expression"),
    [
        ("License-Expression: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        ("License: BSD-3-Clause", "BSD-3-Clause"),
        ("License: see the file", ""),
        ("License: MIT license\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License", ""),
        ("Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: Other", ""),
        ("Classifier: Programming Language :: Python", ""),
    ],
)
def test_metadata_of_distributions(metadata: str, expression: str) -> None:
    assert licences.from_metadata(Parser().parsestr(f"Name: x\n{metadata}\n")) == expression


@pytest.mark.parametrize(
    ("copyright_file", "copyleft"),
    [
        (copyright_of("Expat", "GPL-2+"), True),
        (copyright_of("LGPL-2.1"), True),
        (copyright_of("Expat", "BSD-3-clause"), False),
        # Of a text that names its licences the names decide: this one mentions the GPL and is not under it.
        (copyright_of("Expat") + "Comment: compatible with the GPL\n", False),
        ("This is free software under the GNU General Public License, version 2.", True),
        ("Do as you like.", False),
        ("", True),
    ],
)
def test_whose_sources_are_offered(copyright_file: str, copyleft: bool) -> None:
    assert licences.is_copyleft(copyright_file) is copyleft
