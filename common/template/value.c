#include "common/template/value.h"
#include "common/hash.h"
#include "common/template/bigint.h"
#include "common/template/vm.h"
#include "common/utf8.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- constructors */
static uint32_t count_chars(const char *p, size_t n)
{
    uint32_t c = 0;
    assert(p || !n);
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)p[i] & 0xc0) != 0x80;
    return c;
}

struct val val_wrap(struct vm *vm, const char *p, size_t n)
{
    struct str *s = VM_NEW(vm, struct str, 1);
    if (n > UINT32_MAX / 2)
        vm_fail(vm, FAULT_LIMIT, "the template makes too long a string");
    *s = (struct str){.p = p ? p : "", .n = (uint32_t)n, .n_chars = count_chars(p, n)};
    return (struct val){.type = V_STR, .s = s};
}

struct val val_str(struct vm *vm, const char *p, size_t n)
{
    char *q = vm_alloc(vm, n + 1);
    if (n)
        memcpy(q, p, n);
    vm_work(vm, n);
    return val_wrap(vm, q, n);
}

struct val val_cstr(struct vm *vm, const char *s) { return val_wrap(vm, s, strlen(s)); }

struct val val_markup(struct vm *vm, struct val v, bool markup)
{
    if (v.type != V_STR || v.s->markup == markup)
        return v;
    struct str *s = VM_NEW(vm, struct str, 1);
    *s = *v.s;
    s->markup = markup;
    return (struct val){.type = V_STR, .s = s};
}

struct val val_undefined(struct vm *vm, const char *hint, struct val obj, struct val name)
{
    struct undef *u = VM_NEW(vm, struct undef, 1);
    *u = (struct undef){.hint = hint, .obj = obj, .name = name};
    return (struct val){.type = V_UNDEFINED, .u = u};
}

struct val val_unsafe(struct vm *vm, struct val obj, const char *attr, size_t n)
{
    struct undef *u = VM_NEW(vm, struct undef, 1);
    *u = (struct undef){.security = true};
    u->hint = vm_printf(vm, "access to attribute '%.*s' of '%s' object is unsafe.",
                        (int)(n < 100 ? n : 100), attr, val_type(obj));
    return (struct val){.type = V_UNDEFINED, .u = u};
}

struct list *list_new(struct vm *vm, uint32_t cap)
{
    struct list *l = VM_NEW(vm, struct list, 1);
    l->cap = cap;
    l->v = cap ? VM_NEW(vm, struct val, cap) : NULL;
    return l;
}

void list_push(struct vm *vm, struct list *l, struct val v)
{
    if (l->n == l->cap)
        l->v = vm_grow(vm, l->v, l->n, &l->cap, 8, sizeof(*l->v));
    assert(l->v);
    l->v[l->n++] = v;
    vm_charge(vm, 1);
}

struct val val_pair(struct vm *vm, struct val a, struct val b)
{
    struct list *l = list_new(vm, 2);
    l->v[0] = a;
    l->v[1] = b;
    l->n = 2;
    return val_list(V_TUPLE, l);
}

/* ---------------------------------------------------------------- dict */
static uint64_t val_hash(struct vm *vm, struct val v)
{
    double f;
    uint64_t h = 0;
    switch (v.type) {
    case V_STR:
    case V_BIGINT:
        vm_work(vm, v.s->n);
        return hash_bytes(0x5eed, v.s->p, v.s->n);
    case V_BOOL:
    case V_INT:
    case V_FLOAT: /* 1, 1.0 and True are the same key */
        val_is_number(v, &f);
        f += 0.0;
        return hash_bytes(1, &f, sizeof(f));
    case V_TUPLE:
        vm_enter(vm);
        for (uint32_t i = 0; i < v.l->n; i++)
            h = hash_mix(h ^ val_hash(vm, v.l->v[i])) + i;
        vm_leave(vm);
        return h;
    case V_LIST:
    case V_DICT:
        vm_type_error(vm, "unhashable type: '%s'", val_type(v));
    case V_UNDEFINED:
    case V_NONE:
        return v.type;
    default:
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer, by identity */
        return hash_bytes(2, &v.s, sizeof(v.s));
    }
}

