"""Thousands of launchers in one process: what makes Managed workers run where nodes and pods are only objects.

On KWOK nodes nothing executes, so nobody would report. This process plays the container of every worker pod: it asks
for the token that a kubelet would project, opens the two connections that a launcher has, and speaks the real protocol
at the real pace around ranks that exist in its mind only. Everything that the operator sees of them is real load.
"""
