"""An overflow with the smallest batch that a builder shows it for."""

from functools import partial

from cases import batches, extents, shrinking
from cases.verdicts import Batch, Overflow


def smallest(auditor: extents.Auditor, overflow: Overflow) -> Overflow:
    """The overflow for a smallest batch: one for all cases of a cell that find the same buffer and kind."""
    same = (overflow.buffer, overflow.how)
    if same not in auditor.smallest:
        auditor.smallest[same] = shrinking.smallest(overflow, auditor.border, partial(_like, auditor, overflow))
    return auditor.smallest[same]


def _like(auditor: extents.Auditor, overflow: Overflow, batch: Batch) -> Overflow | None:
    """The overflow of the same buffer and kind for another batch, if that may be formed."""
    if not batches.may_be_formed(batch, auditor.cell.load):
        return None
    same = (overflow.buffer, overflow.how)
    try:
        built = auditor.build(batch)
        shown = built.overflows or (auditor.silent(built) if overflow.how == "silent" else ())
        return next((o for o in shown if (o.buffer, o.how) == same), None)
    except Exception:  # noqa: BLE001 - another fault than the one that is being cut down
        return None
