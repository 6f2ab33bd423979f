"""How long a Transformer sits on a plateau, why, and how to get it off sooner.

The way of the data: spec -> task -> model -> training -> curve -> plateau -> law -> prediction, figure, report.
Importing `unstuck` imports none of the parts; import the one you need, for example `unstuck.theory`.
"""

__version__ = "0.1.0"
