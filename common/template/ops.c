/* Arithmetic and comparisons with Python's rules and messages. */
#include "common/template/ast.h"
#include "common/template/bigint.h"
#include "common/template/vm.h"
#include <math.h>
#include <string.h>

static const char *const symbols[] = {
    [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",           [OP_DIV] = "/",
    [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "** or pow()",
};

_Noreturn static void unsupported(struct vm *vm, int op, struct val a, struct val b)
{
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED)
        vm_fail_undefined(vm, a.type == V_UNDEFINED ? a : b);
    vm_type_error(vm, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op], val_type(a),
                  val_type(b));
}

static struct val int_power(struct vm *vm, int64_t a, int64_t b)
{
    int64_t r = 1;
    const struct val base = val_int(a), exponent = val_int(b);
    if (b < 0) {
        if (a == 0)
            vm_type_error(vm, "0.0 cannot be raised to a negative power");
        return val_float(pow((double)a, (double)b));
    }
    while (b) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r))
            return big_op(vm, OP_POW, base, exponent);
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a))
            return big_op(vm, OP_POW, base, exponent);
    }
    return val_int(r);
}

static struct val int_op(struct vm *vm, int op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_DIV:
        if (b == 0)
            vm_type_error(vm, "division by zero");
        return val_float((double)a / (double)b);
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0)
            vm_type_error(vm, op == OP_MOD ? "integer modulo by zero"
                                           : "integer division or modulo by zero");
        if (b == -1) {
            if (op == OP_MOD)
                return val_int(0);
            over = __builtin_sub_overflow((int64_t)0, a, &r);
            break;
        }
        r = op == OP_MOD ? a % b : a / b;
        if (a % b && (a < 0) != (b < 0)) /* Python rounds down */
            r += op == OP_MOD ? b : -1;
        break;
    default:
        return int_power(vm, a, b);
    }
    return over ? big_op(vm, op, val_int(a), val_int(b)) : val_int(r);
}

static struct val float_op(struct vm *vm, int op, double a, double b);

static bool is_int(struct val v)
{
    return v.type == V_BIGINT || v.type == V_INT || v.type == V_BOOL;
}

/* At least one operand is V_BIGINT. */
static struct val with_big(struct vm *vm, int op, struct val a, struct val b)
{
    bool down = b.type == V_BIGINT ? b.s->p[0] == '-' : b.type == V_INT && b.i < 0;
    if (is_int(a) && is_int(b) && op != OP_DIV && !(op == OP_POW && down))
        return big_op(vm, op, a, b);
    double x = 0, y = 0;
    bool ints = is_int(a) && is_int(b);
    if (a.type == V_BIGINT)
        x = big_to_double(vm, a);
    else
        val_is_number(a, &x);
    if (b.type == V_BIGINT)
        y = big_to_double(vm, b);
    else
        val_is_number(b, &y);
    if ((a.type == V_BIGINT && isinf(x)) || (b.type == V_BIGINT && isinf(y)))
        vm_type_error(vm, ints ? "integer division result too large for a float"
                               : "int too large to convert to float");
    if (op == OP_DIV && ints && y == 0)
        vm_type_error(vm, "division by zero");
    return float_op(vm, op, x, y);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0))
        m += b;
    return m != 0 ? m : copysign(0.0, b);
}

static double float_floordiv(double a, double b)
{
    double m = fmod(a, b), d = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0))
        d -= 1;
    if (d == 0)
        return copysign(0.0, a / b);
    double f = floor(d);
    return d - f > 0.5 ? f + 1 : f;
}

static struct val float_op(struct vm *vm, int op, double a, double b)
{
    switch (op) {
    case OP_ADD:
        return val_float(a + b);
    case OP_SUB:
        return val_float(a - b);
    case OP_MUL:
        return val_float(a * b);
    case OP_POW:
        if (a == 0 && b < 0)
            vm_type_error(vm, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(b) && b != floor(b))
            vm_type_error(vm, "complex numbers are not supported");
        if (isinf(pow(a, b)) && isfinite(a) && isfinite(b))
            vm_type_error(vm, "(34, 'Numerical result out of range')");
        return val_float(pow(a, b));
    default:
        break;
    }
    if (b == 0)
        vm_type_error(vm, op == OP_DIV   ? "float division by zero"
                          : op == OP_MOD ? "float modulo"
                                         : "float floor division by zero");
    if (op == OP_DIV)
        return val_float(a / b);
    return val_float(op == OP_MOD ? float_mod(a, b) : float_floordiv(a, b));
}

static struct val concat_strings(struct vm *vm, struct val a, struct val b)
{
    bool markup = a.s->markup || b.s->markup;
    if (markup) {
        a = html_escape(vm, a);
        b = html_escape(vm, b);
    }
    struct strbuf s = {0};
    sb_reserve(vm, &s, (size_t)a.s->n + b.s->n);
    sb_add(vm, &s, a.s->p, a.s->n);
    sb_add(vm, &s, b.s->p, b.s->n);
    return val_markup(vm, sb_val(vm, &s), markup);
}

