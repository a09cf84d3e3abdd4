from tests.unit.launcher.conftest import *  # noqa: F403 - pytest finds fixtures by their names here
from tests.unit.launcher.test_fence import answering_peer, peer_of_the_next_attempt, silent_peer  # noqa: F401
