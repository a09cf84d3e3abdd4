"""The errors of the command line that the page of messages lists."""

from types import ModuleType

from apidocs.cli_errors import cli_errors, errors_in
from apidocs.messages import messages

CODE = """
def show(name, level):
    where = f" in {level}" if level else ""
    if not name:
        raise CliError(f"no job {name!r}{where}: {_REMEDY}")
    raise typer.BadParameter("choose " + ", ".join(name))


def read(error):
    raise CliError(str(error))
"""


def test_values_are_placeholders_and_constants_are_not() -> None:
    module = ModuleType("module")
    vars(module)["_REMEDY"] = "create it"
    assert sorted(errors_in(module, CODE)) == ["choose NAME ...", "no job 'NAME' in LEVEL: create it"]


def test_every_command_s_errors_are_on_the_page() -> None:
    page, found = messages(""), cli_errors()
    assert len(found) > 80
    assert [each for each in found if each.text.replace("|", "\\|").replace("<", "&lt;") not in page] == []
    texts = {each.text for each in found}
    assert "there is no node ...: did you mean ...? Nothing was changed" in texts
    assert any(each.command == "fork" and each.text.startswith("job ") for each in found)
