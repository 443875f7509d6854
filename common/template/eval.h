/* eval.h - the tree walker: expressions (eval.c), statements and scopes (exec.c), calls (call.c).
 */
#ifndef COMMON_TEMPLATE_EVAL_H
#define COMMON_TEMPLATE_EVAL_H
#include "common/template/ast.h"

struct binding {
    uint32_t name;
    struct val v;
};
/* Names set in a loop body, a macro or a with-block: they shadow outer ones and end with the scope.
 * A macro keeps its defining scope, which is then `captured` and not reused. */
struct scope {
    struct scope *parent; /* NULL: the global scope, vm->root */
    struct binding *b;
    uint32_t n, cap;
    bool captured;
};

struct macro {
    const struct macro_def *def;
    struct scope *scope;
    bool autoescape; /* that of its definition */
};

/* The `loop` object. Items that a loop filter may drop stay in `source` until needed, so that the
 * filter sees the effects of earlier iterations. */
struct loop {
    const struct node *node;
    struct scope *outer;
    struct list *ready, *source;
    uint32_t taken; /* of source */
    uint32_t turn;  /* iteration, from 0 */
    uint32_t depth; /* from 0 */
    struct list *changed;
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

/* Values live in the arena of `vm`. Errors leave by vm_fail(): none of these returns one. */

/* The value of an expression. */
struct val eval(struct vm *vm, const struct node *n);
/* `text` through a chain of filters. */
struct val eval_filters(struct vm *vm, const struct node *chain, struct val text);
/* Evaluates the arguments of a call, with * and ** unpacked. */
void eval_args(struct vm *vm, const struct call *c, struct args *a);

/* Runs statements. They write to the output, or end early by break and continue. */
enum flow exec(struct vm *vm, const struct nodes *body);
/* Runs statements in scope `s`, and returns what they write. */
struct val exec_captured(struct vm *vm, const struct nodes *body, struct scope *s);
/* Names are ids of name_id(). */
struct scope *scope_new(struct vm *vm, struct scope *parent);
void scope_set(struct vm *vm, struct scope *s, uint32_t name, struct val v);
struct val scope_get(struct vm *vm, uint32_t name); /* V_MISSING: unset */

/* A macro as a value; its scope is the current one. */
struct val macro_new(struct vm *vm, const struct macro_def *def);
struct val macro_attr(struct vm *vm, struct val m, const char *name,
                      size_t n); /* V_MISSING: none */
struct val loop_attr(struct vm *vm, struct val l, const char *name, size_t n);
struct val loop_changed(struct vm *vm, struct val self, const struct args *a);
uint32_t loop_length(struct vm *vm, struct loop *l);
struct val loop_recurse(struct vm *vm, struct loop *l, struct val iterable);
#endif
