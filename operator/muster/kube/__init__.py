"""The only package that talks to the API server: client, informers, lease, events, certificates."""
