#include "common/gguf/meta.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct gguf *head(const struct gguf_meta *m) { return &m->s->files[0]; }

static const char *full(const struct gguf_meta *m, const char *key, char out[GGUF_KEY_MAX])
{
    snprintf(out, GGUF_KEY_MAX, "%s.%s", m->f->name, key);
    return out;
}

double meta_as_written(double v)
{
    char digits[32];
    for (int n = 6; n <= 9; n++) {
        snprintf(digits, sizeof(digits), "%.*g", n, v);
        if ((float)strtod(digits, NULL) == (float)v)
            return strtod(digits, NULL);
    }
    return v;
}

bool meta_number(const struct gguf_meta *m, const char *key, double *out)
{
    char name[GGUF_KEY_MAX];
    const struct gguf_value *v = gguf_find(head(m), full(m, key, name));
    if (!gguf_number(head(m), name, out))
        return false;
    if (v->type == GGUF_T_F32)
        *out = meta_as_written(*out);
    return true;
}

double meta_number_or(const struct gguf_meta *m, const char *key, double def)
{
    double v;
    return meta_number(m, key, &v) ? v : def;
}

bool meta_bool_or(const struct gguf_meta *m, const char *key, bool def)
{
    char name[GGUF_KEY_MAX];
    return gguf_bool(head(m), full(m, key, name), def);
}

bool meta_text(const struct gguf_meta *m, const char *key, struct gguf_str *out)
{
    char name[GGUF_KEY_MAX];
    return gguf_text(head(m), full(m, key, name), out);
}

const struct gguf_value *meta_numbers(const struct gguf_meta *m, const char *key)
{
    char name[GGUF_KEY_MAX];
    return gguf_numbers(head(m), full(m, key, name));
}

bool meta_has(const struct gguf_meta *m, const char *tensor)
{
    return gguf_set_tensor(m->s, tensor) != NULL;
}

double meta_layers(const struct gguf_meta *m)
{
    return meta_number_or(m, "block_count", 0) - meta_number_or(m, "nextn_predict_layers", 0);
}

void meta_put_in(cJSON *o, const char *key, double v)
{
    if (isfinite(v))
        cJSON_AddNumberToObject(o, key, v);
}

void meta_put_list(cJSON *o, const char *key, const struct gguf_value *list, uint64_t n)
{
    cJSON *to = list ? cJSON_AddArrayToObject(o, key) : NULL;
    for (uint64_t i = 0; to && i < list->n && i < n; i++)
        cJSON_AddItemToArray(to, cJSON_CreateNumber(meta_as_written(gguf_number_at(list, i))));
}

void meta_put(const struct gguf_meta *m, const char *key, double v)
{
    meta_put_in(m->config, key, v);
}

void meta_copy(const struct gguf_meta *m, const char *key, const char *to)
{
    double v;
    if (meta_number(m, key, &v))
        meta_put(m, to, v);
}

void meta_set(const struct gguf_meta *m, const char *key, double v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, key);
    meta_put(m, key, v);
}

double meta_part(double dim, double head)
{
    const double part = dim / head;
    return floor(part * head) < dim ? nextafter(part, 1) : part;
}

void meta_copy_list(const struct gguf_meta *m, const char *key, const char *to)
{
    const double layers = meta_layers(m);
    meta_put_list(m->config, to, meta_numbers(m, key),
                  layers > 0 && layers < GGUF_LAYERS_MAX ? (uint64_t)layers : GGUF_LAYERS_MAX);
}