static struct entry *dict_probe(struct vm *vm, const struct dict *d, struct val k, uint64_t hash,
                                uint32_t *slot)
{
    if (!d->index) {
        for (uint32_t i = 0; i < d->n; i++)
            if (d->e[i].hash == hash && val_eq(vm, d->e[i].k, k))
                return &d->e[i];
        return NULL;
    }
    for (uint32_t at = (uint32_t)hash & d->mask;; at = (at + 1) & d->mask) {
        vm_charge(vm, 1);
        *slot = at;
        if (!d->index[at])
            return NULL;
        struct entry *e = &d->e[d->index[at] - 1];
        if (e->hash == hash && val_eq(vm, e->k, k))
            return e;
    }
}

static void dict_reindex(struct vm *vm, struct dict *d)
{
    d->mask = d->cap * 2 - 1;
    d->index = VM_NEW(vm, uint32_t, d->mask + 1);
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t at = (uint32_t)d->e[i].hash & d->mask;
        while (d->index[at])
            at = (at + 1) & d->mask;
        d->index[at] = i + 1;
    }
    vm_charge(vm, d->n);
}

struct dict *dict_new(struct vm *vm) { return VM_NEW(vm, struct dict, 1); }

void dict_set(struct vm *vm, struct dict *d, struct val k, struct val v)
{
    uint64_t hash = val_hash(vm, k);
    uint32_t slot = 0;
    struct entry *e = dict_probe(vm, d, k, hash, &slot);
    if (e) {
        e->v = v;
        return;
    }
    if (d->n == d->cap) {
        d->e = vm_grow(vm, d->e, d->n, &d->cap, 4, sizeof(*d->e));
        if (d->cap > 8) {
            dict_reindex(vm, d);
            dict_probe(vm, d, k, hash, &slot);
        }
    }
    d->e[d->n++] = (struct entry){k, v, hash};
    if (d->index)
        d->index[slot] = d->n;
}

const struct val *dict_get(struct vm *vm, const struct dict *d, struct val k)
{
    uint32_t slot;
    struct entry *e = dict_probe(vm, d, k, val_hash(vm, k), &slot);
    return e ? &e->v : NULL;
}

const struct val *dict_find(struct vm *vm, const struct dict *d, const char *k, size_t n)
{
    struct str s = {.p = k, .n = (uint32_t)n};
    return dict_get(vm, d, (struct val){.type = V_STR, .s = &s});
}

/* ---------------------------------------------------------------- queries */
bool val_is_number(struct val v, double *f)
{
    double d = 0;
    if (v.type == V_BOOL)
        d = v.b;
    else if (v.type == V_INT)
        d = (double)v.i;
    else if (v.type == V_FLOAT)
        d = v.f;
    else
        return false;
    if (f)
        *f = d;
    return true;
}

bool val_as_int(struct val v, int64_t *i)
{
    if (v.type != V_BOOL && v.type != V_INT)
        return false;
    *i = v.type == V_BOOL ? v.b : v.i;
    return true;
}

bool val_is(struct val v, const char *s)
{
    size_t n = strlen(s);
    return v.type == V_STR && v.s->n == n && !memcmp(v.s->p, s, n);
}

bool val_truthy(struct vm *vm, struct val v)
{
    switch (v.type) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->n != 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.l->n != 0;
    case V_DICT:
        return v.d->n != 0;
    case V_LOOP:
        return val_length(vm, v) != 0;
    default:
        return true;
    }
}

static bool seq_eq(struct vm *vm, const struct list *a, const struct list *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!val_eq(vm, a->v[i], b->v[i]))
            return false;
    return true;
}

