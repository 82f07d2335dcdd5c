/* device_fn.h: functions that the host and a GPU run alike, from one source. */
#ifndef BASE_DEVICE_FN_H
#define BASE_DEVICE_FN_H

#ifdef __CUDACC__
#define DEVICE_FN static inline __host__ __device__
#else
#define DEVICE_FN static inline
#endif

#endif
