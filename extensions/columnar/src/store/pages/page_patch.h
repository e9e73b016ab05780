/*
 * page_patch.h
 *		Changing a few bytes of a page, logged.
 */
#ifndef COLUMNAR_PAGE_PATCH_H
#define COLUMNAR_PAGE_PATCH_H

#include "compat.h"

#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Makes the `length` bytes at `target`, inside of the buffer's page but not of its hole,
 * those at `bytes`.  The buffer is locked exclusively and belongs to the relation, whose
 * pages have the standard layout.
 */
extern void
page_patch(Relation relation, Buffer buffer, char *target, const void *bytes, uint32 length);

#endif
