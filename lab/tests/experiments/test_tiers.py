from promptgroup_research.experiments.tiers import POLICIES, TIERS, Job, jobs, run, sheets

ALONE, HOST, RDMA, _TCP = TIERS


def test_every_tier_is_played_with_every_policy():
    assert len(jobs(["chat"], (1, 2), quick=True)) == 2 * len(TIERS) * len(POLICIES)


def test_a_pool_lifts_the_hits_of_round_robin_and_affinity_stays_ahead_by_its_copies():
    found = {
        (tier, policy): run(Job("agents", tier, policy, 1, quick=True))
        for tier in (ALONE, RDMA)
        for policy in ("round-robin", "promptgroup")
    }
    alone, pooled = (found[tier, "round-robin"] for tier in (ALONE, RDMA))
    ours = found[RDMA, "promptgroup"]
    assert alone.copied == 0
    assert pooled.figures.hit > alone.figures.hit + 0.1
    assert ours.copied < pooled.copied / 2
    assert ours.figures.p50 < pooled.figures.p50
    done = [Job("agents", tier, policy, 1) for tier, policy in found]
    (sheet,) = sheets(done, list(found.values()), {"agents": "agents"})
    assert len(sheet.rows) == 4
