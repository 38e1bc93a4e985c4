# Policy gradients beside imitation of a search under the PRM, at equal budgets: one first policy, one update, about 7,000
# episodes played and 1.7 million tokens trained on. The policy gradients play 64 fresh episodes every ten steps, with their
# profiles' numbers; GRPO and LOOP also with a tenth of the learning rate. No branched states: only the critic monte_carlo could learn from them.
#
#     sh experiments/29-rivals/run.sh             # one seed
#     SEEDS="1 2 3" sh experiments/29-rivals/run.sh
#
# Read: the table that is printed last; the control by demonstrations alone, which is printed after `search`.
kept=.scratch/experiments/rivals
equal="no_memory compute.threads=1 rollout.branch.train_states=0 rollout.branch.random_states=0 critic.require=nothing
  evaluate.decoding=[greedy,sample]"
groups="rollout.games=450 rollout.episodes_per_game=8" steps="method.steps=420"
fresh="method.refresh={every: 10, games: 8}"
one() { # NAME WORD…: this experiment, and what it measured kept under its name
  name=$1 folder=$kept/$1-$seed
  shift
  rm -rf "${folder:?}" && mkdir -p "$folder/data"
  THEN="cp params.yaml $folder/ && cp -rL data/evaluations data/metrics $folder/data/ && ${also:-:}" \
    sh experiments/run "rivals-$name-$seed" "$@" $equal seed=$seed -- evaluate@0 evaluate@1
}
for seed in ${SEEDS:-1}; do
  one grpo grpo $groups $steps "$fresh"
  one ppo ppo $steps
  one loop loop $groups $steps "$fresh"
  one grpo_slow grpo $groups $steps "$fresh" method.learning_rate=2.0e-5
  one loop_slow loop $groups $steps "$fresh" method.learning_rate=2.0e-5
  also="python -m benchmarks.updates --campaign . --keep data/longer --steps 840 --arms demonstrations" one search $groups
  one rft rft rollout.games=900 rollout.episodes_per_game=8
done
folders=$(for folder in "$kept"/*-*; do name=${folder##*/}; echo "${name%-*}=$folder"; done)
python -m benchmarks.side_by_side $folders --over search
