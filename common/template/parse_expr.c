/* The parser of expressions, by precedence; see parser.h. */
#include "common/template/parser.h"
#include <string.h>

static struct node *node_of(struct parser *p, enum node_kind kind, uint32_t line, struct node *a,
                            struct node *b)
{
    struct node *n = node_new(p, kind, line);
    n->a = a;
    n->b = b;
    return n;
}

static struct node *const_node(struct parser *p, uint32_t line, struct val v)
{
    struct node *n = node_new(p, N_CONST, line);
    n->v = v;
    return n;
}

/* ---------------------------------------------------------------- primaries */
static struct node *parse_list(struct parser *p)
{
    struct node *n = node_new(p, N_LIST, parse_next(p)->line);
    while (p->tok->type != T_RBRACKET) {
        if (n->list.n)
            expect(p, T_COMMA);
        if (p->tok->type == T_RBRACKET)
            break;
        nodes_add(p, &n->list, parse_expression(p, true));
    }
    expect(p, T_RBRACKET);
    return n;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = node_new(p, N_DICT, parse_next(p)->line);
    while (p->tok->type != T_RBRACE) {
        if (n->list.n)
            expect(p, T_COMMA);
        if (p->tok->type == T_RBRACE)
            break;
        nodes_add(p, &n->list, parse_expression(p, true));
        expect(p, T_COLON);
        nodes_add(p, &n->list, parse_expression(p, true));
    }
    expect(p, T_RBRACE);
    return n;
}

