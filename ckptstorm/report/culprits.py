"""Who is to blame for a tail, in words, and how sure that is."""

from __future__ import annotations

from ckptstorm.measure.rows import Phase
from ckptstorm.record.attribution import Attribution, Cause, attribution
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Fact


def facts(known: Known, phase: Phase) -> list[Fact]:
    """The culprit of a phase's tail, or that there is none; nothing when there is no tail."""
    found = attribution(known.record, phase)
    if found is None:
        return []
    culprits = found.culprits
    told = [Fact("culprit", _named(cause), "doubt") for cause in culprits if not _is_told_before(cause, culprits)]
    return told or [Fact("culprit", _nobody(found), "quiet")]


def _named(cause: Cause) -> str:
    both = f" (or its {cause.same_as}: they always go together)" if cause.same_as else ""
    return (
        f"the {cause.kind} {cause.name}{both}: {cause.times:.1f} times the others' time; it explains "
        f"{percent(cause.share)} of how ranks differ (by chance: {percent(cause.chance)} likely)"
    )


def _is_told_before(cause: Cause, culprits: tuple[Cause, ...]) -> bool:
    """Of two that go together the first one names both."""
    before = culprits[: culprits.index(cause)]
    return any(cause.same_as == other.kind for other in before)


def _nobody(found: Attribution) -> str:
    kinds = " or ".join(cause.kind for cause in found.causes)
    return (
        f"no {kinds} explains the tail beyond chance ({counted(found.round_count, 'round')}; "
        f"{percent(found.chance_share)} of how ranks differ is explained by none)"
    )
