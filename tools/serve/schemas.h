/* JSON schemas that the table of routes refers to. */
#ifndef SERVE_SCHEMAS_H
#define SERVE_SCHEMAS_H

#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

typedef struct route_schema {
    const char *name, *json;
} route_schema;

extern const route_schema route_schemas[]; /* ends with a NULL name */

#endif
