# What makes a PRM rank actions at one state? The same number of episodes in four shapes (without branched states, whose
# plays would stay the same), branched states, a start from nothing, keys.
# Then four of the PRMs choose in searches of the same policy.
# Read: ranking, ranking_by_likelihood, ranking_over_likelihood and choosing in data/metrics/stages/prm-1.json.
one="seed=3 compute.threads=1"
kept=.scratch/experiments/ranking
keep() { # NAME: the PRM of this experiment; none of an earlier run where this one fails
  rm -rf "${kept:?}/$1" && mkdir -p $kept
  if [ -d data/checkpoints/prm/1 ]; then cp -rL data/checkpoints/prm/1 "$kept/$1"; fi
}
for shape in 300x12 600x6 1200x3 3600x1; do
  sh experiments/run "ranking-$shape" no_memory $one rollout.branch.train_states=0 rollout.branch.random_states=0 \
    rollout.games=${shape%x*} rollout.episodes_per_game=${shape#*x} -- prm@1
  keep "$shape"
done
sh experiments/run ranking-branched-200 no_memory $one rollout.branch.random_states=0 -- prm@1
sh experiments/run ranking-default no_memory $one -- prm@1
keep default
sh experiments/run ranking-from-scratch no_memory $one critic.init_from=scratch -- prm@1
keep scratch
sh experiments/run ranking-by-history no_memory $one critic.visit_key=history -- prm@1
for split in seen unseen; do
  python -m tasks.commands.search_curves --policy data/checkpoints/policy/0 --games data/games --split $split --best-of 16 \
    --beams 1x16 --out "data/curves/ranking-$split" --prm default=$kept/default --prm unbranched=$kept/3600x1 \
    --prm 300x12=$kept/300x12 --prm scratch=$kept/scratch
done
