/* One record per number, flushed as it is written. */
#include "train/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"

static uint32_t masked_crc32c(const void *data, size_t n)
{
    uint32_t crc = ~0u;
    for (const unsigned char *p = data; n; p++, n--) {
        crc ^= *p;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* Writes and releases the event. */
static void write_record(FILE *f, sbuf *event)
{
    uint64_t length = event->len;
    uint32_t length_crc = masked_crc32c(&length, sizeof length), data_crc = masked_crc32c(event->data, event->len);
    if (!event->failed) {
        fwrite(&length, 8, 1, f);
        fwrite(&length_crc, 4, 1, f);
        fwrite(event->data, 1, event->len, f);
        fwrite(&data_crc, 4, 1, f);
        fflush(f);
    }
    sbuf_release(event);
}

/* Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 } */
static sbuf begin_event(void)
{
    enum { WALL_TIME = 1 << 3 | 1 }; /* field 1, 64 bits */
    sbuf s = { 0 };
    struct timeval now;
    gettimeofday(&now, NULL);
    double seconds = (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
    sbuf_putc(&s, WALL_TIME);
    sbuf_add(&s, &seconds, sizeof seconds);
    return s;
}

/* Summary { repeated Value value = 1 }, Value { string tag = 1; float simple_value = 2 } */
void tensorboard_scalar(FILE *f, const char *tag, int64_t step, double value)
{
    sbuf number = { 0 }, summary = { 0 }, event = begin_event();
    proto_text(&number, 1, tag);
    proto_float(&number, 2, (float)value);
    proto_message(&summary, 1, &number);
    proto_int(&event, 2, step);
    proto_message(&event, 5, &summary);
    write_record(f, &event);
}

cloob_status tensorboard_open(cloob_ctx *ctx, const char *dir, FILE **out)
{
    char path[1200], host[64] = "host";
    struct timeval now;
    gettimeofday(&now, NULL);
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%010ld.%s.%ld.%06ld", dir, (long)now.tv_sec, host,
             (long)getpid(), (long)now.tv_usec);
    *out = fopen(path, "wb");
    if (!*out) return file_fail(ctx, path, "cannot write");
    sbuf event = begin_event();
    proto_text(&event, 3, "brain.Event:2");
    write_record(*out, &event);
    return CLOOB_OK;
}
