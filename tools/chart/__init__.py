"""Makes the Helm charts from the kustomizations in manifests/: docs/decisions/0089-charts-are-generated.md."""
