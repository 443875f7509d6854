/* workers.h - the device's host threads for loops over rows; none: the caller works alone. */
#ifndef MODEL_SERVER_QUANTIZE_WORKERS_H
#define MODEL_SERVER_QUANTIZE_WORKERS_H
#include "model-server/backend/backend.h"

struct workers {
    const struct backend_ops *ops;
    struct device *dev;
};
typedef void workers_fn(void *arg, int thread, size_t begin, size_t end);

/* Calls fn over ranges that cover [0, n); returns when all are done. */
static inline void workers_run(const struct workers *w, workers_fn *fn, void *arg, size_t n)
{
    if (n && w->ops && w->ops->host_run)
        w->ops->host_run(w->dev, fn, arg, n);
    else if (n)
        fn(arg, 0, 0, n);
}
#endif
