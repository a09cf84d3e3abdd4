"""How large jobs are and how long they run, as five GPU clusters published it.

Read off the vector graphics that are published with the trace of Acme (github.com/InternLM/AcmeTrace, figures
`cdf_job_duration_util.pdf` and `cdf_job_gpunum.pdf`, totals in `data/cluster_summary.csv`; Hu et al., "Characterization
of Large Language Model Development in the Datacenter", NSDI 2024). Their authors computed the curves of the other
clusters in the same way from the traces of

    Philly  Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019
    Helios  Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
            SC 2021
    PAI     Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU
            Clusters", NSDI 2022

The medians that follow from these curves agree with the medians of `cluster_summary.csv`.
"""

from dataclasses import dataclass, replace

GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sizes at which the shares below were read."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The GPU jobs of one cluster.

    Attributes:
        jobs: how many there were.
        gpu_seconds: what all of them took.
        shorter: percent of the jobs that ran at most 1, 2, 4, ... 2^21 seconds.
        smaller: percent of the jobs with at most as many GPUs as `GPUS` says.
        time: percent of the GPU time that these took.
        longest: seconds of the longest job.
    """

    jobs: int
    gpu_seconds: float
    shorter: tuple[float, ...]
    smaller: tuple[float, ...]
    time: tuple[float, ...]
    longest: float


PHILLY = Cluster(
    jobs=112_956,
    gpu_seconds=2_210_176_414 + 2_025_326_056 + 2_659_215_061,
    shorter=(
        *(0.03, 0.08, 0.17, 0.82, 3.62, 8.42, 18.88, 26.99, 31.5, 36.28, 54.91),
        *(67.47, 79.28, 84.6, 90.29, 92.71, 94.86, 96.95, 98.39, 99.32, 99.8, 99.95),
    ),
    smaller=(82.42, 84.48, 92.05, 98.91, 99.81, 99.98, 99.98, 99.99, 99.99, 100, 100),
    time=(16.43, 19.4, 38.17, 88.03, 97.2, 100, 100, 100, 100, 100, 100),
    longest=4_240_676,
)
HELIOS = Cluster(
    jobs=1_580_464,
    gpu_seconds=39_994_296_320 + 30_715_109_125 + 7_288_334_702,
    shorter=(
        *(4.0, 4.93, 6.35, 7.7, 10.72, 16.15, 24.88, 37.81, 56.57, 67.58, 75.25),
        *(84.1, 87.53, 90.75, 94.36, 96.26, 97.77, 98.9, 99.55, 99.86, 99.96, 100),
    ),
    smaller=(72.19, 74.75, 80.47, 94.69, 97.72, 99.35, 99.73, 99.89, 99.96, 99.98, 100),
    time=(5.44, 7.16, 12.14, 41.34, 61.5, 86.63, 94.38, 97.48, 99.93, 99.94, 99.95),
    longest=4_320_009,
)
SEREN = Cluster(
    jobs=663_813,
    gpu_seconds=4_560_592_618 + 14_274_584_510 + 2_675_447_459,
    shorter=(
        *(2.18, 2.78, 5.62, 11.76, 23.38, 31.71, 37.12, 48.91, 65.63, 79.21, 88.03),
        *(92.94, 95.99, 97.53, 98.44, 99.19, 99.64, 99.83, 99.93, 99.98, 100, 100),
    ),
    smaller=(54.04, 65.43, 67.95, 96.75, 97.86, 98.82, 99.32, 99.55, 99.73, 99.82, 100),
    time=(1.35, 1.79, 2.37, 11.92, 13.15, 19.12, 27.59, 41.69, 56.3, 66.92, 100),
    longest=1_209_604,
)
KALOS = Cluster(
    jobs=19_907,
    gpu_seconds=1_667_685_146 + 3_239_202_064 + 426_292_851,
    shorter=(
        *(0, 0, 0, 0.01, 1.48, 18.72, 38.19, 50.47, 69.1, 79.45, 85.94),
        *(92.77, 97.06, 98.68, 99.11, 99.45, 99.66, 99.83, 99.95, 99.98, 100, 100),
    ),
    smaller=(86.28, 88.36, 88.36, 93.92, 94.26, 94.65, 95.3, 95.68, 96.9, 98.07, 100),
    time=(0.16, 0.16, 0.16, 0.62, 0.63, 1.96, 3.26, 3.75, 24.88, 50.45, 100),
    longest=625_740,
)
PAI = replace(
    HELIOS,
    gpu_seconds=HELIOS.gpu_seconds * 4_787.109 / 6_651.681,
    shorter=(
        *(0.08, 0.08, 0.11, 0.43, 2.99, 11.87, 21.06, 28.95, 39.62, 50.9, 60.79),
        *(69.84, 78.51, 87.12, 93.19, 97.05, 99.03, 99.69, 99.95, 100, 100, 100),
    ),
    longest=626_371,
)
"""PAI's trace has the GPUs of a worker, at most 8, and not those of a job: sizes are those of Helios, and times are
longer or shorter than there as the means of all jobs are."""
