# The weight of progress, β (0 leaves it out), and targets of each step or of each epoch, in every search; λ of the
# generalised advantage in Best-of-16.
# Read: data/metrics/evaluate-0.json, by_turn in data/metrics/stages/prm-1.json (do scores go flat on long episodes?).
searches="evaluate.decoding=[greedy,best_of_16,best_trajectory_of_16,beam_4x4]"
for beta in 0.0 0.1 0.5 1.0 2.0; do
  sh experiments/run "progress-beta-$beta" no_memory promise_progress critic.beta=$beta "$searches" -- evaluate@0
done
sh experiments/run progress-epoch no_memory promise_progress critic.targets=epoch "$searches" -- evaluate@0
for gae_lambda in 0.8 0.9 0.95 0.99; do
  sh experiments/run "progress-lambda-$gae_lambda" no_memory promise_progress critic.gae_lambda=$gae_lambda \
    "evaluate.decoding=[greedy,best_of_16]" -- evaluate@0
done
# The same in WebShop, where the paper has it too, with Monte Carlo labels beside; without the policy's likelihood and prior,
# as in the papers; and as many episodes of 225 games, 16 of each, in place of one of 3,600.
# Plain heads, a loss on pages. The figures are of tokens of single words; with those of this tree π₀ learns more.
webshop="webshop compute.threads=1 games.train=46700 critic.require=nothing model.heads=4 sft.observation_weight=0.5 sft.epochs=3.5"
webshop="$webshop demos.games=4000 rollout.games=3600 rollout.branch.train_states=0 rollout.branch.random_states=0"
webshop="$webshop rollout.branch.validation_states=200 rollout.branch.continuations=6"
webshop="$webshop evaluate.decoding=[greedy,best_of_16,best_of_16_by_untrained_likelihood,beam_4x4,beam_8x8]"
few="rollout.games=225 rollout.episodes_per_game=16"
bare="critic.likelihood=0.0 critic.prior=0.0"
for beta in 0.0 0.1 0.5 1.0 2.0; do
  sh experiments/run "webshop-beta-$beta" no_memory promise_progress $webshop "critic.beta=$beta" -- evaluate@0
done
for gae_lambda in 0.8 0.9 0.99; do
  sh experiments/run "webshop-lambda-$gae_lambda" no_memory promise_progress $webshop "critic.gae_lambda=$gae_lambda" -- evaluate@0
done
sh experiments/run webshop-labels no_memory $webshop -- evaluate@0
sh experiments/run webshop-bare no_memory promise_progress $webshop $bare -- evaluate@0
sh experiments/run webshop-labels-bare no_memory $webshop $bare -- evaluate@0
sh experiments/run webshop-16 no_memory promise_progress $webshop $few -- evaluate@0
sh experiments/run webshop-labels-16 no_memory $webshop $few -- evaluate@0
