"""Builds the container images from their Dockerfiles without a container engine and without an image registry."""
