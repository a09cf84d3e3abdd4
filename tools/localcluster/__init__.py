"""A real Kubernetes on one machine, for the demo and the tests: no container engine, no registry, no mocks.

Everything is built from Go modules and Debian packages (`build`), a control plane alone serves the integration tests
(`controlplane`), and control plane plus nodes in namespaces of their own serve the demo and the end-to-end tests
(`cluster`). kind and minikube were not taken: they need an engine and images from a registry, and neither can cut a
node's power.
"""
