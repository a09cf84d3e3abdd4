"""The syntax trees of the repository's own modules, for tests that read them: each is made once in a process."""

import ast
import functools


@functools.cache
def parse(source: str) -> ast.Module:
    """The tree of a module. All tests share it: none may change it."""
    return ast.parse(source)


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, each before its children."""
    return tuple(ast.walk(parse(source)))
