import pytest

from promptgroup_cli.base.cluster_choice import ClusterChoice


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ClusterChoice(namespace="chat"), "kubectl"),
        (ClusterChoice(context="prod"), "kubectl --context prod"),
        (ClusterChoice(context="a b", kubeconfig="/k"), "kubectl --kubeconfig /k --context 'a b'"),
    ],
)
def test_kubectl_is_told_of_the_same_cluster(choice, said):
    assert choice.kubectl == said
