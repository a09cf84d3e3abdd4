"""Renders crds/ and docs/reference/ from the models and tables of the product."""
