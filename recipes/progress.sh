# The weight of progress, β (0 leaves it out), and targets of each step or of each epoch, in every search; λ of the generalised
# advantage in Best-of-16. No branched states: TD + GAE could not learn from them.
# Read: data/metrics/evaluate-0.json, by_turn in data/metrics/stages/prm-1.json (do scores go flat on long episodes?).
promise="-S label.credit=gae -S prm.loss=promise_progress -S rollout.branch.train_states=0 -S rollout.branch.random_states=0"
searches="evaluate.decoding=[greedy,best_of_n,best_trajectory,beam]"
for beta in 0.0 0.1 0.5 1.0 2.0; do
  sh recipes/experiment "progress-beta-$beta" $promise -S "$searches" -S prm.beta=$beta evaluate@0
done
sh recipes/experiment progress-epoch $promise -S "$searches" -S prm.targets=epoch evaluate@0
for gae_lambda in 0.8 0.9 0.95 0.99; do
  sh recipes/experiment "progress-lam-$gae_lambda" $promise -S "evaluate.decoding=[greedy,best_of_n]" -S prm.gae_lambda=$gae_lambda evaluate@0
done
