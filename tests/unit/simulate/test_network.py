"""What becomes of single packets."""

from random import Random

from simulate.network import ROUGH_SECONDS, Network


def test_where_it_is_smooth_every_packet_comes_once_and_no_lot_is_drawn() -> None:
    random = Random(1)
    before = random.getstate()
    assert list(Network().delays(random)) == [0.0]
    assert random.getstate() == before


def test_where_it_is_rough_some_are_lost_some_come_twice_and_all_at_any_time() -> None:
    random, network = Random(1), Network(lost=0.2)
    came = [list(network.delays(random)) for _ in range(1000)]
    for copies, share in ((0, 0.2), (1, 0.6), (2, 0.2)):
        assert abs(sum(len(one) == copies for one in came) / 1000 - share) < 0.05
    assert max(max(one, default=0.0) for one in came) > 0.9 * ROUGH_SECONDS
