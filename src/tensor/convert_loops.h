/* convert_loops.h: the loops of one dtype. A template: convert.c includes it once per dtype, with
 *
 *   CONVERT_DTYPE    the name, as in f16
 *   CONVERT_STORED   the C type of one element's bits, as in uint16_t
 *   CONVERT_PACKED   defined when elements are no C objects; <name>_read and <name>_write then exist already
 *   CONVERT_ROUNDED  defined when <name>_encode(double, mode, random) exists
 *   CONVERT_ODD      defined when an f64 may be brought to f32, rounded to odd, first
 *   CONVERT_MANY     defined when <name>_from_f32_many(out, in, n) does the first of n elements and says how many
 *
 * and the element functions <name>_to_f32, _to_f64, _to_i64, _from_f32, _from_f64, _from_i64 in scope. It
 * leaves behind <name>_codec. Loops of stride 1 are written out, since only those vectorise. Elements are
 * moved with memcpy, so that no alias or alignment rule depends on what type a kernel used for the same
 * bytes.
 */

#define NAME_PASTE(dtype, suffix) dtype##_##suffix
#define NAME_EXPAND(dtype, suffix) NAME_PASTE(dtype, suffix)
#define NAME(suffix) NAME_EXPAND(CONVERT_DTYPE, suffix)

#ifndef CONVERT_PACKED
static inline CONVERT_STORED NAME(read)(const unsigned char *data, int64_t index) {
    CONVERT_STORED value;
    memcpy(&value, data + index * (int64_t)sizeof value, sizeof value);
    return value;
}

static inline void NAME(write)(unsigned char *data, int64_t index, CONVERT_STORED value) {
    memcpy(data + index * (int64_t)sizeof value, &value, sizeof value);
}
#endif

static void NAME(load_f32)(void *restrict hub, const void *restrict in, int64_t stride, int64_t n) {
    float *out = hub;
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_f32)(NAME(read)(in, i));
    else
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_f32)(NAME(read)(in, i * stride));
}

static void NAME(load_f64)(void *restrict hub, const void *restrict in, int64_t stride, int64_t n) {
    double *out = hub;
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_f64)(NAME(read)(in, i));
    else
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_f64)(NAME(read)(in, i * stride));
}

static void NAME(load_i64)(void *restrict hub, const void *restrict in, int64_t stride, int64_t n) {
    int64_t *out = hub;
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_i64)(NAME(read)(in, i));
    else
        for (int64_t i = 0; i < n; i++) out[i] = NAME(to_i64)(NAME(read)(in, i * stride));
}

static void NAME(store_f32)(void *restrict out, int64_t stride, const void *restrict hub, int64_t n) {
    const float *in = hub;
    int64_t done = 0;
#ifdef CONVERT_MANY
    if (stride == 1) done = NAME(from_f32_many)(out, in, n);
#endif
    if (stride == 1)
        for (int64_t i = done; i < n; i++) NAME(write)(out, i, NAME(from_f32)(in[i]));
    else
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i * stride, NAME(from_f32)(in[i]));
}

static void NAME(store_f64)(void *restrict out, int64_t stride, const void *restrict hub, int64_t n) {
    const double *in = hub;
#if defined(CONVERT_ODD) && !defined(CONVERT_PACKED)
    for (int64_t i = 0; stride == 1 && i < n; i += ODD_CHUNK) {
        float odd[ODD_CHUNK];
        const int64_t count = n - i < ODD_CHUNK ? n - i : ODD_CHUNK;
        f64_to_f32_odd_many(odd, in + i, count);
        NAME(store_f32)((unsigned char *)out + i * (int64_t)sizeof(CONVERT_STORED), 1, odd, count);
    }
    if (stride == 1) return;
#endif
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i, NAME(from_f64)(in[i]));
    else
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i * stride, NAME(from_f64)(in[i]));
}

static void NAME(store_i64)(void *restrict out, int64_t stride, const void *restrict hub, int64_t n) {
    const int64_t *in = hub;
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i, NAME(from_i64)(in[i]));
    else
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i * stride, NAME(from_i64)(in[i]));
}

static void NAME(copy)(void *restrict out, int64_t out_stride, const void *restrict in, int64_t in_stride, int64_t n) {
    if (out_stride == 1 && in_stride == 1)
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i, NAME(read)(in, i));
    else
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i * out_stride, NAME(read)(in, i * in_stride));
}

#ifdef CONVERT_ROUNDED
static void NAME(store_rounded)(void *restrict out, int64_t stride, const double *restrict in, int64_t n,
                                enum convert_mode mode, const uint32_t *random) {
    if (mode == CONVERT_SATURATE && stride == 1) /* a mode that is known here leaves no branch */
        for (int64_t i = 0; i < n; i++) NAME(write)(out, i, NAME(encode)(in[i], CONVERT_SATURATE, 0));
    else
        for (int64_t i = 0; i < n; i++)
            NAME(write)(out, i * stride, NAME(encode)(in[i], mode, mode == CONVERT_STOCHASTIC ? random[i] : 0));
}
#endif

static const struct codec NAME(codec) = {
    .load = {[HUB_F32] = NAME(load_f32), [HUB_F64] = NAME(load_f64), [HUB_I64] = NAME(load_i64)},
    .store = {[HUB_F32] = NAME(store_f32), [HUB_F64] = NAME(store_f64), [HUB_I64] = NAME(store_i64)},
    .copy = NAME(copy),
#ifdef CONVERT_ROUNDED
    .store_rounded = NAME(store_rounded),
#endif
};

#undef NAME
#undef NAME_EXPAND
#undef NAME_PASTE
#undef CONVERT_DTYPE
#undef CONVERT_STORED
#undef CONVERT_PACKED
#undef CONVERT_ROUNDED
#undef CONVERT_MANY
#undef CONVERT_ODD
