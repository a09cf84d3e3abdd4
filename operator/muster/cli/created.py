"""Create a job for several commands, and say why the API server does not take it.

Tests: tests/unit/cli/test_fork.py, tests/unit/cli/test_submit.py.
"""

import json
from collections.abc import Mapping
from typing import Any

from muster.cli.errors import CliError, one_line
from muster.cli.session import Session
from muster.kube import paths
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    DryRunUnsupported,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)


async def create_job(session: Session, manifest: Mapping[str, Any], *, dry_run: bool) -> str:
    """Create a job, or ask whether the API server takes it; returns its uid, "" for a dry run.

    Raises:
        CliError: the API server refuses it.
        ApiError: the API server did not answer as it should.
    """
    name = manifest["metadata"]["name"]
    path = paths.muster("trainingjobs", namespace=session.namespace)
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    try:
        answer = await session.client.post(path, manifest, query)
    except AlreadyExists as error:
        raise CliError(f"there is a job {session.namespace}/{name} already: choose another name with --name") from error
    except DryRunUnsupported as error:
        unknown = f"whether the API server takes job {name} is not known: {one_line(error.message)}"
        raise CliError(f"{unknown}. Leave out --dry-run to create the job") from error
    except (Forbidden, NotFound, Unauthorized, Unreachable):
        raise
    except ApiError as error:
        raise CliError(f"the API server does not take job {name}: {one_line(error.message)}") from error
    return "" if dry_run else str(json.loads(answer)["metadata"].get("uid", ""))
