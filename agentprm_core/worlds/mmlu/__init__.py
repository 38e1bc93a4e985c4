"""MMLU: four-choice questions of 57 subjects, answered in free text (Hendrycks et al. 2021, MIT)."""
