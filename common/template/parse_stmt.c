/* The parser of statements and templates; see parser.h. */
#include "common/template/parser.h"
#include <string.h>

struct open_tag { /* an open statement */
    const char *name, *const *ends;
    struct open_tag *outer;
};

uint32_t name_id(struct parser *p, struct val name)
{
    const struct val *known = dict_get(p->vm, p->ids, name);
    if (known)
        return (uint32_t)known->i;
    dict_set(p->vm, p->ids, name, val_int(p->ids->n));
    return p->ids->n - 1;
}

/* ---------------------------------------------------------------- bodies */
static const char *looked_for(struct parser *p) /* " Jinja was looking for ... " */
{
    struct strbuf b = {0};
    if (!p->open)
        return "";
    sb_str(p->vm, &b, " Jinja was looking for the following tags: ");
    for (const char *const *end = p->open->ends; *end; end++)
        sb_fmt(p->vm, &b, "%s'%s'", end == p->open->ends ? "" : " or ", *end);
    sb_fmt(p->vm, &b, ". The innermost block that needs to be closed is '%s'.", p->open->name);
    sb_ch(p->vm, &b, 0);
    return b.p;
}

static struct node *parse_statement(struct parser *p);

static bool at_end_tag(struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (tok_is(p->tok, *ends))
            return true;
    return false;
}

static void subparse(struct parser *p, struct nodes *body, const char *const *ends)
{
    struct node *out = NULL;
    while (p->tok->type != T_EOF) {
        struct token *t = p->tok;
        if (t->type == T_DATA || t->type == T_VARIABLE_BEGIN) {
            if (!out)
                nodes_add(p, body, out = node_new(p, N_OUTPUT, t->line));
            parse_next(p);
            struct node *n;
            if (t->type == T_DATA) {
                n = node_new(p, N_CONST, t->line);
                n->op = 1; /* literal template text is never escaped */
                n->v = t->v;
            } else {
                n = parse_tuple(p, TUPLE_FULL);
                expect(p, T_VARIABLE_END);
            }
            nodes_add(p, &out->list, n);
        } else {
            out = NULL;
            expect(p, T_BLOCK_BEGIN);
            if (at_end_tag(p, ends))
                return;
            struct node *n = parse_statement(p);
            if (n)
                nodes_add(p, body, n);
            expect(p, T_BLOCK_END);
        }
    }
}

/* Parses the body of a statement up to one of `ends`, which stays the current token. */
static void parse_body(struct parser *p, struct nodes *body, const char *name,
                       const char *const *ends)
{
    struct open_tag open = {name, ends, p->open};
    skip_type(p, T_COLON);
    expect(p, T_BLOCK_END);
    p->open = &open;
    subparse(p, body, ends);
    if (p->tok->type == T_EOF)
        parse_fail(p, p->tok->line, "Unexpected end of template.%s", looked_for(p));
    p->open = open.outer;
}

/* A body with a frame of its own: unknown filters in it are errors again. */
static void parse_hard_body(struct parser *p, struct nodes *body, const char *name,
                            const char *const *ends)
{
    int soft = p->soft;
    p->soft = 0;
    parse_body(p, body, name, ends);
    p->soft = soft;
    if (!ends[1])
        parse_next(p);
}

static const char *const *only(struct parser *p, const char *end)
{
    const char **v = VM_NEW(p->vm, const char *, 2);
    v[0] = end;
    return v;
}

/* ---------------------------------------------------------------- targets */
static void check_target(struct parser *p, struct node *n)
{
    static const char *const names[] = {[N_CONST] = "const", [N_LIST] = "list", [N_DICT] = "dict"};
    if (n->kind == N_TUPLE) {
        vm_enter(p->vm);
        for (uint32_t i = 0; i < n->list.n; i++)
            check_target(p, n->list.v[i]);
        vm_leave(p->vm);
    } else if (n->kind != N_NAME && n->kind != N_NSREF) {
        bool named = n->kind < sizeof(names) / sizeof(*names) && names[n->kind];
        parse_fail(p, n->line, "can't assign to '%s'", named ? names[n->kind] : "expression");
    }
}

static struct node *parse_target(struct parser *p, int mode)
{
    struct node *n = parse_tuple(p, TUPLE_PRIMARIES | mode);
    check_target(p, n);
    return n;
}

