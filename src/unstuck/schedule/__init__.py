"""When to repeat data for a stuck learner, and when to stop."""

from .diversity import DiversitySchedule

__all__ = ["DiversitySchedule"]
