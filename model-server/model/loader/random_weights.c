#include "model-server/model/loader/random_weights.h"
#include "common/hash.h"
#include "common/multiversion.h"
#include <stdlib.h>
#include <string.h>

struct fill_job {
    uint16_t *out;
    struct random_tensor of;
};

/* Elements are independent, so any thread may generate any of them. */
MULTIVERSION static void fill(uint16_t *out, struct random_tensor of, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        out[i] = random_element(of, i);
}

static void make(void *arg, int thread, size_t begin, size_t end)
{
    const struct fill_job *j = arg;
    (void)thread;
    fill(j->out, j->of, begin, end);
}

struct random_tensor random_tensor(const char *name, float mean, float spread)
{
    return (struct random_tensor){(uint32_t)hash_bytes(0, name, strlen(name)), mean, spread};
}

void *random_data(const struct backend_ops *ops, struct device *dev, struct random_tensor t,
                  size_t n)
{
    struct fill_job j = {malloc(n ? n * sizeof(uint16_t) : 1), t};
    if (j.out && ops->host_run)
        ops->host_run(dev, make, &j, n);
    else if (j.out)
        make(&j, 0, 0, n);
    return j.out;
}
