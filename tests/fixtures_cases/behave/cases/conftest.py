"""As the real cases have it: one fixture `cell`, a filter, and results that know more than pytest does."""

import pytest


def pytest_configure(config):
    config.attnmatrix_applies = lambda item, cell: item.name != "test_second" or cell["axes"].get("second") == "on"


@pytest.fixture
def cell(request):
    cell = request.config.attnmatrix_cell
    if isa := cell["axes"].get("isa"):
        request.config.attnmatrix_resolved({"isa": isa})
    return cell


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    known = getattr(item, "attnmatrix", None)
    if call.when == "call" and known:
        outcome.get_result().attnmatrix = known
