"""Why a gradient became infinite or NaN, in sentences."""

from __future__ import annotations

from subgrad.audit.nonfinite.result import COTANGENT, NAN, OVERFLOW, SLOPE, SUM, UNKNOWN, VALUE, Line, Nonfinite


def words(found: Nonfinite) -> str:
    """What happened, a sentence a line, and what to write instead."""
    said = sentences(found)
    for each in found.advice:
        code = "\n".join(f"    {line}" for line in each.code.splitlines())
        said.append(f"{each.words}:\n{code}")
    return "\n".join(said)


def sentences(found: Nonfinite) -> list[str]:
    """What happened, and what lies on the way."""
    return [f"{_what(found)} {_WHY[found.kind](found)}", *_way(found)]


def _what(found: Nonfinite) -> str:
    names = [each.parameter for each in found.reached]
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    steps = f" and {found.steps - 1} more" if found.steps > 1 else ""
    return f"Step {found.step}{steps}: the gradient of {some or 'what was asked for'} became {found.became}."


def _slope(found: Nonfinite) -> str:
    return f"The slope of {found.line} is infinite or undefined{_where(found)}."


def _overflow(found: Nonfinite) -> str:
    return f"It overflowed at {found.line}, whose slope is finite{_where(found)}."


def _value(found: Nonfinite) -> str:
    at = f", first at {found.value}{_entry(found.value)}" if found.value else ""
    return f"The value that backward was called on was not finite itself{at}."


def _cotangent(found: Nonfinite) -> str:
    return f"The gradient that backward was given at {found.site} was not finite."


def _sum(found: Nonfinite) -> str:
    return f"Gradients of several uses were added up there: {found.line}." if found.line else "Gradients were added up."


def _unknown(found: Nonfinite) -> str:
    return (
        "It became so outside of what was looked at: in a hook, in compiled code, on another rank, or in a line that "
        "is not watched; `subgrad.explain_nan` looks at all."
    )


_WHY = {
    SLOPE: _slope,
    OVERFLOW: _overflow,
    VALUE: _value,
    COTANGENT: _cotangent,
    SUM: _sum,
    UNKNOWN: _unknown,
}


def _where(found: Nonfinite) -> str:
    cotangent = f", with a cotangent of {found.cotangent}: {found.gradient}" if found.cotangent else ""
    return f"{_entry(found.line)}{cotangent}"


def _entry(line: Line | None) -> str:
    if line is None:
        return ""
    at = f" at entry {list(line.entry)}" if line.entry else ""
    values = ", ".join(f"{name} = {value}" for name, value in line.inputs)
    return f"{at}, where {values}" if values else at


def _way(found: Nonfinite) -> list[str]:
    """What else lies on the way."""
    said = []
    if found.kind != VALUE and found.value is not None:
        said.append(
            f"A value was not finite there already, and did not reach the end: {found.value}{_entry(found.value)}."
        )
    if found.mask is not None:
        said.append(f"{found.mask} keeps that entry out of the result, and not its slope: 0 times infinity is NaN.")
    if found.zero is not None:
        said.append(f"The cotangent is 0 there because {found.zero} has a slope of 0, and 0 times infinity is NaN.")
    if found.nan_line is not None and found.nan_line.site != (found.line and found.line.site):
        said.append(f"Infinity became NaN at {found.nan_line}{_entry(found.nan_line)}.")
    is_added = found.became == NAN and found.nan_line is None and found.gradient in ("inf", "-inf")
    if found.is_whole and is_added:
        said.append("Infinity became NaN where gradients of both signs were added up, of several uses of one tensor.")
    if not found.is_whole:
        said.append("Of what lies around that line nothing was kept; `subgrad.explain_nan` looks at all.")
    return said
