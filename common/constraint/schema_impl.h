/* schema_impl.h - private: shared by the files of the schema compiler.
 *
 * A value is described by a conjunction of schema objects, all of which the instance must satisfy.
 * Thus allOf, $ref with siblings, several matching patternProperties, and additionalProperties
 * beside an allOf are all handled in one way. */
#ifndef COMMON_CONSTRAINT_SCHEMA_IMPL_H
#define COMMON_CONSTRAINT_SCHEMA_IMPL_H
#include "common/constraint/chars.h"
#include "common/constraint/decimal.h"
#include "common/constraint/pattern.h"
#include "common/constraint/schema.h"

enum { MAX_CONJ = 64, MAX_RULES = 20000, MAX_NESTING = 500, MAX_LITERAL = 16384 };
/* Nesting levels with separate indentation, and the number of rules above which levels are
 * merged. */
enum { SCHEMA_LEVELS = 8, LEVEL_RULES = 512 };

struct conj {
    const cJSON *at[MAX_CONJ]; /* in order of discovery, without duplicates */
    /* Bit k of under[i]: at[i] is at[k], or is applied by it to the same instance, so that
     * unevaluatedProperties and unevaluatedItems of at[k] count what at[i] evaluates. */
    uint64_t under[MAX_CONJ];
    int n;
    bool never;       /* contains `false` */
    bool unevaluated; /* contains such a keyword, so that `under` is used */
};

struct schema {
    struct term_pool *p;
    const cJSON *root;
    int draft;   /* of JSON Schema, as `$schema` of the root says: 4, 6, 7, 2019 or 2020 */
    bool closed; /* keywords imply their type, and listed properties are the only ones */
    struct rule {
        const cJSON **at; /* [n], sorted by address */
        uint64_t *under;  /* [n] as in struct conj; all 0 if unused */
        int n, level;
        term t;
    } * rules;
    size_t n_rules, cap_rules;
    struct made *made; /* derived schemas: schema_made.c */
    size_t n_made, cap_made;
    bool has_ids; /* a schema below the root has an `$id` */
    int depth;
    bool failed;
    struct err *e;
    enum json_layout layout;
    int open;    /* enclosing objects and arrays */
    int level;   /* the same, at most SCHEMA_LEVELS, or merged */
    bool coarse; /* levels are merged */
    /* White space at this level: before a value or a closing bracket; after a colon. */
    term blank, colon_blank;
    term comma;     /* with optional white space after it */
    term free_char; /* a character inside a string, in any JSON spelling */
    term char_once; /* in one spelling: SPELL_JSON */
};

/* Always returns TERM_NONE. `at`: the value whose position is named; NULL: none. The first error is
 * kept. */
