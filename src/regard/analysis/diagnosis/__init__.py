"""What is wrong with the heads of a model: findings with evidence, and the rules that raise them."""

from regard.analysis.diagnosis.diagnose import diagnose, diagnose_model
from regard.analysis.diagnosis.diagnosis import Diagnosis
from regard.analysis.diagnosis.finding import SEVERITIES, Finding
from regard.analysis.diagnosis.rules import RULES

__all__ = ["RULES", "SEVERITIES", "Diagnosis", "Finding", "diagnose", "diagnose_model"]
