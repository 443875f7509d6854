/* schema_impl.h - what the files of the schema compiler share.
 *
 * A value is described by a conjunction of schema objects: the instance must satisfy each. That is
 * what allOf, $ref with siblings, a property that several patterns match, and additionalProperties
 * beside an allOf come down to, so that there is one way through all of them. */
#ifndef COMMON_CONSTRAINT_SCHEMA_IMPL_H
#define COMMON_CONSTRAINT_SCHEMA_IMPL_H
#include "common/constraint/chars.h"
#include "common/constraint/pattern.h"
#include "common/constraint/schema.h"

enum { MAX_CONJ = 64, MAX_RULES = 20000, MAX_NESTING = 500, MAX_LITERAL = 16384 };
/* Levels whose indentation is told apart, and rules from which on no more levels are told apart. */
enum { SCHEMA_LEVELS = 8, LEVEL_RULES = 512 };

struct conj {
    const cJSON *at[MAX_CONJ]; /* in the order they were met, each once */
    int n;
    bool never; /* `false` is among them */
};

struct schema {
    struct term_pool *p;
    const cJSON *root;
    struct rule {
        struct conj c; /* sorted by address */
        int level;
        term t;
    } * rules;
    size_t n_rules, cap_rules;
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
/* Adds a schema (an object or a boolean) to the conjunction. */
void conj_add(struct schema *s, struct conj *c, const cJSON *node);
/* The text of the values that satisfy all of c. */
term schema_value(struct schema *s, const struct conj *c);

/* schema.c: what follows is `by` levels deeper: `blank` and `comma` are that level's. */
void schema_indent(struct schema *s, int by);

/* schema.c: the inside between its brackets, with white space; one level up again. */
term schema_enclosed(struct schema *s, const char *open, term inside, const char *close);

/* schema_conj.c: what `$ref` names; NULL after an error. */
const cJSON *schema_resolve(struct schema *s, const cJSON *ref);

/* schema_choice.c: the alternatives that were not chosen from yet, from number `from` on: 2 i is
 * the anyOf of c->at[i], 2 i + 1 its oneOf. */
term schema_choose(struct schema *s, const struct conj *c, int from);

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
bool has_values(const cJSON *node);                          /* enum or const */
/* `value` is one of node's values, if it has any. `own`: the list that `value` is of, which need
 * not be searched; or NULL. */
bool value_allowed(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own);

/* schema_scalar.c: c is flat, without references and alternatives. */
term schema_string(struct schema *s, const struct conj *c);
term schema_number(struct schema *s, const struct conj *c, bool integer);
/* schema_number_range.c: decimal texts without exponent */
term number_range(struct term_pool *p, double lo, bool lo_strict, double hi, bool hi_strict);
term number_multiple(struct term_pool *p, uint32_t of); /* integers */
/* schema_format.c: the inside of a string; TERM_EMPTY: a format without meaning for texts */
term schema_format(struct schema *s, const cJSON *format);
/* schema_shape.c */
term schema_object(struct schema *s, const struct conj *c);
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
