"""What vary_arch.py draws for families of latent attention: (generator, what is drawn so far, layers, heads)."""

SLIDE, FULL = "sliding_attention", "full_attention"


def experts(r, c):
    """Groups of eight experts."""
    c |= dict(n_shared_experts=r.choice([1, 2]), n_routed_experts=8, n_group=c.get("n_group", 1))
    c["topk_group"] = min(c.get("topk_group", 1), c["n_group"])
    c["num_experts_per_tok"] = min(c["num_experts_per_tok"], 8 // c["n_group"] * c["topk_group"])


def dots3_note(r, c, n, heads):
    experts(r, c)
    c |= dict(q_lora_rank=r.choice([16, 24]), num_key_value_heads=heads, shared_experts_intermediate_size=r.choice([24, 32]),
              layer_types=[r.choice(["indexed_attention", SLIDE, SLIDE, FULL]) for _ in range(n)],
              mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)], sliding_window=r.choice([5, 20, 64]))
    c["rope_parameters"] = {k: dict(rope_type="default", rope_theta=r.choice([1e4, 5e4, 8e7])) for k in set(c["layer_types"])}
    nope, rope = r.choice([8, 12, 24]), r.choice([4, 8, 12])
    own = dict(num_attention_heads=r.choice([4, 8]), q_lora_rank=r.choice([16, 20]), kv_lora_rank=r.choice([16, 32]), head_dim=nope + rope,
               qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=r.choice([8, 20]))
    own["num_key_value_heads"] = own["num_attention_heads"]
    if SLIDE in c["layer_types"]:
        c["per_layer_config"] = {i: own for i, kind in enumerate(c["layer_types"]) if kind == SLIDE}
    c["head_dim"] = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    for key in "first_k_dense_replace", "attention_bias", "mlp_bias":
        c.pop(key, None)


def mistral_large4(r, c, n, heads):
    experts(r, c)
    c["num_key_value_heads"] = heads
    rotates, source = [r.choice([0, 1, 1]) for _ in range(n)], list(range(n))
    for i in range(1, n):  # of the last source of its kind, or none
        own = [k for k in range(i) if source[k] == k and rotates[k] == rotates[i]]
        read = [k for k in own if k in source[k + 1 : i]]
        if own and r.random() < 0.5:
            source[i] = r.choice([k for k in own if k >= max(read, default=0)])
    c |= dict(no_rope_layers=rotates, kv_source_layers=source, indexer_types=["full"] + [r.choice(["full", "shared"]) for _ in range(n - 1)])
    for key in "q_lora_rank", "mlp_bias", "norm_topk_prob", "attention_bias", "head_dim":
        c.pop(key, None)


DRAWS = {"dots3_note_text": dots3_note, "mistral_large4_text": mistral_large4}
