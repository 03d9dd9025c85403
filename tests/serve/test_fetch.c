/* URLs that the server fetches: how far redirects are followed, and where they may not lead. Every connection of this
 * program ends at a server of its own on loopback, whatever address was asked for, so that public and private addresses
 * alike are tried without a network. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/state.h"

static cloob_ctx *ctx;
static int port;
static atomic_int asked; /* requests that reached the server */

/* Takes libc's place, also for libcurl. */
__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *a, socklen_t n)
{
    struct sockaddr_in home = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    home.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
    if (a->sa_family == AF_INET) return (int)syscall(SYS_connect, fd, &home, sizeof home);
    if (a->sa_family == AF_INET6) return (int)syscall(SYS_connect, fd, &six, sizeof six);
    return (int)syscall(SYS_connect, fd, a, n);
}

/* /hop/N leads to /hop/N-1 and /hop/0 is an image; /to/URL leads to URL. */
static void answer(int c)
{
    char request[2048] = "", reply[2300] = "", *end, *path;
    ssize_t n = recv(c, request, sizeof request - 1, 0);
    atomic_fetch_add(&asked, 1);
    path = n > 4 ? request + 4 : request;
    if ((end = strchr(path, ' '))) *end = 0;
    int hops = strncmp(path, "/hop/", 5) == 0 ? atoi(path + 5) : 0;
    if (hops > 0)
        snprintf(reply, sizeof reply, "HTTP/1.1 302 Found\r\nLocation: /hop/%d\r\nContent-Length: 0\r\n\r\n", hops - 1);
    else if (strncmp(path, "/to/", 4) == 0)
        snprintf(reply, sizeof reply, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", path + 4);
    else snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage");
    if (send(c, reply, strlen(reply), MSG_NOSIGNAL) < 0) perror("send");
    close(c);
}

static void *serve_main(void *arg)
{
    int fd = *(int *)arg;
    for (int c; (c = accept(fd, NULL, NULL)) >= 0;) answer(c);
    return NULL;
}

static bool fetches(const char *const *host, int64_t hosts, const char *url, const char *words)
{
    serve_options o = { .url_host = host, .url_hosts = hosts };
    account memory = { 0 };
    unsigned char *data = NULL;
    size_t bytes = 0;
    cloob_status status = fetch_url(ctx, &o, url, 1000, 10, &memory, &data, &bytes);
    bool ok = status == CLOOB_OK && bytes == 5 && memcmp(data, "image", 5) == 0;
    free(data);
    if (!ok && words && !strstr(cloob_error(ctx), words)) {
        printf("  %s: %s\n", url, cloob_error(ctx));
        CHECK(false);
    }
    return ok;
}

#define HERE "203.0.113.7" /* a public address, kept for documentation */

static void three_redirects_are_followed(void)
{
    static const char *const host[] = { HERE };
    CHECK(fetches(host, 1, "http://" HERE "/hop/0", NULL));
    CHECK(fetches(host, 1, "http://" HERE "/hop/3", NULL));
    CHECK(!fetches(host, 1, "http://" HERE "/hop/4", "too many redirects"));
    atomic_store(&asked, 0);
    CHECK(!fetches(host, 1, "http://" HERE "/hop/1000", "too many redirects"));
    CHECK(atomic_load(&asked) == 4);
}

static void a_redirect_leads_only_to_named_hosts(void)
{
    static const char *const host[] = { HERE, "198.51.100.9" };
    CHECK(fetches(host, 2, "http://" HERE "/to/http://198.51.100.9/x", NULL));
    CHECK(!fetches(host, 1, "http://" HERE "/to/http://198.51.100.9/x", "--allow-url-host"));
    CHECK(!fetches(host, 2, "http://" HERE "/to/file:///etc/hostname", "cannot fetch"));
    CHECK(!fetches(host, 2, "http://198.51.100.10/x", "--allow-url-host"));
    CHECK(!fetches(NULL, 0, "http://" HERE "/hop/0", "--allow-url-host"));
}

/* Both hosts are named each time: it is the address that decides. A private host may be named, as an image server next
 * door is; a redirect may not lead there. */
static bool has_six(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void redirects_stay_out_of_private_networks(void)
{
    static const char *const inside[] = { "127.0.0.1",      "127.9.9.9",   "10.1.2.3",        "172.16.0.1",
                                          "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
                                          "0.0.0.0",        "224.0.0.1",   "255.255.255.255", "[::1]",
                                          "[fe80::1]",      "[fc00::1]",   "[fd12::1]",       "[::ffff:10.0.0.1]",
                                          "[ff02::1]",      "[::]" };
    static const char *const outside[] = { "172.15.0.1",  "172.32.0.1", "192.169.0.1", "100.63.0.1",
                                           "100.128.0.1", "11.0.0.1",   "169.253.0.1", "[2001:db8::1]" };
    char url[200];
    bool six = has_six();
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        const char *const host[] = { HERE, inside[i] };
        if (inside[i][0] == '[' && !six) continue;
        snprintf(url, sizeof url, "http://" HERE "/to/http://%s/x", inside[i]);
        atomic_store(&asked, 0);
        CHECK(!fetches(host, 2, url, "private network"));
        CHECK(atomic_load(&asked) == 1);
        if (inside[i][0] == '[') continue;
        snprintf(url, sizeof url, "http://%s/hop/0", inside[i]);
        CHECK(fetches(host, 2, url, NULL));
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        const char *const host[] = { HERE, outside[i] };
        if (outside[i][0] == '[' && !six) continue;
        snprintf(url, sizeof url, "http://" HERE "/to/http://%s/x", outside[i]);
        CHECK(fetches(host, 2, url, NULL));
    }
}

int main(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t n = sizeof a;
    pthread_t thread;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 16) != 0) return 77;
    getsockname(fd, (struct sockaddr *)&a, &n);
    port = ntohs(a.sin_port);
    ctx = cloob_ctx_create(NULL);
    if (pthread_create(&thread, NULL, serve_main, &fd) != 0) return 77;
    RUN(three_redirects_are_followed);
    RUN(a_redirect_leads_only_to_named_hosts);
    RUN(redirects_stay_out_of_private_networks);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
