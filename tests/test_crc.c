/* CRC32C: the published values, by table and by instruction; both agree on everything else, in any pieces. */
#include "support/check.h"

#include <string.h>

#include "base/crc.h"

typedef uint32_t checksum(uint32_t crc, const void *data, size_t bytes);
static checksum *const ways[] = {crc32c, crc32c_table, crc32c_instruction};

static int n_ways(void) { return crc32c_has_instruction() ? 3 : 2; }

/* RFC 3720, B.4, and the check value of the catalogues of CRCs ("123456789"). */
static void published_values_come_out(void **state) {
    (void)state;
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    memset(ones, 0xff, 32);
    for (int i = 0; i < 32; i++) up[i] = (unsigned char)i, down[i] = (unsigned char)(31 - i);
    static const unsigned char command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, 0x28, [40] = 0x02};
    for (int w = 0; w < n_ways(); w++) {
        expect_equal(ways[w](0, "", 0), 0);
        expect_equal(ways[w](0, "123456789", 9), 0xe3069283u);
        expect_equal(ways[w](0, zeros, 32), 0x8a9136aau);
        expect_equal(ways[w](0, ones, 32), 0x62a8ab43u);
        expect_equal(ways[w](0, up, 32), 0x46dd794eu);
        expect_equal(ways[w](0, down, 32), 0x113fdb5cu);
        expect_equal(ways[w](0, command, 48), 0xd9963a56u);
    }
}

/* The definition, bit by bit. */
static uint32_t plain(const unsigned char *p, size_t n) {
    uint32_t r = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        r ^= p[i];
        for (int k = 0; k < 8; k++) r = r & 1 ? r >> 1 ^ 0x82f63b78u : r >> 1;
    }
    return ~r;
}

static void any_length_address_and_cut_agree_with_the_definition(void **state) {
    (void)state;
    unsigned char data[128];
    uint32_t r = 1;
    for (int i = 0; i < 128; i++) data[i] = (unsigned char)((r = r * 1664525u + 1013904223u) >> 24);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t n = 0; n + begin <= 100; n++)
            for (int w = 0; w < n_ways(); w++) {
                expect_equal(ways[w](0, data + begin, n), plain(data + begin, n));
                size_t cut = n / 3;
                expect_equal(ways[w](ways[w](0, data + begin, cut), data + begin + cut, n - cut),
                             plain(data + begin, n));
            }
}

static void every_flipped_bit_is_seen(void **state) {
    (void)state;
    unsigned char data[64] = {1, 2, 3};
    uint32_t whole = crc32c(0, data, 64);
    for (int bit = 0; bit < 512; bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_true(crc32c(0, data, 64) != whole);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(published_values_come_out),
        TEST(any_length_address_and_cut_agree_with_the_definition),
        TEST(every_flipped_bit_is_seen),
    };
    return cmocka_run_group_tests_name("crc", tests, NULL, NULL);
}
