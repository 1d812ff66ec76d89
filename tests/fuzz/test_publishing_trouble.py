"""A few seconds of the campaign against publishing."""

import pytest

from fuzz.publishing import campaign

pytestmark = pytest.mark.slow


def test_publishing_in_trouble_keeps_every_promise():
    found = campaign(seconds=5, seed=0)
    assert found.total > 0
    assert not found.faults, found
