# Does online DPO raise a chat model of two million parameters that is made here? And what does that model do when it is asked to
# explore, to say why, to keep to an instruction? On a busy machine: one iteration, 500 rollouts, 300 held-out games.
# Read: data/metrics/evaluate-0.json and evaluate-1.json; the JSON object that the last command prints.
[ -d models/chat ] || python -m tasks.commands.make_chat_model --out models/chat --size medium --threads 1 --worlds babyai textcraft arithmetic
small="games.train=800 games.seen=150 games.unseen=150 demos.games=150 rollout.games=250 rollout.branch.train_states=0"
small="$small rollout.branch.validation_states=20 critic.learning_rate=1.5e-3 critic.epochs=1 evaluate.decoding=[greedy]"
small="$small method.imitation=0.3 method.steps=30 compute.threads=1"
sh experiments/run chat-dpo chat $small -- evaluate@0 evaluate@1
python -m benchmarks.chat_model --model models/chat --json
