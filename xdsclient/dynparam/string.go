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
	return faults.Shorten("{"+join(c.keys(), ", ", KeyConstraints.text), maxString) + "}"
}

func (k KeyConstraints) text() string {
	all, not := k.message.GetConstraints(), k.message.GetInvert()
	if not && len(all) > 1 {
		return "not (" + join(all, " and ", func(c *protoConstraint) string { return textOf(c, k.key, false) }) + ")"
	}
	return join(all, " and ", func(c *protoConstraint) string { return textOf(c, k.key, not) })
}

func textOf(c *protoConstraint, key string, not bool) string {
	equals, in := "=", " in "
	if not {
		equals, in = "!=", " not in "
	}
	if exact, isExact := c.GetConstraint().(*protoValue); isExact {
		return plain(key) + equals + plain(exact.Value)
	}
	return plain(key) + in + join(c.GetIntegerRangeList().GetRange(), " or ", rangeText)
}

// rangeText returns a range as TP2 writes it, "[4-6]", or "[46-]" if it has no upper bound.
func rangeText(r *protoRange) string {
	s := "[" + strconv.FormatUint(r.GetMinValue(), 10) + "-"
	if r.MaxValue != nil {
		s += strconv.FormatUint(*r.MaxValue, 10)
	}
	return s + "]"
}

// String returns the parameters for logs as TP2 writes them, for example
// "{env=prod,version=v1}". The text is cut at about a thousand bytes.
func (p Parameters) String() string {
	return faults.Shorten("{"+join(p.list(), ",", func(p parameter) string { return plain(p.key) + "=" + plain(p.value) }), maxString) + "}"
}

// join stops beyond maxString, where String cuts the text.
func join[T any](elements []T, separator string, text func(T) string) string {
	var b strings.Builder
	for i := 0; i < len(elements) && b.Len() <= maxString; i++ {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text(elements[i]))
	}
	return b.String()
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
