"""`make demo`: the main job on a real cluster, three faults, the right weights at the end, and a report."""
