/* A stack machine for the opcodes that torch.save() writes for a mapping from names to tensors
 * (protocols 2 to 5). Values are plain data: a global is one of a fixed list, and "calling" one
 * only combines its arguments. */
#include "model-server/model/checkpoint/tensor_parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pickle of 100,000 tensors has a million values; a state dict never has more than this. */
enum { MAX_VALUES = 1 << 22, NO_ENTRY = -1 };

enum { OP_STOP = '.' };

enum global { G_ORDERED_DICT, G_TENSOR, G_PARAMETER, G_STORAGE };
static const struct {
    const char *module, *name;
    enum global is;
    enum tensor_type type;
} globals[] = {
    {"collections", "OrderedDict", G_ORDERED_DICT, T_N},
    {"torch._utils", "_rebuild_tensor_v2", G_TENSOR, T_N},
    {"torch._utils", "_rebuild_parameter", G_PARAMETER, T_N},
    {"torch", "FloatStorage", G_STORAGE, T_F32},
    {"torch", "HalfStorage", G_STORAGE, T_F16},
    {"torch", "BFloat16Storage", G_STORAGE, T_BF16},
    {"torch", "DoubleStorage", G_STORAGE, T_F64},
    {"torch", "LongStorage", G_STORAGE, T_I64},
    {"torch", "IntStorage", G_STORAGE, T_I32},
    {"torch", "ShortStorage", G_STORAGE, T_I16},
    {"torch", "CharStorage", G_STORAGE, T_I8},
    {"torch", "ByteStorage", G_STORAGE, T_U8},
    {"torch", "BoolStorage", G_STORAGE, T_BOOL},
};

enum kind {
    V_MARK,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_TEXT,
    V_TUPLE,
    V_LIST,
    V_DICT,
    V_GLOBAL,
    V_STORAGE,
    V_TENSOR
};
struct value {
    enum kind kind;
    uint32_t n;  /* TEXT: bytes; TUPLE: items */
    uint32_t at; /* TUPLE: its first item; DICT, STORAGE, TENSOR, GLOBAL: its number */
    int64_t i;   /* INT, BOOL */
    const char *text;
};
struct entry { /* of a dict; entries of one are a linked list */
    struct value key, value;
    int32_t next;
};
struct dict {
    int32_t first, last;
};
struct storage {
    enum tensor_type type;
    struct value key;
    uint64_t n;
};

/* Growing arrays: v, used length, capacity. */
#define ARRAY(type)                                                                                \
    struct {                                                                                       \
        type *v;                                                                                   \
        uint32_t n, cap;                                                                           \
    }

struct machine {
    const uint8_t *begin, *p, *end;
    ARRAY(struct value) stack, items, memo;
    ARRAY(struct entry) entries;
    ARRAY(struct dict) dicts;
    ARRAY(struct storage) storages;
    ARRAY(struct torch_tensor) tensors;
    struct err *e;
};

static void *grow(void *v, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    if (n >= MAX_VALUES)
        return NULL;
    uint32_t more = *cap ? 2 * *cap : 256;
    void *w = realloc(v, more * size);
    if (w)
        *cap = more;
    return w;
}

static int refuse(const struct machine *m, const char *why)
{
    return err_set(m->e, ERR_VALIDATION, "byte %zu of its pickle: %s", (size_t)(m->p - m->begin),
                   why);
}

/* Makes room for one more element in `array`; -1 and an error if out of memory. */
#define ROOM(m, array)                                                                             \
    __extension__({                                                                                \
        void *w_ = grow((array).v, (array).n, &(array).cap, sizeof((array).v[0]));                 \
        if (w_)                                                                                    \
            (array).v = w_;                                                                        \
        w_ ? 0 : refuse(m, "more values than a state dict has");                                   \
    })

static int push(struct machine *m, struct value v)
{
    if (ROOM(m, m->stack))
        return -1;
    m->stack.v[m->stack.n++] = v;
    return 0;
}

static int pop(struct machine *m, struct value *v)
{
    if (!m->stack.n || m->stack.v[m->stack.n - 1].kind == V_MARK)
        return refuse(m, "a value is missing");
    *v = m->stack.v[--m->stack.n];
    return 0;
}

/* Number of values above the last mark, which is removed below them: they are stack.v[n_stack ..
 * n_stack + count). */
