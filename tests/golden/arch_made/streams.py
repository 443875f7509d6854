"""Several residual streams that gates join, with embeddings of n-grams."""

from .base import THETA

QWEN4 = dict(
    model_type="qwen4_exp_text", head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=16,
    num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, shared_expert_intermediate_size=48, indexer_kv_heads=1,
)

CASES = {
    "qwen4_exp": dict(
        QWEN4, num_hidden_layers=5, layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention", "linear_attention"],
        hc_lowrank=24, ple_layer_ids=[1, 5], ple_embed_dim=48, ngram_vocab_size_base=50, heads_per_ngram=4, make_ngram_vocab_size_divisible_by=16,
        split_ngram_parts=5, indexer_n_heads=20, indexer_head_dim=16, indexer_budget=20, indexer_compress_ratio=5, eos_token_id=223,  # it is in a prompt
        rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    "qwen4_exp_vision": dict(  # blocks as large as the cache's, tables of 4-grams
        QWEN4, num_hidden_layers=4, full_attention_interval=2, hc_count=3, hc_lowrank=10, ple_layer_ids=[3, 1], ple_conv_kernel_size=3, ngram_size=4,
        ngram_vocab_size_base=31, heads_per_ngram=4, ple_embed_dim=96, split_ngram_parts=3, seed=7, output_gate_type="sigmoid", norm_topk_prob=False,
        indexer_n_heads=16, indexer_head_dim=24, indexer_budget=32, indexer_compress_ratio=16, eos_token_id=[14, 2], num_key_value_heads=2,
        rope_parameters=dict(THETA, partial_rotary_factor=0.75, mrope_section=[3, 2, 1], mrope_interleaved=True),
    ),
    "qwen4_exp_plain": dict(  # without n-grams
        QWEN4, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], hc_count=2, hc_lowrank=16, indexer_n_heads=20,
        indexer_head_dim=16, indexer_budget=8, indexer_compress_ratio=1, attention_bias=True, rope_parameters=dict(THETA, partial_rotary_factor=1.0),
    ),
}
CASES["qwen4_exp_in_memory"] = CASES["qwen4_exp"]


def within_vision(t, c):
    """The names and keys of a checkpoint with vision."""
    names = {k.replace("model.", "model.language_model.", 1): v for k, v in t.items()}
    return names, dict(model_type="qwen4_exp", text_config=c, image_token_id=300, video_token_id=301, torch_dtype="float32")


AS = {"qwen4_exp_vision": within_vision}
