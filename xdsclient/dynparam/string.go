package dynparam

import (
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxString bounds what String returns, in bytes. Longer text is cut, with an ellipsis.
const maxString = 1 << 10

// String returns the constraints for logs, for example
// `{env=prod, shard in [4-6] or [46-], version!=v1}`. An inverted key with several
// constraints is written `not (… and …)`. The text is cut at about a thousand bytes and
// must not be parsed; see Key and MarshalJSON.
func (c Constraints) String() string {
	return bracketed("{", c.keys(), ", ", (*KeyConstraints).text, "}")
}

func (k *KeyConstraints) text() string {
	if k.invert && len(k.all) > 1 {
		return bracketed("not (", k.all, " and ", func(c *Constraint) string { return c.text(k.key, false) }, ")")
	}
	return bracketed("", k.all, " and ", func(c *Constraint) string { return c.text(k.key, k.invert) }, "")
}

func (c *Constraint) text(key string, not bool) string {
	equals, in := "=", " in "
	if not {
		equals, in = "!=", " not in "
	}
	if c.kind == exactly {
		return plain(key) + equals + plain(c.value)
	}
	return bracketed(plain(key)+in, c.ranges, " or ", (*Range).text, "")
}

// text returns the range as TP2 writes it, "[4-6]", or "[46-]" if it has no upper bound.
func (r *Range) text() string {
	s := "[" + strconv.FormatUint(r.Min, 10) + "-"
	if r.bounded() {
		s += strconv.FormatUint(r.Max, 10)
	}
	return s + "]"
}

// String returns the parameters for logs as TP2 writes them, for example
// "{env=prod,version=v1}". The text is cut at about a thousand bytes.
func (p Parameters) String() string {
	return bracketed("{", p.list(), ",", func(p *parameter) string { return plain(p.key) + "=" + plain(p.value) }, "}")
}

// bracketed writes a list between two brackets. It stops at maxString, at which it also cuts the
// last element.
func bracketed[T any](before string, elements []T, separator string, text func(*T) string, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := range elements {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text(&elements[i]))
		if b.Len() > maxString {
			return strings.ToValidUTF8(b.String()[:maxString], "") + "…" + after
		}
	}
	return b.String() + after
}

// plain returns text as it is if it cannot be mistaken for something else, and quoted and
// cut otherwise.
func plain(s string) string {
	special := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./:", r))
	}
	if s == "" || len(s) > faults.MaxQuoted || strings.ContainsFunc(s, special) {
		return faults.Quote(s)
	}
	return s
}
