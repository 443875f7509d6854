/* gguf_names.h - llama.cpp's names of tensors by role (gguf-py/gguf/constants.py). */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_GGUF_NAMES_H
#define MODEL_SERVER_MODEL_CHECKPOINT_GGUF_NAMES_H
#include "model-server/model/arch.h"

/* The use of a tensor: its role, its layer, and its suffix: ".weight", ".bias", or "" if the
 * family's name is whole. `of`: whose names have the role, the family's or those of its `second`;
 * NULL: the tensor belongs to the encoder beside this decoder, or the other way round. */
struct gguf_use {
    enum role role;
    int layer;
    const char *suffix;
    const struct arch *of;
};
/* False: the family does not use it. `stack`: layers of the first of two stacks, those of the
 * second have the names of `second`; 0: there is one stack. */
bool gguf_use_of(const struct arch *a, const char *name, uint32_t stack, struct gguf_use *u);
/* The name of n bytes is `pattern`, in which * is the layer: "blk.12.attn_q" matches "blk.*.attn_q"
 * with layer 12. Without a star the layer is 0. */
bool gguf_name_matches(const char *name, size_t n, const char *pattern, int *layer);
/* True if the family's name of this role is a whole one: see arch.h. */
bool gguf_whole_name(enum role r);
/* llama.cpp's name of this role, without ".weight" and ".bias"; * is the layer. NULL: it has
 * none. */
const char *gguf_weights_name(enum role r);
#endif
