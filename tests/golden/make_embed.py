#!/usr/bin/env python3
"""Tiny random encoders, embedders and rerankers with golden.json, of the kinds that the reference data does not have.

    python tests/golden/make_embed.py [NAME...]       into build/golden/embed

Each folder: config.json, model.safetensors, what sentence-transformers adds, golden.json with the ids of texts and their
embedding, logit or logits: eager attention, fp32, CPU. Needs torch and transformers 5. tests/golden/test_embed runs what it finds there."""

import json, os, sys
import torch
import transformers
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForQuestionAnswering, AutoModelForSequenceClassification,
                          AutoModelForTextEncoding, AutoModelForTokenClassification,
                          EncoderDecoderCache)

# transformers 5.24 indexes the cache of FlauBERT with norms before the branches by layers, as that of version 4 was
EncoderDecoderCache.__getitem__ = lambda self, layer: self

COMMON = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
              max_position_embeddings=160, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LENGTHS = [1, 2, 9, 33, 70, 128]
YES, NO = 40, 41
CASES = {
    # two layers of three have a window of 4 tokens to each side.
    "modernbert": dict(model_type="modernbert", local_attention=8, global_attn_every_n_layers=3, kind="mean"),
    # a window of 13, (24 // 2) + 1; two Dense modules behind the mean.
    "embeddinggemma": dict(model_type="gemma3_text", head_dim=16, num_key_value_heads=2, sliding_window=24,
                           layer_types=["sliding_attention"] * 3 + ["full_attention"],
                           use_bidirectional_attention=True, query_pre_attn_scalar=16, kind="mean", dense=[192, 64]),
    # heads of two sizes, an embedding of each layer that is a projection alone, and a matrix behind the last norm
    "embeddinggemma_2": dict(model_type="embedding_gemma2_text", head_dim=16, num_key_value_heads=2, sliding_window=12, num_hidden_layers=12,
                             sliding_window_pattern=6, global_head_dim=32, num_global_key_value_heads=1, hidden_size_per_layer_input=24,
                             embedding_dim=96, kind="mean", much=0.15),
    # a decoder whose layers keep keys of two sizes
    "gemma_4": dict(model_type="gemma4_text", head_dim=16, num_key_value_heads=2, sliding_window=12, global_head_dim=32, num_global_key_value_heads=1,
                    attention_k_eq_v=True, layer_types=["sliding_attention"] * 2 + ["full_attention"] * 2, hidden_size_per_layer_input=0,
                    num_kv_shared_layers=0, kind="mean", much=0.15),
    # as gte-Qwen2 and KaLM: a decoder that sees both ways; of its classifier the last token
    "qwen2_both": dict(model_type="qwen2", num_key_value_heads=2, is_causal=False, kind="mean"),
    "qwen3_both_rerank": dict(model_type="qwen3", head_dim=16, num_key_value_heads=2, is_causal=False, num_labels=1, kind="classify"),
    # q grows with the position
    "ministral3": dict(model_type="ministral3", head_dim=16, num_key_value_heads=2, kind="mean", rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, original_max_position_embeddings=16, llama_4_scaling_beta=0.3)),
    "bert_rerank": dict(model_type="bert", num_labels=1, type_vocab_size=2, kind="classify", old_norms=True),
    "roberta_classify": dict(model_type="roberta", num_labels=3, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
                             max_position_embeddings=162, kind="classify"),
    "modernbert_rerank": dict(model_type="modernbert", local_attention=16, num_labels=1, classifier_pooling="mean",
                              kind="classify"),
    # another activation of the classifier
    "modernbert_relu": dict(model_type="modernbert", local_attention=16, num_labels=3, classifier_activation="relu", kind="classify"),
    "roformer_relu": dict(model_type="roformer", num_labels=3, hidden_act="relu", kind="classify"),
    "big_bird_relu": dict(model_type="big_bird", num_labels=3, hidden_act="relu", kind="classify"),
    "ibert": dict(model_type="ibert", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1, kind="mean"),
    "luke": dict(model_type="luke", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1, entity_vocab_size=9,
                 entity_emb_size=16, kind="mean"),
    # windows of 4 and of 8 tokens to each side
    "longformer": dict(model_type="longformer", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1,
                       attention_window=[8, 16, 8, 16], kind="mean"),
    "ultrabert": dict(model_type="ultrabert", num_key_value_heads=4, sliding_window=4, kind="mean"),
    "ultrabert_listed": dict(model_type="ultrabert", num_key_value_heads=4, attention_windows=[4, 0, 4, 4], rope_theta=[1e4, 3e5, 1e4, 1e4],
                             kind="mean"),
    "distilbert_classify": dict(model_type="distilbert", num_labels=2, kind="classify"),
    "electra_rerank": dict(model_type="electra", embedding_size=32, num_labels=1, kind="classify"),
    "albert": dict(model_type="albert", embedding_size=32, kind="mean"),
    "albert_classify": dict(model_type="albert", embedding_size=64, num_labels=3, kind="classify"),
    "mpnet": dict(model_type="mpnet", max_position_embeddings=162, pad_token_id=1, kind="mean"),
    "mpnet_classify": dict(model_type="mpnet", max_position_embeddings=162, pad_token_id=1, num_labels=3, kind="classify"),
    "deberta": dict(model_type="deberta-v2", relative_attention=True, position_buckets=32, share_att_key=True, pos_att_type=["p2c", "c2p"],
                    position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0, kind="mean"),
    # DeBERTa 2: a convolution of three tokens and of five
    "deberta_conv": dict(model_type="deberta-v2", relative_attention=True, position_buckets=32, share_att_key=True, pos_att_type=["p2c", "c2p"],
                         position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0, conv_kernel_size=3, conv_act="gelu",
                         attention_head_size=16, kind="mean"),
    "deberta_conv_classify": dict(model_type="deberta-v2", relative_attention=True, position_buckets=32, share_att_key=True,
                                  pos_att_type="p2c|c2p", position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0,
                                  conv_kernel_size=5, conv_act="relu", num_labels=3, kind="classify"),
    "deberta_classify": dict(model_type="deberta-v2", relative_attention=True, position_buckets=256, max_relative_positions=-1,
                             share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False, norm_rel_ebd="layer_norm",
                             type_vocab_size=0, max_position_embeddings=512, num_labels=3, kind="classify"),
    "eurobert": dict(model_type="eurobert", num_key_value_heads=2, kind="mean"),
    # Llama Nemotron Embed and Rerank: EuroBERT under other keys, a score of the mean
    "llama_bidirec": dict(model_type="eurobert", num_key_value_heads=2, attention_bias=True, kind="mean", rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)),
    "llama_bidirec_rerank": dict(model_type="eurobert", num_key_value_heads=4, kind="mean", score=0.5),
    # NeoBERT: EuroBERT whose neighbours rotate, see as_neo(); a classifier of the first token
    "neobert": dict(model_type="eurobert", num_key_value_heads=4, kind="mean", rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "neobert_classify": dict(model_type="eurobert", num_key_value_heads=4, kind="mean", tanh_head=3,
                             rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # the repositories' own: the same arithmetic under their names and keys
    "nomic_bert": dict(model_type="nomic_bert", max_position_embeddings=60, type_vocab_size=2, kind="mean",
                       rope_parameters=dict(rope_type="dynamic", rope_theta=1000.0, factor=2.0)),
    "nomic_bert_classify": dict(model_type="nomic_bert", type_vocab_size=2, num_labels=2, kind="classify"),
    "gte": dict(model_type="gte", type_vocab_size=0, kind="mean", much=0.15,
                rope_parameters=dict(rope_type="linear", rope_theta=500.0 * 8, factor=8.0 ** (2 / 16))),
    "gte_rerank": dict(model_type="gte", type_vocab_size=1, num_labels=1, kind="classify"),
    # kin of BERT: tasks of tokens, a projected embedding, norms before the branches, rotations of neighbours and of halves
    "data2vec": dict(model_type="data2vec-text", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1, kind="mean"),
    "ernie": dict(model_type="ernie", use_task_id=True, task_type_vocab_size=3, type_vocab_size=4, kind="mean"),
    "ernie_classify": dict(model_type="ernie", use_task_id=False, type_vocab_size=2, num_labels=2, kind="classify"),
    "rembert": dict(model_type="rembert", input_embedding_size=32, kind="mean"),
    "rembert_classify": dict(model_type="rembert", input_embedding_size=64, num_labels=3, kind="classify"),
    "roformer": dict(model_type="roformer", embedding_size=32, kind="mean"),
    "roformer_classify": dict(model_type="roformer", num_labels=3, kind="classify"),
    "megatron_bert": dict(model_type="megatron-bert", kind="mean"),
    "megatron_bert_classify": dict(model_type="megatron-bert", num_labels=2, kind="classify"),
    "xlm_roberta_xl": dict(model_type="xlm-roberta-xl", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1, kind="mean"),
    "xlm_roberta_xl_rerank": dict(model_type="xlm-roberta-xl", max_position_embeddings=162, pad_token_id=1, bos_token_id=0, type_vocab_size=1,
                                  num_labels=1, kind="classify"),
    "roberta_prelayernorm": dict(model_type="roberta-prelayernorm", max_position_embeddings=162, pad_token_id=1, bos_token_id=0,
                                 type_vocab_size=2, kind="mean"),
    "roberta_prelayernorm_classify": dict(model_type="roberta-prelayernorm", max_position_embeddings=162, pad_token_id=1, bos_token_id=0,
                                          type_vocab_size=1, num_labels=3, kind="classify"),
    "jina_v3": dict(model_type="jina_embeddings_v3", type_vocab_size=1, pad_token_id=1, bos_token_id=0, kind="mean"),
    "jina_v3_rerank": dict(model_type="jina_embeddings_v3", type_vocab_size=1, pad_token_id=1, bos_token_id=0, num_labels=1, kind="classify"),
    # Jina ColBERT 2's repository: the same arithmetic under the names of XLM-RoBERTa Flash
    "jina_flash": dict(model_type="jina_embeddings_v3", type_vocab_size=1, pad_token_id=1, bos_token_id=0, kind="late", dense=[24],
                       rope_parameters=dict(rope_type="default", rope_theta=20000.0)),
    "jina_flash_mean": dict(model_type="jina_embeddings_v3", type_vocab_size=1, pad_token_id=1, bos_token_id=0, kind="mean",
                            rope_parameters=dict(rope_type="default", rope_theta=20000.0)),
    # the repository's keys and names: GTE whose rotation is none, with the published bias added to the scores; heads that are no power of two
    "jina_v2": dict(model_type="gte", type_vocab_size=2, hidden_size=96, num_attention_heads=12, alibi=True, kind="mean", much=0.1),
    "jina_v2_rerank": dict(model_type="gte", type_vocab_size=2, num_labels=1, alibi=True, kind="classify", much=0.15),
    # Nomic Embed 2: Jina 3 without its names, with experts in every other layer, see with_experts()
    "nomic_moe": dict(model_type="jina_embeddings_v3", type_vocab_size=1, pad_token_id=1, bos_token_id=0, kind="mean",
                      rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # the first DeBERTa: texts reach past the farthest distance; a distance for each pair of positions
    "deberta_1": dict(model_type="deberta", relative_attention=True, max_relative_positions=48, pos_att_type=["c2p", "p2c"],
                      position_biased_input=False, type_vocab_size=0, kind="mean"),
    "deberta_1_classify": dict(model_type="deberta", relative_attention=True, max_relative_positions=-1, pos_att_type="c2p|p2c",
                               position_biased_input=False, type_vocab_size=0, num_labels=3, kind="classify"),
    # proteins: rotations or positions behind the padding's, norms before the branches, embeddings made smaller
    "esm": dict(model_type="esm", pad_token_id=1, mask_token_id=3, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False,
                kind="mean"),
    "esm_1b": dict(model_type="esm", pad_token_id=1, mask_token_id=3, position_embedding_type="absolute", token_dropout=True,
                   emb_layer_norm_before=True, max_position_embeddings=162, kind="mean"),
    "esm_classify": dict(model_type="esm", pad_token_id=1, mask_token_id=3, position_embedding_type="rotary", num_labels=3, kind="classify"),
    # norms of sums, and before the branches without one at the end
    "xlm": dict(model_type="xlm", n_langs=3, use_lang_emb=True, kind="mean"),
    "flaubert": dict(model_type="flaubert", pre_norm=True, gelu_activation=False, kind="mean"),
    "flaubert_classify": dict(model_type="flaubert", num_labels=3, kind="classify"),
    # matrices in groups of several sizes; norms of the layers have an epsilon of their own
    "squeezebert": dict(model_type="squeezebert", embedding_size=64, type_vocab_size=2, q_groups=2, k_groups=4, v_groups=1, layer_norm_eps=1e-5,
                        post_attention_groups=8, intermediate_groups=4, output_groups=2, kind="mean"),
    "squeezebert_classify": dict(model_type="squeezebert", embedding_size=64, type_vocab_size=2, num_labels=3, kind="classify"),
    "squeezebert_fill": dict(model_type="squeezebert", embedding_size=64, type_vocab_size=2, kind="fill"),
    # a narrow stream with one feed-forward and with four; a classifier with the pooler's matrix and without
    "mobilebert": dict(model_type="mobilebert", embedding_size=16, intra_bottleneck_size=32, type_vocab_size=2, kind="mean", much=0.1),
    "mobilebert_classify": dict(model_type="mobilebert", embedding_size=32, intra_bottleneck_size=24, num_feedforward_networks=1, num_labels=3,
                                type_vocab_size=2, hidden_act="gelu", kind="classify", much=0.1),
    "mobilebert_plain": dict(model_type="mobilebert", embedding_size=16, intra_bottleneck_size=32, num_feedforward_networks=2, num_labels=1,
                             classifier_activation=False, type_vocab_size=2, kind="classify", much=0.1),
    "mobilebert_fill": dict(model_type="mobilebert", embedding_size=16, intra_bottleneck_size=32, type_vocab_size=2, kind="fill", much=0.1),
    "mobilebert_tokens": dict(model_type="mobilebert", embedding_size=16, intra_bottleneck_size=32, type_vocab_size=2, num_labels=5, kind="tokens",
                              much=0.1),
    "mobilebert_answers": dict(model_type="mobilebert", embedding_size=16, intra_bottleneck_size=32, type_vocab_size=2, kind="answers", much=0.1),
    # distances and types of tokens alone; distances of more than 20 tokens are alike; summaries of the last token and of the mean
    "xlnet": dict(model_type="xlnet", d_model=64, n_layer=4, n_head=4, d_inner=96, kind="mean", much=0.1),
    "xlnet_classify": dict(model_type="xlnet", d_model=64, n_layer=4, n_head=4, d_inner=96, clamp_len=20, num_labels=3, ff_activation="relu",
                           kind="classify", much=0.1),
    "xlnet_mean": dict(model_type="xlnet", d_model=64, n_layer=4, n_head=4, d_inner=96, summary_type="mean", num_labels=1, kind="classify", much=0.1),
    "xlnet_tokens": dict(model_type="xlnet", d_model=64, n_layer=4, n_head=4, d_inner=96, num_labels=5, kind="tokens", much=0.1),
    # convolutions of nine and of five neighbours; groups of the feed-forward
    "convbert": dict(model_type="convbert", embedding_size=32, type_vocab_size=2, num_attention_heads=8, num_groups=2, kind="mean"),
    "convbert_classify": dict(model_type="convbert", embedding_size=64, type_vocab_size=2, num_attention_heads=8, conv_kernel_size=5, num_labels=3,
                              hidden_act="relu", kind="classify"),
    "convbert_tokens": dict(model_type="convbert", embedding_size=64, type_vocab_size=2, num_attention_heads=8, num_labels=5, kind="tokens"),
    # convolutions that are longer than most texts, and shorter ones
    "nystromformer": dict(model_type="nystromformer", type_vocab_size=2, num_landmarks=8, segment_means_seq_len=8, kind="mean"),
    "nystromformer_classify": dict(model_type="nystromformer", type_vocab_size=3, conv_kernel_size=5, num_labels=3, hidden_act="relu", kind="classify"),
    "nystromformer_fill": dict(model_type="nystromformer", type_vocab_size=2, conv_kernel_size=33, hidden_act="gelu", kind="fill"),
    "nystromformer_tokens": dict(model_type="nystromformer", type_vocab_size=2, conv_kernel_size=1, num_labels=5, kind="tokens"),
    # an MLP of the second language behind each layer
    "xmod": dict(model_type="xmod", languages=["en_XX", "de_DE", "fr_XX"], default_language="de_DE", max_position_embeddings=162, pad_token_id=1,
                 bos_token_id=0, type_vocab_size=1, kind="mean"),
    "xmod_classify": dict(model_type="xmod", languages=["en_XX"], default_language="en_XX", adapter_reduction_factor=4, max_position_embeddings=162,
                          pad_token_id=1, bos_token_id=0, type_vocab_size=1, num_labels=3, hidden_act="relu", kind="classify"),
    "xmod_fill": dict(model_type="xmod", languages=["en_XX", "de_DE"], default_language="en_XX", max_position_embeddings=162, pad_token_id=1,
                      bos_token_id=0, type_vocab_size=1, kind="fill"),
    # Fourier transforms of texts of every length, and of numbers that are no power of two
    "fnet": dict(model_type="fnet", type_vocab_size=4, kind="mean"),
    "fnet_classify": dict(model_type="fnet", hidden_size=52, type_vocab_size=4, num_labels=3, hidden_act="relu", kind="classify"),
    "fnet_fill": dict(model_type="fnet", type_vocab_size=2, kind="fill"),
    "fnet_tokens": dict(model_type="fnet", hidden_size=36, type_vocab_size=2, num_labels=5, kind="tokens"),
    "bert_generation": dict(model_type="bert-generation", kind="mean"),
    # a table with more positions than texts may have
    "big_bird": dict(model_type="big_bird", block_size=16, num_random_blocks=2, rescale_embeddings=True, use_bias=False, kind="mean", much=0.1),
    "big_bird_classify": dict(model_type="big_bird", num_labels=3, kind="classify"),
    # a ReLU and a bias of layer 0; heads that are together wider than the stream; texts reach past the farthest bucket
    "t5": dict(model_type="t5", d_kv=24, feed_forward_proj="relu", relative_attention_max_distance=40, kind="encoder"),
    "t5_act": dict(model_type="t5", d_kv=24, feed_forward_proj="relu", dense_act_fn="gelu", is_gated_act=True, kind="encoder", much=0.15),
    "flan_t5": dict(model_type="t5", d_kv=8, feed_forward_proj="gated-gelu", relative_attention_num_buckets=16, kind="encoder", much=0.15),
    "mt5": dict(model_type="mt5", d_kv=16, feed_forward_proj="gated-gelu", kind="encoder", dense=[192], much=0.15),
    "umt5": dict(model_type="umt5", d_kv=16, feed_forward_proj="gated-gelu", kind="encoder", much=0.15),
    # SPLADE: the greatest or the sum of the logits of the head for masked tokens, once or twice behind a logarithm; its activation is not
    # that of the layers, its matrix is another than the embeddings
    "splade_bert": dict(model_type="bert", type_vocab_size=2, hidden_act="gelu_new", kind="splade"),
    "splade_bert_sum": dict(model_type="bert", type_vocab_size=2, tie_word_embeddings=False, kind="splade", sparse=("sum", "log1p_relu"), much=0.1),
    "splade_distilbert": dict(model_type="distilbert", activation="relu", kind="splade", sparse=("max", "log1p_relu")),
    "splade_roberta": dict(model_type="roberta", type_vocab_size=1, pad_token_id=1, bos_token_id=0, max_position_embeddings=162,
                           hidden_act="relu", kind="splade"),
    "splade_mpnet": dict(model_type="mpnet", max_position_embeddings=162, pad_token_id=1, kind="splade"),
    "splade_modernbert": dict(model_type="modernbert", local_attention=8, classifier_activation="silu", kind="splade"),
    "splade_gte": dict(model_type="gte", type_vocab_size=0, kind="splade", much=0.15,
                       rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # words in place of a mask: the logits of the fourth token, or of the only one
    "bert_fill": dict(model_type="bert", type_vocab_size=2, kind="fill"),
    "roberta_fill": dict(model_type="roberta", type_vocab_size=1, pad_token_id=1, bos_token_id=0, max_position_embeddings=162, kind="fill"),
    "modernbert_fill": dict(model_type="modernbert", local_attention=8, kind="fill", much=0.1),
    # labels of each token
    "bert_tokens": dict(model_type="bert", type_vocab_size=2, num_labels=5, kind="tokens"),
    "distilbert_tokens": dict(model_type="distilbert", num_labels=3, kind="tokens"),
    "roberta_tokens": dict(model_type="roberta", type_vocab_size=1, pad_token_id=1, bos_token_id=0, max_position_embeddings=162, num_labels=9,
                           kind="tokens"),
    "modernbert_tokens": dict(model_type="modernbert", local_attention=8, num_labels=3, kind="tokens", much=0.1),
    "deberta_tokens": dict(model_type="deberta-v2", relative_attention=True, position_buckets=32, share_att_key=True, pos_att_type=["p2c", "c2p"],
                           position_biased_input=False, norm_rel_ebd="layer_norm", type_vocab_size=0, num_labels=4, kind="tokens"),
    # where an answer to a question begins and ends
    "bert_answers": dict(model_type="bert", type_vocab_size=2, kind="answers"),
    "roberta_answers": dict(model_type="roberta", type_vocab_size=1, pad_token_id=1, bos_token_id=0, max_position_embeddings=162, kind="answers"),
    "modernbert_answers": dict(model_type="modernbert", local_attention=8, kind="answers", much=0.1),
    "flaubert_answers": dict(model_type="flaubert", kind="answers"),
    # experts with biases, windows to both sides, sinks, neighbours that rotate
    "privacy_filter": dict(model_type="openai_privacy_filter", head_dim=16, num_key_value_heads=2, sliding_window=8, num_local_experts=8,
                           num_experts_per_tok=2, num_labels=5, kind="tokens", much=0.1, rope_parameters=dict(
                               rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                               original_max_position_embeddings=48)),
    "qwen2_tokens": dict(model_type="qwen2", num_key_value_heads=2, num_labels=3, kind="tokens", much=0.1),
    # ColBERT: a narrower vector of each token, of its own files and of PyLate's
    "colbert": dict(model_type="bert", type_vocab_size=2, kind="late", dense=[24]),
    "pylate": dict(model_type="modernbert", local_attention=8, kind="late", dense=[24], much=0.1),
    "qwen3_rerank": dict(model_type="qwen3", head_dim=16, num_key_value_heads=2, kind="yes_no"),
    # a classifier whose encoder and decoder read a text each: texts end with the token of the end
    "bart_classify": dict(model_type="bart", num_labels=3, kind="both"),
    "bart_rerank": dict(model_type="bart", num_labels=1, kind="both", scale_embedding=True),
    "mbart_classify": dict(model_type="mbart", num_labels=3, kind="both", decoder_start_token_id=2),
    "t5_classify": dict(model_type="t5", num_labels=3, d_kv=24, d_ff=96, d_model=64, num_layers=3, num_decoder_layers=4, num_heads=4,
                        feed_forward_proj="gated-gelu", kind="both", much=0.1, eos_token_id=1, decoder_start_token_id=0),
    # vectors of the last token, with a projection or without; files of the whole model, and of the text model alone
    "clip": dict(kind="clip"),
    "clip_text": dict(kind="clip", alone="CLIPTextModelWithProjection", hidden_act="gelu"),
    "clip_bare": dict(kind="clip", alone="CLIPTextModel"),
    "metaclip_2": dict(kind="clip", of="MetaClip2"),
}


def texts(g, vocab, lengths):
    for n in lengths:
        yield torch.randint(4, vocab, (n,), generator=g).tolist()


def spread(model, g, much):
    """Norms and biases that are not 1 and 0; weights that leave no part of the arithmetic without effect."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not p.requires_grad:  # sines of RoFormer
                continue
            r = torch.randn(p.shape, generator=g)
            norm = p.dim() == 1 and name.endswith("weight")
            p.copy_((1 + 0.2 * r if norm and "gemma" not in type(model).__name__.lower() else much * r).bfloat16().float())


def modules(out, pool, dense, width):
    """The files of sentence-transformers; returns what the Dense modules compute."""
    kinds = ["Transformer", "Pooling"] + ["Dense"] * len(dense)
    listed = [dict(idx=i, name=str(i), path="" if i == 0 else f"{i}_{k}", type=f"sentence_transformers.models.{k}")
              for i, k in enumerate(kinds)]
    json.dump(listed, open(f"{out}/modules.json", "w"))
    for m in listed[1:]:
        os.makedirs(f"{out}/{m['path']}", exist_ok=True)
    json.dump(dict(word_embedding_dimension=width, pooling_mode_mean_tokens=pool == "mean"), open(f"{out}/1_Pooling/config.json", "w"))
    g, layers = torch.Generator().manual_seed(3), []
    for i, n in enumerate(dense):
        w = torch.randn((n, width), generator=g) * 0.1
        folder = f"{out}/{2 + i}_Dense"
        json.dump(dict(in_features=width, out_features=n, bias=False, activation_function="torch.nn.modules.linear.Identity"),
                  open(f"{folder}/config.json", "w"))
        save_file({"linear.weight": w.contiguous()}, f"{folder}/model.safetensors")
        layers.append(w)
        width = n
    return layers


def late_modules(out, dense, width, listed):
    """The matrix of ColBERT, in a module of PyLate if `listed`."""
    w = torch.randn((dense[0], width), generator=torch.Generator().manual_seed(3)) * 0.1
    w = w.bfloat16()
    if listed:
        os.makedirs(f"{out}/1_Dense", exist_ok=True)
        json.dump([dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer"),
                   dict(idx=1, name="1", path="1_Dense", type="pylate.models.Dense.Dense")], open(f"{out}/modules.json", "w"))
        json.dump(dict(in_features=width, out_features=dense[0], bias=False, activation_function="torch.nn.modules.linear.Identity"),
                  open(f"{out}/1_Dense/config.json", "w"))
        save_file({"linear.weight": w}, f"{out}/1_Dense/model.safetensors")
    return [w.float()]


def sparse_module(out, pooling):
    """The files of sentence-transformers' SparseEncoder."""
    os.makedirs(f"{out}/1_SpladePooling", exist_ok=True)
    json.dump([dict(idx=0, name="0", path="", type="sentence_transformers.sparse_encoder.models.MLMTransformer"),
               dict(idx=1, name="1", path="1_SpladePooling", type="sentence_transformers.sparse_encoder.models.SpladePooling")],
              open(f"{out}/modules.json", "w"))
    json.dump(dict(pooling_strategy=pooling[0], activation_function=pooling[1], word_embedding_dimension=None),
              open(f"{out}/1_SpladePooling/config.json", "w"))


def sparse_of(logits, pooling):
    x = logits.relu().log1p()
    x = x.log1p() if pooling[1] == "log1p_relu" else x
    return x.max(0).values if pooling[0] == "max" else x.sum(0)


def in_rows(state, parts, whole):
    """Matrices of each layer in one."""
    for name in [n for n in state if parts[0] in n]:
        state[name.replace(parts[0], whole)] = torch.cat([state.pop(name.replace(parts[0], p)) for p in parts])


def renamed(state, pairs):
    out = {}
    for name, v in state.items():
        for a, b in pairs:
            name = name.replace(a, b)
        out[name] = v
    return out


TYPED = ("bert", "electra", "albert", "ernie", "rembert", "megatron-bert", "big_bird", "squeezebert", "mobilebert", "xlnet", "convbert", "nystromformer", "fnet")
QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]


def as_nomic(state, c):
    in_rows(state, QKV, "attn.Wqkv")
    state = renamed(state, [("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."), ("self_attn.o_proj", "attn.out_proj"),
                            ("up_proj", "fc11"), ("gate_proj", "fc12"), ("down_proj", "fc2"),
                            ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")])
    rope = c["rope_parameters"]
    dynamic = rope["rope_type"] == "dynamic"
    keys = dict(model_type="nomic_bert", n_embd=64, n_layer=4, n_head=4, n_inner=96, vocab_size=320, type_vocab_size=2,
                n_positions=160, max_trained_positions=c["max_position_embeddings"], rotary_emb_base=rope["rope_theta"],
                rotary_scaling_factor=2 if dynamic else None, rotary_emb_fraction=1.0, activation_function="swiglu",
                layer_norm_epsilon=1e-12, prenorm=False, qkv_proj_bias=False, mlp_fc1_bias=False, id2label=c["id2label"])
    return state, keys


def as_new(state, c):
    in_rows(state, QKV, "attention.qkv_proj")
    in_rows(state, ["mlp.up_proj", "mlp.gate_proj"], "mlp.up_gate_proj")
    state = renamed(state, [("gte.", "new."), ("lm_head.layer_norm", "lm_head.norm"), ("layers.", "encoder.layer."), ("self_attn.o_proj", "attention.o_proj"),
                            ("post_attention_layernorm", "attn_ln"), ("post_mlp_layernorm", "mlp_ln")])
    keys = dict(c, model_type="new", position_embedding_type="rope", layer_norm_type="layer_norm", pack_qkv=True,
                rope_theta=c["rope_parameters"]["rope_theta"], rope_scaling=None, logn_attention_scale=False)
    if keys.pop("rope_parameters")["rope_type"] == "linear":
        keys.update(rope_theta=500.0, rope_scaling=dict(type="ntk", factor=8.0))
    return state, keys


def as_jina(state, c):
    in_rows(state, ["mlp.gate_proj", "mlp.up_proj"], "mlp.gated_layers")
    state = renamed(state, [("gte.", "bert."), ("layers.", "encoder.layer."), ("gated_encoder.layer.", "gated_layers."),
                            ("self_attn.q_proj", "attention.self.query"), ("self_attn.k_proj", "attention.self.key"),
                            ("self_attn.v_proj", "attention.self.value"), ("self_attn.o_proj", "attention.output.dense"),
                            ("post_attention_layernorm", "attention.output.LayerNorm"), ("mlp.down_proj", "mlp.wo"),
                            ("post_mlp_layernorm", "mlp.layernorm")])
    return state, dict({k: v for k, v in c.items() if not k.startswith("rope")}, model_type="bert", position_embedding_type="alibi",
                       feed_forward_type="geglu", attn_implementation="torch", emb_pooler="mean")


def as_flash(state, c):
    in_rows(state, QKV, "mixer.Wqkv")
    state = renamed(state, [("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."), ("self_attn.o_proj", "mixer.out_proj"),
                            ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")])
    keys = {k: v for k, v in c.items() if not k.startswith("rope")}
    return state, dict(keys, model_type="xlm-roberta", position_embedding_type="rotary", rotary_emb_base=c["rope_parameters"]["rope_theta"],
                       auto_map=dict(AutoConfig="configuration_xlm_roberta.XLMRobertaFlashConfig"), use_flash_attn=True)


class Experts(torch.nn.Module):
    """Softmax scores of all experts, the two best as they are, MLPs without gates, one bias of the sum: the published equations
    of Nomic Embed 2 (https://arxiv.org/abs/2502.07972)."""

    def __init__(self, hidden, ffn, n=8, best=2):
        super().__init__()
        self.router, self.best = torch.nn.Linear(hidden, n, bias=False), best
        self.w1, self.w2 = (torch.nn.Parameter(torch.empty(n, ffn, hidden)) for _ in range(2))
        self.bias = torch.nn.Parameter(torch.empty(hidden))

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        kept = torch.zeros_like(scores).scatter(-1, scores.topk(self.best).indices, 1) * scores
        each = torch.einsum("blef,efh->bleh", torch.nn.functional.gelu(torch.einsum("blh,efh->blef", x, self.w1)), self.w2)
        return (each * kept[..., None]).sum(-2) + self.bias


def with_experts(model):
    for layer in model.layers[1::2]:
        layer.mlp = Experts(64, 96)


def as_nomic_2(state, c):
    in_rows(state, QKV, "attn.Wqkv")
    state = renamed(state, [("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."), ("self_attn.o_proj", "attn.out_proj"),
                            ("mlp.router", "mlp.router.layer"), ("mlp.w1", "mlp.experts.mlp.w1"), ("mlp.w2", "mlp.experts.mlp.w2"),
                            ("mlp.bias", "mlp.experts.bias"), ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")])
    state = {k: v.reshape(-1, v.shape[-1]) if ".experts.mlp." in k else v for k, v in state.items()}
    return state, dict(model_type="nomic_bert", n_embd=64, n_layer=4, n_head=4, n_inner=96, vocab_size=320, type_vocab_size=1,
                       n_positions=160, max_trained_positions=160, rotary_emb_base=10000, rotary_scaling_factor=None, rotary_emb_fraction=1.0,
                       activation_function="gelu", layer_norm_epsilon=c["layer_norm_eps"], prenorm=False, qkv_proj_bias=True, mlp_fc1_bias=True,
                       mlp_fc2_bias=True, num_experts=8, moe_top_k=2, moe_every_n_layers=2, moe_normalize_expert_weights=False,
                       expert_choice_router=False, num_shared_experts=0)


def slopes(heads):
    """https://arxiv.org/abs/2108.12409: of a number of heads that is no power of two, the rest are every other one of the double."""
    below = 2 ** (heads.bit_length() - 1)
    own = [2 ** (-8 * (i + 1) / below) for i in range(below)]
    return own + [2 ** (-8 * (i + 1) / (2 * below)) for i in range(0, 2 * (heads - below), 2)]


def alibi(heads, n):
    """[1, heads, n, n], to both sides."""
    far = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs().float()
    return -torch.tensor(slopes(heads))[None, :, None, None] * far


def as_listed(state, c):
    """UltraBERT's repository lists a window and a base of each layer."""
    keys = {k: v for k, v in c.items() if k not in ("layer_types", "sliding_window", "rope_parameters")}
    return state, dict(keys, attention_windows=[4, 0, 4, 4], rope_theta=[1e4, 3e5, 1e4, 1e4])


def as_nemotron(state, c):
    """`temperature` is there where the score is."""
    c = dict(c, model_type="llama_bidirec", pooling="avg", rope_theta=c["rope_parameters"]["rope_theta"], rope_scaling=c.pop("rope_parameters"))
    c["rope_scaling"] = c["rope_scaling"] if c["rope_scaling"]["rope_type"] == "llama3" else None
    return {k.removeprefix("model."): v for k, v in state.items()}, c


def as_neo(state, c):
    """Rows of q and k in pairs, then q, k and v of each head in one matrix."""
    heads, width = c["num_attention_heads"], c["hidden_size"]
    for i in range(c["num_hidden_layers"]):
        q, k, v = (state.pop(f"layers.{i}.self_attn.{n}_proj.weight").view(heads, -1, width) for n in "qkv")
        q, k = (x.view(heads, 2, -1, width).transpose(1, 2).reshape(heads, -1, width) for x in (q, k))
        state[f"layers.{i}.qkv.weight"] = torch.cat([q, k, v], 1).reshape(-1, width)
    in_rows(state, ["mlp.gate_proj", "mlp.up_proj"], "ffn.w12")
    state = renamed(state, [("embed_tokens", "encoder"), ("layers.", "transformer_encoder."), ("self_attn.o_proj", "wo"), ("mlp.down_proj", "ffn.w3"),
                            ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm")])
    state = {k.replace("norm.weight", "layer_norm.weight") if k == "norm.weight" else k: v for k, v in state.items()}
    return {f"model.{k}": v.contiguous() for k, v in state.items()}, dict(
        model_type="neobert", hidden_size=width, num_hidden_layers=c["num_hidden_layers"], num_attention_heads=heads, vocab_size=c["vocab_size"],
        intermediate_size=c["intermediate_size"] * 3 // 2, norm_eps=c["rms_norm_eps"], max_length=c["max_position_embeddings"], pad_token_id=0)


def tanh_head(g, width, labels):
    """A matrix, tanh, another matrix, both with biases, of the first token."""
    shapes = {"dense.weight": (width, width), "dense.bias": (width,), "classifier.weight": (labels, width), "classifier.bias": (labels,)}
    w = {k: (torch.randn(shape, generator=g) * 0.1).bfloat16().float() for k, shape in shapes.items()}
    return w, lambda h: w["classifier.weight"] @ torch.tanh(w["dense.weight"] @ h[0] + w["dense.bias"]) + w["classifier.bias"]


def as_gemma_2(state, c):
    """The published file does not say what its `text_config` is, and may have another model's towers."""
    c.pop("model_type")
    return {f"language_model.{k}": v for k, v in state.items()}, dict(model_type="embedding_gemma2", image_token_id=258880, text_config=c)


def with_scalars(model):
    for i, layer in enumerate(model.layers):
        layer.layer_scalar.fill_(0.75 + 0.0625 * i)


WITH = {"nomic_moe": with_experts, "embeddinggemma_2": with_scalars}
AS = {"jina_flash_mean": as_flash, "neobert": as_neo, "neobert_classify": as_neo, "jina_flash": as_flash, "embeddinggemma_2": as_gemma_2, "splade_gte": as_new, "llama_bidirec": as_nemotron, "llama_bidirec_rerank": as_nemotron, "ultrabert_listed": as_listed, "nomic_moe": as_nomic_2, "jina_v2": as_jina, "jina_v2_rerank": as_jina, "nomic_bert": as_nomic, "nomic_bert_classify": as_nomic, "gte": as_new, "gte_rerank": as_new}


def make(name, case):
    case = dict(case)
    kind, dense, old = case.pop("kind"), case.pop("dense", []), case.pop("old_norms", False)
    biased, temperature = case.pop("alibi", False), case.pop("score", None)
    pooling, labelled = case.pop("sparse", ("max", "relu")), case.pop("tanh_head", None)
    much = case.pop("much", 0.2)  # of gated MLPs without a norm before: rounding errors of fp32 would grow to the bound
    out = f"build/golden/embed/{name}"
    os.makedirs(out, exist_ok=True)
    labels = case.pop("num_labels", None)
    if case["model_type"] == "distilbert":
        case = dict(case, dim=64, hidden_dim=96, n_layers=4, n_heads=4)
    if kind == "encoder":
        case = dict(case, d_model=64, d_ff=96, num_layers=4, num_heads=4)
    if kind == "both" and case["model_type"] != "t5":
        case = dict(case, d_model=64, encoder_layers=3, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=8,
                    encoder_ffn_dim=96, decoder_ffn_dim=128, eos_token_id=2)
    usual = {k: v for k, v in COMMON.items() if kind != "both" or not k.startswith(("hidden", "interm", "num"))}
    if case["model_type"] == "xlnet":  # its class refuses the key
        usual.pop("max_position_embeddings")
    config = AutoConfig.for_model(**{
    **usual, **case, **({ "num_labels" : labels } if labels else {})})
    config._attn_implementation = "eager"
    auto = {"both": AutoModelForSequenceClassification, "mean": AutoModel, "encoder": AutoModelForTextEncoding, "classify": AutoModelForSequenceClassification, "yes_no": AutoModelForCausalLM,
            "splade": AutoModelForMaskedLM, "fill": AutoModelForMaskedLM, "tokens": AutoModelForTokenClassification, "answers": AutoModelForQuestionAnswering, "late": AutoModel}[kind]
    torch.manual_seed(1)
    model = auto.from_config(config).eval().float()
    if name in WITH:
        WITH[name](model)
    g = torch.Generator().manual_seed(2)
    spread(model, g, much)
    if biased:
        model.base_model.rotary_emb.inv_freq.zero_()
    model.config._attn_implementation = "eager"
    score = (torch.randn((1, config.hidden_size), generator=g) * 0.1).bfloat16().float() if temperature else None
    own_head, logits_of = tanh_head(g, config.hidden_size, labelled) if labelled else ({}, None)
    if kind == "late":
        layers = late_modules(out, dense, config.hidden_size, name == "pylate")
    if kind == "splade":
        sparse_module(out, pooling)
    results = []
    if kind != "late":
        layers = modules(out, "mean", dense, config.hidden_size) if kind in ("mean", "encoder") and not (temperature or labelled) else []
    # errors of a sum grow with the text
    for n, ids in enumerate(texts(g, config.vocab_size, LENGTHS[:3] if pooling[0] == "sum" else LENGTHS)):
        if kind == "both":
            ids[-1] = config.eos_token_id
        types = [int(i > len(ids) // 2) for i in range(len(ids))] if biased or config.model_type in TYPED else None
        feed = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        if biased:
            feed["attention_mask"] = alibi(config.num_attention_heads, len(ids))
        if types:
            feed["token_type_ids"] = torch.tensor([types])
        with torch.no_grad():
            got = model(**feed)
        text = dict(ids=ids, token_type_ids=types)
        if temperature:
            text["logits"] = (score @ got.last_hidden_state[0].mean(0) / temperature).tolist()
        elif labelled:
            text["logits"] = logits_of(got.last_hidden_state[0]).tolist()
        elif kind in ("mean", "encoder"):
            h = got.last_hidden_state[0]
            x = h.mean(0)
            for w in layers:
                x = w @ x
            text.update(embedding=x.tolist(), first_hidden=h[0].tolist(), last_hidden=h[-1].tolist())
        elif kind == "tokens":
            text["embedding"] = got.logits[0].flatten().tolist()
        elif kind == "fill":
            text.update(skip=min(3, len(ids) - 1), embedding=got.logits[0][min(3, len(ids) - 1)].tolist())
        elif kind == "answers":
            text["embedding"] = torch.stack([got.start_logits[0], got.end_logits[0]], -1).flatten().tolist()
        elif kind == "late":
            text["embedding"] = (got.last_hidden_state[0] @ layers[0].T).flatten().tolist()
        elif kind == "splade":
            text["embedding"] = sparse_of(got.logits[0], pooling).tolist()
        elif kind == "yes_no":
            text["logit"] = (got.logits[0, -1, YES] - got.logits[0, -1, NO]).item()
        else:
            text["logits"] = got.logits[0].tolist()
        results.append(text)
    state = {
k: v.contiguous().bfloat16() for k, v in model.state_dict().items()}
    if kind == "yes_no":
        state.pop("lm_head.weight", None) if config.tie_word_embeddings else None
    if kind in ("splade", "fill") and config.tie_word_embeddings:
        state = {k: v for k, v in state.items() if k not in model._tied_weights_keys}
    if old:  # as the first files have them
        state = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in state.items()}
    said = json.loads(config.to_json_string(use_diff=False))
    if name in AS:
        state, said = AS[name](state, said)
    said["architectures"] = [type(model).__name__]
    if name in ("colbert", "jina_flash"):
        own = "bert" if name == "colbert" else "roberta"
        state = {f"{own}.{k}": v for k, v in state.items()} | {"linear.weight": layers[0].bfloat16()}
        said["architectures"] = ["HF_ColBERT"]
    if temperature:
        state["score.weight"] = score.bfloat16()
        said |= dict(architectures=["LlamaBidirectionalForSequenceClassification"], temperature=temperature, id2label={"0": "LABEL_0"})
    if labelled:
        state |= {k: v.bfloat16() for k, v in own_head.items()}
        said |= dict(architectures=["NeoBERTForSequenceClassification"], id2label={str(i): f"LABEL_{i}" for i in range(labelled)})
    save_file(state, f"{out}/model.safetensors")
    json.dump(said, open(f"{out}/config.json", "w"), indent=1)
    json.dump(dict(name=name, texts=results), open(f"{out}/golden.json", "w"))
    print(name, sum(p.numel() for p in model.parameters()))


def make_clip(name, kind, of="CLIP", alone=None, **case):
    """Texts end with the token of the end, the last of the vocabulary, whose row makes the vector; OpenAI's files say that it is 2."""
    end = COMMON["vocab_size"] - 1
    sizes = dict({k: v for k, v in COMMON.items() if k != "num_hidden_layers"}, num_hidden_layers=3, projection_dim=40, **case)
    sizes["eos_token_id"] = 2 if name == "clip" else end
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8, projection_dim=40)
    text = getattr(transformers, f"{of}TextConfig")(**sizes)
    config = text if alone else getattr(transformers, f"{of}Config")(text_config=text.to_dict(), vision_config=vision, projection_dim=40)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = getattr(transformers, alone or f"{of}Model")(config).eval().float()
    g, results, out = torch.Generator().manual_seed(2), [], f"build/golden/embed/{name}"
    spread(model, g, 0.2)
    for ids in texts(g, end, LENGTHS):
        ids[-1] = end
        feed = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        with torch.no_grad():
            got = model(**feed) if alone else model.get_text_features(**feed)
        vector = got.text_embeds if alone and hasattr(got, "text_embeds") else got.pooler_output
        results.append(dict(ids=ids, embedding=vector[0].tolist()))
    os.makedirs(out, exist_ok=True)
    save_file({k: v.contiguous().bfloat16() for k, v in model.state_dict().items() if "position_ids" not in k}, f"{out}/model.safetensors")
    json.dump(dict(json.loads(config.to_json_string(use_diff=False)), architectures=[type(model).__name__]), open(f"{out}/config.json", "w"), indent=1)
    json.dump(dict(name=name, texts=results), open(f"{out}/golden.json", "w"))
    print(name, sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make_clip(name, **CASES[name]) if CASES[name]["kind"] == "clip" else make(name, CASES[name])
