# Does a preference for actions rarely tried at a state help? Scored and trained as ever.
# Read: coverage in data/metrics/stages/label-1.json, ranking in prm-1.json, success in data/metrics/evaluate-1.json.
for exploration in 0.0 0.5 1.0; do
  sh recipes/experiment "exploration-$exploration" -S rollout.games=1200 -S rollout.episodes_per_game=3 \
    -S prm.require_ranking=false -S rollout.exploration=$exploration evaluate@1
done
