"""Training and test parts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog, read_log


def log_of(n_sessions: int = 20, **more: Any) -> ClickLog:
    session = np.repeat(np.arange(n_sessions), 2)
    return read_log(
        {
            "session": session,
            "query": session % 5,
            "doc": session,
            "rank": np.tile([1, 2], n_sessions),
            "click": session % 2,
            **{name: np.repeat(values, 2) for name, values in more.items()},
        }
    )


@settings(deadline=None)
@given(
    test=st.floats(0.01, 0.99),
    by=st.sampled_from(["session", "query", "device"]),
    seed=st.integers(0, 99),
)
def test_parts_have_every_session_once_and_keep_groups_whole(
    test: float, by: str, seed: int
) -> None:
    log = log_of(device=np.arange(20) // 7)
    train, rest = log.split(test, by=by, seed=seed)
    assert sorted(train.sessions.to_list() + rest.sessions.to_list()) == list(range(20))
    assert train.n_results + rest.n_results == log.n_results
    assert min(len(train), len(rest)) > 0
    assert not set(train.session_column(by)) & set(rest.session_column(by))


def test_the_share_is_of_groups() -> None:
    train, rest = log_of().split(0.25)
    assert (len(train), len(rest)) == (15, 5)
    train, rest = log_of().split(0.4, by="query")
    assert rest.session_column("query").n_unique() == 2


def test_the_seed_decides_and_the_order_of_rows_does_not() -> None:
    log = log_of()
    shuffled = read_log(log.to_frame().sample(fraction=1, shuffle=True, seed=3))
    one, other = log.split(seed=1)[1], shuffled.split(seed=1)[1]
    assert set(one.sessions) == set(other.sessions)
    assert set(one.sessions) != set(log.split(seed=2)[1].sessions)


def test_names_decide_and_not_the_order_of_an_enum() -> None:
    names = np.array(list("abcdefghij"))[np.arange(20) % 10]
    plain = log_of(site=names)
    enum = read_log(plain.to_frame().with_columns(pl.col("site").cast(pl.Enum(list("jihgfedcba")))))
    one, other = plain.split(by="site")[1], enum.split(by="site")[1]
    assert one.sessions.to_list() == other.sessions.to_list()


def test_the_latest_sessions_are_the_test_part() -> None:
    train, rest = log_of(day=np.arange(20)[::-1]).split(0.2, time="day")
    assert sorted(rest.session_column("day")) == [16, 17, 18, 19]
    assert train.session_column("day").max() == 15


def test_ties_stay_in_the_training_part() -> None:
    day = np.array([0] * 10 + [1] * 8 + [2] * 2)
    train, rest = log_of(day=day).split(0.2, time="day")
    assert rest.session_column("day").to_list() == [2, 2]
    assert len(train) == 18


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"test": 0}, r"split\(test=0\): the share should be between 0 and 1"),
        ({"test": 1.0}, "the share should be between 0 and 1"),
        ({"by": "site"}, r"split\(by='site'\): needs at least two different values, .* has 1"),
        ({"by": "colour"}, "no column 'colour'"),
        ({"by": "rank"}, "'rank' has more than one value on a page"),
        ({"by": "query", "time": "day"}, "split by a column or by time"),
        ({"time": "day"}, r"split\(time='day'\): 1 of 20 sessions have no time"),
        ({"time": "when"}, "the latest sessions all have the time '1/2/2024'; try a larger test"),
        ({"time": "site"}, "'x' is neither a number nor a date; times are numbers, or dates such"),
        ({"time": "is_ad"}, "the column holds Boolean, and times are needed"),
    ],
)
def test_what_cannot_be_split_is_refused(how: dict[str, Any], expected: str) -> None:
    day = np.arange(20.0)
    day[3] = np.nan
    with pytest.raises(ClickLogError, match=expected):
        log_of(site=["x"] * 20, day=day, when=["1/2/2024"] * 20, is_ad=[True] * 20).split(**how)


def test_one_session_has_no_later_one() -> None:
    with pytest.raises(ClickLogError, match="needs at least two sessions"):
        log_of(1, day=[1]).split(time="day")


FORMS = [
    ("%d/%m/%Y", "%H:%M"),
    ("%m/%d/%Y", "%I:%M %p"),
    ("%d.%m.%Y", "%H:%M:%S"),
    ("%d-%m-%y", "%H:%M:%S.%f"),
    ("%Y/%m/%d", "%H:%M"),
    ("%Y-%m-%d", "%H:%M:%S+00:00"),
    ("%d %b %Y", "%I:%M:%S %p"),
    ("%B %d, %Y", "%H:%M"),
]
moments = st.datetimes(datetime(1970, 1, 1), datetime(2060, 1, 1))


def split_or_why(log: ClickLog, time: str) -> tuple[tuple[ClickLog, ClickLog] | None, str]:
    try:
        return log.split(0.5, time=time), ""
    except ClickLogError as error:
        return None, str(error)


@settings(deadline=None)
@given(
    times=st.lists(moments, min_size=2, max_size=20),
    forms=st.sampled_from(FORMS),
    hours=st.booleans(),
)
def test_dates_are_sorted_as_dates(
    times: list[datetime], forms: tuple[str, str], hours: bool
) -> None:
    form = " ".join(forms) if hours else forms[0]
    texts = [each.strftime(form) for each in times]
    said = [datetime.strptime(text, form) for text in texts]
    assume(len(set(said)) > 1)
    log = log_of(len(texts), day=texts)
    parts, why = split_or_why(log, "day")
    if "can be read in" in why:
        # The answer can be pasted.
        assert f"time='day:{forms[0]}'" in why
        parts, why = split_or_why(log, f"day:{forms[0]}")
    if parts is None:
        assert "try a larger test" in why
        return
    train, test = (max(said[s] for s in parts[0].sessions), min(said[s] for s in parts[1].sessions))
    assert train < test


def test_texts_are_not_sorted_by_their_letters() -> None:
    days = ["30/11/2023"] * 8 + ["01/12/2023"] * 8 + ["02/12/2023"] * 4
    _, rest = log_of(day=days).split(0.2, time="day")
    assert set(rest.session_column("day")) == {"02/12/2023"}
    _, rest = log_of(day=[str(n) for n in range(1, 21)]).split(0.2, time="day")
    assert sorted(map(int, rest.session_column("day"))) == [17, 18, 19, 20]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (["03/04/2024", "04/03/2024"], r"'03/04/2024' and all others can be read in 2 ways"),
        (["13/04/2024", "04/13/2024"], "'04/13/2024' is no date written as %d/%m/%Y"),
        (["2024-02-30", "2024-02-28"], "'2024-02-30' is no date written as %Y-%m-%d"),
        (["2024-02-03", "soon"], "'soon' is no date written as %Y-%m-%d"),
        (["2024-02-03 24:30", "2024-02-03"], "'2024-02-03 24:30' is no date written as"),
        (["3", "soon"], "'soon' is neither a number nor a date"),
        (["", "2024-02-03"], "1 of 2 sessions have no time"),
    ],
)
def test_odd_dates_are_told(days: list[str], expected: str) -> None:
    with pytest.raises(ClickLogError, match=expected):
        log_of(2, day=days).split(0.5, time="day")


def test_a_form_can_be_said() -> None:
    log = log_of(3, day=["03/04/2024", "04/03/2024", "05/02/2024"])
    assert log.split(0.3, time="day:%d/%m/%Y")[1].sessions.to_list() == [0]
    assert log.split(0.3, time="day:%m/%d/%Y")[1].sessions.to_list() == [2]
    with pytest.raises(ClickLogError, match="'03/04/2024' is no date written as %Y"):
        log.split(0.3, time="day:%Y")
    with pytest.raises(ClickLogError, match="no column 'week'"):
        log.split(0.3, time="week:%Y")
