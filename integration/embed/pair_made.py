"""A vision model of the reference data as a reranker of pairs: for test_pair_images.py and tests/golden/pair_images.py."""

import base64
import json
import shutil

from serving import DATA

QUERY, TEXT, TASK = "Who ran?", "The dog ran far", "Does it fit?"
IMAGES = ["rgb_120x90.jpg", "exact_56x56.png"]
JUDGE = 'Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".'
USUAL = "Given a search query, retrieve relevant candidates that answer the query."
YES, NO = "me", "ul"  # tokens that are called yes and no here
SHOW = "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
TEMPLATE = (
    "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\n{% for m in messages %}{% if m.role == 'query' %}<Query>:{% elif m.role == 'document' %}{{ '\\n' }}<Document>:"
    "{% else %}<Instruct>: {% endif %}" + SHOW + "{% endfor %}<|im_end|>\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def put(folder, name, what):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(what if isinstance(what, str) else json.dumps(what))


def reranker(folder, kind):
    """A vision model of the reference data as a reranker: `template` has files of sentence-transformers, `form` none."""
    shutil.copytree(DATA / "vision/qwen3_vl", folder)
    t = json.loads((folder / "tokenizer.json").read_text())
    vocab = t["model"]["vocab"]
    ids = [vocab.pop(YES), vocab.pop(NO)]
    vocab["yes"], vocab["no"] = ids
    t["model"]["merges"] = [m for m in t["model"]["merges"] if "".join(m if isinstance(m, list) else m.split()) not in (YES, NO)]
    put(folder, "tokenizer.json", t)
    if kind == "template":
        kinds = ["base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore"]
        put(folder, "modules.json", [{"idx": i, "name": str(i), "path": i * f"{i}_LogitScore", "type": "sentence_transformers." + k} for i, k in enumerate(kinds)])
        put(folder, "1_LogitScore/config.json", {"true_token_id": ids[0], "false_token_id": ids[1]})
        put(folder, "sentence_bert_config.json", {"processing_kwargs": {"chat_template": {"add_generation_prompt": True}}})
        put(folder, "config_sentence_transformers.json", {"prompts": {"a": USUAL}, "default_prompt_name": "a"})
        put(folder, "chat_template.jinja", TEMPLATE)
    return folder, ids


def url(name):
    return "data:image/png;base64," + base64.b64encode((DATA / "vision/images" / name).read_bytes()).decode()


def items():
    """Documents of the bodies, and beside each what its prompt has: an image's name, and a text."""
    part = lambda n: {"type": "image_url", "image_url": {"url": url(n)}}
    both = {"content": [part(IMAGES[1]), {"type": "text", "text": TEXT}]}
    return [TEXT, {"image": url(IMAGES[0])}, both, {"image": url(IMAGES[1]), "text": TEXT}], [("", TEXT), (IMAGES[0], ""), (IMAGES[1], TEXT), (IMAGES[1], TEXT)]


def prompt(kind, task, document):
    """With a marker for its image."""
    image, text = document
    shown = ("<|vision_start|><|image_pad|><|vision_end|>" if image else "") + text
    system = "Judge." if kind == "template" else JUDGE
    return (f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n<Instruct>: {task}<Query>:{QUERY}\n<Document>:{shown}<|im_end|>\n"
            "<|im_start|>assistant\n")
