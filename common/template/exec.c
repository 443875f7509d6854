/* Statements, scopes and loops; see eval.h. */
#include "common/template/eval.h"
#include <string.h>

/* ---------------------------------------------------------------- scopes */
struct scope *scope_new(struct vm *vm, struct scope *parent)
{
    struct scope *s = VM_NEW(vm, struct scope, 1);
    s->parent = parent;
    return s;
}

void scope_set(struct vm *vm, struct scope *s, uint32_t name, struct val v)
{
    if (!s) {
        vm->root[name] = v;
        return;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->b[i].name == name) {
            s->b[i].v = v;
            return;
        }
    vm_charge(vm, s->n);
    if (s->n == s->cap)
        s->b = vm_grow(vm, s->b, s->n, &s->cap, 4, sizeof(*s->b));
    s->b[s->n++] = (struct binding){name, v};
}

struct val scope_get(struct vm *vm, uint32_t name)
{
    for (const struct scope *s = vm->scope; s; s = s->parent) {
        vm_charge(vm, 1 + s->n / 8);
        for (uint32_t i = 0; i < s->n; i++)
            if (s->b[i].name == name)
                return s->b[i].v;
    }
    return vm->root[name];
}

/* ---------------------------------------------------------------- assignment */
static void assign(struct vm *vm, const struct node *target, struct val v);

static void unpack(struct vm *vm, const struct node *target, struct val v)
{
    if (!val_iterable(v))
        vm_type_error(vm, "cannot unpack non-iterable %s object", val_type(v));
    const struct list *l = val_items(vm, v);
    uint32_t want = target->list.n;
    if (l->n < want)
        vm_type_error(vm, "not enough values to unpack (expected %u, got %u)", want, l->n);
    if (l->n > want)
        vm_type_error(vm, "too many values to unpack (expected %u)", want);
    for (uint32_t i = 0; i < want; i++)
        assign(vm, target->list.v[i], l->v[i]);
}

static void assign(struct vm *vm, const struct node *target, struct val v)
{
    vm_charge(vm, 1);
    if (target->kind == N_TUPLE) {
        vm_enter(vm);
        unpack(vm, target, v);
        vm_leave(vm);
    } else if (target->kind == N_NSREF) {
        struct val ns = scope_get(vm, target->name);
        if (ns.type != V_NAMESPACE)
            vm_fail(vm, FAULT_TYPE, "cannot assign attribute on non-namespace object");
        dict_set(vm, ns.d, target->v, v);
    } else {
        scope_set(vm, vm->scope, target->name, v);
    }
}

/* ---------------------------------------------------------------- for */
/* Moves one more item from `source` to `ready`; false: none left. */
static bool loop_pull(struct vm *vm, struct loop *l)
{
    struct scope *saved = vm->scope;
    while (l->taken < l->source->n) {
        struct val v = l->source->v[l->taken++];
        vm->scope = scope_new(vm, l->outer);
        assign(vm, l->node->a, v);
        bool keep = val_truthy(vm, eval(vm, l->node->c));
        vm->scope = saved;
        if (keep) {
            list_push(vm, l->ready, v);
            return true;
        }
    }
    return false;
}

static bool loop_has(struct vm *vm, struct loop *l, uint32_t turn)
{
    return turn < l->ready->n || loop_pull(vm, l);
}

uint32_t loop_length(struct vm *vm, struct loop *l)
{
    while (loop_pull(vm, l))
        ;
    return l->ready->n;
}

