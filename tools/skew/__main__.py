"""`python -m skew VERSION COMMIT`: keep a release, so that later versions are tested with what it leaves behind."""

import argparse

from release.checks import ReleaseError, require_semantic
from skew.kept import NoHistoryError, keep


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m skew", description=__doc__.partition(": ")[2])
    parser.add_argument("version", help="e.g. 0.2.0")
    parser.add_argument("commit", help="its full hash")
    arguments = parser.parse_args(given)
    try:
        require_semantic(arguments.version)
        release = keep(arguments.version, arguments.commit)
    except (NoHistoryError, ReleaseError) as error:
        raise SystemExit(str(error)) from error
    print(f"wrote {release.file}")


if __name__ == "__main__":
    main()
