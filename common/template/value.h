/* value.h - template values: Python's types, as far as a chat template can use them.
 *
 * A value is 16 bytes and copied. Its data lives in the arena of the render (or of the compiled
 * template, for constants) and is immutable once built, because the sandbox forbids mutation. Two
 * exceptions: attributes of a namespace, and the position of a generator.
 *
 * Strings are valid UTF-8; lengths, indices and slices count code points, as in Python. Integers
 * beyond 64 bits are stored as decimal digits; see bigint.h. */
#ifndef COMMON_TEMPLATE_VALUE_H
#define COMMON_TEMPLATE_VALUE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm;
struct args;

/* Types of Python and of Jinja's runtime. */
enum vtype {
    V_MISSING, /* no value: an argument not given, an unset name */
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
    bool markup; /* markupsafe.Markup: concatenation escapes the other operand */
};

struct list {
    struct val *v;
    uint32_t n, cap;
    const char *view;          /* V_VIEW: Python's type name */
    int64_t start, stop, step; /* V_RANGE: as written */
    bool group;                /* V_TUPLE: has .grouper and .list */
};

/* A key with its value; `hash` is that of the key: equal keys have equal hashes. */
struct entry {
    struct val k, v;
    uint64_t hash;
};
struct dict { /* in insertion order; entries are never removed */
    struct entry *e;
    uint32_t n, cap;
    uint32_t *index; /* open addressing, entry index + 1; NULL while small */
    uint32_t mask;
};

/* A generator is evaluated completely on first use, and then yields each item once. */
struct gen {
    struct val (*run)(struct vm *, struct val source, const struct args *a, int how);
    struct val source;
    const struct args *a;
    int how;
    struct list *items; /* NULL: not run yet */
    uint32_t at;
    const char *name; /* Python's type name if it is not "generator" ("list_reverseiterator") */
};

/* A missing variable or attribute. What uses it fails with `hint`, or with a message that is made
 * of the other two. security: the sandbox hides the attribute. */
struct undef {
    const char *hint; /* the whole message, or NULL */
    struct val obj;   /* V_MISSING: a plain name */
    struct val name;
    bool security;
};

struct builtin;
/* A function, or a method bound to `self`. */
struct callable {
    const struct builtin *fn;
    struct val self; /* V_MISSING for functions */
};

/* Also a joiner, whose v->n is 1: `at` is then 1 after its first use. */
struct cycler {
    struct list *v;
    uint32_t at;
};

/* ---- constructors */
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

struct val val_str(struct vm *vm, const char *p, size_t n); /* copies */
struct val val_cstr(struct vm *vm, const char *s);          /* `s` must outlive the render */
/* keeps p, which must be in the arena */
struct val val_wrap(struct vm *vm, const char *p, size_t n);
struct val val_markup(struct vm *vm, struct val s, bool markup);
struct val val_undefined(struct vm *vm, const char *hint, struct val obj, struct val name);
struct val val_unsafe(struct vm *vm, struct val obj, const char *attr, size_t n);

/* An empty list with room for `cap` elements. */
struct list *list_new(struct vm *vm, uint32_t cap);
/* Only while the list is being built. Out of memory, and beyond the limit of the render: vm_fail(),
 * as in all of these. */
void list_push(struct vm *vm, struct list *l, struct val v);
struct val val_pair(struct vm *vm, struct val a, struct val b); /* a tuple */

struct dict *dict_new(struct vm *vm);
/* Adds a key, or replaces its value; a key that has no hash in Python fails. */
void dict_set(struct vm *vm, struct dict *d, struct val k, struct val v);
const struct val *dict_get(struct vm *vm, const struct dict *d, struct val k); /* NULL: absent */
const struct val *dict_find(struct vm *vm, const struct dict *d, const char *k, size_t n);

/* ---- queries */
bool val_truthy(struct vm *vm, struct val v);
bool val_eq(struct vm *vm, struct val a, struct val b); /* a == b: 1, 1.0 and True are equal */
/* <0, 0, >0; fails with Python's TypeError for unordered types. `op` is the operator in its
 * message. Comparisons with NaN are false: *unordered is set. */
int val_cmp(struct vm *vm, struct val a, struct val b, const char *op, bool *unordered);
const char *val_type(struct val v);                  /* Python's type(v).__name__ */
bool val_is(struct val v, const char *s);            /* a string equal to s */
bool val_is_number(struct val v, double *as_double); /* bool, int, float */
bool val_as_int(struct val v, int64_t *i);           /* bool or int */
bool val_indexable(struct val v);                    /* list, tuple, range */
bool val_iterable(struct val v);
/* The items in Python's order: characters of a string, keys of a dict. A new list or the value's
 * own: read only. Consumes a generator. */
struct list *val_items(struct vm *vm, struct val v);
/* all its items; g->at: how many are consumed */
struct list *gen_run(struct vm *vm, struct gen *g);
int64_t val_length(struct vm *vm, struct val v); /* len(v) or Python's TypeError */

/* ---- strings */
size_t str_byte_at(struct vm *vm, const struct str *s,
                   uint32_t ch); /* byte offset of a character */
struct val str_slice(struct vm *vm, struct val v, int64_t from,
                     int64_t to); /* 0 <= from, to <= n */
#endif
