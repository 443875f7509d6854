"""Dense decoders of transformers."""

from .base import THETA

CASES = {
    "gemma2": dict(
        model_type="gemma2", head_dim=16, sliding_window=24, query_pre_attn_scalar=24,
        attn_logit_softcapping=5.0, final_logit_softcapping=3.0, num_hidden_layers=4,
    ),
    "persimmon": dict(model_type="persimmon", rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "persimmon_plain": dict(model_type="persimmon", qk_layernorm=False, hidden_act="gelu", rope_parameters=dict(THETA, partial_rotary_factor=1.0)),
    "gpt_neox_japanese": dict(model_type="gpt_neox_japanese", intermediate_multiple_size=2, tie_word_embeddings=False,
                              rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "qwen3": dict(model_type="qwen3", head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen3_window": dict(
        model_type="qwen3", head_dim=32, use_sliding_window=True, sliding_window=20, max_window_layers=1,
        attention_bias=True, rope_parameters=THETA,
    ),
    "qwen2_window": dict(
        model_type="qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=2, rope_parameters=THETA,
    ),
    "granite": dict(
        model_type="granite", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, attention_bias=True, mlp_bias=True, rope_parameters=THETA,
    ),
    "phi3_partial": dict(
        model_type="phi3", rope_parameters=dict(THETA, partial_rotary_factor=0.5), sliding_window=None,
        original_max_position_embeddings=512,
    ),
    "gpt2_by_layer": dict(
        model_type="gpt2", n_embd=64, n_layer=3, n_head=4, n_positions=256, scale_attn_by_inverse_layer_idx=True,
        activation_function="gelu",
    ),
    "llama_yarn_mscale": dict(
        model_type="llama",
        rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64, mscale=0.7,
            mscale_all_dim=0.3, beta_fast=16.0, beta_slow=2.0, truncate=False,
        ),
    ),
    "starcoder2": dict(model_type="starcoder2", sliding_window=20, rope_parameters=THETA),
    "exaone4": dict(model_type="exaone4", num_hidden_layers=4, sliding_window=None, layer_types=["full_attention"] * 4,
        rope_parameters=THETA,
   ),
    "exaone4_window": dict(
        model_type="exaone4", num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4, rope_parameters=THETA,
    ),
    "gemma3n": dict(
        model_type="gemma3n_text", head_dim=16, num_hidden_layers=6, num_kv_shared_layers=2, sliding_window=20,
        layer_types=["sliding_attention", "full_attention"] * 3, intermediate_size=[128, 96, 128, 160, 128, 128],
        activation_sparsity_pattern=[0.95, 0.5, 0.3, 0.0, 0.0, 0.8], altup_num_inputs=4, laurel_rank=12, hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=300, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    "seed_oss": dict(model_type="seed_oss", head_dim=16, rope_parameters=THETA),
    "arcee": dict(model_type="arcee", rope_parameters=THETA),
    "nemotron": dict(model_type="nemotron", head_dim=16, rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "glm": dict(
        model_type="glm", head_dim=16, attention_bias=True, rope_parameters=dict(THETA, partial_rotary_factor=0.5),
    ),
    "ministral": dict(
        model_type="ministral", head_dim=8, sliding_window=20, rope_parameters=THETA,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "ministral3": dict(
        model_type="ministral3", head_dim=16, sliding_window=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32, llama_4_scaling_beta=0.3,
            beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        ),
    ),
    "cwm": dict(
        model_type="cwm", head_dim=16, num_hidden_layers=5, sliding_window=20, rope_parameters=dict(
            rope_type="llama3", rope_theta=1e6, factor=16.0, original_max_position_embeddings=64, low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
    ),
    "helium": dict(model_type="helium", head_dim=8, rope_parameters=dict(THETA, rope_theta=1e5)),
    "hyperclovax": dict(
        model_type="hyperclovax", attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=0.4, rope_parameters=THETA,
    ),
    "jais2": dict(model_type="jais2", rope_parameters=THETA),
    "gpt_neo": dict(
        model_type="gpt_neo", hidden_size=64, num_layers=4, num_heads=8, max_position_embeddings=512, window_size=20, intermediate_size=128,
        attention_types=[[["global", "local"], 2]],
    ),
    "olmo": dict(model_type="olmo", clip_qkv=0.4, rope_parameters=THETA),
    "codegen": dict(model_type="codegen", n_embd=64, n_layer=3, n_head=8, n_positions=512, n_ctx=512, rotary_dim=4,
                    tie_word_embeddings=False),
    "hunyuan_v1_dense": dict(
        model_type="hunyuan_v1_dense", head_dim=16, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0),
    ),
    "mpt_clip": dict(
        model_type="mpt", d_model=64, n_heads=8, n_layers=3, max_seq_len=512, expansion_ratio=2, no_bias=True,
        attn_config=dict(clip_qkv=0.4, alibi=True, attn_impl="eager"),
    ),
    "vaultgemma": dict(
        model_type="vaultgemma", head_dim=16, sliding_window=24, query_pre_attn_scalar=24, attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0, num_hidden_layers=4, rope_parameters=THETA,
    ),
    "modernbert_decoder": dict(
        model_type="modernbert-decoder", num_hidden_layers=4, local_attention=40, layer_types=None, cls_token_id=1, sep_token_id=2,
    ),
    "modernbert_decoder_bias": dict(
        model_type="modernbert-decoder", local_attention=24, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True,
        decoder_bias=False, tie_word_embeddings=False, cls_token_id=1, sep_token_id=2,
    ),
    "ctrl": dict(model_type="ctrl", n_embd=64, n_layer=3, n_head=4, dff=96, n_positions=256),
    "nanochat": dict(model_type="nanochat", rope_parameters=THETA),
    "biogpt": dict(model_type="biogpt"),
    "apertus": dict(model_type="apertus", rope_parameters=THETA),
    "openai_gpt": dict(model_type="openai-gpt", n_embd=64, n_layer=3, n_head=8, n_positions=256),
    "xglm": dict(model_type="xglm", d_model=64, num_layers=3, attention_heads=8, ffn_dim=128, max_position_embeddings=256, pad_token_id=0),
    "granite_swa": dict(
        model_type="granite_swa", num_hidden_layers=4, attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4,
        logits_scaling=3.0, sliding_window=20, layer_rope_theta=[0, 10000.0, 10000.0, 10000.0], rope_parameters=THETA,
    ),
    "opt_bare_norms": dict(model_type="opt", ffn_dim=128, word_embed_proj_dim=64, layer_norm_elementwise_affine=False, enable_bias=False),
    "phi_qk_norm": dict(model_type="phi", num_key_value_heads=4, qk_layernorm=True, rope_parameters=dict(THETA, partial_rotary_factor=0.5)),
    "bloom_norm_stream": dict(model_type="bloom", n_layer=3, n_head=8, apply_residual_connection_post_layernorm=True),
    "opt_350m": dict(model_type="opt", ffn_dim=128, word_embed_proj_dim=32, do_layer_norm_before=False),
    "stablelm_qk_norm": dict(
        model_type="stablelm", qk_layernorm=True, rope_parameters=dict(THETA, partial_rotary_factor=0.25),
    ),
    # twelve layers: transformers 5 names them by two digits in `per_layer_config`, which has all that config.json says of their sizes
    "gemma4_twelve": dict(
        model_type="gemma4_text", head_dim=16, num_hidden_layers=12, sliding_window=20, global_head_dim=32, num_global_key_value_heads=2,
        attention_k_eq_v=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0, final_logit_softcapping=5.0, rope_parameters=None,
    ),
    "stablelm_parallel": dict(
        model_type="stablelm", use_parallel_residual=True, rope_parameters=dict(THETA, partial_rotary_factor=0.25),
    ),
}
