"""The page Submit: a person uploads a program, looks at its plan, runs it with arguments and conf, and deletes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from runtime.jobgraph.graph import ScriptCode
from tests.browser.conftest import Cluster, Visits
from tests.kit.browser.visit import Visit

pytestmark = pytest.mark.process


def uploaded(person: Visit, folder: Path, name: str = "etl.py", content: bytes = b"print(1)\n") -> None:
    (folder / name).write_bytes(content)
    person.open("ui/submit", "input[type=file]")
    person.page.set_input_files("input[type=file]", folder / name)
    person.page.click("button:text('Upload')")


def leads_to_its_job(person: Visit, cluster: Cluster) -> None:
    """A run has led to the page of the job that it has submitted."""
    expect(person.page).to_have_url(re.compile(r"/ui/jobs/[0-9a-f]{32}$"))
    assert person.page.url.endswith(cluster.rest.dispatcher.submitted[-1].job_id)


def test_a_script_is_uploaded_and_run(visit: Visits, cluster: Cluster, tmp_path: Path) -> None:
    person = visit()
    person.open("ui/submit")
    expect(person.page.locator(".empty")).to_contain_text("flinklike run etl.py")
    uploaded(person, tmp_path)
    expect(person.page.locator("main h1")).to_have_text("etl.py")
    assert "/ui/submit/" in person.page.url
    person.page.fill("input[name=args]", "--day '2026 11'")
    person.page.fill("textarea", "spark.sql.shuffle.partitions = 3\n\nspark.a=b=c\n")
    assert person.violations() == []
    person.page.click("button:text('Show the plan')")
    expect(person.page.locator("tbody tr")).to_have_text(["etl.py1"])
    assert person.page.input_value("input[name=args]") == "--day '2026 11'"
    person.page.click("button:text-is('Run')")
    leads_to_its_job(person, cluster)
    graph = cluster.rest.dispatcher.graph()
    code = graph.vertices[0].operators[0].code
    assert isinstance(code, ScriptCode)
    assert code.args == ("--day", "2026 11")
    assert graph.spark_conf == {"spark.sql.shuffle.partitions": "3", "spark.a": "b=c"}


def test_the_keyboard_is_enough_to_run_and_to_delete(visit: Visits, cluster: Cluster, tmp_path: Path) -> None:
    person = visit(width=380, scheme="dark")
    uploaded(person, tmp_path)
    person.page.locator("input[name=args]").focus()
    person.page.keyboard.type("a b")
    person.page.keyboard.press("Enter")
    leads_to_its_job(person, cluster)
    person.open("ui/submit", "tbody tr")
    assert person.violations() == []
    assert person.overflow() <= 0
    person.page.locator("tbody button").focus()
    person.page.keyboard.press("Enter")
    expect(person.page.locator("dialog")).to_contain_text("Jobs that run it go on.")
    person.page.click("dialog >> button:text-is('Delete')")
    expect(person.page.locator(".toast")).to_have_text("etl.py is deleted.")
    expect(person.page.locator("tbody tr")).to_have_count(0)


def test_errors_say_what_to_do_beside_what_was_typed(visit: Visits, cluster: Cluster, tmp_path: Path) -> None:
    person = visit()
    person.expected = ("400", "404")
    uploaded(person, tmp_path, "lib.zip", b"no zip")
    expect(person.page.locator("[role=alert]")).to_contain_text("make it again")
    uploaded(person, tmp_path)
    person.page.fill("textarea", "nonsense")
    person.page.click("button:text-is('Run')")
    expect(person.page.locator("[role=alert]")).to_contain_text('"nonsense" is no key=value')
    person.page.fill("textarea", "rest.port=1")
    person.page.click("button:text-is('Run')")
    expect(person.page.locator("[role=alert]")).to_contain_text("a job takes spark.*")
    person.page.fill("textarea", "")
    person.page.fill("input[name=parallelism]", "4")
    person.page.click("button:text-is('Run')")
    expect(person.page.locator("[role=alert]")).to_contain_text("is one task")
    assert cluster.rest.dispatcher.submitted == []
    person.open("ui/submit/" + "0" * 32 + "_gone.py")
    expect(person.page.locator("[role=alert]")).to_contain_text("is not here any more")


@pytest.mark.parametrize(("first", "sentence"), [(503, "is not built yet"), (0, "does not answer")])
def test_a_repeat_goes_on_with_what_was_begun(visit: Visits, tmp_path: Path, first: int, sentence: str) -> None:
    person = visit()
    person.expected = ("503", "404", "net::ERR_FAILED")  # no such job runs
    uploaded(person, tmp_path)
    answers = [(first, {"errors": ["the graph of a:b is not built yet"]}), (200, {"jobid": "1" * 32})]
    asked: list[str] = []

    def answer(route: object) -> None:
        asked.append(json.loads(route.request.post_data)["jobId"])  # type: ignore[attr-defined]
        status, body = answers.pop(0)
        if status:
            route.fulfill(status=status, json=body)  # type: ignore[attr-defined]
        else:
            route.abort()  # type: ignore[attr-defined]

    person.page.route("**/run", answer)
    person.page.fill("input[name=entry]", "a:b")
    person.page.click("button:text-is('Run')")
    expect(person.page.locator("[role=alert]")).to_contain_text(sentence)
    person.page.click("button:text-is('Run')")
    expect(person.page.locator("[role=alert]")).to_have_count(0)
    assert len({*asked}) == 1
