#include "model-server/model/unused.h"
#include "common/log/log.h"
#include "common/text.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Length of `name` up to its first numeric part, including the following dot; 0: it has none. */
static size_t layer_of(const char *name)
{
    for (const char *p = name; (p = strchr(p, '.')); p++) {
        const char *q = p + 1;
        while (isdigit((unsigned char)*q))
            q++;
        if (q > p + 1 && *q == '.')
            return (size_t)(q + 1 - name);
    }
    return 0;
}

static bool is_weight(const struct tensor *t)
{
    const bool named = ends_with(t->name, ".weight") || ends_with(t->name, ".bias");
    return named && t->n_dims > 0 && t->n_dims < 4; /* causal masks of GPT-2's age have four */
}

/* True if a tensor that was found begins with the first n bytes of `name`. */
static bool found_beside(const struct checkpoint *c, const char *name, size_t n)
{
    for (uint32_t f = 0; f < c->n_files; f++) {
        const struct tensor_file *s = &c->files[f];
        uint32_t lo = 0, hi = s->n;
        while (lo < hi) {
            const uint32_t mid = lo + (hi - lo) / 2;
            if (strncmp(s->tensors[mid].name, name, n) < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; lo < s->n && strncmp(s->tensors[lo].name, name, n) == 0; lo++)
            if (s->tensors[lo].found)
                return true;
    }
    return false;
}

static bool has_numbers(const struct tensor *t)
{
    const uint8_t *p = t->data;
    const uint64_t each = tensor_type_bits(t->type) / 8;
    for (uint64_t i = 0; i < t->bytes; i++)
        if (p[i] & (i % each == each - 1 ? 0x7f : 0xff)) /* -0 is none */
            return true;
    return false;
}

int unused_check(const struct checkpoint *c, struct unused *out, struct err *e)
{
    *out = (struct unused){0};
    for (uint32_t f = 0; f < c->n_files; f++)
        for (uint32_t i = 0; i < c->files[f].n; i++) {
            const struct tensor *t = &c->files[f].tensors[i];
            if (t->found || !is_weight(t))
                continue;
            const bool bias = ends_with(t->name, ".bias");
            const size_t layer = layer_of(t->name);
            const bool denied = bias && found_beside(c, t->name, strlen(t->name) - strlen("bias"));
            const bool of_layer = layer && found_beside(c, t->name, layer);
            if ((!denied && !of_layer) || (bias && !has_numbers(t))) /* last: it reads */
                continue;
            if (denied)
                return err_set(e, ERR_VALIDATION,
                               "%s: tensor `%s` is a bias that config.json says is not there",
                               t->file, t->name);
            if (out->n < UNUSED_NAMED)
                out->first[out->n] = t->name;
            out->n++;
        }
    return 0;
}

void unused_log(const struct unused *u)
{
    char list[UNUSED_NAMED * (TENSOR_NAME_CAP + 2)] = "";
    if (u->n == 0)
        return;
    for (size_t i = 0, at = 0; i < UNUSED_NAMED && u->first[i] && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", u->first[i]);
    LOG(LOG_WARN, "tensors of the checkpoint are not used", LOGI("tensors", u->n),
        LOGS("first", list));
}
