"""One finished tiny study for all tests that need one."""

import pytest
from project import Project


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A finished tiny study, in a folder with a space in its name; one input is over a megabyte."""
    project = Project(tmp_path_factory.mktemp("a study"))
    tiny = project.folder / "config/tiny.yaml"
    tiny.write_text(tiny.read_text().replace("test: 16}\n  list", "test: 1500}\n  list", 1))
    done = project.study()
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests of the finished study go to one worker, so that it is made once; before xdist reads the marks."""
    for item in items:
        if "study" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("study"))
