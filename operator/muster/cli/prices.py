"""What a GPU-hour costs: as the command line says, else as the FleetPolicy does, else nobody knows."""

import math
from typing import TYPE_CHECKING

from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.goodput.prices import NO_PRICES, Prices, listed
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.cli.session import Session

DEAREST = 1e6


def price_of(text: float | None) -> float | None:
    """The price of one GPU-hour that a person has written.

    Raises:
        ValueError: it is none.
    """
    if text is not None and not (math.isfinite(text) and 0 <= text <= DEAREST):
        raise ValueError("write what one GPU-hour costs, in any currency, from 0 to 1000000")
    return text


async def fleet_policy(session: "Session") -> FleetPolicySpec | None:
    """The FleetPolicy, its defaults where there is none; None: it may not be read, or is of another version.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    try:
        found = decode.custom(FleetPolicy)(await session.client.get(paths.muster("fleetpolicies", name="default")))
    except Forbidden:
        return None
    except NotFound:
        return FleetPolicySpec()
    return found.spec if isinstance(found, FleetPolicy) else None


async def prices_for(session: "Session", price: float | None) -> Prices:
    """As `prices_by`, where nothing else of the FleetPolicy is wanted: it is not read if a person has written a price.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    return prices_by(None if price is not None else await fleet_policy(session), price)


def prices_by(policy: FleetPolicySpec | None, price: float | None) -> Prices:
    """The price that a person has written, else those of the FleetPolicy; none where it says nothing, or may not be
    read."""
    if price is not None:
        return Prices(price)
    return NO_PRICES if policy is None else listed(policy.prices)
