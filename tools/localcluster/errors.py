"""What can go wrong here, said to a person: every message ends with what to do next."""


class LocalClusterError(RuntimeError):
    """The local cluster cannot do what was asked; the message says why and how to go on."""
