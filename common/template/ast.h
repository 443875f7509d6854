/* ast.h - the syntax tree of a template. Allocated in the arena of `struct template`; immutable. */
#ifndef COMMON_TEMPLATE_AST_H
#define COMMON_TEMPLATE_AST_H
#include "common/arena.h"
#include "common/template/value.h"
#include "common/template/vm.h"

/* Fields used by each kind of node: */
enum node_kind {
    /* expressions */
    N_CONST,   /* v                                                                              */
    N_NAME,    /* name                                                                           */
    N_TUPLE,   /* list                                                                           */
    N_LIST,    /* list                                                                           */
    N_DICT,    /* list: key, value, key, value...                                                */
    N_AND,     /* a, b                                                                           */
    N_OR,      /* a, b                                                                           */
    N_NOT,     /* a                                                                              */
    N_NEG,     /* a; op: '-' or '+'                                                              */
    N_BINARY,  /* a, b; op: enum binary_op                                                       */
    N_CONCAT,  /* list                                                                           */
    N_COMPARE, /* a; list: right sides; ops[i]: enum compare_op                                  */
    N_COND,    /* a if b else c (NULL: undefined)                                                */
    N_ATTR,    /* a . v                                                                          */
    N_ITEM,    /* a [ b ]                                                                        */
    N_SLICE,   /* a : b : c, each may be NULL; only under N_ITEM and its tuple                   */
    N_CALL,    /* a ( call )                                                                     */
    N_FILTER,  /* a (NULL: the captured text), fn, v: its name, call                             */
    N_TEST,    /* a, fn, v: its name, call                                                       */
    N_NSREF,   /* name . v, as an assignment target                                              */
    /* statements */
    N_OUTPUT, /* list; constants are template text                                           */
    N_FOR,    /* a: target, b: iterable, c: condition or NULL, body, other: else, op: recursive */
    N_IF,     /* list: conditions; branches[i]: bodies; other: else                          */
    N_SET,    /* a: target, b: value                                                         */
    N_SET_BLOCK,  /* a: target, b: filter chain or NULL, body                                    */
    N_MACRO,      /* macro                                                                       */
    N_CALL_BLOCK, /* a: N_CALL, macro: the caller                                                */
    N_FILTER_BLOCK, /* b: filter chain, body                                                     */
    N_WITH,         /* list: target, value, target, value...; body                               */
    N_SCOPE,        /* body: a scope of its own (generation, autoescape, block)                  */
    N_BREAK,
    N_CONTINUE,
};

enum binary_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

/* A list of nodes, in the order of the source. */
struct nodes {
    struct node **v;
    uint32_t n, cap;
};

/* Arguments as written: positions, then names with their values (kw_values.n of both), then what
 * `*` and `**` expand, or NULL. */
struct call {
    struct nodes pos;
    struct nodes kw_values;
    struct val *kw_names;
    struct node *star, *star_star;
};

/* A macro. Its parameters without default come first. uses_*: its body reads `kwargs`, `varargs` or
 * `caller`, so that a call may pass more than its parameters. */
struct macro_def {
    struct val name;        /* V_NONE for the caller of a call block */
    uint32_t *params;       /* name ids */
    struct node **defaults; /* NULL: none */
    uint32_t n_params;
    bool uses_kwargs, uses_varargs, uses_caller, explicit_caller;
    struct nodes body;
};

/* One node: `kind` says above which fields are set; the others are zero. */
struct node {
    enum node_kind kind;
    uint32_t line;
    uint32_t name; /* id: index into template.names */
    int op;
    struct node *a, *b, *c;
    struct nodes list, body, other;
    union {
        uint8_t *ops;
        struct nodes *branches;
        struct call *call;
        struct macro_def *macro;
    };
    struct val v;
    const struct builtin *fn;
};

struct template
{
    struct arena mem;
    struct nodes body;
    struct str *names; /* every identifier in the template */
    uint32_t n_names;
    uint32_t id_loop, id_caller, id_kwargs, id_varargs;
};

/* Parses the source into t, whose arena is initialised; vm_fail() on errors. */
void parse_template(struct vm *vm, struct template *t, const char *src, size_t n);
#endif
