# The checker for nodes without GPUs, as the local cluster's: Debian's PyTorch for CPUs, the layers of the example trainer.
# Build from the repository root: docker build -f images/burn-in/cpu.Dockerfile .

FROM debian:trixie-slim
# Layers of their own, the same as the trainer's: nodes keep them once.
RUN --mount=type=bind,target=/context sh /context/images/install-packages.sh python3
RUN --mount=type=bind,target=/context sh /context/images/install-packages.sh python3-torch
ENV PYTHONPATH=/muster PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
CMD ["python3", "-m", "muster.node.checker"]
COPY operator/muster/__init__.py operator/muster/serve.py /muster/muster/
COPY operator/muster/protocol /muster/muster/protocol
COPY operator/muster/node/__init__.py operator/muster/node/log.py /muster/muster/node/
COPY operator/muster/node/checker /muster/muster/node/checker
USER 65532:65532
