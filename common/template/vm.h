/* vm.h - the state of one render, and the limits on untrusted code.
 *
 * All memory of a render is in one arena with a limit. Any failure (raise_exception, a TypeError,
 * an exceeded limit) calls vm_fail(): it stores the message and jumps back to template_render(),
 * which frees the arena. So no function here returns an error, and nothing may own memory outside
 * the arena.
 *
 * Limits: `steps` counts evaluated nodes and, by vm_work(), bytes processed by string operations;
 * `depth` counts nested C calls. The parser uses the same struct for its arena and depth. */
#ifndef COMMON_TEMPLATE_VM_H
#define COMMON_TEMPLATE_VM_H
#include "common/arena.h"
#include "common/err.h"
#include "common/template/value.h"
#include <setjmp.h>
#include <time.h>

/* Kinds of failure, with the messages of TGI's engine. */
#define VM_FAULTS(X)                                                                               \
    X(FAULT_SYNTAX, "syntax error")          /* also raise_exception */                            \
    X(FAULT_UNDEFINED, "undefined value")    /* UndefinedError */                                  \
    X(FAULT_TYPE, "invalid operation")       /* TypeError, ValueError and so on */                 \
    X(FAULT_SECURITY, "unsafe operation")    /* SecurityError */                                   \
    X(FAULT_UNKNOWN, "unknown filter, test") /* TemplateAssertionError, TemplateRuntimeError */    \
    X(FAULT_LIMIT, "limit exceeded")
enum vm_fault {
#define X(kind, text) kind,
    VM_FAULTS(X)
#undef X
};

/* Text under construction, of n bytes; not NUL-terminated. */
struct strbuf {
    char *p;
    size_t n, cap;
};

struct link_patterns;                             /* filters_html.c */
void link_patterns_free(struct link_patterns *p); /* NULL is allowed */

/* The state of a render, on the stack of template_render(). */
struct vm {
    struct arena mem;
    jmp_buf on_fail;
    struct err *e;
    bool autoescape;  /* inside {% autoescape true %}: output is escaped */
    bool bare_errors; /* only the message, without kind and line */
    uint64_t steps;   /* remaining */
    size_t max_output;
    int depth, max_depth;
    uint32_t line; /* of the node being evaluated */
    struct timespec now;
    const struct template *t;
    struct val *root;    /* global scope by name id */
    struct scope *scope; /* NULL: only the global scope */
    struct strbuf *out;
    struct link_patterns *links; /* of `urlize`, outside the arena; NULL: not used yet */
};

