"""Renders docker/chart with Helm's own code, which a package of PyPI brings as a library."""

import pytest
import yaml
from serving import ROOT

CHART = ROOT / "docker/chart"


def helm():
    """The module; the test is skipped, aloud, without it."""
    return pytest.importorskip("helm_python", reason="the chart is not rendered without helm-python-sdk")


def render(values=None, name="demo", namespace="prod"):
    """The objects of a release, in the order of their files."""
    with helm().Chart.load(str(CHART)) as chart:
        files = chart.render(values or {}, name=name, namespace=namespace)
    texts = [text for file, text in sorted(files.items()) if not file.endswith("NOTES.txt")]
    return [doc for text in texts for doc in yaml.safe_load_all(text) if doc]


def one(docs, kind):
    (found,) = [d for d in docs if d["kind"] == kind]
    return found
