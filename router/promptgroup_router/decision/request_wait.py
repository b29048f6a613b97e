"""The wait of one request for a replica: in the admission queue, or because a feature holds it."""

from typing import Protocol

from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.actions import Action, Begun, Failed, Refuse
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.decision.record import RequestRecord
from promptgroup_router.rings.index import Candidates
from promptgroup_router.routing.admission_queue import WAIT_SECONDS
from promptgroup_router.routing.points import RequestFeature, hold
from promptgroup_router.routing.route import Route, share_of
from promptgroup_router.routing.state import RouterState


class Driver(Protocol):
    """The carrier of a request's bytes."""

    def perform(self, effect: Failed, /) -> None:
        """Perform an effect that no event of the driver has caused."""


class RequestWait:
    """A request that waits."""

    __slots__ = ("_driver", "_exchange", "_holder", "_record", "_route", "_state", "_ticket", "_timeout")

    def __init__(
        self,
        state: RouterState,
        route: Route,
        exchange: Exchange,
        record: RequestRecord,
        driver: Driver,
        *,
        timeout: float,
    ) -> None:
        """Begin without a place in the queue.

        Args:
            state: of the router or picker.
            route: where the request may go.
            exchange: chooses its replica.
            record: counts its wait.
            driver: performs what follows from the end of the wait.
            timeout: seconds for which replicas may be tried once a feature lets the request go on.
        """
        self._state = state
        self._route = route
        self._exchange = exchange
        self._record = record
        self._driver = driver
        self._timeout = timeout
        self._ticket: int | None = None
        """Place in the admission queue."""
        self._holder: RequestFeature | None = None
        """The feature that has the request wait for a replica."""

    @property
    def waits(self) -> bool:
        """True while the request is in the admission queue, or a feature has it wait for a replica."""
        return self._ticket is not None or self._holder is not None

    @property
    def held(self) -> bool:
        """True while a feature has the request wait for a replica."""
        return self._holder is not None

    def enter_queue(self, now: float) -> None:
        """Wait in the admission queue."""
        self._ticket = self._state.admission_queue.put(
            self, now, new=self._exchange.attempts.new, share=share_of(self._route)
        )
        self._record.waits(now)

    def hold(self, refused: Refuse, now: float) -> Begun:
        """Return WAIT instead of a refusal if a feature holds the request, which no engine has had; else why not."""
        held = hold(self._route.features, self, self._route.candidates, now)
        if held is None:
            return refused
        if isinstance(held, ApiError):
            return Refuse(held)
        self._holder = held
        self._record.waits(now)
        return Action.WAIT

    def leave(self) -> None:
        """Wait no longer: the client has left, or its time is over."""
        if self._ticket is not None:
            self._state.admission_queue.withdraw(self._ticket)
            self._ticket = None
        if self._holder is not None:
            self._holder.let_go()
            self._holder = None

    # --- Events of the admission queue, and of the feature that holds the request --------------------------------

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that the request waits for."""
        return self._route.group, self._route.revision

    def try_admit(self, now: float) -> bool:
        """Send the request if a replica has capacity. Return True if one has."""
        effect = self._exchange.begin(now)
        if effect is Action.WAIT:
            return False
        self._ticket = None
        self._record.admitted(now)
        self._driver.perform(effect)
        return True

    def go_on(self, candidates: Candidates | None, now: float, *, wait: float) -> None:
        """Choose a replica, or wait in the admission queue, as `HeldLife.go_on` says."""
        self._holder = None
        if candidates is not None:
            self._route.candidates = candidates
            self._exchange.anew(candidates, now + self._timeout)
        effect = self._exchange.begin(now)
        if effect is Action.WAIT:
            left, share = max(WAIT_SECONDS, wait), share_of(self._route)
            self._ticket = self._state.admission_queue.put(self, now, new=False, share=share, seconds=left)
            return
        self._record.admitted(now)
        self._driver.perform(effect)

    def give_up(self, error: ApiError | None, now: float) -> None:
        """Refuse a request that waits; None for the error of one that has waited for capacity for too long."""
        self._ticket = self._holder = None
        self._record.admitted(now)
        self._driver.perform(self._exchange.time_out() if error is None else Refuse(error))

    def time_out(self, now: float) -> None:
        """Refuse the request, which has waited for capacity for too long."""
        self.give_up(None, now)
