"""`python -m skew VERSION COMMIT`: keep a release, so that later versions are tested with what it leaves behind."""

import argparse

from skew.kept import NoHistoryError, keep


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m skew", description=__doc__.partition(": ")[2])
    parser.add_argument("version", help="e.g. 0.2.0")
    parser.add_argument("commit", help="its full hash")
    arguments = parser.parse_args()
    try:
        release = keep(arguments.version, arguments.commit)
    except NoHistoryError as error:
        raise SystemExit(str(error)) from error
    print(f"wrote {release.file}")


if __name__ == "__main__":
    main()
