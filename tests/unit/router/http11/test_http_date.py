from promptgroup_router.http11.http_date import HttpDate


def test_the_date_has_the_form_of_http_and_is_written_once_a_second():
    now = 784111777.2
    date = HttpDate(lambda: now)
    first = date()
    assert first == b"Sun, 06 Nov 1994 08:49:37 GMT"
    now = 784111777.9
    assert date() is first
    now = 784111778.0
    assert date() == b"Sun, 06 Nov 1994 08:49:38 GMT"
