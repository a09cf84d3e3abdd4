"""What one step of a job's training is worth: what no cluster can see, so that the job says it."""

from pydantic import Field

from muster.api.base import ApiModel

MAX_TOKENS = 10**12
MAX_PARAMETERS = 10**15
MAX_FLOPS = 2**53 - 1
MAX_PEAK = 10**5


class Throughput(ApiModel):
    """What one step is worth. For reports alone; the formulas are in docs/goodput.md."""

    tokens_per_step: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS,
        description="Tokens of one step of the whole gang: the global batch times the length of its sequences. It "
        "counts for all steps of the job: leave it out where the batch grows. May change while the job exists, and "
        "counts for the steps before, too.",
    )
    parameters: int | None = Field(
        None,
        ge=1,
        le=MAX_PARAMETERS,
        description="Weights that a token passes through, of a mixture of experts those that are active; without the "
        "embedding. A token then costs six floating-point operations for each.",
    )
    flops_per_token: int | None = Field(
        None,
        ge=1,
        le=MAX_FLOPS,
        description="Floating-point operations that training costs for each token, forwards and backwards, without "
        "recomputation: it counts in place of parameters, where attention matters.",
    )
    peak_tflops_per_gpu: int | None = Field(
        None,
        ge=1,
        le=MAX_PEAK,
        description=(
            "What MFU is a share of, in 10^12 operations per second. Left out: dense bf16 of the accelerators' model "
            "by their nodes' labels."
        ),
    )