static void exec_for(struct vm *vm, const struct node *n, struct val iterable, struct scope *outer,
                     uint32_t depth)
{
    struct loop *l = VM_NEW(vm, struct loop, 1);
    struct scope *saved = vm->scope, *body = scope_new(vm, outer);
    struct list *items = val_items(vm, iterable);
    *l = (struct loop){.node = n, .outer = outer, .depth = depth};
    l->ready = n->c ? list_new(vm, 0) : items;
    l->source = n->c ? items : list_new(vm, 0);
    for (; loop_has(vm, l, l->turn); l->turn++) {
        vm_charge(vm, 1);
        if (body->captured)
            body = scope_new(vm, outer);
        body->n = 0;
        vm->scope = body;
        scope_set(vm, body, vm->t->id_loop, (struct val){.type = V_LOOP, .loop = l});
        assign(vm, n->a, l->ready->v[l->turn]);
        enum flow flow = exec(vm, &n->body);
        vm->scope = saved;
        if (flow == FLOW_BREAK) {
            if (iterable.type == V_GENERATOR) /* the rest was not consumed */
                iterable.g->at -= items->n - (n->c ? l->taken : l->turn + 1);
            break;
        }
    }
    if (!l->ready->n && n->other.n) {
        vm->scope = scope_new(vm, outer);
        exec(vm, &n->other);
    }
    vm->scope = saved;
}

struct val loop_recurse(struct vm *vm, struct loop *l, struct val iterable)
{
    if (!l->node->op)
        vm_type_error(vm, "The loop must have the 'recursive' marker to be called recursively.");
    struct strbuf b = {0}, *out = vm->out;
    vm->out = &b;
    exec_for(vm, l->node, iterable, l->outer, l->depth + 1);
    vm->out = out;
    return sb_val(vm, &b);
}

struct val loop_attr(struct vm *vm, struct val v, const char *name, size_t n)
{
    struct loop *l = v.loop;
    struct str key = {.p = name, .n = (uint32_t)n};
    struct val k = {.type = V_STR, .s = &key};
    if (val_is(k, "index"))
        return val_int(l->turn + 1);
    if (val_is(k, "index0"))
        return val_int(l->turn);
    if (val_is(k, "first"))
        return val_bool(l->turn == 0);
    if (val_is(k, "last"))
        return val_bool(!loop_has(vm, l, l->turn + 1));
    if (val_is(k, "length"))
        return val_int(loop_length(vm, l));
    if (val_is(k, "revindex"))
        return val_int((int64_t)loop_length(vm, l) - l->turn);
    if (val_is(k, "revindex0"))
        return val_int((int64_t)loop_length(vm, l) - l->turn - 1);
    if (val_is(k, "depth"))
        return val_int(l->depth + 1);
    if (val_is(k, "depth0"))
        return val_int(l->depth);
    if (val_is(k, "previtem"))
        return l->turn ? l->ready->v[l->turn - 1]
                       : val_undefined(vm, "there is no previous item", MISSING, MISSING);
    if (val_is(k, "nextitem"))
        return loop_has(vm, l, l->turn + 1)
                   ? l->ready->v[l->turn + 1]
                   : val_undefined(vm, "there is no next item", MISSING, MISSING);
    return MISSING;
}

struct val loop_changed(struct vm *vm, struct val self, const struct args *a)
{
    struct list *now = list_new(vm, a->n), *before = self.loop->changed;
    for (uint32_t i = 0; i < a->n; i++)
        list_push(vm, now, a->v[i]);
    self.loop->changed = now;
    return val_bool(!before || !val_eq(vm, val_list(V_TUPLE, before), val_list(V_TUPLE, now)));
}

/* ---------------------------------------------------------------- other statements */
struct val exec_captured(struct vm *vm, const struct nodes *body, struct scope *s)
{
    struct strbuf b = {0}, *out = vm->out;
    struct scope *saved = vm->scope;
    vm->out = &b;
    vm->scope = s;
    exec(vm, body);
    vm->scope = saved;
    vm->out = out;
    return val_markup(vm, sb_val(vm, &b), vm->autoescape);
}

static enum flow exec_if(struct vm *vm, const struct node *n)
{
    for (uint32_t i = 0; i < n->list.n; i++)
        if (val_truthy(vm, eval(vm, n->list.v[i])))
            return exec(vm, &n->branches[i]);
    return exec(vm, &n->other);
}

