# Cross-entropy or Bradley-Terry? The relative loss learns from branched states alone. Half of a usual update.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
half="-S search.games=1800 -S policy.steps=420 -S evaluate.decoding=[greedy,sample,best_of_n]"
for loss in bce relative; do
  sh recipes/experiment "loss-$loss" $half -S rollout.branch.train_states=1000 -S rollout.branch.random_states=0 -S prm.require_ranking=false -S prm.loss=$loss evaluate@1
done
