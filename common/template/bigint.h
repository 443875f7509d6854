/* bigint.h - exact integers of up to BIG_DIGITS decimal digits (Python's limit for printing).
 *
 * A value is V_INT if it fits into 64 bits, otherwise V_BIGINT with its decimal digits. The cost
 * charged is the product of the lengths. FAULT_LIMIT: the result has more digits. */
#ifndef COMMON_TEMPLATE_BIGINT_H
#define COMMON_TEMPLATE_BIGINT_H
#include "common/template/vm.h"

enum { BIG_DIGITS = 4300 };
/* OP_ADD to OP_POW except OP_DIV, on V_BOOL, V_INT and V_BIGINT, with Python's sign rules. b >= 0
 * for OP_POW. */
struct val big_op(struct vm *vm, int op, struct val a, struct val b);
/* Parses digits in base 2 to 36 with an optional sign; all must be valid. */
struct val big_parse(struct vm *vm, const char *digits, unsigned base);
/* The digits of the magnitude in that base. */
const char *big_digits(struct vm *vm, struct val v, unsigned base);
double big_to_double(struct vm *vm, struct val v);
struct val big_from_double(struct vm *vm, double f); /* finite; rounds towards 0 */
#endif
