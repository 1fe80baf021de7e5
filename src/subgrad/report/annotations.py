"""Findings as annotations of GitHub, which shows them at their lines in a pull request."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from subgrad.audit.call_site import Site
from subgrad.gate.baseline import installed
from subgrad.gate.findings import Finding

TITLE = "subgrad"


def within(site: Site, root: Path) -> str | None:
    """The file of a line as the repository names it; None for what is installed or lies elsewhere."""
    if not os.path.isabs(site.file) or installed(site.file) is not None:
        return None
    path = os.path.relpath(os.path.realpath(site.file), os.path.realpath(root))
    return None if path.startswith(os.pardir) else PurePath(path).as_posix()


def shown_at(finding: Finding, root: Path) -> Site:
    """The line of the repository where a finding is shown: its own, or the one that called backward."""
    return finding.site if within(finding.site, root) or not within(finding.backward, root) else finding.backward


def annotation(finding: Finding, root: Path) -> str:
    """One command for GitHub's runner, which reads it where a step prints it."""
    site = shown_at(finding, root)
    file = within(site, root)
    place = f"file={_property(file)},line={site.line}," if file else ""
    elsewhere = "" if site == finding.site and file else f"{finding.site.file}:{finding.site.line}: "
    level = "warning" if finding.fails else "notice"
    return f"::{level} {place}title={TITLE}::{_text(elsewhere + finding.message)}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
