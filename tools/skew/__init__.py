"""Versions beside each other: what one leaves behind, and what another makes of it (docs/versions.md)."""