static int pop_mark(struct machine *m, uint32_t *count)
{
    uint32_t i = m->stack.n;
    while (i && m->stack.v[i - 1].kind != V_MARK)
        i--;
    if (!i)
        return refuse(m, "a mark is missing");
    *count = m->stack.n - i;
    memmove(&m->stack.v[i - 1], &m->stack.v[i], *count * sizeof(struct value));
    m->stack.n = i - 1;
    return 0;
}

/* ---------------------------------------------------------------- arguments in the pickle */

static int number(struct machine *m, int bytes, uint64_t *out)
{
    *out = 0;
    if (m->end - m->p < bytes)
        return refuse(m, "it ends too early");
    for (int i = 0; i < bytes; i++)
        *out |= (uint64_t)m->p[i] << 8 * i;
    m->p += bytes;
    return 0;
}

static int text(struct machine *m, int length_bytes)
{
    uint64_t n;
    if (number(m, length_bytes, &n))
        return -1;
    if (n > (uint64_t)(m->end - m->p))
        return refuse(m, "a text is longer than the pickle");
    struct value v = {.kind = V_TEXT, .n = (uint32_t)n, .text = (const char *)m->p};
    m->p += n;
    return push(m, v);
}

/* LONG1: little-endian two's complement of up to 8 bytes. */
static int long1(struct machine *m)
{
    uint64_t n, v;
    if (number(m, 1, &n))
        return -1;
    if (n > 8)
        return refuse(m, "an integer of more than 64 bits");
    if (number(m, (int)n, &v))
        return -1;
    if (n && n < 8 && v >> (8 * n - 1))
        v |= ~(uint64_t)0 << 8 * n;
    return push(m, (struct value){.kind = V_INT, .i = (int64_t)v});
}

/* A text of the pickle in printable form for messages. */
static const char *shown(const struct value *v, char out[80])
{
    uint32_t n = v->kind == V_TEXT ? v->n < 79 ? v->n : 79 : 0;
    for (uint32_t i = 0; i < n; i++)
        out[i] = v->text[i];
    for (uint32_t i = 0; i < n; i++)
        if (out[i] < ' ' || out[i] > '~')
            out[i] = '?';
    out[n] = '\0';
    return out;
}

static bool is(const struct value *v, const char *s)
{
    return v->kind == V_TEXT && v->n == strlen(s) && !memcmp(v->text, s, v->n);
}

static int global(struct machine *m, const struct value *module, const struct value *name)
{
    for (uint32_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++)
        if (is(module, globals[i].module) && is(name, globals[i].name))
            return push(m, (struct value){.kind = V_GLOBAL, .at = i});
    char a[80], b[80];
    return err_set(m->e, ERR_VALIDATION,
                   "byte %zu of its pickle: it names `%s.%s`, which no state dict needs",
                   (size_t)(m->p - m->begin), shown(module, a), shown(name, b));
}

/* GLOBAL: two lines. */
static int global_lines(struct machine *m)
{
    struct value part[2];
    for (int i = 0; i < 2; i++) {
        const uint8_t *end = memchr(m->p, '\n', (size_t)(m->end - m->p));
        if (!end)
            return refuse(m, "it ends too early");
        part[i] =
            (struct value){.kind = V_TEXT, .n = (uint32_t)(end - m->p), .text = (const char *)m->p};
        m->p = end + 1;
    }
    return global(m, &part[0], &part[1]);
}

static int stack_global(struct machine *m)
{
    struct value module, name;
    if (pop(m, &name) || pop(m, &module))
        return -1;
    if (module.kind != V_TEXT || name.kind != V_TEXT)
        return refuse(m, "a global without a name");
    return global(m, &module, &name);
}

/* ---------------------------------------------------------------- containers */

static int tuple(struct machine *m, uint32_t n)
{
    struct value v = {.kind = V_TUPLE, .n = n, .at = m->items.n};
    for (uint32_t i = 0; i < n; i++) { /* the values were just popped: they are above the stack */
        if (ROOM(m, m->items))
            return -1;
        m->items.v[m->items.n++] = m->stack.v[m->stack.n + i];
    }
    return push(m, v);
}

static int small_tuple(struct machine *m, int n)
{
    struct value v;
    for (int i = 0; i < n; i++)
        if (pop(m, &v))
            return -1;
    return tuple(m, (uint32_t)n);
}

