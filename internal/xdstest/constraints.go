package xdstest

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Constraints makes constraints of texts like "env=prod", "env!=prod" and "shard=0-5". It panics on
// others.
func Constraints(texts ...string) dynparam.Constraints {
	var keys []dynparam.KeyConstraints
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		constraint := dynparam.Value(value)
		var bounds dynparam.Range
		if n, err := fmt.Sscanf(value, "%d-%d", &bounds.Min, &bounds.Max); n == 2 && err == nil {
			constraint = dynparam.InRanges(bounds)
		}
		if inverted, ok := strings.CutSuffix(key, "!"); ok {
			keys = append(keys, dynparam.Exclude(inverted, constraint))
		} else {
			keys = append(keys, dynparam.Require(key, constraint))
		}
	}
	c, err := dynparam.New(keys...)
	if err != nil {
		panic(err)
	}
	return c
}
