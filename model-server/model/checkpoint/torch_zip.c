/* The archive of torch.save(): <name>/data.pkl describes the tensors, <name>/data/<key> are their
 * storages, stored without compression, so that tensors are views of the mapping.
 * Zip: PKWARE's APPNOTE 6.3.3, 4.3 (end of central directory, also in its 64-bit form). */
#include "model-server/model/checkpoint/tensor_parse.h"
#include <stdlib.h>
#include <string.h>

enum {
    LOCAL = 0x04034b50,
    CENTRAL = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR64 = 0x07064b50,
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    EXTRA64 = 1,
    MAX_COMMENT = 65535,
    MAX_MEMBERS = 1 << 24,
};

struct member {
    const char *name; /* relative to the archive's folder */
    uint32_t n_name;
    const uint8_t *data;
    uint64_t n;
};
struct zip {
    const char *path; /* of the file, for messages */
    const uint8_t *p;
    size_t n;
    struct member *members; /* sorted by name */
    uint32_t n_members;
    struct err *e;
};

static uint64_t le(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static int bad(const struct zip *z, const char *why)
{
    return err_set(z->e, ERR_VALIDATION, "%s: %s", z->path, why);
}

/* Locates the central directory: the last record of the file, which only a comment may follow. */
static int directory(const struct zip *z, uint64_t *at, uint64_t *size, uint64_t *entries)
{
    const uint8_t *end = NULL;
    for (size_t k = END_SIZE; k <= z->n && k <= END_SIZE + (size_t)MAX_COMMENT && !end; k++)
        if (le(z->p + z->n - k, 4) == END && le(z->p + z->n - k + 20, 2) == k - END_SIZE)
            end = z->p + z->n - k;
    if (!end)
        return bad(z, "a zip archive without an end (cut off?)");
    *entries = le(end + 10, 2);
    *size = le(end + 12, 4);
    *at = le(end + 16, 4);
    if (*entries != 0xffff && *size != 0xffffffff && *at != 0xffffffff)
        return 0;
    const uint8_t *locator = end - LOCATOR_SIZE;
    if (end - z->p < LOCATOR_SIZE || le(locator, 4) != LOCATOR64)
        return bad(z, "a large zip archive without its 64-bit end");
    const uint64_t where = le(locator + 8, 8);
    if (z->n < END64_SIZE || where > z->n - END64_SIZE || le(z->p + where, 4) != END64)
        return bad(z, "a large zip archive without its 64-bit end");
    *entries = le(z->p + where + 32, 8);
    *size = le(z->p + where + 40, 8);
    *at = le(z->p + where + 48, 8);
    return 0;
}

/* Values that do not fit 32 bits are in the extra field of header 1, in this order. */
static int sizes(const struct zip *z, const uint8_t *c, uint32_t n_name, uint32_t n_extra,
                 uint64_t *packed, uint64_t *size, uint64_t *at)
{
    uint64_t *const wide[] = {size, packed, at};
    const uint8_t *x = c + CENTRAL_SIZE + n_name, *end = x + n_extra;
    *packed = le(c + 20, 4);
    *size = le(c + 24, 4);
    *at = le(c + 42, 4);
    while (end - x >= 4 && le(x, 2) != EXTRA64)
        x += 4 + le(x + 2, 2) < (uint64_t)(end - x) ? 4 + le(x + 2, 2) : (uint64_t)(end - x);
    if (end - x >= 4 && le(x + 2, 2) <= (uint64_t)(end - x) - 4) {
        end = x + 4 + le(x + 2, 2);
        x += 4;
    } else
        x = end;
    for (int i = 0; i < 3; i++) {
        if (*wide[i] != 0xffffffff)
            continue;
        if (end - x < 8)
            return bad(z, "a member of the archive without its size");
        *wide[i] = le(x, 8);
        x += 8;
    }
    return 0;
}

/* Reads one record of the directory; *c moves past it. */
static int read_member(struct zip *z, const uint8_t **c, const uint8_t *end)
{
    if (end - *c < CENTRAL_SIZE || le(*c, 4) != CENTRAL)
        return bad(z, "a broken directory of the archive");
    const uint32_t n_name = (uint32_t)le(*c + 28, 2), n_extra = (uint32_t)le(*c + 30, 2),
                   n_comment = (uint32_t)le(*c + 32, 2), flags = (uint32_t)le(*c + 8, 2),
                   method = (uint32_t)le(*c + 10, 2);
    if ((uint64_t)(end - *c) < (uint64_t)CENTRAL_SIZE + n_name + n_extra + n_comment)
        return bad(z, "a broken directory of the archive");
    uint64_t packed, size, at;
    if (sizes(z, *c, n_name, n_extra, &packed, &size, &at))
        return -1;
    if (method || flags & 1 || packed != size)
        return bad(z,
                   "members of the archive are compressed or encrypted: torch.save() does neither");
    if (at > z->n || z->n - at < LOCAL_SIZE || le(z->p + at, 4) != LOCAL)
        return bad(z, "a member of the archive lies outside the file");
    at += LOCAL_SIZE + le(z->p + at + 26, 2) + le(z->p + at + 28, 2);
    if (at > z->n || size > z->n - at)
        return bad(z, "a member of the archive lies outside the file");
    const char *name = (const char *)*c + CENTRAL_SIZE, *slash = memchr(name, '/', n_name);
    const uint32_t skip = slash ? (uint32_t)(slash + 1 - name) : 0;
    z->members[z->n_members++] = (struct member){name + skip, n_name - skip, z->p + at, size};
    *c += CENTRAL_SIZE + n_name + n_extra + n_comment;
    return 0;
}

static int compare(const char *a, uint32_t n_a, const char *b, uint32_t n_b)
{
    int c = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return c ? c : (n_a > n_b) - (n_a < n_b);
}

static int by_name(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return compare(x->name, x->n_name, y->name, y->n_name);
}

static const struct member *find(const struct zip *z, const char *name, size_t n)
{
    const struct member key = {.name = name, .n_name = (uint32_t)n};
    if (!z->n_members)
        return NULL;
    return bsearch(&key, z->members, z->n_members, sizeof(key), by_name);
}

static int read_directory(struct zip *z)
{
    uint64_t at = 0, size = 0, entries = 0;
    if (directory(z, &at, &size, &entries))
        return -1;
    if (at > z->n || size > z->n - at || entries > size / CENTRAL_SIZE || entries > MAX_MEMBERS)
        return bad(z, "the directory of the archive lies outside the file");
    if (!(z->members = calloc(entries + 1, sizeof(*z->members))))
        return err_nomem(z->e);
    const uint8_t *c = z->p + at, *end = c + size;
    for (uint64_t i = 0; i < entries; i++)
        if (read_member(z, &c, end))
            return -1;
    qsort(z->members, z->n_members, sizeof(*z->members), by_name);
    for (uint32_t i = 1; i < z->n_members; i++)
        if (!by_name(&z->members[i - 1], &z->members[i]))
            return bad(z, "two members of the archive have one name");
    return 0;
}

/* ---------------------------------------------------------------- tensors */

/* Rows without gaps. A dimension of one element may have any stride. */
static bool contiguous(const struct torch_tensor *v, uint64_t *elements)
{
    bool yes = true;
    *elements = 1;
    for (int i = v->n_dims - 1; i >= 0; i--) {
        yes = yes && (v->dims[i] == 1 || v->strides[i] == *elements);
        if (__builtin_mul_overflow(*elements, v->dims[i], elements))
            return false;
    }
    return yes || !*elements;
}

static int place(const struct zip *z, const struct torch_tensor *v, struct tensor *t)
{
    char key[64 + sizeof("data/")] = "data/";
    uint64_t elements, last, bytes, size = tensor_type_bits(v->type) / 8;
    if (!contiguous(v, &elements))
        return err_set(z->e, ERR_VALIDATION,
                       "%s: tensor `%s` is a view with gaps or in another order: save it with "
                       ".contiguous()",
                       z->path, t->name);
    if (v->n_key > 64 || __builtin_add_overflow(v->offset, elements, &last) || last > v->storage ||
        __builtin_mul_overflow(v->storage, size, &bytes))
        return err_set(z->e, ERR_VALIDATION, "%s: tensor `%s` lies outside its storage", z->path,
                       t->name);
    memcpy(key + 5, v->key, v->n_key);
    const struct member *m = find(z, key, 5 + (size_t)v->n_key);
    if (!m || bytes > m->n)
        return err_set(z->e, ERR_VALIDATION,
                       "%s: the storage of tensor `%s` is missing or too short", z->path, t->name);
    t->bytes = elements * size;
    t->data = m->data + v->offset * size;
    t->begin = (uint64_t)((const uint8_t *)t->data - z->p);
    return 0;
}

static int take(struct zip *z, const struct torch_tensors *v, struct tensor_file *s)
{
    size_t names = 0;
    for (uint32_t i = 0; i < v->n; i++)
        names += v->v[i].n_name + (size_t)1;
    s->names = malloc(names + 1);
    s->tensors = calloc(v->n + (size_t)1, sizeof(s->tensors[0]));
    if (!s->names || !s->tensors)
        return err_nomem(z->e);
    char *name = s->names;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct torch_tensor *x = &v->v[i];
        struct tensor *t = &s->tensors[i];
        memcpy(name, x->name, x->n_name);
        name[x->n_name] = '\0';
        *t = (struct tensor){.name = name, .file = s->path, .type = x->type, .n_dims = x->n_dims};
        memcpy(t->dims, x->dims, sizeof(t->dims));
        if (strlen(name) != x->n_name || !tensor_name_is_plain(name))
            return bad(z, "a tensor name with control characters");
        if (place(z, x, t))
            return -1;
        name += x->n_name + (size_t)1;
        s->n++;
    }
    return tensor_file_sort(s, z->e);
}

static int parse(struct zip *z, struct tensor_file *s)
{
    if (read_directory(z))
        return -1;
    const struct member *pickle = find(z, "data.pkl", 8), *order = find(z, "byteorder", 9);
    if (!pickle)
        return bad(z, "a zip archive without data.pkl: nothing that torch.save() wrote");
    if (order && (order->n != 6 || memcmp(order->data, "little", 6) != 0))
        return bad(z, "its numbers are big-endian, which is not read");
    struct torch_tensors v;
    if (torch_pickle(&v, pickle->data, pickle->n, z->e))
        return err_wrap(z->e, "%s", z->path);
    int rc = take(z, &v, s);
    free(v.v);
    return rc;
}

int torch_parse(struct tensor_file *s, const char *path, const uint8_t *bytes, size_t n,
                struct err *e)
{
    *s = (struct tensor_file){.path = strdup(path)};
    if (!s->path)
        return err_nomem(e);
    struct zip z = {.path = s->path, .p = bytes, .n = n, .e = e};
    int rc = parse(&z, s);
    free(z.members);
    if (rc)
        tensor_file_close(s);
    return rc;
}
