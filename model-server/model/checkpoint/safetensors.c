/* The header of a safetensors file; every offset is checked. */
#include "common/json/json.h"
#include "model-server/model/checkpoint/tensor_parse.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER_MAX = 100 * 1000 * 1000 }; /* the format's own limit */

static int parse_type(const cJSON *j, enum tensor_type *out)
{
    const char *name = json_str(j, "dtype", "");
    for (int i = 0; i < T_N; i++)
        if (strcmp(tensor_type_name((enum tensor_type)i), name) == 0) {
            *out = (enum tensor_type)i;
            return 0;
        }
    return -1;
}

/* A JSON number that is a non-negative integer and exact as a double. */
static int natural(const cJSON *j, uint64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0 && j->valuedouble <= 0x1p53) ||
        j->valuedouble != (double)(uint64_t)j->valuedouble)
        return -1;
    *out = (uint64_t)j->valuedouble;
    return 0;
}

static int parse_shape(const cJSON *j, struct tensor *t, uint64_t *bytes)
{
    const cJSON *shape = json_get(j, "shape"), *d;
    uint64_t bits = tensor_type_bits(t->type);
    if (!cJSON_IsArray(shape))
        return -1;
    cJSON_ArrayForEach(d, shape)
    {
        if (t->n_dims == TENSOR_MAX_DIMS || natural(d, &t->dims[t->n_dims]) ||
            __builtin_mul_overflow(bits, t->dims[t->n_dims], &bits))
            return -1;
        t->n_dims++;
    }
    *bytes = bits / 8;
    return 0;
}

static int parse_tensor(struct tensor_file *s, const cJSON *j, const uint8_t *data, uint64_t n_data,
                        struct err *e)
{
    struct tensor *t = &s->tensors[s->n];
    const cJSON *offsets = json_get(j, "data_offsets");
    uint64_t end, bytes;
    *t = (struct tensor){.name = j->string, .file = s->path};
    if (!tensor_name_is_plain(t->name))
        return err_set(e, ERR_VALIDATION, "%s: a tensor name with control characters", s->path);
    if (parse_type(j, &t->type))
        return err_set(
            e, ERR_VALIDATION, "%s: tensor `%s`: dtype `%.32s` is not known", s->path, t->name,
            tensor_name_is_plain(json_str(j, "dtype", "")) ? json_str(j, "dtype", "") : "?");
    if (parse_shape(j, t, &bytes))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: bad shape", s->path, t->name);
    if (!cJSON_IsArray(offsets) || !offsets->child || !offsets->child->next ||
        natural(offsets->child, &t->begin) || natural(offsets->child->next, &end))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: bad data_offsets", s->path, t->name);
    if (t->begin > end || end > n_data)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: bytes %llu to %llu are outside the %llu bytes of data; "
                       "the file is not whole",
                       s->path, t->name, (unsigned long long)t->begin, (unsigned long long)end,
                       (unsigned long long)n_data);
    t->bytes = end - t->begin;
    if (t->bytes != bytes)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: its shape needs %llu bytes, its offsets hold %llu",
                       s->path, t->name, (unsigned long long)bytes, (unsigned long long)t->bytes);
    t->data = data + t->begin;
    s->n++;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int check_places(struct tensor_file *s, struct err *e)
{
    qsort(s->tensors, s->n, sizeof(s->tensors[0]), by_place);
    for (uint32_t i = 1; i < s->n; i++) {
        const struct tensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (a->begin + a->bytes > b->begin)
            return err_set(e, ERR_VALIDATION, "%s: tensors `%s` and `%s` overlap", s->path, a->name,
                           b->name);
    }
    return tensor_file_sort(s, e);
}

static int parse_header(struct tensor_file *s, const uint8_t *data, uint64_t n_data, struct err *e)
{
    const cJSON *j;
    size_t n = 0;
    if (!cJSON_IsObject(s->header))
        return err_set(e, ERR_VALIDATION, "%s: the header is no JSON object", s->path);
    cJSON_ArrayForEach(j, s->header) n++;
    s->tensors = calloc(n ? n : 1, sizeof(s->tensors[0]));
    if (!s->tensors)
        return err_nomem(e);
    cJSON_ArrayForEach(j, s->header)
    {
        if (strcmp(j->string, "__metadata__") != 0 && parse_tensor(s, j, data, n_data, e))
            return -1;
    }
    return check_places(s, e);
}

static int parse(struct tensor_file *s, const uint8_t *bytes, size_t n, struct err *e)
{
    uint64_t n_header = 0;
    if (n < 8)
        return err_set(e, ERR_VALIDATION, "%s: %zu bytes are no safetensors file", s->path, n);
    for (int i = 0; i < 8; i++)
        n_header |= (uint64_t)bytes[i] << 8 * i;
    if (n_header > HEADER_MAX || n_header > n - 8)
        return err_set(e, ERR_VALIDATION,
                       "%s: a header of %llu bytes in a file of %zu: not whole, or no safetensors "
                       "file",
                       s->path, (unsigned long long)n_header, n);
    s->header = json_parse((const char *)bytes + 8, n_header, e);
    if (!s->header)
        return err_wrap(e, "%s: header", s->path);
    return parse_header(s, bytes + 8 + n_header, n - 8 - n_header, e);
}

int safetensors_parse(struct tensor_file *s, const char *path, const uint8_t *bytes, size_t n,
                      struct err *e)
{
    *s = (struct tensor_file){.path = strdup(path)};
    if (!s->path)
        return err_nomem(e);
    if (parse(s, bytes, n, e) == 0)
        return 0;
    tensor_file_close(s);
    return -1;
}
