"""Quantises a model with another tool, for quantize.py; run by a Python that has the tool.

    python integration/bench/peer_quantize.py TOOL MODEL OUT TEXT EXCLUDE

TOOL: gptqmodel, or llm-compressor's modifier and its arguments, as gptq:static:memoryless_mse, rtn, awq."""

import sys

BITS, GROUP, CONTEXT = 4, 32, 512


def sequences(model, path):
    from transformers import AutoTokenizer

    with open(path) as f:
        ids = AutoTokenizer.from_pretrained(model)(f.read())["input_ids"]
    return [ids[i : i + CONTEXT] for i in range(0, len(ids) - CONTEXT + 1, CONTEXT)]


def gptqmodel(model, out, text, exclude):
    from gptqmodel import GPTQModel, QuantizeConfig

    how = QuantizeConfig(bits=BITS, group_size=GROUP, sym=True, desc_act=False, dynamic={f"-:.*{exclude}.*": {}})
    m = GPTQModel.load(model, how, device="cpu")
    m.quantize([{"input_ids": s, "attention_mask": [1] * CONTEXT} for s in sequences(model, text)], batch_size=1)
    m.save(out)


def llm_compressor(tool, model, out, text, exclude):
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.awq import AWQModifier
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.Tensor.pin_memory = lambda self, *a, **k: self  # it pins memory where there is no GPU, too
    name, order, observer, *_ = [*tool.split(":"), "", ""]
    weights = dict(num_bits=BITS, type="int", symmetric=True, strategy="group", group_size=GROUP)
    weights |= {"actorder": order} if order else {}
    weights |= {"observer": observer} if observer else {}
    modifier = {"gptq": GPTQModifier, "rtn": QuantizationModifier, "awq": AWQModifier}[name]
    recipe = modifier(config_groups={"group_0": {"targets": ["Linear"], "weights": weights}}, ignore=["lm_head", f"re:.*{exclude}.*"])
    rows = sequences(model, text)
    data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * CONTEXT] * len(rows)})
    m = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    oneshot(model=m, dataset=data, recipe=recipe, max_seq_length=CONTEXT, num_calibration_samples=len(rows))
    m.save_pretrained(out, save_compressed=True)
    AutoTokenizer.from_pretrained(model).save_pretrained(out)


if __name__ == "__main__":
    tool, *rest = sys.argv[1:]
    gptqmodel(*rest) if tool == "gptqmodel" else llm_compressor(tool, *rest)
