"""Makes a release: the folder build/release, from which a user installs without this repository (docs/releasing.md)."""
