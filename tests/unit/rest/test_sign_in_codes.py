"""R48: a code of `flinklike open` signs in once, within a minute, at the JobManager that has given it."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.rest.access.sign_in_codes import LIFE_SECONDS, SignInCodes


@dataclass
class Wall:
    """A clock that a test sets."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def epoch_millis(self) -> int:
        return int(self.seconds * 1000)


def test_a_code_is_taken_once_and_in_time() -> None:
    clock = Wall()
    codes = SignInCodes(clock)
    first, second, third = (codes.give("a"), codes.give("a"), codes.give("b"))
    assert len({first, second, third}) == 3
    assert (codes.take(first), codes.take(first)) == ("a", "")
    clock.seconds = LIFE_SECONDS - 0.1
    assert codes.take(third) == "b"
    clock.seconds = LIFE_SECONDS
    assert codes.take(second) == ""
    assert codes.take("") == ""


def test_codes_that_nobody_takes_are_bounded_and_not_shown() -> None:
    codes = SignInCodes(Wall())
    given = [codes.give("secret") for _ in range(150)]
    assert codes.take(given[0]) == "", "the oldest end"
    assert codes.take(given[-1]) == "secret"
    assert "secret" not in repr(codes)
    assert given[50] not in repr(vars(codes))


def test_one_token_does_not_end_the_codes_of_others() -> None:
    codes = SignInCodes(Wall())
    first = codes.give("of another")
    own = [codes.give("one") for _ in range(200)]
    assert codes.take(first) == "of another"
    assert [codes.take(one) for one in own[-6:]] == ["", *["one"] * 5]
