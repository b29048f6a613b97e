from promptgroup_router.placement.pick import Pick
from support.placements import DEMAND, NEXT, served


def test_a_request_is_alone_on_an_idle_replica_and_waits_for_the_prompts_of_others():
    candidates, balancer = served(slots=1)
    (member,) = candidates.ready
    replica = balancer.members.replicas[member.id]
    alone = Pick(member, replica, DEMAND, 0.0)
    assert (alone.alone, alone.ahead) == (True, False)
    balancer.pick(candidates, DEMAND, 0.0)
    second = Pick(member, replica, NEXT, 0.0)
    assert (second.alone, second.ahead) == (False, True)
