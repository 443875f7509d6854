/* stream_x.cuh - the input x of linear_stream: rows of fp32, of 8 bits, or a norm of rows that
 * the block computes itself. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_X_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_X_CUH
#include "model-server/backend/cuda/kernels/linear_mma.cuh"
#include "model-server/backend/cuda/kernels/norm.cuh"

/* The rows of x and of y of a column of the tile. */
struct stream_rows {
    const uint32_t *list;
    uint32_t n, first;
    __device__ bool has(uint32_t i) const { return first + i < n; }
    __device__ size_t x(const linear_args &a, uint32_t i) const
    {
        return list ? list[first + i] / a.per_row : first + i;
    }
    __device__ size_t y(uint32_t i) const { return list ? list[first + i] : first + i; }
};

/* The first of a lane's columns in its warp's slice, and the distance of the second four of its
 * eight columns of a part. */
template <class F> static __device__ __forceinline__ uint32_t lane_column(const linear_args &a)
{
    const uint32_t t = threadIdx.x % 4, of_part = F::HALVES ? 4 * t : 16 / F::T::BYTES * t;
    return slice_begin(a.w.cols, threadIdx.x / 32, F::QUANT) + of_part;
}
template <class F> static __device__ __forceinline__ uint32_t apart(void)
{
    return F::HALVES ? 16 : 4;
}

/* A row of x as a lane's fragments: its columns of the part that begins k columns after the slice,
 * eight in 16 bits, or 16 in 8 bits. Zeros past the end. A missing row is that of another: nothing
 * looks at its products. */
template <class F> struct x_rows {
    typedef typename F::T T;
    const float *x;
    const char *bytes;
    uint32_t first, cols;
    bool aligned;
    __device__ void init(const linear_args &a, const stream_rows &rows, uint32_t i)
    {
        const size_t row = rows.x(a, rows.has(i) ? i : 0);
        first = lane_column<F>(a), cols = a.w.cols;
        aligned = a.w.cols % k_align(F::QUANT) == 0;
        x = a.x + row * a.w.cols;
        bytes = (const char *)a.narrow + row * k_padded(a.w.cols, F::QUANT) + first;
    }
    __device__ __forceinline__ uint4 at(uint32_t k) const
    {
        if constexpr (T::BYTES == 1) {
            return *(const uint4 *)(bytes + k);
        } else {
            float f[8];
            const uint32_t from = first + k, then = from + apart<F>();
            if (aligned) {
                float4 lo = *(const float4 *)(x + from), hi = *(const float4 *)(x + then);
                f[0] = lo.x, f[1] = lo.y, f[2] = lo.z, f[3] = lo.w;
                f[4] = hi.x, f[5] = hi.y, f[6] = hi.z, f[7] = hi.w;
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const uint32_t at = i < 4 ? from + i : then + i - 4;
                    f[i] = at < cols ? x[at] : 0.0f;
                }
            }
            return make_uint4(T::pack(f[0], f[1]), T::pack(f[2], f[3]), T::pack(f[4], f[5]),
                              T::pack(f[6], f[7]));
        }
    }
};

/* The same from the results of take_norms() or take_rows() in shared memory. */
template <class F> struct x_shared {
    uint32_t place; /* in the block's shared memory */
    __device__ void init(const linear_args &a, const unsigned char *room, uint32_t row)
    {
        place = (uint32_t)(room - dynamic_shared<unsigned char>()) +
                row * (uint32_t)stream_x_pitch(&a) + 2 * lane_column<F>(a);
    }
    __device__ __forceinline__ uint4 at(uint32_t k) const
    {
        const unsigned char *columns = dynamic_shared<unsigned char>() + place;
        if constexpr (F::HALVES) {
            const uint2 lo = *(const uint2 *)(columns + 2 * k);
            const uint2 hi = *(const uint2 *)(columns + 2 * (k + apart<F>()));
            return make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
        return *(const uint4 *)(columns + 2 * k);
    }
};

/* Which four columns of a warp's slice, and of which row, a lane takes: every 32nd of all. */
struct quad_walk {
    uint32_t row, quad;
    __device__ __forceinline__ void next(uint32_t quads)
    {
        for (quad += 32; quad >= quads; quad -= quads)
            row++;
    }
};

/* Rounds this warp's slice of all rows of x for the product: no other warp of the block reads it.
 * A lane has up to BATCH outstanding loads. */
template <class F, int BATCH>
static __device__ __forceinline__ void take_rows(const linear_args &a, unsigned char *room)
{
    typedef typename F::T T;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.w.cols;
    const uint32_t begin = slice_begin(n, warp, F::QUANT);
    const uint32_t quads = (slice_begin(n, warp + 1, F::QUANT) - begin) / 4;
    if (!quads)
        return;
    quad_walk to = {lane / quads, lane % quads}, from = to;
    while (to.row < a.rows) {
        float4 f[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++, from.next(quads))
            f[i] = from.row < a.rows ? four_of(a.x + (size_t)from.row * n, begin + 4 * from.quad, n)
                                     : float4{};
#pragma unroll
        for (int i = 0; i < BATCH; i++, to.next(quads)) {
            uint2 pairs;
            pairs.x = T::pack(f[i].x, f[i].y), pairs.y = T::pack(f[i].z, f[i].w);
            if (to.row < a.rows)
                *(uint2 *)(room + to.row * stream_x_pitch(&a) + 2 * (begin + 4 * to.quad)) = pairs;
        }
    }
    __syncwarp();
}

/* The same of rows that are in 16 bits, in the order NARROW_PLAIN. */
template <class F>
static __device__ __forceinline__ void take_narrow(const linear_args &a, unsigned char *room)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t begin = 2 * slice_begin(a.w.cols, warp, F::QUANT);
    const uint32_t end = 2 * slice_begin(a.w.cols, warp + 1, F::QUANT);
    const size_t pitch = 2 * k_padded(a.w.cols, F::QUANT);
    for (uint32_t row = 0; row < a.rows; row++)
        for (uint32_t at = begin + 16 * lane; at < end; at += 16 * 32)
            copy_async(room + row * stream_x_pitch(&a) + at,
                       (const char *)a.narrow + row * pitch + at, true);
    copy_commit();
    copy_wait<0>();
    __syncwarp();
}

/* Every block computes the norm of all rows, as norm_kernel(), rounded for the product and padded
 * with zeros. One block per row also stores it in fp32, for its other readers. `part` has its
 * weights. `sums`: NORM_WARPS floats of shared memory. Complete after a barrier. */
template <class F>
static __device__ __forceinline__ void take_norms(const stream_args &s, norm_part *part,
                                                  unsigned char *room, float *sums)
{
    const uint32_t n = s.norm.n;
    for (uint32_t row = 0; row < s.l.rows; row++) {
        const float *x = s.norm.x + (size_t)row * n;
        float *y = row % gridDim.x == blockIdx.x ? s.norm.y + (size_t)row * n : NULL;
        unsigned char *to = room + row * stream_x_pitch(&s.l);
        auto read = [&](uint32_t k) { return four_of(x, k, n); };
        part->take(s.norm, sums, read, read);
        part->give(s.norm, k_padded(n, F::QUANT), read, [&](uint32_t k, float4 f) {
            uint2 pairs;
            pairs.x = F::T::pack(f.x, f.y), pairs.y = F::T::pack(f.z, f.w);
            *(uint2 *)(to + 2 * k) = pairs;
            if (y)
                put_four(y, k, n, f);
        });
    }
}
#endif
