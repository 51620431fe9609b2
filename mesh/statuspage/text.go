package statuspage

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// Bounds on texts, in bytes. Names may have 64 KiB, and errors list up to 100 faults.
const (
	maxName  = 300
	maxError = 4000
)

// clip shortens text from outside, and appends its length.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", faults.Shorten(s, limit), len(s))
}

// name shortens a name.
func name(s string) string { return clip(s, maxName) }

// names shortens the names of a list, and leaves out those over a limit.
func names(list []string, limit int) []string {
	shown := make([]string, min(len(list), limit))
	for i := range shown {
		shown[i] = name(list[i])
	}
	return shown
}

// errorText is the text of an error, or "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return clip(err.Error(), maxError)
}

// needle is what is searched for: a text, without regard to case.
type needle string

func newNeedle(text string) needle { return needle(strings.TrimSpace(text)) }

// in reports whether one of the texts contains the needle.
func (n needle) in(texts ...string) bool {
	for _, text := range texts {
		for i := 0; i+len(n) <= len(text); i++ {
			if strings.EqualFold(text[i:i+len(n)], string(n)) {
				return true
			}
		}
	}
	return n == ""
}
