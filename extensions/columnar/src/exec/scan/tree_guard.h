/*
 * tree_guard.h
 *		Keeps this session from dropping or truncating leaves that its own scans may come to.
 */
#ifndef COLUMNAR_TREE_GUARD_H
#define COLUMNAR_TREE_GUARD_H

#include "exec/scan/tree_scan.h"

extern void tree_guard_initialize(void);

/* Until the query's context is deleted. */
extern void tree_guard_add(const TreeScan *tree, MemoryContext query);

#endif
