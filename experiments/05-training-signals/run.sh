# Training signals from the same first policy and the same rollouts, one update each: preferences by three critics, imitation
# of the search by two of them, and policy gradients. Eight episodes a game, since GRPO learns from their differences. No
# branched states: only the critic monte_carlo could learn from them.
# Read: data/metrics/evaluate-1.json of each.
equal="rollout.games=450 rollout.episodes_per_game=8 rollout.branch.train_states=0 rollout.branch.random_states=0"
equal="$equal evaluate.decoding=[greedy,sample]"
any=critic.require=nothing
sh experiments/run signals-agentprm-a no_memory online_dpo $equal $any -- evaluate@1
sh experiments/run signals-agentprm-b no_memory promise_progress online_dpo $equal $any -- evaluate@1
sh experiments/run signals-search-a no_memory $equal $any -- evaluate@1
sh experiments/run signals-search-b no_memory promise_progress $equal $any -- evaluate@1
sh experiments/run signals-inverse no_memory inverse $equal $any -- evaluate@1
sh experiments/run signals-grpo no_memory grpo $equal $any -- evaluate@1
sh experiments/run signals-gigpo no_memory gigpo $equal $any -- evaluate@1