static bool dict_eq(struct vm *vm, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct val *o = dict_get(vm, b, a->e[i].k);
        if (!o || !val_eq(vm, a->e[i].v, *o))
            return false;
    }
    return true;
}

bool val_eq(struct vm *vm, struct val a, struct val b)
{
    double x, y;
    bool eq;
    vm_charge(vm, 1);
    if (val_is_number(a, &x) && val_is_number(b, &y)) {
        int64_t i, j;
        return val_as_int(a, &i) && val_as_int(b, &j) ? i == j : x == y;
    }
    if (a.type == V_BIGINT && b.type == V_FLOAT)
        return isfinite(b.f) && b.f == floor(b.f) && val_eq(vm, a, big_from_double(vm, b.f));
    if (b.type == V_BIGINT && a.type == V_FLOAT)
        return val_eq(vm, b, a);
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case V_STR:
    case V_BIGINT:
        vm_work(vm, a.s->n);
        return a.s->n == b.s->n && !memcmp(a.s->p, b.s->p, a.s->n);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        vm_enter(vm);
        eq = seq_eq(vm, a.l, b.l);
        vm_leave(vm);
        return eq;
    case V_DICT:
        vm_enter(vm);
        eq = dict_eq(vm, a.d, b.d);
        vm_leave(vm);
        return eq;
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_CALLABLE: /* each access creates a new bound method */
        return a.c->fn == b.c->fn && a.c->self.type == b.c->self.type && a.c->self.s == b.c->self.s;
    default:
        return a.s == b.s;
    }
}

static int big_cmp(const struct str *a, const struct str *b)
{
    bool na = a->p[0] == '-', nb = b->p[0] == '-';
    if (na != nb)
        return na ? -1 : 1;
    int c = a->n != b->n ? (a->n < b->n ? -1 : 1) : memcmp(a->p, b->p, a->n);
    return na ? -c : c;
}

int val_cmp(struct vm *vm, struct val a, struct val b, const char *op, bool *unordered)
{
    double x, y;
    vm_charge(vm, 1);
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED)
        vm_fail_undefined(vm, a.type == V_UNDEFINED ? a : b);
    if (val_is_number(a, &x) && val_is_number(b, &y)) {
        int64_t i, j;
        if (val_as_int(a, &i) && val_as_int(b, &j))
            return (i > j) - (i < j);
        *unordered |= isnan(x) || isnan(y);
        return (x > y) - (x < y);
    }
    if (a.type == V_BIGINT && b.type == V_BIGINT)
        return big_cmp(a.s, b.s);
    if (a.type == V_BIGINT && b.type == V_FLOAT) {
        *unordered |= isnan(b.f);
        x = big_to_double(vm, a);
        return (x > b.f) - (x < b.f);
    }
    if (b.type == V_BIGINT && a.type == V_FLOAT) {
        *unordered |= isnan(a.f);
        y = big_to_double(vm, b);
        return (a.f > y) - (a.f < y);
    }
    if (a.type == V_BIGINT && val_is_number(b, &y))
        return a.s->p[0] == '-' ? -1 : 1;
    if (b.type == V_BIGINT && val_is_number(a, &x))
        return b.s->p[0] == '-' ? 1 : -1;
    if (a.type == V_STR && b.type == V_STR) { /* UTF-8 order equals code point order */
        uint32_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        vm_work(vm, n);
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        return c ? c : (a.s->n > b.s->n) - (a.s->n < b.s->n);
    }
    if (a.type != b.type || (a.type != V_LIST && a.type != V_TUPLE))
        vm_type_error(vm, "'%s' not supported between instances of '%s' and '%s'", op, val_type(a),
                      val_type(b));
    vm_enter(vm);
    int c = 0;
    uint32_t i = 0;
    while (i < a.l->n && i < b.l->n && val_eq(vm, a.l->v[i], b.l->v[i]))
        i++;
    if (i < a.l->n && i < b.l->n)
        c = val_cmp(vm, a.l->v[i], b.l->v[i], op, unordered);
    else
        c = (a.l->n > b.l->n) - (a.l->n < b.l->n);
    vm_leave(vm);
    return c;
}

