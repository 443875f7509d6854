#include "common/template/eval.h"
#include <string.h>

static struct val eval_name(struct vm *vm, const struct node *n)
{
    struct val v = scope_get(vm, n->name);
    if (v.type != V_MISSING)
        return v;
    return val_undefined(vm, NULL, MISSING,
                         (struct val){.type = V_STR, .s = &vm->t->names[n->name]});
}

static struct val eval_list(struct vm *vm, const struct node *n, enum vtype type)
{
    struct list *l = list_new(vm, n->list.n);
    for (uint32_t i = 0; i < n->list.n; i++)
        list_push(vm, l, eval(vm, n->list.v[i]));
    return val_list(type, l);
}

static struct val eval_dict(struct vm *vm, const struct node *n)
{
    struct dict *d = dict_new(vm);
    for (uint32_t i = 0; i + 1 < n->list.n; i += 2) {
        struct val k = eval(vm, n->list.v[i]);
        dict_set(vm, d, k, eval(vm, n->list.v[i + 1]));
    }
    return val_dict(d);
}

static struct val eval_concat(struct vm *vm, const struct node *n)
{
    struct strbuf b = {0};
    struct list *parts = list_new(vm, n->list.n);
    bool markup = false;
    for (uint32_t i = 0; i < n->list.n; i++) {
        list_push(vm, parts, eval(vm, n->list.v[i]));
        markup |= vm->autoescape && parts->v[i].type == V_STR && parts->v[i].s->markup;
    }
    for (uint32_t i = 0; i < parts->n; i++)
        val_print(vm, &b, markup ? html_escape(vm, parts->v[i]) : parts->v[i]);
    return val_markup(vm, sb_val(vm, &b), markup);
}

static bool compare(struct vm *vm, enum compare_op op, struct val a, struct val b)
{
    bool unordered = false;
    int c;
    switch (op) {
    case CMP_EQ:
        return val_eq(vm, a, b);
    case CMP_NE:
        return !val_eq(vm, a, b);
    case CMP_LT:
        c = val_cmp(vm, a, b, "<", &unordered);
        return !unordered && c < 0;
    case CMP_LE:
        c = val_cmp(vm, a, b, "<=", &unordered);
        return !unordered && c <= 0;
    case CMP_GT:
        c = val_cmp(vm, a, b, ">", &unordered);
        return !unordered && c > 0;
    case CMP_GE:
        c = val_cmp(vm, a, b, ">=", &unordered);
        return !unordered && c >= 0;
    case CMP_IN:
        return op_contains(vm, a, b);
    default:
        return !op_contains(vm, a, b);
    }
}

static struct val eval_compare(struct vm *vm, const struct node *n)
{
    struct val left = eval(vm, n->a);
    for (uint32_t i = 0; i < n->list.n; i++) {
        struct val right = eval(vm, n->list.v[i]);
        if (!compare(vm, n->ops[i], left, right))
            return val_bool(false);
        left = right;
    }
    return val_bool(true);
}

static struct val eval_cond(struct vm *vm, const struct node *n)
{
    if (val_truthy(vm, eval(vm, n->b)))
        return eval(vm, n->a);
    if (n->c)
        return eval(vm, n->c);
    const char *hint = vm_printf(vm,
                                 "the inline if-expression on line %u evaluated to false and no "
                                 "else section was defined.",
                                 n->line);
    return val_undefined(vm, hint, MISSING, MISSING);
}

