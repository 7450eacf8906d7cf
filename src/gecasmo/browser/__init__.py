"""Pages for the browser, each one self-contained file: a model that runs there, and a report."""

from gecasmo.browser.report_page import Report, comparison_page, report_page
from gecasmo.browser.shown_model import model_data
from gecasmo.browser.web_page import page_of, write_page

__all__ = ["Report", "comparison_page", "model_data", "page_of", "report_page", "write_page"]
