"""The health bench: many nodes fall sick at once."""
