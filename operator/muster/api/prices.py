"""What accelerators cost, as the platform team says: for reports alone."""

from typing import Annotated

from pydantic import Field

from muster.api.base import ApiModel, checks, rule

MAX_MODELS = 64
PRICE = "^[0-9]{1,6}([.][0-9]{1,6})?$"

Price = Annotated[
    str,
    Field(
        min_length=1,
        max_length=13,
        description="As a decimal number in quotes, e.g. '2.50'.",
        json_schema_extra=checks(
            rule(f"self.matches('{PRICE}')", "write what a GPU-hour costs as a decimal number in quotes, e.g. '2.50'")
        ),
    ),
]


class ModelPrice(ApiModel):
    """What accelerators of one model cost."""

    model: str = Field(min_length=1, max_length=63, description="As the nodes' labels have it, e.g. NVIDIA-H200.")
    per_gpu_hour: Price


class PriceList(ApiModel):
    """What a GPU-hour costs. It counts for all times alike."""

    currency: str = Field("", max_length=16, description="For people, e.g. EUR.")
    per_gpu_hour: Price | None = Field(
        None,
        description="Of models that are not listed. Left out: what they cost is not known, and is not told.",
    )
    models: list[ModelPrice] = Field(
        [],
        max_length=MAX_MODELS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["model"]},
    )
