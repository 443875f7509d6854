/* Which schemas compile, and which texts they take: for scripts that compare with a test suite.
 *
 *   schema_cases [open|closed]
 *
 * Reads records from stdin: "S <bytes>\n" and a schema, or "I <bytes>\n" and a text, each with a
 * line break behind it. Answers a line each: "ok <ms>" or "refused <why>"; "yes", "no", or "none"
 * where the last schema was refused. */
#include "common/constraint/constraint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool takes(struct constraint *c, const char *text, size_t n)
{
    constraint_state s = constraint_next(c, CONSTRAINT_START, text, n);
    return s != CONSTRAINT_DEAD && constraint_may_end(c, s);
}

int main(int argc, char **argv)
{
    const bool closed = argc > 1 && !strcmp(argv[1], "closed");
    struct constraint *c = NULL;
    char kind;
    size_t n;
    (void)closed;
    while (scanf("%c %zu", &kind, &n) == 2 && getchar() == '\n') {
        char *text = malloc(n + 1);
        if (!text || fread(text, 1, n, stdin) != n || getchar() != '\n')
            return 1;
        text[n] = '\0';
        if (kind == 'S') {
            struct err e = ERR_INIT;
            double t0 = now_ms();
            constraint_unref(c);
            c = constraint_new(CONSTRAINT_JSON_SCHEMA, text, n, &e);
            if (c)
                printf("ok %.3f\n", now_ms() - t0);
            else
                printf("refused %s\n", e.msg);
        } else {
            puts(!c ? "none" : takes(c, text, n) ? "yes" : "no");
        }
        free(text);
    }
    constraint_unref(c);
    return 0;
}
