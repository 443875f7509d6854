#include "common/template/parser.h"
#include <string.h>

/* ---------------------------------------------------------------- tokens */
bool tok_is(const struct token *t, const char *name)
{
    return t->type == T_NAME && val_is(t->v, name);
}

struct token *parse_next(struct parser *p)
{
    struct token *t = p->tok;
    if (t->type != T_EOF)
        p->tok = &p->tokens.v[++p->at];
    return t;
}

struct token *parse_look(struct parser *p) { return p->tok->type == T_EOF ? p->tok : p->tok + 1; }

bool skip_type(struct parser *p, enum token_type t)
{
    if (p->tok->type != t)
        return false;
    parse_next(p);
    return true;
}

bool skip_name(struct parser *p, const char *name)
{
    if (!tok_is(p->tok, name))
        return false;
    parse_next(p);
    return true;
}

const char *tok_describe(struct parser *p, const struct token *t)
{
    if (t->type != T_NAME)
        return token_name(t->type);
    return vm_printf(p->vm, "%.*s", (int)(t->v.s->n < 80 ? t->v.s->n : 80), t->v.s->p);
}

struct token *expect(struct parser *p, enum token_type t)
{
    if (p->tok->type == t)
        return parse_next(p);
    if (p->tok->type == T_EOF)
        parse_fail(p, p->tok->line, "unexpected end of template, expected '%s'.", token_name(t));
    parse_fail(p, p->tok->line, "expected token '%s', got '%s'", token_name(t),
               tok_describe(p, p->tok));
}

/* ---------------------------------------------------------------- nodes */
struct node *node_new(struct parser *p, enum node_kind kind, uint32_t line)
{
    struct node *n = VM_NEW(p->vm, struct node, 1);
    n->kind = kind;
    n->line = line;
    return n;
}

void nodes_add(struct parser *p, struct nodes *l, struct node *n)
{
    if (l->n == l->cap)
        l->v = vm_grow(p->vm, l->v, l->n, &l->cap, 4, sizeof(struct node *));
    l->v[l->n++] = n;
}

void note_name(struct parser *p, uint32_t id)
{
    for (struct macro_scope *m = p->macro; m; m = m->outer) {
        m->def->uses_caller |= id == p->t->id_caller;
        m->def->uses_kwargs |= id == p->t->id_kwargs;
        m->def->uses_varargs |= id == p->t->id_varargs;
    }
}
