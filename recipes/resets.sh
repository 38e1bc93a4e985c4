# Reset-50-50: half of the rollouts start in states of demonstrations, so the training games are those with one.
# Read: data/metrics/evaluate-1.json.
for share in 0.0 0.5; do
  sh recipes/experiment "resets-$share" -S games.train=4000 -S rollout.reset_share=$share evaluate@1
done
