# Policy gradients beside imitation of a search under the PRM, at equal budgets: one first policy, one update, about 7,000
# episodes played and 1.6 million tokens trained on. The policy gradients play 256 fresh episodes every 15 steps of AdamW. No
# branched states: only the critic monte_carlo could learn from them.
#
#     sh experiments/29-rivals/run.sh             # one seed
#     SEEDS="1 2 3" sh experiments/29-rivals/run.sh
#
# Read: the table that is printed last; the control by demonstrations alone, which is printed after `search`.
kept=.scratch/experiments/rivals
equal="no_memory compute.threads=1 rollout.branch.train_states=0 rollout.branch.random_states=0 critic.require=nothing
  evaluate.decoding=[greedy,sample]"
groups="rollout.games=450 rollout.episodes_per_game=8"
online="method.optimizer=adamw method.learning_rate=1.0e-4 method.steps=420" # what the profiles of the others have
fresh="method.refresh={every: 15, games: 32}"
one() { # NAME WORD…: this experiment, and what it measured kept under its name
  name=$1 folder=$kept/$1-$seed
  shift
  rm -rf "${folder:?}" && mkdir -p "$folder/data"
  THEN="cp params.yaml $folder/ && cp -rL data/evaluations data/metrics $folder/data/ && ${also:-:}" \
    sh experiments/run "rivals-$name-$seed" "$@" $equal seed=$seed -- evaluate@0 evaluate@1
}
for seed in ${SEEDS:-1}; do
  one grpo grpo rollout.games=32 $online "$fresh"
  one gigpo gigpo rollout.games=32 $online "$fresh"
  one loop loop rollout.games=32
  one istar istar rollout.games=32
  one tree_grpo tree_grpo rollout.games=32
  one ppo ppo rollout.games=256
  also="python -m benchmarks.updates --campaign . --keep data/longer --steps 840 --arms demonstrations" one search $groups
  also=
  one rft rft rollout.games=900 rollout.episodes_per_game=8
  one rft_many_games rft rollout.games=7200 rollout.episodes_per_game=1
  one rft_few_games rft rollout.games=450 rollout.episodes_per_game=16
  one preferences online_dpo $groups # paper A's update, from the search's rollouts and PRM
done
folders=$(for folder in "$kept"/*-*; do name=${folder##*/}; echo "${name%-*}=$folder"; done)
python -m benchmarks.side_by_side $folders --over search
