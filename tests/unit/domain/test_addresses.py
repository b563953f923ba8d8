"""Which addresses a target may have, and which it must not lead to."""

import pytest

from headrace.domain.push import address_fault

REFUSED = [
    "0.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "127.255.255.255",
    "169.254.169.254",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.51.100.1",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "4000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1%eth0",
    "2a00:1450:4001::1%eth0",
    "fec0::1",
    "ff0e::1",
]
ALLOWED = [
    "1.1.1.1",
    "9.255.255.255",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "192.169.0.0",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2001:4860:4860::8888",
    "2a00:1450:4001:81b::2004",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_of_the_whole_internet_is_refused(address: str) -> None:
    assert address_fault(address) is not None


@pytest.mark.parametrize("address", ALLOWED)
def test_what_everybody_can_reach_is_allowed(address: str) -> None:
    assert address_fault(address) is None


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "[::1]", "1.2.3.4.5"])
def test_what_is_no_address_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        address_fault(text)
