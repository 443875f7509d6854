/* config.h - reads a checkpoint's config.json, with the keys of transformers 4 (rope_theta,
 * rope_scaling) or of transformers 5 (rope_parameters).
 *
 * Every reader records the first error and continues with a harmless value. So a family reads its
 * keys line by line, and the caller checks `failed` once. */
#ifndef MODEL_SERVER_MODEL_CONFIG_CONFIG_H
#define MODEL_SERVER_MODEL_CONFIG_CONFIG_H
#include "common/err.h"
#include "model-server/model/spec/decoder_spec.h"
#include <cjson/cJSON.h>

/* A family's own word for a key that most families share (transformers: attribute_map). Readers ask
 * for the usual word and read the own one; the usual one if the file has only that, unless the
 * family does not know it (`only`). `own` NULL: the family has no such key. */
struct config_key {
    const char *usual, *own;
    bool only;
};
extern const struct config_key config_keys_gpt2[]; /* and its descendants */

struct config {
    const char *path; /* for messages */
    cJSON *file;      /* the whole document */
    cJSON *root;      /* of the text model: the document, or its `text_config` */
    struct err *e;
    bool failed;
    const char *rope_scaling; /* overrides the file's value, or NULL */
    double rope_factor;
    const struct config_key *keys; /* up to one without words, or NULL */
};

