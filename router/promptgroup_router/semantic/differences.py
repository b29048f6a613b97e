"""Finds what makes two questions different although they sound alike. Does no I/O and reads no clock.

Embeddings hold what a sentence is about, and hardly its numbers, its names and its "not". So these are compared by
themselves: whatever one question has and the other has not keeps them apart. This costs hits, where the same is said in
two ways, and never a right answer. The words are English; numbers, and names in capitals, are those of many languages.
"""

import enum
import re


class Difference(enum.StrEnum):
    """The reason that keeps two questions apart; a label of a metric."""

    NUMBER = "number"
    """A number, an amount, a version, or a rank."""
    DATE = "date"
    """A day, a month, or a time relative to now."""
    NEGATION = "negation"
    """A word that says no."""
    OPPOSITE = "opposite"
    """One word where the other question has its opposite."""
    NAME = "name"
    """A word with a capital letter, other than at the beginning of a sentence."""


_TOKEN = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)?|[^\s\w]|_")
"""A number with its separators, a word, or a sign."""
_END = frozenset('.!?:;\n"\u201c(')
_SIGNS = frozenset("%$€£¥#+<>=")
"""Signs that change what a number means."""


def _words(text: str) -> list[str]:
    return text.split()


_DIGITS = {
    word: str(n) for n, word in enumerate(_words("zero one two three four five six seven eight nine ten eleven"))
}
"""Number words that mean the same as digits."""
_NUMBERS = frozenset(
    _words("""
    thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand million billion first second third fourth fifth sixth seventh eighth ninth tenth half quarter
    double triple twelve twice once dozen
""")
)
_DATES = frozenset(
    _words("""
    january february march april june july august september october november december monday tuesday wednesday thursday
    friday saturday sunday weekday weekend today tonight tomorrow yesterday now next last previous current past upcoming
    ago morning evening noon midnight hourly daily weekly monthly quarterly yearly annually annual hour day week month
    year
""")
)
_NEGATIONS = frozenset(
    _words("""
    no not never none nobody nothing neither nor nowhere without cannot except excluding unless nicht kein keine keinen
    ohne nie pas jamais sans sin nunca nem sem
""")
)
_NO_NAMES = frozenset(_words("i i'm i've i'd i'll ok okay"))

_PAIRS = (
    "enable disable", "enabled disabled", "activate deactivate", "on off", "before after", "more less", "more fewer",
    "minimum maximum", "min max", "add remove", "buy sell", "open close", "opening closing", "opened closed",
    "start stop", "increase decrease", "raise lower", "higher lower", "highest lowest", "best worst", "up down",
    "upgrade downgrade", "import export", "include exclude", "allow block", "allow deny", "with without", "from to",
    "send receive", "sent received", "upload download", "inside outside", "internal external", "public private",
    "incoming outgoing", "inbound outbound", "deposit withdraw", "deposit withdrawal", "credit debit", "lock unlock",
    "freeze unfreeze", "accept reject", "accepted rejected", "accept decline", "accepted declined", "approve reject",
    "install uninstall", "subscribe unsubscribe", "follow unfollow", "join leave", "login logout", "in out",
    "advantages disadvantages", "pros cons", "cause effect", "male female", "men women", "his her", "left right",
    "north south", "east west", "old new", "oldest newest", "early late", "fast slow", "hot cold", "virtual physical",
    "safe unsafe", "legal illegal", "possible impossible", "encrypt decrypt", "encode decode", "show hide", "push pull",
    "lend borrow", "parent child", "client server", "employer employee", "save delete", "create delete",
)  # fmt: skip
_OPPOSITES: dict[str, frozenset[str]] = {}
"""Word → the words of which it is the opposite."""
for _one, _other in map(str.split, _PAIRS):
    _OPPOSITES[_one] = _OPPOSITES.get(_one, frozenset()) | {_other}
    _OPPOSITES[_other] = _OPPOSITES.get(_other, frozenset()) | {_one}


def difference(one: str, other: str) -> Difference | None:
    """Return what keeps two questions apart; None if nothing is found."""
    first, second = _Traits(one), _Traits(other)
    if first.numbers != second.numbers:
        return Difference.NUMBER
    if first.dates != second.dates:
        return Difference.DATE
    if first.negations != second.negations:
        return Difference.NEGATION
    if _has_opposite(first.words - second.words, second.words - first.words):
        return Difference.OPPOSITE
    # a name may be written in small letters, and a sentence may begin with it
    shared = {word for word in first.names + second.names if word in first.words and word in second.words}
    in_order = [[word for word in each.sequence if word in shared] for each in (first, second)]
    if len(shared) < len({*first.names, *second.names}) or (len(shared) > 1 and in_order[0] != in_order[1]):
        return Difference.NAME
    return None


def _has_opposite(only_first: set[str], only_second: set[str]) -> bool:
    return any(not only_second.isdisjoint(_OPPOSITES.get(word, ())) for word in only_first)


class _Traits:
    """Words of a question that are compared."""

    __slots__ = ("dates", "names", "negations", "numbers", "sequence", "words")

    def __init__(self, text: str) -> None:
        self.numbers: list[str] = []
        self.dates: list[str] = []
        self.negations = 0
        self.names: list[str] = []
        self.sequence: list[str] = []
        begins = True
        for token in _TOKEN.findall(text):
            word = token.casefold().replace("\u2019", "'")
            if token[0].isdigit() or word in _NUMBERS or word in _DIGITS:
                self.numbers.append(_DIGITS.get(word, word))
            elif token in _SIGNS:
                self.numbers.append(token)
            elif word in _DATES or word.removesuffix("s") in _DATES:
                self.dates.append(word.removesuffix("s"))
            elif word in _NEGATIONS or word.endswith("n't"):
                self.negations += 1
            elif token[0].isalpha():
                self.sequence.append(word.removesuffix("'s"))
                capital = any(map(str.isupper, token[1:])) or (token[0].isupper() and not begins)
                if capital and word not in _NO_NAMES:
                    self.names.append(word.removesuffix("'s"))
            begins = token in _END or (begins and not token[0].isalnum())
        self.words = set(self.sequence)
