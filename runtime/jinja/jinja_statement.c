/* jinja_statement.c: see jinja_statement.h. */
#include "runtime/jinja/jinja_statement.h"

#include "runtime/jinja/jinja_parse.h"

#include <stdio.h>
#include <string.h>

// ---- Helpers ------------------------------------------------------------------------------------

static bool at_word(const struct jinja_parse *p, const char *word) {
    return jinja_parse_sees(p, LEX_NAME, word);
}

static bool end_tag(struct jinja_parse *p) { return jinja_parse_expect(p, LEX_BLOCK_END, NULL); }

// True if the next tag is one of the words, which end the body that is being read.
static bool at_end(const struct jinja_parse *p, const char *const *words) {
    if (p->token->kind == LEX_END) return true;
    if (p->token->kind != LEX_BLOCK_BEGIN || p->token[1].kind != LEX_NAME) return false;
    for (; *words; words++)
        if (jinja_text_equal(p->token[1].text, *words)) return true;
    return false;
}

static struct jinja_node *parse_statement(struct jinja_parse *p);

// Reads statements up to one of the words that may end them, and moves behind that word.
static const struct jinja_node *parse_body(struct jinja_parse *p, const char *const *words) {
    const struct jinja_node *first = NULL, **last = &first;
    if (jinja_heap_enter(p->heap, JINJA_NESTING)) {
        while (!jinja_failed(p->heap) && !at_end(p, words)) {
            struct jinja_node *node = parse_statement(p);
            *last = node;
            if (node) last = &node->next;
        }
    }
    jinja_heap_leave(p->heap);
    if (!jinja_failed(p->heap) && p->token->kind == LEX_END && words[0])
        jinja_fail(p->heap, "there is no {%% %s %%}", words[0]);
    if (!jinja_failed(p->heap) && words[0]) p->token++; // at the word
    return first;
}

// Reads a body up to that word and the end of its tag.
static const struct jinja_node *parse_block(struct jinja_parse *p, const char *word) {
    const char *const words[] = {word, NULL};
    if (!end_tag(p)) return NULL;
    const struct jinja_node *body = parse_body(p, words);
    if (jinja_failed(p->heap)) return NULL;
    p->token++;
    end_tag(p);
    return body;
}

// ---- Statements ---------------------------------------------------------------------------------

static struct jinja_node *parse_branch(struct jinja_parse *p, bool condition) {
    static const char *const words[] = {"endif", "elif", "else", NULL};
    struct jinja_node *node = jinja_parse_node(p, NODE_BRANCH);
    if (!node) return NULL;
    if (condition) node->a = jinja_parse_expression(p);
    if (end_tag(p)) node->body = parse_body(p, words);
    return node;
}

static struct jinja_node *parse_if(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_IF);
    const struct jinja_node **last = node ? &node->list : NULL;
    bool condition = true;
    while (!jinja_failed(p->heap)) {
        struct jinja_node *branch = parse_branch(p, condition);
        if (jinja_failed(p->heap)) break;
        *last = branch;
        last = &branch->next;
        if (jinja_parse_accept(p, LEX_NAME, "endif")) {
            end_tag(p);
            break;
        }
        if (!condition) jinja_fail(p->heap, "endif is expected after else");
        condition = at_word(p, "elif");
        p->token++;
    }
    return node;
}

static struct jinja_node *parse_for(struct jinja_parse *p) {
    static const char *const words[] = {"endfor", "else", NULL};
    struct jinja_node *node = jinja_parse_node(p, NODE_FOR);
    if (!node) return NULL;
    node->a = jinja_parse_target(p, false);
    if (!jinja_parse_expect(p, LEX_NAME, "in")) return NULL;
    node->b = jinja_parse_tuple(p, false);
    if (jinja_parse_accept(p, LEX_NAME, "if")) node->c = jinja_parse_expression(p);
    if (at_word(p, "recursive")) jinja_fail(p->heap, "recursive loops are not supported");
    if (!end_tag(p)) return NULL;
    node->body = parse_body(p, words);
    if (jinja_failed(p->heap)) return NULL;
    if (jinja_parse_accept(p, LEX_NAME, "else")) {
        node->list = parse_block(p, "endfor");
    } else {
        p->token++;
        end_tag(p);
    }
    return node;
}

static struct jinja_node *parse_set(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_SET);
    if (!node) return NULL;
    node->a = jinja_parse_target(p, true);
    if (jinja_parse_accept(p, LEX_OPERATOR, "=")) {
        node->b = jinja_parse_tuple(p, true);
        end_tag(p);
    } else {
        node->kind = NODE_SET_BLOCK;
        node->b = jinja_parse_filters(p, NULL);
        node->body = parse_block(p, "endset");
    }
    return node;
}

