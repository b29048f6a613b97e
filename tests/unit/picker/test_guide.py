from promptgroup_picker.extproc.large_bodies import TURN_SECONDS
from promptgroup_router.proxy import key_waits
from promptgroup_router.routing import admission_queue
from support.gateway import GUIDE, HELD_TIMEOUT


def test_a_gateway_that_holds_bodies_is_told_to_wait_for_as_long_as_the_picker_takes():
    longest = key_waits.WAIT_SECONDS + TURN_SECONDS + admission_queue.WAIT_SECONDS
    assert float(HELD_TIMEOUT.removesuffix("s")) > longest
    assert f"A picker may take {longest:g} s: {key_waits.WAIT_SECONDS:g} s for the keys" in GUIDE.read_text()
