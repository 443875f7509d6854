#include "common/gguf/gguf.h"
#include "common/file/file_map.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

const struct gguf_packing_info gguf_packings[GGUF_N_PACKINGS] = {
#define X(name, number, elements, bytes) {#name, number, elements, bytes},
    GGUF_PACKINGS(X)
#undef X
};

enum { NAME_MAX_BYTES = 1024, ALIGNMENT = 32, ALIGNMENT_MAX = 1 << 20, COUNT_MAX = 1 << 20 };
/* Minimum bytes of a key with its value, and of a tensor's description: a count that exceeds the
 * file's size is refused before memory is allocated. */
enum { VALUE_MIN = 8 + 4 + 1, TENSOR_MIN = 8 + 4 + 4 + 8 };

/* ---------------------------------------------------------------- bytes */

struct gguf_cursor {
    const uint8_t *at, *end;
};

static bool take(struct gguf_cursor *c, size_t n, void *out)
{
    if ((size_t)(c->end - c->at) < n)
        return false;
    memcpy(out, c->at, n); /* little-endian, as all supported CPUs */
    c->at += n;
    return true;
}

static bool take_str(struct gguf_cursor *c, struct gguf_str *s)
{
    uint64_t n;
    if (!take(c, sizeof(n), &n) || n > (uint64_t)(c->end - c->at))
        return false;
    *s = (struct gguf_str){(const char *)c->at, (size_t)n};
    c->at += n;
    return true;
}

static const uint8_t sizes[GGUF_T_N] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* ---------------------------------------------------------------- reading */

struct gguf_reader {
    struct gguf *g;
    struct gguf_cursor c;
    char *names;
    uint64_t alignment;
};

/* A key or a tensor's name: printable, stored as a C string. The buffer suffices, since each needs
 * 8 bytes less in memory than in the file. */
static int read_name(struct gguf_reader *r, const char *what, const char **out, struct err *e)
{
    struct gguf_str s;
    if (!take_str(&r->c, &s))
        return err_set(e, ERR_VALIDATION, "%s: ends within the name of a %s", r->g->path, what);
    if (s.n == 0 || s.n > NAME_MAX_BYTES || !utf8_valid(s.p, s.n))
        return err_set(e, ERR_VALIDATION, "%s: the name of a %s is empty, too long or not UTF-8",
                       r->g->path, what);
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ')
            return err_set(e, ERR_VALIDATION, "%s: the name of a %s has control characters",
                           r->g->path, what);
    *out = memcpy(r->names, s.p, s.n);
    r->names[s.n] = '\0';
    r->names += s.n + 1;
    return 0;
}

static bool skip_elements(struct gguf_cursor *c, const struct gguf_value *v)
{
    struct gguf_str s;
    uint64_t bytes;
    if (v->type == GGUF_T_STRING) {
        for (uint64_t i = 0; i < v->n; i++)
            if (!take_str(c, &s))
                return false;
        return true;
    }
    if (__builtin_mul_overflow(v->n, (uint64_t)sizes[v->type], &bytes) ||
        bytes > (uint64_t)(c->end - c->at))
        return false;
    c->at += bytes;
    return true;
}

static int read_value(struct gguf_reader *r, struct err *e)
{
    struct gguf *g = r->g;
    struct gguf_value *v = &g->values[g->n_values];
    uint32_t type = 0;
    *v = (struct gguf_value){.n = 1};
    if (read_name(r, "key", &v->key, e))
        return -1;
    bool there = take(&r->c, sizeof(type), &type);
    if (there && type == GGUF_T_ARRAY) {
        v->list = true;
        there = take(&r->c, sizeof(type), &type) && take(&r->c, sizeof(v->n), &v->n);
    }
    if (!there)
        return err_set(e, ERR_VALIDATION, "%s: ends within `%s`", g->path, v->key);
    if (type >= GGUF_T_N || type == GGUF_T_ARRAY)
        return err_set(e, ERR_VALIDATION, "%s: `%s` has type %u, which is not known%s", g->path,
                       v->key, type, type == GGUF_T_ARRAY ? " (lists of lists)" : "");
    v->type = (enum gguf_type)type;
    v->data = r->c.at;
    if (!skip_elements(&r->c, v))
        return err_set(e, ERR_VALIDATION, "%s: `%s` extends beyond the end of the file", g->path,
                       v->key);
    v->end = r->c.at;
    g->n_values++;
    return 0;
}

static int packing_of(uint32_t number, enum gguf_packing *out)
{
    for (int i = 0; i < GGUF_N_PACKINGS; i++)
        if (gguf_packings[i].number == number) {
            *out = (enum gguf_packing)i;
            return 0;
        }
    return -1;
}

