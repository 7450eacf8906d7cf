"""The page in a real browser: drag, toggle, slide, type; and nothing on its console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gecasmo.browser import model_data, page_of
from gecasmo.models import CATALOGUE


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Iterator[Any]:
    """The page of a DBN, as it is when it is opened."""
    file = tmp_path / "dbn.html"
    file.write_text(page_of(model_data(CATALOGUE["DBN"]())), encoding="utf-8")
    driver.get(file.as_uri())
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []


def rows(page: Any) -> list[Any]:
    return page.find_elements("css selector", "#page tbody tr")


def docs(page: Any) -> list[str]:
    return [row.get_attribute("data-doc") for row in rows(page)]


def text_of(page: Any, selector: str) -> str:
    return page.find_element("css selector", selector).text


def test_a_result_is_dragged(page: Any) -> None:
    from selenium.webdriver import ActionChains

    assert docs(page) == [f"result {letter}" for letter in "ABCDEF"]
    handles = page.find_elements("css selector", "#page .handle")
    ActionChains(page).click_and_hold(handles[3]).move_to_element(handles[0]).release().perform()
    assert docs(page) == [f"result {letter}" for letter in "DABCEF"]


def test_a_result_is_moved_by_the_keyboard(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    keys = ActionChains(page)
    page.execute_script("arguments[0].focus()", rows(page)[0])
    keys.key_down(Keys.ALT).send_keys(Keys.ARROW_DOWN).send_keys(Keys.ARROW_DOWN).key_up(Keys.ALT)
    keys.perform()
    assert docs(page) == [f"result {letter}" for letter in "BCADEF"]
    assert page.switch_to.active_element.get_attribute("data-doc") == "result A"
    assert "result A is now result 3" in text_of(page, "#status")


def test_a_click_changes_what_is_believed(page: Any) -> None:
    before = text_of(page, "#story")
    rows(page)[2].find_element("css selector", "[data-toggle=click]").click()
    after = text_of(page, "#story")
    assert before != after
    assert "result C: attraction" in after
    # Who clicks the third result has seen those above.
    reached = [row.find_element("css selector", ".seen").text for row in rows(page)]
    assert reached[:3] == ["100.0 %"] * 3
    assert page.switch_to.active_element.get_attribute("aria-pressed") == "true"
    page.find_element("id", "clear").click()
    assert text_of(page, "#story") == before


def test_a_slider_moves_a_coin(page: Any) -> None:
    before = [row.find_element("css selector", ".clicks").text for row in rows(page)]
    slide = "arguments[0].value = 3; arguments[0].dispatchEvent(new Event('input'))"
    slider = page.find_element("css selector", "[data-slider=continuation]")
    page.execute_script(slide, slider)
    after = [row.find_element("css selector", ".clicks").text for row in rows(page)]
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert text_of(page, "[data-coin=continuation]") == "97.9 %"  # odds of .7, times e^3


def test_the_best_order_puts_what_attracts_and_does_not_satisfy_first(page: Any) -> None:
    script = "return gecasmo.worth(gecasmo.machine, gecasmo.shown(), gecasmo.needs, 'click')"
    before = page.execute_script(script)
    page.find_element("id", "best").click()
    assert page.execute_script(script) > before
    assert "All orders were tried" in text_of(page, "#worth-told")


def test_arrows_and_edges_belong_together(page: Any) -> None:
    arrow = page.find_element("css selector", "#automaton .reach")
    page.execute_script("arguments[0].focus()", arrow)
    pointed = page.find_elements("css selector", "#edges tr.pointed")
    assert pointed
    assert all(row.text.startswith("examining") for row in pointed)


def sticks_out(page: Any, width: int) -> int:
    """By how many pixels a page is too wide for a screen."""
    screen = {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wanted = page.execute_script("return document.documentElement.scrollWidth")
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return max(wanted - width, 0)


@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_nothing_sticks_out(page: Any, width: int) -> None:
    assert sticks_out(page, width) == 0


@pytest.mark.parametrize("name", ["UBM", "FCM", "ShopDBN", "GridDBN", "TCM", "CCM"])
def test_other_models_are_shown(driver: Any, tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.html"
    file.write_text(page_of(model_data(CATALOGUE[name]())), encoding="utf-8")
    driver.get(file.as_uri())
    assert text_of(driver, "h1") == name
    driver.find_element("css selector", "[data-toggle=click]").click()
    assert sticks_out(driver, 400) == 0
    assert driver.get_log("browser") == []
