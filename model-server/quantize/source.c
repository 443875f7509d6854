#include "model-server/quantize/source.h"
#include "common/gguf/gguf.h"
#include "common/hash.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Matrices that methods may quantise. Not included: routers, indexers and gates of one row, whose
 * ties matter; decays; tables; the head. */
static bool is_linear(enum role r)
{
    switch (r) {
    case W_QKV:
    case W_Q:
    case W_K:
    case W_V:
    case W_O:
    case W_Q_A:
    case W_Q_B:
    case W_KV_A:
    case W_KV_B:
    case W_GATE_UP:
    case W_GATE:
    case W_UP:
    case W_DOWN:
    case W_MOE_GATE:
    case W_MOE_UP:
    case W_MOE_DOWN:
    case W_SHARED_GATE:
    case W_SHARED_UP:
    case W_SHARED_DOWN:
    case W_SHARED_GATE_UP:
    case W_MIX_IN:
    case W_MIX_Z:
    case W_MIX_OUT:
        return true;
    default:
        return false;
    }
}

static bool plain(const struct tensor *t)
{
    return t->type == T_F32 || t->type == T_F16 || t->type == T_BF16;
}

static int add(struct weights_source *s, const struct tensor *t, uint32_t layers)
{
    struct source_tensor *more = realloc(s->tensors, (s->n + 1) * sizeof(*more));
    if (!more)
        return -1;
    s->tensors = more;
    struct source_tensor *x = &s->tensors[s->n++];
    *x = (struct source_tensor){.t = t};
    if (!arch_use_of(walk_arch(s->walk), t->name, &x->use))
        x->use = (struct arch_use){W_ROLES, -1, -1, ""};
    if (x->use.layer >= (int)layers) /* heads that predict further tokens */
        x->use = (struct arch_use){W_ROLES, -1, -1, ""};
    x->unit = (uint32_t)(x->use.layer + 1);
    x->linear = is_linear(x->use.role) && t->n_dims == 2 && strcmp(x->use.suffix, ".weight") == 0 &&
                (plain(t) || t->type == T_BLOCKS);
    if (x->linear)
        x->rows = t->dims[0], x->cols = t->dims[1];
    return 0;
}

static int by_unit(const void *a, const void *b)
{
    const struct source_tensor *x = a, *y = b;
    return x->unit != y->unit ? (x->unit > y->unit) - (x->unit < y->unit)
                              : strcmp(x->t->name, y->t->name);
}

static uint64_t identity(const struct checkpoint *c, const char *dir)
{
    uint64_t h = hash_bytes(1, dir, strlen(dir));
    for (uint32_t i = 0; i < c->n_files + c->gguf.set.n; i++) {
        struct stat st = {0};
        const char *path =
            i < c->n_files ? c->files[i].path : c->gguf.set.files[i - c->n_files].path;
        (void)stat(path, &st); /* it is open */
        const int64_t of[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        h = hash_bytes(hash_bytes(h, path, strlen(path)), of, sizeof(of));
    }
    return h;
}

int source_open(struct weights_source *s, struct walk *walk, const char *dir, struct err *e)
{
    const struct checkpoint *c = walk_checkpoint(walk);
    const struct stored *how = walk_stored(walk);
    const uint32_t layers = walk_spec(walk)->n_layers;
    *s = (struct weights_source){.walk = walk, .n_units = layers + 1};
    if (how->method && !c->gguf.n)
        return err_set(e, ERR_VALIDATION, "%s: it is quantised already (%s)", dir, how->method);
    for (uint32_t f = 0; f < c->n_files; f++)
        for (uint32_t i = 0; i < c->files[f].n; i++)
            if (add(s, &c->files[f].tensors[i], layers))
                return err_nomem(e);
    for (uint32_t i = 0; i < c->gguf.n; i++)
        if (add(s, &c->gguf.tensors[i], layers))
            return err_nomem(e);
    if (s->n)
        qsort(s->tensors, s->n, sizeof(s->tensors[0]), by_unit);
    s->identity = identity(c, dir);
    return 0;
}

void source_close(struct weights_source *s)
{
    free(s->tensors);
    *s = (struct weights_source){0};
}

const struct source_tensor *source_find(const struct weights_source *s, enum role r, int layer,
                                        int expert, const char *suffix)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct arch_use *u = &s->tensors[i].use;
        if (u->role == r && u->layer == layer && u->expert == expert &&
            strcmp(u->suffix, suffix) == 0)
            return &s->tensors[i];
    }
    return NULL;
}

void source_numbers(const struct tensor *t, uint64_t at, uint64_t n, float *out)
{
    const uint8_t *p = t->data;
    uint16_t h;
    if (t->type == T_BLOCKS && gguf_packings[t->packing].elements > 1) {
        const struct gguf_packing_info *k = &gguf_packings[t->packing];
        for (uint64_t i = 0; i < n; i += k->elements)
            block_numbers((enum gguf_packing)t->packing, p + (at + i) / k->elements * k->bytes,
                          out + i);
        return;
    }
    const bool f32 = t->type == T_F32 || (t->type == T_BLOCKS && t->packing == GGUF_F32);
    const bool f16 = t->type == T_F16 || (t->type == T_BLOCKS && t->packing == GGUF_F16);
    if (f32) {
        memcpy(out, p + at * 4, n * 4);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&h, p + (at + i) * 2, sizeof(h));
        out[i] = f16 ? f32_of_f16(h) : f32_of_bf16(h);
    }
}
