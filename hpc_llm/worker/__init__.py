"""The training program that runs on the nodes. Nothing on the login side imports it.

pretrain_llm   the program: request -> ranks -> model, data, engine -> loop -> result
request        what to run: a run folder, or the flags of the HPC-II homework
ranks          which process this is, whatever started it
device         GPU or CPU, its memory, the versions of what is installed
model          a Hugging Face model, never whole on each rank where it can be helped
data           token batches, ready before the step that uses them
weights        a checkpoint, loaded whole or not at all
flops          what a token costs in products
loss           cross entropy, summed over what is predicted
engine         DeepSpeed, with the config adapted to the device
loop           the training steps
meter          times, losses and memory, read without making the step wait
result         result.json
failure        any error, and being told to stop, ends in a result.json too
signals        SIGTERM and SIGUSR1
"""
