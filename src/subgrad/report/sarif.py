"""Findings as SARIF 2.1.0, the format in which code scanners, GitHub's among them, take what others found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import quote

from subgrad.audit.call_site import Site
from subgrad.audit.result import Audit
from subgrad.gate.baseline import Key
from subgrad.gate.findings import RULES, Finding, line_of
from subgrad.report.annotations import shown_at, within
from subgrad.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"  # the folder that files are named from, as SARIF and GitHub call it
FINGERPRINT = "subgrad/v1"


def sarif(audit: Audit, findings: Sequence[Finding], root: Path, has_baseline: bool, exit_code: int) -> str:
    """The findings, and what was not seen, as one run of one tool."""
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()]
    not_seen = [{"level": "note", "message": {"text": f"Not seen: {each}."}} for each in audit.unseen]
    run = {
        "tool": {"driver": {"name": "subgrad", "semanticVersion": __version__, "rules": rules}},
        "originalUriBaseIds": {ROOT: {"uri": f"{root.absolute().as_uri()}/"}},
        "invocations": [{"executionSuccessful": True, "exitCode": exit_code, "toolExecutionNotifications": not_seen}],
        "results": [_result(each, root, has_baseline) for each in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, root: Path, has_baseline: bool) -> dict[str, Any]:
    shown = shown_at(finding, root)
    others = [each for each in dict.fromkeys((finding.site, finding.backward)) if each != shown]
    elsewhere = "" if shown == finding.site else f"{finding.site}: "
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": list(RULES).index(finding.rule),
        "level": "warning" if finding.fails else "note",
        "message": {"text": elsewhere + finding.message},
        "locations": [_location(shown, root)],
        "relatedLocations": [_location(each, root) for each in others],
        # The same for the same line, wherever other edits move it.
        "partialFingerprints": {FINGERPRINT: _digest(finding, root)},
    }
    if has_baseline:
        result["baselineState"] = "unchanged" if finding.is_known else "new"
    return result


def _location(site: Site, root: Path) -> dict[str, Any]:
    file = within(site, root)
    if file is not None:
        artifact = {"uri": quote(file), "uriBaseId": ROOT}
    elif Path(site.file).is_absolute():
        artifact = {"uri": Path(site.file).as_uri()}
    else:  # code that was made as it ran has no file
        return {"message": {"text": str(site)}}
    region = {"startLine": site.line, **({"snippet": {"text": site.source}} if site.source else {})}
    place = {"physicalLocation": {"artifactLocation": artifact, **({"region": region} if site.line else {})}}
    return {**place, "logicalLocations": [{"name": site.function, "kind": "function"}]}


def _digest(finding: Finding, root: Path) -> str:
    key = Key.of(line_of(finding), root)
    return hashlib.sha256(repr((finding.rule, *astuple(key))).encode()).hexdigest()[:32]
