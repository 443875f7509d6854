/* vector_x86.inc.h - the operations of vector_avx2.inc.h and vector_avx512.inc.h that are the same
 * for both, on registers of 4 and 8 lanes. The including file defines v_fold_add() and
 * v_fold_max(). */

/* Adds 0 to 2 and 1 to 3, then these two. */
static inline float fold4_add(__m128 q)
{
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The sum of 16 lanes, folded in halves: i + 8, i + 4, i + 2, i + 1. */
static inline float v_sum(v16 v)
{
    __m256 h = v_fold_add(v);
    return fold4_add(_mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}

/* The maximum of 16 lanes, folded likewise. */
static inline float v_top(v16 v)
{
    __m256 h = v_fold_max(v);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* Transposes 4 x 4 numbers at src[0..3], times `scale`, into four rows of dst that are `xs` apart.
 */
static inline void v_transpose4(float *dst, size_t xs, const float *const src[4], float scale)
{
    const __m128 s = _mm_set1_ps(scale);
    __m128 a = _mm_loadu_ps(src[0]), b = _mm_loadu_ps(src[1]);
    __m128 c = _mm_loadu_ps(src[2]), d = _mm_loadu_ps(src[3]);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(dst, _mm_mul_ps(a, s));
    _mm_storeu_ps(dst + xs, _mm_mul_ps(b, s));
    _mm_storeu_ps(dst + 2 * xs, _mm_mul_ps(c, s));
    _mm_storeu_ps(dst + 3 * xs, _mm_mul_ps(d, s));
}

/* Reorders 16 bytes: in each eight, those of even index come first. */
static inline void b_even_first(void *p)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    _mm_storeu_si128(p, _mm_shuffle_epi8(_mm_loadu_si128(p), order));
}
