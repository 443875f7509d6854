/* conv_simd.inc.h - conv_sum() for an instruction set. The including file defines FLOATS, LANES,
 * V(op) and ISA(op). Four vectors of channels at a time hide the latency of a chain. */

static inline void store_apart(float *to, size_t step, FLOATS v)
{
    float lane[LANES];
    if (step == 1) {
        V(storeu_ps)(to, v);
        return;
    }
    V(storeu_ps)(lane, v);
    for (int i = 0; i < LANES; i++)
        to[i * step] = lane[i];
}

CONV_SUM(ISA(conv_sum))
{
    enum { VECTORS = 4 };
    uint32_t c = 0;
    for (; c + VECTORS * LANES <= channels; c += VECTORS * LANES) {
        FLOATS sum[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            sum[v] = V(loadu_ps)(bias + c + v * LANES);
        for (uint32_t j = 0; j < n; j++)
            for (int v = 0; v < VECTORS; v++)
                sum[v] = V(fmadd_ps)(V(loadu_ps)(x[j] + c + v * LANES),
                                     V(loadu_ps)(k[j] + c + v * LANES), sum[v]);
        for (int v = 0; v < VECTORS; v++)
            store_apart(to + (c + v * LANES) * step, step, sum[v]);
    }
    for (; c + LANES <= channels; c += LANES) {
        FLOATS sum = V(loadu_ps)(bias + c);
        for (uint32_t j = 0; j < n; j++)
            sum = V(fmadd_ps)(V(loadu_ps)(x[j] + c), V(loadu_ps)(k[j] + c), sum);
        store_apart(to + c * step, step, sum);
    }
    for (; c < channels; c++) {
        float sum = bias[c];
        for (uint32_t j = 0; j < n; j++)
            sum = __builtin_fmaf(x[j][c], k[j][c], sum);
        to[c * step] = sum;
    }
}