static struct val eval_item(struct vm *vm, const struct node *n)
{
    struct val obj = eval(vm, n->a);
    if (n->b->kind != N_SLICE)
        return vm_item(vm, obj, eval(vm, n->b));
    struct val part[3];
    const struct node *p[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        part[i] = p[i] ? eval(vm, p[i]) : NONE_VALUE;
    return vm_slice(vm, obj, part[0], part[1], part[2]);
}

void eval_args(struct vm *vm, const struct call *c, struct args *a)
{
    struct list *pos = list_new(vm, c->pos.n);
    for (uint32_t i = 0; i < c->pos.n; i++)
        list_push(vm, pos, eval(vm, c->pos.v[i]));
    if (c->star) {
        struct list *more = val_items(vm, eval(vm, c->star));
        for (uint32_t i = 0; i < more->n; i++)
            list_push(vm, pos, more->v[i]);
    }
    *a = (struct args){.v = pos->v, .n = pos->n};
    uint32_t n_kw = c->kw_values.n;
    struct val extra = c->star_star ? eval(vm, c->star_star) : NONE_VALUE;
    if (c->star_star && extra.type != V_DICT)
        vm_type_error(vm, "argument after ** must be a mapping, not %s", val_type(extra));
    if (extra.type == V_DICT)
        n_kw += extra.d->n;
    if (!n_kw)
        return;
    a->kw = VM_NEW(vm, struct kwarg, n_kw);
    for (uint32_t i = 0; i < c->kw_values.n; i++)
        a->kw[a->n_kw++] = (struct kwarg){c->kw_names[i], eval(vm, c->kw_values.v[i])};
    for (uint32_t i = 0; a->n_kw < n_kw; i++) {
        if (extra.d->e[i].k.type != V_STR)
            vm_type_error(vm, "keywords must be strings");
        a->kw[a->n_kw++] = (struct kwarg){extra.d->e[i].k, extra.d->e[i].v};
    }
}

static struct val eval_call(struct vm *vm, const struct node *n)
{
    struct args a;
    struct val callee = eval(vm, n->a);
    eval_args(vm, n->call, &a);
    vm->line = n->line;
    return vm_call(vm, callee, &a);
}

static struct val run_filter(struct vm *vm, const struct node *n, struct val v)
{
    struct args a;
    if (!n->fn)
        vm_fail(vm, FAULT_UNKNOWN, "No %s named '%.*s' found.",
                n->kind == N_FILTER ? "filter" : "test", (int)n->v.s->n, n->v.s->p);
    eval_args(vm, n->call, &a);
    vm->line = n->line;
    return builtin_call(vm, n->fn, v, &a);
}

struct val eval_filters(struct vm *vm, const struct node *chain, struct val text)
{
    if (!chain)
        return text;
    vm_enter(vm);
    struct val v = run_filter(vm, chain, eval_filters(vm, chain->a, text));
    vm_leave(vm);
    return v;
}

static struct val eval_kind(struct vm *vm, const struct node *n)
{
    struct val v;
    switch (n->kind) {
    case N_CONST:
        return n->v;
    case N_NAME:
        return eval_name(vm, n);
    case N_TUPLE:
        return eval_list(vm, n, V_TUPLE);
    case N_LIST:
        return eval_list(vm, n, V_LIST);
    case N_DICT:
        return eval_dict(vm, n);
    case N_AND:
        v = eval(vm, n->a);
        return val_truthy(vm, v) ? eval(vm, n->b) : v;
    case N_OR:
        v = eval(vm, n->a);
        return val_truthy(vm, v) ? v : eval(vm, n->b);
    case N_NOT:
        return val_bool(!val_truthy(vm, eval(vm, n->a)));
    case N_NEG:
        return op_neg(vm, eval(vm, n->a), n->op == '-');
    case N_BINARY:
        v = eval(vm, n->a);
        return op_binary(vm, n->op, v, eval(vm, n->b));
    case N_CONCAT:
        return eval_concat(vm, n);
    case N_COMPARE:
        return eval_compare(vm, n);
    case N_COND:
        return eval_cond(vm, n);
    case N_ATTR:
        return vm_attr(vm, eval(vm, n->a), n->v.s->p, n->v.s->n);
    case N_ITEM:
        return eval_item(vm, n);
    case N_CALL:
        return eval_call(vm, n);
    case N_FILTER:
    case N_TEST:
        return run_filter(vm, n, eval(vm, n->a));
    default:
        vm_type_error(vm, "a slice is no value");
    }
}

struct val eval(struct vm *vm, const struct node *n)
{
    vm_charge(vm, 1);
    if (n->kind == N_CONST)
        return n->v;
    vm_enter(vm);
    vm->line = n->line;
    struct val v = eval_kind(vm, n);
    vm_leave(vm);
    return v;
}
