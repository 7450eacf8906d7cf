"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    text = README.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 5
    (tmp_path / "tests").symlink_to(README.parent / "tests")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks))
    namespace = {"__name__": "readme", "__file__": str(program)}
    exec(compile(program.read_text(), str(program), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "log-likelihood per session" in printed
    assert "TwoKindsOfUsers: passed" in printed


def test_the_readme_begins_with_the_two_commands():
    commands = re.findall(r"```console\n(.*?)```", README.read_text(), flags=re.DOTALL)[0]
    assert [line.split("#")[0].strip() for line in commands.strip().splitlines()] == [
        "make demo",
        "make test",
    ]


def test_ci_runs_the_test_command_of_the_readme():
    script = (README.parent / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "make test"


def test_the_table_of_speed_is_that_of_the_last_benchmark():
    measured = (README.parent / "benchmarks" / "results" / "latest.md").read_text()
    rows = re.findall(
        r"^\| (DBN|UBM|Restless)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$",
        README.read_text(),
        flags=re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["DBN", "UBM", "Restless"]
    for row in rows:
        assert f"| {' | '.join(row)} |" in measured
