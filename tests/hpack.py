"""Headers of HTTP/2 in HPACK's simplest form: never indexed, not compressed (RFC 7541, 6.2.2)."""

from collections.abc import Iterable

_LARGEST_IN_A_BYTE = 0x7F  # a number from here on needs further bytes, with a 7-bit prefix
_STATUSES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}  # by index (RFC 7541, appendix A)
_HUFFMAN, _NAME_OF_STATUS = 0x80, 8
_SHORT_DIGITS, _DIGITS = 3, "0123456789"


def encoded(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return headers as the content of HEADERS frames."""
    return b"".join(
        b"\x00" + _text(name.encode()) + _text(value.encode("utf-8", "surrogateescape")) for name, value in fields
    )


def status(block: bytes) -> int:
    """Return the status, which is the first header of a response."""
    while block[0] >> 5 == 1:  # a change of the table's size comes first
        block = block[1:]
    if block[0] & 0x80:
        return _STATUSES[block[0] & 0x7F]
    assert block[0] & 0x0F == _NAME_OF_STATUS
    length, text = block[1] & 0x7F, block[2:]
    return int(_digits(text[:length]) if block[1] & _HUFFMAN else text[:length])


def _digits(text: bytes) -> str:
    """Decode digits: 0 to 2 have five bits, 3 to 9 six, from 25 on (RFC 7541, appendix B)."""
    bits, decoded = "".join(f"{byte:08b}" for byte in text), ""
    while len(decoded) < _SHORT_DIGITS:
        short = int(bits[:5], 2) < _SHORT_DIGITS
        decoded += _DIGITS[int(bits[:5], 2) if short else int(bits[:6], 2) - 0x19 + _SHORT_DIGITS]
        bits = bits[5 if short else 6 :]
    return decoded


def _text(value: bytes) -> bytes:
    return _integer(len(value)) + value


def _integer(number: int) -> bytes:
    if number < _LARGEST_IN_A_BYTE:
        return bytes((number,))
    octets, number = bytes((_LARGEST_IN_A_BYTE,)), number - _LARGEST_IN_A_BYTE
    while number >= 0x80:
        octets, number = octets + bytes((number & 0x7F | 0x80,)), number >> 7
    return octets + bytes((number,))
