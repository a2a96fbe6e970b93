"""Fine-tuning with the Hugging Face Trainer and PEFT: LoRA of rank 8 on all linear layers, random weights and tokens."""

from __future__ import annotations

import tempfile
import time
from statistics import median
from typing import Any

import torch
from common import llama_config, own_device, peak, read_arguments, tell, wait


def main() -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    arguments = read_arguments(__doc__, "--quantized")
    device = own_device()
    torch.manual_seed(arguments.seed)
    model = adapted(loaded(arguments, device))
    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = 0.0
        first_step_at = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == arguments.warmup_steps and device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            wait(device)
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            wait(device)
            self.first_step_at = self.first_step_at or time.time()
            times.append(time.perf_counter() - self.began)

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        how = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=arguments.micro_batch_size,
            max_steps=arguments.steps,
            bf16=True,
            use_cpu=device.type == "cpu",
            report_to=[],
            save_strategy="no",
            logging_steps=arguments.steps,
            optim="adamw_torch_fused",
            learning_rate=2e-4,
        )
        trainer = Trainer(model=model, args=how, train_dataset=samples(arguments, model), callbacks=[clock])
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    found = {"step_ms": 1e3 * median(times[arguments.warmup_steps :]), "loss_mean": losses[-1] if losses else None}
    tell({**found, "first_step_at": clock.first_step_at, **peak(device)})


def loaded(arguments: Any, device: torch.device) -> Any:
    """The model on its device, packed in 4 bits where that is asked for, which transformers does as it loads."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    with device:
        config = llama_config(arguments.model_config)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    if not arguments.quantized:
        return model
    packed = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        del model
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, device_map={"": device}, quantization_config=packed
        )


def adapted(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    how = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, how)


def samples(arguments: Any, model: Any) -> list[dict[str, torch.Tensor]]:
    count, vocabulary = arguments.micro_batch_size * arguments.steps, model.config.vocab_size
    rows = torch.randint(0, vocabulary, (count, arguments.sequence_length))
    return [{"input_ids": row, "labels": row} for row in rows]


if __name__ == "__main__":
    main()
