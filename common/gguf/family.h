/* family.h - what `general.architecture` of a GGUF file is called in config.json, and how a
 * converter of llama.cpp changed the weights of that family on the way. A row each. */
#ifndef COMMON_GGUF_FAMILY_H
#define COMMON_GGUF_FAMILY_H
#include "common/gguf/set.h"
#include <cjson/cJSON.h>

struct gguf_meta;
struct gguf_family {
    const char *name; /* general.architecture */
    const char *type; /* model_type */
    const char *moe;  /* model_type where there are experts; NULL: has none */
    bool paired;      /* rows of q and k lie in pairs that rotate, not in halves of a head */
    float norm_plus;  /* added to the weights of norms */
    void (*more)(const struct gguf_meta *m);
    bool latent; /* keys and values of heads come out of a vector of the token (DeepSeek's MLA) */
};

/* Elements of a head; 0 where the file does not say enough. */
double gguf_head_size(const struct gguf_set *s, const struct gguf_family *f);

/* The model's own; tensors of layers behind these are of heads that predict further tokens. */
uint32_t gguf_layers(const struct gguf_set *s, const struct gguf_family *f);

/* Of the file's architecture; ERR_VALIDATION names it where it is not read here. */
const struct gguf_family *gguf_family(const struct gguf_set *s, struct err *e);

/* config.json and generation_config.json, as Hugging Face's tools would have written them for this
 * model. The caller deletes it. ERR_VALIDATION, one line that begins with the path. */
cJSON *gguf_config(const struct gguf_set *s, struct err *e);
cJSON *gguf_generation_config(const struct gguf_set *s, struct err *e);
#endif
