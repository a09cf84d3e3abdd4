"""The supply chain of a release: which Debian packages it is made of, its SBOMs, the sources offered, signatures."""


class SupplyError(Exception):
    """A release must not be made so; the message says why, and what to do."""
