from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.environments.harbor.dockerfile import ImageFiles, NeedsContainer, read_image, working_folder


def _image(folder: Path, text: str) -> ImageFiles:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "one.txt").write_text("1")
    (folder / "two.txt").write_text("2")
    (folder / "run.sh").write_text("echo")
    (folder / "run.sh").chmod(0o755)
    (folder / "Dockerfile").write_text(text)
    return read_image(folder)


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("copies", "files"),
    [
        ("COPY data /app/data", {"app/data/one.txt"}),
        ("COPY data/ /app/", {"app/one.txt"}),
        ("WORKDIR /app\nCOPY two.txt run.sh ./", {"app/two.txt", "app/run.sh"}),
        ("COPY --chown=root *.txt /app/", {"app/two.txt"}),
        ('COPY ["two.txt", "/app/a file.txt"]', {"app/a file.txt"}),
        ("WORKDIR /app\nCOPY two.txt .", {"app/two.txt"}),
        ("COPY two.txt \\\n  /app/renamed.txt", {"app/renamed.txt"}),
        ("WORKDIR /app\nCOPY . .", {"app/Dockerfile", "app/data/one.txt", "app/two.txt", "app/run.sh"}),
    ],
)
def test_files_are_copied_as_the_image_would_have_them(tmp_path: Path, copies: str, files: set[str]) -> None:
    (tmp_path / "task").mkdir()
    image = _image(tmp_path / "task", f"FROM python:3.11-slim\n{copies}\n")
    image.write(tmp_path / "root")
    assert _files(tmp_path / "root") == files
    assert "app" in image.tops()


def test_modes_folder_and_variables(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    text = """# a comment
from ubuntu
LABEL a=b
ENV A=1 B="two words"
ENV C three words
WORKDIR /srv
WORKDIR work
COPY run.sh x.sh
"""
    image = _image(tmp_path / "task", text)
    image.write(tmp_path / "root")
    assert image.variables == {"A": "1", "B": "two words", "C": "three words"}
    assert image.folder == "/srv/work" and image.tops() == {"srv"}
    assert (tmp_path / "root/srv/work/x.sh").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM ubuntu\nRUN apt-get install -y gcc", "`RUN apt-get install -y gcc`: RUN is not done"),
        ("FROM swebench/sweb.eval.x86_64.astropy", "files of its own"),
        ("FROM ubuntu AS a\nFROM ubuntu", "more than one stage"),
        ("FROM ubuntu\nCOPY --from=a /x /app/", "--from=a"),
        ("FROM ubuntu\nCOPY two.txt /etc/", "/etc is the host's"),
        ("FROM ubuntu\nCOPY ../secret /app/", "not in the task"),
        ("FROM ubuntu\nCOPY missing /app/", "missing is not in the task"),
        ("FROM ubuntu\nWORKDIR /app\nCOPY two.txt ../../etc/passwd", "no folder of its own"),
        ("FROM ubuntu\nENV PATH=/opt:$PATH", "variables are not replaced"),
        ("FROM ubuntu\nCMD nginx", "CMD is not done"),
    ],
)
def test_all_else_needs_a_container_and_the_message_says_why(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "task").mkdir()
    with pytest.raises(NeedsContainer) as caught:
        _image(tmp_path / "task", text)
    assert reason in str(caught.value) and str(tmp_path / "task" / "Dockerfile") in str(caught.value)


def test_a_source_that_leads_out_of_the_task_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(NeedsContainer, match="not in the task's folder"):
        _image(tmp_path / "task", "FROM ubuntu\nCOPY link /app/")


def test_services_need_containers(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yaml").write_text("services: {}")
    with pytest.raises(NeedsContainer, match="services"):
        read_image(tmp_path)


def test_the_working_folder_of_any_dockerfile(tmp_path: Path) -> None:
    assert working_folder(tmp_path) == ""
    (tmp_path / "Dockerfile").write_text("FROM x\nRUN y\nWORKDIR /a\nworkdir /app\n")
    assert working_folder(tmp_path) == "/app"
