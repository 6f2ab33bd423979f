"""How to get a stuck learner moving: when to repeat data, and when to stop."""

from .diversity import DiversitySchedule

__all__ = ["DiversitySchedule"]