static int new_dict(struct machine *m)
{
    if (ROOM(m, m->dicts))
        return -1;
    m->dicts.v[m->dicts.n] = (struct dict){NO_ENTRY, NO_ENTRY};
    return push(m, (struct value){.kind = V_DICT, .at = m->dicts.n++});
}

static int set_item(struct machine *m, const struct value *of, const struct value *key,
                    const struct value *value)
{
    struct dict *d = &m->dicts.v[of->at];
    if (ROOM(m, m->entries))
        return -1;
    m->entries.v[m->entries.n] = (struct entry){*key, *value, NO_ENTRY};
    if (d->last == NO_ENTRY)
        d->first = (int32_t)m->entries.n;
    else
        m->entries.v[d->last].next = (int32_t)m->entries.n;
    d->last = (int32_t)m->entries.n++;
    return 0;
}

/* The `n` values above the stack are keys and values of the dict at its top. */
static int set_items(struct machine *m, uint32_t n)
{
    if (!m->stack.n || m->stack.v[m->stack.n - 1].kind != V_DICT || n % 2)
        return refuse(m, "items that belong to no mapping");
    const struct value of = m->stack.v[m->stack.n - 1];
    for (uint32_t i = 0; i < n; i += 2)
        if (set_item(m, &of, &m->stack.v[m->stack.n + i], &m->stack.v[m->stack.n + i + 1]))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- what torch puts in */

static const struct value *item(const struct machine *m, const struct value *tuple, uint32_t i,
                                enum kind kind)
{
    const struct value *v = i < tuple->n ? &m->items.v[tuple->at + i] : NULL;
    return v && v->kind == kind ? v : NULL;
}

/* ("storage", type, key, device, elements) */
static int storage(struct machine *m)
{
    struct value t;
    if (pop(m, &t) || ROOM(m, m->storages))
        return -1;
    if (t.kind != V_TUPLE)
        return refuse(m, "a persistent id that is no tuple");
    const struct value *word = item(m, &t, 0, V_TEXT), *type = item(m, &t, 1, V_GLOBAL),
                       *key = item(m, &t, 2, V_TEXT), *n = item(m, &t, 4, V_INT);
    if (!word || !is(word, "storage") || !type || globals[type->at].is != G_STORAGE || !key || !n ||
        n->i < 0)
        return refuse(m, "a persistent id that is no storage");
    m->storages.v[m->storages.n] =
        (struct storage){.type = globals[type->at].type, .key = *key, .n = (uint64_t)n->i};
    return push(m, (struct value){.kind = V_STORAGE, .at = m->storages.n++});
}

/* (storage, offset, sizes, strides, requires_grad, hooks) */
static int tensor(struct machine *m, const struct value *args)
{
    const struct value *of = item(m, args, 0, V_STORAGE), *offset = item(m, args, 1, V_INT),
                       *sizes = item(m, args, 2, V_TUPLE), *strides = item(m, args, 3, V_TUPLE);
    if (!of || !offset || offset->i < 0 || !sizes || !strides || sizes->n != strides->n ||
        sizes->n > TENSOR_MAX_DIMS)
        return refuse(m, "a tensor that is not as torch describes one");
    if (ROOM(m, m->tensors))
        return -1;
    const struct storage *s = &m->storages.v[of->at];
    struct torch_tensor *t = &m->tensors.v[m->tensors.n];
    *t = (struct torch_tensor){.key = s->key.text,
                               .n_key = s->key.n,
                               .type = s->type,
                               .n_dims = (int)sizes->n,
                               .offset = (uint64_t)offset->i,
                               .storage = s->n};
    for (uint32_t i = 0; i < sizes->n; i++) {
        const struct value *size = item(m, sizes, i, V_INT), *stride = item(m, strides, i, V_INT);
        if (!size || size->i < 0 || !stride || stride->i < 0)
            return refuse(m, "a tensor with a shape that is none");
        t->dims[i] = (uint64_t)size->i;
        t->strides[i] = (uint64_t)stride->i;
    }
    return push(m, (struct value){.kind = V_TENSOR, .at = m->tensors.n++});
}

static int reduce(struct machine *m)
{
    struct value args, of;
    if (pop(m, &args) || pop(m, &of))
        return -1;
    if (of.kind != V_GLOBAL || args.kind != V_TUPLE)
        return refuse(m, "a call of something else than torch's own");
    switch (globals[of.at].is) {
    case G_ORDERED_DICT:
        return args.n ? refuse(m, "a mapping with arguments") : new_dict(m);
    case G_TENSOR:
        return tensor(m, &args);
    case G_PARAMETER: /* (tensor, requires_grad, hooks) */
        return item(m, &args, 0, V_TENSOR) ? push(m, m->items.v[args.at])
                                           : refuse(m, "a parameter without a tensor");
    case G_STORAGE:
        break;
    }
    return refuse(m, "a call of a storage");
}

/* Attributes of a mapping (its `_metadata`) are dropped: they do not concern tensors. */
static int build(struct machine *m)
{
    struct value state;
    if (pop(m, &state))
        return -1;
    return m->stack.n && m->stack.v[m->stack.n - 1].kind == V_DICT
               ? 0
               : refuse(m, "attributes of something that is no mapping");
}

/* ---------------------------------------------------------------- the machine */

static int memo_put(struct machine *m, uint64_t at)
{
    if (!m->stack.n || at >= MAX_VALUES || at > m->memo.n + (size_t)(m->end - m->begin))
        return refuse(m, "a memo out of bounds");
    while (m->memo.n <= at) {
        if (ROOM(m, m->memo))
            return -1;
        m->memo.v[m->memo.n++] = (struct value){.kind = V_MARK};
    }
    m->memo.v[at] = m->stack.v[m->stack.n - 1];
    return 0;
}

static int memo_get(struct machine *m, int bytes)
{
    uint64_t at;
    if (number(m, bytes, &at))
        return -1;
    if (at >= m->memo.n || m->memo.v[at].kind == V_MARK)
        return refuse(m, "a memo that was never written");
    return push(m, m->memo.v[at]);
}

static int memo_numbered(struct machine *m, int bytes)
{
    uint64_t at;
    return number(m, bytes, &at) ? -1 : memo_put(m, at);
}

static int integer(struct machine *m, int bytes)
{
    uint64_t v;
    if (number(m, bytes, &v))
        return -1;
    return push(m, (struct value){.kind = V_INT, .i = bytes == 4 ? (int32_t)v : (int64_t)v});
}

static int skip(struct machine *m, int bytes)
{
    uint64_t ignored;
    return number(m, bytes, &ignored);
}

static int push_float(struct machine *m) /* in metadata only */
{
    return skip(m, 8) ? -1 : push(m, (struct value){.kind = V_FLOAT});
}

static int push_bool(struct machine *m, int yes)
{
    return push(m, (struct value){.kind = V_BOOL, .i = yes});
}

static int push_kind(struct machine *m, int kind)
{
    return push(m, (struct value){.kind = (enum kind)kind});
}

static int memoize(struct machine *m) { return memo_put(m, m->memo.n); }

static int marked(struct machine *m, int (*then)(struct machine *m, uint32_t n))
{
    uint32_t n = 0;
    return pop_mark(m, &n) ? -1 : then(m, n);
}

static int pair(struct machine *m)
{
    struct value key, value;
    return pop(m, &value) || pop(m, &key) ? -1 : set_items(m, 2);
}

/* Lists occur only in metadata: their contents are dropped. */
static int append(struct machine *m, uint32_t n)
{
    (void)n;
    return m->stack.n && m->stack.v[m->stack.n - 1].kind == V_LIST ? 0
                                                                   : refuse(m, "items of no list");
}

static int tuple_marked(struct machine *m) { return marked(m, tuple); }
static int set_marked(struct machine *m) { return marked(m, set_items); }
static int append_marked(struct machine *m) { return marked(m, append); }

static int append_one(struct machine *m)
{
    struct value v;
    return pop(m, &v) ? -1 : append(m, 1);
}

static int drop(struct machine *m)
{
    struct value v;
    return pop(m, &v);
}

static int unknown(struct machine *m, unsigned op)
{
    char why[80];
    snprintf(why, sizeof(why), "opcode 0x%02x, which is not read", op);
    m->p--;
    return refuse(m, why);
}

/* By opcode: its function, with or without an operand. */
static const struct {
    int (*plain)(struct machine *m);
    int (*with)(struct machine *m, int n);
    int n;
} ops[256] = {
    ['('] = {.with = push_kind, .n = V_MARK}, /* MARK */
    ['0'] = {.plain = drop},                  /* POP */
    ['G'] = {.plain = push_float},            /* BINFLOAT */
    ['J'] = {.with = integer, .n = 4},        /* BININT */
    ['K'] = {.with = integer, .n = 1},        /* BININT1 */
    ['M'] = {.with = integer, .n = 2},        /* BININT2 */
    ['N'] = {.with = push_kind, .n = V_NONE}, /* NONE */
    ['Q'] = {.plain = storage},               /* BINPERSID */
    ['R'] = {.plain = reduce},                /* REDUCE */
    ['X'] = {.with = text, .n = 4},           /* BINUNICODE */
    [']'] = {.with = push_kind, .n = V_LIST}, /* EMPTY_LIST */
    ['a'] = {.plain = append_one},            /* APPEND */
    ['e'] = {.plain = append_marked},         /* APPENDS */
    ['b'] = {.plain = build},                 /* BUILD */
    ['c'] = {.plain = global_lines},          /* GLOBAL */
    ['h'] = {.with = memo_get, .n = 1},       /* BINGET */
    ['j'] = {.with = memo_get, .n = 4},       /* LONG_BINGET */
    ['q'] = {.with = memo_numbered, .n = 1},  /* BINPUT */
    ['r'] = {.with = memo_numbered, .n = 4},  /* LONG_BINPUT */
    ['s'] = {.plain = pair},                  /* SETITEM */
    ['t'] = {.plain = tuple_marked},          /* TUPLE */
    ['u'] = {.plain = set_marked},            /* SETITEMS */
    ['}'] = {.plain = new_dict},              /* EMPTY_DICT */
    [')'] = {.with = small_tuple, .n = 0},    /* EMPTY_TUPLE */
    [0x80] = {.with = skip, .n = 1},          /* PROTO */
    [0x85] = {.with = small_tuple, .n = 1},   /* TUPLE1 */
    [0x86] = {.with = small_tuple, .n = 2},   /* TUPLE2 */
    [0x87] = {.with = small_tuple, .n = 3},   /* TUPLE3 */
    [0x88] = {.with = push_bool, .n = 1},     /* NEWTRUE */
    [0x89] = {.with = push_bool, .n = 0},     /* NEWFALSE */
    [0x8a] = {.plain = long1},                /* LONG1 */
    [0x8c] = {.with = text, .n = 1},          /* SHORT_BINUNICODE */
    [0x93] = {.plain = stack_global},         /* STACK_GLOBAL */
    [0x94] = {.plain = memoize},              /* MEMOIZE */
    [0x95] = {.with = skip, .n = 8},          /* FRAME */
};

static int step(struct machine *m, uint8_t op)
{
    if (ops[op].plain)
        return ops[op].plain(m);
    return ops[op].with ? ops[op].with(m, ops[op].n) : unknown(m, op);
}

static int collect(struct machine *m, struct torch_tensors *out)
{
    struct value top;
    char name[80];
    if (pop(m, &top))
        return -1;
    if (top.kind != V_DICT)
        return refuse(m, "its value is no mapping from names to tensors");
    if (!(out->v = calloc(m->entries.n + (size_t)1, sizeof(*out->v))))
        return err_nomem(m->e);
    for (int32_t i = m->dicts.v[top.at].first; i != NO_ENTRY; i = m->entries.v[i].next) {
        const struct entry *x = &m->entries.v[i];
        if (x->key.kind != V_TEXT || x->value.kind != V_TENSOR)
            return err_set(m->e, ERR_VALIDATION, "`%s` of its pickle is no tensor",
                           shown(&x->key, name));
        struct torch_tensor *t = &out->v[out->n++];
        *t = m->tensors.v[x->value.at];
        t->name = x->key.text;
        t->n_name = x->key.n;
    }
    return 0;
}

int torch_pickle(struct torch_tensors *out, const uint8_t *p, size_t n, struct err *e)
{
    struct machine m = {.begin = p, .p = p, .end = p + n, .e = e};
    int rc = 0;
    *out = (struct torch_tensors){0};
    for (;;) {
        if (m.p == m.end) {
            rc = refuse(&m, "it ends too early");
            break;
        }
        const uint8_t op = *m.p++;
        if (op == OP_STOP) {
            rc = collect(&m, out);
            break;
        }
        if ((rc = step(&m, op)) != 0)
            break;
    }
    free(m.stack.v);
    free(m.items.v);
    free(m.memo.v);
    free(m.entries.v);
    free(m.dicts.v);
    free(m.storages.v);
    free(m.tensors.v);
    if (rc) {
        free(out->v);
        *out = (struct torch_tensors){0};
    }
    return rc;
}
