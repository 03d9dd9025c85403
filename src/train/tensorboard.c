/* One record per number, flushed as it is written. */
#include "train/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/sbuf.h"

struct tensorboard {
    FILE *f;
};

/* ---- records ------------------------------------------------------------------------------------- */

static uint32_t crc32c(const void *data, size_t n)
{
    uint32_t crc = ~0u;
    for (const unsigned char *p = data; n; p++, n--) {
        crc ^= *p;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t n)
{
    uint32_t crc = crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void write_record(tensorboard *t, const sbuf *event)
{
    uint64_t length = event->len;
    uint32_t length_crc = masked(&length, sizeof length), data_crc = masked(event->data, event->len);
    fwrite(&length, 8, 1, t->f);
    fwrite(&length_crc, 4, 1, t->f);
    fwrite(event->data, 1, event->len, t->f);
    fwrite(&data_crc, 4, 1, t->f);
    fflush(t->f);
}

/* ---- protocol buffers ---------------------------------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(sbuf *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) sbuf_putc(s, (char)(v | 0x80));
    sbuf_putc(s, (char)v);
}

static void put_key(sbuf *s, int field, int type) { put_varint(s, (uint64_t)(field << 3 | type)); }

static void put_bytes(sbuf *s, int field, const void *data, size_t n)
{
    put_key(s, field, BYTES);
    put_varint(s, n);
    sbuf_add(s, data, n);
}

/* Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 } */
static void begin_event(sbuf *s)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    double seconds = (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
    put_key(s, 1, FIXED64);
    sbuf_add(s, &seconds, sizeof seconds);
}

/* Summary { repeated Value value = 1 }, Value { string tag = 1; float simple_value = 2 } */
void tensorboard_scalar(tensorboard *t, const char *tag, int64_t step, double value)
{
    sbuf number = { 0 }, summary = { 0 }, event = { 0 };
    float v = (float)value;
    put_bytes(&number, 1, tag, strlen(tag));
    put_key(&number, 2, FIXED32);
    sbuf_add(&number, &v, sizeof v);
    put_bytes(&summary, 1, number.data, number.len);
    begin_event(&event);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.data, summary.len);
    if (!event.failed && !summary.failed && !number.failed) write_record(t, &event);
    sbuf_release(&number);
    sbuf_release(&summary);
    sbuf_release(&event);
}

cloob_status tensorboard_open(cloob_ctx *ctx, const char *dir, tensorboard **out)
{
    char path[1200], host[64] = "host";
    struct timeval now;
    tensorboard *t = calloc(1, sizeof *t);
    if (!t) return ctx_no_memory(ctx, sizeof *t, "TensorBoard events");
    gettimeofday(&now, NULL);
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%010ld.%s.%ld.%06ld", dir, (long)now.tv_sec, host,
             (long)getpid(), (long)now.tv_usec);
    t->f = fopen(path, "wb");
    if (!t->f) {
        free(t);
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    sbuf event = { 0 };
    begin_event(&event);
    put_bytes(&event, 3, "brain.Event:2", 13);
    if (!event.failed) write_record(t, &event);
    sbuf_release(&event);
    *out = t;
    return CLOOB_OK;
}

void tensorboard_close(tensorboard *t)
{
    if (!t) return;
    fclose(t->f);
    free(t);
}