/* ---------------------------------------------------------------- statements */
static struct node *parse_for(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct node *n = node_new(p, N_FOR, line);
    n->a = parse_target(p, TUPLE_END_IN);
    if (!skip_name(p, "in"))
        parse_fail(p, p->tok->line, "expected token 'in', got '%s'", tok_describe(p, p->tok));
    n->b = parse_tuple(p, TUPLE_NO_COND | TUPLE_END_RECURSIVE);
    if (skip_name(p, "if"))
        n->c = parse_expression(p, true);
    n->op = skip_name(p, "recursive");
    p->loops++;
    parse_hard_body(p, &n->body, "for", ends);
    p->loops--;
    if (tok_is(parse_next(p), "else"))
        parse_hard_body(p, &n->other, "for", only(p, "endfor"));
    return n;
}

static struct node *parse_if(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *n = node_new(p, N_IF, line);
    p->soft++;
    for (bool more = true; more;) {
        uint32_t k = n->list.n;
        nodes_add(p, &n->list, parse_tuple(p, TUPLE_NO_COND));
        if ((k & (k - 1)) == 0) {
            struct nodes *v = VM_NEW(p->vm, struct nodes, k ? k * 2 : 1);
            if (k)
                memcpy(v, n->branches, k * sizeof(*v));
            n->branches = v;
        }
        parse_body(p, &n->branches[k], "if", ends);
        struct token *t = parse_next(p);
        more = tok_is(t, "elif");
        if (tok_is(t, "else")) {
            parse_body(p, &n->other, "if", only(p, "endif"));
            parse_next(p);
        }
    }
    p->soft--;
    return n;
}

static struct node *parse_set(struct parser *p, uint32_t line)
{
    struct node *target = parse_target(p, TUPLE_NAMESPACES), *n;
    if (skip_type(p, T_ASSIGN)) {
        n = node_new(p, N_SET, line);
        n->a = target;
        n->b = parse_tuple(p, TUPLE_FULL);
        return n;
    }
    n = node_new(p, N_SET_BLOCK, line);
    n->a = target;
    n->b = parse_filters(p, NULL, false);
    parse_hard_body(p, &n->body, "set", only(p, "endset"));
    return n;
}

static void add_param(struct parser *p, struct macro_def *m, uint32_t id, struct node *def)
{
    uint32_t k = m->n_params;
    if ((k & (k - 1)) == 0) {
        uint32_t *ids = VM_NEW(p->vm, uint32_t, k ? k * 2 : 1);
        struct node **defs = VM_NEW(p->vm, struct node *, k ? k * 2 : 1);
        if (k) {
            memcpy(ids, m->params, k * sizeof(*ids));
            memcpy(defs, m->defaults, k * sizeof(struct node *));
        }
        m->params = ids;
        m->defaults = defs;
    }
    m->params[k] = id;
    m->defaults[k] = def;
    m->n_params++;
    m->explicit_caller |= id == p->t->id_caller;
}

static void parse_signature(struct parser *p, struct macro_def *m)
{
    expect(p, T_LPAREN);
    while (p->tok->type != T_RPAREN) {
        if (m->n_params)
            expect(p, T_COMMA);
        struct token *t = expect(p, T_NAME);
        struct node *def = NULL;
        if (skip_type(p, T_ASSIGN))
            def = parse_expression(p, true);
        else if (m->n_params && m->defaults[m->n_params - 1])
            parse_fail(p, t->line, "non-default argument follows default argument");
        add_param(p, m, name_id(p, t->v), def);
    }
    expect(p, T_RPAREN);
}

static void parse_macro_body(struct parser *p, struct macro_def *m, const char *name,
                             const char *end)
{
    struct macro_scope scope = {m, p->macro};
    int loops = p->loops;
    p->macro = &scope;
    p->loops = 0;
    parse_hard_body(p, &m->body, name, only(p, end));
    p->loops = loops;
    p->macro = scope.outer;
}

static struct node *parse_macro(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_MACRO, line);
    n->macro = VM_NEW(p->vm, struct macro_def, 1);
    n->macro->name = expect(p, T_NAME)->v;
    n->name = name_id(p, n->macro->name);
    parse_signature(p, n->macro);
    parse_macro_body(p, n->macro, "macro", "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_CALL_BLOCK, line);
    n->macro = VM_NEW(p->vm, struct macro_def, 1);
    n->macro->name = NONE_VALUE;
    if (p->tok->type == T_LPAREN)
        parse_signature(p, n->macro);
    n->a = parse_expression(p, true);
    if (n->a->kind != N_CALL)
        parse_fail(p, line, "expected call");
    parse_macro_body(p, n->macro, "call", "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_FILTER_BLOCK, line);
    n->b = parse_filters(p, NULL, true);
    parse_hard_body(p, &n->body, "filter", only(p, "endfilter"));
    return n;
}

static struct node *parse_with(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_WITH, line);
    while (p->tok->type != T_BLOCK_END) {
        if (n->list.n)
            expect(p, T_COMMA);
        nodes_add(p, &n->list, parse_target(p, 0));
        expect(p, T_ASSIGN);
        nodes_add(p, &n->list, parse_expression(p, true));
    }
    parse_hard_body(p, &n->body, "with", only(p, "endwith"));
    return n;
}

