# The weight of progress, β (0 leaves it out), and targets of each step or of each epoch, in every search; λ of the
# generalised advantage in Best-of-16.
# Read: data/metrics/evaluate-0.json, by_turn in data/metrics/stages/prm-1.json (do scores go flat on long episodes?).
searches="evaluate.decoding=[greedy,best_of_16,best_trajectory_of_16,beam_4x4]"
for beta in 0.0 0.1 0.5 1.0 2.0; do
  sh experiments/run "progress-beta-$beta" promise_progress critic.beta=$beta "$searches" -- evaluate@0
done
sh experiments/run progress-epoch promise_progress critic.targets=epoch "$searches" -- evaluate@0
for gae_lambda in 0.8 0.9 0.95 0.99; do
  sh experiments/run "progress-lambda-$gae_lambda" promise_progress critic.gae_lambda=$gae_lambda \
    "evaluate.decoding=[greedy,best_of_16]" -- evaluate@0
done
