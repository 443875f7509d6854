/* gguf_experts.c - tensors of a GGUF file that have all experts of a layer. */
#include "model-server/model/checkpoint/gguf_weights_impl.h"
#include <stdlib.h>
#include <string.h>

int gguf_weights_add_experts(struct gguf_weights *w, const struct arch *a, const struct gguf_use *u,
                             const struct gguf_tensor *g, struct tensor t, struct err *e)
{
    const unsigned parts = u->role == W_MOE_GATE_UP ? 2 : 1;
    if (g->n_dims != 3 || g->dims[2] == 0 || g->dims[2] > EXPERTS_MAX || g->dims[1] % parts)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no three dimensions", t.file,
                       g->name);
    const uint64_t n = g->dims[2] * parts;
    t.n_dims = 2;
    t.dims[0] = g->dims[1] / parts, t.dims[1] = g->dims[0];
    t.bytes = g->bytes / n;
    for (uint64_t i = 0; i < n; i++) {
        const enum role half = i % 2 ? W_MOE_UP : W_MOE_GATE;
        const struct gguf_use one = {parts == 1 ? u->role : half,
                                     gguf_has_streams(u->role) ? (int)i : u->layer, u->suffix};
        t.name = gguf_weights_spell(w, a, &one, (unsigned)(i / parts));
        t.begin = g->begin + i * t.bytes;
        t.data = g->data + i * t.bytes;
        if (gguf_weights_add(w, &t, e))
            return -1;
    }
    return 0;
}

static struct tensor *added(struct gguf_weights *w, const char *name)
{
    for (uint32_t i = w->n; i-- > 0;) /* of the same layer: near the end */
        if (strcmp(w->tensors[i].name, name) == 0)
            return &w->tensors[i];
    return NULL;
}

int gguf_weights_add_expert_biases(struct gguf_weights *w, const struct arch *a,
                                   const struct gguf_use *u, const struct gguf_tensor *g,
                                   struct tensor t, struct err *e)
{
    const enum role to = u->role == W_MOE_DOWN ? W_MOE_DOWN : W_MOE_GATE_UP;
    const uint64_t turns = to == W_MOE_DOWN ? 1 : 2, at = u->role == W_MOE_UP;
    if (g->n_dims != 2 || g->packing != GGUF_F32 || !a->names[W_MOE_GATE_UP])
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no list of biases of this model",
                       t.file, g->name);
    const struct gguf_use all = {to, u->layer, "_bias"};
    if (!(t.name = gguf_weights_spell_all(w, a, &all)))
        return err_nomem(e);
    struct tensor *is = added(w, t.name);
    if (!is) {
        t.n_dims = 2;
        t.dims[0] = g->dims[1], t.dims[1] = turns * g->dims[0];
        t.bytes *= turns;
        t.in_memory = true;
        if (!(t.data = gguf_weights_own(w, calloc(1, t.bytes))) || gguf_weights_add(w, &t, e))
            return err_nomem(e);
        is = &w->tensors[w->n - 1];
    }
    if (is->bytes != turns * g->bytes)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has another shape than its neighbour",
                       t.file, g->name);
    float *out = (float *)(uintptr_t)is->data;
    for (uint64_t i = 0; i < g->bytes / sizeof(float); i++)
        memcpy(&out[turns * i + at], g->data + i * sizeof(float), sizeof(float));
    return 0;
}
