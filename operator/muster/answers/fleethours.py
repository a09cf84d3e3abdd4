"""Read what the fleet's accelerators did from the ConfigMap that the operator keeps in its namespace.

Tests: tests/unit/cli/test_fleetreport.py.
"""

import json
from typing import TYPE_CHECKING

from muster.answers.roles import FLEET_ROLE
from muster.api.fleethours import CONFIG_MAP, KEY, FleetHours
from muster.api.namespaces import SYSTEM
from muster.kube import paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.kube.client import Client


async def hours(client: "Client") -> tuple[FleetHours | None, list[str]]:
    """Return the kept hours, None where there are none (yet), and why they are missing.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    try:
        answer = await client.get(paths.core("configmaps", namespace=SYSTEM, name=CONFIG_MAP))
        return FleetHours.model_validate_json(json.loads(answer)["data"][KEY]), []
    except NotFound:
        return None, []
    except Forbidden:
        return None, [f"what accelerators did that no job held may not be read: {FLEET_ROLE}"]
    except (ValueError, KeyError, TypeError):
        return None, [
            f"what accelerators did that no job held cannot be read: ConfigMap {SYSTEM}/{CONFIG_MAP} makes no sense"
        ]