/* `path` must outlive it. `text`: the file's content, or NULL to read it. */
int config_open(struct config *c, const char *path, const char *text, struct err *e);
void config_close(struct config *c);
void config_fail(struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Required; an integer in [min, max]. */
uint32_t config_u32(struct config *c, const char *key, uint32_t min, uint32_t max);
/* Optional: `def` if absent or null; anything else must be an integer in [min, max]. */
uint32_t config_u32_or(struct config *c, const char *key, uint32_t def, uint32_t min, uint32_t max);
double config_num_or(struct config *c, const char *key, double def); /* finite */
bool config_bool_or(struct config *c, const char *key, bool def);
const char *config_str_or(struct config *c, const char *key, const char *def);
/* Keys of `json`, an object, that the file lacks get these values: those of transformers' class
 * where they are not the usual ones. A key with null is there. Not in GGUF
 * files. */
void config_absent(struct config *c, const char *json);
/* The same of a rotation, if the file says nothing of one. */
void config_absent_rope(struct config *c, const char *json);
/* `key` if the file has it, else `other`. */
const char *config_either(const struct config *c, const char *key, const char *other);
/* The class that the checkpoint was saved from: the first of c->root's `architectures`, or `def`.
 */
const char *config_class(const struct config *c, const char *def);
/* An object under `key` of `in` (a part of the file). NULL if absent or null; anything else is an
 * error. */
const cJSON *config_object(struct config *c, const cJSON *in, const char *key);
/* Layer norms with the epsilon under `key`; `bias`: they have a bias. */
void config_layer_norm(struct config *c, struct decoder_spec *s, const char *key, bool bias);
/* An error unless the key is absent or `value`: for variants that this decoder does not
 * support. */
void config_only(struct config *c, const char *key, bool value);
/* An error unless the number, which is `def` if the key is absent, is `value`. */
void config_only_num(struct config *c, const char *key, double def, double value);
/* The same for a word. */
void config_only_word(struct config *c, const char *key, const char *word);
enum act config_act(struct config *c, const char *key, const char *def);
/* The same for a word that was read under `key`, or is part of it. */
enum act config_act_word(struct config *c, const char *key, const char *name);
/* `kind` with the limit under `key`, or its own: one of act_gated_only(). */
enum act config_act_limit(struct config *c, const char *key, enum act kind);
/* The same for a limit that was read. 0: an error, `key` names it. */
enum act config_limited(struct config *c, const char *key, enum act kind, double limit);
/* The number of a layer in the list `key`, which may also have entries of draft layers; `def`: the
 * file has no list, or null there. */
double config_layer_num(struct config *c, const struct decoder_spec *s, const char *key,
                        uint32_t layer, double def);
/* Caps of SiLU and of what it gates: the lists `experts`, and `shared` of shared experts and dense
 * layers. 0 or null: none in that layer. */
void config_act_caps(struct config *c, struct decoder_spec *s, const char *experts,
                     const char *shared);

/* The keys that most families share: hidden_size, num_hidden_layers, num_attention_heads,
 * num_key_value_heads, head_dim (`head_dim` if absent; 0: hidden / heads), intermediate_size,
 * vocab_size, max_position_embeddings, rms_norm_eps, tie_word_embeddings. Sets the rest as in
 * most families: pre-norm RMS blocks, separate q, k, v, a gated SiLU MLP, no biases. */
struct config_defaults {
    uint32_t head_dim, max_positions;
    double norm_eps, rope_theta; /* rope_theta 0: no rotation, or the family reads it itself */
    uint32_t ffn, layers; /* defaults of intermediate_size and num_hidden_layers; 0: required */
    double rotary;        /* rotated part of a head; 0: all of it */
    bool tied;
    uint32_t hidden, heads, kv_heads, vocab; /* defaults; 0: required */
    uint32_t ffn_times; /* default of intermediate_size as a multiple of hidden_size; 0: none */
    bool ffn_by_layer;  /* the family reads intermediate_size, by config_layer_ffn() */
};
void config_decoder(struct config *c, struct decoder_spec *s, const struct config_defaults *d);
/* The same with Llama's defaults, hidden_act, and biases of attention by attention_bias. */
void config_llama(struct config *c, struct decoder_spec *s);
/* The vocabulary is filled up: only the first unpadded_vocab_size ids (absent: `def`) are tokens.
 * The head is a matrix of its own. */
void config_unpadded(struct config *c, struct decoder_spec *s, uint32_t def);
/* Sets s->sines. Unless they are SINES_NONE, `d_model` has to be even and at least 4. */
void config_sines(struct config *c, struct decoder_spec *s, enum sines sines);

/* Number of additional rows per image feature for the first layers, one for each of
 * deepstack_visual_indexes (Qwen3-VL). */
void config_added(struct config *c, struct decoder_spec *s);

/* Encoders derived from BERT: learned positions whose first `offset` rows are not used, token
 * types, norms of sums, layer_norm_eps. */
void config_encoder(struct config *c, struct decoder_spec *s, uint32_t offset);
/* The same of one stack of a pair, which may be a decoder. */
void config_bert(struct config *c, struct decoder_spec *s, uint32_t offset);
/* The head of an encoder that was trained on masked tokens: a layer with `act` and a norm, then the
 * embeddings with a bias. Loaded only where a vector is made of its logits
 * (common/model/sentence.h). */
void config_masked_head(struct config *c, struct decoder_spec *s, enum act act);
/* Common to these and similar encoders, whatever their keys: layer norms of sums, one after the
 * embedding, none at the end; no head, bidirectional attention. */
void config_sums(struct decoder_spec *s, double eps);
/* Token types in an encoder with rotated positions: each token gets its type's row. The file has
 * `types` types, of which texts may use only the first. */
void config_type_rows(struct config *c, struct decoder_spec *s);
/* Reads s->embed_dim from embedding_size. A matrix follows the embedding even if it equals
 * hidden_size; narrow: then none does (ELECTRA). */
void config_embed_dim(struct config *c, struct decoder_spec *s);
void config_narrow_embed(struct config *c, struct decoder_spec *s);

/* Bounds of every family; config_decoder() uses them. */
uint32_t config_dim(struct config *c, const char *key);    /* 1 .. 2^22 */
uint32_t config_layers(struct config *c, const char *key); /* 1 .. SPEC_MAX_LAYERS */
uint32_t config_heads(struct config *c, const char *key);  /* 1 .. 65536 */
uint32_t config_vocab(struct config *c, const char *key);  /* 1 .. 2^24 */
/* hidden / heads by default; an error unless it is an even, supported size. */
uint32_t config_head_dim(struct config *c, uint32_t def, uint32_t hidden, uint32_t heads);

/* Fills s->rope[0], whose `dim` is set, from whichever keys exist; `theta` is the family's
 * default base. Extends s->max_positions for linear, dynamic and yarn scalings. */
void config_rope(struct config *c, struct decoder_spec *s, double theta);
/* Angles of a rotation, whose `dim` is set, use three coordinates: this many angles each as
 * `sections` says, in runs, or interleaved (`turns`). An error unless these are all angles. */
void config_rope_axes(struct config *c, struct rope_spec *r, const cJSON *sections, bool turns);
/* A number among the rotation's keys, in any of their places. */
double config_rope_num(struct config *c, const char *key, double def);
/* q of all layers grows with the logarithm of the position, by the rotation's llama_4_scaling_beta
 * and original_max_position_embeddings (Mistral 3 and 4); without that key it does not. */
void config_q_growth(struct config *c, struct decoder_spec *s);
/* The factor of q and k each by yarn's mscale_all_dim (DeepSeek); 1 without it. */
double config_rope_mscale(struct config *c);
/* Rotated elements of a head, from partial_rotary_factor in either place. */
uint32_t config_rotary_dim(struct config *c, uint32_t head_dim, double def);
/* Those of a head of which `part` rotates; not an even number above 0: the config fails. */
uint32_t config_rotary_part(struct config *c, uint32_t head_dim, double part);

/* The first element of the list under `key`, which must have one for each layer. NULL if absent or
 * null, and after an error. */
const cJSON *config_layer_list(struct config *c, const struct decoder_spec *s, const char *key);

/* What per_layer_config has of a layer under `key`; 0: nothing. transformers 5 names layers by
 * numbers of equal length ("05"). */
uint32_t config_own_size(struct config *c, uint32_t layer, const char *key);

/* Windows of the layers: by layer_types if present, else by `sliding(i)`; the window is
 * `sliding_window` (absent: `def`; null: none). */
void config_windows(struct config *c, struct decoder_spec *s, uint32_t def,
                    bool (*sliding)(struct config *c, uint32_t layer));
/* Windows to both sides by attention_window (Longformer): one number for all layers, or one for
 * each; half of it to each side. */
void config_attention_window(struct config *c, struct decoder_spec *s);
/* Layers with a window if there is no layer_types: all; none; those from max_window_layers on if
 * use_sliding_window is set. */
bool config_every_layer(struct config *c, uint32_t layer);
bool config_no_layer(struct config *c, uint32_t layer);
bool config_upper_layers(struct config *c, uint32_t layer);
/* The last num_kv_shared_layers (absent: `def`) read the keys and values of the last layer before
 * them that has a window if they have one. Returns the number of the first of them. Call it after
 * config_windows(). */
uint32_t config_shared_kv(struct config *c, struct decoder_spec *s, uint32_t def);
/* intermediate_size as one number or as one for each layer; see config_defaults.ffn_by_layer. */
void config_layer_ffn(struct config *c, struct decoder_spec *s);
/* Sets the attention scale of all layers to 1 / sqrt(query_pre_attn_scalar). */
void config_attn_scale(struct config *c, struct decoder_spec *s, double def);
/* Granite's: embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling. */
void config_multipliers(struct config *c, struct decoder_spec *s);
/* MiniCPM's: scale_emb, scale_depth, dim_model_base, with defaults of the last two. */
void config_minicpm_factors(struct config *c, struct decoder_spec *s, double depth, double base);
/* All of GPT-J: both sublayers read one norm, neighbouring elements of the first rotary_dim rotate.
 */
void config_gptj(struct config *c, struct decoder_spec *s);
/* Gemma 2 and later: norms around each sublayer, hidden_activation, attention_bias, embeddings
 * times the root of their width, final_logit_softcapping (absent: `softcap`). */
void config_gemma(struct config *c, struct decoder_spec *s, double softcap);
/* A text stack of Gemma 3 (arXiv 2503.19786), from c->root: config_decoder(), norms, windows and
 * their rotation. */
void config_gemma3(struct config *c, struct decoder_spec *s);
/* With a vision_config, tokens of a picture see each other in all layers: PaliGemma, Gemma 3. */
void config_mutual_pictures(struct config *c, struct decoder_spec *s);
/* A soft cap: null means none, else it must be positive. */
double config_softcap(struct config *c, const char *key, double def);
/* Layers with a window rotate without the scaling, with the base in
 * rope_parameters.sliding_attention, else `theta`. Call it after config_windows(). */
void config_window_rope(struct config *c, struct decoder_spec *s, double theta);
/* Only layers with a window rotate. Call it after config_windows(). */
void config_rotate_windows(struct decoder_spec *s);
/* Layers without rotation: those that are 0 in layer_rope_theta, whose other numbers say nothing,
 * else those that `rotates` denies. */
void config_layer_thetas(struct config *c, struct decoder_spec *s,
                         bool (*rotates)(struct config *c, uint32_t layer));
/* True for all layers but every nth, where n is the value of `key`, or def. */
bool config_all_but_nth(struct config *c, const char *key, uint32_t def, uint32_t layer);
/* A `sliding` of config_windows(), EXAONE's: sliding_window_pattern is a word such as "LLLG", whose
 * L are layers with a window, or n: every nth layer has none. */
bool config_pattern_layer(struct config *c, uint32_t layer);
/* All layers run as often as `key` says (absent: `def`), with the weights of the first turn and
 * keys and values of each; with `norms` the last norm follows each turn. Call it last. */
void config_turns(struct config *c, struct decoder_spec *s, const char *key, uint32_t def,
                  bool norms);
/* Layers without rotation: those that are 0 in no_rope_layers, else every nth, where n is
 * no_rope_layer_interval or `interval`. */
void config_no_rope_layers(struct config *c, struct decoder_spec *s, uint32_t interval);
/* Sets the mixer of each layer to MIXER_ATTENTION or `recurrent`: by layer_types or
 * layers_block_type if present, else by `is_recurrent(i)`. */
void config_mixers(struct config *c, struct decoder_spec *s, enum mixer_kind recurrent,
                   bool (*is_recurrent)(struct config *c, uint32_t layer));
/* s->recur of Mamba-2 layers, whose keys differ between families; time_step_limit. */
struct mamba_keys {
    const char *heads, *head_dim, *groups, *state, *conv, *conv_bias, *proj_bias;
    bool silu; /* no key says so: hidden_act is that of MLPs */
};
extern const struct mamba_keys config_mamba_keys; /* mamba_n_heads .. (Granite, Bamba) */
void config_mamba2(struct config *c, struct decoder_spec *s, const struct mamba_keys *k);
/* s->recur of Mamba layers of `inner` channels (of `k` the keys of the state's size, the
 * convolution and the biases); the rank of the steps is under `rank`, or "auto". */
void config_mamba(struct config *c, struct decoder_spec *s, const struct mamba_keys *k,
                  const char *rank, double inner);
/* All of Qwen's decoders with gated delta layers (Qwen3-Next, 3.5, 4) but their experts: sizes,
 * norms, s->recur (linear_num_key_heads ..) and attention's gate. `ffn`: default of
 * intermediate_size; 0: required. */
void config_qwen_delta(struct config *c, struct decoder_spec *s, uint32_t ffn);
/* s->recur of Kimi Delta Attention: linear_num_heads, linear_head_dim, linear_conv_kernel_dim, or
 * num_heads, head_dim and short_conv_kernel_size of linear_attn_config. */
void config_kimi_delta(struct config *c, struct decoder_spec *s, uint32_t heads);
/* The rest of gated delta layers whose heads and sizes are set; `conv`: width of the
 * convolution. */
void config_delta_rest(struct config *c, struct decoder_spec *s, uint32_t conv);
/* Each layer becomes two, as beside an encoder: attention to the answer, then attention to the
 * encoder's rows and the feed-forward. `key`: the number of layers, for errors. */
void config_pair_layers(struct config *c, struct decoder_spec *s, const char *key);
enum { CONFIG_MOST_DIM = 1024 }; /* of keys and values of a head of recurrent layers */
/* Every decoder_sparse_step-th layer has experts, except those in mlp_only_layers. */
void config_sparse_layers(struct config *c, struct decoder_spec *s);
void config_moe_layers(struct decoder_spec *s); /* every layer has experts */
/* Layers with experts: those that are "sparse" in mlp_layer_types, else all but the first
 * `dense`. */
void config_mlp_layer_types(struct config *c, struct decoder_spec *s, uint32_t dense);
/* s->mla but its indexer, and head_dim, by DeepSeek's keys: kv_lora_rank, qk_nope_head_dim,
 * qk_rope_head_dim, v_head_dim (absent: `v`) and q_lora_rank (absent: `q_rank`; null: one matrix).
 * The family sets the layers and their rotation. */
void config_latent(struct config *c, struct decoder_spec *s, uint32_t q_rank, uint32_t v);
/* The same without a rotated part: qk_rope_head_dim must be 0. */
void config_latent_still(struct config *c, struct decoder_spec *s, uint32_t q_rank, uint32_t v);
/* The indexers of layers of MIXER_MLA, whose other layers use the selection of the last one:
 * index_n_heads, index_head_dim, index_topk, indexer_rope_interleave, indexer_types or
 * index_topk_pattern or index_topk_freq and index_skip_topk_offset. eps: of the norm of keys. */
struct index_defaults {
    uint32_t heads, every; /* every: of index_topk_freq */
    bool interleaved;
    double eps;
    bool own_norm; /* index_spec.own_norm */
};
void config_indexer(struct config *c, struct decoder_spec *s, const struct index_defaults *d);
/* Experts with DeepSeek's keys: n_routed_experts or num_experts, num_experts_per_tok, n_group,
 * topk_group, norm_topk_prob, routed_scaling_factor, n_shared_experts or num_shared_experts,
 * moe_intermediate_size, first_k_dense_replace; or Kimi's for some of them: num_local_experts,
 * num_experts_per_token, num_expert_group, moe_renormalize. The family sets score, select_bias and
 * group_pairs. */
void config_deepseek_moe(struct config *c, struct decoder_spec *s);
/* The same as in DeepSeek V2: softmax scores, no bias for choosing, and a scale of what is not
 * normalised; topk_method. */
void config_deepseek_v2_moe(struct config *c, struct decoder_spec *s);
/* Granite's: experts on every layer, as wide as intermediate_size, and shared_intermediate_size. */
void config_granite_experts(struct config *c, struct decoder_spec *s);
/* Qwen's: config_moe(), moe_intermediate_size, and a gated shared expert of
 * shared_expert_intermediate_size. */
void config_qwen_experts(struct config *c, struct decoder_spec *s, uint32_t n, uint32_t top_k);
/* An error if s->moe selects more experts than exist. */
void config_check_moe(struct config *c, const struct decoder_spec *s);
/* Sets num_local_experts or num_experts (a family may use either key), and
 * num_experts_per_tok. */
void config_moe(struct config *c, struct decoder_spec *s, uint32_t n, uint32_t top_k);
#endif
