"""Counts what the frames of a peer cost, and bounds what a connection may owe. Does no I/O; the time is an argument.

Each frame costs CPU, whether or not it leads to anything: some frames of a few bytes cost thousands of times what the
bytes of a message cost. So costs are counted as frames are read, in units of about a microsecond on one core of 2026.
They are counted and not measured, so that a busy machine does not change what a peer may send.

- What a connection costs in one turn is bounded (`TURN`); other connections and ports have theirs before its next.
- A connection owes what its frames cost. Answers to calls pay: a gateway that asks for replicas owes next to nothing,
  however many streams it opens. What is left is forgiven slowly, all connections of a port together at one rate.
- A connection that owes more than `CREDIT` is not read. One that still does after `CALM_TICKS` is closed.
- What connections of one network (an address, of IPv6 the /64) owe is summed up, those that were closed among them, and
  new ones begin with the debt of closed ones. So neither many connections nor new ones in place of others get more
  turns than a gateway elsewhere that owes nothing.
"""

READ = 4
"""A read, however few its bytes."""
FRAME = 4
"""A frame of any type, its bytes aside."""
FIELD = 3
"""A header field. A reference to the table of fields is one byte, and costs as much."""
BLOCK_BYTES_A_UNIT = 2
"""Bytes of a list of fields that cost a unit: Huffman's code is read bit by bit."""
STREAM = 25
"""A stream that is opened, or refused."""
LOOK = 1
"""A stream that a change of the initial window reaches."""
MESSAGE = 10
"""A message that a call takes."""
DECISION = 100
"""The work of a call for a message, on average: a part of a turn, and never owed."""
BYTES_A_UNIT = 512
"""Bytes of payload that cost a unit: they are copied, and scanned where they are a message."""
SETTINGS_BYTES_A_UNIT = 12
"""The same for settings: two of them."""

ANSWER = 40
"""The payment of a message that is sent to the peer: a few frames of its call, and one of a call that ended early."""
MOST_FIELDS_PAID = 500
"""The most that the first answer to a call pays for the fields that opened it."""

TURN = 1000.0
"""Units that one connection gets before others have their turn."""
ROUND = 4 * TURN
"""Units that all connections of a port get before the other ports have their turn."""
CREDIT = 50_000.0
"""Units that a connection may owe and still be read: 50 ms."""
FORGIVEN_A_SECOND = 50_000.0
"""Units that are forgiven in each second, in equal parts, to all connections of a port that owe: 5% of a core."""
INHERITED = CREDIT - 2 * TURN
"""Most units of closed connections of its network that a new one owes: it still has a few turns, in which answers may
pay, since a gateway may share its address with others."""
CALM_TICKS = 5
"""Ticks, of a second each, that a connection may be above its credit before it is closed."""


class Network:
    """The account of all connections of one network."""

    __slots__ = ("gone", "open", "owed")

    def __init__(self) -> None:
        self.owed = 0.0
        """Units that they owe together, those that were closed among them."""
        self.open = 0
        """Number of those that are open."""
        self.gone = Budget(self)
        """The account of those that were closed."""

    def begin(self) -> "Budget":
        """Return the account of a new connection, which takes over what closed ones owe, as far as it may."""
        self.open += 1
        budget = Budget(self)
        budget.take_over(self.gone, INHERITED)
        return budget

    def end(self, budget: "Budget") -> None:
        """Keep what a connection owes that was closed."""
        self.open -= 1
        self.gone.take_over(budget, budget.owed)

    @property
    def settled(self) -> bool:
        """True if its record can be dropped: no connection is open, and nothing is owed."""
        return not self.open and not self.gone.owed


class Budget:
    """The account of one connection: what it has cost and owes."""

    __slots__ = ("_loud", "_network", "owed", "spent")

    def __init__(self, network: Network | None = None) -> None:
        self._network = network
        self.owed = 0.0
        """Units that no answer has paid for."""
        self.spent = 0.0
        """Units of this turn."""
        self._loud = 0
        """Ticks in a row at which it owed too much."""

    @property
    def overdrawn(self) -> bool:
        """True if it owes more than it may."""
        return self.owed > CREDIT

    def charge(self, units: float) -> None:
        """Count what frames cost."""
        self.spent += units
        self.owed += units
        if self._network is not None:
            self._network.owed += units

    def pay(self, units: float) -> None:
        """Count what an answer pays; nothing is saved up."""
        paid = min(units, self.owed)
        self.owed -= paid
        if self._network is not None:
            self._network.owed -= paid

    def take_over(self, other: "Budget", most: float) -> None:
        """Owe in place of another connection of the same network, up to so many units."""
        units = min(other.owed, most)
        other.owed -= units
        self.owed += units

    def tick(self) -> bool:
        """Look once a second, before something is forgiven. Return True if the connection is to be closed."""
        self._loud = self._loud + 1 if self.overdrawn else 0
        return self._loud > CALM_TICKS


def forgive(budgets: list[Budget], seconds: float) -> None:
    """Forgive connections what they owe, as far as some seconds allow for all of them together."""
    owing = [budget for budget in budgets if budget.owed]
    for budget in owing:
        budget.pay(FORGIVEN_A_SECOND * seconds / len(owing))
