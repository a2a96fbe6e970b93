"""The training program that runs on the nodes. Nothing on the login side imports it.

main           what every task's program does: ranks -> request -> task -> result, whatever happens
pretrain_llm   the program of the task `pretrain`
finetune_llm   the program of the task `finetune`
infer_llm      the program of the task `infer`
tasks/         what each task does on the nodes
loop           the training steps: knows batches as mappings, engines by their interface
loss           cross entropy, summed over what is predicted

model/         a Hugging Face model: its shape, its values, what prepares it for training
data/          micro batches, ready before the step that uses them
engines/       DeepSpeed, plain PyTorch, FSDP2
generating/    answers to queries: the cache, the passes, the choice of a token
measure/       times, memory, the GPUs' own word

request        the plan in a run folder
homework       the flags of the HPC-II homework, and the plan that they stand for
baseline       the same of the LZU project's inference
finetune_flags the same of its fine-tuning; finetune_plan has the plan
ranks          which process this is, whatever started it
device         GPU or CPU, its memory, the versions of what is installed
result         result.json
answers        what answering queries took, for the result
failure        any error, and being told to stop, ends in a result.json too
signals        SIGTERM and SIGUSR1
"""
