#!/usr/bin/env python3
"""Loads a checkpoint with transformers and lets it go on with a text, always by the likeliest token.

Example (in a virtual environment with requirements-talk.txt, 5.6 GB):
    talk.py .deps/models/SmolLM2-135M-Instruct --prompt "The capital of France is"
"""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer


def continue_text(checkpoint: Path, prompt: str, tokens: int) -> str:
    """The prompt and at most `tokens` tokens more."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    generated = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=tokens, do_sample=False)
    return str(tokenizer.decode(generated[0], skip_special_tokens=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a Hugging Face checkpoint directory")
    parser.add_argument("--prompt", default="The capital of France is", help="the text to go on with")
    parser.add_argument("--tokens", type=int, default=24, help="how many tokens to add at most")
    arguments = parser.parse_args()
    print(continue_text(arguments.checkpoint, arguments.prompt, arguments.tokens))


if __name__ == "__main__":
    main()
