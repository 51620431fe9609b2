package statuspage

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
)

// Bounds on texts, in bytes. Names may have 64 KiB, and an error lists up to 100.
const (
	maxName  = 300
	maxError = 4000
)

// clipped returns a value for JSON with its texts from outside shortened.
func clipped(value any) any {
	return livestate.Cut(value, func(text string, sentence bool) string {
		if sentence {
			return clip(text, maxError)
		}
		return clip(text, maxName)
	})
}

// clip shortens text from outside, and appends its length.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", faults.Shorten(s, limit), len(s))
}

// first returns the first elements of a list, which are not nil.
func first[T any](list []T, limit int) []T {
	return append([]T{}, list[:min(len(list), limit)]...)
}
