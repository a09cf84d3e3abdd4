"""What one step of a job's training is worth. No cluster can see it, so the job states it."""

from pydantic import Field

from muster.api.base import ApiModel

MAX_TOKENS = 10**12
MAX_PARAMETERS = 10**15
MAX_FLOPS = 2**53 - 1
MAX_PEAK = 10**5


class Throughput(ApiModel):
    """Throughput is what one training step of the job is worth. Muster cannot see it, so the user states it.

    Reports alone use it, for tokens, MFU and cost; docs/goodput.md has the formulas.
    """

    tokens_per_step: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS,
        description=(
            "tokensPerStep is the number of tokens in one step of the whole gang: the global batch size times the "
            "sequence length. A change also counts for earlier steps. Leave it out if the batch size grows: tokens are "
            "then unknown."
        ),
    )
    parameters: int | None = Field(
        None,
        ge=1,
        le=MAX_PARAMETERS,
        description=(
            "parameters is the number of weights that a token passes through, without the embedding; for a mixture of "
            "experts, the active ones. Each token then costs six floating-point operations for each weight."
        ),
    )
    flops_per_token: int | None = Field(
        None,
        ge=1,
        le=MAX_FLOPS,
        description=(
            "flopsPerToken is the number of floating-point operations to train on one token, forward and backward, "
            "without recomputation. If it is set, it counts in place of parameters. Set it if attention matters."
        ),
    )
    peak_tflops_per_gpu: int | None = Field(
        None,
        ge=1,
        le=MAX_PEAK,
        description=(
            "peakTflopsPerGpu is the peak of one accelerator in 10^12 operations per second; MFU is the share of it "
            "that training uses. If it is absent, the dense bf16 peak of the model in the nodes' labels counts."
        ),
    )