// Reads parameters with defaults up to the closing bracket.
static const struct jinja_node *parse_parameters(struct jinja_parse *p) {
    const struct jinja_node *list = NULL, **last = &list;
    while (!jinja_failed(p->heap) && !jinja_parse_sees(p, LEX_OPERATOR, ")")) {
        if (list && !jinja_parse_expect(p, LEX_OPERATOR, ",")) break;
        struct jinja_node *node = jinja_parse_node(p, NODE_ARGUMENT);
        if (!node) break;
        node->name = jinja_parse_name(p);
        if (jinja_parse_accept(p, LEX_OPERATOR, "=")) node->a = jinja_parse_expression(p);
        *last = node;
        last = &node->next;
    }
    jinja_parse_expect(p, LEX_OPERATOR, ")");
    return list;
}

static struct jinja_node *parse_macro(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_MACRO);
    if (!node) return NULL;
    node->name = jinja_parse_name(p);
    if (!jinja_parse_expect(p, LEX_OPERATOR, "(")) return NULL;
    node->list = parse_parameters(p);
    node->body = parse_block(p, "endmacro");
    return node;
}

static struct jinja_node *parse_call_block(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_CALL_BLOCK);
    if (!node) return NULL;
    node->name = jinja_text("caller", 6, false);
    if (jinja_parse_accept(p, LEX_OPERATOR, "(")) node->list = parse_parameters(p);
    node->a = jinja_parse_expression(p);
    if (node->a && node->a->kind != NODE_CALL)
        jinja_fail(p->heap, "call is not followed by a call");
    node->body = parse_block(p, "endcall");
    return node;
}

// A filter block begins like a chain of filters without its first bar.
static struct jinja_node *parse_filter_block(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_FILTER_BLOCK);
    struct jinja_node *first = jinja_parse_node(p, NODE_FILTER);
    if (!first) return NULL;
    first->name = jinja_parse_name(p);
    if (jinja_parse_sees(p, LEX_OPERATOR, "("))
        jinja_fail(p->heap, "the first filter of a block takes no arguments");
    node->a = jinja_parse_filters(p, first);
    node->body = parse_block(p, "endfilter");
    return node;
}

// Tags that mark what the model said, for training, mean nothing here.
static struct jinja_node *parse_group(struct jinja_parse *p) {
    struct jinja_node *node = jinja_parse_node(p, NODE_GROUP);
    if (node) node->body = parse_block(p, "endgeneration");
    return node;
}

static struct jinja_node *parse_jump(struct jinja_parse *p, enum jinja_node_kind kind) {
    struct jinja_node *node = jinja_parse_node(p, kind);
    end_tag(p);
    return node;
}

static struct jinja_node *parse_tag(struct jinja_parse *p) {
    p->heap->line = p->token->line;
    if (jinja_parse_accept(p, LEX_NAME, "if")) return parse_if(p);
    if (jinja_parse_accept(p, LEX_NAME, "for")) return parse_for(p);
    if (jinja_parse_accept(p, LEX_NAME, "set")) return parse_set(p);
    if (jinja_parse_accept(p, LEX_NAME, "macro")) return parse_macro(p);
    if (jinja_parse_accept(p, LEX_NAME, "call")) return parse_call_block(p);
    if (jinja_parse_accept(p, LEX_NAME, "filter")) return parse_filter_block(p);
    if (jinja_parse_accept(p, LEX_NAME, "generation")) return parse_group(p);
    if (jinja_parse_accept(p, LEX_NAME, "break")) return parse_jump(p, NODE_BREAK);
    if (jinja_parse_accept(p, LEX_NAME, "continue")) return parse_jump(p, NODE_CONTINUE);
    jinja_fail(p->heap, "the tag {%% %.*s %%} is not known",
               (int)(p->token->text.length < 40 ? p->token->text.length : 40),
               p->token->text.bytes);
    return NULL;
}

static struct jinja_node *parse_statement(struct jinja_parse *p) {
    struct jinja_node *node;
    if (jinja_parse_sees(p, LEX_OUTSIDE, NULL)) {
        node = jinja_parse_node(p, NODE_TEXT);
        if (node) node->value = jinja_of_text(p->token->text);
        p->token++;
        return node;
    }
    if (jinja_parse_accept(p, LEX_PRINT_BEGIN, NULL)) {
        node = jinja_parse_node(p, NODE_PRINT);
        if (node) node->a = jinja_parse_tuple(p, true);
        jinja_parse_expect(p, LEX_PRINT_END, NULL);
        return node;
    }
    return jinja_parse_expect(p, LEX_BLOCK_BEGIN, NULL) ? parse_tag(p) : NULL;
}

const struct jinja_node *jinja_statements(struct jinja_heap *h, const char *source, size_t length) {
    static const char *const words[] = {NULL};
    struct jinja_parse p = {.heap = h, .token = jinja_lex(h, source, length)};
    const struct jinja_node *first = p.token ? parse_body(&p, words) : NULL;
    return jinja_failed(h) ? NULL : first;
}
