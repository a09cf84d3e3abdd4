"""What accelerators cost, as the platform team states it. Reports alone use it."""

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
        description="A decimal number in quotes, for example '2.50'.",
        json_schema_extra=checks(
            rule(f"self.matches('{PRICE}')", "write what a GPU-hour costs as a decimal number in quotes, e.g. '2.50'")
        ),
    ),
]


class ModelPrice(ApiModel):
    """ModelPrice is what an hour of one accelerator of a given model costs."""

    model: str = Field(
        min_length=1,
        max_length=63,
        description=(
            "model is the model of the accelerator as the labels of the nodes name it, for example NVIDIA-H200."
        ),
    )
    per_gpu_hour: Price = Field(
        description=(
            "perGpuHour is what an hour of one accelerator of this model costs. Write it as a decimal number in "
            "quotes, for example '2.50'."
        )
    )


class PriceList(ApiModel):
    """PriceList is what an hour of one accelerator costs, for reports alone. A change also applies to the cost of
    time that has passed.
    """

    currency: str = Field(
        "",
        max_length=16,
        description=(
            "currency is the currency of the prices as reports show it, for example EUR. If it is empty, reports show "
            "numbers alone."
        ),
    )
    per_gpu_hour: Price | None = Field(
        None,
        description=(
            "perGpuHour is what an hour of one accelerator costs if models does not list its model. Write it as a "
            "decimal number in quotes, for example '2.50'. If it is absent, that cost is unknown, and reports leave it "
            "out."
        ),
    )
    models: list[ModelPrice] = Field(
        [],
        max_length=MAX_MODELS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["model"]},
        description=(
            "models lists prices by accelerator model, in place of perGpuHour. If it has entries, the cost of a job "
            "whose model is not known is unknown."
        ),
    )
