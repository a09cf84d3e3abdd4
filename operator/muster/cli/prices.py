"""What a GPU-hour costs: as the command line says, else as the FleetPolicy does, else nobody knows."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.api.fleetpolicy import FleetPolicy
from muster.api.prices import PRICE, PriceList
from muster.goodput.fingerprint import SEVERAL
from muster.goodput.history import words
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.cli.session import Session

DEAREST = 1e6
CURRENCY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one GPU-hour.

    Attributes:
        flat: of models that are not listed; None: not known.
        models: of the others, by the model in their nodes' labels.
    """

    flat: float | None = None
    models: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""

    def of(self, model: str) -> float | None:
        """The price of one GPU-hour of this model; None where it is not known, as where a job has had several."""
        if model in self.models or not self.models:
            return self.models.get(model, self.flat)
        # Whose model nobody knows may be any of the listed ones.
        return self.flat if model and model != SEVERAL else None


NO_PRICES = Prices()


def price_of(text: float | None) -> float | None:
    """The price of one GPU-hour that a person has written.

    Raises:
        ValueError: it is none.
    """
    if text is not None and not (math.isfinite(text) and 0 <= text <= DEAREST):
        raise ValueError("write what one GPU-hour costs, in any currency, from 0 to 1000000")
    return text


def listed(prices: PriceList) -> Prices:
    """The policy's."""
    models = {each.model: found for each in prices.models if (found := _amount(each.per_gpu_hour)) is not None}
    if len(models) < len(prices.models):  # another version's: what is not understood is not guessed
        return NO_PRICES
    return Prices(
        None if prices.per_gpu_hour is None else _amount(prices.per_gpu_hour),
        models,
        words(prices.currency, CURRENCY_LENGTH),
    )


def _amount(text: str) -> float | None:
    return float(text) if re.fullmatch(PRICE, text, re.ASCII) else None


async def prices_for(session: "Session", price: float | None) -> Prices:
    """The price that a person has written, else those of the FleetPolicy; none where it says nothing, or may not be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    if price is not None:
        return Prices(price)
    try:
        found = decode.custom(FleetPolicy)(await session.client.get(paths.muster("fleetpolicies", name="default")))
    except (Forbidden, NotFound):
        return NO_PRICES
    return listed(found.spec.prices) if isinstance(found, FleetPolicy) else NO_PRICES
