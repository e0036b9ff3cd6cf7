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
    """Tests of the finished study go to one worker, those of a file to one, so that what they share is made once."""
    for item in items:  # before xdist reads the marks
        item.add_marker(pytest.mark.xdist_group("study" if "study" in item.fixturenames else item.path.name))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids):
    """xdist 3.8 groups nothing, and says nothing, with a pytest that it does not know (9.2)."""
    if node.config.getvalue("dist") == "loadgroup" and any("@" not in name for name in ids):
        pytest.exit("this pytest and this pytest-xdist do not group tests: take those of envs/requirements.lock", returncode=2)
