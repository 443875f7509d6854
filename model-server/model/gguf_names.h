/* gguf_names.h - what llama.cpp calls the tensors of a role (gguf-py/gguf/constants.py). */
#ifndef MODEL_SERVER_MODEL_GGUF_NAMES_H
#define MODEL_SERVER_MODEL_GGUF_NAMES_H
#include "model-server/model/arch.h"

/* What a tensor is for: its role, its layer, and ".weight", ".bias" or, where the family's name is
 * whole, "". */
struct gguf_use {
    enum role role;
    int layer;
    const char *suffix;
};
/* False: the family has no use for it. */
bool gguf_use_of(const struct arch *a, const char *name, struct gguf_use *u);
/* The family's name of this role is a whole one: see arch.h. */
bool gguf_whole_name(enum role r);
/* What llama.cpp calls tensors of this role, without ".weight" and ".bias"; * is the layer. NULL:
 * it has no name there. */
const char *gguf_weights_name(enum role r);
#endif