static int tensor_bytes(const struct gguf *g, struct gguf_tensor *t, struct err *e)
{
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    uint64_t n = t->dims[0] / p->elements;
    for (int i = 0; i < GGUF_MAX_DIMS; i++)
        if (t->dims[i] == 0)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: its dimension %d is zero", g->path,
                           t->name, i);
    if (t->dims[0] % p->elements)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: rows of %llu elements are not whole blocks of %s (%u)",
                       g->path, t->name, (unsigned long long)t->dims[0], p->name, p->elements);
    for (int i = 1; i < GGUF_MAX_DIMS; i++)
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: its shape is too large", g->path,
                           t->name);
    if (__builtin_mul_overflow(n, (uint64_t)p->bytes, &t->bytes))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: its shape is too large", g->path,
                       t->name);
    return 0;
}

static int read_tensor(struct gguf_reader *r, struct err *e)
{
    struct gguf *g = r->g;
    struct gguf_tensor *t = &g->tensors[g->n_tensors];
    uint32_t n_dims, number;
    *t = (struct gguf_tensor){.dims = {1, 1, 1, 1}};
    if (read_name(r, "tensor", &t->name, e))
        return -1;
    bool there = take(&r->c, sizeof(n_dims), &n_dims);
    if (there && n_dims > GGUF_MAX_DIMS)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has %u dimensions; %d are the most",
                       g->path, t->name, n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; there && i < n_dims; i++)
        there = take(&r->c, sizeof(t->dims[i]), &t->dims[i]);
    if (!there || !take(&r->c, sizeof(number), &number) ||
        !take(&r->c, sizeof(t->begin), &t->begin))
        return err_set(e, ERR_VALIDATION, "%s: ends within the description of tensor `%s`", g->path,
                       t->name);
    t->n_dims = (int)n_dims;
    if (packing_of(number, &t->packing))
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` is packed as type %u, which is not known", g->path, t->name,
                       number);
    if (t->begin % r->alignment)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` begins at %llu, no multiple of %llu",
                       g->path, t->name, (unsigned long long)t->begin,
                       (unsigned long long)r->alignment);
    g->n_tensors++;
    return tensor_bytes(g, t, e);
}

/* ---------------------------------------------------------------- the whole file */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int read_alignment(struct gguf_reader *r, struct err *e)
{
    double v = ALIGNMENT;
    if (gguf_find(r->g, "general.alignment") && !gguf_number(r->g, "general.alignment", &v))
        v = 0;
    if (!(v >= 1 && v <= ALIGNMENT_MAX) || v != (double)(uint64_t)v ||
        ((uint64_t)v & ((uint64_t)v - 1)))
        return err_set(e, ERR_VALIDATION, "%s: `general.alignment` must be a power of two",
                       r->g->path);
    r->alignment = (uint64_t)v;
    return 0;
}

/* Sets the tensors' addresses, once the start of the data section is known. */
static int place(struct gguf_reader *r, const uint8_t *bytes, size_t n, struct err *e)
{
    struct gguf *g = r->g;
    const uint64_t header = (uint64_t)(r->c.at - bytes);
    const uint64_t start = (header + r->alignment - 1) / r->alignment * r->alignment;
    const uint64_t room = start < n ? n - start : 0;
    qsort(g->tensors, g->n_tensors, sizeof(g->tensors[0]), by_place);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->begin > room || t->bytes > room - t->begin)
            return err_set(e, ERR_VALIDATION,
                           "%s: tensor `%s`: %llu bytes at %llu are outside the %llu bytes of data",
                           g->path, t->name, (unsigned long long)t->bytes,
                           (unsigned long long)t->begin, (unsigned long long)room);
        if (i && t[-1].begin + t[-1].bytes > t->begin)
            return err_set(e, ERR_VALIDATION, "%s: tensors `%s` and `%s` overlap", g->path,
                           t[-1].name, t->name);
        t->data = bytes + (start < n ? start : n) + t->begin;
    }
    qsort(g->tensors, g->n_tensors, sizeof(g->tensors[0]), by_name);
    for (uint32_t i = 1; i < g->n_tensors; i++)
        if (by_name(&g->tensors[i - 1], &g->tensors[i]) == 0)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is there twice", g->path,
                           g->tensors[i].name);
    return 0;
}

static int read_values(struct gguf_reader *r, uint64_t n, struct err *e)
{
    struct gguf *g = r->g;
    for (uint64_t i = 0; i < n; i++)
        if (read_value(r, e))
            return -1;
    qsort(g->values, g->n_values, sizeof(g->values[0]), by_key);
    for (uint32_t i = 1; i < g->n_values; i++)
        if (by_key(&g->values[i - 1], &g->values[i]) == 0)
            return err_set(e, ERR_VALIDATION, "%s: `%s` is there twice", g->path, g->values[i].key);
    return read_alignment(r, e);
}

