# What do visits that find nothing new cost a policy, and what mends them? The same policies in the household with and
# without a memory beside the agent; four times the rollouts; campaigns that train with the memory, their control without,
# and their control by the demonstrations alone for as many steps.
# Read: success in the lines of `tasks.evaluate`, ranking in data/metrics/stages/prm-1.json.
sizes="compute.threads=1 games.seen=400 games.unseen=400 evaluate.decoding=[greedy] critic.require=nothing"
both='for world in alfworld alfworld-remembering; do for split in seen unseen; do for policy in data/checkpoints/policy/*; do
python -m tasks.evaluate --policy $policy --world $world --games data/games --split $split --method greedy --json
done; done; done'
for seed in 11 12; do THEN=$both sh experiments/run memory-$seed no_memory seed=$seed $sizes -- policy@1; done
more="rollout.branch.train_states=800 rollout.branch.random_states=12000"
sh experiments/run memory-rollouts-11 no_memory seed=11 $sizes rollout.games=14000 -- evaluate@1
sh experiments/run memory-rollouts-12 no_memory seed=12 $sizes rollout.games=14000 $more -- evaluate@1
longer="python -m benchmarks.updates --campaign . --keep data/updates --arms demonstrations --all --steps 2520 --json"
memory="env.world=alfworld-remembering"
THEN=$longer sh experiments/run memory-longer $memory $sizes -- policy@3
for seed in 1 2 3; do
  THEN=$both sh experiments/run memory-campaign-$seed seed=$seed $memory $sizes -- policy@3
  last=$((seed == 1 ? 3 : 1)) # iteration of the control
  [ $seed = 3 ] || THEN=$both sh experiments/run memory-control-$seed seed=$seed env.world=alfworld $sizes -- policy@$last
done
# The third iteration without the memory: two iterations with it, then the stages of the third in the other world.
without='python -m tasks.frame.profile env.world=alfworld --write || exit
for stage in rollout label prm collect policy; do python -m tasks.$stage --iteration 3 || exit; done
for split in seen unseen; do
python -m tasks.evaluate --policy data/checkpoints/policy/3 --games data/games --split $split --method greedy --json
done'
for seed in 1 2 3; do THEN=$without sh experiments/run memory-third-$seed seed=$seed $memory $sizes -- policy@2; done
