/* rows.inc.h - a kernel once for each number of rows whose sums fit the registers. Each is a
 * function of its own: a compiler's time grows faster than the size of a function, and was twice as
 * long with all of them in one. */

#define FOR_ROWS(X, ...)                                                                           \
    X(1, __VA_ARGS__)                                                                              \
    X(2, __VA_ARGS__)                                                                              \
    X(3, __VA_ARGS__)                                                                              \
    X(4, __VA_ARGS__)                                                                              \
    X(5, __VA_ARGS__)                                                                              \
    X(6, __VA_ARGS__)                                                                              \
    X(7, __VA_ARGS__)                                                                              \
    X(8, __VA_ARGS__)                                                                              \
    X(9, __VA_ARGS__)                                                                              \
    X(10, __VA_ARGS__)                                                                             \
    X(11, __VA_ARGS__)                                                                             \
    X(12, __VA_ARGS__)                                                                             \
    X(13, __VA_ARGS__)                                                                             \
    X(14, __VA_ARGS__)                                                                             \
    X(15, __VA_ARGS__)                                                                             \
    X(16, __VA_ARGS__)

#define ROWS_FUNCTION(n, name, tile, most, some_rows, ...)                                         \
    static __attribute__((noinline)) void name##_##n(const struct tile *t, uint32_t first)         \
    {                                                                                              \
        if ((n) <= (most))                                                                         \
            some_rows(t, first, n, ##__VA_ARGS__);                                                 \
    }
#define ROWS_ENTRY(n, name, most) (n) <= (most) ? name##_##n : NULL,

/* Defines name(const struct tile *t), which calls some_rows(t, first, rows, ...) for all rows of t,
 * at most `most` at a time: up to 16. `rows` is a constant in it. */
#define EACH_ROWS(name, tile, most, some_rows, ...)                                                \
    FOR_ROWS(ROWS_FUNCTION, name, tile, most, some_rows, ##__VA_ARGS__)                            \
    static void name(const struct tile *t)                                                         \
    {                                                                                              \
        static void (*const by[])(const struct tile *,                                             \
                                  uint32_t) = {FOR_ROWS(ROWS_ENTRY, name, most)};                  \
        for (uint32_t r = 0; r < t->rows; r += (most))                                             \
            by[(t->rows - r < (most) ? t->rows - r : (most)) - 1](t, r);                           \
    }

/* The same as a kernel of kernels.h. */
#define ROWS_KERNEL(op, tile, most, some_rows, ...)                                                \
    EACH_ROWS(op, tile, most, some_rows, ##__VA_ARGS__)                                            \
    void ISA(op)(const struct tile *t) { op(t); }