static int parse(struct gguf *g, const uint8_t *bytes, size_t n, struct err *e)
{
    struct gguf_reader r = {.g = g, .c = {bytes, bytes + n}, .alignment = ALIGNMENT};
    char magic[4];
    uint64_t n_tensors, n_values;
    if (!take(&r.c, sizeof(magic), magic) || memcmp(magic, "GGUF", sizeof(magic)) != 0)
        return err_set(e, ERR_VALIDATION, "%s: not a GGUF file, in spite of its name", g->path);
    if (!take(&r.c, sizeof(g->version), &g->version) || (g->version != 2 && g->version != 3))
        return err_set(e, ERR_VALIDATION, "%s: GGUF version %u%s is not read here; 2 and 3 are",
                       g->path, g->version,
                       g->version && g->version % 65536 == 0 ? " (big-endian)" : "");
    if (!take(&r.c, sizeof(n_tensors), &n_tensors) || !take(&r.c, sizeof(n_values), &n_values))
        return err_set(e, ERR_VALIDATION, "%s: ends within its header", g->path);
    const uint64_t room = (uint64_t)(r.c.end - r.c.at);
    if (n_tensors > room / TENSOR_MIN || n_values > room / VALUE_MIN || n_tensors > COUNT_MAX ||
        n_values > COUNT_MAX)
        return err_set(e, ERR_VALIDATION,
                       "%s: %llu tensors and %llu keys do not fit into a file of %zu bytes",
                       g->path, (unsigned long long)n_tensors, (unsigned long long)n_values, n);
    g->values = calloc(n_values ? n_values : 1, sizeof(g->values[0]));
    g->tensors = calloc(n_tensors ? n_tensors : 1, sizeof(g->tensors[0]));
    /* A name in memory replaces its 8-byte length by a NUL. */
    uint64_t names = (n_values + n_tensors) * (NAME_MAX_BYTES + 1);
    g->names = r.names = malloc(names < room ? names + 1 : room + 1);
    if (!g->values || !g->tensors || !g->names)
        return err_nomem(e);
    if (read_values(&r, n_values, e))
        return -1;
    for (uint64_t i = 0; i < n_tensors; i++)
        if (read_tensor(&r, e))
            return -1;
    return place(&r, bytes, n, e);
}

int gguf_parse(struct gguf *g, const char *path, const uint8_t *bytes, size_t n, struct err *e)
{
    *g = (struct gguf){.path = strdup(path)};
    if (!g->path)
        return err_nomem(e);
    if (parse(g, bytes, n, e) == 0)
        return 0;
    gguf_close(g);
    return -1;
}

int gguf_open(struct gguf *g, const char *path, struct err *e)
{
    size_t n = 0;
    *g = (struct gguf){0};
    const void *map = file_map(path, &n, e);
    if (!map)
        return -1;
    if (gguf_parse(g, path, map, n, e)) {
        file_unmap(map, n);
        return -1;
    }
    g->map = map;
    g->map_size = n;
    return 0;
}

void gguf_close(struct gguf *g)
{
    file_unmap(g->map, g->map_size);
    free(g->values);
    free(g->tensors);
    free(g->names);
    free((void *)(uintptr_t)g->path);
    *g = (struct gguf){0};
}

/* ---------------------------------------------------------------- look-up */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_value like = {.key = key};
    return bsearch(&like, g->values, g->n_values, sizeof(g->values[0]), by_key);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    const struct gguf_tensor like = {.name = name};
    return bsearch(&like, g->tensors, g->n_tensors, sizeof(g->tensors[0]), by_name);
}

#define NUMBERS(X)                                                                                 \
    X(U8, uint8_t)                                                                                 \
    X(I8, int8_t)                                                                                  \
    X(U16, uint16_t)                                                                               \
    X(I16, int16_t)                                                                                \
    X(U32, uint32_t)                                                                               \
    X(I32, int32_t)                                                                                \
    X(F32, float)                                                                                  \
    X(BOOL, uint8_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(I64, int64_t)                                                                                \
    X(F64, double)

double gguf_number_at(const struct gguf_value *v, uint64_t i)
{
    switch (v->type) {
#define X(name, type)                                                                              \
    case GGUF_T_##name: {                                                                          \
        type x;                                                                                    \
        memcpy(&x, v->data + i * sizeof(x), sizeof(x));                                            \
        return (double)x;                                                                          \
    }
        NUMBERS(X)
#undef X
    default:
        return 0;
    }
}

bool gguf_number(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || v->list || v->type == GGUF_T_STRING || v->type == GGUF_T_BOOL)
        return false;
    *out = gguf_number_at(v, 0);
    return true;
}

bool gguf_bool(const struct gguf *g, const char *key, bool def)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && !v->list && v->type == GGUF_T_BOOL ? gguf_number_at(v, 0) != 0 : def;
}

bool gguf_text(const struct gguf *g, const char *key, struct gguf_str *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    const uint8_t *at = v ? v->data : NULL;
    return v && !v->list && v->type == GGUF_T_STRING && gguf_next(v, &at, out) &&
           utf8_valid(out->p, out->n);
}

const struct gguf_value *gguf_numbers(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && v->list && v->type != GGUF_T_STRING ? v : NULL;
}

const struct gguf_value *gguf_strings(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && v->list && v->type == GGUF_T_STRING ? v : NULL;
}

bool gguf_next(const struct gguf_value *v, const uint8_t **at, struct gguf_str *out)
{
    struct gguf_cursor c = {*at, v->end};
    if (!take_str(&c, out))
        return false;
    *at = c.at;
    return true;
}

bool gguf_str_is(const struct gguf_str *s, const char *text)
{
    return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0;
}
