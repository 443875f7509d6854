"""The demo model's own tokenizer: byte-level BPE, trained on the demo text."""
import json
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import documents

BEGIN, END, SYSTEM, USER, ASSISTANT = SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
ROLE = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
# Words with their leading space, single digits, runs of punctuation.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}{{- '<|system|>' }}"
    "{%- elif message['role'] == 'assistant' %}{{- '<|assistant|>' }}"
    "{%- else %}{{- '<|user|>' }}{%- endif %}"
    "{%- if message['content'] is string %}{{- message['content'] | trim }}"
    "{%- else %}{%- for part in message['content'] or [] %}{%- if part['type'] == 'text' %}{{- part['text'] | trim }}{%- endif %}{%- endfor %}{%- endif %}"
    "{{- '<|end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def train(vocab: int, n_docs: int, seed: int) -> Tokenizer:
    t = Tokenizer(models.BPE(ignore_merges=False))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator((text for d in islice(documents(seed), n_docs) for _, text in d), trainer)
    t.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B:1", special_tokens=[(BEGIN, t.token_to_id(BEGIN))])
    return t


def save(t: Tokenizer, out: Path, max_length: int) -> None:
    t.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END, "pad_token": END, "clean_up_tokenization_spaces": False,
        "add_bos_token": True, "model_max_length": max_length, "model_input_names": ["input_ids", "attention_mask"], "chat_template": TEMPLATE}, indent=2) + "\n")


def encode(t: Tokenizer, doc) -> tuple[list[int], list[int]]:
    """ids, and for each 1 where the model is to learn it fully (0: words of the user)."""
    ids, own = [t.token_to_id(BEGIN)], [1]
    end = t.token_to_id(END)
    for role, text in doc:
        piece = t.encode(text, add_special_tokens=False).ids
        if role == "text":
            ids += piece + [end]
            own += [1] * (len(piece) + 1)
        else:
            ids += [t.token_to_id(ROLE[role])] + piece + [end]
            own += [int(role == "assistant")] * (len(piece) + 2)
    return ids, own