/* Ends the render with this message. Does not return: see above. */
_Noreturn void vm_fail(struct vm *vm, enum vm_fault kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void vm_fail_undefined(struct vm *vm, struct val v); /* an undefined value was used */
#define vm_type_error(vm, ...) vm_fail(vm, FAULT_TYPE, __VA_ARGS__)

/* Zeroed memory that lives as long as the render. Fails at its limit. */
void *vm_alloc(struct vm *vm, size_t n);
#define VM_NEW(vm, type, n) ((type *)vm_alloc((vm), sizeof(type) * (size_t)(n)))
/* Copies n elements of `size` bytes to a block with capacity 2 * *cap, or `first` if that was 0;
 * updates *cap. */
void *vm_grow(struct vm *vm, const void *old, uint32_t n, uint32_t *cap, uint32_t first,
              size_t size);
const char *vm_printf(struct vm *vm, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

_Noreturn void vm_out_of_steps(struct vm *vm);
/* Counts evaluated nodes, and bytes that string operations process. */
static inline void vm_charge(struct vm *vm, uint64_t steps)
{
    if (vm->steps < steps)
        vm_out_of_steps(vm);
    vm->steps -= steps;
}
static inline void vm_work(struct vm *vm, uint64_t bytes) { vm_charge(vm, bytes / 64); }
void vm_enter(struct vm *vm); /* increments the recursion depth; fails at the limit */
static inline void vm_leave(struct vm *vm) { vm->depth--; }

/* Text under construction, in the arena; limited by max_output. */
void sb_reserve(struct vm *vm, struct strbuf *b, size_t extra);
void sb_add(struct vm *vm, struct strbuf *b, const char *p, size_t n);
void sb_str(struct vm *vm, struct strbuf *b, const char *s);
void sb_ch(struct vm *vm, struct strbuf *b, char c);
void sb_cp(struct vm *vm, struct strbuf *b, uint32_t cp); /* surrogates become U+FFFD */
void sb_fill(struct vm *vm, struct strbuf *b, uint32_t cp, int64_t n);
void sb_fmt(struct vm *vm, struct strbuf *b, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct val sb_val(struct vm *vm, struct strbuf *b);

/* ---- calls */
struct kwarg {
    struct val name; /* V_STR */
    struct val v;
};
/* Arguments of a call: those by position, those by name. */
struct args {
    struct val *v;
    uint32_t n;
    struct kwarg *kw;
    uint32_t n_kw;
};
/* A filter, test, method or function. `params`: names of its parameters in order, separated by
 * spaces, with `?` if optional; a->v then has exactly these, V_MISSING if absent. NULL: a->v and
 * a->kw are passed unchanged. */
struct builtin {
    const char *name;
    struct val (*fn)(struct vm *vm, struct val self, const struct args *a);
    const char *params;
};
/* Calls a built-in with its arguments in order, as `params` says. */
struct val builtin_call(struct vm *vm, const struct builtin *b, struct val self,
                        const struct args *a);
/* Calls any value: a macro, a function, a method. Fails if it cannot be called. */
struct val vm_call(struct vm *vm, struct val callee, const struct args *a);
/* NULL: unknown. */
const struct builtin *filter_find(const char *name, size_t n);
const struct builtin *test_find(const char *name, size_t n);
struct val vm_global(struct vm *vm, const char *name, size_t n); /* range, dict...; V_MISSING */
/* A method of the type of `self`; NULL: it has no such. mutates: it is one that the sandbox
 * forbids. */
const struct builtin *method_find(struct val self, const char *name, size_t n);
bool method_mutates(struct val self, const char *name, size_t n);
const struct builtin *builtin_find(const struct builtin *rows, size_t n_rows, const char *name,
                                   size_t n);

static inline bool arg_given(const struct args *a, uint32_t i) { return a->v[i].type != V_MISSING; }
/* Argument i, or `def` if it was not given; arg_int() fails if it is no integer. */
int64_t arg_int(struct vm *vm, const struct args *a, uint32_t i, int64_t def);
bool arg_bool(struct vm *vm, const struct args *a, uint32_t i, bool def);

/* ---- attributes and items (attr.c): as in Jinja, one falls back on the other. What does not exist
 * is an undefined value, and no error. */
struct val vm_attr(struct vm *vm, struct val obj, const char *name, size_t n); /* obj.name */
struct val vm_attr_only(struct vm *vm, struct val obj, struct val name);       /* never an item */
struct val vm_item(struct vm *vm, struct val obj, struct val key);             /* obj[key] */
struct val vm_slice(struct vm *vm, struct val obj, struct val from, struct val to, struct val step);

/* ---- operators (ops.c): Python's, with its errors of types. `op`: enum binary_op of ast.h */
struct val op_add(struct vm *vm, struct val a, struct val b);
struct val op_binary(struct vm *vm, int op, struct val a, struct val b);
struct val op_neg(struct vm *vm, struct val v, bool negative);
bool op_contains(struct vm *vm, struct val item, struct val box);

/* ---- text of values (repr.c, tojson.c, percent.c, format.c) */
void val_print(struct vm *vm, struct strbuf *b, struct val v); /* str(v) */
void val_repr(struct vm *vm, struct strbuf *b, struct val v);  /* repr(v) */
struct val val_to_str(struct vm *vm, struct val v);            /* str(v); strings stay themselves */
const char *val_repr_c(struct vm *vm, struct val v);           /* for messages; truncated */
void float_repr(double f, char out[32]);
struct val percent_format(struct vm *vm, struct val fmt, struct val arg);   /* fmt % arg */
struct val str_format(struct vm *vm, struct val fmt, const struct args *a); /* fmt.format(...) */
struct val filter_tojson(struct vm *vm, struct val v, const struct args *a);
struct val html_escape(struct vm *vm, struct val v); /* Markup */

/* list.sort(): stable; values[i] moves with keys[i]. */
void list_sort(struct vm *vm, struct val *keys, struct val *values, uint32_t n, bool reverse);
#endif