static void exec_output(struct vm *vm, const struct node *n)
{
    for (uint32_t i = 0; i < n->list.n; i++) {
        const struct node *of = n->list.v[i];
        struct val v = eval(vm, of);
        bool own = of->kind == N_CONST && of->op; /* literal template text */
        val_print(vm, vm->out, vm->autoescape && !own ? html_escape(vm, v) : v);
    }
}

static void exec_call_block(struct vm *vm, const struct node *n)
{
    struct args a;
    struct val callee = eval(vm, n->a->a);
    eval_args(vm, n->a->call, &a);
    struct kwarg *kw = VM_NEW(vm, struct kwarg, a.n_kw + 1);
    if (a.n_kw)
        memcpy(kw, a.kw, a.n_kw * sizeof(*kw));
    kw[a.n_kw++] = (struct kwarg){val_cstr(vm, "caller"), macro_new(vm, n->macro)};
    a.kw = kw;
    val_print(vm, vm->out, vm_call(vm, callee, &a));
}

static void exec_with(struct vm *vm, const struct node *n)
{
    struct scope *saved = vm->scope, *inner = scope_new(vm, saved);
    for (uint32_t i = 0; i + 1 < n->list.n; i += 2) { /* values are evaluated in the outer scope */
        struct val v = eval(vm, n->list.v[i + 1]);
        vm->scope = inner;
        assign(vm, n->list.v[i], v);
        vm->scope = saved;
    }
    vm->scope = inner;
}

/* Statements with a scope: generation, block (`op`: sees global names only), autoescape (`a`: the
 * flag). */
static enum flow exec_scope(struct vm *vm, const struct node *n)
{
    struct scope *saved = vm->scope;
    bool escaped = vm->autoescape;
    if (n->a)
        vm->autoescape = val_truthy(vm, eval(vm, n->a));
    vm->scope = scope_new(vm, n->op ? NULL : saved);
    enum flow flow = exec(vm, &n->body);
    vm->scope = saved;
    vm->autoescape = escaped;
    return flow;
}

static enum flow exec_node(struct vm *vm, const struct node *n)
{
    struct scope *saved = vm->scope;
    struct val v;
    enum flow flow = FLOW_NEXT;
    switch (n->kind) {
    case N_OUTPUT:
        exec_output(vm, n);
        break;
    case N_FOR:
        exec_for(vm, n, eval(vm, n->b), vm->scope, 0);
        break;
    case N_IF:
        return exec_if(vm, n);
    case N_SET:
        assign(vm, n->a, eval(vm, n->b));
        break;
    case N_SET_BLOCK:
        v = exec_captured(vm, &n->body, scope_new(vm, saved));
        assign(vm, n->a, eval_filters(vm, n->b, v));
        break;
    case N_MACRO:
        scope_set(vm, vm->scope, n->name, macro_new(vm, n->macro));
        break;
    case N_CALL_BLOCK:
        exec_call_block(vm, n);
        break;
    case N_FILTER_BLOCK:
        v = exec_captured(vm, &n->body, scope_new(vm, saved));
        val_print(vm, vm->out, eval_filters(vm, n->b, v));
        break;
    case N_WITH:
        exec_with(vm, n);
        flow = exec(vm, &n->body);
        vm->scope = saved;
        break;
    case N_SCOPE:
        return exec_scope(vm, n);
    case N_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
    return flow;
}

enum flow exec(struct vm *vm, const struct nodes *body)
{
    enum flow flow = FLOW_NEXT;
    vm_enter(vm);
    for (uint32_t i = 0; i < body->n && flow == FLOW_NEXT; i++) {
        vm_charge(vm, 1);
        vm->line = body->v[i]->line;
        flow = exec_node(vm, body->v[i]);
    }
    vm_leave(vm);
    return flow;
}
