"""How long anything here waits for another process, before it is taken to hang."""

# A machine with much else to do takes minutes for what takes a second alone, and a wait that ends when its condition
# holds costs nothing: no limit here is to be near what is usual.
PATIENCE_SECONDS = 300.0
