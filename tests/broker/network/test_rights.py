"""Each API asks for the rights it declares, and for no others."""

from __future__ import annotations

import pytest

from broker.security.authorizer import Authorizer
from protocol.error_codes import ErrorCode
from protocol.message import served_apis
from tests.broker import asking
from tests.broker.inside import Inside
from tests.broker.testing.test_faults import codes_in

DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# These leave out what the client may not see, and say nothing of it.
SILENT = {"ListGroups", "ListTransactions"}
APIS = {api.name: api for api in served_apis()}


class Only(Authorizer):
    """Allows some operations on some kinds of resources."""

    def __init__(self, *needs):
        self.allowed = {(need.operation, need.resource_type) for need in needs}

    def allows(self, session, operation, resource_type, name):
        return (operation, resource_type) in self.allowed

    def allows_on_any(self, session, operation, resource_type):
        return (operation, resource_type) in self.allowed


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    with Inside(tmp_path_factory.mktemp("rights")) as inside:
        yield inside


def ask(inside, name):
    version = {"Produce": 12, "Fetch": 12}.get(name, asking.VERSIONS[name])
    with inside.connect() as connection:
        return set(codes_in(connection.ask(name, version, **asking.BODIES[name])))


@pytest.mark.parametrize("name", [name for name, api in APIS.items() if api.needs])
def test_without_rights_nothing_is_served(inside, name):
    inside.node.authorizer = Only()
    codes = ask(inside, name)
    if name in SILENT:
        assert not codes & DENIED
    else:
        assert codes & DENIED, codes


@pytest.mark.parametrize("name", APIS)
def test_with_the_rights_declared_it_is_served(inside, name):
    inside.node.authorizer = Only(*APIS[name].needs)
    assert not ask(inside, name) & DENIED
