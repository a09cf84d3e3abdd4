"""Compute the cost of held accelerators from a price of one GPU-hour for each model. Pure.

Tests: tests/unit/cli/test_prices.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api.prices import PRICE, PriceList
from muster.goodput.failure_rate import HOUR
from muster.goodput.fingerprint import SEVERAL
from muster.goodput.history import cleaned_text

CURRENCY_LENGTH = 16
DIFFERENT_PRICES = "models have different prices"


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

    def price_of_model(self, model: str) -> float | None:
        """Return the price of one GPU-hour of this model; None where it is unknown, as for a job with several
        models."""
        if model in self.models or not self.models:
            return self.models.get(model, self.flat)
        # An unknown model may be any of the listed ones.
        return self.flat if model and model != SEVERAL else None

    def price_of_any_model(self) -> float | None:
        """Return the price of one GPU-hour that holds for every model; None where prices differ, or are unknown."""
        return self.flat if all(price == self.flat for price in self.models.values()) else None

    def why_none_of_any(self) -> str:
        """Say why `price_of_any_model` is not known; "" where it is."""
        if self.price_of_any_model() is not None:
            return ""
        if self.flat is None and len(set(self.models.values())) <= 1:
            return "models that are not listed have no price"
        return DIFFERENT_PRICES

    def cost(self, gpu_seconds: Mapping[str, int], model: str) -> float | None:
        """Return the cost of these GPU-seconds of one model; None where no price is known, or none were held."""
        price, held = self.price_of_model(model), sum(gpu_seconds.values())
        return None if price is None or not held else held / HOUR * price


NO_PRICES = Prices()


def listed(prices: PriceList) -> Prices:
    """Return the policy's prices."""
    models = {price.model: amount for price in prices.models if (amount := _amount(price.per_gpu_hour)) is not None}
    if len(models) < len(prices.models):  # another version's format: an unreadable price is not guessed
        return NO_PRICES
    return Prices(
        None if prices.per_gpu_hour is None else _amount(prices.per_gpu_hour),
        models,
        cleaned_text(prices.currency, CURRENCY_LENGTH),
    )


def _amount(price: str) -> float | None:
    return float(price) if re.fullmatch(PRICE, price, re.ASCII) else None
