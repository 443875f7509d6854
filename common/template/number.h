/* number.h - formats a number or string; shared by %-formatting and str.format(). */
#ifndef COMMON_TEMPLATE_NUMBER_H
#define COMMON_TEMPLATE_NUMBER_H
#include "common/template/vm.h"

struct spec {
    uint32_t fill; /* code point; 0: none given */
    char align;    /* < > = ^; 0: none given */
    char sign;     /* + - or space; 0: none given */
    bool alt, zero;
    char group; /* , _ or 0 */
    char type;  /* 0: none given */
    int64_t width;
    int precision; /* -1: none given */
};
enum { MAX_PRECISION = 300 };

/* d i u x X o b c n for integers, e E f F g G % for floats. */
void format_int(struct vm *vm, struct strbuf *b, int64_t v, const struct spec *s);
void format_big(struct vm *vm, struct strbuf *b, struct val v, const struct spec *s); /* V_BIGINT */
void format_float(struct vm *vm, struct strbuf *b, double f, const struct spec *s);
void format_text(struct vm *vm, struct strbuf *b, struct val str, const struct spec *s);
#endif
