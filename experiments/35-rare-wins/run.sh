# What are labels worth where the policy rarely wins, and what helps? A scripted policy on generated households; no training.
# Read: the last line of each.
for noise in 0.6 0.8 0.9 0.95; do
  for start in "" --resets; do
    python -m benchmarks.credit --noise $noise $start --games 80 --states 600 --truth 64 --json
  done
done
