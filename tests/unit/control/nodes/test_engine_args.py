import pytest

from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.nodes.engine_args import LONGEST_NAME, node_args, problem
from support.builders import spec

FITS = ["--tensor-parallel-size=8"]


def engine(kind="vLLM", args=FITS, **fields):
    return spec(engine={"type": kind, "nodes": 2, "args": args, **fields}).engine


def said(of, name="support", args=None):
    speech = DIALECTS[of.type]
    container = {"args": [*node_args(speech, of), *of.args] if args is None else args}
    return problem(speech, of, name, container)


def test_one_node_has_no_arguments_and_no_problem():
    one = engine(nodes=1, args=[])
    assert node_args(DIALECTS[one.type], one) == ()
    assert said(one, name="8" * 50) == ""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("vLLM", ("--nnodes=2", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)")),
        ("SGLang", ("--nnodes=2", "--node-rank=$(LWS_WORKER_INDEX)", "--dist-init-addr=$(LWS_LEADER_ADDRESS):20000")),
    ],
)
def test_each_engine_is_told_of_its_nodes_by_its_own_flags(kind, expected):
    of = engine(kind)
    assert node_args(DIALECTS[of.type], of) == expected


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("vLLM", ["--tensor-parallel-size=8"]),
        ("vLLM", ["--tensor_parallel_size", "4", "-pp", "2"]),
        ("vLLM", ["-tp=1", "-tp=6"]),
        ("SGLang", ["--tp", "16"]),
        ("SGLang", ["--tp-size=1", "--pp-size=2"]),
    ],
)
def test_parts_that_can_be_divided_among_the_nodes_are_fine(kind, args):
    assert said(engine(kind, args)) == ""


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (engine(args=[]), "split the model into 1 part, which cannot be divided"),
        (
            engine(args=["-tp", "3"]),
            "into 3 parts, which cannot be divided among the nodes evenly: set --tensor-parallel",
        ),
        (engine("SGLang", []), "set --tp-size in spec.engine.args"),
        (engine(args=[*FITS, "--nnodes", "2"]), "--nnodes in spec.engine.args both lay out"),
        (engine(args=[*FITS, "--node_rank=1"]), "both lay out"),
        (engine(args=[*FITS, "-dp", "2"]), "ranks on several nodes are not supported"),
    ],
)
def test_arguments_that_contradict_the_nodes_are_refused(of, words):
    assert words in said(of)


@pytest.mark.parametrize("args", [[], "sh", None, [7], ["--nnodes=2"]])
def test_a_template_that_replaces_the_arguments_is_refused(args):
    of = engine()
    assert "spec.engine.template replaces the arguments" in problem(DIALECTS[of.type], of, "support", {"args": args})


@pytest.mark.parametrize("name", ["8b", "a.b", "a" * (LONGEST_NAME + 1)])
def test_a_name_that_no_leader_worker_set_can_have_is_refused(name):
    assert "the group's name does not fit a LeaderWorkerSet" in said(engine(), name)


def test_the_longest_name_fits_the_label_of_the_workers_controller_revision():
    assert said(engine(), "a" * LONGEST_NAME) == ""
    assert len("a" * LONGEST_NAME + "-9f2c61d0" + "-999" + "-" + "0" * 10) <= 63
