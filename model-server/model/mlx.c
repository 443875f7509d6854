#include "model-server/model/mlx.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include <stdio.h>
#include <string.h>

/* The convolution of the first layer that has one, or NULL. */
static const struct tensor *convolution(const struct decoder_spec *s, const struct arch *a,
                                        const struct checkpoint *c)
{
    const char *name = a->names[W_MIX_CONV], *star = name ? strchr(name, '*') : NULL;
    const struct tensor *t = NULL;
    char of[TENSOR_NAME_CAP];
    for (uint32_t i = 0; star && !t && i < s->n_layers; i++) {
        snprintf(of, sizeof(of), "%.*s%u%.*s.weight", (int)(star - name), name, i,
                 (int)strcspn(star + 1, "|"), star + 1);
        t = checkpoint_find_weight(c, a, of);
    }
    return t;
}

int mlx_adapt(struct decoder_spec *s, const char *type, const struct arch *a,
              const struct checkpoint *c, struct err *e)
{
    const struct tensor *t = c->gguf.n ? NULL : convolution(s, a, c);
    if (!t || t->n_dims != 3 || t->dims[2] != 1 || t->dims[1] == 1)
        return 0;
    if (strcmp(type, "falcon_h1") == 0)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: MLX's numbers of falcon_h1 are not supported", t->file,
                       t->name);
    if (strncmp(type, "qwen3", 5) == 0)
        s->norm.plus = 0;
    return 0;
}
