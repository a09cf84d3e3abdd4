"""The only room that talks to launchers: who they are, what they say, what they are told."""
