/* isa_list.h: the instruction sets for which the kernels are compiled besides the compiler's own default (which every
 * chip of the architecture has, and which is called "baseline"), least capable first:
 *
 *     ISA(name, is_there)
 *
 * The Makefile says how each is compiled (ISA_FLAGS_name); is_there is evaluated at run time.
 */
#if defined(__aarch64__)
ISA(fp16, has_fp16)
ISA(bf16, has_bf16)
#elif defined(__x86_64__)
ISA(avx2, has_avx2)
ISA(avx512, has_avx512)
ISA(avx512bf16, has_avx512bf16)
ISA(amx, has_amx)
#endif
