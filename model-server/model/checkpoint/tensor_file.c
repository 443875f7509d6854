#include "model-server/model/checkpoint/tensor_file.h"
#include "common/file/file_map.h"
#include "model-server/model/checkpoint/tensor_parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint64_t bits;
} types[] = {
#define X(name, bits) {#name, bits},
    TENSOR_TYPES(X)
#undef X
        [T_BLOCKS] = {"blocks", 0},
};

const char *tensor_type_name(enum tensor_type t) { return types[t].name; }

uint64_t tensor_type_bits(enum tensor_type t) { return types[t].bits; }

bool tensor_name_is_plain(const char *s)
{
    while (*s && (unsigned char)*s >= ' ')
        s++;
    return !*s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

int tensor_file_sort(struct tensor_file *s, struct err *e)
{
    qsort(s->tensors, s->n, sizeof(s->tensors[0]), by_name);
    for (uint32_t i = 1; i < s->n; i++)
        if (by_name(&s->tensors[i - 1], &s->tensors[i]) == 0)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is there twice", s->path,
                           s->tensors[i].name);
    return 0;
}

int tensor_file_open(struct tensor_file *s, const char *path, struct err *e)
{
    size_t n = 0;
    *s = (struct tensor_file){0};
    const void *map = file_map(path, &n, e);
    if (!map)
        return -1;
    /* "PK\3\4" would be a header of more than 67 MB of JSON: no safetensors file begins so. */
    const bool zip = n >= 4 && !memcmp(map, "PK\3\4", 4);
    if ((zip ? torch_parse : safetensors_parse)(s, path, map, n, e)) {
        file_unmap(map, n);
        return -1;
    }
    s->map = map;
    s->map_size = n;
    return 0;
}

void tensor_file_close(struct tensor_file *s)
{
    file_unmap(s->map, s->map_size);
    cJSON_Delete(s->header);
    free(s->names);
    free(s->tensors);
    free((void *)(uintptr_t)s->path);
    *s = (struct tensor_file){0};
}

int tensor_wrong_shape(const struct tensor *t, const char *want, struct err *e)
{
    char have[TENSOR_MAX_DIMS * 24] = "";
    for (int i = 0, n = 0; i < t->n_dims; i++)
        n += snprintf(have + n, sizeof(have) - (size_t)n, "%s%llu", i ? ", " : "",
                      (unsigned long long)t->dims[i]);
    return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has shape [%s]; config.json means [%s]",
                   t->file, t->name, have, want);
}

/* Only whole pages: the first and last may be shared with other tensors. Those of a copy would be
 * zeros afterwards. */
void tensor_release(const struct tensor *t)
{
    if (t->in_memory)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
    uintptr_t begin = (at + page - 1) & ~(page - 1), end = (at + t->bytes) & ~(page - 1);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

const struct tensor *tensor_file_find(const struct tensor_file *s, const char *name)
{
    const struct tensor key = {.name = name};
    return bsearch(&key, s->tensors, s->n, sizeof(s->tensors[0]), by_name);
}
