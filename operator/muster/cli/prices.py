"""Find the price of a GPU-hour: from the command line, else from the FleetPolicy; otherwise it is unknown."""

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
    """Parse a price of one GPU-hour.

    Raises:
        ValueError: it is none.
    """
    if text is not None and not (math.isfinite(text) and 0 <= text <= DEAREST):
        raise ValueError("write what one GPU-hour costs, in any currency, from 0 to 1000000")
    return text


async def fleet_policy(session: "Session") -> FleetPolicySpec | None:
    """Return the FleetPolicy, its defaults where there is none; None: it may not be read, or is of another version.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    try:
        policy = decode.custom(FleetPolicy)(await session.client.get(paths.muster("fleetpolicies", name="default")))
    except Forbidden:
        return None
    except NotFound:
        return FleetPolicySpec()
    return policy.spec if isinstance(policy, FleetPolicy) else None


async def prices_for(session: "Session", price: float | None) -> Prices:
    """Return the same as `prices_by`, for callers that need no other part of the FleetPolicy.

    The policy is not read if the command line has a price.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    return prices_by(None if price is not None else await fleet_policy(session), price)


def prices_by(policy: FleetPolicySpec | None, price: float | None) -> Prices:
    """Return the price of the command line, else those of the FleetPolicy; none where it has none, or may not be
    read."""
    if price is not None:
        return Prices(price)
    return NO_PRICES if policy is None else listed(policy.prices)
