# Cross-entropy or Bradley-Terry? The relative loss learns from branched states alone.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
for loss in bce relative; do
  sh recipes/experiment "loss-$loss" -S rollout.branch.train_states=1000 -S rollout.branch.random_states=0 -S prm.require_ranking=false -S prm.loss=$loss evaluate@1
done
