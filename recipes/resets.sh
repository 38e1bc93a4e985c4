# Reset-50-50: half of the rollouts start in states of demonstrations, so the training games are those with one, and a game has an
# even number of episodes. Half of a usual update.
# Read: data/metrics/evaluate-1.json.
half="-S search.games=1800 -S policy.steps=420 -S evaluate.decoding=[greedy,sample,best_of_n]"
for share in 0.0 0.5; do
  sh recipes/experiment "resets-$share" $half -S games.train=4000 -S rollout.games=900 -S rollout.episodes_per_game=4 \
    -S prm.require_ranking=false -S rollout.reset_share=$share evaluate@1
done
