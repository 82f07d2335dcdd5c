/* single_threaded.h: glibc's, for a program that starts no thread. */
#ifndef WASM_SINGLE_THREADED_H
#define WASM_SINGLE_THREADED_H

#define __libc_single_threaded 1

#endif
