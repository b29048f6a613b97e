from bench.router.report import Figures, base_of, ratio_table, ratios, tables


def figures(name, *micros, **more):
    return Figures(name, "1.0", {"8 KB": list(micros)}, **more)


def test_a_ratio_is_the_median_of_rounds_each_compared_with_itself() -> None:
    base, ours = figures("haproxy", 10.0, 40.0, 10.0), figures("promptgroup", 20.0, 80.0, 50.0)
    assert ratios(ours, base, "8 KB") == 2.0  # not thrown off by the round in which all were slow
    assert ratios(ours, base, "event") is None
    assert "| **promptgroup** | 2.00, 2.00 to 5.00 (50) |" in ratio_table([ours], base, ["8 KB"])


def test_haproxy_is_the_base_where_it_is_there() -> None:
    some = [figures("envoy", 1.0), figures("haproxy", 1.0)]
    assert base_of(some).name == "haproxy"
    assert base_of(some[:1]).name == "envoy"


def test_tables_show_ratios_and_what_was_not_measured() -> None:
    ours = figures("promptgroup", 20.0, rates=[4000.0, 5000.0], p50=0.0005, memory={"idle": 40.2})
    ours.events = {"raw_syscalls:sys_enter": 4.168}
    ours.problems.append("events: no event arrived")
    shown = tables([figures("haproxy", 10.0), ours], ["8 KB", "event"])
    assert "| haproxy | 1.00 (10) | - |" in shown
    assert "| **promptgroup** | 2.00 (20) | - |" in shown
    assert "| **promptgroup** | 4,500 | 0.50 | - | 4.17 | - | 40 | - |" in shown
    assert "- promptgroup: events: no event arrived" in shown
