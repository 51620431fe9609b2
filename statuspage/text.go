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

// clip shortens text that comes from outside. What is left out is counted.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", faults.Shorten(s, limit), len(s))
}

// name shortens a name.
func name(s string) string { return clip(s, maxName) }

// errorText is the text of an error, or "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return clip(err.Error(), maxError)
}

// needle is what is searched for: a text, without regard to the case of ASCII letters.
type needle string

func newNeedle(text string) needle {
	lower := []byte(strings.TrimSpace(text))
	for i, c := range lower {
		lower[i] = lowerASCII(c)
	}
	return needle(lower)
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// in reports whether one of the texts contains the needle.
func (n needle) in(texts ...string) bool {
	if n == "" {
		return true
	}
	for _, text := range texts {
		if containsFold(text, string(n)) {
			return true
		}
	}
	return false
}

// containsFold is strings.Contains for a lower-case substring, without a copy of the text.
func containsFold(text, lower string) bool {
	for i := 0; i+len(lower) <= len(text); i++ {
		if foldAt(text[i:], lower) {
			return true
		}
	}
	return false
}

func foldAt(text, lower string) bool {
	for i := range len(lower) {
		if lowerASCII(text[i]) != lower[i] {
			return false
		}
	}
	return true
}