const char *val_type(struct val v)
{
    static const char *const names[] = {
        [V_MISSING] = "Undefined",
        [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_BIGINT] = "int",
        [V_FLOAT] = "float",
        [V_STR] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",
        [V_GENERATOR] = "generator",
        [V_DICT] = "dict",
        [V_NAMESPACE] = "Namespace",
        [V_CALLABLE] = "builtin_function_or_method",
        [V_MACRO] = "Macro",
        [V_LOOP] = "LoopContext",
        [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner",
    };
    if (v.type == V_VIEW)
        return v.l->view;
    if (v.type == V_STR && v.s->markup)
        return "Markup";
    if (v.type == V_TUPLE && v.l->group)
        return "_GroupTuple";
    if (v.type == V_GENERATOR && v.g->name)
        return v.g->name;
    if (v.type == V_CALLABLE && v.c->self.type == V_MISSING)
        return "function";
    return names[v.type];
}

bool val_indexable(struct val v)
{
    return v.type == V_LIST || v.type == V_TUPLE || v.type == V_RANGE;
}

bool val_iterable(struct val v)
{
    return v.type == V_STR || v.type == V_UNDEFINED || v.type == V_VIEW || v.type == V_GENERATOR ||
           v.type == V_DICT || v.type == V_LOOP || val_indexable(v);
}

static struct list *characters(struct vm *vm, const struct str *s)
{
    struct list *l = list_new(vm, s->n_chars);
    for (uint32_t i = 0, n; i < s->n; i += n) {
        n = (uint32_t)utf8_valid_len(s->p + i, s->n - i);
        list_push(vm, l, val_wrap(vm, s->p + i, n ? n : (n = 1)));
    }
    return l;
}

struct list *gen_run(struct vm *vm, struct gen *g)
{
    if (!g->items) {
        g->items = list_new(vm, 0); /* a generator that iterates over itself is empty */
        vm_enter(vm);
        g->items = g->run(vm, g->source, g->a, g->how).l;
        vm_leave(vm);
    }
    return g->items;
}

struct list *val_items(struct vm *vm, struct val v)
{
    struct list *l;
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.l;
    case V_STR:
        return characters(vm, v.s);
    case V_DICT:
        l = list_new(vm, v.d->n);
        for (uint32_t i = 0; i < v.d->n; i++)
            list_push(vm, l, v.d->e[i].k);
        return l;
    case V_UNDEFINED:
        return list_new(vm, 0);
    case V_GENERATOR: {
        struct list *all = gen_run(vm, v.g);
        l = VM_NEW(vm, struct list, 1);
        *l = (struct list){.n = all->n - v.g->at};
        l->v = l->n ? all->v + v.g->at : NULL;
        l->cap = l->n;
        v.g->at = all->n;
        return l;
    }
    default:
        vm_type_error(vm, "'%s' object is not iterable", val_type(v));
    }
}

/* ---------------------------------------------------------------- strings */
size_t str_byte_at(struct vm *vm, const struct str *s, uint32_t ch)
{
    if (s->n == s->n_chars || ch == 0)
        return ch;
    if (ch >= s->n_chars)
        return s->n;
    size_t at = 0;
    for (; ch > 0; ch--)
        do
            at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80);
    vm_work(vm, at * 4);
    return at;
}

struct val str_slice(struct vm *vm, struct val v, int64_t from, int64_t to)
{
    size_t a = str_byte_at(vm, v.s, (uint32_t)from);
    size_t b = to <= from ? a : str_byte_at(vm, v.s, (uint32_t)to);
    return val_markup(vm, val_wrap(vm, v.s->p + a, b - a), v.s->markup);
}
