# What makes a PRM rank actions at one state? The same number of episodes in four shapes (without branched states, whose
# plays would stay the same), branched states, a start from nothing, keys.
# Read: ranking, ranking_by_likelihood, ranking_over_likelihood and choosing in data/metrics/stages/prm-1.json.
one="seed=3 compute.threads=1"
for shape in 300x12 600x6 1200x3 3600x1; do
  sh experiments/run "ranking-$shape" $one rollout.branch.train_states=0 rollout.branch.random_states=0 \
    rollout.games=${shape%x*} rollout.episodes_per_game=${shape#*x} -- prm@1
done
sh experiments/run ranking-branched-200 $one rollout.branch.random_states=0 -- prm@1
sh experiments/run ranking-default $one -- prm@1
sh experiments/run ranking-from-scratch $one critic.init_from=scratch -- prm@1
sh experiments/run ranking-by-history $one critic.visit_key=history -- prm@1
