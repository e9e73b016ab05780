# Shared by the Makefiles of all extensions, which set EXTENSION and, when they have C code, MODULE_big; then
# include this file.
#
# An extension's SQL is that of version FIRST_VERSION, sql/$(EXTENSION)--$(FIRST_VERSION).sql followed by SHARED_SQL,
# fragments of extensions/common/sql that several extensions contain, and MORE_SQL of its own; and what each later
# version changes, sql/$(EXTENSION)--OLD--NEW.sql followed by the fragments of SHARED_SQL_NEW.  Of a released version nothing changes any more (CONTRIBUTING.md).

FIRST_VERSION = 0.1
VERSION = 0.2

EXTENSIONS_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
COMMON_DIR := $(EXTENSIONS_DIR)/common

# PGXS has a VERSION of its own
OWN_VERSION := $(VERSION)
OWN_SQL := sql/$(EXTENSION)--$(FIRST_VERSION).sql
SHARED_SQL_FILES := $(addprefix $(COMMON_DIR)/sql/,$(SHARED_SQL))
BUILT_SQL := $(EXTENSION)--$(FIRST_VERSION).sql

UPDATE_SQL := $(notdir $(wildcard sql/$(EXTENSION)--*--*.sql))

DATA_built = $(BUILT_SQL) $(UPDATE_SQL)
EXTRA_CLEAN += $(DATA_built)

ifdef MODULE_big
# COMMON_SRC are sources of extensions/common, compiled into the extension's own directory.
COMMON_OBJS := $(patsubst %.c,src/common_%.o,$(COMMON_SRC))
SOURCES := $(sort $(shell find src -name '*.c'))
OBJS = $(patsubst %.c,%.o,$(SOURCES)) $(COMMON_OBJS)
# headers are named with their folder: #include "wire/connection.h"
PG_CPPFLAGS += -DSTRATA_VERSION='"$(OWN_VERSION)"' -Isrc -I$(COMMON_DIR) -I$(libpq_srcdir)
# These three warnings of -Wextra are at odds with PostgreSQL's own headers and idioms.
PG_CFLAGS += -std=gnu11 -Wall -Wextra -Werror \
	-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# Libraries are loaded with RTLD_GLOBAL: without this, an equally named function of
# another library would run instead of ours.
SHLIB_LINK += $(libpq) -Wl,-Bsymbolic
# Debian builds PostgreSQL with LLVM; bitcode of ours would only help inlining.
override with_llvm = no
endif

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Flags are those that PostgreSQL was built with; a server for debugging makes slow kernels.
ifeq ($(filter -O2 -O3 -Ofast,$(CFLAGS)),)
$(warning PostgreSQL's CFLAGS do not optimise (no -O2): vectorised queries will be slow)
endif

$(BUILT_SQL): $(OWN_SQL) $(SHARED_SQL_FILES) $(MORE_SQL)
	cat $^ > $@

$(UPDATE_SQL): %: sql/% $(wildcard $(COMMON_DIR)/sql/*.sql)
	cat $< $(addprefix $(COMMON_DIR)/sql/,$(SHARED_SQL_$(lastword $(subst --, ,$(basename $@))))) > $@

ifdef MODULE_big
$(COMMON_OBJS): src/common_%.o: $(COMMON_DIR)/%.c
	$(CC) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

# Few files and many shared headers: rebuild all when any header changes.
$(OBJS): $(shell find src -name '*.h') $(wildcard $(COMMON_DIR)/*.h $(COMMON_DIR)/compat/*.h)
endif
