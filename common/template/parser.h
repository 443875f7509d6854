/* parser.h - private: shared by the two halves of the parser (statements, expressions). Recursive
 * descent over the token list, with Jinja's grammar, precedence and messages. */
#ifndef COMMON_TEMPLATE_PARSER_H
#define COMMON_TEMPLATE_PARSER_H
#include "common/template/ast.h"
#include "common/template/lexer.h"

struct macro_scope { /* the macro whose body is being parsed */
    struct macro_def *def;
    struct macro_scope *outer;
};

struct parser {
    struct vm *vm;
    struct template *t;
    struct tokens tokens;
    uint32_t at;
    struct token *tok; /* &tokens.v[at] */
    struct dict *ids;  /* identifier -> id */
    struct macro_scope *macro;
    /* inside a branch, where an unknown filter is an error only when executed */
    int soft;
    struct node *unknown; /* the first unknown filter or test outside a branch */
    int loops;
    struct open_tag *open; /* innermost last, for messages about missing end tags */
};

#define parse_fail(p, at_line, ...)                                                                \
    ((p)->vm->line = (at_line), vm_fail((p)->vm, FAULT_SYNTAX, __VA_ARGS__))

struct token *parse_next(struct parser *p);           /* the current token; advances */
struct token *parse_look(struct parser *p);           /* the token after the current one */
bool tok_is(const struct token *t, const char *name); /* a name token with this text */
bool skip_type(struct parser *p, enum token_type t);
bool skip_name(struct parser *p, const char *name);
struct token *expect(struct parser *p, enum token_type t);
const char *tok_describe(struct parser *p, const struct token *t);

/* Nodes and lists live in the arena. The parser fails by a jump, not by a result. */
struct node *node_new(struct parser *p, enum node_kind kind, uint32_t line);
void nodes_add(struct parser *p, struct nodes *l, struct node *n);
/* The number of a name: equal names have one. */
uint32_t name_id(struct parser *p, struct val name);
void note_name(struct parser *p, uint32_t id); /* records the use in the enclosing macros */

/* How a comma-separated list is parsed. */
enum tuple_mode {
    TUPLE_FULL = 0,
    TUPLE_PRIMARIES = 1,  /* assignment targets */
    TUPLE_NO_COND = 2,    /* no `a if b` */
    TUPLE_PARENS = 4,     /* may be empty */
    TUPLE_NAMESPACES = 8, /* ns.attr is a target */
    TUPLE_END_IN = 16,
    TUPLE_END_RECURSIVE = 32,
};
/* From the current token on; `mode`: a sum of these. */
struct node *parse_tuple(struct parser *p, int mode);
/* `with_cond`: `a if b else c` is allowed. */
struct node *parse_expression(struct parser *p, bool with_cond);
/* The filters after `n`. `start_inline`: the first one stands without its | (as after
 * `filter`). */
struct node *parse_filters(struct parser *p, struct node *n, bool start_inline);
#endif
