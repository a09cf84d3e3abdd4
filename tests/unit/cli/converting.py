"""What `kubectl muster convert` makes of a text."""

from typer.testing import CliRunner, Result

from muster.cli.main import app


def from_stdin(text: str, *files: str) -> Result:
    return CliRunner().invoke(app, ["convert", *files, "-"], prog_name="kubectl muster", input=text)


def merged_again(fields: int, times: int) -> str:
    """An object that takes in all fields of another many times."""
    return "a: &a {{{}}}\nb: {{<<: [{}]}}".format(
        ", ".join(f"k{n}: 1" for n in range(fields)), ", ".join(["*a"] * times)
    )


def assert_that_it_is_said_in_a_line(text: str, says: str) -> None:
    """That it cannot be read."""
    found = from_stdin(text)
    assert (found.exit_code, found.stdout) == (1, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"error: {says}")
    assert len(line) < 600


def assert_that_aliases_are_refused(text: str) -> None:
    found = from_stdin(text)
    assert found.exit_code == 1
    assert found.stderr.startswith("error: stdin, document 1 cannot be read: ")
