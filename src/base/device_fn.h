/* device_fn.h: functions that run on the host and on a GPU, from one source. */
#ifndef BASE_DEVICE_FN_H
#define BASE_DEVICE_FN_H

#ifdef __CUDACC__
#define DEVICE_FN static inline __host__ __device__
#else
#define DEVICE_FN static inline
#endif

#endif
