# Reset-50-50: half of the rollouts start in states of demonstrations, so the training games are those with one, and a game has an
# even number of episodes.
# Read: data/metrics/evaluate-1.json.
for share in 0.0 0.5; do
  sh recipes/experiment "resets-$share" -S games.train=4000 -S rollout.games=900 -S rollout.episodes_per_game=4 \
    -S prm.require_ranking=false -S rollout.reset_share=$share evaluate@1
done