static struct node *parse_generation(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_SCOPE, line);
    int loops = p->loops;
    p->loops = 0;
    parse_hard_body(p, &n->body, "generation", only(p, "endgeneration"));
    p->loops = loops;
    return n;
}

static struct node *parse_autoescape(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_SCOPE, line);
    n->a = parse_expression(p, true);
    parse_hard_body(p, &n->body, "autoescape", only(p, "endautoescape"));
    return n;
}

/* {% block name scoped required %}: rendered as its body, since nothing can override it. Without
 * `scoped` it sees global variables only. */
static struct node *parse_block(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_SCOPE, line);
    struct val name = expect(p, T_NAME)->v;
    struct strbuf key = {0};
    sb_str(p->vm, &key, "block ");
    sb_add(p->vm, &key, name.s->p, name.s->n);
    struct val known = sb_val(p->vm, &key); /* identifiers contain no blank */
    if (dict_get(p->vm, p->ids, known))
        parse_fail(p, line, "block '%.*s' defined twice", (int)name.s->n, name.s->p);
    name_id(p, known);
    n->op = skip_name(p, "scoped") ? 0 : 1;
    if (skip_name(p, "required"))
        parse_fail(p, line, "required blocks are not supported");
    int loops = p->loops;
    p->loops = 0;
    parse_hard_body(p, &n->body, "block", only(p, "endblock"));
    p->loops = loops;
    if (p->tok->type == T_NAME && val_eq(p->vm, p->tok->v, name))
        parse_next(p);
    return n;
}

static struct node *parse_print(struct parser *p, uint32_t line)
{
    struct node *n = node_new(p, N_OUTPUT, line);
    do
        nodes_add(p, &n->list, parse_expression(p, true));
    while (skip_type(p, T_COMMA));
    return n;
}

static struct node *parse_loop_control(struct parser *p, uint32_t line, enum node_kind kind)
{
    if (!p->loops)
        parse_fail(p, line, "'%s' outside loop", kind == N_BREAK ? "break" : "continue");
    return node_new(p, kind, line);
}

static struct node *parse_break(struct parser *p, uint32_t line)
{
    return parse_loop_control(p, line, N_BREAK);
}

static struct node *parse_continue(struct parser *p, uint32_t line)
{
    return parse_loop_control(p, line, N_CONTINUE);
}

static struct node *parse_statement(struct parser *p)
{
    static const struct {
        const char *tag;
        struct node *(*parse)(struct parser *p, uint32_t line);
    } rows[] = {
        {"for", parse_for},           {"if", parse_if},
        {"set", parse_set},           {"macro", parse_macro},
        {"call", parse_call_block},   {"filter", parse_filter_block},
        {"with", parse_with},         {"generation", parse_generation},
        {"print", parse_print},       {"autoescape", parse_autoescape},
        {"block", parse_block},       {"break", parse_break},
        {"continue", parse_continue},
    };
    struct token *t = p->tok;
    if (t->type != T_NAME)
        parse_fail(p, t->line, "tag name expected");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (tok_is(t, rows[i].tag)) {
            vm_enter(p->vm);
            parse_next(p);
            struct node *n = rows[i].parse(p, t->line);
            vm_leave(p->vm);
            return n;
        }
    parse_fail(p, t->line, "Encountered unknown tag '%s'.%s", tok_describe(p, t), looked_for(p));
}

/* ---------------------------------------------------------------- the whole */
void parse_template(struct vm *vm, struct template *t, const char *src, size_t n)
{
    struct parser p = {.vm = vm, .t = t, .ids = dict_new(vm)};
    lex_template(vm, src, n, &p.tokens);
    p.tok = p.tokens.v;
    t->id_loop = name_id(&p, val_cstr(vm, "loop"));
    t->id_caller = name_id(&p, val_cstr(vm, "caller"));
    t->id_kwargs = name_id(&p, val_cstr(vm, "kwargs"));
    t->id_varargs = name_id(&p, val_cstr(vm, "varargs"));
    subparse(&p, &t->body, NULL);
    if (p.unknown)
        parse_fail(&p, p.unknown->line, "No %s named '%.*s'.",
                   p.unknown->kind == N_FILTER ? "filter" : "test", (int)p.unknown->v.s->n,
                   p.unknown->v.s->p);
    t->n_names = p.ids->n;
    t->names = VM_NEW(vm, struct str, t->n_names);
    for (uint32_t i = 0; i < t->n_names; i++)
        t->names[i] = *p.ids->e[i].k.s;
}