term schema_fail(struct schema *s, const cJSON *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
term schema_nomem(struct schema *s); /* the same where an allocation failed */
/* Adds a schema (an object or a boolean) to the conjunction. `under`: which members apply it. */
void conj_add_under(struct schema *s, struct conj *c, const cJSON *node, uint64_t under);
static inline void conj_add(struct schema *s, struct conj *c, const cJSON *node)
{
    conj_add_under(s, c, node, 0);
}
/* The text of values that satisfy all of c. */
term schema_value(struct schema *s, const struct conj *c);

/* schema.c: changes the level by `by`, and `blank` and `comma` with it. */
void schema_indent(struct schema *s, int by);

/* schema.c: `inside` between brackets with white space; returns to the outer level. */
term schema_enclosed(struct schema *s, const char *open, term inside, const char *close);

/* schema_ref.c: the target of `$ref`, `$dynamicRef` or `$recursiveRef`; NULL after an error. */
const cJSON *schema_resolve(struct schema *s, const cJSON *ref);
bool schema_has_ids(const cJSON *root, int draft); /* below the root */
int schema_draft(const cJSON *root);               /* struct schema's `draft` */

/* schema_made.c: schemas derived from others, in simpler keywords. `s` owns them, and each is
 * derived once; parts of others are included by reference. made_origin() resolves such a reference.
 * All return NULL after an error. */
enum made_kind {
    MADE_STRING,   /* any string; `of` is unused */
    MADE_OBJECT,   /* any object; `of` is unused */
    MADE_NOT,      /* instances that violate `of` */
    MADE_IF,       /* if, then, else as alternatives */
    MADE_DEPEND,   /* dependentRequired, dependentSchemas, dependencies as alternatives */
    MADE_NULLABLE, /* null, or `of` without its `nullable` */
    MADE_REF       /* the `$ref` of `of` alone */
};
cJSON *made_new(struct schema *s);
cJSON *made_ref(struct schema *s, const cJSON *node);
cJSON *made_list(struct schema *s);
void made_put(struct schema *s, cJSON *object, const char *key, cJSON *item);
void made_add(struct schema *s, cJSON *list, cJSON *item);
cJSON *made_not(struct schema *s, const cJSON *node); /* {"not": node} */
/* {key: [a, b]}; b may be NULL. */
cJSON *made_of(struct schema *s, const char *key, cJSON *a, cJSON *b);
const cJSON *made_origin(const cJSON *node);
bool is_made(const cJSON *node);
/* Keywords that only made schemas have. */
#define MADE_EXCEPT       "\001except"      /* not one of these scalars */
#define MADE_FRACTION     "\001fraction"    /* a number that is not an integer */
#define MADE_NOT_MULTIPLE "\001notMultiple" /* not a multiple of this */
#define MADE_NOT_PATTERN  "\001notPattern"
#define MADE_NOT_FORMAT   "\001notFormat"
/* {key, value}: a property that no other keyword covers satisfies this */
#define MADE_MUST "\001must"
#define MADE_FROM "\001from" /* `contains` counts items from this index on */
const cJSON *made_get(const cJSON *node, const char *key);
const cJSON *schema_made(struct schema *s, enum made_kind kind, const cJSON *of);
void schema_made_free(struct schema *s);
/* What its dialect makes of `node`: its `$ref` alone (up to draft 7), null as an alternative to it
 * (OpenAPI's `nullable`), or `node` itself. NULL after an error. */
const cJSON *schema_heeded(struct schema *s, const cJSON *node);
/* schema_not.c */
cJSON *schema_negation(struct schema *s, const cJSON *of);

/* schema_choice.c: as schema_value(), with alternatives split if c has some. */
term schema_choose(struct schema *s, const struct conj *c);

/* schema_flat.c: as schema_value(), for c without alternatives. */
term schema_flat(struct schema *s, const struct conj *c);
enum json_type {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64
};
unsigned conj_types(struct schema *s, const struct conj *c); /* types that c allows */
unsigned schema_types(struct schema *s, const cJSON *type);  /* types in a `type` keyword */
bool has_values(const cJSON *node);                          /* enum or const */
/* Is `value` one of node's values, if it has any? `own`: the list that contains `value` and need
 * not be searched; or NULL. */
bool value_allowed(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own);

/* schema_scalar.c: c is flat, without references or alternatives. */
/* TERM_NONE with `e` set. */
term schema_pattern(struct schema *s, const char *text, struct err *e);
term schema_string(struct schema *s, const struct conj *c);
term schema_number(struct schema *s, const struct conj *c, bool integer);
/* schema_number.c: decimal numbers without exponent */
struct number_bounds {
    struct decimal lo, hi;
    bool has_lo, has_hi, lo_strict, hi_strict;
};
term number_range(struct term_pool *p, const struct number_bounds *b);
term number_other(struct term_pool *p, const struct decimal *v); /* not equal to v */
/* TERM_NONE: `of` is not positive, or has too many remainders. */
term number_multiple(struct term_pool *p, const struct decimal *of);
/* schema_format.c: the inside of a string; TERM_EMPTY: a format that does not constrain text */
term schema_format(struct schema *s, const cJSON *format);
/* Whether strings that violate a format can be described, and the inside of such strings: those
 * that the format certainly excludes. Only for FORMAT_DENIABLE. */
enum format_not { FORMAT_NEVER_VIOLATED, FORMAT_NOT_DENIABLE, FORMAT_DENIABLE };
enum format_not schema_format_not(const cJSON *format);
term schema_not_format(struct schema *s, const cJSON *format);
/* schema_distinct.c: n >= 2 pairs with different keys, separated by commas; `pair` is one of them.
 * The keys differ at the first place where keys may differ, and their bytes there ascend or
 * descend: other lists of different keys are left out. TERM_NONE: there are none, or n is above
 * SCHEMA_MOST_DISTINCT. */
enum { SCHEMA_MOST_DISTINCT = 4 };
term schema_distinct(struct schema *s, term pair, uint32_t n);
/* schema_shape.c */
term schema_object(struct schema *s, const struct conj *c);
/* schema_array.c. A list: lo to hi items, separated by commas; not `first`: with a leading
 * comma. */
term schema_list(struct schema *s, term of, bool first, uint32_t lo, uint32_t hi);
term schema_array(struct schema *s, const struct conj *c);

/* A non-negative integer keyword: its maximum (minimum) over c; `def` if absent. */
uint32_t conj_bound(struct schema *s, const struct conj *c, const char *key, bool greatest,
                    uint32_t def);
/* schema_scalar.c */
term schema_quoted(struct schema *s, term inside);
static inline term lit(struct schema *s, const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    return term_bytes_of(s->p, text, n);
}
#endif
