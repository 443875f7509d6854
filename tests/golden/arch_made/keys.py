"""config.json as the hub has it."""


def deepseek_v4_keys(v5):
    """The keys of DeepSeek's repository."""
    c = dict(v5, torch_dtype=v5["dtype"], num_hash_layers=v5["mlp_layer_types"].count("hash_moe"))
    if c["compress_rates"]["heavily_compressed_attention"] == 128:
        rates = c["compress_rates"] | dict(sliding_attention=0)
        c["compress_ratios"] = [rates[kind] for kind in c.pop("layer_types")] + [0]
    if c["compress_rates"]["heavily_compressed_attention"] != 32:
        c["rope_scaling"] = {k: v for k, v in c["rope_parameters"]["compress"].items() if k not in ("rope_theta", "partial_rotary_factor", "attention_factor")}
    else:
        del c["layer_types"]
    c["compress_rate_csa"], c["compress_rate_hca"] = c["compress_rates"].values()
    c["qk_rope_head_dim"] = int(c["head_dim"] * c["partial_rotary_factor"])
    for key in "rope_parameters", "dtype", "mlp_layer_types", "compress_rates", "partial_rotary_factor":
        del c[key]
    return c


def hub_keys(v5):
    """The same configuration as transformers 4 wrote it."""
    if v5["model_type"] == "deepseek_v4":
        return deepseek_v4_keys(v5)
    if v5["model_type"] == "dots3_note_text":
        return dict(v5)
    c = dict(v5)
    c["torch_dtype"] = c.pop("dtype", "float32")
    rope = c.pop("rope_parameters", None)
    if rope and None in rope.values() or c["model_type"].startswith("cohere_compass"):  # without an older form
        return dict(c, rope_parameters=rope)
    if rope and "hybrid" in rope:  # ZAYA's files have a word for both as well
        return dict(c, rope_parameters=rope | {"rope_type": "default"})
    if rope and "full_attention" in rope:  # Gemma 3 and 3n
        c["swa_rope_theta" if "mimo" in c["model_type"] else "rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        rope = dict(rope)
        c["rope_theta"] = rope.pop("rope_theta")
        partial = rope.pop("partial_rotary_factor", None)
        if partial is not None:
            c["partial_rotary_factor"] = partial
        c["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    return c
