"""Write ../expected.json: what transformers makes of the stored weights, in fp32, greedily.

    python expect.py

Tests of the engine compare with it where no other reference data is at hand."""
import json
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

HERE = Path(__file__).resolve().parent.parent
PLAIN = ["Once upon a time", "The capital of France is", "What is Deep Learning?", "My name is Olivier and I", "2 + 3 ="]
CHATS = [
    [("user", "Hello!")],
    [("user", "What is the capital of Japan?")],
    [("system", "You are Pip, a helpful assistant."), ("user", "What is 3 + 4?")],
    [("user", "Hi, I am Anna."), ("assistant", "Hello, Anna! Nice to meet you. How can I help you?"), ("user", "What is my name?")],
    [("user", "Tell me a story about a fox.")],
]


@torch.no_grad()
def greedy(model, ids: list[int], limit: int) -> tuple[list[int], torch.Tensor]:
    """Chosen ids, the end token included, and the logits of the last prompt position."""
    first, new = None, []
    while len(new) < limit and (not new or new[-1] != model.config.eos_token_id):
        logits = model(torch.tensor([ids + new])).logits[0, -1]
        first = logits if first is None else first
        new.append(int(logits.argmax()))
    return new, first


def main() -> None:
    torch.set_num_threads(1)
    tok = AutoTokenizer.from_pretrained(HERE)
    model = LlamaForCausalLM.from_pretrained(HERE, dtype=torch.float32)
    cases, logits = [], None
    for prompt in PLAIN + CHATS:
        if isinstance(prompt, str):
            case = {"inputs": prompt}
            ids = tok(prompt).input_ids
        else:
            messages = [{"role": r, "content": c} for r, c in prompt]
            text = tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            case = {"messages": messages, "prompt": text}
            ids = tok(text, add_special_tokens=False).input_ids
        new, first = greedy(model, ids, 80)
        logits = first if logits is None else logits
        cases.append(case | {"input_ids": ids, "output_ids": new, "output": tok.decode(new, skip_special_tokens=True),
                             "stopped": new[-1] == model.config.eos_token_id})
    out = {"weights": "model.safetensors (bf16), computed in fp32", "max_new_tokens": 80, "cases": cases,
           "last_logits_of_case_0": [round(x, 5) for x in logits.tolist()]}
    (HERE / "expected.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
    for c in cases:
        print(repr(c.get("inputs", c.get("prompt"))), "->", repr(c["output"]))


if __name__ == "__main__":
    main()
