"""`TOPIC/PARTITION` on the command line."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigurationError
from connectors.kafka.settings import KafkaSettings
from streams.places import parse_place, record_type_of
from streams.settings import Settings
from streams.wiring import breakers


def test_a_partition_reads_back() -> None:
    """The last slash parts topic and number: a prefix may hold any."""
    assert parse_place("payroll.raw/0") == ("payroll.raw", 0)
    assert parse_place("a/b.raw/12") == ("a/b.raw", 12)


@pytest.mark.parametrize("text", ["", "payroll.raw", "/1", "payroll.raw/", "payroll.raw/-1", "a/²"])
def test_anything_else_is_refused(text: str) -> None:
    """The message shows the form."""
    with pytest.raises(ConfigurationError, match="TOPIC/PARTITION"):
        parse_place(text)


def test_only_raw_topics_have_a_record_type() -> None:
    """The topic is named as it is on the cluster, prefix and all."""
    kafka = KafkaSettings("x", topic_prefix="t.")
    assert record_type_of(kafka, "t.dvir.raw").name == "dvir"
    with pytest.raises(ConfigurationError, match=r"t\.payroll\.raw"):
        record_type_of(kafka, "payroll.raw")


def test_the_breaker_is_on_for_payroll_and_off_for_dvir() -> None:
    """A DVIR that waits keeps a vehicle on the road or off it: only a person decides to hold them
    up. Types are named, unknown ones refused."""
    policies = breakers(Settings.load())
    assert list(policies) == ["payroll"]
    assert not breakers(Settings.load(breaker_types="none"))
    assert set(breakers(Settings.load(breaker_types="dvir, payroll"))) == {"dvir", "payroll"}
    with pytest.raises(ConfigurationError, match="payrol;"):
        breakers(Settings.load(breaker_types="payrol"))
    with pytest.raises(ConfigurationError, match="breaker_counted_min"):
        breakers(Settings.load(breaker_window=10))
