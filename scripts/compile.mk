# Compile every C source against one PostgreSQL major version with warnings as errors; used by
# lint.sh, which sets OUT (where the objects go) and INCLUDES (-I options).  Nothing is linked.
# What only optimizers notice, such as a variable that is not set on some path, make build has told.

SOURCES := $(shell find coordinator worker extensions -name '*.c' 2>/dev/null)
OBJECTS := $(SOURCES:%.c=$(OUT)/%.o)
FLAGS := -std=gnu11 -O0 -fPIC -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter \
	-Wno-maybe-uninitialized -Wno-sign-compare -Wno-missing-field-initializers -Iextensions/common \
	-DSTRATA_VERSION='"lint"'

# where the headers of a source's extension are
OWN = $(addprefix -I,$(wildcard $(firstword $(subst /src/, ,$(subst /test/, ,$<)))/src))

.PHONY: all
all: $(OBJECTS)

$(OUT)/%.o: %.c scripts/compile.mk
	@mkdir -p $(@D)
	@$(CC) $(OWN) $(FLAGS) $(INCLUDES) -MMD -MP -c $< -o $@

-include $(OBJECTS:.o=.d)