static struct node *parse_name(struct parser *p, bool with_namespace)
{
    static const struct {
        const char *word;
        struct val v;
    } words[] = {
        {"true", {.type = V_BOOL, .b = true}},
        {"True", {.type = V_BOOL, .b = true}},
        {"false", {.type = V_BOOL, .b = false}},
        {"False", {.type = V_BOOL, .b = false}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    struct token *t = parse_next(p);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (tok_is(t, words[i].word))
            return const_node(p, t->line, words[i].v);
    bool ns = with_namespace && skip_type(p, T_DOT);
    struct node *n = node_new(p, ns ? N_NSREF : N_NAME, t->line);
    n->name = name_id(p, t->v);
    if (ns)
        n->v = expect(p, T_NAME)->v;
    else
        note_name(p, n->name);
    return n;
}

static struct node *parse_strings(struct parser *p) /* adjacent strings are joined, as in Python */
{
    struct token *t = parse_next(p);
    struct val v = t->v;
    if (p->tok->type == T_STRING) {
        struct strbuf b = {0};
        sb_add(p->vm, &b, v.s->p, v.s->n);
        while (p->tok->type == T_STRING) {
            struct val more = parse_next(p)->v;
            sb_add(p->vm, &b, more.s->p, more.s->n);
        }
        v = sb_val(p->vm, &b);
    }
    return const_node(p, t->line, v);
}

static struct node *parse_primary(struct parser *p, bool with_namespace)
{
    struct token *t = p->tok;
    struct node *n;
    switch (t->type) {
    case T_NAME:
        return parse_name(p, with_namespace);
    case T_STRING:
        return parse_strings(p);
    case T_INTEGER:
    case T_FLOAT:
        return const_node(p, t->line, parse_next(p)->v);
    case T_LPAREN:
        parse_next(p);
        n = parse_tuple(p, TUPLE_PARENS);
        expect(p, T_RPAREN);
        return n;
    case T_LBRACKET:
        return parse_list(p);
    case T_LBRACE:
        return parse_dict(p);
    default:
        parse_fail(p, t->line, "unexpected '%s'", tok_describe(p, t));
    }
}

/* ---------------------------------------------------------------- postfix */
static struct node *slice_part(struct parser *p)
{
    if (p->tok->type == T_RBRACKET || p->tok->type == T_COMMA || p->tok->type == T_COLON)
        return NULL;
    return parse_expression(p, true);
}

static struct node *parse_subscribed(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct node *first = NULL;
    if (p->tok->type != T_COLON) {
        first = parse_expression(p, true);
        if (p->tok->type != T_COLON)
            return first;
    }
    parse_next(p);
    struct node *n = node_of(p, N_SLICE, line, first, slice_part(p));
    if (skip_type(p, T_COLON))
        n->c = slice_part(p);
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct token *t = parse_next(p);
    struct node *n;
    if (t->type == T_DOT) {
        struct token *attr = parse_next(p);
        if (attr->type == T_NAME) {
            n = node_of(p, N_ATTR, t->line, a, NULL);
            n->v = attr->v;
            return n;
        }
        if (attr->type != T_INTEGER)
            parse_fail(p, attr->line, "expected name or number");
        return node_of(p, N_ITEM, t->line, a, const_node(p, attr->line, attr->v));
    }
    struct node *args = node_new(p, N_TUPLE, t->line);
    while (p->tok->type != T_RBRACKET) {
        if (args->list.n)
            expect(p, T_COMMA);
        nodes_add(p, &args->list, parse_subscribed(p));
    }
    expect(p, T_RBRACKET);
    return node_of(p, N_ITEM, t->line, a, args->list.n == 1 ? args->list.v[0] : args);
}

static void keyword_arg(struct parser *p, struct call *c)
{
    uint32_t n = c->kw_values.n;
    struct val name = parse_next(p)->v;
    vm_charge(p->vm, n);
    for (uint32_t i = 0; i < n; i++)
        if (val_eq(p->vm, c->kw_names[i], name))
            parse_fail(p, p->tok->line, "keyword argument repeated: %.*s", (int)name.s->n,
                       name.s->p);
    parse_next(p);
    if ((n & (n - 1)) == 0) { /* grows at powers of two */
        struct val *v = VM_NEW(p->vm, struct val, n ? n * 2 : 1);
        if (n)
            memcpy(v, c->kw_names, n * sizeof(*v));
        c->kw_names = v;
    }
    c->kw_names[n] = name;
    nodes_add(p, &c->kw_values, parse_expression(p, true));
}

static void parse_call_args(struct parser *p, struct call *c)
{
    uint32_t line = expect(p, T_LPAREN)->line;
    bool ok = true;
    for (bool first = true; p->tok->type != T_RPAREN; first = false) {
        if (!first) {
            expect(p, T_COMMA);
            if (p->tok->type == T_RPAREN)
                break;
        }
        if (skip_type(p, T_MUL)) {
            ok = !c->star && !c->star_star;
            c->star = parse_expression(p, true);
        } else if (skip_type(p, T_POW)) {
            ok = !c->star_star;
            c->star_star = parse_expression(p, true);
        } else if (p->tok->type == T_NAME && parse_look(p)->type == T_ASSIGN) {
            ok = !c->star_star;
            keyword_arg(p, c);
        } else {
            ok = !c->star && !c->star_star && !c->kw_values.n;
            nodes_add(p, &c->pos, parse_expression(p, true));
        }
        if (!ok)
            parse_fail(p, line, "invalid syntax for function call expression");
    }
    expect(p, T_RPAREN);
}

static struct node *parse_call(struct parser *p, struct node *a)
{
    struct node *n = node_of(p, N_CALL, p->tok->line, a, NULL);
    n->call = VM_NEW(p->vm, struct call, 1);
    parse_call_args(p, n->call);
    return n;
}

static struct val dotted_name(struct parser *p)
{
    struct val v = expect(p, T_NAME)->v;
    while (skip_type(p, T_DOT)) {
        struct val more = expect(p, T_NAME)->v;
        v = val_cstr(p->vm,
                     vm_printf(p->vm, "%.*s.%.*s", (int)v.s->n, v.s->p, (int)more.s->n, more.s->p));
    }
    return v;
}

static void resolve(struct parser *p, struct node *n)
{
    const struct str *s = n->v.s;
    n->fn = n->kind == N_FILTER ? filter_find(s->p, s->n) : test_find(s->p, s->n);
    if (!n->fn && !p->soft && !p->unknown)
        p->unknown = n;
}

struct node *parse_filters(struct parser *p, struct node *a, bool start_inline)
{
    while (p->tok->type == T_PIPE || start_inline) {
        if (!start_inline)
            parse_next(p);
        start_inline = false;
        struct node *n = node_of(p, N_FILTER, p->tok->line, a, NULL);
        n->v = dotted_name(p);
        n->call = VM_NEW(p->vm, struct call, 1);
        if (p->tok->type == T_LPAREN)
            parse_call_args(p, n->call);
        resolve(p, n);
        a = n;
    }
    return a;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;)
        if (p->tok->type == T_DOT || p->tok->type == T_LBRACKET)
            n = parse_subscript(p, n);
        else if (p->tok->type == T_LPAREN)
            n = parse_call(p, n);
        else
            return n;
}

static bool begins_test_argument(const struct token *t)
{
    switch (t->type) {
    case T_NAME:
        return !tok_is(t, "else") && !tok_is(t, "or") && !tok_is(t, "and");
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
    case T_LPAREN:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    default:
        return false;
    }
}

static struct node *parse_test(struct parser *p, struct node *a)
{
    uint32_t line = parse_next(p)->line;
    bool negated = skip_name(p, "not");
    struct node *n = node_of(p, N_TEST, line, a, NULL);
    n->v = dotted_name(p);
    n->call = VM_NEW(p->vm, struct call, 1);
    if (p->tok->type == T_LPAREN) {
        parse_call_args(p, n->call);
    } else if (begins_test_argument(p->tok)) {
        if (tok_is(p->tok, "is"))
            parse_fail(p, p->tok->line, "You cannot chain multiple tests with is");
        nodes_add(p, &n->call->pos, parse_postfix(p, parse_primary(p, false)));
    }
    resolve(p, n);
    return negated ? node_of(p, N_NOT, line, n, NULL) : n;
}

/* ---------------------------------------------------------------- operators, lowest precedence
 * last */
static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n;
    vm_enter(p->vm);
    uint32_t line = p->tok->line;
    if (p->tok->type == T_SUB || p->tok->type == T_ADD) {
        int op = parse_next(p)->type == T_SUB ? '-' : '+';
        n = node_of(p, N_NEG, line, parse_unary(p, false), NULL);
        n->op = op;
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    while (with_filter)
        if (p->tok->type == T_PIPE)
            n = parse_filters(p, n, false);
        else if (tok_is(p->tok, "is"))
            n = parse_test(p, n);
        else if (p->tok->type == T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    vm_leave(p->vm);
    return n;
}

static int binary_op(enum token_type t)
{
    switch (t) {
    case T_ADD:
        return OP_ADD;
    case T_SUB:
        return OP_SUB;
    case T_MUL:
        return OP_MUL;
    case T_DIV:
        return OP_DIV;
    case T_FLOORDIV:
        return OP_FLOORDIV;
    case T_MOD:
        return OP_MOD;
    case T_POW:
        return OP_POW;
    default:
        return -1;
    }
}

static struct node *binary(struct parser *p, struct node *a,
                           struct node *(*operand)(struct parser *))
{
    struct token *t = parse_next(p);
    struct node *n = node_of(p, N_BINARY, t->line, a, operand(p));
    n->op = binary_op(t->type);
    return n;
}

static struct node *filtered_unary(struct parser *p) { return parse_unary(p, true); }

static struct node *parse_pow(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (p->tok->type == T_POW)
        n = binary(p, n, filtered_unary);
    return n;
}

static struct node *parse_mul(struct parser *p)
{
    struct node *n = parse_pow(p);
    while (p->tok->type == T_MUL || p->tok->type == T_DIV || p->tok->type == T_FLOORDIV ||
           p->tok->type == T_MOD)
        n = binary(p, n, parse_pow);
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct node *n = parse_mul(p);
    if (p->tok->type != T_TILDE)
        return n;
    struct node *all = node_new(p, N_CONCAT, line);
    nodes_add(p, &all->list, n);
    while (skip_type(p, T_TILDE))
        nodes_add(p, &all->list, parse_mul(p));
    return all;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_concat(p);
    while (p->tok->type == T_ADD || p->tok->type == T_SUB)
        n = binary(p, n, parse_concat);
    return n;
}

static int compare_op(struct parser *p) /* consumes it; -1: none */
{
    static const struct {
        enum token_type t;
        enum compare_op op;
    } ops[] = {{T_EQ, CMP_EQ}, {T_NE, CMP_NE}, {T_LT, CMP_LT},
               {T_LE, CMP_LE}, {T_GT, CMP_GT}, {T_GE, CMP_GE}};
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (skip_type(p, ops[i].t))
            return ops[i].op;
    if (skip_name(p, "in"))
        return CMP_IN;
    if (tok_is(p->tok, "not") && tok_is(parse_look(p), "in")) {
        parse_next(p);
        parse_next(p);
        return CMP_NOT_IN;
    }
    return -1;
}

static struct node *parse_compare(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct node *a = parse_sum(p), *n = NULL;
    for (int op; (op = compare_op(p)) >= 0;) {
        if (!n)
            n = node_of(p, N_COMPARE, line, a, NULL);
        uint32_t k = n->list.n;
        if ((k & (k - 1)) == 0) {
            uint8_t *v = VM_NEW(p->vm, uint8_t, k ? k * 2 : 1);
            if (k)
                memcpy(v, n->ops, k);
            n->ops = v;
        }
        n->ops[k] = (uint8_t)op;
        nodes_add(p, &n->list, parse_sum(p));
    }
    return n ? n : a;
}

static struct node *parse_not(struct parser *p)
{
    if (!tok_is(p->tok, "not"))
        return parse_compare(p);
    uint32_t line = parse_next(p)->line;
    vm_enter(p->vm);
    struct node *n = node_of(p, N_NOT, line, parse_not(p), NULL);
    vm_leave(p->vm);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (tok_is(p->tok, "and")) {
        uint32_t line = parse_next(p)->line;
        n = node_of(p, N_AND, line, n, parse_not(p));
    }
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (tok_is(p->tok, "or")) {
        uint32_t line = parse_next(p)->line;
        n = node_of(p, N_OR, line, n, parse_and(p));
    }
    return n;
}

struct node *parse_expression(struct parser *p, bool with_cond)
{
    vm_enter(p->vm);
    struct node *unknown = p->unknown;
    struct node *n = parse_or(p);
    while (with_cond && tok_is(p->tok, "if")) {
        uint32_t line = parse_next(p)->line;
        p->unknown = unknown; /* unknown filters inside a conditional fail only when executed */
        p->soft++;
        n = node_of(p, N_COND, line, n, parse_or(p));
        if (skip_name(p, "else"))
            n->c = parse_expression(p, true);
        p->soft--;
    }
    vm_leave(p->vm);
    return n;
}

static bool tuple_ends(struct parser *p, int mode)
{
    switch (p->tok->type) {
    case T_VARIABLE_END:
    case T_BLOCK_END:
    case T_RPAREN:
        return true;
    default:
        return ((mode & TUPLE_END_IN) && tok_is(p->tok, "in")) ||
               ((mode & TUPLE_END_RECURSIVE) && tok_is(p->tok, "recursive"));
    }
}

struct node *parse_tuple(struct parser *p, int mode)
{
    struct node *n = node_new(p, N_TUPLE, p->tok->line);
    bool is_tuple = false;
    for (;;) {
        if (n->list.n)
            expect(p, T_COMMA);
        if (tuple_ends(p, mode))
            break;
        nodes_add(p, &n->list,
                  mode & TUPLE_PRIMARIES ? parse_primary(p, mode & TUPLE_NAMESPACES)
                                         : parse_expression(p, !(mode & TUPLE_NO_COND)));
        if (p->tok->type != T_COMMA)
            break;
        is_tuple = true;
    }
    if (!is_tuple && n->list.n)
        return n->list.v[0];
    if (!is_tuple && !(mode & TUPLE_PARENS))
        parse_fail(p, p->tok->line, "Expected an expression, got '%s'", tok_describe(p, p->tok));
    return n;
}
