"""The only room that talks to launchers: who calls, what was reported, and which directive goes out."""
