"""GSM8K: grade-school word problems, answered in free text (Cobbe et al. 2021, openai/grade-school-math, MIT)."""
