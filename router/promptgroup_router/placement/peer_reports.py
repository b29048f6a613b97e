"""The state that routers tell each other: where sessions and prefixes are cached, and which load replicas have.

Placements are queued once a request is placed and again when it ends. Loads are exported while there are any, and a few
ticks longer.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.placement.members import MemberRecords
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ANSWER, TRUST
from promptgroup_router.policy.gossip import REPEATS, URGENT_SECONDS, LoadReport, PlacementReport, PrefixReport
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.policy.sessions import Sessions
from promptgroup_router.rings.ids import MemberHash, MemberId

OUTBOX = 10_000
"""Most placements queued for peers: more than a router serves in a second."""
PREFIX_OUTBOX = 2000
"""Most requests whose prefixes are queued for peers: more than a router serves in a tick."""
MOST_REPORTED_PREFIXES = 64
"""Most prefixes of a request that are reported to peers; the longest are left out first."""


class PeerReports:
    """Exports this router's placements and loads for its peers, and merges theirs into the records."""

    def __init__(self, members: MemberRecords, locations: SessionLocations, sessions: Sessions) -> None:
        self._members = members
        self._locations = locations
        self._sessions = sessions
        self.has_peers = False
        """True once `export` was called; before, no report for peers needs to be queued."""
        self._urgent: Callable[[], None] = _ignore
        self._outbox: deque[PlacementReport] = deque(maxlen=OUTBOX)
        self._prefixes: deque[tuple[MemberHash, Demand]] = deque(maxlen=PREFIX_OUTBOX)

    # --- What peers get --------------------------------------------------------------------------------------------

    def queue_placement(self, session: SessionKey, place: Placement, shared: int) -> None:
        """Queue the placement of a session: once when it is placed, and again when the request ends.

        Args:
            session: the session.
            place: its placement.
            shared: tokens of its prompt that other sessions have computed there.
        """
        member = self._members.member_hash(place.member)
        self._outbox.append(PlacementReport(session, member, place.prefix, place.turn, int(place.tokens), shared))

    def queue_prefixes(self, member: MemberHash, demand: Demand, seconds: float) -> None:
        """Queue the prefixes of a request that is sent to a member, with so many predicted seconds of prefill."""
        self._prefixes.append((member, demand))
        if seconds > URGENT_SECONDS:
            self._urgent()

    def on_urgent(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a request was sent that peers should not learn of only in the next tick."""
        self._urgent = listener

    def export(self, now: float) -> tuple[list[PlacementReport], list[LoadReport]]:
        """Return the placements that were not sent to peers yet, and the loads to send in this tick."""
        self.has_peers = True
        placements = list(self._outbox)
        self._outbox.clear()
        loads = []
        for replica in self._members.processes.values():
            if replica.in_flight:
                replica.ticks = REPEATS
            elif replica.ticks:
                replica.ticks -= 1
            else:
                continue
            loads.append(replica.export(now))
        return placements, loads

    def export_prefixes(self) -> list[PrefixReport]:
        """Return the prefixes that were not reported to peers yet, the longest of each prompt first, as in `use`."""
        reports: list[PrefixReport] = []
        for member, demand in self._prefixes:
            marks, lengths, begin = demand.marks, demand.lengths, demand.unmarked
            for place in range(min(len(marks), MOST_REPORTED_PREFIXES) - 1, -1, -1):
                before = lengths[place - 1] if place else begin
                reports.append(PrefixReport(marks[place], member, lengths[place] - before))
            if begin:
                reports.append(PrefixReport(demand.prefix, member, begin))
        self._prefixes.clear()
        return reports

    def snapshot(self) -> Iterator[PlacementReport]:
        """Yield the placements whose sessions are still expected to be cached, the most recently used first."""
        for session, place in self._locations.newest_first():
            replica = self._members.replicas.get(place.member)
            if replica is not None and replica.tokens_written - place.written < TRUST * replica.costs.kv_tokens:
                member = self._members.member_hash(place.member)
                yield PlacementReport(session, member, place.prefix, place.turn, int(place.tokens))

    # --- What peers report ------------------------------------------------------------------------------------------

    def merge_prefixes(self, prefixes: Sequence[PrefixReport]) -> None:
        """Merge the prefixes that a peer reports."""
        for prefix, member, tokens in prefixes:
            id_ = self._members.member_id(member)
            if id_ is not None:
                self._members.replicas[id_].heard(prefix, tokens)

    def merge(
        self, sender: int, placements: Sequence[PlacementReport], loads: Sequence[LoadReport], now: float
    ) -> None:
        """Merge a peer's placements and loads; placements may arrive twice and out of order."""
        for load in loads:
            id_ = self._members.member_id(load.member)
            if id_ is not None:
                self._members.replicas[id_].merge(sender, load, now)
        for report in placements:
            id_ = self._members.member_id(report.member)
            place = self._locations.get_fresh(report.session, now)
            if id_ is not None and (place is None or place.turn <= report.turn):
                self._merge_placement(report, id_, place, now)

    def _merge_placement(self, report: PlacementReport, id_: MemberId, place: Placement | None, now: float) -> None:
        replica = self._members.replicas[id_]
        ended, returned = False, True
        if place is not None:
            if place.member != id_:
                self._members.drop_session(place, report.session)
            # the second report of a turn reports its end
            ended = place.member == id_ and place.turn == report.turn
            # the next turn of a chat has two messages more; the numbers of texts rise by one, whatever they are
            returned = report.turn > place.turn + 1
        in_use = replica.costs.in_use
        known = self._members.prefix_tokens(report.prefix)
        tier1 = float(in_use.mean()) if known is None else known
        if tier1 and not ended:
            in_use.use(report.prefix, int(tier1), 0.0, begins=place is None)
        tokens = min(report.tokens, replica.costs.kv_tokens)
        self._sessions.drop(report.session)
        replica.live.expire(now)
        shared = min(report.shared, tokens)
        own = 0 if ended else min(tokens - shared + ANSWER, replica.costs.kv_tokens)
        replica.live.heard(
            report.session, report.prefix, tier1, own, now, ended=ended, shared=shared, returned=returned
        )
        self._locations.put(
            report.session, Placement(id_, report.prefix, report.turn, tokens, replica.tokens_written, now)
        )

    def restore(self, placements: Sequence[PlacementReport], now: float) -> None:
        """Restore placements that a peer has stored: they say where sessions are cached, not that they are active."""
        for report in placements:
            id_ = self._members.member_id(report.member)
            if id_ is not None:
                written = self._members.replicas[id_].tokens_written
                self._locations.restore(
                    report.session, Placement(id_, report.prefix, report.turn, report.tokens, written, now)
                )

    def expire_loads(self, now: float) -> None:
        """Drop the loads that peers have not reported for too long: the report of their end was lost."""
        for replica in self._members.processes.values():
            if replica.peer_in_flight or replica.peer_pending:
                replica.expire_peers(now)

    def drop_peer(self, sender: int) -> None:
        """Drop the load of a peer that has left."""
        for replica in self._members.processes.values():
            replica.drop_peer(sender)


def _ignore() -> None:
    """Do nothing: there is no exchange."""
