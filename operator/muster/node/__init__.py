"""What runs on nodes and in other people's containers; no room of the operator imports it."""
