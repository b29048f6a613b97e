"""Routes by a table alone, with all features."""

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.base.steps import at_once
from promptgroup_router.decision.composition import Features
from promptgroup_router.routing import route as core


def points_of(view, salts=None):
    """Return the features that take part in routing by an index; `salts` are those of callers, None for others."""
    features = Features(Metrics(), salts=salts)
    features.routing.groups = at_once(features.compose_steps(view))
    return features.routing


def route(view, request, headers, *, salts=None, **options):
    """Return the route of a request; the options are those of `routing.route.route`."""
    return core.route(view, request, headers, points=points_of(view, salts), **options)
