#include "model-server/model/random_weights.h"
#include "common/hash.h"
#include "common/multiversion.h"
#include <stdlib.h>
#include <string.h>

struct job {
    uint16_t *out;
    uint32_t seed;
    float mean, spread;
};

/* A counter goes through murmur3's finaliser: elements know nothing of each other, so any thread
 * may make any of them. */
MULTIVERSION static void fill(uint16_t *out, struct job job, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        uint32_t h = ((uint32_t)i ^ job.seed) + (uint32_t)(i >> 32) * 0x9e3779b9u, bits;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        float v = job.mean + job.spread * ((float)(int32_t)h * 0x1p-31f);
        memcpy(&bits, &v, sizeof(bits));
        out[i] = (uint16_t)(bits >> 16);
    }
}

static void make(void *arg, int thread, size_t begin, size_t end)
{
    const struct job *j = arg;
    (void)thread;
    fill(j->out, *j, begin, end);
}

void *random_tensor(const struct backend_ops *ops, struct device *dev, const char *name, size_t n,
                    float mean, float spread)
{
    struct job j = {.seed = (uint32_t)hash_bytes(0, name, strlen(name)), .mean = mean};
    j.spread = spread;
    j.out = malloc(n ? n * sizeof(uint16_t) : 1);
    if (j.out && ops->host_run)
        ops->host_run(dev, make, &j, n);
    else if (j.out)
        make(&j, 0, 0, n);
    return j.out;
}
