/* Defaults of a server. */
#include "serve/serve.h"

void serve_options_init(serve_options *o)
{
    *o = (serve_options){ .host = "127.0.0.1",
                          .port = 8080,
                          .max_batch = 32,
                          .max_wait_us = 2000,
                          .max_queue = 512,
                          .workers = 64,
                          .max_body_mb = 32,
                          .max_pixels = 25000000,
                          .max_inputs = 2048,
                          .max_connections = 1024,
                          .max_per_address = 512,
                          .timeout_s = 60 };
}
