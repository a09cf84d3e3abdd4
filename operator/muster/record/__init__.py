"""The Gang record: the next one after each change."""
