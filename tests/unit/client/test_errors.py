"""Sentences of the command line in the words of the library."""

import pytest

from muster.client.errors import in_python


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("set KUBECONFIG or give --kubeconfig FILE", "set KUBECONFIG or give kubeconfig=FILE"),
        ("lists others for --context", "lists others for context="),
        ("or give another one with -n", "or give another one with namespace="),
        ("choose one with --rank N", "choose one with rank=N"),
        ("--attempt 3 has it", "attempt=3 has it"),
        ("or the one that failed with --failed", "or the one that failed with failed=True"),
        ("kubectl label namespace a b=c --overwrite", "kubectl label namespace a b=c --overwrite"),
        ("kubectl muster report JOB --incident 3", "kubectl muster report JOB --incident 3"),
    ],
)
def test_an_option_is_the_parameter_of_its_name(text: str, here: str) -> None:
    assert in_python(text) == here
