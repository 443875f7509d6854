/* state.inc.h - the kernels of recurrent layers in vectors of 16 lanes: see
 * simd.inc.h, which includes it. */

void ISA(gate)(float *x, const float *g, uint32_t n, bool sigmoid)
{
    const v16 one = v_set(1.0f);
    FOR_LANES(i, m, n)
    {
        v16 by = v_load_n(g + i, m);
        if (sigmoid)
            by = v_div(one, v_add(one, v_exp(v_neg(by))));
        v_store_n(x + i, v_mul(v_load_n(x + i, m), by), m);
    }
}

void ISA(conv_row)(float *y, const float *const *x, const float *w, size_t stride,
                   const float *bias, uint32_t width, uint32_t n)
{
    FOR_LANES(i, m, n)
    {
        v16 sum = bias ? v_load_n(bias + i, m) : v_set(0.0f);
        for (uint32_t j = 0; j < width; j++)
            sum = v_fma(v_load_n(w + j * stride + i, m), v_load_n(x[j] + i, m), sum);
        v_store_n(y + i, sum, m);
    }
}

/* ---------------------------------------------------------------- a token of a head */

INLINE void known_values(const struct recur_step *t, v16 *u, const uint32_t panels, const bool each)
{
    v16 known[RECUR_PANELS];
    UNROLL for (uint32_t p = 0; p < panels; p++) known[p] = v_set(0.0f);
    for (uint32_t i = 0; i < t->keys; i++) {
        const v16 k = v_set(each ? t->k[i] * t->decays[i] : t->k[i]);
        const float *s = t->from + (size_t)i * LANES;
        UNROLL for (uint32_t p = 0; p < panels; p++) known[p] =
            v_fma(k, v_load(s + p * t->panel), known[p]);
    }
    const v16 decay = v_set(each ? -1.0f : -t->decay);
    UNROLL for (uint32_t p = 0; p < panels; p++) u[p] = v_fma(decay, known[p], u[p]);
}

INLINE void go_on(const struct recur_step *t, const v16 *u, v16 *o, const uint32_t panels,
                  const bool each)
{
    const v16 all = v_set(t->decay);
    for (uint32_t i = 0; i < t->keys; i++) {
        const v16 k = v_set(t->k[i]), q = v_set(t->q[i]);
        const v16 decay = each ? v_set(t->decays[i]) : all;
        const float *from = t->from + (size_t)i * LANES;
        float *s = t->s + (size_t)i * LANES;
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const v16 now = v_fma(k, u[p], v_mul(decay, v_load(from + p * t->panel)));
            v_store(s + p * t->panel, now);
            o[p] = v_fma(q, now, o[p]);
        }
    }
}

INLINE void recur_panels(const struct recur_step *t, const uint32_t panels, const bool each)
{
    v16 v[RECUR_PANELS], u[RECUR_PANELS], o[RECUR_PANELS];
#define IN_PANEL(p) ((p) + 1 < panels ? LANES : t->n - (panels - 1) * LANES)
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        u[p] = v[p] = v_load_n(t->v + p * LANES, IN_PANEL(p));
        o[p] = v_set(0.0f);
    }
    if (t->delta)
        known_values(t, u, panels, each);
    UNROLL for (uint32_t p = 0; p < panels; p++) u[p] = v_mul(u[p], v_set(t->beta));
    go_on(t, u, o, panels, each);
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        if (t->skip)
            o[p] = v_fma(v_set(*t->skip), v[p], o[p]);
        v_store_n(t->o + p * LANES, o[p], IN_PANEL(p));
    }
#undef IN_PANEL
}

/* With `erase`. */
INLINE void rwkv_panels(const struct recur_step *t, const uint32_t panels)
{
    v16 v[RECUR_PANELS], e[RECUR_PANELS], o[RECUR_PANELS];
#define IN_PANEL(p) ((p) + 1 < panels ? LANES : t->n - (panels - 1) * LANES)
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        v[p] = v_load_n(t->v + p * LANES, IN_PANEL(p));
        e[p] = o[p] = v_set(0.0f);
    }
    for (uint32_t i = 0; i < t->keys; i++) {
        const v16 erase = v_set(t->erase[i]);
        const float *s = t->from + (size_t)i * LANES;
        UNROLL for (uint32_t p = 0; p < panels; p++) e[p] =
            v_fma(erase, v_load(s + p * t->panel), e[p]);
    }
    for (uint32_t i = 0; i < t->keys; i++) {
        const v16 k = v_set(t->k[i]), q = v_set(t->q[i]);
        const v16 decay = v_set(t->decays[i]), minus = v_set(-t->put[i]);
        const float *from = t->from + (size_t)i * LANES;
        float *s = t->s + (size_t)i * LANES;
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const v16 kept = v_mul(decay, v_load(from + p * t->panel));
            const v16 now = v_fma(minus, e[p], v_fma(k, v[p], kept));
            v_store(s + p * t->panel, now);
            o[p] = v_fma(q, now, o[p]);
        }
    }
    UNROLL for (uint32_t p = 0; p < panels; p++) v_store_n(t->o + p * LANES, o[p], IN_PANEL(p));
#undef IN_PANEL
}

INLINE void rwkv_values(const struct recur_step *t)
{
    switch ((t->n + LANES - 1) / LANES) {
    case 1:
        rwkv_panels(t, 1);
        break;
    case 2:
        rwkv_panels(t, 2);
        break;
    case 3:
        rwkv_panels(t, 3);
        break;
    default:
        rwkv_panels(t, 4);
    }
}

/* Values [at, at + n) of RECUR_SCAN, n <= LANES. */
INLINE void scan_panel(const struct recur_step *t, uint32_t at, uint32_t n)
{
    const v16 d = v_load_n(t->steps + at, n), v = v_load_n(t->v + at, n), u = v_mul(d, v);
    const float *from = t->from + at / LANES * t->panel;
    float *s = t->s + at / LANES * t->panel;
    v16 o = v_set(0.0f);
    for (uint32_t i = 0; i < t->keys; i++) {
        const v16 decay = v_exp(v_mul(v_load_n(t->rates + i * t->rate_stride + at, n), d));
        const v16 now = v_fma(v_set(t->k[i]), u, v_mul(decay, v_load(from + (size_t)i * LANES)));
        v_store(s + (size_t)i * LANES, now);
        o = v_fma(v_set(t->q[i]), now, o);
    }
    v_store_n(t->o + at, v_fma(v_load_n(t->skip + at, n), v, o), n);
}

INLINE void recur_values(const struct recur_step *t, const bool each)
{
    switch ((t->n + LANES - 1) / LANES) {
    case 1:
        recur_panels(t, 1, each);
        break;
    case 2:
        recur_panels(t, 2, each);
        break;
    case 3:
        recur_panels(t, 3, each);
        break;
    default:
        recur_panels(t, 4, each);
    }
}

void ISA(recur)(const struct recur_step *t)
{
    if (t->rates) {
        FOR_LANES(at, n, t->n) { scan_panel(t, at, n); }
        return;
    }
    if (t->erase)
        rwkv_values(t);
    else if (t->decays)
        recur_values(t, true);
    else
        recur_values(t, false);
}
