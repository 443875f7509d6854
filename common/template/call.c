/* Macros, and calls of any value; see eval.h. */
#include "common/template/eval.h"
#include <string.h>

struct val macro_new(struct vm *vm, const struct macro_def *def)
{
    struct macro *m = VM_NEW(vm, struct macro, 1);
    *m = (struct macro){def, vm->scope, vm->autoescape};
    for (struct scope *s = vm->scope; s && !s->captured; s = s->parent)
        s->captured = true;
    return (struct val){.type = V_MACRO, .m = m};
}

struct val macro_attr(struct vm *vm, struct val v, const char *name, size_t n)
{
    const struct macro_def *d = v.m->def;
    struct str key = {.p = name, .n = (uint32_t)n};
    struct val k = {.type = V_STR, .s = &key};
    if (val_is(k, "name"))
        return d->name;
    if (val_is(k, "catch_kwargs"))
        return val_bool(d->uses_kwargs);
    if (val_is(k, "catch_varargs"))
        return val_bool(d->uses_varargs);
    if (val_is(k, "caller"))
        return val_bool(d->uses_caller);
    if (!val_is(k, "arguments"))
        return MISSING;
    struct list *l = list_new(vm, d->n_params);
    for (uint32_t i = 0; i < d->n_params; i++)
        list_push(vm, l, (struct val){.type = V_STR, .s = &vm->t->names[d->params[i]]});
    return val_list(V_TUPLE, l);
}

/* Removes and returns the keyword argument `name`; V_MISSING: not given. */
static struct val take_kw(struct args *a, const struct str *name)
{
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (a->kw[i].name.s->n == name->n && !memcmp(a->kw[i].name.s->p, name->p, name->n)) {
            struct val v = a->kw[i].v;
            memmove(&a->kw[i], &a->kw[i + 1], (a->n_kw - i - 1) * sizeof(*a->kw));
            a->n_kw--;
            return v;
        }
    return MISSING;
}

static const char *macro_name(struct vm *vm, const struct macro_def *d)
{
    return d->name.type == V_NONE ? "None" : val_repr_c(vm, d->name);
}

static void bind_extra(struct vm *vm, const struct macro_def *d, struct args *a, struct scope *s)
{
    const struct template *t = vm->t;
    if (d->uses_caller && !d->explicit_caller) {
        struct val caller = take_kw(a, &t->names[t->id_caller]);
        if (caller.type == V_MISSING || caller.type == V_NONE)
            caller = val_undefined(vm, "No caller defined", MISSING, MISSING);
        scope_set(vm, s, t->id_caller, caller);
    }
    if (d->uses_kwargs) {
        struct dict *rest = dict_new(vm);
        for (uint32_t i = 0; i < a->n_kw; i++)
            dict_set(vm, rest, a->kw[i].name, a->kw[i].v);
        scope_set(vm, s, t->id_kwargs, val_dict(rest));
    } else if (a->n_kw) {
        vm_type_error(vm, "macro %s takes no keyword argument %s", macro_name(vm, d),
                      val_repr_c(vm, a->kw[0].name));
    }
    if (d->uses_varargs) {
        struct list *rest = list_new(vm, 0);
        for (uint32_t i = d->n_params; i < a->n; i++)
            list_push(vm, rest, a->v[i]);
        scope_set(vm, s, t->id_varargs, val_list(V_TUPLE, rest));
    } else if (a->n > d->n_params) {
        vm_type_error(vm, "macro %s takes not more than %u argument(s)", macro_name(vm, d),
                      d->n_params);
    }
}

static struct val macro_call(struct vm *vm, const struct macro *m, const struct args *given)
{
    const struct macro_def *d = m->def;
    struct scope *s = scope_new(vm, m->scope), *saved = vm->scope;
    struct args a = *given;
    a.kw = a.n_kw ? VM_NEW(vm, struct kwarg, a.n_kw) : NULL;
    if (a.n_kw)
        memcpy(a.kw, given->kw, a.n_kw * sizeof(*a.kw));
    for (uint32_t i = 0; i < d->n_params; i++) {
        struct val v = i < a.n ? a.v[i] : take_kw(&a, &vm->t->names[d->params[i]]);
        scope_set(vm, s, d->params[i], v);
    }
    bind_extra(vm, d, &a, s);
    vm->scope = s;
    for (uint32_t i = 0; i < d->n_params; i++) {
        if (s->b[i].v.type != V_MISSING)
            continue;
        struct val v;
        if (d->defaults[i])
            v = eval(vm, d->defaults[i]);
        else
            v = val_undefined(vm,
                              vm_printf(vm, "parameter '%.*s' was not provided",
                                        (int)vm->t->names[d->params[i]].n,
                                        vm->t->names[d->params[i]].p),
                              MISSING, MISSING);
        scope_set(vm, s, d->params[i], v);
    }
    vm->scope = saved;
    bool caller = vm->autoescape;
    vm->autoescape = m->autoescape;
    struct val text = exec_captured(vm, &d->body, s);
    vm->autoescape = caller;
    return val_markup(vm, text, caller);
}

static struct val joiner_call(struct vm *vm, struct cycler *c)
{
    if (c->at)
        return c->v->v[0];
    c->at = 1;
    return val_cstr(vm, "");
}

struct val vm_call(struct vm *vm, struct val callee, const struct args *a)
{
    struct val v;
    vm_enter(vm);
    switch (callee.type) {
    case V_CALLABLE:
        v = builtin_call(vm, callee.c->fn, callee.c->self, a);
        break;
    case V_MACRO:
        v = macro_call(vm, callee.m, a);
        break;
    case V_LOOP:
        if (a->n != 1 || a->n_kw)
            vm_type_error(vm,
                          "LoopContext.__call__() takes 2 positional arguments but %u were given",
                          a->n + 1);
        v = loop_recurse(vm, callee.loop, a->v[0]);
        break;
    case V_JOINER:
        v = joiner_call(vm, callee.cycler);
        break;
    case V_UNDEFINED:
        vm_fail_undefined(vm, callee);
    default:
        vm_type_error(vm, "'%s' object is not callable", val_type(callee));
    }
    vm_leave(vm);
    return v;
}

int64_t val_length(struct vm *vm, struct val v)
{
    switch (v.type) {
    case V_STR:
        return v.s->n_chars;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.l->n;
    case V_DICT:
        return v.d->n;
    case V_UNDEFINED:
        return 0;
    case V_LOOP:
        return loop_length(vm, v.loop);
    default:
        vm_type_error(vm, "object of type '%s' has no len()", val_type(v));
    }
}
