/* schema_impl.h - what the files of the schema compiler share.
 *
 * A value is described by a conjunction of schema objects: the instance must satisfy each. That is
 * what allOf, $ref with siblings, a property that several patterns match, and additionalProperties
 * beside an allOf come down to, so that there is one way through all of them. */
#ifndef COMMON_CONSTRAINT_SCHEMA_IMPL_H
#define COMMON_CONSTRAINT_SCHEMA_IMPL_H
#include "common/constraint/chars.h"
#include "common/constraint/decimal.h"
#include "common/constraint/pattern.h"
#include "common/constraint/schema.h"

enum { MAX_CONJ = 64, MAX_RULES = 20000, MAX_NESTING = 500, MAX_LITERAL = 16384 };
/* Levels whose indentation is told apart, and rules from which on no more levels are told apart. */
enum { SCHEMA_LEVELS = 8, LEVEL_RULES = 512 };

struct conj {
    const cJSON *at[MAX_CONJ]; /* in the order they were met, each once */
    /* Bit k of under[i]: at[i] is at[k], or applies to the same instance on its behalf, so that
     * at[k]'s unevaluatedProperties and unevaluatedItems know what at[i] evaluates. */
    uint64_t under[MAX_CONJ];
    int n;
    bool never;       /* `false` is among them */
    bool unevaluated; /* one of them has such a keyword, so that `under` matters */
};

struct schema {
    struct term_pool *p;
    const cJSON *root;
    bool closed; /* keywords imply their type, and who lists properties allows no others */
    struct rule {
        const cJSON **at; /* [n], sorted by address */
        uint64_t *under;  /* [n] as in struct conj; all 0 where it does not matter */
        int n, level;
        term t;
    } * rules;
    size_t n_rules, cap_rules;
    struct made *made; /* schemas made of others: schema_made.c */
    size_t n_made, cap_made;
    bool has_ids; /* a schema below the root has an `$id` */
    int depth;
    bool failed;
    struct err *e;
    enum json_layout layout;
    int open;    /* objects and arrays around what is compiled */
    int level;   /* the same; SCHEMA_LEVELS: that many or more, or not told apart */
    bool coarse; /* levels are not told apart any more */
    /* White space on the level: in front of a value or a closing bracket; behind a colon. */
    term blank, colon_blank;
    term comma;     /* and what white space may follow */
    term free_char; /* a character inside a string, in any of JSON's ways to write it */
    term char_once; /* in one way only: SPELL_JSON */
};

/* Always TERM_NONE. `at`: the value whose place is named; NULL: none. The first error stays. */
term schema_fail(struct schema *s, const cJSON *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a schema (an object or a boolean) to the conjunction. `under`: on behalf of which. */
void conj_add_under(struct schema *s, struct conj *c, const cJSON *node, uint64_t under);
static inline void conj_add(struct schema *s, struct conj *c, const cJSON *node)
{
    conj_add_under(s, c, node, 0);
}
/* The text of the values that satisfy all of c. */
term schema_value(struct schema *s, const struct conj *c);

/* schema.c: what follows is `by` levels deeper: `blank` and `comma` are that level's. */
void schema_indent(struct schema *s, int by);

/* schema.c: the inside between its brackets, with white space; one level up again. */
term schema_enclosed(struct schema *s, const char *open, term inside, const char *close);

/* schema_ref.c: what `$ref` or `$dynamicRef` names; NULL after an error. */
const cJSON *schema_resolve(struct schema *s, const cJSON *ref);
bool schema_has_ids(const cJSON *root); /* below the root */

/* schema_made.c: schemas that say in simpler keywords what others say. They belong to `s`, and each
 * is made once; what they take of others is there by reference. made_origin() is what a reference
 * stands for. All answer NULL after an error. */
enum made_kind {
    MADE_STRING,  /* any string; `of` is not looked at */
    MADE_OBJECT,  /* any object; likewise */
    MADE_NOT,     /* instances that `of` refuses */
    MADE_IF,      /* if, then, else as alternatives */
    MADE_DEPEND,  /* dependentRequired, dependentSchemas, dependencies as alternatives */
    MADE_NULLABLE /* null, or `of` without its `nullable` */
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
#define MADE_EXCEPT       "\001except"      /* none of these scalars */
#define MADE_FRACTION     "\001fraction"    /* a number that is no integer */
#define MADE_NOT_MULTIPLE "\001notMultiple" /* no multiple of this */
#define MADE_NOT_PATTERN  "\001notPattern"
#define MADE_MUST         "\001must" /* {key, value}: a property that no keyword names is like that */
#define MADE_FROM         "\001from" /* `contains` counts items from this one on */
const cJSON *made_get(const cJSON *node, const char *key);
const cJSON *schema_made(struct schema *s, enum made_kind kind, const cJSON *of);
void schema_made_free(struct schema *s);
/* schema_not.c */
cJSON *schema_negation(struct schema *s, const cJSON *of);

/* schema_choice.c: the same, which is one of alternatives where c has some. */
term schema_choose(struct schema *s, const struct conj *c);

/* schema_flat.c: the text of the values of c, in which no alternatives are left. */
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
unsigned conj_types(struct schema *s, const struct conj *c); /* that c allows */
unsigned schema_types(struct schema *s, const cJSON *type);  /* the value of `type` */
bool has_values(const cJSON *node);                          /* enum or const */
/* `value` is one of node's values, if it has any. `own`: the list that `value` is of, which need
 * not be searched; or NULL. */
bool value_allowed(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own);

/* schema_scalar.c: c is flat, without references and alternatives. */
term schema_inside(struct schema *s, const struct conj *c); /* of a string's quotes */
/* TERM_NONE with `e` set. */
term schema_pattern(struct schema *s, const char *text, struct err *e);
term schema_string(struct schema *s, const struct conj *c);
term schema_number(struct schema *s, const struct conj *c, bool integer);
/* schema_number.c: decimal texts without exponent */
struct number_bounds {
    struct decimal lo, hi;
    bool has_lo, has_hi, lo_strict, hi_strict;
};
term number_range(struct term_pool *p, const struct number_bounds *b);
term number_other(struct term_pool *p, const struct decimal *v); /* not equal to v */
/* TERM_NONE: `of` is not above 0, or has too many remainders. */
term number_multiple(struct term_pool *p, const struct decimal *of);
/* schema_format.c: the inside of a string; TERM_EMPTY: a format without meaning for texts */
term schema_format(struct schema *s, const cJSON *format);
/* schema_shape.c */
term schema_object(struct schema *s, const struct conj *c);
/* schema_array.c. The list: lo to hi of `of`, a comma between; not `first`: one in front, too. */
term schema_list(struct schema *s, term of, bool first, uint32_t lo, uint32_t hi);
term schema_array(struct schema *s, const struct conj *c);

/* A non-negative integer keyword: the greatest (least) over c; `def` where none has it. */
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
