"""Figures of attention: each function returns a matplotlib figure, and neither shows nor writes it.

`figure.savefig("head.png")` writes one as PNG, SVG or PDF, by its suffix. No pyplot, no window, no global
state: a figure is let go when its last name is. Tensors on any device, NumPy arrays and what Regard observed
will do.
"""

from regard.draw.changed import changed
from regard.draw.diagram import structure
from regard.draw.entropies import entropy
from regard.draw.findings import findings
from regard.draw.flow import flow
from regard.draw.grids import heads
from regard.draw.heatmaps import heatmap
from regard.draw.history import history, strip
from regard.draw.image_words import overlay
from regard.draw.norms import norm_shares, norms
from regard.draw.output_norms import strength
from regard.draw.positions import positions
from regard.draw.profiles import by_distance, histograms, relative_maps
from regard.draw.redundancy import redundancy
from regard.draw.remedies import remedies
from regard.draw.roles import roles
from regard.draw.rollout import rollout
from regard.draw.sentences import passage
from regard.draw.series import Panel, series
from regard.draw.sharpness import sharpness
from regard.draw.sparse_plan import eviction, sparse_plan
from regard.draw.temperatures import temperatures

__all__ = [
    "Panel",
    "by_distance",
    "changed",
    "entropy",
    "eviction",
    "findings",
    "flow",
    "heads",
    "heatmap",
    "histograms",
    "history",
    "norm_shares",
    "norms",
    "overlay",
    "passage",
    "positions",
    "relative_maps",
    "redundancy",
    "remedies",
    "roles",
    "rollout",
    "series",
    "sharpness",
    "sparse_plan",
    "strength",
    "strip",
    "structure",
    "temperatures",
]
