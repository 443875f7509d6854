/* family.h - maps `general.architecture` of a GGUF file to a model_type, with the changes that
 * llama.cpp's converter makes to the weights of that family. One row each. */
#ifndef COMMON_GGUF_FAMILY_H
#define COMMON_GGUF_FAMILY_H
#include "common/gguf/set.h"
#include <cjson/cJSON.h>

struct gguf_meta;
struct gguf_family {
    const char *name; /* general.architecture */
    const char *type; /* model_type */
    const char *moe;  /* model_type of its mixture-of-experts variant; NULL: none */
    /* rows of q and k are interleaved in rotation pairs, not split into halves of a head */
    bool paired;
    float norm_plus; /* added to norm weights */
    void (*more)(const struct gguf_meta *m);
    bool latent; /* keys and values are projected from a latent vector per token (DeepSeek's MLA) */
    /* See gguf_order.h; with beta_with_decay both are one matrix. */
    bool stacked, tiled, beta_with_decay;
    bool by_layer;      /* `more` writes what differs from layer to layer */
    bool own_positions; /* `more` writes the rope parameters */
    bool own_values;    /* `more` writes the size of a head of v */
    bool plain_end;     /* norm_plus is not of the last norm; norms of q and k have no weights */
    bool rates_above_0; /* rates of decay are stored as exp(A_log), not as -exp(A_log) */
    bool both_ways;     /* tokens see later ones too */
    bool axes_halved; /* with three positions, q and k rotate in halves; the family's do in pairs */
    /* not 0: instead of norm_plus, of the norms after the mixer and after the feed-forward */
    float post_plus[2];
    bool plain_heads; /* norm_plus is not of the norms of q and k */
    bool pair;        /* an encoder and a decoder, whose tensors begin with "enc." and "dec." */
};

/* The value of `key` (without "<architecture>."); of a list per layer the largest; 0: missing. */
double gguf_family_number(const struct gguf_set *s, const struct gguf_family *f, const char *key);

/* Positions have three coordinates. */
bool gguf_has_axes(const struct gguf_set *s, const struct gguf_family *f);

/* Elements of a head; 0: not specified in the file. */
double gguf_head_size(const struct gguf_set *s, const struct gguf_family *f);

/* Number of the model's own layers; later layers belong to heads that predict further tokens. */
uint32_t gguf_layers(const struct gguf_set *s, const struct gguf_family *f);

/* The row of the file's architecture. ERR_VALIDATION names an unsupported one. */
const struct gguf_family *gguf_family(const struct gguf_set *s, struct err *e);

/* config.json and generation_config.json, as Hugging Face's tools would write them for this model.
 * The caller deletes the result. ERR_VALIDATION, one line that begins with the path. */
cJSON *gguf_config(const struct gguf_set *s, struct err *e);
cJSON *gguf_generation_config(const struct gguf_set *s, struct err *e);
#endif
