/* value.h - the values a template computes with: Python's, as far as a chat template can see them.
 *
 * A value is 16 bytes passed by copy; what it points to lives in the arena of the render (or of the
 * compiled template, for constants) and is never changed after it was built, because the sandbox
 * forbids mutation. Two exceptions: a namespace's attributes and the position of a generator.
 *
 * Strings are valid UTF-8; lengths, indices and slices count code points, as in Python.
 * Integers that do not fit 64 bits are kept as their decimal digits; see bigint.h. */
#ifndef COMMON_TEMPLATE_VALUE_H
#define COMMON_TEMPLATE_VALUE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm;
struct args;

enum vtype {
    V_MISSING, /* no value at all: an argument not given, an unset name */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIGINT, /* decimal digits in `s` */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW, /* dict_keys, dict_values, dict_items */
    V_GENERATOR,
    V_DICT,
    V_NAMESPACE,
    V_CALLABLE,
    V_MACRO,
    V_LOOP,
    V_CYCLER,
    V_JOINER,
};

struct val {
    enum vtype type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s;
        struct list *l; /* list, tuple, range, view */
        struct dict *d; /* dict, namespace */
        struct gen *g;
        const struct undef *u;
        const struct callable *c;
        const struct macro *m;
        struct loop *loop;
        struct cycler *cycler; /* cycler, joiner */
    };
};

struct str {
    const char *p; /* n bytes, not terminated */
    uint32_t n, n_chars;
    bool markup; /* markupsafe.Markup: concatenation escapes the other side */
};

struct list {
    struct val *v;
    uint32_t n, cap;
    const char *view;          /* V_VIEW: Python's type name */
    int64_t start, stop, step; /* V_RANGE: as written */
    bool group;                /* V_TUPLE: has .grouper and .list */
};

struct entry {
    struct val k, v;
    uint64_t hash;
};
struct dict { /* insertion order; entries are never removed */
    struct entry *e;
    uint32_t n, cap;
    uint32_t *index; /* open addressing, entry number + 1; NULL while small */
    uint32_t mask;
};

/* A generator runs on first use, all of it, and then gives each item once. */
struct gen {
    struct val (*run)(struct vm *, struct val source, const struct args *a, int how);
    struct val source;
    const struct args *a;
    int how;
    struct list *items; /* NULL: not run yet */
    uint32_t at;
    const char *name; /* Python's type name when it is no generator ("list_reverseiterator") */
};

struct undef {
    const char *hint; /* the whole message, or NULL */
    struct val obj;   /* V_MISSING: a plain name */
    struct val name;
    bool security;
};

struct builtin;
struct callable {
    const struct builtin *fn;
    struct val self; /* V_MISSING for functions */
};

struct cycler { /* also joiner: v.n is 1 and `at` tells whether it was used */
    struct list *v;
    uint32_t at;
};

/* ---- making */
#define NONE_VALUE ((struct val){.type = V_NONE})
#define MISSING    ((struct val){.type = V_MISSING})
static inline struct val val_bool(bool b) { return (struct val){.type = V_BOOL, .b = b}; }
static inline struct val val_int(int64_t i) { return (struct val){.type = V_INT, .i = i}; }
static inline struct val val_float(double f) { return (struct val){.type = V_FLOAT, .f = f}; }
static inline struct val val_list(enum vtype t, struct list *l)
{
    return (struct val){.type = t, .l = l};
}
static inline struct val val_dict(struct dict *d) { return (struct val){.type = V_DICT, .d = d}; }

struct val val_str(struct vm *vm, const char *p, size_t n);  /* copies */
struct val val_cstr(struct vm *vm, const char *s);           /* `s` must outlive the render */
struct val val_wrap(struct vm *vm, const char *p, size_t n); /* keeps p, which lives in the arena */
struct val val_markup(struct vm *vm, struct val s, bool markup);
struct val val_undefined(struct vm *vm, const char *hint, struct val obj, struct val name);
struct val val_unsafe(struct vm *vm, struct val obj, const char *attr, size_t n);

struct list *list_new(struct vm *vm, uint32_t cap);
void list_push(struct vm *vm, struct list *l, struct val v);
struct val val_pair(struct vm *vm, struct val a, struct val b); /* a tuple */

struct dict *dict_new(struct vm *vm);
void dict_set(struct vm *vm, struct dict *d, struct val k, struct val v);
const struct val *dict_get(struct vm *vm, const struct dict *d, struct val k); /* NULL: absent */
const struct val *dict_find(struct vm *vm, const struct dict *d, const char *k, size_t n);

/* ---- asking */
bool val_truthy(struct vm *vm, struct val v);
bool val_eq(struct vm *vm, struct val a, struct val b);
/* <0, 0, >0; fails with Python's TypeError for values that have no order. `op` names the operator
 * in it. Not-a-number compares false with everything: *unordered is set. */
int val_cmp(struct vm *vm, struct val a, struct val b, const char *op, bool *unordered);
const char *val_type(struct val v);                  /* Python's type(v).__name__ */
bool val_is(struct val v, const char *s);            /* a string equal to s */
bool val_is_number(struct val v, double *as_double); /* bool, int, float */
bool val_as_int(struct val v, int64_t *i);           /* bool or int */
bool val_indexable(struct val v);                    /* list, tuple, range */
bool val_iterable(struct val v);
/* The items one by one, in Python's order: characters of a string, keys of a dict. A fresh list or
 * the value's own; do not write. Empties a generator. */
struct list *val_items(struct vm *vm, struct val v);
struct list *gen_run(struct vm *vm,
                     struct gen *g);             /* all its items; g->at tells how many are taken */
int64_t val_length(struct vm *vm, struct val v); /* len(v) or Python's TypeError */

/* ---- strings */
size_t str_byte_at(struct vm *vm, const struct str *s,
                   uint32_t ch); /* byte offset of a character */
struct val str_slice(struct vm *vm, struct val v, int64_t from,
                     int64_t to); /* 0 <= from, to <= n */
#endif