struct val op_add(struct vm *vm, struct val a, struct val b)
{
    if (a.type == V_STR && b.type == V_STR)
        return concat_strings(vm, a, b);
    if (a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE)) {
        struct list *l = list_new(vm, a.l->n + b.l->n);
        for (uint32_t i = 0; i < a.l->n; i++)
            list_push(vm, l, a.l->v[i]);
        for (uint32_t i = 0; i < b.l->n; i++)
            list_push(vm, l, b.l->v[i]);
        return val_list(a.type, l);
    }
    if (b.type != V_UNDEFINED && (a.type == V_STR || a.type == V_LIST || a.type == V_TUPLE))
        vm_type_error(vm, "can only concatenate %s (not \"%s\") to %s", val_type(a), val_type(b),
                      val_type(a));
    return op_binary(vm, OP_ADD, a, b);
}

static struct val repeat(struct vm *vm, struct val seq, struct val times)
{
    int64_t n;
    if (times.type == V_UNDEFINED)
        vm_fail_undefined(vm, times);
    if (!val_as_int(times, &n))
        vm_type_error(vm, "can't multiply sequence by non-int of type '%s'", val_type(times));
    if (n < 0)
        n = 0;
    if (seq.type == V_STR) {
        struct strbuf b = {0};
        size_t total;
        if (__builtin_mul_overflow((size_t)n, (size_t)seq.s->n, &total))
            total = SIZE_MAX;
        sb_reserve(vm, &b, total);
        for (; n > 0 && seq.s->n; n--)
            sb_add(vm, &b, seq.s->p, seq.s->n);
        return val_markup(vm, sb_val(vm, &b), seq.s->markup);
    }
    struct list *l = list_new(vm, 0);
    for (; n > 0 && seq.l->n; n--)
        for (uint32_t i = 0; i < seq.l->n; i++)
            list_push(vm, l, seq.l->v[i]);
    return val_list(seq.type, l);
}

static bool is_sequence(struct val v)
{
    return v.type == V_STR || v.type == V_LIST || v.type == V_TUPLE;
}

struct val op_binary(struct vm *vm, int op, struct val a, struct val b)
{
    double x, y;
    int64_t i, j;
    if (val_as_int(a, &i) && val_as_int(b, &j))
        return int_op(vm, op, i, j);
    if (val_is_number(a, &x) && val_is_number(b, &y))
        return float_op(vm, op, x, y);
    if ((a.type == V_BIGINT || b.type == V_BIGINT) && (is_int(a) || a.type == V_FLOAT) &&
        (is_int(b) || b.type == V_FLOAT))
        return with_big(vm, op, a, b);
    if (op == OP_ADD && is_sequence(a) && b.type != V_UNDEFINED)
        return op_add(vm, a, b);
    if (op == OP_MUL && is_sequence(a))
        return repeat(vm, a, b);
    if (op == OP_MUL && is_sequence(b) && a.type != V_UNDEFINED)
        return repeat(vm, b, a);
    if (op == OP_MOD && a.type == V_STR)
        return percent_format(vm, a, b);
    unsupported(vm, op, a, b);
}

struct val op_neg(struct vm *vm, struct val v, bool negative)
{
    int64_t i;
    if (val_as_int(v, &i))
        return negative ? int_op(vm, OP_SUB, 0, i) : val_int(i);
    if (v.type == V_FLOAT)
        return val_float(negative ? -v.f : v.f);
    if (v.type == V_UNDEFINED)
        vm_fail_undefined(vm, v);
    if (v.type == V_BIGINT && !negative)
        return v;
    if (v.type == V_BIGINT) {
        return big_op(vm, OP_SUB, val_int(0), v);
    }
    vm_type_error(vm, "bad operand type for unary %c: '%s'", negative ? '-' : '+', val_type(v));
}

bool op_contains(struct vm *vm, struct val x, struct val box)
{
    switch (box.type) {
    case V_STR:
        if (x.type != V_STR)
            vm_type_error(vm, "'in <string>' requires string as left operand, not %s", val_type(x));
        vm_work(vm, (uint64_t)box.s->n * 2);
        return memmem(box.s->p, box.s->n, x.s->p, x.s->n) != NULL;
    case V_DICT:
        return dict_get(vm, box.d, x) != NULL;
    default:
        if (!val_iterable(box))
            vm_type_error(vm, "argument of type '%s' is not iterable", val_type(box));
    }
    const struct list *l = val_items(vm, box);
    for (uint32_t i = 0; i < l->n; i++)
        if (val_eq(vm, l->v[i], x))
            return true;
    return false;
}
